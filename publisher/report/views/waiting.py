"""View `waiting`: how long jobs waited from submission to their first start.

Jobs that started in the interval count; jobs that still wait do not. If several runs of a job (the same id, submitted
at the same instant) are in the interval, the first counts. A percentile is the shortest waiting time that so many in a
hundred jobs did not exceed. (Li, Yang, Wu 2016, section 2.3.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

import msgspec
import numpy as np

from publisher.report.calendar import ReportPeriod, period_axis, periods, unit_for, zone_of
from publisher.report.column_tally import Ints, sum_by
from publisher.report.frame import UNKNOWN, Frame
from publisher.report.matching import OF_JOB, Matching, columns_of, computed, group_keys
from publisher.report.partitions import ROWS_IN_MEMORY, NumberPartitions, whole
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report, Series, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, running_note
from publisher.report.selection import Met, distinct
from publisher.report.view_kind import PERIODS, SIZE, WAITING

_SIZES: Final = (1, 2, 5, 17, 65, 257)
"""The first number of slots of each class of sizes."""
_COLUMNS: Final = ("submit", "eligible", "run", *OF_JOB)
WAITED: Final = frozenset({"submit", "eligible", "slots", "job", "cluster"})
"""The columns that `Waits` needs."""
_CLUSTER_FACTOR, _SUBMIT_FACTOR = -0x3D4D51C2D82B14B1, -0x61C8864680B583EB
"""Odd numbers that distribute the bits of a hash."""
_PERCENTILES: Final = "[0.5, 0.9, 0.99]"


class GroupWaits(msgspec.Struct, frozen=True):
    """The waiting times of a group of jobs, in seconds. `eligible_s`: from eligibility on, of `eligible_jobs`."""

    jobs: int
    total_s: int
    median_s: int
    p90_s: int
    p99_s: int
    longest_s: int
    eligible_jobs: int = 0
    eligible_s: int = 0

    def amounts(self) -> tuple[Cell, ...]:
        """The cells of the columns."""
        return (
            self.jobs,
            self.total_s / self.jobs,
            self.median_s,
            self.p90_s,
            self.p99_s,
            self.longest_s,
            self.eligible_s / self.eligible_jobs if self.eligible_jobs else None,
        )


class WaitingTimes(msgspec.Struct):
    """The waiting times of each group, and of all jobs if there are any."""

    by_group: dict[tuple[str | int, ...], GroupWaits]
    all: GroupWaits | None
    sql: str = ""
    unknown_submission: int = 0
    """Runs whose submission is unknown or after their start."""
    met: Met = msgspec.field(default_factory=Met)


def waits_of(rows: Callable[[str], list[Any]], runs: str, keys: Sequence[str]) -> WaitingTimes:
    """The waiting times by the columns `keys` of the relation `runs`, whose runs were submitted before their start.

    Its other columns: `job` (a number for the ids of each job), `submit`, `start`, `end`, `run`, and `eligible`.
    """
    together = "".join(f"{key}, " for key in keys)
    eligible = 'CASE WHEN eligible <= "start" THEN CAST("start" AS HUGEINT) - eligible END'
    order = f'"start", "end", run, {together}eligible'
    statement = (
        f'WITH jobs AS (SELECT {together}CAST("start" AS HUGEINT) - submit AS waited, {eligible} AS eligible_waited '  # noqa: S608 - names of ours
        f"FROM {runs} QUALIFY row_number() OVER (PARTITION BY job, submit ORDER BY {order}) = 1) "
        f"SELECT {together}{f'grouping({keys[0]})' if keys else '1'}, count(*), sum(waited), "
        f"quantile_disc(waited, {_PERCENTILES}), max(waited), count(eligible_waited), sum(eligible_waited) FROM jobs"
        + (f" GROUP BY GROUPING SETS (({', '.join(keys)}), ())" if keys else "")
    )
    made = WaitingTimes({}, None, statement)
    for row in rows(statement):
        label = row[: len(keys)]
        is_all, jobs, total_s, percentiles, longest_s, eligible_jobs, eligible_s = row[len(keys) :]
        if not jobs:
            continue
        median_s, p90_s, p99_s = percentiles
        waits = GroupWaits(jobs, total_s, median_s, p90_s, p99_s, longest_s, eligible_jobs, eligible_s or 0)
        if is_all:
            made.all = waits
        if not is_all or not keys:
            made.by_group[label] = waits
    return made


def _made(matching: Matching, request: ReportRequest) -> WaitingTimes:
    periods_and_words = iter(group_keys(request, [key for key in request.by if key != SIZE], '"start"'))
    labels = [_size_of() if key == SIZE else next(periods_and_words) for key in request.by]
    names = [f"key{place}" for place in range(len(labels))]
    selected = "".join(f"{label} AS {name}, " for label, name in zip(labels, names, strict=True))
    ids = ", ".join(f'"{name}"' for name in OF_JOB)
    times = 'submit, "start", "end", run, eligible'
    runs = f'(SELECT {selected}hash({ids}) AS job, {times} FROM matching WHERE submit <= "start")'  # noqa: S608 - names of ours
    made = waits_of(matching.rows, runs, names)
    made.sql = matching.text(made.sql)
    matched, known = matching.rows('SELECT count(*), count(*) FILTER (submit <= "start") FROM matching')[0]
    made.met = Met(runs=matched, matched=matched)
    made.unknown_submission = matched - known
    return made


class Waits:
    """Waiting times of jobs by group. Memory grows with groups and distinct waiting times, not with jobs.

    Close it, or use it in a `with` statement.
    """

    def __init__(self, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
        self._rows_in_memory = rows_in_memory
        self._by_job = NumberPartitions(4, rows_in_memory)
        self.unknown_submission = 0
        """Runs whose submission is unknown or after their start."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._by_job.close()

    def add(self, frame: Frame, groups: Ints) -> None:
        """Add the runs of a frame. Raises `OutputError`."""
        start, submit = frame.numbers["start"], frame.numbers["submit"]
        known = (submit != UNKNOWN) & (submit <= start)
        self.unknown_submission += int(np.count_nonzero(~known))
        eligible = frame.numbers["eligible"]
        eligible = np.where((eligible == UNKNOWN) | (eligible > start), UNKNOWN, start - eligible)
        self._by_job.add(_jobs(frame)[known], groups[known], (start - submit)[known], eligible[known])

    def by_group(self, merged: Ints | None = None) -> tuple[dict[int, GroupWaits], GroupWaits | None]:
        """The waiting times of each group, and of all jobs if there are any. Raises `OutputError`.

        `merged`: the number of the group that each group, by its number, becomes a part of.
        """
        eligible_jobs: Counter[int] = Counter()
        eligible_s: Counter[int] = Counter()
        found: dict[int, GroupWaits] = {}
        everything = _Distribution()
        with NumberPartitions(3, self._rows_in_memory) as by_group:
            for part in self._by_job.parts():
                groups, waits, eligible = _first_of_each(*whole(part))
                if merged is not None:
                    groups = merged[groups]
                rows, place = distinct([groups, waits])
                by_group.add(rows[:, 0], rows[:, 1], np.bincount(place, minlength=len(rows)))
                known = eligible != UNKNOWN
                met, of = np.unique(groups[known], return_inverse=True)
                eligible_jobs.update(dict(zip(met.tolist(), np.bincount(of, minlength=len(met)).tolist(), strict=True)))
                eligible_s.update(dict(zip(met.tolist(), sum_by(of, eligible[known], len(met)), strict=True)))
            for part in by_group.parts():
                for group, one in _distributions(part).items():
                    everything.add(one.waits, one.jobs)
                    found[group] = one.summed(eligible_jobs[group], eligible_s[group])
        return found, everything.summed() if found else None


