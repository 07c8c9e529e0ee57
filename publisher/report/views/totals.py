"""View `totals`: the usage of runs, summed by up to two keys, as qacct sums it.

A run counts as a whole where it ended, so that the totals of consecutive intervals add up. qacct counts it where it
started: `interval = "started"`.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np

from publisher.report.calendar import period_axis, periods, zone_of
from publisher.report.column_tally import Ints, sum_by
from publisher.report.frame import (
    AMOUNTS,
    CPU_UNKNOWN,
    MEMORY_UNKNOWN,
    STAGED_UNKNOWN,
    UNKNOWN,
    VIRTUAL_UNKNOWN,
    Frame,
)
from publisher.report.report import UNKNOWN_NAME, Column, Plot, Report, Series, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.selection import Groups, Met, Selection, columns_of
from publisher.report.view_kind import PERIODS, TOTALS

_WANTED: Final = frozenset(
    {
        "incomplete",
        "end", "user_ms", "system_ms", "cpu_ms", "wall_ms", "slots", "memory_kib", "virtual_kib", "tasks_wall_ms",
        "mem_ugb_s", "io_ugb", "iow_us", "stage_in_bytes", "stage_out_bytes",
    }
)  # fmt: skip
_SUMMED: Final = (
    "jobs", "wall_ms", "user_ms", "system_ms", "cpu_ms", "slots_wall_ms", "tasks_wall_ms", "mem_ugb_s", "io_ugb",
    "iow_us", "stage_in_bytes", "stage_out_bytes",
)  # fmt: skip
_UNKNOWN: Final = {
    "cpu_unknown": CPU_UNKNOWN,
    "memory_unknown": MEMORY_UNKNOWN,
    "virtual_unknown": VIRTUAL_UNKNOWN,
    "staged_unknown": STAGED_UNKNOWN,
}
"""The numbers of runs of a group that lack an amount, with the bit of such runs."""
_NULLABLE: Final = {"mem_unknown": "mem_ugb_s", "io_unknown": "io_ugb", "iow_unknown": "iow_us"}
"""Likewise, with the column in which such runs have no number: only Grid Engine has these amounts."""
_COUNTED: Final = (*_SUMMED, *_UNKNOWN, *_NULLABLE)
_PEAKS: Final = ("memory_kib", "virtual_kib")
_GIB: Final = 1 << 30
_SHOWN: Final = 8
"""The number of amounts in tables; those of Grid Engine only are in CSV and JSON."""
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

    def amounts(self) -> tuple[int | float | None, ...]:
        """The cells of the columns; None for amounts that are unknown for all runs."""
        cpu = (self.cpu_user_ms / 1000, self.cpu_system_ms / 1000, self.cpu_ms / 1000)
        nobody_knows = self._unknown(self.cpu_unknown) and not any(cpu)
        user_s, system_s, cpu_s = (None, None, None) if nobody_knows else cpu
        staged = (self.stage_in_bytes, self.stage_out_bytes) if self.staged else (None, None)
        return (
            self.jobs, self.wall_ms / 1000, user_s, system_s, cpu_s, self.slots_wall_ms / 3_600_000,
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


class Summed:
    """The usage of some runs by group: `publisher.report.selection.PartialReport`."""

    def __init__(self) -> None:
        self.labels: list[tuple[str, ...]] = []
        self.met = Met()
        self.sums = {name: [0] for name in _COUNTED}
        self.peaks = {name: [0] for name in _PEAKS}

    def add(self, other: Summed) -> None:
        """Add the usage of other runs."""
        known = {label: place for place, label in enumerate(self.labels)}
        places = [known.setdefault(label, len(known)) for label in other.labels]
        self.labels = list(known)
        for name in _COUNTED:
            column = self.sums[name] = _grown(self.sums[name], len(known))
            for place, amount in zip(
                places, other.sums[name], strict=False
            ):  # without labels there is one cell too many
                column[place] += amount
        for name in _PEAKS:
            column = self.peaks[name] = _grown(self.peaks[name], len(known))
            for place, top in zip(places, other.peaks[name], strict=False):
                column[place] = max(column[place], top)
        self.met.add(other.met)


def sum_part(selection: Selection, request: ReportRequest) -> Summed:
    """Sum the runs of a selection."""
    groups = Groups(request, selection, request.by, "start" if request.interval == "started" else "end")
    found = Summed()
    sums, peaks = found.sums, found.peaks
    for frame in selection.frames():
        group = groups.of(frame)
        count = len(groups.labels)
        for name in _COUNTED:
            column = sums[name] = _grown(sums[name], count)
            for place, amount in enumerate(_summed(frame, name, group, count)):
                column[place] += amount
        for name in _PEAKS:
            top = np.zeros(count, np.int64)
            np.maximum.at(top, group, frame.numbers[name])
            peaks[name] = [max(pair) for pair in zip(_grown(peaks[name], count), top.tolist(), strict=True)]
    found.labels, found.met = groups.labels, selection.met()
    return found


def totals(context: ReportContext, request: ReportRequest) -> Totals:
    """The usage of the runs of the interval. Raises `UsageError`."""
    request.require_interval()
    request.require_keys(TOTALS)
    summed = context.gather(request, _WANTED | columns_of(request.by), "ended", sum_part)
    sums, peaks = summed.sums, summed.peaks
    found = [
        Total(label, *(sums[name][place] for name in _COUNTED), *(peaks[name][place] for name in _PEAKS))
        for place, label in enumerate(summed.labels)
    ]
    whole = Total((), *(sum(sums[name]) for name in _COUNTED), *(max(peaks[name]) for name in _PEAKS))
    rows = tuple(sorted(found, key=lambda total: total.key)) if request.by else ()
    return Totals(request.by, rows, whole, summed.met.nothing(), summed.met.notes(sum(AMOUNTS), shows_unknown=True))


def _grown(column: list[int], count: int) -> list[int]:
    return column + [0] * (count - len(column))


def _summed(frame: Frame, name: str, group: Ints, count: int) -> list[int]:
    if name == "jobs":
        return [int(jobs) for jobs in np.bincount(group, minlength=count)]
    if name in _UNKNOWN:
        lacks = frame.numbers["incomplete"] & _UNKNOWN[name] != 0
        return [int(jobs) for jobs in np.bincount(group[lacks], minlength=count)]
    if name in _NULLABLE:
        lacks = frame.numbers[_NULLABLE[name]] == UNKNOWN
        return [int(jobs) for jobs in np.bincount(group[lacks], minlength=count)]
    if name == "slots_wall_ms":
        slots, wall_ms = frame.numbers["slots"], frame.numbers["wall_ms"]
        if int(slots.max(initial=0)) * int(wall_ms.max(initial=0)) < 1 << 62:
            return sum_by(group, slots * wall_ms, count)
        exact = [0] * count
        for place, some, wall in zip(group.tolist(), slots.tolist(), wall_ms.tolist(), strict=True):
            exact[place] += some * wall
        return exact
    column = frame.numbers[name]
    return sum_by(group, np.where(column == UNKNOWN, 0, column), count)


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    made = totals(context, request)
    rows = made.rows if made.by else (made.all,)
    return Report(
        view=TOTALS.name,
        title="Usage" + (f", by {keys_text(made.by)}" if made.by else ""),
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=(*(Column(key, "text") for key in made.by), *TOTALS.columns),
        rows=tuple((*row.key, *row.amounts()) for row in rows),
        shown=(
            *made.by,
            *(column.name for column in TOTALS.columns[:_SHOWN]),
            *(_STAGED if made.all.staged else ()),
        ),
        sorted_by="core_h",
        plots=_plots(made, request),
        notes=made.notes,
        nothing=made.nothing,
        rows_named="totals",
        facts={
            "by": list(made.by),
            "all": dict(zip((column.name for column in TOTALS.columns), made.all.amounts(), strict=True)),
        },
    )


def _plots(made: Totals, request: ReportRequest) -> tuple[Plot, ...]:
    """Core hours, and the staged volumes if any are known.

    A period among the keys is the time axis, else the first key names the bars; the other key distinguishes layers.
    """
    if not made.rows:
        return ()
    axis = next((place for place, key in enumerate(made.by) if key in PERIODS), 0)
    layer_keys = tuple(key for place, key in enumerate(made.by) if place != axis)
    names, places = _places(made, request, axis)
    layers = sorted({row.key[:axis] + row.key[axis + 1 :] for row in made.rows})
    core_h = {layer: [0.0] * len(names) for layer in layers}
    staged_gib = {"staged in": [0.0] * len(names), "staged out": [0.0] * len(names)}
    for row in made.rows:
        place = names.index(row.key[axis])
        core_h[row.key[:axis] + row.key[axis + 1 :]][place] += row.slots_wall_ms / 3_600_000
        staged_gib["staged in"][place] += row.stage_in_bytes / _GIB
        staged_gib["staged out"][place] += row.stage_out_bytes / _GIB
    plots = [
        Plot(
            title=f"Core hours by {keys_text(made.by)}", style="bar", unit="core h", by=keys_text(layer_keys),
            stacked=bool(layer_keys), names_add_up=True, **places,
            series=tuple(
                Series((layer[0] or UNKNOWN_NAME) if layer else "core hours", tuple(values))
                for layer, values in core_h.items()
            ),
        )
    ]  # fmt: skip
    if made.all.staged:
        series = tuple(Series(label, tuple(values)) for label, values in staged_gib.items())
        title = f"Staged volumes by {keys_text(made.by[axis : axis + 1])}"
        plots.append(
            Plot(title=title, style="bar", unit="GiB", stacked=True, names_add_up=True, **places, series=series)
        )
    return tuple(plots)


def _places(made: Totals, request: ReportRequest, axis: int) -> tuple[list[str], dict[str, Any]]:
    """The values of the key of the x axis, and what plots say of that axis."""
    key = made.by[axis]
    if key in PERIODS:
        cut = periods(request.start, request.stop, key, zone_of(request.timezone))
        return [one.name for one in cut], period_axis(cut)
    names = sorted({row.key[axis] for row in made.rows})
    return names, {"x": tuple(name or UNKNOWN_NAME for name in names)}
