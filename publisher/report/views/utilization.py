"""View `utilization`: how many jobs ran at once (DQS: queue utilization), and how many CPUs they used, in bins."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from formats.utilization.measure import Bin, BinSums, measured
from formats.utilization.report import UtilizationReport, builtins
from publisher.errors import UsageError
from publisher.report.archive import CPU_UNKNOWN
from publisher.report.column_tally import ColumnTally
from publisher.report.matching import Matching, columns_of, summed
from publisher.report.met import Met
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report, Series, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import STREAMING_MB, Reading
from publisher.report.view_kind import UTILIZATION

_TALLIED: Final = ("start", "stop", "user_ms", "system_ms", "slots")
_WANTED: Final = (*_TALLIED, "incomplete")
_MOST_CELLS: Final = 1_000_000


class Utilization(msgspec.Struct, frozen=True):
    """Utilization of an interval. `zero_length`: jobs without duration; `nothing`: why there are no jobs."""

    report: UtilizationReport
    jobs: int
    zero_length: int
    nothing: str | None
    notes: tuple[str, ...] = ()
    sql: str = ""


def utilization(context: ReportContext, request: ReportRequest) -> Utilization:
    """Utilization of all matching runs. Memory does not grow with their number. Raises `UsageError`."""
    if request.by:
        raise UsageError("this report cannot be grouped", hint="Use `report utilization --by KEY`")
    return _utilization(context, request, _tallied(context, request))


def _utilization(context: ReportContext, request: ReportRequest, found: Tallied) -> Utilization:
    tally, met = found.tally, found.met
    bins = tally.bins
    report = UtilizationReport(
        site=context.config.site.name,
        start=bins.start,
        stop=bins.stop,
        bin_s=bins.size_s,
        measure=request.measure,
        bins=measured(bins, iter(tally.sums())),
    )
    return Utilization(report, tally.jobs, tally.zero_length, met.nothing(), met.notes(_lacks(request)), met.sql)


class Tallied:
    """The utilization of some runs, to which that of others can be added. `labels`: its groups, if there is a key."""

    def __init__(self, tally: ColumnTally, by: tuple[str, ...]) -> None:
        self.tally = tally
        self.labels: list[tuple[str, ...]] = []
        self.met = Met()
        self._by = by

    def require_cells(self) -> None:
        """Raises `UsageError` if the cells do not fit into memory."""
        if len(self.labels) * self.tally.bins.count > _MOST_CELLS:
            raise UsageError(
                f"more than {_MOST_CELLS:,} cells: {len(self.labels):,} values of {self._by[0]} in "
                f"{self.tally.bins.count:,} bins",
                hint="Choose larger bins, or select fewer jobs",
            )

    def add(self, other: Tallied) -> None:
        """Add the utilization of other runs. Raises `UsageError`."""
        known = {label: place for place, label in enumerate(self.labels)}
        groups = [known.setdefault(label, len(known)) for label in other.labels] if self._by else [0]
        self.labels = list(known)
        self.require_cells()
        self.tally.merge(other.tally, groups)
        self.met.add(other.met)


def tally_part(matching: Matching, request: ReportRequest) -> Tallied:
    """Tally the matching runs. Raises `UsageError`."""
    tallied = Tallied(ColumnTally(request.cut()), request.by)
    runs, columns = "matching", list(_WANTED)
    for key in request.by:
        labels, runs = matching.grouped(key)
        tallied.labels = [(label,) for label in labels]
        tallied.require_cells()
        columns.append("group_number")
    for batch in matching.batches(columns, tallied.met, runs):
        start, stop, user_ms, system_ms, slots = map(batch.numbers, _TALLIED)
        group = batch.numbers("group_number") if request.by else None
        tallied.tally.add(start, stop, user_ms, system_ms, slots, group)
    return tallied


def _tallied(context: ReportContext, request: ReportRequest) -> Tallied:
    request.cut()  # an invalid request is refused before anything is read
    reading = Reading(columns_of(request, *_WANTED), buffers_mb=STREAMING_MB)
    return summed(context, request, reading, "overlapping", partial(tally_part, request=request))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: without a key a row for each bin; with one, for each bin and value of which anything ran."""
    tallied = _tallied(context, request)
    return (
        _by_key(context, request, tallied) if request.by else _whole(context, _utilization(context, request, tallied))
    )


