"""The runs behind a report: those that match a request, the newest first; and those of a job."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import msgspec

from publisher.collect.enrich import Enrichers
from publisher.job_ids import JobPattern, ids_of
from publisher.messages.entries import Filters, facts_of
from publisher.report.column_files import RUN_ID
from publisher.report.matching import Matching, columns_of
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.row_jobs import RowSelection, select_row
from publisher.report.runs import ReportContext
from publisher.report.tables import EACH_JOB_MB, EntryReading
from publisher.status.jobs import FoundJobs, found, known
from publisher.store import runs
from publisher.store.stored_run import StoredRun


def found_jobs(
    context: ReportContext, request: ReportRequest, most: int, selection: RowSelection | None = None
) -> FoundJobs:  # fmt: skip
    """The runs of the job with the id that `request` names, at any time; else those that match it, the newest first.

    A pattern of `(unknown)` asks for runs without a value: it is the name of their group. At most `most` are given.
    `selection`: only those of a row of a report.
    """
    name = request.filters.get("job")
    with context.store.read() as connection:
        if selection is None and name is not None and not JobPattern(name).has_wildcards:
            of_id = filter(selects(context, request), found(connection, name, context.config.local_id_prefixes))
            if shown := list(islice(of_id, most)):
                total = len(shown) + sum(1 for _ in of_id)
                return FoundJobs(total, [known(connection, run) for run in shown])
        total, run_ids = _matching(context, request, most, selection)
        return FoundJobs(total, [known(connection, run) for run in runs.in_order(connection, run_ids)])


def selects(context: ReportContext, request: ReportRequest) -> Callable[[StoredRun], bool]:
    """Whether a run matches a request, its interval aside."""
    enrichers = Enrichers(context.config)
    filters = Filters({key: pattern for key, pattern in request.filters.items() if key != "job"})

    def selects(run: StoredRun) -> bool:
        if not (run.job.finished or request.running):
            return False
        job = enrichers.apply(run.source, run.job)
        return filters.match(facts_of(job), ids_of(job))

    return selects


def _matching(
    context: ReportContext, request: ReportRequest, most: int, selection: RowSelection | None
) -> tuple[int, list[int]]:
    """How many runs match, and the ids of those that ended last, the last first: at most `most`."""
    request.require_interval()
    lacking = [key for key, pattern in request.filters.items() if pattern == UNKNOWN_NAME and key != "job"]
    named = {key: pattern for key, pattern in request.filters.items() if key not in lacking}
    chosen = RowSelection() if selection is None else selection
    asked = msgspec.structs.replace(request, filters=named, by=(*lacking, *chosen.keys))
    until = context.now if request.running and request.interval in {"overlapping", "started"} else None
    columns = {*columns_of(asked), *chosen.columns, RUN_ID}
    reading = EntryReading(columns, request.start, running_until=until, buffers_mb=EACH_JOB_MB)
    with context.tables(asked, reading) as connection:
        matching = Matching(connection, asked, "ended", nameless=lacking)
        relation = "matching" if selection is None else select_row(matching, context, asked, chosen)
        ((total,),) = matching.rows(f"SELECT count(*) FROM {relation}")  # noqa: S608 - names of ours
        newest = f'SELECT {RUN_ID} FROM {relation} ORDER BY "end" DESC NULLS LAST, {RUN_ID} DESC LIMIT {most}'  # noqa: S608 - as above
        return total, [run_id for (run_id,) in matching.rows(newest)]
