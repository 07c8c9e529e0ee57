"""View `paths`: the sequences of events of jobs, and how often each occurred.

A path is the letters or words of a source's events in their order (TORQUE: Q S E, Q S S E, Q S D E, Q S R S E ...); a
plus marks an event that repeats at once. A job with several runs counts once, with the path up to its last run. (Li,
Yang, Wu 2016, figures 2 and 6.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, groupby
from typing import Any, Final

from formats.job import Events
from publisher.report.partitions import RowPartitions
from publisher.report.report import Cell, Column, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, running_note
from publisher.report.view_kind import PATHS

MEANINGS: Final = {
    "Q": "queued", "S": "started", "E": "ended", "D": "deleted", "A": "aborted by the server", "R": "run again",
    "C": "checkpointed", "T": "restarted from a checkpoint",
}  # fmt: skip
"""The letters of TORQUE and PBS."""
_Job = tuple[str, str]
"""Cluster and id."""
_Ran = tuple[_Job, int, Events]
"""A run of a job, its end, and its events."""


@lru_cache(maxsize=10_000)
def path_of(kinds: str) -> str:
    """The path of a job with events of these kinds: `Q S+ E`."""
    return " ".join(kind + ("+" if len(list(some)) > 1 else "") for kind, some in groupby(kinds.split(" ")))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: each path and its number of jobs; with a filter for jobs, all events of the matching jobs."""
    request.require_interval()
    requested = frozenset({"job", "events", "cluster"})
    selection = context.select(request, requested, "overlapping", running=True)
    silent = 0
    with RowPartitions(_Ran) as runs:
        for frame in selection.frames():
            clusters = selection.coding("cluster").values
            facts = (frame.objects["job"], frame.objects["events"], frame.codes["cluster"].tolist())
            for ids, events, cluster, stop in zip(*facts, frame.numbers["stop"].tolist(), strict=True):
                if events:
                    job = ((clusters[cluster] or ("",))[0], ids.local_id or ids.global_id or ids.name or "")
                    runs.add(job, (job, stop, events))
                else:
                    silent += 1
        jobs = chain.from_iterable(map(_last_runs, runs.parts()))
        columns, rows, kinds = _events(jobs) if "job" in request.filters else _counts(jobs)
    return Report(
        view=PATHS.name,
        title="Events of jobs" if "job" in request.filters else "Paths of jobs",
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=columns,
        rows=tuple(rows),
        sorted_by="at" if "job" in request.filters else "jobs",
        plots=_plots(rows) if rows and "job" not in request.filters else (),
        notes=(
            *_letters(kinds),
            *([f"Runs left out, because their source has no events: {silent:,}."] if silent else []),
            *running_note(request),
        ),
        nothing=selection.nothing() or (None if rows else "no source has events of these jobs"),
        facts={"by": [] if "job" in request.filters else ["path"]},
    )


def _last_runs(runs: Iterable[_Ran]) -> Iterator[tuple[_Job, Events]]:
    """Each job with the events of its last run."""
    last: dict[_Job, tuple[int, Events]] = {}
    for job, stop, events in runs:
        known = last.get(job)
        if known is None or (stop, len(events.times)) >= (known[0], len(known[1].times)):
            last[job] = (stop, events)
    return ((job, events) for job, (_, events) in last.items())


def _letters(kinds: Iterable[str]) -> tuple[str, ...]:
    """The meanings of letters of paths, including the plus."""
    meanings = [f"{letter} {meaning}" for letter, meaning in MEANINGS.items() if letter in kinds]
    again = "; + repeated at once" if "+" in kinds else ""
    return (f"Events: {', '.join(meanings)}{again}.",) if meanings else ()


_Table = tuple[tuple[Column, ...], list[tuple[Cell, ...]], set[str]]
"""Columns, rows, and the letters that occur in them."""


def _counts(jobs: Iterable[tuple[_Job, Events]]) -> _Table:
    found: dict[str, tuple[int, str]] = {}
    for (_, job), events in jobs:
        path = path_of(events.kinds)
        count, example = found.get(path, (0, job))
        found[path] = (count + 1, min(example, job))
    total = sum(count for count, _ in found.values())
    order = sorted(found.items(), key=lambda item: (-item[1][0], item[0]))
    rows: list[tuple[Cell, ...]] = [(path, count, count / total, example) for path, (count, example) in order]
    return PATHS.columns, rows, {letter for path in found for word in path.split() for letter in _letters_of(word)}


def _letters_of(word: str) -> tuple[str, ...]:
    """The event of a step of a path, and a plus if it repeats."""
    return (word.removesuffix("+"), "+") if word.endswith("+") else (word,)


def _events(jobs: Iterable[tuple[_Job, Events]]) -> _Table:
    columns = (
        Column("cluster", "text"), Column("job", "text"), Column("at", "instant"), Column("event", "text"),
        Column("meaning", "text"),
    )  # fmt: skip
    found = sorted(jobs)
    rows: list[tuple[Cell, ...]] = [
        (cluster, job, at, kind, MEANINGS.get(kind, ""))
        for (cluster, job), events in found
        for at, kind in events.pairs()
    ]
    kinds = {letter for _, events in found for word in path_of(events.kinds).split() for letter in _letters_of(word)}
    return columns, rows, kinds


def _plots(rows: list[tuple[Cell, ...]]) -> tuple[Plot, ...]:
    shown: list[tuple[Any, ...]] = rows
    series = (Series("jobs", tuple(float(row[1]) for row in shown)),)
    names = tuple(str(row[0]) for row in shown)
    return (Plot(title="Jobs by path", style="bar", x=names, unit="jobs", names_add_up=True, series=series),)
