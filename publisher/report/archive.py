"""Reading an archive with DuckDB: the months and the columns that a report needs.

An archive is a folder with `month=2026-11/runs.parquet` for each month, with a row for each entry of a report.

The columns are those of `publisher.report.frame`, with null where nothing is known. Hosts, core numbers and events
are JSON, the resources of `complex` are joined by commas. Other programs may read it: DuckDB, Spark, pandas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import numpy as np

from formats.calendar import Month, month_of
from formats.job import Events, Host
from publisher.errors import UsageError
from publisher.job_ids import JobIds
from publisher.report.frame import NUMBERS, UNKNOWN, WORDS, Coding, Frame

VERSION: Final = "1"
VERSION_KEY: Final = b"usage-publisher-archive"
FILE: Final = "runs.parquet"
JOB_COLUMNS: Final = ("local_id", "name", "global_id", "array_id", "dqs_job_name")
"""The names of a job."""
_OF_JOB: Final = ("task", "cluster", *JOB_COLUMNS)
"""The fields of `JobIds`."""
TEXT_COLUMNS: Final = (*sorted(WORDS - NUMBERS - {"placed", "host"}), "placed")
"""Columns of words; `host` is read from `placed`, and the word `slots` from the number."""
CORE_NUMBERS: Final = "core_numbers"
LATER: Final = frozenset({CORE_NUMBERS, "incomplete"})
"""Columns that older archives may lack: their values are then unknown."""
COLUMNS: Final = (*sorted(NUMBERS), *TEXT_COLUMNS, *JOB_COLUMNS, "events", CORE_NUMBERS)
_MONTH: Final = re.compile(r"month=(\d{4})-(\d{2})", re.ASCII)

_hosts: Final = msgspec.json.Decoder(tuple[Host, ...])
_events: Final = msgspec.json.Decoder(Events)
_core_numbers: Final = msgspec.json.Decoder(tuple[str, ...])


def folder_of(archive: Path, month: Month) -> Path:
    """The folder of the runs that ended in a month."""
    return archive / f"month={month}"


def months_in(archive: Path) -> dict[Month, Path]:
    """The files of an archive by month, in order. Raises `UsageError` if there is no archive."""
    found: dict[Month, Path] = {}
    if archive.is_dir():
        for folder in sorted(archive.iterdir()):
            if (month := _MONTH.fullmatch(folder.name)) and (folder / FILE).is_file():
                found[Month(int(month[1]), int(month[2]))] = folder / FILE
    if not found:
        raise UsageError(f"{archive} is not an archive", hint=f"Write one with `usage-publisher archive {archive}`")
    return found


def text_of(name: str, raw: Any, words: tuple[str, ...]) -> str | None:
    """A raw value of a coding as text of a column."""
    if name == "placed":
        return msgspec.json.encode(raw).decode() if raw else None
    return ",".join(words) if words else None


def reader_of(name: str) -> Callable[[str | None], Any]:
    """A function from the text of a column to the raw value, as `words_of` takes it."""
    if name in {"placed", "host"}:
        return lambda text: _hosts.decode(text) if text else ()
    return lambda text: text


def words_of(name: str) -> Callable[[Any], tuple[str, ...]]:
    """A function from a raw value to its words."""
    if name in {"placed", "host"}:
        return lambda hosts: tuple(host.name for host in hosts if host.name)
    if name == "complex":
        return lambda text: tuple(text.split(",")) if text else ()
    return lambda text: (text,) if text else ()


def events_of(text: str | None) -> Events | None:
    """The events of a job."""
    return _events.decode(text) if text else None


def core_numbers_of(text: str | None) -> tuple[str, ...]:
    """The cores of each host of a job."""
    return _core_numbers.decode(text) if text else ()


_ROWS: Final = 200_000
_MEMORY: Final = "256MB"


def months_about(archive: Path, start: int) -> dict[Month, Path]:
    """The files of an archive with runs that ended at an instant or later. Raises `UsageError` if there is none."""
    first = month_of(start)
    return {month: path for month, path in months_in(archive).items() if month >= first}


class ArchiveRuns:
    """The runs of an archive: `publisher.report.frame.Runs`. Archives have no running jobs.

    `only`: those that ended in this month.
    """

    def __init__(self, archive: Path, only: Month | None = None) -> None:
        self._archive = archive
        self._only = only
        self.codings: dict[str, Coding] = {}

    def frames(
        self,
        start: int,
        stop: int | None,
        requested: frozenset[str],
        *,
        running_until: int | None,  # noqa: ARG002
    ) -> Iterator[Frame]:
        """See `Runs`. Raises `UsageError` if there is no archive, or one of another program."""
        self.codings = {name: Coding(words_of(name)) for name in requested & WORDS}
        months = months_about(self._archive, start) if stop is None else months_in(self._archive)
        first, last = month_of(start), None if stop is None else month_of(stop - 1)
        files = [
            str(path)
            for month, path in months.items()
            if (last is None or first <= month <= last) and self._only in {None, month}
        ]
        if not files:
            return
        numbers = sorted(requested & NUMBERS | {"start", "stop"})
        words = sorted(requested & WORDS)
        objects = [
            *((*JOB_COLUMNS, "task", "cluster") if "job" in requested else ()),
            *sorted(requested & {"events", CORE_NUMBERS}),
        ]
        columns = dict.fromkeys([*numbers, *("placed" if name == "host" else name for name in words), *objects])
        quoted = ", ".join(f'"{name}"' for name in columns)
        later = sorted(requested & LATER)
        read_files = "read_parquet($files, union_by_name = true)" if later else "read_parquet($files)"
        query = f'SELECT {quoted} FROM {read_files} WHERE "end" >= $start'  # noqa: S608 - names of ours
        given: dict[str, Any] = {"files": files, "start": start}
        if stop is None:
            query += ' OR "stop" >= $start'
        else:
            query += ' AND "end" < $stop'
            given["stop"] = stop
        with duckdb.connect(":memory:") as connection:
            connection.execute(f"SET memory_limit = '{_MEMORY}'")
            connection.execute("SET preserve_insertion_order = false")
            connection.execute("SET autoinstall_known_extensions = false")
            connection.execute("SET autoload_known_extensions = false")
            try:
                for name in later:
                    if not _has(connection, files, name):
                        empty = f'CAST(NULL AS {"BIGINT" if name in NUMBERS else "VARCHAR"}) AS "{name}"'
                        query = query.replace(f'"{name}"', empty, 1)
                result: Any = connection.execute(query, given)
                # DuckDB before 1.4 has only the older name.
                read = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
                reader = read(_ROWS)
                for batch in reader:
                    yield self._frame(batch, numbers, words, requested)
            except duckdb.Error as error:
                raise UsageError(
                    f"the archive {self._archive} cannot be read: {str(error).splitlines()[0]}",
                    hint=f"Write it again with `usage-publisher archive {self._archive}`",
                ) from error

    def _frame(self, batch: Any, numbers: list[str], words: list[str], requested: frozenset[str]) -> Frame:
        def column(name: str) -> Any:
            return batch.column(batch.schema.get_field_index(name))

        found = {
            name: column(name).fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
            for name in numbers
        }
        codes = {name: self._codes(name, column("placed" if name == "host" else name)) for name in words}
        objects: dict[str, list[Any]] = {}
        if "job" in requested:
            named = (column(name).to_pylist() for name in _OF_JOB)
            objects["job"] = [_job_ids(*names) for names in zip(*named, strict=True)]
        if "events" in requested:
            objects["events"] = [events_of(text) for text in column("events").to_pylist()]
        if CORE_NUMBERS in requested:
            objects[CORE_NUMBERS] = [core_numbers_of(text) for text in column(CORE_NUMBERS).to_pylist()]
        return Frame(batch.num_rows, found, codes, objects)

    def _codes(self, name: str, column: Any) -> Any:
        if name == "slots":
            column = column.cast("string")
        encoded = column.dictionary_encode(null_encoding="encode")
        raw = reader_of(name)
        code = self.codings[name].code
        known = np.array([code[raw(text)] for text in encoded.dictionary.to_pylist()], np.int64)
        return known[encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)]


def _job_ids(
    task: str | None, cluster: str | None, local_id: str | None, name: str | None, global_id: str | None,
    array_id: str | None, dqs_job_name: str | None,
) -> JobIds:  # fmt: skip
    number = None if task is None else int(task)
    return JobIds(local_id, name, global_id, array_id, number, cluster, dqs_job_name)


def _has(connection: duckdb.DuckDBPyConnection, files: list[str], column: str) -> bool:
    """Whether any of the files has a column."""
    query = "SELECT count(*) FROM parquet_schema($files) WHERE name = $column"
    found = connection.execute(query, {"files": files, "column": column}).fetchone()
    return bool(found and found[0])
