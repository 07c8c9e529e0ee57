"""View `waiting`: how long jobs waited from submission to their first start.

Of jobs that started in the interval, so that those still waiting are not in it; of several runs of a job in it (the
same id, submitted at the same instant) the first counts. A percentile is the shortest wait that so many in a hundred
did not exceed. (Li, Yang, Wu 2016, section 2.3; the facts on sources.)
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from publisher.report.calendar import ReportPeriod, periods, unit_for, zone_of
from publisher.report.column_tally import Ints
from publisher.report.frame import UNKNOWN, Frame
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report, Series
from publisher.report.request import PERIODS, ReportRequest
from publisher.report.runs import ReportContext, running_note
from publisher.report.selection import BY_PERIOD, Groups, columns_of

SIZE: Final = "size"
_SIZES: Final = (1, 2, 5, 17, 65, 257)
"""The first number of slots of each class of sizes."""
WAITED: Final = frozenset({"submit", "eligible", "slots", "job", "cluster"})
"""The columns that waits are made of."""
_AMOUNTS: Final = (
    Column("jobs", "count"),
    Column("mean_s", "number", "s"),
    Column("median_s", "count", "s"),
    Column("p90_s", "count", "s"),
    Column("p99_s", "count", "s"),
    Column("longest_s", "count", "s"),
    Column("eligible_mean_s", "number", "s"),
)
_CLUSTER_FACTOR, _SUBMIT_FACTOR = -0x3D4D51C2D82B14B1, -0x61C8864680B583EB
"""Odd numbers without a pattern."""


class Waits:
    """Waits of jobs by group. Memory: 28 bytes a job."""

    def __init__(self) -> None:
        self._groups: list[npt.NDArray[np.int32]] = []
        self._jobs: list[Ints] = []
        self._waits: list[Ints] = []
        self._eligible: list[Ints] = []
        self.unknown_submission = 0
        """Runs whose submission is not known, or is after their start."""

    def add(self, frame: Frame, groups: Ints) -> None:
        """Add the runs of a frame."""
        start, submit = frame.numbers["start"], frame.numbers["submit"]
        known = (submit != UNKNOWN) & (submit <= start)
        self.unknown_submission += int(np.count_nonzero(~known))
        self._groups.append(groups[known].astype(np.int32))
        self._jobs.append(_jobs(frame)[known])
        self._waits.append((start - submit)[known])
        eligible = frame.numbers["eligible"]
        eligible = np.where((eligible == UNKNOWN) | (eligible > start), UNKNOWN, start - eligible)
        self._eligible.append(eligible[known])

    def by_group(self) -> dict[int, tuple[Ints, Ints]]:
        """By group the waits in ascending order, and those from eligibility on, of jobs of which it is known."""
        if not any(map(len, self._waits)):
            return {}
        waits, groups = np.concatenate(self._waits), np.concatenate(self._groups)
        eligible = np.concatenate(self._eligible)
        chosen = _first_of_each(np.concatenate(self._jobs), waits)
        if chosen is not None:
            waits, groups, eligible = waits[chosen], groups[chosen], eligible[chosen]
        order = np.argsort(waits, kind="stable")
        order = order[np.argsort(groups[order], kind="stable")]
        groups, waits, eligible = groups[order], waits[order], eligible[order]
        found, begins = np.unique(groups, return_index=True)
        ends = [*begins[1:].tolist(), len(groups)]
        return {
            group: (waits[begin:end], eligible[begin:end][eligible[begin:end] != UNKNOWN])
            for group, begin, end in zip(found.tolist(), begins.tolist(), ends, strict=True)
        }


def _first_of_each(jobs: Ints, waits: Ints) -> Ints | None:
    """The places of the shortest wait of each job; None where no job comes twice."""
    ordered = np.sort(jobs)
    again = ordered[1:] == ordered[:-1]
    if not again.any():
        return None
    several = np.isin(jobs, ordered[1:][again])
    order = np.lexsort((waits[several], jobs[several]))
    _, first = np.unique(jobs[several][order], return_index=True)
    return np.concatenate([np.flatnonzero(~several), np.flatnonzero(several)[order[first]]])


def _jobs(frame: Frame) -> Ints:
    """A number for each job: a hash of 64 bits, so that no two of a site's are likely ever to fall together."""
    with np.errstate(over="ignore"):
        mixed = frame.codes["cluster"] * _CLUSTER_FACTOR ^ frame.numbers["submit"] * _SUBMIT_FACTOR
    return frame.job_numbers() ^ mixed


