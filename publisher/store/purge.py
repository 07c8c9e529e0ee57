"""purge: whole months out of the store, once every target has all that it wants of them.

A month goes in one transaction with what must be kept of it (`publisher.store.purged`) and with the entry that says who
did it. The counters of `status` go on counting what was delivered; the receipt behind the last-sent end time stays.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, func, not_, null, or_, select, update

from formats.month import Month, month_bounds, month_of
from publisher.errors import StoreCorruptError
from publisher.grid_identity import local_id
from publisher.store import audit, dialect, groups, purged, upkeep
from publisher.store.states import BatchState, State
from publisher.store.tables import (
    OPEN,
    batches,
    classes,
    deliveries,
    grid_jobs,
    grid_waits,
    purged_runs,
    runs,
    targets,
    versions,
)
from publisher.store.tables import groups as groups_table

UNDELIVERED: Final = (State.WAITING, State.IN_FLIGHT, State.HELD, State.REJECTED)
_PAGE: Final = 1000


class Owed(msgspec.Struct, frozen=True):
    """What a configured target is sent besides the records of jobs: summaries, sync counts."""

    summaries: bool
    sync: bool


class MonthPlan(msgspec.Struct, frozen=True):
    """A month before the given one: how many runs it has, and why it must stay, where it must."""

    month: Month
    runs: int
    kept: str | None


def months_before(connection: Connection, before: Month, owed: Mapping[str, Owed]) -> list[MonthPlan]:
    """The months of the store that end before a month, oldest first. `owed`: the configured targets by their names."""
    known = [(row[0], row[1]) for row in connection.execute(select(targets.c.id, targets.c.name).order_by("name"))]
    found = []
    for month in _months(connection, month_bounds(before)[0]):
        inside = _within(runs.c.end_time, month)
        count = connection.execute(select(func.count()).select_from(runs).where(inside)).scalar_one()
        reasons = [why for target in known if (why := _why_kept(connection, *target, owed, month))]
        held = connection.execute(
            select(func.count())
            .select_from(grid_waits)
            .where(grid_waits.c.held == 1, _within(grid_waits.c.end_time, month))
        ).scalar_one()
        if held:
            reasons.append(f"{held} wait for their grid log")
        found.append(MonthPlan(month, count, "; ".join(reasons) or None))
    return found


def _months(connection: Connection, end: int) -> Iterator[Month]:
    begin: int | None = None
    while True:
        query = select(func.min(runs.c.end_time)).where(runs.c.end_time < end)
        if begin is not None:
            query = query.where(runs.c.end_time >= begin)
        first = connection.execute(query).scalar_one()
        if first is None:
            return
        month = month_of(first)
        yield month
        begin = month_bounds(month)[1]


def _within(column: ColumnElement[Any], month: Month) -> ColumnElement[bool]:
    first, behind = month_bounds(month)
    return and_(column >= first, column < behind)


def _why_kept(connection: Connection, target_id: int, name: str, owed: Mapping[str, Owed], month: Month) -> str | None:
    query = (
        select(deliveries.c.state, func.count())
        .where(
            deliveries.c.target_id == target_id,
            deliveries.c.state.in_([int(state) for state in UNDELIVERED]),
            OPEN,
            _within(deliveries.c.end_time, month),
        )
        .group_by(deliveries.c.state)
        .order_by(deliveries.c.state)
    )
    there = [f"{count} {State(state).word.replace('_', ' ')}" for state, count in connection.execute(query)]
    number = groups_table.c.month  # of a month; for reports of days that of a day
    in_month = or_(number == month.number, number.between(month.number * 100, month.number * 100 + 99))
    of_month = and_(groups_table.c.target_id == target_id, in_month)
    settings = owed.get(name)
    if settings is not None:
        kinds = [groups.SUMMARY, groups.UTILIZATION, groups.REFOLD] if settings.summaries else []
        kinds += [groups.SYNC, groups.DUE] if settings.sync else []
        query_groups = select(func.count()).where(
            of_month, groups_table.c.kind.in_(kinds), groups_table.c.state != int(State.ACCEPTED)
        )
        unsent = connection.execute(query_groups).scalar_one()
        there += [f"{unsent} summaries, reports or sync counts to be sent"] if unsent else []
    gone = "" if settings is not None else ", which is not configured any more"
    return f"target {name}{gone}: {', '.join(there)}" if there else None


def purge_month(connection: Connection, month: Month, now: int) -> int:
    """Take a month out of the store; gives how many runs. The caller has made sure that nothing of it is undelivered.

    Raises `StoreCorruptError`, before anything is committed, where something turns out to be undelivered after all.
    """
    target_ids = list(connection.execute(select(targets.c.id)).scalars())
    inside = _within(runs.c.end_time, month)
    query = (
        select(runs.c.id, runs.c.record_id, runs.c.digest, runs.c.finished, runs.c.local_id, classes.c.source_id)
        .join(classes, runs.c.class_id == classes.c.id)
        .where(inside)
        .order_by(runs.c.end_time, runs.c.id)
        .limit(_PAGE)
    )
    total = 0
    delivered: Counter[tuple[int, int]] = Counter()
    confirmed: Counter[tuple[int, int]] = Counter()
    while page := connection.execute(query).all():
        ids = [row[0] for row in page]
        for target_id in target_ids:
            for state, jobs, seen in _take_deliveries(connection, target_id, ids):
                delivered[target_id, state] += jobs
                confirmed[target_id, state] += seen
        finished = {row[0]: purged.key_of(row[1]) for row in page if row[3]}
        marks = [(row[0], bytes(row[2])) for row in page if row[3]]
        earlier = connection.execute(
            select(versions.c.run_id, versions.c.digest).where(versions.c.run_id.in_(finished))
        )
        marks += [(row[0], bytes(row[1])) for row in earlier]
        rows = [{"run": finished[run_id], "digest": mark} for run_id, mark in marks]
        dialect.insert_missing(connection, purged_runs, rows)
        connection.execute(delete(versions).where(versions.c.run_id.in_(ids)))
        connection.execute(delete(grid_waits).where(grid_waits.c.run_id.in_(ids)))
        connection.execute(delete(runs).where(runs.c.id.in_(ids)))
        _forget_entries(connection, [(row[5], row[4]) for row in page if row[4]])
        total += len(page)
    purged.note_deliveries(connection, month, ((*key, jobs, confirmed[key]) for key, jobs in delivered.items()))
    purged.note_month(connection, month, total, now)
    groups.keep_sync(connection, month, now)
    audit.note(connection, "purge", str(month), f"{total} runs", now)
    return total


def _take_deliveries(connection: Connection, target_id: int, ids: Sequence[int]) -> list[tuple[int, int, int]]:
    chosen = and_(deliveries.c.target_id == target_id, deliveries.c.run_id.in_(ids))
    counted = (
        select(deliveries.c.state, func.count(), func.count(deliveries.c.confirmed_at))
        .where(chosen)
        .group_by(deliveries.c.state)
    )
    found = [(row[0], row[1], row[2]) for row in connection.execute(counted)]
    if any(State(state) in UNDELIVERED for state, _, _ in found):
        raise StoreCorruptError(
            "a job's delivery has another end time than the job, and is undelivered; nothing of its month was purged",
            hint="`usage-publisher store check` tells which",
        )
    connection.execute(delete(deliveries).where(chosen))
    return found


def _forget_entries(connection: Connection, names: Sequence[tuple[int, str]]) -> None:
    """Forget the grid log's entries of jobs that have no run in the store any more: (source id, local id)."""
    words = {name for _, name in names}
    left = set(connection.execute(select(runs.c.local_id).where(runs.c.local_id.in_(words))).scalars())
    keys: defaultdict[int, set[str]] = defaultdict(set)
    for source_id, name in names:
        if name not in left:
            keys[source_id].add(local_id(name).key)
    for source_id, gone in keys.items():
        connection.execute(delete(grid_jobs).where(grid_jobs.c.source_id == source_id, grid_jobs.c.key.in_(gone)))