class _Distribution:
    """The number of jobs for each distinct waiting time, in ascending order."""

    def __init__(self) -> None:
        self.waits = np.zeros(0, np.int64)
        self.jobs = np.zeros(0, np.int64)

    def add(self, waits: Ints, jobs: Ints) -> None:
        """Add so many jobs for each of these waiting times."""
        self.waits, place = np.unique(np.concatenate([self.waits, waits]), return_inverse=True)
        self.jobs = np.array(sum_by(place, np.concatenate([self.jobs, jobs]), len(self.waits)), np.int64)

    def summed(self, eligible_jobs: int = 0, eligible_s: int = 0) -> GroupWaits:
        """The amounts of all jobs."""
        reached = np.cumsum(self.jobs)
        return GroupWaits(
            jobs=int(reached[-1]),
            total_s=sum(wait * some for wait, some in zip(self.waits.tolist(), self.jobs.tolist(), strict=True)),
            median_s=percentile(self.waits, reached, 50),
            p90_s=percentile(self.waits, reached, 90),
            p99_s=percentile(self.waits, reached, 99),
            longest_s=int(self.waits[-1]),
            eligible_jobs=eligible_jobs,
            eligible_s=eligible_s,
        )


def _distributions(part: Iterator[list[Ints]]) -> dict[int, _Distribution]:
    """By group, from rows of group, waiting time, and jobs."""
    found: defaultdict[int, _Distribution] = defaultdict(_Distribution)
    for groups, waits, jobs in part:
        order = np.argsort(groups, kind="stable")
        met, begins = np.unique(groups[order], return_index=True)
        for group, places in zip(met.tolist(), np.split(order, begins[1:]), strict=True):
            found[group].add(waits[places], jobs[places])
    return found


