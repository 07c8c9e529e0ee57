"""View `job`: all facts of all runs of a job, as in `qacct -j`, and those of other batch systems.

Of an archive: what it has of them, by the names of its columns.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from formats.calendar import month_bounds
from publisher.collect.enrich import Enrichers
from publisher.errors import UsageError
from publisher.job_ids import JobIds, JobPattern
from publisher.report.archive import (
    COLUMNS,
    CORE_NUMBERS,
    CPU_UNKNOWN,
    MEMORY_UNKNOWN,
    NUMBERS,
    STAGED_UNKNOWN,
    TEXT_COLUMNS,
    VIRTUAL_UNKNOWN,
    core_numbers_of,
    events_of,
    hosts_of,
    months_in,
)
from publisher.report.column_files import RUN_ID
from publisher.report.job_runs import selects
from publisher.report.matching import OF_JOB, SHOWN_ID, Matching, columns_of, job_ids, words_of
from publisher.report.plot.style import interval_text
from publisher.report.report import Cell, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.report.view_kind import JOB
from publisher.status import jobs
from publisher.store import runs
from publisher.store.stored_run import StoredRun
from publisher.text import iso

_MOST: Final = 1_000
_BY_ID: Final = "-- The jobs of an id are looked up in the store: this needs no SQL over columns.\n"


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view: a row for each fact of each run of the jobs with this id, or with this name in the interval."""
    name = request.filters.get("job")
    if name is None:
        raise UsageError("--job is missing", hint="Give the id of a job, or a pattern of its name")
    if not request.filters.keys() <= JOB.options:
        raise UsageError("a job is selected with --job, --task, and --user only")
    if request.archive is not None:
        return _of_archive(context, request, request.archive, name)
    enrichers = Enrichers(context.config)
    matches, sql = _runs(context, request, name)
    rows: list[tuple[Cell, ...]] = []
    for run in matches:
        job = enrichers.apply(run.source, run.job)
        rows.append((run.record_id, "source", run.source))
        rows += [(run.record_id, field, ", ".join(lines)) for field, lines in jobs.fact_rows(job)]
    return _report(context, request, rows, len(matches), sql)


def _report(
    context: ReportContext,
    request: ReportRequest,
    rows: list[tuple[Cell, ...]],
    runs_found: int,
    sql: str,
    notes: tuple[str, ...] = (),
) -> Report:
    more = (f"Only the first {_MOST:,} jobs are shown.",) if runs_found == _MOST else ()
    return context.report(
        JOB,
        request,
        title=f"Job {request.filters['job']}",
        rows=tuple(rows),
        notes=(*more, *notes),
        nothing=None if rows else _nothing(request),
        sql=sql,
        facts={"runs": runs_found},
    )


class _Entry(NamedTuple):
    """An entry of an archive, in the order in which they are shown."""

    order: tuple[int, int, str]
    facts: tuple[tuple[str, str], ...]


def _of_archive(context: ReportContext, request: ReportRequest, archive: Path, name: str) -> Report:
    """What an archive has of jobs: by id at any time or, if there are none, of those that ended in the interval."""
    asked = JobPattern(name)
    entries: list[_Entry] = []
    if not asked.has_wildcards:
        months = [*months_in(archive)]
        bounds = {"start": month_bounds(months[0])[0], "stop": month_bounds(months[-1])[1]}
        entries, sql = _entries(context, msgspec.structs.replace(request, **bounds), asked)
    if not entries:
        request.require_interval()
        entries, sql = _entries(context, request, None)
    rows: list[tuple[Cell, ...]] = [(None, *fact) for entry in entries for fact in entry.facts]
    note = "An archive has no record ids, and not all facts of a job: `field` is the name of its column."
    return _report(context, request, rows, len(entries), sql, (note,))


