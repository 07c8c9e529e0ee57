"""The relation `entries` as frames, for views that compute from columns of numbers: `publisher.report.frame.Runs`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol

import duckdb
import numpy as np

from formats.calendar import Month
from publisher.job_ids import JobIds
from publisher.report.archive import CORE_NUMBERS, JOB_COLUMNS, core_numbers_of, events_of, reader_of, words_of
from publisher.report.frame import NUMBERS, ROW, UNKNOWN, WORDS, Coding, Frame
from publisher.report.tables import archive_errors, arrow_batches, tables_of_archive

_ROWS: Final = 200_000
_OF_JOB: Final = ("task", "cluster", *JOB_COLUMNS)
"""The fields of `JobIds`."""


class OpenTables(Protocol):
    """Opens the relation: see `publisher.report.tables.tables_of_store`."""

    def __call__(
        self, *, columns: Collection[str], start: int | None, stop: int | None, running_until: int | None
    ) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """The connection."""
        ...


class ColumnRuns:
    """Runs from the columns of a store, or from an archive."""

    def __init__(
        self, open_tables: OpenTables, advanced: Callable[[int, int | None, int], None] = lambda *_advanced: None
    ) -> None:
        """`advanced` is called after each frame with the interval and the number of runs."""
        self._open = open_tables
        self._advanced = advanced
        self.codings: dict[str, Coding] = {}

    def frames(
        self, start: int, stop: int | None, requested: frozenset[str], *, running_until: int | None
    ) -> Iterator[Frame]:
        """See `Runs`. All frames show one state. Memory does not grow with the number of runs."""
        self.codings = {name: Coding(words_of(name)) for name in requested & WORDS}
        numbers = sorted(requested & (NUMBERS | {ROW}) | {"start", "stop"})
        words = sorted(requested & WORDS)
        objects = [
            *(_OF_JOB if "job" in requested else ()),
            *sorted(requested & {"events", CORE_NUMBERS}),
        ]
        columns = dict.fromkeys([*numbers, *("placed" if name == "host" else name for name in words), *objects])
        query = f'SELECT {", ".join(map(_quoted, columns))} FROM entries WHERE "end" >= $start'  # noqa: S608 - names of ours
        given = {"start": start}
        if stop is not None:
            query += ' AND "end" < $stop'
            given["stop"] = stop
        if running_until is not None:
            query += ' OR "end" IS NULL'
        needed = {*columns, "end"}
        with self._open(columns=needed, start=start, stop=stop, running_until=running_until) as connection:
            for batch in arrow_batches(connection, query, given, _ROWS):
                yield self._frame(batch, numbers, words, requested)
                self._advanced(start, stop, batch.num_rows)

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


class ArchiveRuns(ColumnRuns):
    """The runs of an archive, which has no running jobs. `only`: those that ended in this month."""

    def __init__(self, archive: Path, only: Month | None = None) -> None:
        super().__init__(partial(_of_archive, archive, only))
        self._archive = archive

    def frames(
        self, start: int, stop: int | None, requested: frozenset[str], *, running_until: int | None
    ) -> Iterator[Frame]:
        """See `Runs`. Raises `UsageError` if there is no archive, or one of another program."""
        with archive_errors(self._archive):
            yield from super().frames(start, stop, requested, running_until=running_until)


def _of_archive(
    archive: Path,
    only: Month | None,
    *,
    columns: Collection[str],
    start: int | None,
    stop: int | None,
    running_until: int | None,  # noqa: ARG001 - archives have no running jobs
) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    return tables_of_archive(archive, columns=columns, start=start, stop=stop, only=only)


def _quoted(name: str) -> str:
    return f'"{name}"'


def _job_ids(
    task: str | None, cluster: str | None, local_id: str | None, name: str | None, global_id: str | None,
    array_id: str | None, dqs_job_name: str | None,
) -> JobIds:  # fmt: skip
    number = None if task is None else int(task)
    return JobIds(local_id, name, global_id, array_id, number, cluster, dqs_job_name)
