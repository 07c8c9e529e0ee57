"""View `efficiency`: how much of what jobs held they used, and how long they waited for it.

CPU efficiency is CPU time over wall time times cores, of the runs whose CPU time is known; more than 1 (hyper-threads,
wall times without suspension) is shown as it is. Memory efficiency is the largest resident memory over what was asked
for, both weighted by wall time, of the runs for which both are known.

What is not known is empty, and what share is known is a column. GPUs
have the hours that were allocated: no source says how much of them was used. Grouped by `job`, the rows are the jobs
that leave most core hours unused.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from publisher.report.archive import CPU_UNKNOWN, MEMORY_UNKNOWN
from publisher.report.grouping import Grouping, Label, grouped_report, key_axis
from publisher.report.matching import Matching, columns_of, computed
from publisher.report.ranking import Order, order_of, ranked
from publisher.report.report import Cell, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import JOB_LABEL, POSSIBLE
from publisher.report.runs import ReportContext
from publisher.report.tables import EACH_JOB_MB, GROUPING_MB, EntryReading
from publisher.report.view_kind import EFFICIENCY
from publisher.report.view_option import PERIODS

_JOB: Final = "job"
_MOST_JOBS: Final = 20
_MS_IN_HOUR: Final = 3_600_000
_COLUMNS: Final = (
    "incomplete", "cpu_ms", "wall_ms", "slots", "gpus", "memory_kib", "memory_asked_kib", "submit", "cluster",
    "local_id", "name", "global_id",
)  # fmt: skip
_CPU_KNOWN: Final = f"(coalesce(incomplete, 0) & {CPU_UNKNOWN}) = 0"
_WAITED: Final = 'submit <= "start" AND "stop" >= "start"'
_MOST_KIB: Final = 1 << 50
_MEMORY_KNOWN: Final = (
    f"(coalesce(incomplete, 0) & {MEMORY_UNKNOWN}) = 0 AND memory_kib BETWEEN 0 AND {_MOST_KIB} "
    f"AND memory_asked_kib BETWEEN 1 AND {_MOST_KIB} AND wall_ms >= 0"
)
_HELD: Final = "CAST(slots AS HUGEINT) * wall_ms"
_AMOUNTS: Final = {
    "jobs": "count(*)",
    "held_ms": f"coalesce(sum({_HELD}), 0)",
    "gpu_ms": "coalesce(sum(CAST(gpus AS HUGEINT) * wall_ms), 0)",
    "cpu_ms": f"sum(cpu_ms) FILTER ({_CPU_KNOWN})",
    "cpu_held_ms": f"sum({_HELD}) FILTER ({_CPU_KNOWN})",
    "memory_kib_ms": f"sum(CAST(memory_kib AS HUGEINT) * wall_ms) FILTER ({_MEMORY_KNOWN})",
    "memory_asked_kib_ms": f"sum(CAST(memory_asked_kib AS HUGEINT) * wall_ms) FILTER ({_MEMORY_KNOWN})",
    "memory_jobs": f"count(*) FILTER ({_MEMORY_KNOWN})",
    "waited_s": f'sum(CAST("start" AS HUGEINT) - submit) FILTER ({_WAITED})',
    "ran_s": f'sum(CAST("stop" AS HUGEINT) - "start") FILTER ({_WAITED})',
    "waited_jobs": f"count(*) FILTER ({_WAITED})",
}
"""The sums of `GroupUse`."""
_UNUSED: Final = "unused_core_h"
_IN_SQL: Final[Mapping[str, str]] = {
    column: amount.format(**_AMOUNTS)
    for column, amount in {
        "jobs": "{jobs}",
        "core_h": "{held_ms}",
        "gpu_h": "nullif({gpu_ms}, 0)",
        "cpu_h": "{cpu_ms}",
        _UNUSED: "{cpu_held_ms} - {cpu_ms}",
        "cpu_efficiency": "{cpu_ms} / nullif({cpu_held_ms}, 0)",
        "cpu_known": "coalesce({cpu_held_ms}, 0) / nullif({held_ms}, 0)",
        "memory_efficiency": "{memory_kib_ms} / nullif({memory_asked_kib_ms}, 0)",
        "memory_known": "{memory_jobs} / {jobs}",
        "waiting_over_running": "{waited_s} / nullif({ran_s}, 0)",
        "waiting_known": "{waited_jobs} / {jobs}",
    }.items()
}
"""What the columns are sorted by where SQL selects the rows: as `GroupUse.amounts`, in any unit."""


class GroupUse(msgspec.Struct, frozen=True):
    """What the runs of a group held and used; None: of no run known."""

    jobs: int
    held_ms: int
    gpu_ms: int
    cpu_ms: int | None
    cpu_held_ms: int | None
    """The core milliseconds of the runs whose CPU time is known."""
    memory_kib_ms: int | None
    memory_asked_kib_ms: int | None
    memory_jobs: int
    """The jobs whose used memory and the one asked for are known."""
    waited_s: int | None
    ran_s: int | None
    waited_jobs: int

    def amounts(self) -> tuple[Cell, ...]:
        """The cells of the columns."""
        held, cpu, cpu_held = self.held_ms, self.cpu_ms, self.cpu_held_ms
        unused = None if cpu is None or cpu_held is None else cpu_held - cpu
        return (
            self.jobs,
            held / _MS_IN_HOUR,
            self.gpu_ms / _MS_IN_HOUR if self.gpu_ms else None,
            None if cpu is None else cpu / _MS_IN_HOUR,
            None if unused is None else unused / _MS_IN_HOUR,
            _ratio(cpu, cpu_held),
            _ratio(0 if cpu_held is None else cpu_held, held),
            _ratio(self.memory_kib_ms, self.memory_asked_kib_ms),
            _ratio(self.memory_jobs, self.jobs),
            _ratio(self.waited_s, self.ran_s),
            _ratio(self.waited_jobs, self.jobs),
        )


def _ratio(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else part / whole


class _Efficiency(NamedTuple):
    """The use of each group, and of all."""

    groups: list[tuple[Label, GroupUse]]
    total: int
    """How many groups there are."""
    all: GroupUse
    impossible: int


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    request.require_interval()
    buffers_mb = EACH_JOB_MB if "job" in request.by else GROUPING_MB
    reading = EntryReading(columns_of(request, *_COLUMNS), buffers_mb=buffers_mb)
    empty = grouped_report(EFFICIENCY, context, request, (), None, sorted_by=_UNUSED)
    order = order_of(empty, request.sort)
    made, met = computed(context, request, reading, "ended", lambda matching: _made(matching, request, order))
    shown = len(made.groups)
    which = "those with most unused core hours" if request.sort is None else order.words
    note = (
        f"{shown:,} of {made.total:,} jobs are shown, {which}: choose how many with --top."
        if shown < made.total
        else ""
    )
    unknown = made.all.jobs and made.all.cpu_held_ms is not None and made.all.cpu_held_ms < made.all.held_ms
    notes = [note] if note else []
    if unknown:
        notes.append("CPU efficiency is that of jobs with known CPU time: `cpu_known` is their share of core hours.")
    if made.impossible:
        notes.append(f"Jobs left out, because their cores or wall times are impossible: {made.impossible:,}.")
    groups = ((label, use.amounts()) for label, use in made.groups)
    report = grouped_report(
        EFFICIENCY, context, request, groups, made.all.amounts(),
        sorted_by=_UNUSED,
        plots=_plots(request, made) if request.by and made.groups else (),
        notes=(*notes, *met.notes()),
        nothing=met.nothing(),
        sql=met.sql,
    )  # fmt: skip
    if shown == made.total:
        return report
    return msgspec.structs.replace(ranked(report, msgspec.structs.replace(request, top=None)), total=made.total)


def _made(matching: Matching, request: ReportRequest, order: Order) -> _Efficiency:
    grouping, of_all = Grouping.of(request, own={_JOB: JOB_LABEL}), Grouping((), ())
    possible = grouping.runs("matching", where=POSSIBLE)
    impossible = matching.count(f"({POSSIBLE}) IS NOT true")
    ((_, sums),) = of_all.rows(matching, _AMOUNTS, possible)
    everything = GroupUse(**sums)
    if not request.by or not everything.jobs:
        return _Efficiency([], 0, everything, impossible)
    by_job = _JOB in request.by
    beside = ["cluster"] if by_job else []  # two clusters have jobs of one number
    sorted_by = grouping.names[order.place] if order.column.key else _IN_SQL[order.column.name]
    first = f"{sorted_by} {'DESC' if order.descending else 'ASC'} NULLS LAST, " if by_job else ""
    limit = f" LIMIT {request.top or _MOST_JOBS}" if by_job else ""
    in_order = f" ORDER BY {first}{', '.join(grouping.names)}{limit}"
    rows = grouping.rows(matching, _AMOUNTS, possible, *beside, order=in_order)
    groups = [(label, GroupUse(**amounts)) for label, amounts in rows]
    total = len(groups)
    if by_job:
        ((total,),) = matching.rows(f"SELECT count(*) FROM ({grouping.sums(['1'], possible, *beside)})")  # noqa: S608 - names of ours
    return _Efficiency(groups, total, everything, impossible)


def _plots(request: ReportRequest, made: _Efficiency) -> tuple[Plot, ...]:
    """The core hours that were used and not used, by the values of one key."""
    if len(request.by) > 1 or request.by[0] in PERIODS:
        return ()
    if all(use.cpu_held_ms is None for _, use in made.groups):
        return ()
    used, unused = list[float | None](), list[float | None]()
    for _, use in made.groups:
        cpu_ms, held_ms = use.cpu_ms or 0, use.cpu_held_ms
        used.append(None if held_ms is None else cpu_ms / _MS_IN_HOUR)
        unused.append(None if held_ms is None else max(held_ms - cpu_ms, 0) / _MS_IN_HOUR)
    _, axis = key_axis(request, request.by[0], (label[0] for label, _ in made.groups))
    series = (Series("CPU time", tuple(used)), Series("not used", tuple(unused)))
    hours = EFFICIENCY.pictures["hours"]
    return (hours.plot("bar", *series, keys=request.by, **axis, stacked=True, names_add_up=True),)