def _entries(context: ReportContext, request: ReportRequest, asked: JobPattern | None) -> tuple[list[_Entry], str]:
    """The matching entries of an archive, and their SQL; `asked`: those of jobs with this id, not those with this
    name."""
    columns = ", ".join(f'"{name}"' for name in COLUMNS)
    order = f'"end", "start", coalesce({SHOWN_ID}, \'\'), {columns}'
    limit = f" ORDER BY {order} LIMIT {_MOST}" if asked is None else ""  # few have one id
    statement = f"SELECT {columns} FROM matching{limit}"  # noqa: S608 - names of ours
    entries = []
    with context.tables(request, EntryReading(COLUMNS, request.start, request.stop)) as connection:
        matching = Matching(connection, request, "ended")
        for row in matching.rows(statement):
            values = dict(zip(COLUMNS, row, strict=True))
            ids = job_ids(*(values[name] for name in OF_JOB))
            if asked is None or asked(ids._replace(name=None)):
                entries.append(_Entry((values["end"], values["start"], ids.shown), tuple(_facts_of_entry(values, ids))))
    return heapq.nsmallest(_MOST, entries), matching.text(statement)


def _facts_of_entry(values: Mapping[str, Any], ids: JobIds) -> Iterator[tuple[str, str]]:
    yield "source", values["source"] or ""
    yield from ((name, str(value)) for name, value in ids._asdict().items() if value is not None)
    for name in TEXT_COLUMNS:
        if values[name] and name not in {"source", "task", "cluster", "placed"}:
            yield name, ", ".join(words_of(name, values[name]))
    yield from _numbers_of(values)
    if values["placed"]:
        yield "placed", ", ".join(map(jobs.phrase, msgspec.to_builtins(hosts_of(values["placed"]))))
    core_numbers = core_numbers_of(values[CORE_NUMBERS])
    if any(core_numbers):
        yield CORE_NUMBERS, ", ".join(core_numbers)
    if (events := events_of(values["events"])) is not None:
        yield from ((f"event {kind}", iso(at) or "") for at, kind in events.pairs())


_OF_BIT: Final = {
    CPU_UNKNOWN: {"user_ms", "system_ms", "cpu_ms"},
    MEMORY_UNKNOWN: {"memory_kib"},
    VIRTUAL_UNKNOWN: {"virtual_kib"},
    STAGED_UNKNOWN: {"stage_in_bytes", "stage_out_bytes"},
}
"""The columns that are unknown if they are 0 and `incomplete` has the bit."""
_INSTANTS_OF_ARCHIVE: Final = frozenset({"start", "stop", "end", "submit", "eligible"})


def _numbers_of(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    bits = values["incomplete"] or 0  # archives of earlier versions do not have it
    lacking = {name for bit, names in _OF_BIT.items() if bits & bit for name in names}
    for name in sorted(NUMBERS - {"incomplete"}):
        number = values[name]
        if number is not None and (number or name not in lacking):
            yield name, (iso(number) or "") if name in _INSTANTS_OF_ARCHIVE else str(number)


def _nothing(request: ReportRequest) -> str:
    name = request.filters["job"]
    others = [f"{key} {pattern!r}" for key, pattern in sorted(request.filters.items()) if key != "job"]
    of = f" of {' and '.join(others)}" if others else ""
    also = f"no job in the interval, {interval_text(request.start, request.stop)}, has this id or name"
    hint = f"choose an interval that begins earlier, or a pattern such as '{name}*'"
    return f"no job{of} has the id {name!r}, and {also}: {hint}"


def _runs(context: ReportContext, request: ReportRequest, name: str) -> tuple[list[StoredRun], str]:
    """Runs of this id at any time; if there are none, the runs that ended in the interval and match. And their SQL."""
    with context.store.read() as connection:
        of_id = filter(selects(context, request), jobs.found(connection, name, context.config.local_id_prefixes))
        if by_id := list(islice(of_id, _MOST)):
            return by_id, _BY_ID
        request.require_interval()
        run_ids, sql = _ids_matching(context, request)
        matching = filter(selects(context, request), runs.in_order(connection, run_ids))
        return list(islice(matching, _MOST)), sql


def _ids_matching(context: ReportContext, request: ReportRequest) -> tuple[list[int], str]:
    """The ids of the runs that ended in the interval and match, in order of their ends, and their SQL."""
    statement = f'SELECT {RUN_ID} FROM matching ORDER BY "end", {RUN_ID}'  # noqa: S608 - a name of ours
    with context.tables(request, EntryReading(columns_of(request, RUN_ID), request.start, request.stop)) as connection:
        matching = Matching(connection, request, "ended")
        return [run_id for (run_id,) in matching.rows(statement)], matching.text(statement)
