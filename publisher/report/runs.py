"""Runs of the store as frames: partly decoded, thousands at once, with what the configuration adds to their class.

`ReportContext` chooses where a report reads its runs: the store, or an archive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection

from formats.calendar import Month, month_bounds
from formats.identity import UnknownEncodingError, encode
from formats.job import Job
from publisher.collect.enrich import Enrichers
from publisher.config.schema import SOURCE_KINDS, Config
from publisher.encoded_run import class_values, unpack
from publisher.errors import UsageError
from publisher.events import Observer, WorkAdvanced
from publisher.report.columns import ClassColumns, ColumnMaker
from publisher.report.frame import ROW, Coding, Frame, Runs
from publisher.report.request import ReportRequest
from publisher.report.selection import PartialReport, Selection, selected
from publisher.report.view_kind import VIEW_KINDS, Interval
from publisher.sources.dqs import SEVERAL_LINES, without_slaves
from publisher.status.jobs import count_in
from publisher.store import registry, suspects
from publisher.store.admin.purge import runs_of_months
from publisher.store.classes import classes_by_id, decode
from publisher.store.database import Store
from publisher.store.report_queries import Rows, first_and_last_end, has_source_of, stored_runs
from publisher.text import iso, past

_COUNTED_AFTER_S: Final = 1.0
"""A report that is done earlier does not pay for counting the runs of its interval."""
_PAGE: Final = 4_000
_ARRAY: Final = b"\xdd"
"""MessagePack's marker of an array whose length follows in four bytes."""


