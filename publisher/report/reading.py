"""Where a report reads its runs: the store, or an archive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, Self, TypeVar

from formats.month import Month, month_bounds
from publisher.config import Config
from publisher.errors import UsageError
from publisher.report.frame import Interval, Runs
from publisher.report.request import ReportRequest
from publisher.report.selection import Selection
from publisher.report.stored import StoreRuns
from publisher.store.columns import first_and_last_end
from publisher.store.database import Store
from publisher.store.purged import runs_of_months
from publisher.times import iso


class Part(Protocol):
    """What a view makes of some of the runs; what it made of others can be added, in any order."""

    def add(self, other: Self, /) -> None:
        """Add what was made of other runs."""
        ...


_Part = TypeVar("_Part", bound=Part)
ON_CLUSTER: Final = ("utilization", "totals")
"""The views that a cluster computes: those that gather parts."""


def selected(
    runs: Runs, request: ReportRequest, wanted: frozenset[str], interval: Interval, *, running_until: int | None = None,
    there: Callable[[], str] | None = None,
) -> Selection:  # fmt: skip
    """Those of the runs that answer a request, of which the view has these columns. `there`: see `Selection`."""
    return Selection(
        runs, request.start, request.stop, request.filters, wanted, request.interval or interval,
        running_until=running_until, there=there,
    )  # fmt: skip


class Context:
    """What views work with: the store (None where an archive is read and there is none), settings, and the time."""

    def __init__(self, store: Store | None, config: Config, now: int, runs: Callable[[], Runs] | None = None) -> None:
        """`runs` gives those of the store to a report, where they are kept."""
        self._store = store
        self._runs = runs
        self.config = config
        self.now = now

    @property
    def store(self) -> Store:
        """The store. Raises `UsageError` where there is none."""
        if self._store is None:
            raise UsageError("nothing was collected yet", hint="Run `usage-publisher collect` first")
        return self._store

    def runs(self, request: ReportRequest) -> Runs:
        """The runs that the request is about."""
        if request.dask is not None:
            raise UsageError(
                f"a cluster computes only {' and '.join(ON_CLUSTER)}",
                hint="Leave --dask away, or choose another --view",
            )
        if request.archive is not None:
            from publisher.scale.archive import ArchiveRuns  # noqa: PLC0415 - loads DuckDB and Arrow

            return ArchiveRuns(request.archive)
        return self._runs() if self._runs is not None else StoreRuns(self.store, self.config)

    def select(
        self, request: ReportRequest, wanted: frozenset[str], interval: Interval, *, running: bool = False
    ) -> Selection:
        """The runs that answer a request, of which the view has these columns; `running`: also those that still run."""
        until = self.now if running and request.running else None
        there = partial(self._there, request)
        return selected(self.runs(request), request, wanted, interval, running_until=until, there=there)

    def _there(self, request: ReportRequest) -> str:
        """When the runs ended that there are."""
        if request.archive is not None:
            from publisher.scale.layout import months_in  # noqa: PLC0415 - archives are a leaf

            months = [*months_in(request.archive)]
            return f"the archive has those that ended from {months[0]} to {months[-1]}"
        with self.store.read() as connection:
            ends = first_and_last_end(connection)
        return f"runs ended from {iso(ends[0])} to {iso(ends[1])}" if ends is not None else "none has ended yet"

    def purged(self, request: ReportRequest) -> dict[Month, int]:
        """The months of the interval whose runs were purged from the store and are not counted, with their number;
        none where an archive is read."""
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
        """What is said of the months of `purged`; empty where there are none."""
        months = ", ".join(f"{month} ({count:,} runs)" for month, count in self.purged(request).items())
        if not months:
            return ""
        return f"Purged from the store, and not counted: {months}. An archive that has them can be read with --archive."

    def gather(
        self,
        request: ReportRequest,
        wanted: frozenset[str],
        interval: Interval,
        part: Callable[[Selection, ReportRequest], _Part],
    ) -> _Part:
        """What `part` makes of the runs that answer a request: here, or on a cluster, which adds up those of months."""
        if request.dask is None:
            return part(self.select(request, wanted, interval), request)
        from publisher.scale.cluster import gather  # noqa: PLC0415 - loads Dask

        return gather(request, wanted, interval, part)


def running_note(request: ReportRequest) -> tuple[str, ...]:
    """What a view that counts runs in progress says where it cannot."""
    return ("Runs that still run are in no archive and not counted.",) if request.archive is not None else ()
