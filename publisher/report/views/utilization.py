"""View `utilization`: how many jobs ran at once (DQS: queue utilization), and how many CPUs they used, in bins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec

from formats.utilization.measure import Bin, Bins, measured
from formats.utilization.report import Measure
from publisher.errors import UsageError
from publisher.report.archive import CPU_UNKNOWN
from publisher.report.column_tally import ColumnTally
from publisher.report.matching import Computed, Matching, columns_of, summed
from publisher.report.report import UNKNOWN_NAME, Column, Plot, Report, Series, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import STREAMING_MB, EntryReading
from publisher.report.view_kind import UTILIZATION

_TALLIED: Final = ("start", "stop", "user_ms", "system_ms", "slots")
_WANTED: Final = (*_TALLIED, "incomplete")
_MOST_CELLS: Final = 1_000_000
_SERIES: Final[dict[Measure, dict[str, str]]] = {
    "queue": {"queue": "running jobs"}, "cpu": {"cpu_user": "CPU, user", "cpu_system": "CPU, system"},
}  # fmt: skip
"""The amounts that the picture of a measure shows, and their labels."""


class Tallied:
    """The utilization of some runs, to which that of others can be added. `labels`: its groups; one, "", without a
    key."""

    def __init__(self, tally: ColumnTally, key: str) -> None:
        self.tally = tally
        self.labels = [] if key else [""]
        self._key = key

    def require_cells(self) -> None:
        """Raises `UsageError` if the cells do not fit into memory."""
        if len(self.labels) * self.tally.bins.count > _MOST_CELLS:
            raise UsageError(
                f"more than {_MOST_CELLS:,} cells: {len(self.labels):,} values of {self._key} in "
                f"{self.tally.bins.count:,} bins",
                hint="Choose larger bins, or select fewer jobs",
            )

    def add(self, other: Tallied) -> None:
        """Add the utilization of other runs. Raises `UsageError`."""
        known = {label: place for place, label in enumerate(self.labels)}
        groups = [known.setdefault(label, len(known)) for label in other.labels]
        self.labels = list(known)
        self.require_cells()
        self.tally.merge(other.tally, groups)

    def cells(self) -> dict[str, tuple[Bin, ...]]:
        """The bins of each group."""
        bins = self.tally.bins
        return {label: measured(bins, iter(self.tally.sums(group))) for group, label in enumerate(self.labels)}


def tally_part(matching: Matching, request: ReportRequest) -> Tallied:
    """Tally the matching runs. Raises `UsageError`."""
    tallied = Tallied(ColumnTally(request.cut()), "".join(request.by))
    runs, columns = "matching", list(_WANTED)
    for key in request.by:
        tallied.labels, runs = matching.grouped(key)
        tallied.require_cells()
        columns.append("group_number")
    for batch in matching.batches(columns, runs):
        start, stop, user_ms, system_ms, slots = map(batch.numbers, _TALLIED)
        group = batch.numbers("group_number") if request.by else None
        tallied.tally.add(start, stop, user_ms, system_ms, slots, group)
    return tallied


def _tallied(context: ReportContext, request: ReportRequest) -> Computed[Tallied]:
    request.cut()  # an invalid request is refused before anything is read
    reading = EntryReading(columns_of(request, *_WANTED), buffers_mb=STREAMING_MB)
    return summed(context, request, reading, "overlapping", partial(tally_part, request=request))


def queue_per_bin(context: ReportContext, request: ReportRequest) -> list[float]:
    """How many of the matching jobs ran at once in each bin; empty if none ran. Raises `UsageError`."""
    tallied, _ = _tallied(context, request)
    return [cell.queue for cell in tallied.cells()[""]] if tallied.tally.jobs else []


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: without a key a row for each bin; with one, for each bin and value of which anything ran."""
    tallied, met = _tallied(context, request)
    tally, cells, key = tallied.tally, tallied.cells(), "".join(request.by)
    bins, names = tally.bins, sorted(cells)
    rows = tuple(
        (cell.start, *([name] if key else []), *msgspec.structs.astuple(cell)[1:])
        for place in range(bins.count)
        for name in names
        if (cell := cells[name][place]).jobs or not key
    )
    named = f"of_{key}" if key in Bin.__struct_fields__ else key  # queue and slots are also names of measures
    columns = (UTILIZATION.columns[0], *([Column(named, "text", key=key)] if key else []), *UTILIZATION.columns[1:])
    amounts = ("queue", "slots") if request.measure == "queue" else ("cpu_user", "cpu_system")
    means = tuple(f"{amount}_mean" for amount in amounts if not key or amount == "queue")
    absent = [f"No row for a bin: no job of that {keys_text((key,))} ran in it."] if key and rows else []
    return context.report(
        UTILIZATION,
        request,
        title=UTILIZATION.pictures[request.measure].titled(request.by),
        columns=columns,
        rows=rows,
        shown=("start", *([named] if key else []), *amounts, *means, "jobs"),
        sorted_by=amounts[0],
        plots=_plots(request, bins, cells),
        notes=(*absent, *met.notes(CPU_UNKNOWN if request.measure == "cpu" else 0)),
        nothing=met.nothing(),
        sql=met.sql,
        facts={
            "bin_s": bins.size_s,
            "measure": request.measure,
            **({"by": [key]} if key else {}),
            "jobs": tally.jobs,
            "jobs_of_no_length": tally.zero_length,
        },
    )


def _plots(request: ReportRequest, bins: Bins, cells: Mapping[str, Sequence[Bin]]) -> tuple[Plot, ...]:
    """With a key, the measure of each value; without, that measure and the other one."""

    def plot(measure: Measure, series: Iterable[Series], *, stacked: bool) -> Plot:
        return UTILIZATION.pictures[measure].plot(
            "line", *series, keys=request.by, by=keys_text(request.by), x=tuple(start for start, _ in bins.edges()),
            step_s=bins.size_s, stacked=stacked,
        )  # fmt: skip

    def values(group: str, *amounts: str) -> tuple[float, ...]:
        return tuple(sum(getattr(cell, amount) for amount in amounts) for cell in cells[group])

    measure = request.measure
    if request.by:
        of_groups = (Series(name or UNKNOWN_NAME, values(name, *_SERIES[measure])) for name in sorted(cells))
        return (plot(measure, of_groups, stacked=True),)
    measures: tuple[Measure, ...] = ("queue", "cpu") if measure == "queue" else ("cpu", "queue")
    return tuple(
        plot(one, (Series(label, values("", amount)) for amount, label in _SERIES[one].items()), stacked=one == "cpu")
        for one in measures
    )
