"""View `late`: which months changed after a date, such as a funder's deadline, with the sums before and now.

A run counts as late if its first version was stored from that date on, and as changed if an earlier version had been
delivered: only those are kept. Sums are of the store's columns; no record is decoded but those of earlier versions.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select, true

from formats.calendar import Month, month_bounds, month_numbered, month_of
from publisher.errors import UsageError
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, purged_note
from publisher.report.view_kind import LATE
from publisher.store import registry
from publisher.store.admin import engine
from publisher.store.classes import decode
from publisher.store.schema import State, deliveries, runs, versions
from publisher.text import iso

REPORTS: Final = "(reports)"
"""In the place of a target: all runs, as reports have them."""


class _MonthChange(msgspec.Struct):
    """What changed of a month: jobs, wall and CPU time (milliseconds) that went and that came, and how many runs."""

    gone: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    new: list[int] = msgspec.field(default_factory=lambda: [0, 0, 0])
    late: int = 0
    changed: int = 0


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view. Raises `UsageError` for a date that is not past."""
    request.require_interval()
    if request.start >= context.now:
        raise UsageError("--since must be past")
    rows: list[tuple[str | int | float | None, ...]] = []
    with context.store.read() as connection:
        named: dict[str, ColumnElement[bool]] = {REPORTS: true()}
        for name in context.config.targets:
            target = registry.get_target(connection, name)
            if target is not None:
                named[name] = _sent_to(target.id)
        for name, chosen in named.items():
            for number, change in sorted(_changes(connection, request.start, chosen).items()):
                rows.append(_row(connection, month_numbered(number), request.start, name, change, chosen))
    rows.sort(key=lambda row: (str(row[0]), row[1] != REPORTS, str(row[1])))
    earliest = msgspec.structs.replace(request, start=0, stop=request.start)
    purged = purged_note(context.purged(earliest))
    return context.report(
        LATE,
        request,
        title=f"Months that changed since {iso(request.start)}",
        rows=tuple(rows),
        notes=(purged,) if purged else (),
        nothing=None if rows else f"no month that had begun before {iso(request.start)} has changed since",
    )


def _sent_to(target_id: int) -> ColumnElement[bool]:
    """The runs that are for a target."""
    return exists().where(
        deliveries.c.run_id == runs.c.id, deliveries.c.target_id == target_id,
        deliveries.c.state != int(State.WAIVED), deliveries.c.deselected == 0,
    )  # fmt: skip


def _changes(connection: Connection, since: int, chosen: ColumnElement[bool]) -> dict[int, _MonthChange]:
    """By month, what changed of it. Of a run that changed often, the last version from before counts."""
    changes: dict[int, _MonthChange] = defaultdict(_MonthChange)
    earlier = versions.alias()
    last = (
        select(func.max(earlier.c.stored_at))
        .where(earlier.c.run_id == versions.c.run_id, earlier.c.stored_at < since)
        .correlate(versions)
        .scalar_subquery()
    )
    before = and_(versions.c.run_id == runs.c.id, versions.c.stored_at == last)
    columns = (runs.c.id, runs.c.end_time, runs.c.wall_ms, runs.c.cpu_ms, versions.c.job)
    changed = and_(runs.c.finished == 1, runs.c.stored_at >= since, chosen)
    query = select(*columns).select_from(runs.outerjoin(versions, before))
    query = query.where(changed, or_(runs.c.end_time < since, versions.c.job.is_not(None))).order_by(runs.c.id)
    seen = None
    for run_id, end, wall_ms, cpu_ms, blob in engine.rows(connection, query):
        if run_id == seen:
            continue  # two versions of one second
        seen = run_id
        numbers = set()
        if end < since:
            number = month_of(end).number
            changes[number].new = [
                old + new for old, new in zip(changes[number].new, (1, wall_ms, cpu_ms), strict=True)
            ]
            numbers.add(number)
        if blob is not None:
            job = decode(bytes(blob), b"", f"number {run_id}, an earlier version")
            number = month_of(job.end or 0).number
            amounts = (1, job.wall_ms or 0, job.cpu_ms or 0)
            changes[number].gone = [old + gone for old, gone in zip(changes[number].gone, amounts, strict=True)]
            numbers.add(number)
        for number in numbers:
            changes[number].late += blob is None
            changes[number].changed += blob is not None
    return changes


def _row(
    connection: Connection, month: Month, since: int, name: str, change: _MonthChange, chosen: ColumnElement[bool]
) -> tuple[str | int | float | None, ...]:  # fmt: skip
    start, end = month_bounds(month)
    stop = min(end, since)  # of the month of the date, what had ended by then
    amounts = (func.count(), func.coalesce(func.sum(runs.c.wall_ms), 0), func.coalesce(func.sum(runs.c.cpu_ms), 0))
    inside = (runs.c.finished == 1, runs.c.end_time >= start, runs.c.end_time < stop)
    now = [int(value) for value in connection.execute(select(*amounts).where(*inside, chosen)).one()]
    was = [value - new + gone for value, new, gone in zip(now, change.new, change.gone, strict=True)]
    (jobs, wall_ms, cpu_ms), (jobs_before, wall_before_ms, cpu_before_ms) = now, was
    return (
        str(month), name, change.late, change.changed, jobs_before, jobs, wall_before_ms / 1000, wall_ms / 1000,
        cpu_before_ms / 1000, cpu_ms / 1000,
    )  # fmt: skip