def percentile(waits: Ints, percent: int) -> int:
    """Of waits in ascending order the first that so many in a hundred of them do not exceed."""
    return int(waits[max(0, -(-len(waits) * percent // 100) - 1)])


def amounts(waits: Ints, eligible: Ints) -> tuple[Cell, ...]:
    """As the columns have them."""
    return (
        len(waits),
        int(waits.sum()) / len(waits),
        percentile(waits, 50),
        percentile(waits, 90),
        percentile(waits, 99),
        int(waits[-1]),
        int(eligible.sum()) / len(eligible) if len(eligible) else None,
    )


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    request.require_interval()
    request.require_by("waiting", (*BY_PERIOD, SIZE), 2)
    by = tuple(key for key in request.by if key != SIZE)
    selection = context.select(request, WAITED | columns_of(by), "started", running=True)
    groups = Groups(request, selection, by, "start")
    waits = Waits()
    for frame in selection.frames():
        group = groups.of(frame)
        waits.add(frame, group * len(_SIZES) + _size_of(frame) if SIZE in request.by else group)
    found = waits.by_group()
    labelled = sorted((_label(request.by, groups.labels, group), *each) for group, each in found.items())
    rows = tuple((*map(_words, label), *amounts(some, eligible)) for label, some, eligible in labelled)
    everything = np.sort(np.concatenate([some for some, _ in found.values()])) if found else None
    notes = [
        f"Runs left out, because their submission is not known or is after their start: {waits.unknown_submission}."
    ]
    return Report(
        view="waiting",
        title="How long jobs waited" + (f", by {' and '.join(request.by)}" if request.by else ""),
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=(*(Column(key, "text") for key in request.by), *_AMOUNTS),
        rows=rows,
        plots=_plots(request, rows) if request.by and rows else (),
        notes=(*(notes if waits.unknown_submission else ()), *running_note(request)),
        nothing=selection.nothing() or (None if rows else "no source knows when these jobs were submitted"),
        facts={
            "by": list(request.by),
            "all": {} if everything is None else dict(
                zip((column.name for column in _AMOUNTS[:-1]), amounts(everything, everything[:0])[:-1], strict=True)
            ),
        },
    )  # fmt: skip


def _size_of(frame: Frame) -> Ints:
    return np.searchsorted(np.array(_SIZES), np.maximum(frame.numbers["slots"], 1), "right") - 1


def _label(by: tuple[str, ...], labels: list[tuple[str, ...]], group: int) -> tuple[str | int, ...]:
    """What a group is called; sizes as the number of their class, so that they sort."""
    if SIZE not in by:
        return labels[group]
    words: list[str | int] = list(labels[group // len(_SIZES)])
    words.insert(by.index(SIZE), group % len(_SIZES))
    return tuple(words)


def _words(word: str | int) -> str:
    if isinstance(word, str):
        return word
    first = _SIZES[word]
    if word + 1 == len(_SIZES):
        return f"{first} or more slots"
    last = _SIZES[word + 1] - 1
    return f"{first} slot" if first == last else f"{first} to {last} slots"


def _plots(request: ReportRequest, rows: tuple[tuple[Cell, ...], ...]) -> tuple[Plot, ...]:
    """The median and the 90th percentile: over time by a period, else of each value."""
    if len(request.by) > 1:
        return ()
    (key,) = request.by
    places = {"median": 3, "90 of 100": 4}
    unit = unit_for(max(_number(row[place]) for row in rows for place in places.values()))

    def in_units(row: tuple[Cell, ...] | None, place: int) -> float | None:
        return None if row is None else _number(row[place]) / unit.seconds

    title = f"Wait by {key}"
    if key in PERIODS:
        cut: list[ReportPeriod] = periods(request.start, request.stop, key, zone_of(request.zone))  # type: ignore[arg-type]
        by_name = {row[0]: row for row in rows}
        series = tuple(
            Series(name, tuple(in_units(by_name.get(one.name), place) for one in cut)) for name, place in places.items()
        )
        return (Plot(title=title, style="line", x=tuple(one.start for one in cut), unit=unit.name, series=series),)
    series = tuple(Series(name, tuple(in_units(row, place) for row in rows)) for name, place in places.items())
    names = tuple(str(row[0] or UNKNOWN_NAME) for row in rows)
    jobs = tuple(float(_number(row[1])) for row in rows)
    return (Plot(title=title, style="bar", x=names, unit=unit.name, weights=jobs, series=series),)


def _number(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0
