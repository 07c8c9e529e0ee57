"""View `job`: all facts of all runs of a job, as in `qacct -j`, and those of other batch systems."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from publisher.collect.enrich import Enrichers
from publisher.errors import UsageError
from publisher.job_ids import ids_of
from publisher.messages.entries import Filters, facts_of
from publisher.report.frame import ROW
from publisher.report.plot.style import interval_text
from publisher.report.report import TAKEN, Cell, Column, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.status import jobs
from publisher.store import runs
from publisher.text import iso

_MOST: Final = 1_000
_INSTANTS: Final = frozenset(
    {"submit", "eligible", "lrms_submit", "start", "end", "execution_start", "execution_end"}
)  # fmt: skip
_COLUMNS: Final = (Column("record_id", "text"), Column("field", "text"), Column("value", "text"))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: a row for each fact of each run of the jobs with this id, or with this name in the interval."""
    request.require_by("job", (), 1)
    name = request.filters.get("job")
    if request.archive is not None:
        raise UsageError("an archive does not have all facts of a job", hint="Omit --archive to read the store")
    if name is None:
        raise UsageError("--job is missing", hint="Give the id of a job, or a pattern of its name")
    if not request.filters.keys() <= TAKEN["job"]:
        raise UsageError("a job is selected with --job, --task, and --user only")
    enrichers = Enrichers(context.config)
    filters = Filters({key: pattern for key, pattern in request.filters.items() if key != "job"})

    def is_selected(run: runs.StoredRun) -> bool:
        if not (run.job.finished or request.running):
            return False
        job = enrichers.apply(run.source, run.job)
        return filters.match(facts_of(job), ids_of(job))

    found = list(_runs(context, request, name, is_selected))
    rows: list[tuple[Cell, ...]] = []
    for run in found:
        job = enrichers.apply(run.source, run.job)
        rows.append((run.record_id, "source", run.source))
        rows += [(run.record_id, field, value) for field, value in _facts(job)]
    more = f"Only the first {_MOST:,} runs are shown." if len(found) == _MOST else ""
    return Report(
        view="job",
        title=f"Job {name}",
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=_COLUMNS,
        rows=tuple(rows),
        notes=(more,) if more else (),
        nothing=None if rows else _nothing(request),
        rows_named="facts",
        facts={"runs": len(found)},
    )


def _nothing(request: ReportRequest) -> str:
    name = request.filters["job"]
    others = [f"{key} {pattern!r}" for key, pattern in sorted(request.filters.items()) if key != "job"]
    of = f" of {' and '.join(others)}" if others else ""
    also = f"no run in the interval, {interval_text(request.start, request.stop)}, has this id or name"
    hint = f"choose an interval that begins earlier, or a pattern such as '{name}*'"
    return f"no run{of} has the id {name!r}, and {also}: {hint}"


def _runs(
    context: ReportContext, request: ReportRequest, name: str, is_selected: Callable[[runs.StoredRun], bool]
) -> Iterator[runs.StoredRun]:
    """Runs of this id at any time; if there are none, the runs that ended in the interval and match."""
    with context.store.read() as connection:
        prefixes = context.config.local_id_prefixes
        if by_id := list(islice(filter(is_selected, jobs.found(connection, name, prefixes)), _MOST)):
            yield from by_id
            return
        request.require_interval()
        yield from islice(filter(is_selected, runs.in_order(connection, _ids_matching(context, request))), _MOST)


def _ids_matching(context: ReportContext, request: ReportRequest) -> list[int]:
    """The ids of the runs that ended in the interval and match, in order of their ends."""
    found: list[tuple[int, int]] = []
    for frame in context.select(request, frozenset({"end", ROW}), "ended").frames():
        found += zip(frame.numbers["end"].tolist(), frame.numbers[ROW].tolist(), strict=True)
    return [row for _, row in sorted(set(found))]


def _facts(job: Any) -> Iterator[tuple[str, str]]:
    for field in job.__struct_fields__:
        value = getattr(job, field)
        if value is None or value is False or value in ((), {}) or field == "record_id":
            continue
        if field == "extras":
            yield from ((f"extras.{name}", str(each)) for name, each in sorted(value.items()))
        elif field in _INSTANTS:
            yield field, iso(value) or ""
        elif field == "events":
            yield from ((f"event {kind}", iso(at) or "") for at, kind in value.pairs())
        elif isinstance(value, tuple):
            yield field, ", ".join(map(_plain, value))
        else:
            yield field, str(value)


def _plain(value: Any) -> str:
    if not isinstance(value, msgspec.Struct):
        return str(value)
    fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return " ".join(f"{name}={each}" for name, each in fields if each is not None and each is not False)
