"""Runs as the DuckDB relation `entries`, one row a run, for views in SQL: of a store or an archive.

The columns are those of an archive (`publisher.report.archive.COLUMNS`), with the number of the run in the store. The
connection reads these runs alone: no file of others, no network, no extension; its memory is bounded, and what it
spills is private.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import duckdb
import msgspec
import pyarrow as pa

from formats.calendar import month_of
from publisher.errors import UsageError
from publisher.report.archive import COLUMNS, CORE_NUMBERS, JOB_COLUMNS, LATER, months_about, text_of
from publisher.report.frame import NUMBERS, OBJECTS, ROW, UNKNOWN, WORDS, Frame, Runs
from publisher.report.matching import Matching
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.selection import Met
from publisher.report.view_kind import Interval

RUN_ID: Final = "run_id"
"""The number of a run in the store; archives do not have it."""
_WHOLE: Final = NUMBERS | {RUN_ID}
_MEMORY: Final = "128MB"
_TEMPORARY: Final = "4GB"


class SqlReport(Protocol):
    """What SQL computed, and counts of the runs."""

    met: Met


_Part = TypeVar("_Part", bound=SqlReport)


def computed(
    context: ReportContext, request: ReportRequest, columns: Collection[str], interval: Interval,
    part: Callable[[Matching], _Part],
) -> _Part:  # fmt: skip
    """The result of `part` for the runs that match a request, which has these columns of `entries`."""
    stop = request.stop if (request.interval or interval) == "ended" else None
    with opened(context, request, columns, stop) as connection:
        matching = Matching(connection, request, interval)
        made = part(matching)
        if not made.met.matched:
            made.met = matching.met(partial(context.existing, request))
        return made


def opened(
    context: ReportContext, request: ReportRequest, columns: Collection[str], stop: int | None
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A connection with `entries`, which has these columns: the runs that ended after the start of the interval, and
    before `stop`."""
    if request.archive is not None:
        return _of_archive(request.archive, columns, request.start, stop)
    return _of_runs(context.runs(request), columns, request.start, stop)


@contextmanager
def _of_runs(runs: Runs, columns: Collection[str], start: int, stop: int | None) -> Iterator[duckdb.DuckDBPyConnection]:
    own = [name for name in (*COLUMNS, RUN_ID) if name in columns]
    known = NUMBERS | WORDS | OBJECTS
    requested = {ROW if name == RUN_ID else name if name in known else "job" for name in own}
    schema = pa.schema([(name, pa.int64() if name in _WHOLE else pa.string()) for name in own])

    def batches() -> Iterator[Any]:
        for frame in runs.frames(start, stop, frozenset(requested), running_until=None):
            yield pa.record_batch([_array(frame, runs, name) for name in own], schema=schema)

    with _bounded([]) as connection:
        reader: Any = pa.RecordBatchReader
        connection.register("read", reader.from_batches(schema, batches()))
        connection.execute("CREATE TABLE entries AS SELECT * FROM read")
        connection.unregister("read")
        _lock(connection)
        yield connection


def _array(frame: Frame, runs: Runs, name: str) -> Any:
    if name in _WHOLE:
        values = frame.numbers[ROW if name == RUN_ID else name]
        return pa.array(values, mask=values == UNKNOWN)
    if name in JOB_COLUMNS:
        return pa.array([_unicode(getattr(ids, name)) for ids in frame.objects["job"]], pa.string())
    if name in {"events", CORE_NUMBERS}:
        encoded = [msgspec.json.encode(some).decode() if some else None for some in frame.objects[name]]
        return pa.array(encoded, pa.string())
    coding = runs.codings[name]
    texts = [_unicode(text_of(name, raw, words)) for raw, words in zip(coding.raw, coding.values, strict=True)]
    return pa.array([texts[code] for code in frame.codes[name].tolist()], pa.string())


def _unicode(text: str | None) -> str | None:
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


@contextmanager
def _of_archive(
    archive: Path, columns: Collection[str], start: int, stop: int | None
) -> Iterator[duckdb.DuckDBPyConnection]:
    last = None if stop is None else month_of(stop - 1)
    files = [str(path) for month, path in months_about(archive, start).items() if last is None or month <= last]
    with _archive_errors(archive), _bounded(files) as connection:
        named = connection.execute("SELECT DISTINCT name FROM parquet_schema($1)", [files]).fetchall() if files else []
        there = {row[0] for row in named}
        types = {name: "BIGINT" if name in _WHOLE else "VARCHAR" for name in (*COLUMNS, RUN_ID) if name in columns}
        missing = types.keys() - there
        if files and missing - LATER - {RUN_ID}:
            raise duckdb.Error(f"it lacks the column {min(missing - LATER - {RUN_ID})}")
        selected = ", ".join(
            f'CAST(NULL AS {kind}) AS "{name}"' if name in missing else f'"{name}"' for name, kind in types.items()
        )
        read = f"read_parquet({_list(files)}, union_by_name = true)" if files else "(SELECT 1) WHERE false"
        connection.execute(f"CREATE VIEW entries AS SELECT {selected} FROM {read}")  # noqa: S608 - names of ours
        _lock(connection)
        yield connection


@contextmanager
def _archive_errors(archive: Path) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise UsageError(
            f"the archive {archive} cannot be read: {str(error).splitlines()[0]}",
            hint=f"Write it again with `usage-publisher archive {archive}`",
        ) from error


@contextmanager
def _bounded(files: Sequence[str]) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that can read these files; until `_lock` nothing keeps it from others."""
    with tempfile.TemporaryDirectory(prefix="usage-publisher-report-") as private, duckdb.connect(":memory:") as made:
        for setting, value in (
            ("memory_limit", f"'{_MEMORY}'"), ("temp_directory", f"'{private}'"),
            ("max_temp_directory_size", f"'{_TEMPORARY}'"), ("preserve_insertion_order", "false"),
            ("autoinstall_known_extensions", "false"), ("autoload_known_extensions", "false"),
            ("allowed_paths", _list(files)),
        ):  # fmt: skip
            with suppress(duckdb.CatalogException):  # one that this version does not have
                made.execute(f"SET {setting} = {value}")
        yield made


def _list(paths: Sequence[str]) -> str:
    return "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in paths) + "]"


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From now on, nothing but the allowed files is read, and no setting changes."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
