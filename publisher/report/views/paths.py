"""View `paths`: the sequences of events of jobs, and how often each occurred.

A path is the letters or words of a source's events in their order (TORQUE: Q S E, Q S S E, Q S D E, Q S R S E ...); a
plus marks an event that repeats at once. A job with several runs counts once, with the path up to its last run. (Li,
Yang, Wu 2016, figures 2 and 6.)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from publisher.report.archive import events_of
from publisher.report.matching import OF_JOB, Matching, columns_of, computed
from publisher.report.report import Cell, Column, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import EVENT_KINDS, last_runs, path_of
from publisher.report.runs import ReportContext, running_note
from publisher.report.tables import EntryReading
from publisher.report.view_kind import PATHS

MEANINGS: Final = {
    "Q": "queued", "S": "started", "E": "ended", "D": "deleted", "A": "aborted by the server", "R": "run again",
    "C": "checkpointed", "T": "restarted from a checkpoint",
}  # fmt: skip
"""The letters of TORQUE and PBS."""


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: each path and its number of jobs; with a filter for jobs, all events of the matching jobs."""
    request.require_interval()
    of_jobs = "job" in request.filters
    columns = columns_of(request, "events", "run", *OF_JOB)
    reading = EntryReading(columns, running_until=context.now if request.running else None)
    part = partial(_jobs, of_jobs=of_jobs)
    (jobs, without_events), met = computed(context, request, reading, "overlapping", part)
    shown, rows, kinds = _events(jobs) if of_jobs else _counts(jobs)
    return context.report(
        PATHS,
        request,
        **({"title": "Events of jobs"} if of_jobs else {}),
        columns=shown,
        rows=tuple(rows),
        sorted_by="at" if of_jobs else "jobs",
        plots=_plots(rows) if rows and not of_jobs else (),
        notes=(
            *_letters(kinds),
            *([f"Jobs left out, because their source has no events: {without_events:,}."] if without_events else []),
            *running_note(request),
        ),
        sql=met.sql,
        nothing=met.nothing() or (None if rows else "no source has events of these jobs"),
        facts={"by": [] if of_jobs else ["path"]},
    )


def _jobs(matching: Matching, *, of_jobs: bool) -> tuple[list[tuple[Any, ...]], int]:
    """Jobs by the kinds of their events with the first id, or each job with its events; and the runs without events."""
    last = last_runs("matching", "events")
    counts = f"SELECT {EVENT_KINDS} AS kinds, count(*), min(job) FROM ({last}) GROUP BY kinds"  # noqa: S608 - names of ours
    without_events = matching.count("events IS NULL")
    return matching.rows(last if of_jobs else counts, explained=True), without_events


def _letters(kinds: Iterable[str]) -> tuple[str, ...]:
    """The meanings of letters of paths, including the plus."""
    meanings = [f"{letter} {meaning}" for letter, meaning in MEANINGS.items() if letter in kinds]
    again = "; + repeated at once" if "+" in kinds else ""
    return (f"Events: {', '.join(meanings)}{again}.",) if meanings else ()


_Table = tuple[tuple[Column, ...], list[tuple[Cell, ...]], set[str]]
"""Columns, rows, and the letters that occur in them."""


def _counts(jobs_by_kinds: Iterable[tuple[Any, ...]]) -> _Table:
    counts: dict[str, tuple[int, str]] = {}
    for kinds, jobs, example in jobs_by_kinds:
        path = path_of(kinds)
        count, first = counts.get(path, (0, example))
        counts[path] = (count + jobs, min(first, example))
    total = sum(count for count, _ in counts.values())
    order = sorted(counts.items(), key=lambda item: (-item[1][0], item[0]))
    rows: list[tuple[Cell, ...]] = [(path, count, count / total, example) for path, (count, example) in order]
    return PATHS.columns, rows, {letter for path in counts for word in path.split() for letter in _letters_of(word)}


def _letters_of(word: str) -> tuple[str, ...]:
    """The event of a step of a path, and a plus if it repeats."""
    return (word.removesuffix("+"), "+") if word.endswith("+") else (word,)


def _events(jobs: Iterable[tuple[Any, ...]]) -> _Table:
    rows: list[tuple[Cell, ...]] = []
    kinds: set[str] = set()
    for cluster, job, text in sorted(jobs):
        events = events_of(text)
        assert events is not None  # runs without events are left out
        rows += [(cluster, job, at, kind, MEANINGS.get(kind, "")) for at, kind in events.pairs()]
        kinds.update(letter for word in path_of(events.kinds).split() for letter in _letters_of(word))
    return PATHS.more_columns, rows, kinds


def _plots(rows: list[tuple[Cell, ...]]) -> tuple[Plot, ...]:
    shown: list[tuple[Any, ...]] = rows
    series = Series("jobs", tuple(float(row[1]) for row in shown))
    names = tuple(str(row[0]) for row in shown)
    return (PATHS.pictures["paths"].plot("bar", series, x=names, names_add_up=True),)