def _whole(context: ReportContext, made: Utilization) -> Report:
    report = made.report
    facts = builtins(report)
    del facts["bins"]
    names = ("queue", "slots") if report.measure == "queue" else ("cpu_user", "cpu_system")
    measures = ("queue", "cpu") if report.measure == "queue" else ("cpu", "queue")
    return Report(
        view=UTILIZATION.name,
        title=UTILIZATION.pictures[report.measure].title,
        site=context.config.site.name,
        start=report.start,
        stop=report.stop,
        columns=UTILIZATION.columns,
        rows=tuple(msgspec.structs.astuple(one) for one in report.bins),
        shown=("start", *names, *(f"{name}_mean" for name in names), "jobs"),
        sorted_by=names[0],
        plots=tuple(_plot_of_all(measure, report) for measure in measures),
        notes=made.notes,
        nothing=made.nothing,
        sql=made.sql,
        rows_named=UTILIZATION.rows_named,
        facts={
            "bin_s": report.bin_s,
            "measure": report.measure,
            "jobs": made.jobs,
            "jobs_of_no_length": made.zero_length,
        },
    )


def _by_key(context: ReportContext, request: ReportRequest, found: Tallied) -> Report:
    tally = found.tally
    (key,) = request.by
    named = f"of_{key}" if key in Bin.__struct_fields__ else key  # queue and slots are also names of measures
    bins = tally.bins
    sums = {label[0]: tally.sums(group) for group, label in enumerate(found.labels) if group < tally.groups}
    names = sorted(sums)
    cells = {name: measured(bins, iter(sums[name])) for name in names}
    rows: list[tuple[Cell, ...]] = [
        (one.start, name, *msgspec.structs.astuple(one)[1:])
        for place in range(bins.count)
        for name in names
        if (one := cells[name][place]).jobs
    ]
    shown = ("queue", "slots", "queue_mean") if request.measure == "queue" else ("cpu_user", "cpu_system")
    series = [Series(name or UNKNOWN_NAME, tuple(_amount(request, cell) for cell in cells[name])) for name in names]
    whole = next(iter(cells.values()), ()) or measured(bins, iter([BinSums(0, 0, 0, 0, 0)] * bins.count))
    return Report(
        view=UTILIZATION.name,
        title=UTILIZATION.pictures[request.measure].titled((key,)),
        site=context.config.site.name,
        start=bins.start,
        stop=bins.stop,
        columns=(UTILIZATION.columns[0], Column(named, "text", key=key), *UTILIZATION.columns[1:]),
        rows=tuple(rows),
        shown=("start", named, *shown, "jobs"),
        sorted_by=shown[0],
        plots=(_plot(request.measure, whole, bins.size_s, tuple(series), stacked=True, by=(key,)),),
        notes=(
            *([f"No row for a bin: no job of that {keys_text((key,))} ran in it."] if rows else []),
            *found.met.notes(_lacks(request)),
        ),
        nothing=found.met.nothing(),
        sql=found.met.sql,
        rows_named=UTILIZATION.rows_named,
        facts={
            "bin_s": bins.size_s,
            "measure": request.measure,
            "by": list(request.by),
            "jobs": tally.jobs,
            "jobs_of_no_length": tally.zero_length,
        },
    )


def _lacks(request: ReportRequest) -> int:
    return CPU_UNKNOWN if request.measure == "cpu" else 0


def _amount(request: ReportRequest, one: Bin) -> float:
    return one.queue if request.measure == "queue" else one.cpu_user + one.cpu_system


def _labels(measure: str) -> tuple[tuple[str, str], ...]:
    if measure == "queue":
        return (("queue", "running jobs"),)
    return (("cpu_user", "CPU, user"), ("cpu_system", "CPU, system"))


def _plot_of_all(measure: str, report: UtilizationReport) -> Plot:
    series = tuple(Series(label, tuple(getattr(one, name) for one in report.bins)) for name, label in _labels(measure))
    return _plot(measure, report.bins, report.bin_s, series, stacked=measure == "cpu")


def _plot(
    measure: str,
    bins: tuple[Bin, ...],
    bin_s: int,
    series: tuple[Series, ...],
    *,
    stacked: bool,
    by: tuple[str, ...] = (),
) -> Plot:
    picture = UTILIZATION.pictures[measure]
    return Plot(
        title=picture.titled(by),
        by=keys_text(by),
        style="line",
        x=tuple(one.start for one in bins),
        step_s=bin_s,
        unit=picture.axis,
        stacked=stacked,
        series=series,
    )
