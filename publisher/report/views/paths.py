"""View `paths`: what happened to jobs, event by event, and how often each path was taken.

A path is the letters or words of a source's events in their order (TORQUE: Q S E, Q S S E, Q S D E, Q S R S E ...), an
event that repeats at once written with a plus. Of a job with several runs the path up to its last counts, once.
(Li, Yang, Wu 2016, figures 2 and 6.) Memory grows with the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

from formats.job import Event
from publisher.report.report import Cell, Column, Plot, Report, Series
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, running_note

MEANINGS: Final = {
    "Q": "queued", "S": "started", "E": "ended", "D": "deleted", "A": "aborted by the server", "R": "run again",
    "C": "checkpointed", "T": "restarted from a checkpoint",
}  # fmt: skip
"""The letters of TORQUE and PBS."""
_Job = tuple[str, str]


def path_of(events: Iterable[Event]) -> str:
    """The path of a job: `Q S+ E`."""
    return _written(tuple([one.kind for one in events]))


@lru_cache(maxsize=10_000)
def _written(kinds: tuple[str, ...]) -> str:
    return " ".join(kind + ("+" if len(list(some)) > 1 else "") for kind, some in groupby(kinds))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: each path and how many jobs took it; with a filter for jobs, every event of each that matches."""
    request.require_interval()
    request.require_by("paths", (), 1)
    wanted = frozenset({"job", "events", "cluster"})
    selection = context.select(request, wanted, "overlapping", running=True)
    jobs: dict[_Job, tuple[int, tuple[Event, ...]]] = {}
    silent = 0
    for frame in selection.frames():
        clusters = selection.coding("cluster").values
        facts = (frame.objects["job"], frame.objects["events"], frame.codes["cluster"].tolist())
        for (local_id, name, global_id), events, cluster, stop in zip(
            *facts, frame.numbers["stop"].tolist(), strict=True
        ):
            if not events:
                silent += 1
                continue
            key = ((clusters[cluster] or ("",))[0], str(local_id or global_id or name or ""))
            known = jobs.get(key)
            if known is None or (stop, len(events)) >= (known[0], len(known[1])):
                jobs[key] = (stop, events)
    columns, rows = _events(jobs) if "job" in request.filters else _counts(jobs)
    return Report(
        view="paths",
        title="Events of jobs" if "job" in request.filters else "Paths of jobs",
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=columns,
        rows=tuple(rows),
        plots=_plots(rows) if rows and "job" not in request.filters else (),
        notes=(
            *_letters(jobs),
            *([f"Runs left out, because their source has no events: {silent}."] if silent else []),
            *running_note(request),
        ),
        nothing=selection.nothing() or (None if jobs else "no source has events of these runs"),
    )


def _letters(jobs: dict[_Job, tuple[int, tuple[Event, ...]]]) -> tuple[str, ...]:
    """What the letters of the paths mean."""
    met = {event.kind for _, events in jobs.values() for event in events}
    meanings = [f"{letter} {meaning}" for letter, meaning in MEANINGS.items() if letter in met]
    again = "; + again at once" if any("+" in path_of(events) for _, events in jobs.values()) else ""
    return (f"Events: {', '.join(meanings)}{again}.",) if meanings else ()


def _counts(jobs: dict[_Job, tuple[int, tuple[Event, ...]]]) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    found: dict[str, list[str]] = {}
    for (_, job), (_, events) in jobs.items():
        found.setdefault(path_of(events), []).append(job)
    order = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
    columns = (
        Column("path", "text"), Column("jobs", "count"), Column("share", "ratio"), Column("example", "text"),
    )  # fmt: skip
    return columns, [(path, len(some), len(some) / len(jobs), min(some)) for path, some in order]


def _events(jobs: dict[_Job, tuple[int, tuple[Event, ...]]]) -> tuple[tuple[Column, ...], list[tuple[Cell, ...]]]:
    columns = (
        Column("cluster", "text"), Column("job", "text"), Column("at", "instant"), Column("event", "text"),
        Column("meaning", "text"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = [
        (cluster, job, event.at, event.kind, MEANINGS.get(event.kind, ""))
        for (cluster, job), (_, events) in sorted(jobs.items())
        for event in events
    ]
    return columns, rows


def _plots(rows: list[tuple[Cell, ...]]) -> tuple[Plot, ...]:
    shown: list[tuple[Any, ...]] = rows
    series = (Series("jobs", tuple(float(row[1]) for row in shown)),)
    names = tuple(str(row[0]) for row in shown)
    return (Plot(title="Jobs by path", style="bar", x=names, unit="jobs", names_add_up=True, series=series),)
