"""View `job`: one job in full, every run of it, as `qacct -j` gives it and with what other systems have besides."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase, translate
from itertools import islice
from typing import Any, Final

import msgspec
from sqlalchemy import Connection

from formats.job import Job
from publisher.collect.enrich import Enrichers
from publisher.errors import UsageError
from publisher.report.frame import ROW
from publisher.report.report import Cell, Column, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.status import jobs
from publisher.store import dialect, queries, runs
from publisher.text import iso

_MOST: Final = 1_000
_AT_ONCE: Final = 100
_PAGE: Final = 4_000
_INSTANTS: Final = frozenset(
    {"submit", "eligible", "lrms_submit", "start", "end", "execution_start", "execution_end"}
)  # fmt: skip
_COLUMNS: Final = (Column("record_id", "text"), Column("field", "text"), Column("value", "text"))


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: a row for each fact of each run of the jobs with this id or, in the interval, of this name."""
    request.require_by("job", (), 1)
    name = request.filters.get("job")
    if request.archive is not None:
        raise UsageError("an archive does not have all of a job", hint="Omit --archive: the store has it")
    if name is None:
        raise UsageError("which job?", hint="Give its id, or a pattern of its name, with --job")
    if not request.filters.keys() <= {"job", "user"}:
        raise UsageError("select a job with --job and --user")
    enrichers = Enrichers(context.config)
    whose = request.filters.get("user")

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


def _nothing(name: str, user: str | None) -> str:
    of = "" if user is None else f" of user {user!r}"
    return f"no run{of} has the id {name!r}, and none in the interval such an id or name"


def _is_of(job: Job, user: str) -> bool:
    """Whether a run is of an user, as filters match users."""
    return fnmatchcase(job.local_user or job.user_dn or "", user)


def _runs(
    context: ReportContext, request: ReportRequest, name: str, wanted: Callable[[runs.StoredRun], bool]
) -> Iterator[runs.StoredRun]:
    """Those of this id, whenever they ran; without any, those that ended in the interval and match."""
    with context.store.read() as connection:
        prefixes = context.config.local_id_prefixes
        if by_id := [run for run in jobs.found(connection, name, prefixes, _MOST) if wanted(run)]:
            yield from by_id
            return
        request.require_interval()
        match = _Match(name, prefixes)
        kept = _ids_kept(context, request, match)
        ids = _ids_stored(connection, request, match) if kept is None else kept
        yield from islice((run for run in _in_order(connection, ids) if wanted(run)), _MOST)


class _Match:
    """Whether a job is called so: by its id, that behind the prefix of its source, its name or its global id."""

    def __init__(self, pattern: str, prefixes: Mapping[str, str]) -> None:
        self._match = re.compile(translate(pattern)).match
        self._prefixes = prefixes

    def __call__(self, source: str, local_id: str | None, name: str | None, global_id: str | None) -> bool:
        """`local_id` is without a prefix."""
        match = self._match
        if local_id and (match(local_id) or (source in self._prefixes and match(self._prefixes[source] + local_id))):
            return True
        return bool((name and match(name)) or (global_id and match(global_id)))

    def prefixed(self, source: str, words: tuple[str | None, ...]) -> bool:
        """The same of the words that a frame has (`publisher.report.frame.OBJECTS`)."""
        local_id, name, global_id = words
        without = local_id and local_id.removeprefix(self._prefixes.get(source, ""))
        return self(source, without, name, global_id)


def _ids_stored(connection: Connection, request: ReportRequest, match: _Match) -> Iterator[int]:
    """The ids of the runs that ended in the interval and match, in order of their ends."""
    after: tuple[int, int] | None = None
    while page := list(queries.names_in(connection, request.start, request.stop, after, _PAGE)):
        for run in page:
            if match(run.source, run.names.local_id, run.names.name, run.names.global_id):
                yield run.run_id
        after = (page[-1].end, page[-1].run_id)


def _ids_kept(context: ReportContext, request: ReportRequest, match: _Match) -> list[int] | None:
    """The same where runs are kept in memory; None where they are not."""
    found: dict[int, int] = {}
    runs_kept = context.runs(request)
    wanted = frozenset({"job", "end", "source"})
    for frame in runs_kept.frames(request.start, request.stop, wanted, running_until=None):
        if ROW not in frame.numbers:
            return None
        sources = [words[0] if words else "" for words in runs_kept.codings["source"].values]
        named = zip(frame.codes["source"].tolist(), frame.objects["job"], strict=True)
        places = [place for place, (source, words) in enumerate(named) if match.prefixed(sources[source], words)]
        if places:
            ids, ends = (frame.numbers[column][places].tolist() for column in (ROW, "end"))
            found.update(zip(ids, ends, strict=True))
    return sorted(found, key=lambda row: (found[row], row))


def _in_order(connection: Connection, ids: Iterable[int]) -> Iterator[runs.StoredRun]:
    for page in dialect.chunks(ids, _AT_ONCE):
        by_id = {run.run_id: run for run in runs.by_ids(connection, page)}
        yield from (by_id[row] for row in page if row in by_id)


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
            yield from ((f"event {event.kind}", iso(event.at) or "") for event in value)
        elif isinstance(value, tuple):
            yield field, ", ".join(map(_plain, value))
        else:
            yield field, str(value)


def _plain(value: Any) -> str:
    if not isinstance(value, msgspec.Struct):
        return str(value)
    fields = ((name, getattr(value, name)) for name in value.__struct_fields__)
    return " ".join(f"{name}={each}" for name, each in fields if each is not None and each is not False)
