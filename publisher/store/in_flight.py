"""Flights: deliveries that are on their way in a batch, from the take-off until what became of them is put down.

Every change of a state goes with its counters, as in `publisher.store.deliveries`, which tells of `stale`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    and_,
    bindparam,
    case,
    literal_column,
    null,
    select,
    update,
)

from publisher.store import deliveries as store_deliveries
from publisher.store import dialect
from publisher.store.deliveries import EVER, ONE, ONE_IN_STATE, WHOLE, ZERO, Shard, in_state
from publisher.store.queries import PendingDelivery, with_runs
from publisher.store.runs import stored_run
from publisher.store.schema import OPEN, State, deliveries

NO_LONGER_WANTED: Final = "the run changed after it was, or may have been, delivered and is no longer wanted"
CHANGED_AFTER: Final = "the run changed after it was, or may have been, delivered; the service keeps its first version"
SEVERAL: Final = bytes(16)
"""Instead of the digest of a version: the service may have one of several, the first that reached it."""
_may_have_another = and_(bindparam("keeps_first") == ONE, deliveries.c.sent_digest != bindparam("digest"))
_away = (
    update(deliveries)
    .where(ONE_IN_STATE)
    .values(
        changed_at=bindparam("changed_at"),
        batch_id=bindparam("batch_id"),
        sent_digest=case((_may_have_another, bindparam("several", type_=LargeBinary)), else_=bindparam("digest")),
    )
)
_FLY: Final = ("changed_at", "batch_id", "several", "keeps_first", "digest", "state", "target", "run", "before")
_fly: Final = dialect.Bulk(
    _away.where(deliveries.c.stale == bindparam("seen")).values(
        state=bindparam("state"), stale=case((_may_have_another, ONE), else_=ZERO)
    ),
    (*_FLY, "seen"),
)
_fly_on: Final = dialect.Bulk(
    _away.values(state=bindparam("state"), stale=case((_may_have_another, ONE), else_=deliveries.c.stale)), _FLY
)
_flying_in: Final = and_(
    deliveries.c.target_id == bindparam("target"),
    deliveries.c.state == bindparam("flight"),
    OPEN,
    deliveries.c.end_time >= literal_column(str(EVER + 1)),
    deliveries.c.batch_id == bindparam("batch"),
)
_SETTLED: Final = ("state", "changed_at", "reason")
_SETTLE: Final = (*_SETTLED, "target", "flight", "batch")
_settled = update(deliveries).values({name: bindparam(name) for name in _SETTLED} | {"stale": ZERO})
_not_taken: Final = dialect.Bulk(update(deliveries).where(_flying_in).values(sent_digest=null()), _SETTLE[3:])
_keep_earlier: Final = dialect.Bulk(
    update(deliveries)
    .where(_flying_in, deliveries.c.run_id == bindparam("run"))
    .values(sent_digest=bindparam("earlier")),
    (*_SETTLE[3:], "run", "earlier"),
)
_settle_all: Final = dialect.Bulk(_settled.where(_flying_in), _SETTLE)
_settle_unchanged: Final = dialect.Bulk(_settled.where(_flying_in, deliveries.c.stale == ZERO), _SETTLE)
_settle_changed: Final = dialect.Bulk(_settled.where(_flying_in, deliveries.c.stale > ZERO), _SETTLE)
_settle_wanted: Final = dialect.Bulk(_settled.where(_flying_in, deliveries.c.stale >= ZERO), _SETTLE)


def take_off(
    connection: Connection,
    target_id: int,
    batch_id: int,
    flying: Iterable[tuple[int, bytes, int]],
    now: int,
    *,
    before: State,
    keeps_first: bool,
) -> int:
    """Mark deliveries as in flight in a batch: (run id, digest of the version sent, changes seen); gives how many.

    `before`: they wait, or they are in flight already, in a batch that was not taken. Runs that changed since they were
    read are left waiting. Where the service keeps first versions and may have another one, the run counts as changed,
    and as one of which it may have several, until it is certain that it did not take this one.
    """
    flight = int(State.IN_FLIGHT)
    if before is State.IN_FLIGHT:
        rows = [
            (now, batch_id, SEVERAL, int(keeps_first), digest, flight, target_id, run_id, flight)
            for run_id, digest, _seen in flying
        ]
        return _fly_on.run(connection, rows)
    waits = int(State.WAITING)
    fresh = [
        (now, batch_id, SEVERAL, int(keeps_first), digest, flight, target_id, run_id, waits, seen)
        for run_id, digest, seen in flying
    ]
    taken = _fly.run(connection, fresh)
    store_deliveries.add(connection, target_id, {State.WAITING: -taken, State.IN_FLIGHT: taken})
    return taken


def unchanged(connection: Connection, target_id: int, seen: Mapping[int, int]) -> set[int]:
    """Which of these runs (with the changes seen) wait as they did when they were read."""
    found: set[int] = set()
    run_ids = list(seen)
    for start in range(0, len(run_ids), 1000):
        query = select(deliveries.c.run_id, deliveries.c.stale).where(
            deliveries.c.target_id == target_id,
            deliveries.c.run_id.in_(run_ids[start : start + 1000]),
            in_state(State.WAITING),
        )
        found.update(run_id for run_id, stale in connection.execute(query) if stale == seen[run_id])
    return found


def forget_changes(connection: Connection, target_id: int, part: Shard = WHOLE) -> None:
    """Let what is in flight count as unchanged, because its present version is sent next."""
    flying = and_(
        deliveries.c.target_id == target_id,
        in_state(State.IN_FLIGHT),
        deliveries.c.stale > 0,
        part.has(deliveries.c.run_id),
    )
    connection.execute(update(deliveries).where(flying).values(stale=0))


def in_flight(connection: Connection, target_id: int, part: Shard = WHOLE) -> list[tuple[int, PendingDelivery]]:
    """Every delivery in flight with its batch id, in the order in which they would wait."""
    query = (
        with_runs()
        .add_columns(deliveries.c.sent_digest, deliveries.c.stale, deliveries.c.batch_id)
        .where(deliveries.c.target_id == target_id, in_state(State.IN_FLIGHT), part.has(deliveries.c.run_id))
        .order_by(deliveries.c.batch_id, deliveries.c.end_time, deliveries.c.run_id)
    )
    found = connection.execute(query).all()
    return [(row[-1], PendingDelivery(row[0], stored_run(row[1:-3]), row[-2], row[-3])) for row in found]


def land(
    connection: Connection, target_id: int, batch_id: int, now: int, *, keeps_first: bool, expected: int | None = None
) -> int:
    """Settle the deliveries in flight in a batch that the service took; gives how many. `expected`: there are no more.

    A run that changed while it was in flight waits again or, where the service keeps the first version of a record, is
    superseded.
    """
    batch = (target_id, batch_id)
    landed = _settle_batch(connection, batch, _settle_unchanged, State.ACCEPTED, None, now)
    if expected is None or landed < expected:
        after, why = (State.SUPERSEDED, CHANGED_AFTER) if keeps_first else (State.WAITING, None)
        landed += _settle_batch(connection, batch, _settle_changed, after, why, now)
        landed += _settle_batch(connection, batch, _settle_all, State.SUPERSEDED, NO_LONGER_WANTED, now)
    return landed


def not_taken(connection: Connection, target_id: int, batch_id: int, earlier: Mapping[int, bytes]) -> None:
    """The service surely took nothing of this batch; its deliveries stay in flight.

    `earlier`: the versions that it had before, or may have had, of some of the runs; it has them still.
    """
    batch = (target_id, int(State.IN_FLIGHT), batch_id)
    _not_taken.run(connection, [batch])
    _keep_earlier.run(connection, [(*batch, run_id, digest) for run_id, digest in earlier.items()])


def leave(connection: Connection, target_id: int, batch_id: int, after: State, reason: str | None, now: int) -> int:
    """Settle the deliveries in flight in a batch that the service did not take; gives how many."""
    batch = (target_id, batch_id)
    left = _settle_batch(connection, batch, _settle_wanted, after, reason, now)
    return left + _settle_batch(connection, batch, _settle_all, State.SUPERSEDED, NO_LONGER_WANTED, now)


def _settle_batch(
    connection: Connection, batch: tuple[int, int], statement: dialect.Bulk, after: State, reason: str | None, now: int
) -> int:
    """Move deliveries in flight in a batch (target id, batch id)."""
    target_id, batch_id = batch
    row = (int(after), now, reason, target_id, int(State.IN_FLIGHT), batch_id)
    moved = statement.run(connection, [row])
    store_deliveries.add(connection, target_id, {State.IN_FLIGHT: -moved, after: moved})
    return moved


def _settle(
    connection: Connection, target_id: int, chosen: ColumnElement[bool], after: State, reason: str | None, now: int
) -> int:
    """Move what is chosen, all of it in flight."""
    moved = connection.execute(
        update(deliveries).where(chosen).values(state=int(after), changed_at=now, reason=reason, stale=0)
    ).rowcount
    store_deliveries.add(connection, target_id, {State.IN_FLIGHT: -moved})
    store_deliveries.add(connection, target_id, {after: moved})
    return moved


def settle_unwanted(connection: Connection, target_id: int, now: int, part: Shard = WHOLE) -> None:
    """Supersede what is in flight and no longer wanted: the service may have it."""
    unwanted = and_(
        deliveries.c.target_id == target_id,
        in_state(State.IN_FLIGHT),
        deliveries.c.stale < 0,
        part.has(deliveries.c.run_id),
    )
    _settle(connection, target_id, unwanted, State.SUPERSEDED, NO_LONGER_WANTED, now)


def put_back(connection: Connection, target_id: int, state: State, now: int, part: Shard = WHOLE) -> int:
    """Let all deliveries in an open state wait again; gives how many. What is no longer wanted is superseded."""
    chosen = and_(deliveries.c.target_id == target_id, in_state(state), part.has(deliveries.c.run_id))
    if state is State.IN_FLIGHT:
        settle_unwanted(connection, target_id, now, part)
    moved = connection.execute(
        update(deliveries).where(chosen).values(state=int(State.WAITING), changed_at=now, reason=None, stale=0)
    ).rowcount
    store_deliveries.add(connection, target_id, {state: -moved})
    store_deliveries.add(connection, target_id, {State.WAITING: moved})
    return moved
