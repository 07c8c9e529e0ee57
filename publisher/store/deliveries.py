"""Deliveries: the outbox and the ledger. Every change of a state goes with its counters, in one transaction.

A run may change, or be no longer wanted, while it is being sent: collecting does not wait for sending. `stale` counts
the changes since a delivery was put down or taken off, so that nothing which was decided from an earlier version
settles a later one; it is `UNWANTED` for a run in flight that is no longer wanted. Counters follow the rows that a
statement really touched. `sent_digest` is that of the version which the service has, or may have;
`publisher.store.in_flight.SEVERAL` where it keeps the first that reaches it, and that may be one of several.

Confirmations: deliveries and groups that `reconcile` saw at the service, as they were sent.

Only what is accepted can be confirmed. Whatever takes a delivery out of that state takes its confirmation back, in the
same transaction, and the counter that `status` reads follows the rows that were really touched.

Deliveries by target and state: kept in the transaction that changes them, so that `status` never counts.

A part of a target's deliveries, so that several publishers can work on a large backlog at once.

Parts are told apart by the run's number, so no two publishers read, render or lock the same rows, and none waits for
another. Who holds the lock of a part is alone with it; a lock goes with its process.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    literal_column,
    null,
    select,
    update,
)

from publisher.store import dialect
from publisher.store.runs import UpsertedRun
from publisher.store.schema import ARE_ASSUMED, ASSUMED, OPEN, State, counters, deliveries, groups

CONFIRMED: Final = 101
"""Not a state: confirmed deliveries are accepted ones, counted a second time."""


def add(connection: Connection, target_id: int, changes: Mapping[State, int]) -> None:
    """Add these differences to the counters of a target."""
    for state, jobs in changes.items():
        if jobs:
            row = {"target_id": target_id, "state": int(state), "jobs": jobs}
            dialect.add_up(connection, counters, row, keys=("target_id", "state"), column="jobs")


def add_confirmed(connection: Connection, target_id: int, jobs: int) -> None:
    """Add this difference to the confirmed deliveries of a target."""
    if jobs:
        row = {"target_id": target_id, "state": CONFIRMED, "jobs": jobs}
        dialect.add_up(connection, counters, row, keys=("target_id", "state"), column="jobs")


def of_target(connection: Connection, target_id: int) -> dict[State, int]:
    """How many deliveries of a target are in each state; all states are there."""
    found = _all(connection, target_id)
    return {state: found.get(state, 0) for state in State}


def confirmed(connection: Connection, target_id: int) -> int:
    """How many of a target's accepted deliveries were seen at the service by `reconcile`."""
    return _all(connection, target_id).get(CONFIRMED, 0)


def _all(connection: Connection, target_id: int) -> dict[int, int]:
    query = select(counters.c.state, counters.c.jobs).where(counters.c.target_id == target_id)
    return {row[0]: row[1] for row in connection.execute(query)}


_one: Final = and_(deliveries.c.target_id == bindparam("target"), deliveries.c.run_id == bindparam("run"))
_ACCEPTED: Final[ColumnElement[int]] = literal_column(str(int(State.ACCEPTED)))
_confirm: Final = dialect.Bulk(
    update(deliveries)
    .where(_one, deliveries.c.state == _ACCEPTED, deliveries.c.confirmed_at.is_(None))
    .values(confirmed_at=bindparam("confirmed_at")),
    ("confirmed_at", "target", "run"),
)
_withdraw: Final = dialect.Bulk(
    update(deliveries).where(_one, deliveries.c.confirmed_at.is_not(None)).values(confirmed_at=null()),
    ("target", "run"),
)


def confirm(connection: Connection, target_id: int, run_ids: Iterable[int], now: int) -> int:
    """Confirm deliveries that are accepted, and were not confirmed before; gives how many."""
    confirmed = _confirm.run(connection, [(now, target_id, run_id) for run_id in run_ids])
    add_confirmed(connection, target_id, confirmed)
    return confirmed


def withdraw(connection: Connection, target_id: int, run_ids: Iterable[int]) -> int:
    """Take back the confirmations of these runs' deliveries; gives how many there were."""
    withdrawn = _withdraw.run(connection, [(target_id, run_id) for run_id in run_ids])
    add_confirmed(connection, target_id, -withdrawn)
    return withdrawn


def withdraw_where(connection: Connection, target_id: int, chosen: ColumnElement[bool]) -> int:
    """Take back the confirmations of the deliveries of a target for which a condition holds; gives how many."""
    withdrawn = connection.execute(
        update(deliveries)
        .where(deliveries.c.target_id == target_id, chosen, deliveries.c.confirmed_at.is_not(None))
        .values(confirmed_at=null())
    ).rowcount
    add_confirmed(connection, target_id, -withdrawn)
    return withdrawn


def confirm_groups(
    connection: Connection, target_id: int, kind: str, month: int, keys: Sequence[str], now: int | None
) -> None:
    """Confirm groups of a month by their keys, where they are accepted; with `now` None take it back."""
    rows = [(now, target_id, kind, month, key, int(State.ACCEPTED)) for key in keys]
    _confirm_groups.run(connection, rows)


