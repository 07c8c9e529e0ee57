"""Jobs: the list behind a row of a report, and one run with its deliveries, messages, events, and facts.

What a person sees here is what the view `job` shows of a run; deliveries and messages are for those who may also see
the state of publishing. A user's list has the user's own finished jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import BoundedSemaphore
from typing import Any, Final

import msgspec
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
from publisher.reason import sentence
from publisher.report.job_runs import found_jobs
from publisher.report.plot.style import interval_text
from publisher.report.runs import ReportContext
from publisher.status.jobs import KnownRun, Whereabouts, fact_rows
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun
from publisher.text import counted, duration_text, safe

_AT_A_TIME: Final = 2
"""Lists that are made at a time; the rest wait."""
MOST_JOBS: Final = 200
"""Jobs that a page lists."""
_MOST_BYTES: Final = 20_000
"""Of a message."""
_MOST_PARTS: Final = 1_000
"""Events and lines of facts."""


class JobRow(msgspec.Struct, frozen=True):
    """A run in the list."""

    href: str
    label: str
    cells: tuple[str, ...]
    places: tuple[tuple[str, str], ...]
    """Its targets, and the state there."""


class DeliveryRow(msgspec.Struct, frozen=True):
    """The delivery of a run to a target: what the ledger has, and what people do about it."""

    target: str
    state: str
    since: int | None
    confirmed: int | None
    reason: str
    advice: str
    receipt: str
    batch: str
    answer: str
    message: str
    """The message of this run alone as it would be sent now."""


_PROJECT: Final = "project / account"
_COLUMNS: Final = ("name", "user", _PROJECT, "VO", "queue", "status", "ended", "run time", "cores")


class JobPages:
    """The pages of jobs."""

    def __init__(
        self,
        publisher: Publisher,
        context: Callable[[], ReportContext],
    ) -> None:
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
            return _html("job.html", context)
        context |= {
            "title": "Jobs", "total": matches.total, "columns": _COLUMNS,
            "rows": [_row(job, self._enriched(job.run)) for job in matches.jobs], "by_id": bool(query.get("job")),
        }  # fmt: skip
        if selection is not None:
            others = {name: value for name, value in query.items() if name != page_query.ROW}
            context["row"] = {"words": safe(selection.says()), "rule": selection.rule, "href": with_query(JOBS, others)}
        return _html("jobs.html", context)

    def _one(self, known: KnownRun, *, with_places: bool) -> dict[str, Any]:
        run = known.run
        events = run.job.events
        lines = [(safe(name), safe(line)) for name, parts in fact_rows(run.job) for line in parts]
        return {
            "record_id": safe(run.record_id), "source": safe(run.source), "stored_at": run.stored_at,
            "headline": _headline(self._enriched(run)),
            "places": [self._delivery(run, place) for place in known.whereabouts] if with_places else [],
            "not_selected": [(safe(name), safe(why)) for name, why in known.not_selected.items() if with_places],
            "events": [(at, safe(kind)) for at, kind in events.pairs()][:_MOST_PARTS] if events is not None else [],
            "facts": lines[:_MOST_PARTS],
        }  # fmt: skip

    def _delivery(self, run: StoredRun, place: Whereabouts) -> DeliveryRow:
        batch = place.batch
        advice = next(
            (record_list.about for record_list in RECORD_LISTS.values() if place.state in record_list.states), ""
        )
        return DeliveryRow(
            target=safe(place.target),
            state=place.state.word.replace("_", " "),
            since=place.changed_at,
            confirmed=place.confirmed_at,
            reason=safe(sentence(place.reason)),
            advice="" if place.state is State.ACCEPTED else advice,
            receipt=safe((batch.receipt.get(run.record_id) or "") if batch else ""),
            batch=f"{batch.uid}, {counted(batch.records, 'record')}, {counted(batch.bytes, 'byte')}, {batch.format}"
            if batch
            else "",
            answer=_bounded((batch.answer or "") if batch else ""),
            message=self._message(place.target, run),
        )

    def _enriched(self, run: StoredRun) -> Job:
        """A run with what the configuration adds, as reports count it."""
        return self._enrichers.apply(run.source, run.job)

    def _message(self, target: str, run: StoredRun) -> str:
        config, store = self._publisher.config, self._publisher.store
        if target not in config.targets:
            return ""
        message = message_for(store, config, target, run, self._publisher.tools.clock())
        return _bounded(message.decode("utf-8", "replace"))


def _bounded(text: str) -> str:
    """Text of many lines from outside, safe to show."""
    shown = "\n".join(safe(line) for line in text[:_MOST_BYTES].splitlines())
    return shown if len(text) <= _MOST_BYTES else f"{shown}\n… ({len(text):,} characters)"


def _label(job: Job) -> str:
    return safe(job.local_id or job.global_id or "without an id")


def _cells(job: Job) -> tuple[str, ...]:
    """The cells of a job by `_COLUMNS`."""
    texts = (
        job.name, job.local_user or job.user_dn, job.project or job.account, job.vo, job.queue,
        f"{job.status} (slave)" if job.slave else job.status,
    )  # fmt: skip
    wall = "" if job.wall_ms is None else duration_text(job.wall_ms / 1000)
    cores = "" if job.cores is None else f"{job.cores:,}"
    return (*(safe(text or "") for text in texts), page_query.minute_text(job.end), wall, cores)


def _headline(job: Job) -> list[tuple[str, str]]:
    """What people look for first."""
    begins = [("submitted", page_query.minute_text(job.submit)), ("started", page_query.minute_text(job.start))]
    columns = [("project" if job.project else "account") if name == _PROJECT else name for name in _COLUMNS]
    cells = list(zip(columns, _cells(job), strict=True))
    return [(name, text) for name, text in (*cells[:6], *begins, *cells[6:]) if text]


def _row(known: KnownRun, job: Job) -> JobRow:
    return JobRow(
        with_query(JOBS, {"job": known.run.record_id}),
        _label(job),
        _cells(job),
        tuple((safe(place.target), place.state.word.replace("_", " ")) for place in known.whereabouts),
    )


def _html(template: str, context: Mapping[str, Any]) -> Response:
    return HTMLResponse(markup(template, context).encode("utf-8", "backslashreplace"))
