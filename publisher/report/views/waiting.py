"""View `waiting`: how long jobs waited from submission to their first start.

Jobs that started in the interval count; jobs that still wait do not. If several runs of a job (the same id, submitted
at the same instant) are in the interval, the first counts. A percentile is the shortest waiting time that so many in a
hundred jobs did not exceed. (Li, Yang, Wu 2016, section 2.3.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from publisher.report.calendar import unit_for
from publisher.report.grouping import Grouping, grouped_report, key_axis
from publisher.report.matching import OF_JOB, Matching, columns_of, computed
from publisher.report.report import Cell, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import ELIGIBLE_WAITED, JOB_NUMBER, SIZE_NUMBER, first_runs, size_text
from publisher.report.runs import ReportContext, running_note
from publisher.report.tables import EntryReading
from publisher.report.view_kind import SIZE, WAITING
from publisher.report.view_option import PERIODS

_COLUMNS: Final = ("submit", "eligible", "run", *OF_JOB)
_PERCENTILES: Final = (50, 90, 99)


_Label = tuple[str | int, ...]
"""The values of the keys of a group; that of `SIZE` is the number of the class."""


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

    by_group: dict[_Label, GroupWaits]
    all: GroupWaits | None
    unknown_submission: int = 0
    """Runs whose submission is unknown or after their start."""
    left_out_in: frozenset[str] = frozenset()
    """The periods that have such runs, if the only key is a period."""


def waits_of(
    rows: Callable[[str], list[Any]], runs: str, keys: Sequence[str], *, of_all: bool = True
) -> WaitingTimes:  # fmt: skip
    """The waiting times by the columns `keys` of the relation `runs`, whose runs were submitted before their start.

    Its other columns: `job` (a number for the ids of each job), `submit`, `start`, `end`, `run`, and `eligible`.
    `of_all`: also those of all jobs, which takes as much memory again.
    """
    together = "".join(f"{key}, " for key in keys)
    statement = (
        f'WITH jobs AS (SELECT {together}CAST("start" AS HUGEINT) - submit AS waited, '  # noqa: S608 - names of ours
        f"{ELIGIBLE_WAITED} AS eligible_waited "
        f"{first_runs(runs, together)}), "
        f"counts AS MATERIALIZED (SELECT {together}waited, count(*) AS jobs, count(eligible_waited) AS eligible_jobs, "
        f"sum(eligible_waited) AS eligible_s FROM jobs GROUP BY {together}waited) {_waits(keys, 'counts')}"
    )
    if keys and of_all:
        of_waits = (
            "(SELECT waited, sum(jobs) AS jobs, sum(eligible_jobs) AS eligible_jobs, sum(eligible_s) AS eligible_s "
            "FROM counts GROUP BY waited)"
        )
        statement += f" UNION ALL {_waits((), of_waits, 'NULL, ' * len(keys))}"
    made = WaitingTimes({}, None)
    for row in rows(statement):
        label = row[: len(keys)]
        is_all, jobs, total_s, median_s, p90_s, p99_s, longest_s, eligible_jobs, eligible_s = row[len(keys) :]
        if not jobs:
            continue
        waits = GroupWaits(jobs, total_s, median_s, p90_s, p99_s, longest_s, eligible_jobs, eligible_s or 0)
        if is_all:
            made.all = waits
        if not is_all or not keys:
            made.by_group[label] = waits
    return made


def _waits(keys: Sequence[str], counts: str, labels: str | None = None) -> str:
    """The SQL of whether a row is of all jobs and of the amounts of `GroupWaits`, from the numbers of jobs by keys and
    waiting time: DuckDB's quantiles hold each waiting time in memory, beyond its limit. `labels`: instead of keys."""
    together = "".join(f"{key}, " for key in keys)
    partition = f"PARTITION BY {', '.join(keys)}" if keys else ""
    percentiles = ", ".join(f"min(waited) FILTER (100 * up_to >= {percent} * jobs_of_key)" for percent in _PERCENTILES)
    return (
        f"SELECT {together if labels is None else labels}{not keys}, sum(jobs), sum(waited * jobs), {percentiles}, "  # noqa: S608 - as above
        "max(waited), sum(eligible_jobs), sum(eligible_s) FROM (SELECT *, "
        f"sum(jobs) OVER ({partition} ORDER BY waited) AS up_to, sum(jobs) OVER ({partition}) AS jobs_of_key "
        f"FROM {counts})" + (f" GROUP BY {', '.join(keys)}" if keys else "")
    )


def _made(matching: Matching, request: ReportRequest) -> WaitingTimes:
    grouping = Grouping.of(request, own={SIZE: SIZE_NUMBER}, at='"start"')
    runs = grouping.runs("matching", f"{JOB_NUMBER} AS job", where='submit <= "start"')
    made = waits_of(partial(matching.rows, explained=True), runs, grouping.names)
    made.unknown_submission = matching.count('(submit <= "start") IS NOT true')
    if made.unknown_submission and len(request.by) == 1 and request.by[0] in PERIODS:
        without = grouping.runs("matching", where='(submit <= "start") IS NOT true')
        left_out = matching.rows(f"SELECT DISTINCT {grouping.names[0]} FROM {without}")  # noqa: S608 - names of ours
        made.left_out_in = frozenset(period for (period,) in left_out)
    return made


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    request.require_interval()
    columns = columns_of(request, *_COLUMNS, *(("slots",) if SIZE in request.by else ()))
    reading = EntryReading(columns, running_until=context.now if request.running else None)
    waits, met = computed(context, request, reading, "started", partial(_made, request=request))
    in_order = sorted(waits.by_group.items(), key=_label)
    groups = [(tuple(map(_word, label)), group.amounts()) for label, group in in_order]
    notes = [f"Jobs left out, because their submission is unknown or after their start: {waits.unknown_submission:,}."]
    return grouped_report(
        WAITING, context, request, groups, None if waits.all is None else waits.all.amounts(),
        footer=(),
        sorted_by="jobs",
        plots=_plots(request, waits) if request.by and groups else (),
        notes=(*(notes if waits.unknown_submission else ()), *running_note(request)),
        sql=met.sql,
        nothing=met.nothing() or (None if groups else "no source reports when these jobs were submitted"),
    )  # fmt: skip


def _label(group: tuple[_Label, GroupWaits]) -> _Label:
    return group[0]


def _word(word: str | int) -> str:
    return word if isinstance(word, str) else size_text(word)


def _plots(request: ReportRequest, waits: WaitingTimes) -> tuple[Plot, ...]:
    """The median and the 90th percentile: over time if the key is a period, else of each value."""
    if len(request.by) > 1:
        return ()
    (key,) = request.by
    by_name = {_word(label[0]): group for label, group in sorted(waits.by_group.items(), key=_label)}
    unit = unit_for(max(seconds for group in by_name.values() for seconds in (group.median_s, group.p90_s)))
    names, axis = key_axis(request, key, by_name)
    groups = [by_name.get(name) for name in names]
    series = (
        Series(label, tuple(None if group is None else getattr(group, field) / unit.seconds for group in groups))
        for label, field in (("median", "median_s"), ("p90", "p90_s"))
    )
    plot = WAITING.pictures["waits"].plot("line", *series, keys=(key,), units={"unit": unit.name}, **axis)
    if key in PERIODS:
        without = (place for place, name in enumerate(names) if name not in by_name.keys() | waits.left_out_in)
        return (msgspec.structs.replace(plot, without_jobs=frozenset(without)),)
    jobs = tuple(float(group.jobs) for group in by_name.values())
    return (msgspec.structs.replace(plot, style="bar", weights=jobs, ordered=key == SIZE),)
