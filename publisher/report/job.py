"""View `job`: one job in full, every run of it, as `qacct -j` gives it and with what other systems tell besides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase, translate
from itertools import islice
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from formats.job import Job
from publisher.enrich import Enrichers
from publisher.errors import UsageError
from publisher.pipeline import recall
from publisher.report.frame import ROW
from publisher.report.reading import Context
from publisher.report.request import ReportRequest
from publisher.report.result import Cell, Column, Report
from publisher.store import runs
from publisher.times import iso

_MOST: Final = 1_000
_INSTANTS: Final = frozenset(
    {"submit", "eligible", "lrms_submit", "start", "end", "execution_start", "execution_end"}
)  # fmt: skip
_COLUMNS: Final = (Column("record_id", "text"), Column("field", "text"), Column("value", "text"))


def view(context: Context, request: ReportRequest) -> Report:
    """The view: a row for each fact of each run of the jobs with this id or, in the interval, of this name."""
    request.require_by("job", (), 1)
    name = request.filters.get("job")
    if request.archive is not None:
        raise UsageError("an archive does not tell all of a job", hint="Leave --archive away: the store does")
    if name is None:
        raise UsageError("which job?", hint="Give its id, or a pattern of its name, with --job")
    if not request.filters.keys() <= {"job", "owner"}:
        raise UsageError("a job is selected by --job, and by --owner")
    enrichers = Enrichers(context.config)
    whose = request.filters.get("owner")

    def wanted(run: runs.StoredRun) -> bool:
        if not (run.job.finished or request.running):
            return False
        return whose is None or _is_of(enrichers.apply(run.source, run.job), whose)

    found = list(_runs(context, request, name, wanted))
    rows: list[tuple[Cell, ...]] = []
    for run in found:
        job = enrichers.apply(run.source, run.job)
        rows.append((run.record_id, "source", run.source))
        rows += [(run.record_id, field, value) for field, value in _facts(job)]
    more = f"Only the first {_MOST} runs are shown." if len(found) == _MOST else ""
    return Report(
        view="job",
        title=f"Job {name}",
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=_COLUMNS,
        rows=tuple(rows),
        notes=(more,) if more else (),
        nothing=None if rows else _nothing(name, whose),
        rows_named="facts",
        facts={"runs": len(found)},
    )


def _nothing(name: str, owner: str | None) -> str:
    of = "" if owner is None else f" of owner {owner!r}"
    return f"no run{of} has the id {name!r}, and none in the interval such an id or name"


def _is_of(job: Job, owner: str) -> bool:
    """Whether a run is of an owner, as selections know owners."""
    return fnmatchcase(job.local_user or job.user_dn or "", owner)


def _runs(
    context: Context, request: ReportRequest, name: str, wanted: Callable[[runs.StoredRun], bool]
) -> Iterator[runs.StoredRun]:
    """Those of this id, whenever they ran; without any, those that ended in the interval and match."""
    with context.store.read() as connection:
        prefixes = context.config.local_id_prefixes
        if by_id := [run for run in recall.found(connection, name, prefixes, _MOST) if wanted(run)]:
            yield from by_id
            return
        request.require_interval()
        kept = _ids_kept(context, request, name)
        if kept is not None:
            yield from islice(filter(wanted, _in_order(connection, kept)), _MOST)
            return
        matching = 0
        after: tuple[int, int] | None = None
        while page := list(recall.runs_in(connection, request.start, request.stop, after, 1000)):
            for run, _ in page:
                job = run.job
                local_id = prefixes.get(run.source, "") + job.local_id if job.local_id else None
                words = (job.local_id, local_id, job.name, job.global_id)
                if any(fnmatchcase(word, name) for word in words if word) and wanted(run):
                    yield run
                    matching += 1
                    if matching == _MOST:
                        return
            after = (page[-1][0].job.end or 0, page[-1][0].run_id)


def _ids_kept(context: Context, request: ReportRequest, name: str) -> list[int] | None:
    """Where runs are kept in memory, the ids of those that ended in the interval and match, in order of their ends.

    None where they are not, and where local ids have a prefix for reports, which are looked for here without it.
    """
    if any(context.config.local_id_prefixes.values()):
        return None
    match = re.compile(translate(name)).match
    found: dict[int, int] = {}
    for frame in context.runs(request).frames(
        request.start, request.stop, frozenset({"job", "end"}), running_until=None
    ):
        if ROW not in frame.numbers:
            return None
        places = [
            place
            for place, words in enumerate(frame.objects["job"])
            if any(word is not None and match(word) for word in words)
        ]
        if places:
            ids, ends = (frame.numbers[column][places].tolist() for column in (ROW, "end"))
            found.update(zip(ids, ends, strict=True))
    return sorted(found, key=lambda row: (found[row], row))


def _in_order(connection: Connection, ids: list[int]) -> Iterator[runs.StoredRun]:
    for start in range(0, len(ids), _MOST):
        page = ids[start : start + _MOST]
        by_id = {run.run_id: run for run in runs.by_ids(connection, page)}
        yield from (by_id[row] for row in page if row in by_id)


def _facts(job: Any) -> Iterator[tuple[str, str]]:
    for field in job.__struct_fields__:
        value = getattr(job, field)
        if value is None or value is False or value in ((), {}) or field == "record_id":
            continue
        if field == "extras":
            yield from ((f"extras.{name}", str(told)) for name, told in sorted(value.items()))
        elif field in _INSTANTS:
            yield field, iso(value) or ""
        elif field == "events":
            yield from ((f"event {event.kind}", iso(event.at) or "") for event in value)
        elif isinstance(value, tuple):
            yield field, ", ".join(map(_plain, value))
        else:
            yield field, str(value)


def _plain(value: Any) -> str:
    if not isinstance(value, msgspec.Struct):
        return str(value)
    told = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return " ".join(f"{name}={each}" for name, each in told if each is not None and each is not False)