def _first_of_each(jobs: Ints, groups: Ints, waits: Ints, eligible: Ints) -> tuple[Ints, Ints, Ints]:
    """Groups, waiting times, and those from eligibility on, once for each job: those of its shortest wait."""
    order = np.lexsort((waits, jobs))
    _, first = np.unique(jobs[order], return_index=True)
    chosen = order[first]
    return groups[chosen], waits[chosen], eligible[chosen]


def _jobs(frame: Frame) -> Ints:
    """A 64-bit hash for each job, so that two jobs of a site are very unlikely to have the same number."""
    with np.errstate(over="ignore"):
        mixed = frame.codes["cluster"] * _CLUSTER_FACTOR ^ frame.numbers["submit"] * _SUBMIT_FACTOR
    return frame.job_numbers() ^ mixed


def percentile(waits: Ints, reached: Ints, percent: int) -> int:
    """The first of distinct waiting times in ascending order that so many in a hundred jobs did not exceed.

    `reached`: the number of jobs that did not exceed each.
    """
    number = -(-int(reached[-1]) * percent // 100)
    return int(waits[np.searchsorted(reached, number)])


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    request.require_interval()
    columns = columns_of(request, *_COLUMNS, *(("slots",) if SIZE in request.by else ()))
    until = context.now if request.running else None
    waits = computed(context, request, columns, "started", partial(_made, request=request), until)
    found = sorted(waits.by_group.items(), key=lambda group: group[0])
    rows = tuple((*map(_words, label), *group.amounts()) for label, group in found)
    notes = [f"Runs left out, because their submission is unknown or after their start: {waits.unknown_submission:,}."]
    return Report(
        view=WAITING.name,
        title="Waiting times of jobs" + (f", by {keys_text(request.by)}" if request.by else ""),
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=(*(Column(key, "text") for key in request.by), *WAITING.columns),
        rows=rows,
        sorted_by="jobs",
        plots=_plots(request, rows) if request.by and rows else (),
        notes=(*(notes if waits.unknown_submission else ()), *running_note(request)),
        sql=waits.sql,
        nothing=waits.met.nothing() or (None if rows else "no source reports when these jobs were submitted"),
        facts={
            "by": list(request.by),
            "all": {} if waits.all is None else dict(
                zip((column.name for column in WAITING.columns[:-1]), waits.all.amounts()[:-1], strict=True)
            ),
        },
    )  # fmt: skip


def _size_of() -> str:
    """The SQL of the number of the class of sizes of a run."""
    cases = " ".join(f"WHEN slots >= {first} THEN {place}" for place, first in reversed([*enumerate(_SIZES)]))
    return f"CASE {cases} ELSE 0 END"


def _words(word: str | int) -> str:
    if isinstance(word, str):
        return word
    first = _SIZES[word]
    if word + 1 == len(_SIZES):
        return f"{first} or more slots"
    last = _SIZES[word + 1] - 1
    return f"{first} slot" if first == last else f"{first} to {last} slots"


def _plots(request: ReportRequest, rows: tuple[tuple[Cell, ...], ...]) -> tuple[Plot, ...]:
    """The median and the 90th percentile: over time if the key is a period, else of each value."""
    if len(request.by) > 1:
        return ()
    (key,) = request.by
    places = {"median": 3, "p90": 4}
    unit = unit_for(max(_number(row[place]) for row in rows for place in places.values()))

    def in_units(row: tuple[Cell, ...] | None, place: int) -> float | None:
        return None if row is None else _number(row[place]) / unit.seconds

    title = f"Waiting time by {keys_text((key,))}"
    text = f"waiting time ({unit.name})"
    if key in PERIODS:
        cut: list[ReportPeriod] = periods(request.start, request.stop, key, zone_of(request.timezone))
        by_name = {row[0]: row for row in rows}
        series = tuple(
            Series(name, tuple(in_units(by_name.get(one.name), place) for one in cut)) for name, place in places.items()
        )
        return (Plot(title=title, style="line", unit=text, **period_axis(cut), series=series),)
    series = tuple(Series(name, tuple(in_units(row, place) for row in rows)) for name, place in places.items())
    names = tuple(str(row[0] or UNKNOWN_NAME) for row in rows)
    jobs = tuple(float(_number(row[1])) for row in rows)
    ordered = key == SIZE
    return (Plot(title=title, style="bar", x=names, unit=text, weights=jobs, ordered=ordered, series=series),)


def _number(cell: Cell) -> int:
    return cell if isinstance(cell, int) else 0