def drop_unused_classes(connection: Connection) -> int:
    """Take out classes that no run has any more; gives how many. The caller holds the lock of collecting."""
    used = select(runs.c.class_id).distinct()
    unused = list(connection.execute(select(classes.c.id).where(classes.c.id.not_in(used))).scalars())
    _drop(connection, classes, unused, runs.c.class_id)
    return len(unused)


def _drop(connection: Connection, table: Table, ids: Sequence[int], *referring: Column[Any]) -> None:
    """Take rows out that nothing refers to; `referring`: the columns that could."""
    if ids:
        with upkeep.found_by(connection, *referring):
            for start in range(0, len(ids), _PAGE):
                connection.execute(delete(table).where(table.c.id.in_(ids[start : start + _PAGE])))


# --- messages and receipts


def _older(before: Month) -> ColumnElement[bool]:
    return and_(batches.c.created_at < month_bounds(before)[0], batches.c.state != int(BatchState.IN_FLIGHT))


def _last_sent() -> ColumnElement[bool]:
    """The batches that tell a target's last-sent end time."""
    last = (
        select(batches.c.target_id, func.max(batches.c.latest_end).label("latest_end"))
        .where(batches.c.state == int(BatchState.ACCEPTED))
        .group_by(batches.c.target_id)
        .subquery()
    )
    return batches.c.id.in_(
        select(func.max(batches.c.id))
        .join(last, and_(batches.c.target_id == last.c.target_id, batches.c.latest_end == last.c.latest_end))
        .where(batches.c.state == int(BatchState.ACCEPTED))
        .group_by(batches.c.target_id)
    )


def _needless(before: Month) -> ColumnElement[bool]:
    used = [
        select(table.c.batch_id).where(table.c.batch_id.is_not(None)).distinct() for table in (deliveries, groups_table)
    ]
    return and_(_older(before), *(batches.c.id.not_in(each) for each in used), not_(_last_sent()))


def _told(before: Month) -> ColumnElement[bool]:
    return and_(_older(before), or_(batches.c.receipt.is_not(None), batches.c.answer.is_not(None)))


def old_messages(connection: Connection, before: Month) -> int:
    """How many messages were sent before a month that nothing in the store refers to."""
    return connection.execute(select(func.count()).select_from(batches).where(_needless(before))).scalar_one()


def old_receipts(connection: Connection, before: Month) -> int:
    """How many messages were sent before a month of which the receipt or the answer is kept."""
    return connection.execute(select(func.count()).select_from(batches).where(_told(before))).scalar_one()


def purge_messages(connection: Connection, before: Month, now: int) -> int:
    """Take out messages that were sent before a month and that nothing refers to; gives how many."""
    ids = list(connection.execute(select(batches.c.id).where(_needless(before))).scalars())
    _drop(connection, batches, ids, deliveries.c.batch_id, groups_table.c.batch_id)
    if ids:
        audit.note(connection, "purge", "messages", f"{len(ids)} messages sent before {before}", now)
    return len(ids)


def purge_receipts(connection: Connection, before: Month, now: int) -> int:
    """Take receipts and answers out of messages that were sent before a month; gives out of how many."""
    count = connection.execute(update(batches).where(_told(before)).values(receipt=null(), answer=null())).rowcount
    if count:
        audit.note(connection, "purge", "receipts", f"receipts of {count} messages sent before {before}", now)
    return count
