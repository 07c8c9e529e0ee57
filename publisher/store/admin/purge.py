"""purge: whole months out of the store, once every target has all that it wants of them.

A month goes in one transaction with what must be kept of it (`publisher.store.admin.purge`) and with the entry that
says who did it. The counters of `status` go on counting what was delivered; the receipt of the last-sent end time
stays.

What is known of jobs that were purged: that they were here and in which version, and which months are gone.

Keeps the promises that nothing counts twice and nothing is lost: a purged run that is read again is recognised by a
hash of its record id and the digests of its versions, and is not enqueued again. One that changed since, or a run of a
purged month that was never here, is stored, and held with the reason: the month is not whole in the store any more, and
somebody must decide. A purged month is never summarised again.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Table,
    and_,
    delete,
    false,
    func,
    not_,
    null,
    or_,
    select,
    update,
)

from formats.calendar import Month, month_bounds, month_numbered, month_of
from formats.rule_codes import Reason
from publisher.encoded_run import EncodedRun, run_key
from publisher.errors import StoreCorruptError, UsageError
from publisher.job_ids import local_id
from publisher.reason import ONLY_A_PERSON_RELEASES, ReasonCode
from publisher.store import changes, class_users, dialect, groups, paging, registry, same_jobs, transitions
from publisher.store.admin import engine
from publisher.store.admin.erase import PseudonymMap
from publisher.store.deliveries import move
from publisher.store.groups import DueFor
from publisher.store.runs import UpsertedRun
from publisher.store.schema import (
    OPEN,
    BatchState,
    State,
    batches,
    classes,
    deliveries,
    energies,
    grid_jobs,
    grid_waits,
    purged_deliveries,
    purged_months,
    purged_runs,
    runs,
    targets,
    usage_notes,
    versions,
)
from publisher.store.schema import groups as groups_table
from publisher.store.stored_values import state_of
from publisher.store.transitions import CONFIRMED

LATE: Final = Reason.of(ReasonCode.PURGED_BEFORE_IT_CAME)
CHANGED_AFTER_PURGE: Final = Reason.of(ReasonCode.CHANGED_AFTER_PURGE)


class UnpurgedRuns(msgspec.Struct, frozen=True):
    """A page of runs without those that were purged as they are. `changed`: record ids of those purged otherwise."""

    runs: Sequence[EncodedRun]
    unchanged: int = 0
    changed: frozenset[str] = frozenset()


def months(connection: Connection) -> frozenset[int]:
    """The numbers of the purged months."""
    return frozenset(connection.execute(select(purged_months.c.month)).scalars())


def runs_of_months(connection: Connection) -> dict[Month, int]:
    """The purged months, oldest first, each with the number of purged runs."""
    query = select(purged_months.c.month, purged_months.c.runs).order_by(purged_months.c.month)
    return {month_numbered(number): runs for number, runs in connection.execute(query)}


def drop_purged(connection: Connection, found: Sequence[EncodedRun], pseudonyms: PseudonymMap) -> UnpurgedRuns:
    """Leave out what was purged and is unchanged, be it in an earlier version: a log has all of them.

    `pseudonyms` gives a run as it is stored where its person was erased.
    """
    if not found or not months(connection):
        return UnpurgedRuns(found)
    listed = list({run.key: None for run in found})
    known: defaultdict[bytes, set[bytes]] = defaultdict(set)
    query = select(purged_runs.c.run, purged_runs.c.digest)
    for key, mark in paging.rows_in(connection, query, purged_runs.c.run, listed):
        known[bytes(key)].add(bytes(mark))
    kept: list[EncodedRun] = []
    changed: set[str] = set()
    for run in found:
        marks = known.get(run.key)
        if marks is None or not run.finished:
            kept.append(run)
        elif marks.isdisjoint({run.digest, pseudonyms.encoded(run).digest}):
            kept.append(run)
            changed.add(run.record_id)
    return UnpurgedRuns(kept, len(found) - len(kept), frozenset(changed))


def hold_late(connection: Connection, target_id: int, put: Iterable[UpsertedRun], now: int) -> None:
    """Hold waiting deliveries of runs that were just stored and ended in a purged month."""
    gone = months(connection)
    if not gone:
        return
    late = (item for item in put if item.end_time is not None and month_of(item.end_time).number in gone)
    _hold(connection, target_id, ((item.run_id, LATE) for item in late), now)


def hold_changed(
    connection: Connection, target_ids: Iterable[int], put: Iterable[UpsertedRun], changed: frozenset[str], now: int
) -> int:
    """Hold what waits of runs that were just stored and are in another version than when they were purged.

    Gives how many of them are there anew.
    """
    if not changed:
        return 0
    stored = {item.run_id: item.fresh for item in put}
    rows = paging.rows_in(connection, select(runs.c.id), runs.c.record_key, [*map(run_key, sorted(changed))])
    run_ids = [run_id for (run_id,) in rows if run_id in stored]
    for target_id in target_ids:
        _hold(connection, target_id, ((run_id, CHANGED_AFTER_PURGE) for run_id in run_ids), now)
    return sum(stored[run_id] for run_id in run_ids)


def _hold(connection: Connection, target_id: int, found: Iterable[tuple[int, Reason]], now: int) -> None:
    move(connection, target_id, [(run_id, State.WAITING, State.HELD, why) for run_id, why in found], now)


def require_unpurged(connection: Connection, first: int, end: int) -> None:
    """Raise `UsageError` for a window that holds jobs which were purged: it cannot be sent again whole."""
    inside = [
        str(month)
        for month in map(month_numbered, sorted(months(connection)))
        if month_bounds(month)[0] < end and month_bounds(month)[1] > first
    ]
    if inside:
        raise UsageError(
            f"jobs of {', '.join(inside)} were purged from the store and cannot be sent again",
            hint="Choose a window without these months; late jobs of them are held "
            "(`usage-publisher records list --state held`)",
        )


def in_purged_month(connection: Connection, end_time: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that an instant lies in a purged month."""
    spans = list(_spans(sorted(months(connection))))
    return or_(false(), *(and_(end_time >= first, end_time < end) for first, end in spans))


