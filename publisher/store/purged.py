"""What is known of jobs that were purged: that they were here and in which version, and which months are gone.

Keeps the promises that nothing counts twice and nothing is lost: a purged run that is read again is recognised by a
hash of its record id and the digests of its versions, and is not put down anew. One that changed since, or a run of a
purged month that was never here, is stored, and held with the reason: the month is not whole in the store any more, and
somebody must decide. A purged month is never summarised again.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select

from formats.month import Month, month_bounds, month_numbered, month_of
from publisher.errors import UsageError
from publisher.sealed import SealedRun
from publisher.store import dialect
from publisher.store.counters import CONFIRMED
from publisher.store.deliveries import move
from publisher.store.erased import Veil
from publisher.store.runs import Put
from publisher.store.states import State
from publisher.store.tables import deliveries, purged_deliveries, purged_months, purged_runs, runs

PURGED: Final = "purged: "
"""How the reasons begin with which something is held because of a purge; only a person releases it."""
LATE: Final = f"{PURGED}the other jobs of its month were purged from the store"
CHANGED_AFTER_PURGE: Final = f"{PURGED}the job changed after it was delivered and purged from the store"
_KEY_BYTES: Final = 16
_MANY: Final = 500


class Sifted(msgspec.Struct, frozen=True):
    """A page of runs without those that were purged as they are. `changed`: record ids of those purged otherwise."""

    runs: Sequence[SealedRun]
    unchanged: int = 0
    changed: frozenset[str] = frozenset()


def key_of(record_id: str) -> bytes:
    """What is kept of a purged run's record id: 16 bytes."""
    return hashlib.blake2b(record_id.encode("utf-8", "surrogatepass"), digest_size=_KEY_BYTES).digest()


def months(connection: Connection) -> frozenset[int]:
    """The numbers of the months that were purged."""
    return frozenset(connection.execute(select(purged_months.c.month)).scalars())


def runs_of_months(connection: Connection) -> dict[Month, int]:
    """The months that were purged, oldest first, each with how many runs went."""
    query = select(purged_months.c.month, purged_months.c.runs).order_by(purged_months.c.month)
    return {month_numbered(number): runs for number, runs in connection.execute(query)}


def sift(connection: Connection, found: Sequence[SealedRun], veil: Veil) -> Sifted:
    """Leave out what was purged and is unchanged, be it in an earlier version: a log tells all of them.

    `veil` gives a run as it is stored where its person was erased.
    """
    if not found or not months(connection):
        return Sifted(found)
    listed = list({key_of(run.record_id): None for run in found})
    known: defaultdict[bytes, set[bytes]] = defaultdict(set)
    for start in range(0, len(listed), _MANY):
        query = select(purged_runs.c.run, purged_runs.c.digest).where(
            purged_runs.c.run.in_(listed[start : start + _MANY])
        )
        for key, mark in connection.execute(query):
            known[bytes(key)].add(bytes(mark))
    kept: list[SealedRun] = []
    changed: set[str] = set()
    for run in found:
        marks = known.get(key_of(run.record_id))
        if marks is None or not run.finished:
            kept.append(run)
        elif marks.isdisjoint({run.digest, veil.sealed(run).digest}):
            kept.append(run)
            changed.add(run.record_id)
    return Sifted(kept, len(found) - len(kept), frozenset(changed))


def hold_late(connection: Connection, target_id: int, put: Iterable[Put], now: int) -> None:
    """Hold what waits of runs that were just stored and ended in a purged month."""
    gone = months(connection)
    if not gone:
        return
    late = (item for item in put if item.end_time is not None and month_of(item.end_time).number in gone)
    _hold(connection, target_id, ((item.run_id, LATE) for item in late), now)


def hold_changed(
    connection: Connection, target_ids: Iterable[int], put: Iterable[Put], changed: frozenset[str], now: int
) -> int:
    """Hold what waits of runs that were just stored and are in another version than when they were purged.

    Gives how many of them are there anew.
    """
    if not changed:
        return 0
    stored = {item.run_id: item.fresh for item in put}
    names = sorted(changed)
    found: list[int] = []
    for start in range(0, len(names), _MANY):
        query = select(runs.c.id).where(runs.c.record_id.in_(names[start : start + _MANY]))
        found += [run_id for run_id in connection.execute(query).scalars() if run_id in stored]
    for target_id in target_ids:
        _hold(connection, target_id, ((run_id, CHANGED_AFTER_PURGE) for run_id in found), now)
    return sum(stored[run_id] for run_id in found)


def _hold(connection: Connection, target_id: int, found: Iterable[tuple[int, str]], now: int) -> None:
    move(connection, target_id, [(run_id, State.WAITING, State.HELD, why) for run_id, why in found], now)


def require_unpurged(connection: Connection, first: int, behind: int) -> None:
    """Raise `UsageError` for a window that holds jobs which were purged: it cannot be sent again whole."""
    inside = [
        str(month)
        for month in map(month_numbered, sorted(months(connection)))
        if month_bounds(month)[0] < behind and month_bounds(month)[1] > first
    ]
    if inside:
        raise UsageError(
            f"jobs of {', '.join(inside)} were purged from the store and cannot be sent again",
            hint="Choose a window without these months; late jobs of them are held, see `usage-publisher held list`",
        )


def in_purged_month(connection: Connection, end_time: ColumnElement[int]) -> ColumnElement[bool]:
    """The condition that an instant lies in a month that was purged."""
    spans = list(_spans(sorted(months(connection))))
    return or_(false(), *(and_(end_time >= first, end_time < behind) for first, behind in spans))


def _spans(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First second and the second behind of each stretch of months without a gap."""
    first = behind = None
    for number in numbers:
        begin, end = month_bounds(month_numbered(number))
        if behind != begin:
            if first is not None and behind is not None:
                yield first, behind
            first = begin
        behind = end
    if first is not None and behind is not None:
        yield first, behind


def not_held_for_good() -> ColumnElement[bool]:
    """The condition that a held delivery may be released by something else than a person."""
    return or_(deliveries.c.reason.is_(None), ~deliveries.c.reason.startswith(PURGED))


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
    for target_id, state, jobs, confirmed in counted:
        for number, value in ((state, jobs), (CONFIRMED, confirmed)):
            if value:
                row = {"target_id": target_id, "month": month.number, "state": number, "jobs": value}
                dialect.add_up(connection, purged_deliveries, row, keys=("target_id", "month", "state"), column="jobs")


def note_month(connection: Connection, month: Month, count: int, now: int) -> None:
    """Remember that a month was purged, or that late jobs of it were."""
    row = {"month": month.number, "runs": count, "purged_at": now}
    dialect.add_up(connection, purged_months, row, keys=("month",), column="runs")
