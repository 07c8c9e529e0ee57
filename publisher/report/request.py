"""The request of a report: an interval, patterns, and the options of the view."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from formats.utilization.measure import Bins
from formats.utilization.report import Measure
from publisher.errors import UsageError
from publisher.report.view_kind import VIEW_KINDS, ViewKind
from publisher.report.view_option import PERIODS, Compared, Interval, PeriodLength, Resource
from publisher.text import did_you_mean

DEFAULT_BIN_S: Final = 3600
FIRST_INSTANT, LIMIT_INSTANT = -62_135_596_800, 253_402_300_800
"""The instants that can be written: from the year 1 to the year 9999; the second is exclusive."""


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An interval in epoch seconds (`stop` not included), patterns by the names of `KEYS`, and options of views.

    `archive`: read runs from there instead of the store.
    """

    start: int
    stop: int
    filters: Mapping[str, str] = {}
    bin_s: int | None = None
    """Size of the bins; None: an hour, unless `bins` is given."""
    bins: int | None = None
    measure: Measure = "queue"
    by: tuple[str, ...] = ()
    """The keys by which rows are grouped."""
    interval: Interval | None = None
    """Which runs belong to the interval; None: the default of the view."""
    period: PeriodLength = "month"
    timezone: str = "UTC"
    """The time zone of days, weeks, months, and years."""
    compare: Compared | None = None
    """With which other interval this one is compared."""
    resource: Resource = "cores"
    running: bool = True
    """Whether running jobs are included, in views that have them."""
    archive: Path | None = None
    dask: str | None = None
    """The address of the scheduler of a Dask cluster, which reads the archive."""
    stat_file: Path | None = None
    sort: str | None = None
    """The column to sort rows by: see `publisher.report.ranking`."""
    statement: str = ""
    """The SQL of the view `sql`."""
    top: int | None = None
    """How many rows or groups to show; None: all."""

    def __post_init__(self) -> None:
        """Raises `UsageError` for a cluster without an archive, and for a top of nothing."""
        if self.top is not None and self.top < 1:
            raise UsageError("--top must be at least 1")
        if self.dask is not None and self.archive is None:
            raise UsageError("--dask needs an archive", hint="Name it with --archive")

    def cut(self) -> Bins:
        """The bins. Raises `UsageError` for an invalid interval or invalid bins."""
        self.require_interval()
        if self.bin_s is not None and self.bins is not None:
            raise UsageError("--bin cannot be combined with --bins", hint="Give the size of the bins or their number")
        try:
            if self.bins is not None:
                return Bins.by_number(self.start, self.stop, self.bins)
            return Bins(self.start, self.stop, DEFAULT_BIN_S if self.bin_s is None else self.bin_s)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def require_interval(self) -> None:
        """Raises `UsageError` for an invalid interval."""
        if self.start >= self.stop:
            raise UsageError("--until must be after --since")
        if self.start < FIRST_INSTANT or self.stop >= LIMIT_INSTANT:
            raise UsageError("the interval must be in the years 1 to 9999")

    def require_keys(self, kind: ViewKind) -> None:
        """Raises `UsageError` for keys that the view does not have, or for too many."""
        for key in self.by:
            if not kind.keys:
                raise UsageError(f"{kind.name} cannot be grouped", hint="Omit --by")
            if key not in kind.keys:
                known = f"choose one of: {', '.join(kind.keys)}"
                raise UsageError(f"{kind.name} cannot be grouped by {key!r}; {known}{did_you_mean(key, kind.keys)}")
        if len(self.by) > kind.most_keys or len(set(self.by)) < len(self.by):
            number = {1: "one key", 2: "one key or two different keys"}[kind.most_keys]
            raise UsageError(f"--by: {kind.name} is grouped by {number}")


def require_cluster(kind: ViewKind, request: ReportRequest) -> None:
    """Raises `UsageError` for a cluster that does not compute the view."""
    if request.dask is not None and not kind.on_cluster:
        computed = [each.name for each in VIEW_KINDS.values() if each.on_cluster]
        raise UsageError(
            f"--dask: a cluster computes only {', '.join(computed[:-1])} and {computed[-1]}",
            hint="Omit --dask, or choose another view",
        )


def require_zone_used(kind: ViewKind, by: tuple[str, ...]) -> None:
    """Raises `UsageError` for a time zone without effect: neither the view nor `by` has a period."""
    if "by" in kind.options and "period" not in kind.options and not set(by) & set(PERIODS):
        raise UsageError(
            f"--timezone has no effect: {kind.name} is not grouped by a period",
            hint="Omit it, give --month, or add --by day, week, month, quarter, or year",
        )
