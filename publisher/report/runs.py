"""`ReportContext`: where a report reads its runs (the columns of the store, or an archive), settings, and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import duckdb
import msgspec

from formats.calendar import Month, month_bounds
from publisher.config.schema import Config
from publisher.errors import UsageError
from publisher.events import Observer, WorkAdvanced, ignore
from publisher.report.archive import months_in
from publisher.report.report import Report, keys_text
from publisher.report.request import ReportRequest
from publisher.report.tables import (
    AGAIN_MB,
    EntryReading,
    OpenTables,
    archive_errors,
    current_tables,
    tables_of_archive,
    tables_of_store,
)
from publisher.report.view_kind import ViewKind
from publisher.store import registry, suspects
from publisher.store.admin.purge import runs_of_months
from publisher.store.database import Store
from publisher.store.report_queries import first_and_last_end
from publisher.text import iso, past


class ReportContext:
    """The store (None if an archive is read and there is none), the settings, and the time, for views."""

    def __init__(
        self, store: Store | None, config: Config, now: int, observer: Observer = ignore,
        stopping: Callable[[], bool] = lambda: False, least_mb: int = 0,
    ) -> None:  # fmt: skip
        """`observer`: follows how columns are brought up to date. `stopping`: whether somebody asked to stop.
        `least_mb`: of the memory for what reads runs."""
        self.stopping = stopping
        self._store = store
        self._observer = observer
        self._least_mb = least_mb
        self.config = config
        self.now = now

    def with_more_memory(self) -> ReportContext:
        """The same with more memory for what reads runs."""
        return ReportContext(self._store, self.config, self.now, self._observer, self.stopping, least_mb=AGAIN_MB)

    @property
    def store(self) -> Store:
        """The store. Raises `UsageError` if there is none."""
        if self._store is None:
            raise UsageError("nothing was collected yet", hint="Run `usage-publisher collect` first")
        return self._store

    def report(self, kind: ViewKind, request: ReportRequest, **fields: Any) -> Report:
        """The report of a view of this site, for the interval and by the keys of a request. `fields`: what else it has,
        or has instead."""
        heading = kind.heading or kind.title
        known: dict[str, Any] = {
            "title": f"{heading}, by {keys_text(request.by)}" if request.by else heading,
            "start": request.start,
            "stop": request.stop,
            "columns": kind.columns,
            "rows_named": kind.rows_named,
        }
        return Report(view=kind.name, site=self.config.site.name, **(known | fields))

    def suspects(self) -> int:
        """How many jobs are held because a user may have made them."""
        if self._store is None:
            return 0
        with self._store.read() as connection:
            return suspects.count(connection)

    @contextmanager
    def tables(self, request: ReportRequest, reading: EntryReading) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to DuckDB with `entries` (`publisher.report.tables`): all runs that are stored now, or those of
        the archive."""
        reading = reading.selecting(request.filters)
        reading = msgspec.structs.replace(reading, buffers_mb=max(reading.buffers_mb, self._least_mb))
        if request.archive is not None:
            with tables_of_archive(request.archive, reading) as connection, archive_errors(request.archive):
                yield connection
        else:
            with tables_of_store(self.store, self.config, reading, self._advanced) as connection:
                yield connection

    @contextmanager
    def opened_later(self, request: ReportRequest, reading: EntryReading) -> Iterator[OpenTables]:
        """As `tables`: what opens them, which a child process may do."""
        if request.archive is not None:
            yield partial(tables_of_archive, request.archive, reading)
            return
        with current_tables(self.store, self.config, reading, self._advanced) as opened:
            yield opened

    def _advanced(self, done: int, total: int | None) -> None:
        self._observer(WorkAdvanced("report", done, total))

    def existing(self, request: ReportRequest) -> str:
        """The text that says from when to when the runs ended."""
        if request.archive is not None:
            months = [*months_in(request.archive)]
            return f"the archive has jobs that ended from {months[0]} to {months[-1]}"
        first, last = self.ends()
        return "none has ended yet" if last is None else f"jobs ended from {iso(first)} to {iso(last)}"

    def ends(self) -> tuple[int | None, int | None]:
        """When the first and the last stored run ended; None where none has."""
        with self.store.read() as connection:
            return first_and_last_end(connection)

    def known_until(self, request: ReportRequest) -> int | None:
        """The time up to which every source was read, or to which the archive has months; None if it is unknown."""
        if request.archive is not None:
            return max((month_bounds(month)[1] for month in months_in(request.archive)), default=None)
        if self._store is None:
            return None
        with self._store.read() as connection:
            sources = [registry.get_source(connection, name) for name in self.config.sources]
        reads = [
            past(source.last_collected if source.at_end else source.last_job_end, self.now)
            for source in sources
            if source
        ]
        return min((read for read in reads if read is not None), default=None)

    def purged(self, request: ReportRequest) -> dict[Month, int]:
        """Months of the interval whose runs were purged from the store, and how many; empty if an archive is read."""
        if request.archive is not None or self._store is None:
            return {}
        with self._store.read() as connection:
            gone = runs_of_months(connection)
        return {
            month: count
            for month, count in gone.items()
            if month_bounds(month)[0] < request.stop and month_bounds(month)[1] > request.start
        }


def purged_note(purged: Mapping[Month, int]) -> str:
    """The note on these months and their numbers of runs, of `ReportContext.purged`; empty if there are none."""
    if not purged:
        return ""
    months = ", ".join(f"{month} ({count:,} jobs)" for month, count in purged.items())
    return f"Not counted, because they were purged from the store: {months}. Read an archive of them with --archive."


def running_note(request: ReportRequest) -> tuple[str, ...]:
    """The note of a view that counts running jobs, if it reads an archive."""
    return ("Running jobs are not counted: archives do not have them.",) if request.archive is not None else ()
