"""The reports: utilization as a message, and totals."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from formats.registry import report_format
from formats.utilization import Tally
from formats.utilization_report import UtilizationReport
from formats.view import View
from publisher.config import Config
from publisher.errors import UsageError
from publisher.pipeline.render import Held, Noted, RenderedMessage
from publisher.report.entries import SUMMED_BY
from publisher.report.request import ReportRequest, Selection
from publisher.store.database import Store


class Utilization(msgspec.Struct, frozen=True):
    """Utilization of an interval. `zero_length`: jobs that ended as they started; `nothing`: why there are no jobs."""

    report: UtilizationReport
    jobs: int
    zero_length: int
    nothing: str | None


class Total(msgspec.Struct, frozen=True):
    """What the runs of a group used; `memory_max_kib` is the largest resident set of one of them."""

    key: tuple[str, ...]
    jobs: int
    wall_ms: int
    cpu_user_ms: int
    cpu_system_ms: int
    cpu_ms: int
    memory_max_kib: int


class Totals(msgspec.Struct, frozen=True):
    """Totals by the keys `by`, in their order, and of all."""

    by: tuple[str, ...]
    rows: tuple[Total, ...]
    all: Total
    nothing: str | None


def utilization(store: Store, config: Config, request: ReportRequest) -> Utilization:
    """Utilization of all runs that match. Memory does not grow with their number. Raises `UsageError`."""
    if request.by:
        raise UsageError("utilization is not given by a key", hint="Select with --queue, --host ..., or use totals")
    bins = request.cut()
    tally = Tally(bins)
    selection = Selection(store, config, request)
    for entry in selection.overlapping():
        tally.add(entry.ran)
    report = UtilizationReport(
        site=config.site.name,
        start=bins.start,
        stop=bins.stop,
        bin_s=bins.size_s,
        measure=request.measure,
        bins=tally.measured(),
    )
    nothing = None if selection.matched else selection.nothing()
    return Utilization(report, tally.jobs, tally.zero_length, nothing)


def totals(store: Store, config: Config, request: ReportRequest) -> Totals:
    """What the runs used that ended in the interval, so that intervals that follow one another add up.

    Raises `UsageError`.
    """
    request.require_interval()
    if len(request.by) > 2 or len(set(request.by)) < len(request.by):
        raise UsageError("totals are given by one key or by two different ones")
    for key in request.by:
        if key not in SUMMED_BY:
            raise UsageError(f"totals are not given by {key!r}; there are: {', '.join(SUMMED_BY)}")
    groups: dict[tuple[str, ...], list[int]] = {}
    selection = Selection(store, config, request)
    for entry in selection.ended():
        sums = groups.setdefault(tuple(entry.first(key) for key in request.by), [0] * 6)
        used = (1, entry.wall_ms, entry.ran.user_ms, entry.ran.system_ms, entry.cpu_ms)
        for place, amount in enumerate(used):
            sums[place] += amount
        sums[5] = max(sums[5], entry.memory_kib)
    rows = tuple(Total(key, *sums) for key, sums in sorted(groups.items()))
    columns = list(zip(*groups.values(), strict=True)) or [(0,)] * 6
    jobs, wall_ms, user_ms, system_ms, cpu_ms = (sum(column) for column in columns[:5])
    whole = Total((), jobs, wall_ms, user_ms, system_ms, cpu_ms, max(columns[5]))
    return Totals(request.by, rows, whole, None if selection.matched else selection.nothing())


class ReportRendering:
    """A report as the message it would be: what `publisher.pipeline.render.Rendering` is for records."""

    def __init__(self, store: Store, config: Config, request: ReportRequest) -> None:
        self._store = store
        self._config = config
        self._request = request
        self.records = 0
        self.cut_otherwise: str | None = None
        """A report is one message, however many bins it has."""
        self.held: list[Held] = []
        self.notes: list[Noted] = []

    def messages(self) -> Iterator[RenderedMessage]:
        """The one message; its records are its bins. Raises `UsageError`."""
        form = report_format("utilization", View(site=self._config.site.name))
        made = utilization(self._store, self._config, self._request)
        self.records = len(made.report.bins)
        yield RenderedMessage("utilization", form.name, form.message(made.report), self.records)