def _spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Start (inclusive) and end (exclusive) of each stretch of consecutive months, in epoch seconds."""
    first = end = None
    for number in numbers:
        begin, stop = month_bounds(month_numbered(number))
        if end != begin:
            if first is not None and end is not None:
                yield first, end
            first = begin
        end = stop
    if first is not None and end is not None:
        yield first, end


def not_held_for_good() -> ColumnElement[bool]:
    """The condition that a held delivery may be released automatically."""
    return or_(deliveries.c.reason.is_(None), deliveries.c.reason.not_in(ONLY_A_PERSON_RELEASES))


def delivered(connection: Connection, target_id: int) -> dict[int, int]:
    """How many purged deliveries of a target were in each state, by the state's number (confirmed ones as well)."""
    query = (
        select(purged_deliveries.c.state, func.sum(purged_deliveries.c.jobs))
        .where(purged_deliveries.c.target_id == target_id)
        .group_by(purged_deliveries.c.state)
    )
    return {row[0]: int(row[1]) for row in connection.execute(query)}


def note_deliveries(connection: Connection, month: Month, counted: Iterable[tuple[int, int, int, int]]) -> None:
    """Add to what was delivered of a purged month: (target id, state, jobs, confirmed ones of them)."""
    rows = [
        {"target_id": target_id, "month": month.number, "state": number, "jobs": value}
        for target_id, state, jobs, confirmed in counted
        for number, value in ((state, jobs), (CONFIRMED, confirmed))
        if value
    ]
    dialect.add_up(connection, purged_deliveries, rows, keys=("target_id", "month", "state"), column="jobs")


def note_month(connection: Connection, month: Month, count: int, now: int) -> None:
    """Record that a month was purged, or that late jobs of it were."""
    row = {"month": month.number, "runs": count, "purged_at": now}
    dialect.add_up(connection, purged_months, [row], keys=("month",), column="runs")


UNDELIVERED: Final = (State.WAITING, State.IN_FLIGHT, State.HELD, State.REJECTED)
_PAGE: Final = 1000


class GroupKinds(msgspec.Struct, frozen=True):
    """What a configured target is sent besides the records of jobs: summaries, sync counts."""

    summaries: bool
    sync: bool


class MonthPlan(msgspec.Struct, frozen=True):
    """A month before the given one: how many runs it has, and why it must stay, where it must."""

    month: Month
    runs: int
    kept: str | None


def months_before(connection: Connection, before: Month, configured: Mapping[str, GroupKinds]) -> list[MonthPlan]:
    """The months of the store that end before a month, oldest first. `configured`: the targets by name."""
    known = [(row[0], row[1]) for row in connection.execute(select(targets.c.id, targets.c.name).order_by("name"))]
    plans = []
    for month in _months(connection, month_bounds(before)[0]):
        inside = _within(runs.c.end_time, month)
        count = connection.execute(select(func.count()).select_from(runs).where(inside)).scalar_one()
        reasons = [why for target in known if (why := _why_kept(connection, *target, configured, month))]
        held = connection.execute(
            select(func.count())
            .select_from(grid_waits)
            .where(grid_waits.c.held == 1, _within(grid_waits.c.end_time, month))
        ).scalar_one()
        if held:
            reasons.append(f"{held} wait for their grid log")
        plans.append(MonthPlan(month, count, "; ".join(reasons) or None))
    return plans


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
    first, end = month_bounds(month)
    return and_(column >= first, column < end)


