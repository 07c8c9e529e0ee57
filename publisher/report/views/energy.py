"""View `energy`: the energy of jobs, measured or modelled, its emissions, and the energy of idle nodes.

A run counts as a whole where it ended, so that the energy of consecutive intervals adds up; idle nodes have the energy
of the interval. Sums are whole millijoules and micrograms; the PUE multiplies them once, when they are shown.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from publisher.report.archive import MEMORY_UNKNOWN
from publisher.report.carbon import carbon_hours, gaps_note
from publisher.report.energy import (
    ABOVE,
    COLUMNS,
    IMPOSSIBLE,
    SENTINEL,
    SHARED,
    define_energy,
    highest_above,
)
from publisher.report.energy_use import MJ_A_KWH, EnergyUse, IdleEnergy
from publisher.report.grouping import Grouping, Label, grouped_report, key_axis
from publisher.report.matching import Computed, Matching, columns_of, computed
from publisher.report.report import IDLE_NODES, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.report.view_kind import ENERGY
from publisher.report.views.idle_energy import idle_energy
from publisher.text import counted

_HELD: Final = (
    f"coalesce(sum(CASE WHEN refused IS DISTINCT FROM '{IMPOSSIBLE}' THEN CAST({{}} AS HUGEINT) * wall_ms END), 0)"
)
_AMOUNTS: Final = {
    "jobs": "count(*)",
    "core_ms": _HELD.format("slots"),
    "gpu_ms": _HELD.format("gpus"),
    **{name: f"coalesce(sum({name}), 0)" for name in ("measured_mj", "modelled_mj", "carbon_mj")},
    "carbon_ug": "sum(carbon_ug)",
    "measured_jobs": "count(measured_mj)",
    "by_ceems": "count(measured_mj) FILTER (metered_mj > 0 AND metered_by = 1)",
    "by_file": "count(measured_mj) FILTER (metered_mj > 0 AND metered_by = 2)",
    "unknown_jobs": "count(*) FILTER (measured_mj IS NULL AND modelled_mj IS NULL)",
    "sentinels": f"count(*) FILTER (refused = '{SENTINEL}')",
    "shared": f"count(*) FILTER (refused = '{SHARED}')",
    "above": f"count(*) FILTER (refused = '{ABOVE}')",
    "impossible": f"count(*) FILTER (refused = '{IMPOSSIBLE}')",
    "unchecked": "count(*) FILTER (unchecked)",
    "memory_unknown": "count(*) FILTER (gib_uw > 0 AND measured_mj IS NULL "
    f"AND coalesce(incomplete, 0) & {MEMORY_UNKNOWN} <> 0)",
    "backward": 'count(*) FILTER ("stop" < "start")',
}
"""The sums of `EnergyUse`."""

_SHARED_NOTE: Final = (
    "Measured values of whole nodes are not used where [[nodes]] does not show that a job had all their cores, and no "
    "rule says `whole_nodes`"
)
_ABOVE_NOTE: Final = "Measured values above what the nodes can draw (`watts_max`) are not used"


class _GroupedEnergy(NamedTuple):
    """The energy of each group, and of all."""

    groups: list[tuple[Label, EnergyUse]]
    all: EnergyUse
    highest: str
    """The highest power that was measured and is more than the nodes can draw, as the end of a sentence."""


def energy_by(context: ReportContext, request: ReportRequest) -> Computed[_GroupedEnergy]:
    """The energy of the runs of an interval by the keys of the request. Raises `UsageError` and `ConfigError`."""
    reading = EntryReading(columns_of(request, *COLUMNS))
    return computed(context, request, reading, "ended", lambda matching: _made(context, matching, request))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    request.require_interval()
    made, met = energy_by(context, request)
    idle = None if request.filters else idle_energy(context, request)
    pue = context.config.energy.pue_thousandths
    everything = made.all.plus(idle)
    report = grouped_report(
        ENERGY, context, request, ((label, use.amounts(pue)) for label, use in made.groups), everything.amounts(pue)
    )
    rows = report.rows if request.by else (made.all.amounts(pue),)
    if request.by and idle is not None and made.groups:
        rows = (*rows, (IDLE_NODES, *[None] * (len(request.by) - 1), *EnergyUse().plus(idle).amounts(pue)))
    return msgspec.structs.replace(
        report,
        rows=rows,
        shown=(*request.by, *_shown(everything)),
        sorted_by="with_pue_kwh",
        plots=_plots(request, made, idle) if request.by and made.groups else (),
        notes=(*_notes(context, request, made, idle), *met.notes()),
        nothing=met.nothing(),
        sql=met.sql,
        facts={
            **report.facts,
            "pue": str(context.config.energy.pue),
            "idle_nodes_mj": None if idle is None else idle.modelled_mj,
        },
    )


def _made(context: ReportContext, matching: Matching, request: ReportRequest) -> _GroupedEnergy:
    define_energy(matching, context.config.energy, context.config.nodes)
    grouping = Grouping.of(request)
    rows = grouping.rows(matching, _AMOUNTS, grouping.runs("energy"))
    groups = sorted((label, EnergyUse(**sums)) for label, sums in rows)
    everything = EnergyUse.total([use for _, use in groups])
    matching.note_counts(everything.jobs, everything.backward)
    highest = highest_above(matching) if everything.above else ""
    return _GroupedEnergy(groups if request.by else [], everything, highest)


def _shown(use: EnergyUse) -> list[str]:
    """The columns of tables: not whole numbers, and those of GPUs and carbon only if any are known."""
    hidden = {"measured_mj", "modelled_mj"}
    hidden |= set() if use.gpu_ms else {"gpu_h"}
    hidden |= set() if use.carbon_ug is not None else {"co2e_kg", "co2e_g_per_core_h", "carbon_known"}
    hidden |= set() if use.carbon_mj < use.energy_mj else {"carbon_known"}
    hidden |= set() if use.unknown_jobs else {"unknown_jobs"}
    return [column.name for column in ENERGY.columns if column.name not in hidden]


def _notes(
    context: ReportContext, request: ReportRequest, made: _GroupedEnergy, idle: IdleEnergy | None
) -> list[str]:  # fmt: skip
    use = made.all
    counts = (
        (
            use.unknown_jobs - use.impossible,
            "Energy unknown, because nothing was measured and no [[energy.power]] matches",
        ),
        (use.sentinels, "Measured values that are negative, or are Slurm's for unknown, are not used"),
        (use.shared, _SHARED_NOTE),
        (use.above, _ABOVE_NOTE),
        (use.unchecked, "Measured values on nodes without `watts_max` are not checked"),
        (use.memory_unknown, "Modelled without memory, because its amount is unknown"),
        (use.impossible, "Jobs left out, because their cores or wall times are impossible"),
    )
    more = {_ABOVE_NOTE: made.highest}
    notes = [f"{text}: {counted(count, 'job')}{more.get(text, '')}." for count, text in counts if count]
    if idle is not None and idle.unplaced:
        notes.append("Some jobs name no hosts: the energy of idle nodes is too high by what they held.")
    if idle is not None and not request.by:
        kwh = f"{idle.modelled_mj / MJ_A_KWH:,.1f} kWh"
        notes.append(f"Idle nodes used {kwh} (without PUE) besides; with --by they have a row, and are in the total.")
    if idle is None and request.filters and any(node.watts_idle is not None for node in context.config.nodes):
        notes.append("Idle nodes are not shown with filters: they are nobody's.")
    gaps = gaps_note(carbon_hours(context.config.energy), request.start, min(request.stop, context.now))
    return [*notes, *([gaps] if gaps else [])]


def _plots(request: ReportRequest, made: _GroupedEnergy, idle: IdleEnergy | None) -> tuple[Plot, ...]:
    """The energy without PUE that was measured and modelled, by the values of one key."""
    if len(request.by) > 1:
        return ()
    bars = {label[0]: use for label, use in made.groups}
    if idle is not None:
        bars[IDLE_NODES] = EnergyUse().plus(idle)
    names, axis = key_axis(request, request.by[0], bars)
    uses = [bars.get(name, EnergyUse()) for name in names]

    def kwh(use: EnergyUse, energy_mj: int) -> float | None:
        return energy_mj / MJ_A_KWH if use.is_known or not use.jobs else None

    measured = Series("measured", tuple(kwh(use, use.measured_mj) for use in uses))
    modelled = Series("modelled", tuple(kwh(use, use.modelled_mj) for use in uses))
    picture = ENERGY.pictures["energy"]
    return (picture.plot("bar", measured, modelled, keys=request.by, stacked=True, names_add_up=True, **axis),)
