"""Jobs: the list behind a row of a report, and one run with its deliveries, messages, events, and facts.

What a person sees here is what the view `job` shows of a run; deliveries and messages are for those who may also see
the state of publishing. A user's list has the user's own finished jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import BoundedSemaphore
from typing import Any, Final

from starlette.responses import HTMLResponse, Response

from formats.job import Job
from publisher.api import Publisher
from publisher.collect.enrich import Enrichers
from publisher.page import query as page_query
from publisher.page.addresses import JOBS, with_query
from publisher.page.auth import STATUS, Person
from publisher.page.html import markup
from publisher.page.overview import RECORD_LISTS
from publisher.preview.render import message_for
from publisher.report.job_runs import found_jobs
from publisher.report.plot.style import interval_text
from publisher.report.runs import ReportContext
from publisher.status.jobs import KnownRun, fact_rows
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun
from publisher.text import duration_text

_AT_A_TIME: Final = 2
"""Lists that are made at a time; the rest wait."""
MOST_JOBS: Final = 200
"""Jobs that a page lists."""
_MOST_PARTS: Final = 1_000
"""Events and lines of facts."""


_ADVICE: Final = {
    state: one.about for one in RECORD_LISTS.values() for state in one.states if state is not State.ACCEPTED
}
"""What people do about a delivery, by its state."""
_PROJECT: Final = "project / account"
_COLUMNS: Final = ("name", "user", _PROJECT, "VO", "queue", "status", "ended", "run time", "cores")


class JobPages:
    """The pages of jobs."""

    def __init__(self, publisher: Publisher, context: Callable[[], ReportContext]) -> None:
        """`context`: of now."""
        self._publisher = publisher
        self._context = context
        self._enrichers = Enrichers(publisher.config)
        self._busy = BoundedSemaphore(_AT_A_TIME)

    def page(self, query: Mapping[str, str], person: Person, around: Mapping[str, Any]) -> Response:
        """The jobs that match a query; of one job, everything. Raises `UsageError`."""
        now = self._publisher.tools.clock()
        ends = self._context().ends()
        request = page_query.jobs_request(query, now, ends, person)
        selection = page_query.selected_row(query)
        with self._busy:
            matches = found_jobs(self._context(), request, MOST_JOBS, selection)
        with_places = person.may(STATUS)
        context: dict[str, Any] = {
            "fields": page_query.jobs_fields(query, now, person), "action": JOBS,
            "periods": page_query.periods(JOBS, query, now, ends),
            "interval": interval_text(request.start, request.stop),
            "with_places": with_places, "row": None, **around,
        }  # fmt: skip
        if matches.total == 1 and query.get("job"):
            job = matches.jobs[0]
            context |= {"title": f"Job {_label(job.run.job)}", "one": self._one(job, with_places=with_places)}
            return HTMLResponse(markup("job.html", context))
        context |= {
            "title": "Jobs", "total": matches.total, "columns": _COLUMNS,
            "rows": [self._row(job) for job in matches.jobs], "by_id": bool(query.get("job")),
        }  # fmt: skip
        if selection is not None:
            others = {name: value for name, value in query.items() if name != page_query.ROW}
            context["row"] = {"words": selection.says(), "rule": selection.rule, "href": with_query(JOBS, others)}
        return HTMLResponse(markup("jobs.html", context))

    def _one(self, known: KnownRun, *, with_places: bool) -> dict[str, Any]:
        run, events = known.run, known.run.job.events
        places = known.whereabouts if with_places else []
        return {
            "run": run, "headline": _headline(self._enriched(run)), "places": places,
            "not_selected": known.not_selected if with_places else {}, "advice": _ADVICE,
            "messages": {place.target: self._message(place.target, run) for place in places},
            "events": [] if events is None else [*events.pairs()][:_MOST_PARTS],
            "facts": [(name, line) for name, parts in fact_rows(run.job) for line in parts][:_MOST_PARTS],
        }  # fmt: skip

    def _row(self, known: KnownRun) -> dict[str, Any]:
        job = self._enriched(known.run)
        return {"run": known.run, "label": _label(job), "cells": _cells(job), "places": known.whereabouts}

    def _enriched(self, run: StoredRun) -> Job:
        """A run with what the configuration adds, as reports count it."""
        return self._enrichers.apply(run.source, run.job)

    def _message(self, target: str, run: StoredRun) -> str:
        config, store = self._publisher.config, self._publisher.store
        if target not in config.targets:
            return ""
        return message_for(store, config, target, run, self._publisher.tools.clock()).decode("utf-8", "replace")


def _label(job: Job) -> str:
    return job.local_id or job.global_id or "without an id"


def _cells(job: Job) -> tuple[str, ...]:
    """The cells of a job by `_COLUMNS`."""
    texts = (
        job.name, job.local_user or job.user_dn, job.project or job.account, job.vo, job.queue,
        f"{job.status} (slave)" if job.slave else job.status,
    )  # fmt: skip
    wall = "" if job.wall_ms is None else duration_text(job.wall_ms / 1000)
    cores = "" if job.cores is None else f"{job.cores:,}"
    return (*(text or "" for text in texts), page_query.minute_text(job.end), wall, cores)


def _headline(job: Job) -> list[tuple[str, str]]:
    """What people look for first."""
    begins = [("submitted", page_query.minute_text(job.submit)), ("started", page_query.minute_text(job.start))]
    columns = [("project" if job.project else "account") if name == _PROJECT else name for name in _COLUMNS]
    cells = list(zip(columns, _cells(job), strict=True))
    return [(name, text) for name, text in (*cells[:6], *begins, *cells[6:]) if text]