class ReadingProgress:
    """Reports as events how far a report has read. Called by `StoreRuns` with each page that it read."""

    def __init__(self, store: Store, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._total: int | None = None

    def __call__(self, start: int, stop: int | None, runs: int) -> None:
        """`runs` more of those that ended from `start` until `stop` were read."""
        self._done += runs
        if self._total is None and self._clock() - self._began >= _COUNTED_AFTER_S:
            with self._store.read() as connection:
                self._total = count_in(connection, start, stop)
        self._observer(WorkAdvanced("report", self._done, self._total))


class StoreRuns:
    """The runs of a store: `publisher.report.frame.Runs`."""

    def __init__(
        self,
        store: Store,
        config: Config,
        advanced: Callable[[int, int | None, int], None] = lambda _start, _stop, _runs: None,
    ) -> None:
        """`advanced` is called after each page with the interval and the number of runs."""
        self._store = store
        self._config = config
        self._advanced = advanced
        self._enrichers = Enrichers(config)
        self.codings: dict[str, Coding] = {}

    def frames(
        self, start: int, stop: int | None, requested: frozenset[str], *, running_until: int | None
    ) -> Iterator[Frame]:
        """See `Runs`. All frames show one state of the store. Memory does not grow with the number of runs."""
        with self._store.read() as connection:
            kinds = [each.name for each in SOURCE_KINDS.values() if each.keeps_slaves]
            with_slaves = any(has_source_of(connection, kind) for kind in kinds)
            maker = ColumnMaker(requested - {ROW}, running=running_until is not None, second_names=with_slaves)
            made = StoredFrames(maker, self._config, self._enrichers, with_slaves=with_slaves)
            self.codings = maker.codings
            pages = stored_runs(connection, start, stop, _PAGE, running=running_until is not None)
            with closing(pages):
                for page in pages:
                    if unknown := made.unknown(page):
                        with self._store.read() as other:  # the first connection has an open cursor
                            made.learn(other, unknown)
                    ids = [row[0] for row in page] if ROW in requested else None
                    yield from made.of(made.decoded(page), page, running_until, ids)
                    self._advanced(start, stop, len(page))


class StoredFrames:
    """Makes frames of stored runs and of what their classes share."""

    def __init__(self, maker: ColumnMaker, config: Config, enrichers: Enrichers, *, with_slaves: bool) -> None:
        self.maker = maker
        self._with_slaves = with_slaves
        self._prefixes = config.local_id_prefixes
        self._enrichers = enrichers
        self._decoder: msgspec.msgpack.Decoder[list[Any]] = msgspec.msgpack.Decoder(list[maker.slim])  # type: ignore[name-defined]
        self._places: dict[int, int] = {}
        self._facts: dict[int, bytes] = {}
        self._values: dict[int, dict[str, Any]] = {}
        """By class, the values that its runs do not store themselves, as fields of slim runs."""

    def unknown(self, page: Rows) -> set[int]:
        """The classes of a page that were not read yet."""
        return {class_id for _, class_id, _ in page} - self._places.keys()

    def learn(self, connection: Connection, class_ids: set[int]) -> None:
        """Read what runs of these classes share."""
        for known in classes_by_id(connection, sorted(class_ids)):
            facts = self._enrichers.apply(known.source, known.facts)
            shared = ClassColumns(known.source, facts.vo, facts.user_dn, self._prefixes.get(known.source, ""))
            self._places[known.id] = self.maker.learn(shared)
            self._facts[known.id] = encode(known.facts)
            self._values[known.id] = self.maker.slim_values(class_values(self._facts[known.id]))

    def decoded(self, page: Rows) -> list[Any]:
        """The slim runs of a page whose classes were read; runs of DQS without their slaves.

        Raises the errors of `publisher.store.classes`. All runs are decoded at once, as one array.
        """
        packed, own = [], []
        try:
            for _, class_id, blob in page:
                left_to_class, one = unpack(blob)
                packed.append(one)
                own.append(self._values[class_id] if left_to_class else None)
            found = self._decoder.decode(b"".join([_ARRAY, len(packed).to_bytes(4, "big"), *packed]))
        except (UnknownEncodingError, msgspec.DecodeError, UnicodeDecodeError):
            return [
                self.maker.slim_of(without_slaves(self._whole(row))) for row in page
            ]  # raises an error that says which run is wrong
        runs = [
            msgspec.structs.replace(run, **values) if values else run for run, values in zip(found, own, strict=True)
        ]
        if self._with_slaves:
            for place, one in enumerate(packed):
                if SEVERAL_LINES in one:
                    runs[place] = self.maker.slim_of(without_slaves(self._whole(page[place])))
        return runs

    def _whole(self, row: tuple[int, int, bytes]) -> Job:
        run_id, class_id, blob = row
        return decode(blob, self._facts[class_id], f"number {run_id}")

    def of(self, runs: list[Any], page: Rows, now: int | None, ids: Sequence[int] | None = None) -> Iterator[Frame]:
        """A frame of stored runs, if there are any. `ids` become the column `ROW`."""
        if runs:
            yield self.maker.frame(runs, [self._places[class_id] for _, class_id, _ in page], now, ids)


_Part = TypeVar("_Part", bound=PartialReport)


class ReportContext:
    """The store (None if an archive is read and there is none), the settings, and the time, for views."""

    def __init__(self, store: Store | None, config: Config, now: int, runs: Callable[[], Runs] | None = None) -> None:
        """`runs` returns the runs of the store from memory, if they are kept there."""
        self._store = store
        self._runs = runs
        self.config = config
        self.now = now

    @property
    def store(self) -> Store:
        """The store. Raises `UsageError` if there is none."""
        if self._store is None:
            raise UsageError("nothing was collected yet", hint="Run `usage-publisher collect` first")
        return self._store

    def suspects(self) -> int:
        """How many jobs are held because a user may have made them."""
        if self._store is None:
            return 0
        with self._store.read() as connection:
            return suspects.count(connection)

    def runs(self, request: ReportRequest) -> Runs:
        """The runs that the request is about."""
        if request.dask is not None:
            computed = [kind.name for kind in VIEW_KINDS.values() if kind.on_cluster]
            raise UsageError(
                f"--dask: a cluster computes only {', '.join(computed[:-1])} and {computed[-1]}",
                hint="Omit --dask, or choose another view",
            )
        if request.archive is not None:
            from publisher.report.archive import ArchiveRuns  # noqa: PLC0415 - loads DuckDB and Arrow

            return ArchiveRuns(request.archive)
        return self._runs() if self._runs is not None else StoreRuns(self.store, self.config)

    def select(
        self, request: ReportRequest, requested: frozenset[str], interval: Interval, *, running: bool = False
    ) -> Selection:
        """The runs that match a request, with these columns; `running`: also those that are still running."""
        until = self.now if running and request.running else None
        there = partial(self.existing, request)
        return selected(self.runs(request), request, requested, interval, running_until=until, there=there)

    def existing(self, request: ReportRequest) -> str:
        """The text that says from when to when the runs ended."""
        if request.archive is not None:
            from publisher.report.archive import months_in  # noqa: PLC0415 - archives are a leaf

            months = [*months_in(request.archive)]
            return f"the archive has runs that ended from {months[0]} to {months[-1]}"
        with self.store.read() as connection:
            ends = first_and_last_end(connection)
        return f"runs ended from {iso(ends[0])} to {iso(ends[1])}" if ends is not None else "none has ended yet"

    def known_until(self, request: ReportRequest) -> int | None:
        """The time up to which every source was read, or to which the archive has months; None if it is unknown."""
        if request.archive is not None:
            from publisher.report.archive import months_in  # noqa: PLC0415 - archives are a leaf

            return max((month_bounds(month)[1] for month in months_in(request.archive)), default=None)
        if self._store is None:
            return None
        with self._store.read() as connection:
            found = [registry.get_source(connection, name) for name in self.config.sources]
        reads = [past(one.last_collected if one.at_end else one.last_job_end, self.now) for one in found if one]
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

    def purged_note(self, request: ReportRequest) -> str:
        """The note on the months of `purged`; empty if there are none."""
        months = ", ".join(f"{month} ({count:,} runs)" for month, count in self.purged(request).items())
        if not months:
            return ""
        return (
            f"Not counted, because they were purged from the store: {months}. Read an archive of them with --archive."
        )

    def gather(
        self,
        request: ReportRequest,
        requested: frozenset[str],
        interval: Interval,
        part: Callable[[Selection, ReportRequest], _Part],
        *,
        running: bool = False,
    ) -> _Part:
        """The result of `part` for the runs that match a request, computed here or by month on a cluster.

        `running`: also runs that are still running, which archives do not have.
        """
        if request.dask is None:
            return part(self.select(request, requested, interval, running=running), request)
        from publisher.report.dask import gather  # noqa: PLC0415 - loads Dask

        return gather(request, requested, interval, part)


def running_note(request: ReportRequest) -> tuple[str, ...]:
    """The note of a view that counts running jobs, if it reads an archive."""
    return ("Running jobs are not counted: archives do not have them.",) if request.archive is not None else ()
