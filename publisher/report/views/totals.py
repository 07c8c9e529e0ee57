"""View `totals`: the usage of runs, summed by up to two keys, as qacct sums it.

A run counts as a whole where it ended, so that the totals of consecutive intervals add up. qacct counts it where it
started: `interval = "started"`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import duckdb
import msgspec

from publisher.errors import UsageError
from publisher.report.archive import AMOUNTS, CPU_UNKNOWN, MEMORY_UNKNOWN, STAGED_UNKNOWN, VIRTUAL_UNKNOWN
from publisher.report.calendar import compared_with, zone_of
from publisher.report.grouping import Grouping, Label, grouped_report, key_axis
from publisher.report.matching import Matching, columns_of, summed
from publisher.report.plot.style import interval_text, known_sum
from publisher.report.report import UNKNOWN_NAME, Plot, Report, Series, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, purged_note
from publisher.report.tables import EntryReading
from publisher.report.view_kind import TOTALS
from publisher.report.view_option import PERIODS
from publisher.text import iso

_SUMMED: Final = {
    "wall_ms": "wall_ms", "cpu_user_ms": "user_ms", "cpu_system_ms": "system_ms", "cpu_ms": "cpu_ms",
    "tasks_wall_ms": "tasks_wall_ms", "memory_ugb_s": "mem_ugb_s", "io_ugb": "io_ugb", "io_wait_us": "iow_us",
    "stage_in_bytes": "stage_in_bytes", "stage_out_bytes": "stage_out_bytes",
}  # fmt: skip
"""The column of each sum of `Total`; so with those below."""
_PRODUCTS: Final = {"slots_wall_ms": "slots", "gpus_wall_ms": "gpus"}
"""Sums of products with the wall time."""
_LACKING: Final = {
    "cpu_unknown": CPU_UNKNOWN, "memory_unknown": MEMORY_UNKNOWN, "virtual_unknown": VIRTUAL_UNKNOWN,
    "staged_unknown": STAGED_UNKNOWN,
}  # fmt: skip
"""Numbers of runs without an amount, by the bits of `incomplete`."""
_OF_GRID_ENGINE: Final = {
    "memory_ugb_s_unknown": "mem_ugb_s", "io_unknown": "io_ugb", "io_wait_unknown": "iow_us",
}  # fmt: skip
"""Numbers of runs without an amount that other sources do not have."""
_PEAKS: Final = {"memory_max_kib": "memory_kib", "virtual_max_kib": "virtual_kib"}
_COLUMNS: Final = ("incomplete", *_SUMMED.values(), *_PRODUCTS.values(), *_PEAKS.values())
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

    key: Label = ()
    jobs: int = 0
    backward: int = 0
    """Runs that end before they start."""
    wall_ms: int = 0
    cpu_user_ms: int = 0
    cpu_system_ms: int = 0
    cpu_ms: int = 0
    slots_wall_ms: int = 0
    gpus_wall_ms: int = 0
    tasks_wall_ms: int = 0
    """Wall time including every task of tightly integrated parallel jobs, as in qacct without -m."""
    memory_ugb_s: int = 0
    io_ugb: int = 0
    io_wait_us: int = 0
    stage_in_bytes: int = 0
    stage_out_bytes: int = 0
    memory_max_kib: int = 0
    virtual_max_kib: int = 0
    cpu_unknown: int = 0
    memory_unknown: int = 0
    virtual_unknown: int = 0
    staged_unknown: int = 0
    memory_ugb_s_unknown: int = 0
    io_unknown: int = 0
    io_wait_unknown: int = 0

    @classmethod
    def of(cls, key: Label, totals: Collection[Total]) -> Total:
        """The usage of the runs of all of them."""

        def together(name: str) -> int:
            amounts = (getattr(total, name) for total in totals)
            return max(amounts, default=0) if name in _PEAKS else sum(amounts)

        return cls(key, **{name: together(name) for name in cls.__struct_fields__[1:]})

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
    """Totals by the keys of a request, in their order, and of all."""

    rows: tuple[Total, ...]
    all: Total
    nothing: str | None
    notes: tuple[str, ...]
    sql: str


class UsageSums:
    """The usage of some runs by group, to which that of other runs can be added in any order."""

    def __init__(self, groups: Iterable[Total]) -> None:
        self.groups = {group.key: group for group in groups}

    def add(self, other: UsageSums) -> None:
        """Add the usage of other runs."""
        for key, group in other.groups.items():
            self.groups[key] = Total.of(key, (self.groups[key], group)) if key in self.groups else group

    def whole(self) -> Total:
        """The usage of all groups together."""
        return Total.of((), self.groups.values())


def group_sums(matching: Matching, request: ReportRequest) -> UsageSums:
    """Sum the matching runs."""
    grouping = Grouping.of(request)
    try:
        groups = _groups(matching, grouping, "wall_ms")
    except duckdb.OutOfRangeException:  # impossible values, whose products and sums have more than 127 bits
        groups = _exactly(matching, grouping)
    made = UsageSums(groups)
    whole = made.whole()
    matching.note_counts(whole.jobs, whole.backward, {bit: getattr(whole, name) for name, bit in _LACKING.items()})
    return made


def _groups(matching: Matching, grouping: Grouping, wall_ms: str) -> list[Total]:
    amounts = {
        "jobs": "count(*)",
        "backward": 'count(*) FILTER ("stop" < "start")',
        **{name: f"coalesce(sum({column}), 0)" for name, column in _SUMMED.items()},
        **{name: f"coalesce(sum(CAST({of} AS HUGEINT) * {wall_ms}), 0)" for name, of in _PRODUCTS.items()},
        **{name: f"count(*) FILTER (incomplete & {bit} <> 0)" for name, bit in _LACKING.items()},
        **{name: f"count(*) FILTER ({column} IS NULL)" for name, column in _OF_GRID_ENGINE.items()},
        **{name: f"greatest(max({column}), 0)" for name, column in _PEAKS.items()},
    }
    rows = grouping.rows(matching, amounts, grouping.runs("matching"))
    return [Total(label, **sums) for label, sums in rows if sums["jobs"]]


def _exactly(matching: Matching, grouping: Grouping) -> list[Total]:
    """As `_groups`: wall times are multiplied and summed in two halves, of which none is too large."""
    high = {group.key: group for group in _groups(matching, grouping, "(wall_ms >> 32)")}
    return [
        msgspec.structs.replace(
            low, **{name: getattr(low, name) + (getattr(high[low.key], name) << 32) for name in _PRODUCTS}
        )
        for low in _groups(matching, grouping, "(wall_ms & 4294967295)")
    ]


def totals(context: ReportContext, request: ReportRequest) -> Totals:
    """The usage of the runs of the interval. Raises `UsageError`."""
    request.require_interval()
    request.require_keys(TOTALS)
    columns = columns_of(request, *_COLUMNS)
    sums, met = summed(context, request, EntryReading(columns), "ended", partial(group_sums, request=request))
    rows = tuple(sums.groups[key] for key in sorted(sums.groups)) if request.by else ()
    of_all = sums.whole()
    notes = met.notes(sum(AMOUNTS), shows_unknown=True)
    if of_all.cpu_user_ms and not of_all.cpu_system_ms:
        notes = (*notes, _UNDIVIDED)
    return Totals(rows, of_all, met.nothing(), notes, met.sql)


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
        shown=(*request.by, *_SHOWN, *gpus, *_MEMORY, *(_STAGED if made.all.staged else ())),
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
    by_key = {row.key: row for row in (before.rows if request.by else (before.all,))}
    groups = {row.key: row for row in (made.rows if request.by else (made.all,))}
    groups |= {key: Total(key) for key in by_key.keys() - groups.keys()}
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
            (*key, *row.amounts(made.all), *beside(row, by_key.get(key, Total())))
            for key, row in sorted(groups.items())
        ),
        footer=(*report.footer, *beside(made.all, before.all)) if request.by else (),
        shown=(*request.by, *(name for name in named if gpus or not name.startswith(_GPUS)), "share"),
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
    axis = next((position for position, key in enumerate(request.by) if key in PERIODS), 0)
    layer_keys = tuple(key for position, key in enumerate(request.by) if position != axis)
    names, places = key_axis(request, request.by[axis], sorted({row.key[axis] for row in rows}))
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
    plots = [TOTALS.pictures["core_h"].plot("bar", *series, keys=request.by, **legend, names_add_up=True, **places)]
    if made.all.staged:
        now = _by_name(made, names, axis)
        series = [Series("staged in", tuple(period.in_gib for period in now))]
        series.append(Series("staged out", tuple(period.out_gib for period in now)))
        if earlier:
            both = tuple(known_sum((period.in_gib, period.out_gib)) for period in earlier)
            series.append(Series(label_before, both, before=True))
        staged, keys = TOTALS.pictures["staged"], request.by[axis : axis + 1]
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