_confirm_groups: Final = dialect.Bulk(
    update(groups)
    .where(
        groups.c.target_id == bindparam("target"),
        groups.c.kind == bindparam("of_kind"),
        groups.c.month == bindparam("of_month"),
        groups.c.key == bindparam("of_key"),
        groups.c.state == bindparam("before"),
    )
    .values(confirmed_at=bindparam("confirmed_at")),
    ("confirmed_at", "target", "of_kind", "of_month", "of_key", "before"),
)


_NEW: Final = ("target_id", "run_id", "state", "end_time", "changed_at", "reason")
_insert_deliveries: Final = dialect.Bulk(insert(deliveries).values({name: bindparam(name) for name in _NEW}), _NEW)
UNWANTED: Final = -1
ZERO: Final[ColumnElement[int]] = literal_column("0")
ONE: Final[ColumnElement[int]] = literal_column("1")
ONE_IN_STATE: Final = and_(
    deliveries.c.target_id == bindparam("target"),
    deliveries.c.run_id == bindparam("run"),
    deliveries.c.state == bindparam("before"),
)
_TO: Final = ("changed_at", "reason", "state")
_moved = update(deliveries).values({name: bindparam(name) for name in _TO} | {"stale": ZERO})
_MOVE: Final = (*_TO, "target", "run", "before")
_RUN: Final = _MOVE.index("run")
_move: Final = dialect.Bulk(_moved.where(ONE_IN_STATE, deliveries.c.stale >= ZERO), _MOVE)
_MOVE_SEEN: Final = (*_MOVE, "seen")
_move_seen: Final = dialect.Bulk(_moved.where(ONE_IN_STATE, deliveries.c.stale == bindparam("seen")), _MOVE_SEEN)
EVER: Final = -(2**63)


def in_state(state: State, place: ColumnElement[bool] | None = None) -> ColumnElement[bool]:
    """Deliveries in this state, or those of them that stand behind a place: a lower bound of the end time.

    For an open one the partial index's condition is spelled out, and an end time is asked for (every one will do), or
    SQLite prefers to walk through all deliveries of the target. Of two bounds it may begin at the lower one: there is
    never more than one.
    """
    bound = deliveries.c.end_time >= EVER if place is None and state is not State.ACCEPTED else place
    conditions = [deliveries.c.state == int(state)]
    if state is not State.ACCEPTED:
        conditions.append(OPEN)
    return and_(*conditions) if bound is None else and_(*conditions, bound)


class Standing(msgspec.Struct, frozen=True):
    """How a delivery stands. `sent`: the service has a version of the run, or may have."""

    state: State
    end_time: int
    sent: bool


class Known(msgspec.Struct, frozen=True):
    """How a delivery stands: its state, and why where that says something."""

    target: str
    state: State
    changed_at: int
    confirmed_at: int | None
    batch_id: int | None
    sent_digest: bytes | None
    reason: str | None


def enqueue(connection: Connection, target_id: int, rows: Iterable[tuple[UpsertedRun, State]], now: int) -> None:
    """Put down deliveries of runs that this target did not have before; what is accepted at once is assumed to be."""
    listed = [
        (target_id, put.run_id, int(state), put.end_time, now, ASSUMED if state is State.ACCEPTED else None)
        for put, state in rows
    ]
    _insert_deliveries.run(connection, listed)
    add(connection, target_id, Counter(State(row[2]) for row in listed))


def assumed(connection: Connection, target_id: int) -> int:
    """How many accepted deliveries of a target are assumed to have been made before us: an index scan over those."""
    query = select(func.count()).select_from(deliveries).where(deliveries.c.target_id == target_id, ARE_ASSUMED)
    return int(connection.execute(query).scalar_one())


def states_of(connection: Connection, target_id: int, run_ids: Sequence[int]) -> dict[int, State]:
    """The states of these runs' deliveries to a target; runs without one are left out."""
    found: dict[int, State] = {}
    for start in range(0, len(run_ids), 1000):
        query = select(deliveries.c.run_id, deliveries.c.state).where(
            deliveries.c.target_id == target_id, deliveries.c.run_id.in_(run_ids[start : start + 1000])
        )
        found.update((run_id, State(state)) for run_id, state in connection.execute(query))
    return found


def standings_of(connection: Connection, target_id: int, run_ids: Sequence[int]) -> dict[int, Standing]:
    """How these runs' deliveries to a target stand; runs without one are left out."""
    found: dict[int, Standing] = {}
    for start in range(0, len(run_ids), 1000):
        query = select(
            deliveries.c.run_id, deliveries.c.state, deliveries.c.end_time, deliveries.c.sent_digest.is_not(None)
        ).where(deliveries.c.target_id == target_id, deliveries.c.run_id.in_(run_ids[start : start + 1000]))
        for run_id, state, end_time, sent in connection.execute(query):
            found[run_id] = Standing(State(state), end_time, bool(sent))
    return found


