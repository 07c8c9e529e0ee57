"""View `totals`: the usage of runs, summed by up to two keys, as qacct sums it.

A run counts as a whole where it ended, so that the totals of consecutive intervals add up. qacct counts it where it
started: `interval = "started"`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from publisher.errors import UsageError
from publisher.report.archive import AMOUNTS
from publisher.report.calendar import compared_with, zone_of
from publisher.report.grouping import Grouping, grouped_report, key_axis
from publisher.report.matching import Matching, columns_of, summed
from publisher.report.met import Met
from publisher.report.plot.style import interval_text, known_sum
from publisher.report.report import UNKNOWN_NAME, Plot, Report, Series, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, purged_note
from publisher.report.tables import EntryReading
from publisher.report.view_kind import TOTALS
from publisher.report.view_option import PERIODS
from publisher.text import iso

_COLUMNS: Final = (
    "incomplete", "user_ms", "system_ms", "cpu_ms", "wall_ms", "slots", "gpus", "memory_kib", "virtual_kib",
    "tasks_wall_ms",
    "mem_ugb_s", "io_ugb", "iow_us", "stage_in_bytes", "stage_out_bytes",
)  # fmt: skip
_SUMMED: Final = (
    "wall_ms", "user_ms", "system_ms", "cpu_ms", "slots_wall", "gpus_wall", "tasks_wall_ms", "mem_ugb_s", "io_ugb",
    "iow_us", "stage_in_bytes", "stage_out_bytes",
)  # fmt: skip
_OF_GRID_ENGINE: Final = ("mem_ugb_s", "io_ugb", "iow_us")
"""Columns in which runs of other sources have no number."""
_SELECTED: Final = (
    "count(*)",
    *(f"coalesce(sum({name}), 0)" for name in _SUMMED),
    *(f"count(*) FILTER (incomplete & {bit} <> 0)" for bit in AMOUNTS),
    *(f"count(*) FILTER ({name} IS NULL)" for name in _OF_GRID_ENGINE),
    'count(*) FILTER ("stop" < "start")',
    "greatest(max(memory_kib), 0)",
    "greatest(max(virtual_kib), 0)",
)
"""The amounts of a group: those of `Total`, and before its peaks the number of runs that end before they start."""
_PEAKS: Final = 2
_BACKWARD: Final = -3
_PRODUCTS: Final = ("slots_wall", "gpus_wall")
"""Sums of a product with the wall time."""
_MS_IN_HOUR: Final = 3_600_000
_GIB: Final = 1 << 30
_SHOWN: Final = ("jobs", "wall_s", "cpu_user_s", "cpu_system_s", "cpu_s", "core_h", "share")
_GPUS: Final = "gpu_h"
_MEMORY: Final = ("memory_max_kib", "virtual_max_kib")
"""The amounts in tables, that of GPUs if any run had them; those of Grid Engine only are in CSV and JSON."""
_COMPARED: Final = ("jobs", "core_h", _GPUS)
"""The amounts that have those of another interval beside them."""
_UNDIVIDED: Final = "No system time is known: CPU time that its source does not divide counts as user time."
_STAGED: Final = ("stage_in_bytes", "stage_out_bytes")
"""In tables if any run has them: those of ARC."""


class Total(msgspec.Struct, frozen=True):
    """The usage of the runs of a group; `memory_max_kib` is the largest resident set of one run.

    Sums leave out runs whose amount is unknown; `cpu_unknown` and those after it count such runs.
    """

    key: tuple[str, ...]
    jobs: int
    wall_ms: int
    cpu_user_ms: int
    cpu_system_ms: int
    cpu_ms: int
    slots_wall_ms: int
    gpus_wall_ms: int
    tasks_wall_ms: int
    """Wall time including every task of tightly integrated parallel jobs, as in qacct without -m."""
    memory_ugb_s: int
    io_ugb: int
    io_wait_us: int
    stage_in_bytes: int
    stage_out_bytes: int
    cpu_unknown: int
    memory_unknown: int
    virtual_unknown: int
    staged_unknown: int
    memory_ugb_s_unknown: int
    io_unknown: int
    io_wait_unknown: int
    memory_max_kib: int
    virtual_max_kib: int

    def amounts(self, of: Total) -> tuple[int | float | None, ...]:
        """The cells of the columns, with the share of the core hours of all; None for what is unknown for all runs."""
        cpu = (self.cpu_user_ms / 1000, self.cpu_system_ms / 1000, self.cpu_ms / 1000)
        nobody_knows = self._unknown(self.cpu_unknown) and not any(cpu)
        user_s, system_s, cpu_s = (None, None, None) if nobody_knows else cpu
        staged = (self.stage_in_bytes, self.stage_out_bytes) if self.staged else (None, None)
        return (
            self.jobs, self.wall_ms / 1000, user_s, system_s, cpu_s, self.slots_wall_ms / _MS_IN_HOUR,
            self.slots_wall_ms / of.slots_wall_ms if of.slots_wall_ms else None,
            self.gpus_wall_ms / _MS_IN_HOUR if self.gpus_wall_ms else None,
            None if self._unknown(self.memory_unknown) else self.memory_max_kib,
            None if self._unknown(self.virtual_unknown) else self.virtual_max_kib,
            self.tasks_wall_ms / 1000,
            None if self._unknown(self.memory_ugb_s_unknown) else self.memory_ugb_s / 1e6,
            None if self._unknown(self.io_unknown) else self.io_ugb / 1e6,
            None if self._unknown(self.io_wait_unknown) else self.io_wait_us / 1e6,
            *staged, self.cpu_unknown, self.memory_unknown, self.virtual_unknown, self.staged_unknown,
            self.memory_ugb_s_unknown, self.io_unknown, self.io_wait_unknown,
        )  # fmt: skip

    @property
    def staged(self) -> bool:
        """Whether any of the runs has staged volumes."""
        return self.staged_unknown < self.jobs

    def _unknown(self, runs: int) -> bool:
        return 0 < self.jobs == runs


class Totals(msgspec.Struct, frozen=True):
    """Totals by the keys `by`, in their order, and of all."""

    by: tuple[str, ...]
    rows: tuple[Total, ...]
    all: Total
    nothing: str | None
    notes: tuple[str, ...] = ()
    sql: str = ""


class UsageSums:
    """The usage of some runs by group, to which that of other runs can be added in any order."""

    def __init__(self, rows: Iterable[tuple[tuple[str, ...], Sequence[int]]] = (), met: Met | None = None) -> None:
        """`rows`: the label of each group, and its amounts in the order of `_SELECTED`. `met`: why there are none."""
        self.amounts: dict[tuple[str, ...], list[int]] = {}
        self.met = met or Met()
        self.sql = ""
        for label, amounts in rows:
            self._add(label, amounts)

    def add(self, other: UsageSums) -> None:
        """Add the usage of other runs."""
        self.met.add(other.met)
        for label, amounts in other.amounts.items():
            self._add(label, amounts)

    def _add(self, label: tuple[str, ...], amounts: Sequence[int]) -> None:
        sums = self.amounts.setdefault(label, [0] * len(_SELECTED))
        for place, amount in enumerate(amounts):
            summed = place < len(_SELECTED) - _PEAKS
            sums[place] = sums[place] + amount if summed else max(sums[place], amount)

    def whole(self) -> list[int]:
        """The amounts of all groups together."""
        return UsageSums(((), amounts) for amounts in self.amounts.values()).amounts.get((), [0] * len(_SELECTED))


def group_sums(matching: Matching, request: ReportRequest) -> UsageSums:
    """Sum the matching runs."""
    grouping = Grouping.of(request)
    statement = _statement(grouping, "wall_ms")
    try:
        rows = matching.rows(statement)
    except duckdb.OutOfRangeException:  # impossible values, whose products and sums have more than 127 bits
        rows = _exactly(matching, grouping)
    made = UsageSums((label, amounts) for label, amounts in map(grouping.split, rows) if amounts[0])
    made.sql = matching.text(statement)
    if made.amounts:
        made.met.matched = whole = made.whole()[0]
        made.met.runs = whole
    return made


def _statement(grouping: Grouping, wall_ms: str) -> str:
    products = (f"CAST({name.removesuffix('_wall')} AS HUGEINT) * {wall_ms} AS {name}" for name in _PRODUCTS)
    return grouping.sums(_SELECTED, grouping.runs("matching", *products))


def _exactly(matching: Matching, grouping: Grouping) -> list[Any]:
    """The rows of `_statement`: wall times are multiplied and summed in two halves, of which none is too large."""
    low = [list(row) for row in matching.rows(_statement(grouping, "(wall_ms & 4294967295)"))]
    high = dict(map(grouping.split, matching.rows(_statement(grouping, "(wall_ms >> 32)"))))
    for row in low:
        label, _ = grouping.split(row)
        for place in (1 + _SUMMED.index(name) for name in _PRODUCTS):
            row[len(label) + place] += high[label][place] << 32
    return low


def totals(context: ReportContext, request: ReportRequest) -> Totals:
    """The usage of the runs of the interval. Raises `UsageError`."""
    request.require_interval()
    request.require_keys(TOTALS)
    columns = columns_of(request, *_COLUMNS)
    sums = summed(context, request, EntryReading(columns), "ended", partial(group_sums, request=request))
    groups = [_total(label, amounts) for label, amounts in sums.amounts.items()]
    rows = tuple(sorted(groups, key=lambda total: total.key)) if request.by else ()
    whole = sums.whole()
    sums.met.backward = whole[_BACKWARD]
    sums.met.lacking = dict(zip(AMOUNTS, whole[1 + len(_SUMMED) :], strict=False))
    of_all = _total((), whole)
    notes = sums.met.notes(sum(AMOUNTS), shows_unknown=True)
    if of_all.cpu_user_ms and not of_all.cpu_system_ms:
        notes = (*notes, _UNDIVIDED)
    return Totals(request.by, rows, of_all, sums.met.nothing(), notes, sums.sql)


def _total(label: tuple[str, ...], amounts: Sequence[int]) -> Total:
    return Total(label, *amounts[:_BACKWARD], *amounts[-_PEAKS:])


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    made = totals(context, request)
    if request.compare is not None:
        return _compared(_report(context, request, made), made, context, request)
    return _report(context, request, made)


def _report(context: ReportContext, request: ReportRequest, made: Totals) -> Report:
    gpus = (_GPUS,) if made.all.gpus_wall_ms else ()
    groups = ((row.key, row.amounts(made.all)) for row in made.rows)
    return grouped_report(
        TOTALS, context, request, groups, made.all.amounts(made.all),
        shown=(*made.by, *_SHOWN, *gpus, *_MEMORY, *(_STAGED if made.all.staged else ())),
        sorted_by="core_h",
        plots=_plots(made, request),
        notes=made.notes,
        nothing=made.nothing,
        sql=made.sql,
    )  # fmt: skip


def _compared(report: Report, made: Totals, context: ReportContext, request: ReportRequest) -> Report:
    """The report with the amounts of another interval beside its own; a group that has none now has a row too.

    Raises `UsageError` for groups by periods, of which the other interval has others.
    """
    assert request.compare is not None
    if set(request.by) & set(PERIODS):
        raise UsageError(
            "--compare cannot be combined with groups by periods",
            hint="Omit the period, or --compare; --by month,year has each month of two years",
        )
    start, stop = compared_with(request.start, request.stop, request.compare, zone_of(request.timezone))
    other = msgspec.structs.replace(request, start=start, stop=stop)
    before = totals(context, other)
    by_key = {row.key: row for row in (before.rows if made.by else (before.all,))}
    nothing = _total((), [0] * len(_SELECTED))
    groups = {row.key: row for row in (made.rows if made.by else (made.all,))}
    groups |= {key: msgspec.structs.replace(nothing, key=key) for key in by_key.keys() - groups.keys()}
    names = [column.name for column in TOTALS.columns]
    places = [names.index(name) for name in _COMPARED]

    def beside(now: Total, then: Total) -> Iterator[int | float | None]:
        for cell, earlier in ((now.amounts(made.all)[place], then.amounts(before.all)[place]) for place in places):
            yield earlier
            yield None if cell is None and earlier is None else (cell or 0) - (earlier or 0)

    named = [column for name in _COMPARED for column in (name, f"{name}_before", f"{name}_change")]
    gpus = made.all.gpus_wall_ms or before.all.gpus_wall_ms
    note = f"Compared with {interval_text(start, stop, request.timezone)}"
    others = (note for note in before.notes if note != _UNDIVIDED or note not in made.notes)
    also = (purged_note(context.purged(other)), *others)
    return msgspec.structs.replace(
        report,
        columns=(*report.columns, *TOTALS.more_columns),
        rows=tuple(
            (*key, *row.amounts(made.all), *beside(row, by_key.get(key, nothing)))
            for key, row in sorted(groups.items())
        ),
        footer=(*report.footer, *beside(made.all, before.all)) if made.by else (),
        shown=(*made.by, *(name for name in named if gpus or not name.startswith(_GPUS)), "share"),
        notes=(*report.notes, f"{note}: {before.nothing}." if before.nothing else f"{note}.", *filter(None, also)),
        nothing=made.nothing if before.nothing else None,
        plots=_plots(made, request, before),
        facts={
            **report.facts,
            "compared_with": {"since": iso(start), "until": iso(stop)},
            "before": dict(zip(names, before.all.amounts(before.all), strict=True)),
        },
    )


def _plots(made: Totals, request: ReportRequest, before: Totals | None = None) -> tuple[Plot, ...]:
    """Core hours, and the staged volumes if any are known, beside those of the period `before`.

    A period among the keys is the time axis, else the first key names the bars; the other key distinguishes layers.
    """
    rows = [*made.rows, *(before.rows if before else ())]
    if not rows:
        return ()
    axis = next((position for position, key in enumerate(made.by) if key in PERIODS), 0)
    layer_keys = tuple(key for position, key in enumerate(made.by) if position != axis)
    names, places = key_axis(request, made.by[axis], sorted({row.key[axis] for row in rows}))
    layers = sorted({row.key[:axis] + row.key[axis + 1 :] for row in made.rows})
    core_h = {layer: [0.0] * len(names) for layer in layers}
    for row in made.rows:
        core_h[row.key[:axis] + row.key[axis + 1 :]][names.index(row.key[axis])] += row.slots_wall_ms / _MS_IN_HOUR
    earlier = () if before is None else _by_name(before, names, axis)
    label_before = "a year before" if request.compare == "year" else "the period before"
    series = [
        Series((layer[0] or UNKNOWN_NAME) if layer else "core hours", tuple(values)) for layer, values in core_h.items()
    ]
    if earlier:
        series.append(Series(label_before, tuple(period.core_h for period in earlier), before=True))
    legend: dict[str, Any] = {"by": keys_text(layer_keys), "stacked": bool(layer_keys)}
    plots = [TOTALS.pictures["core_h"].plot("bar", *series, keys=made.by, **legend, names_add_up=True, **places)]
    if made.all.staged:
        now = _by_name(made, names, axis)
        series = [Series("staged in", tuple(period.in_gib for period in now))]
        series.append(Series("staged out", tuple(period.out_gib for period in now)))
        if earlier:
            both = tuple(known_sum((period.in_gib, period.out_gib)) for period in earlier)
            series.append(Series(label_before, both, before=True))
        staged, keys = TOTALS.pictures["staged"], made.by[axis : axis + 1]
        plots.append(staged.plot("bar", *series, keys=keys, stacked=True, names_add_up=True, **places))
    return tuple(plots)


class _NamedUse(NamedTuple):
    """What pictures show of a value of the key of the x axis; None: unknown for all of its runs."""

    core_h: float
    in_gib: float | None
    out_gib: float | None


def _by_name(made: Totals, names: Sequence[str], axis: int) -> list[_NamedUse]:
    """The usage of each value of a key."""
    rows = {name: list[Total]() for name in names}
    for row in made.rows:
        rows[row.key[axis]].append(row)
    return [
        _NamedUse(
            sum(row.slots_wall_ms / _MS_IN_HOUR for row in some),
            *(
                sum(getattr(row, name) for row in some) / _GIB if not some or any(row.staged for row in some) else None
                for name in _STAGED
            ),
        )
        for some in rows.values()
    ]