def _why_kept(
    connection: Connection, target_id: int, name: str, configured: Mapping[str, GroupKinds], month: Month
) -> str | None:
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
    settings = configured.get(name)
    if settings is not None:
        kinds = [groups.IS_SNAPSHOT] if settings.summaries else []
        kinds += [groups_table.c.kind == groups.SYNC] if settings.sync else []
        query_groups = select(func.count()).where(
            of_month, or_(false(), *kinds), groups_table.c.state != int(State.ACCEPTED)
        )
        purposes = [DueFor.FOLD] * settings.summaries + [DueFor.SYNC] * settings.sync
        due = sum(month in groups.months_due(connection, target_id, purpose) for purpose in purposes)
        unsent = connection.execute(query_groups).scalar_one() + due
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
        select(runs.c.id, runs.c.record_key, runs.c.digest, runs.c.finished, runs.c.local_id, classes.c.source_id)
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
        finished = {row[0]: bytes(row[1]) for row in page if row[3]}
        marks = [(row[0], bytes(row[2])) for row in page if row[3]]
        earlier = connection.execute(
            select(versions.c.run_id, versions.c.digest).where(versions.c.run_id.in_(finished))
        )
        marks += [(row[0], bytes(row[1])) for row in earlier]
        rows = [{"run": finished[run_id], "digest": mark} for run_id, mark in marks]
        dialect.insert_missing(connection, purged_runs, rows)
        connection.execute(delete(versions).where(versions.c.run_id.in_(ids)))
        connection.execute(delete(grid_waits).where(grid_waits.c.run_id.in_(ids)))
        same_jobs.forget(connection, ids)
        connection.execute(delete(usage_notes).where(usage_notes.c.run_id.in_(ids)))
        connection.execute(delete(energies).where(energies.c.run_id.in_(ids)))
        connection.execute(delete(runs).where(runs.c.id.in_(ids)))
        changes.note_runs(connection, ids)
        _forget_entries(connection, [(row[5], row[4]) for row in page if row[4]])
        total += len(page)
    note_deliveries(connection, month, ((*key, jobs, confirmed[key]) for key, jobs in delivered.items()))
    note_month(connection, month, total, now)
    changes.note_erased(connection)
    groups.keep_sync_counts(connection, month)
    registry.record_action(connection, "purge", str(month), f"{total} jobs", now)
    return total


def _take_deliveries(connection: Connection, target_id: int, ids: Sequence[int]) -> list[tuple[int, int, int]]:
    chosen = and_(deliveries.c.target_id == target_id, deliveries.c.run_id.in_(ids))
    counted = (
        select(deliveries.c.state, func.count(), func.count(deliveries.c.confirmed_at))
        .where(chosen)
        .group_by(deliveries.c.state)
    )
    counts = [(row[0], row[1], row[2]) for row in connection.execute(counted)]
    if any(state_of(state) in UNDELIVERED for state, _, _ in counts):
        raise StoreCorruptError(
            "an undelivered job and its delivery have different end times; nothing of its month was purged",
            hint="`usage-publisher store check` says which",
        )
    transitions.purge(connection, target_id, ids)
    return counts


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
    """Remove classes without runs; return how many. The caller holds the lock of collecting."""
    used = select(runs.c.class_id).distinct()
    unused = list(connection.execute(select(classes.c.id).where(classes.c.id.not_in(used))).scalars())
    class_users.replace(connection, unused, ())
    _drop(connection, classes, unused, runs.c.class_id)
    if unused:
        changes.note_classes(connection)
    return len(unused)


def _drop(connection: Connection, table: Table, ids: Sequence[int], *referring: Column[Any]) -> None:
    """Remove rows without references; `referring`: the columns that could refer to them."""
    if ids:
        with engine.found_by(connection, *referring):
            paging.execute_in(connection, delete(table), table.c.id, ids)


# --- messages and receipts


def _older(before: Month) -> ColumnElement[bool]:
    return and_(batches.c.created_at < month_bounds(before)[0], batches.c.state != int(BatchState.IN_FLIGHT))


def _last_sent() -> ColumnElement[bool]:
    """The batches with a target's last-sent end time."""
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


def _with_text(before: Month) -> ColumnElement[bool]:
    return and_(_older(before), or_(batches.c.receipt.is_not(None), batches.c.answer.is_not(None)))


def old_messages(connection: Connection, before: Month) -> int:
    """How many messages were sent before a month that nothing in the store refers to."""
    return connection.execute(select(func.count()).select_from(batches).where(_needless(before))).scalar_one()


def old_receipts(connection: Connection, before: Month) -> int:
    """How many messages were sent before a month of which the receipt or the answer is kept."""
    return connection.execute(select(func.count()).select_from(batches).where(_with_text(before))).scalar_one()


def purge_messages(connection: Connection, before: Month, now: int) -> int:
    """Remove messages that were sent before a month and have no references; return how many."""
    ids = list(connection.execute(select(batches.c.id).where(_needless(before))).scalars())
    _drop(connection, batches, ids, deliveries.c.batch_id, groups_table.c.batch_id)
    if ids:
        registry.record_action(connection, "purge", "messages", f"{len(ids)} messages sent before {before}", now)
    return len(ids)


def purge_receipts(connection: Connection, before: Month, now: int) -> int:
    """Remove receipts and answers from messages that were sent before a month; return from how many."""
    count = connection.execute(update(batches).where(_with_text(before)).values(receipt=null(), answer=null())).rowcount
    if count:
        registry.record_action(
            connection, "purge", "receipts", f"receipts of {count} messages sent before {before}", now
        )
    return count