def move(
    connection: Connection, target_id: int, moves: Iterable[tuple[int, State, State, str | None]], now: int
) -> int:
    """Move deliveries: (run id, state it has, state it gets, reason); gives how many. The batch they were last sent in
    stays noted. Those that are in another state by now, or in flight and no longer wanted, are left alone."""
    by_kind: dict[tuple[State, State], list[tuple[Any, ...]]] = defaultdict(list)
    for run_id, before, after, reason in moves:
        by_kind[before, after].append((now, reason, int(after), target_id, run_id, int(before)))
    return _move_all(connection, target_id, _move, by_kind)


def move_seen(
    connection: Connection, target_id: int, moves: Iterable[tuple[int, int, State, State, str | None]], now: int
) -> int:
    """Move deliveries of runs that did not change since: (run id, changes seen, state it has, state it gets, reason).

    Gives how many were moved.
    """
    by_kind: dict[tuple[State, State], list[tuple[Any, ...]]] = defaultdict(list)
    for run_id, seen, before, after, reason in moves:
        by_kind[before, after].append((now, reason, int(after), target_id, run_id, int(before), seen))
    return _move_all(connection, target_id, _move_seen, by_kind)


def _move_all(
    connection: Connection,
    target_id: int,
    statement: dialect.Bulk,
    by_kind: Mapping[tuple[State, State], list[tuple[Any, ...]]],
) -> int:
    total = 0
    for (before, after), rows in by_kind.items():
        if before is State.ACCEPTED:
            withdraw(connection, target_id, [row[_RUN] for row in rows])
        moved = statement.run(connection, rows)
        add(connection, target_id, {before: -moved})
        add(connection, target_id, {after: moved})
        total += moved
    return total


def know_assumed(connection: Connection, target_id: int, digests: Mapping[int, bytes]) -> None:
    """Of these runs, by run id, this is the version that the service has where it was delivered before us."""
    for run_id, digest in digests.items():
        one = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id)
        theirs = and_(one, deliveries.c.state == int(State.ACCEPTED), ARE_ASSUMED, deliveries.c.sent_digest.is_(None))
        connection.execute(update(deliveries).where(theirs).values(sent_digest=digest))


def set_end_times(connection: Connection, target_id: int, puts: Iterable[UpsertedRun]) -> None:
    """Follow runs whose end time changed."""
    for put in puts:
        connection.execute(
            update(deliveries)
            .where(deliveries.c.target_id == target_id, deliveries.c.run_id == put.run_id)
            .values(end_time=put.end_time)
        )


def mark_changed(connection: Connection, target_id: int, run_ids: Iterable[int]) -> None:
    """Remember that runs changed that wait or of which an earlier version is in flight."""
    again = case((deliveries.c.stale < 0, 1), else_=deliveries.c.stale + 1)
    for run_id in run_ids:
        _set_stale(connection, target_id, run_id, again)


def mark_unwanted(connection: Connection, target_id: int, run_ids: Iterable[int]) -> None:
    """Remember that runs in flight are no longer wanted; settled with the batch's answer."""
    for run_id in run_ids:
        _set_stale(connection, target_id, run_id, UNWANTED)


def _set_stale(connection: Connection, target_id: int, run_id: int, value: ColumnElement[int] | int) -> None:
    one = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id)
    connection.execute(update(deliveries).where(one).values(stale=value))


def remove(connection: Connection, target_id: int, gone: Iterable[tuple[int, State]]) -> None:
    """Take back deliveries of runs that the target no longer wants and never got: (run id, state it has)."""
    changes: Counter[State] = Counter()
    gone = list(gone)
    withdraw(connection, target_id, [run_id for run_id, state in gone if state is State.ACCEPTED])
    for run_id, state in gone:
        connection.execute(delete(deliveries).where(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id))
        changes[state] -= 1
    add(connection, target_id, changes)


def note(connection: Connection, target_id: int, notes: Mapping[int, str]) -> None:
    """Note something about deliveries, by run id."""
    for run_id, text in notes.items():
        one = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id)
        connection.execute(update(deliveries).where(one).values(reason=text))


def move_between(
    connection: Connection,
    target_id: int,
    bounds: tuple[int, int],
    before: State,
    after: State,
    reason: str | None,
    now: int,
    *,
    only_reason: str | None = None,
) -> int:
    """Move deliveries from one open state to another that ended within bounds (the second exclusive).

    With `only_reason`, those whose reason begins so.
    """
    first, behind = bounds
    chosen = and_(
        deliveries.c.target_id == target_id,
        in_state(before),
        deliveries.c.end_time >= first,
        deliveries.c.end_time < behind,
    )
    if only_reason is not None:
        chosen = and_(chosen, deliveries.c.reason.startswith(only_reason, autoescape=True))
    moved = connection.execute(
        update(deliveries).where(chosen).values(state=int(after), reason=reason, changed_at=now)
    ).rowcount
    add(connection, target_id, {before: -moved, after: moved})
    return moved


class Shard(msgspec.Struct, frozen=True):
    """The runs whose number leaves `index` when divided by `of`. The default is all of them."""

    index: int = 0
    of: int = 1

    def has(self, run_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """The condition that a run is in it."""
        return run_id % self.of == self.index


WHOLE = Shard()
