"""Deliveries: the outbox and the ledger. Their states change in `publisher.store.transitions` alone.

A run may change, or be no longer selected, while it is being sent: collecting does not wait for sending. `revision`
counts the changes of the run since the delivery got its state, so that a decision about an earlier version does not
settle a later one; `deselected` is 1 for a run in flight that is no longer selected. `sent_digest` is the digest of the
version sent last, which the service has or may have; `may_be_one_of_several` says what is unknown of that
(`publisher.store.schema.Ambiguity`).

A shard is a part of a target's deliveries, so that several publishers can work on a large backlog at once. The run's
number decides the shard, so no two publishers read, render, or lock the same rows. Only the publisher with the lock of
a shard works on it; the lock ends with its process.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, case, func, literal_column, null, select, update

from formats.rule_codes import Reason
from publisher.reason import ReasonCode, stored
from publisher.store import paging
from publisher.store.runs import UpsertedRun
from publisher.store.schema import ARE_ASSUMED, OPEN, Ambiguity, BatchState, State, batches, counters, deliveries, runs
from publisher.store.stored_values import bytes_of, state_of
from publisher.store.transitions import (
    ASSUMED,
    CONFIRMED,
    ONE_RUN,
    ONE_UNCHANGED,
    DeliverySelection,
    StateChange,
    transition,
)

IS_ONE_VERSION: Final = deliveries.c.may_be_one_of_several != literal_column(str(int(Ambiguity.VERSION)))
"""The service cannot have an earlier version than was last sent."""


def of_target(connection: Connection, target_id: int) -> dict[State, int]:
    """How many deliveries of a target are in each state; all states are in the result."""
    counts = _counters(connection, target_id)
    return {state: counts.get(state, 0) for state in State}


class HeldFor(msgspec.Struct, frozen=True):
    """The held deliveries of a target with one reason: its code, how many, and when the first was held."""

    code: str
    jobs: int
    since: int


def held_by_reason(connection: Connection, target_id: int) -> list[HeldFor]:
    """Why deliveries of a target are held, by code. All that are held are read."""
    query = (
        select(deliveries.c.reason, func.count(), func.min(deliveries.c.changed_at))
        .where(deliveries.c.target_id == target_id, in_state(State.HELD))
        .group_by(deliveries.c.reason)
        .order_by(deliveries.c.reason)
    )
    return [HeldFor(code or "", jobs, since) for code, jobs, since in connection.execute(query)]


def confirmed(connection: Connection, target_id: int) -> int:
    """How many accepted deliveries of a target `reconcile` has seen at the service."""
    return _counters(connection, target_id).get(CONFIRMED, 0)


def _counters(connection: Connection, target_id: int) -> dict[int, int]:
    query = select(counters.c.state, counters.c.jobs).where(counters.c.target_id == target_id)
    return {row[0]: row[1] for row in connection.execute(query)}


def assumed(connection: Connection, target_id: int) -> int:
    """How many accepted deliveries of a target an earlier publisher is assumed to have made: an index scan over
    those."""
    query = select(func.count()).select_from(deliveries).where(deliveries.c.target_id == target_id, ARE_ASSUMED)
    return int(connection.execute(query).scalar_one())


def in_state(state: State, place: ColumnElement[bool] | None = None) -> ColumnElement[bool]:
    """Deliveries in this state, or those of them after a place: a lower bound of the end time.

    For an open state the condition of the partial index is written out, and an end time is part of the condition (any
    one), or SQLite would read all deliveries of the target. With two bounds it may start at the lower one, so there is
    never more than one.
    """
    bound = deliveries.c.end_time >= paging.EVER if place is None and state is not State.ACCEPTED else place
    conditions = [deliveries.c.state == int(state)]
    if state is not State.ACCEPTED:
        conditions.append(OPEN)
    return and_(*conditions) if bound is None else and_(*conditions, bound)


def on_their_way(connection: Connection, target_id: int, begin: int, end: int) -> dict[State, int]:
    """How many of the deliveries that ended from `begin` until `end` (exclusive) wait, and how many are in flight."""
    query = select(func.count()).where(deliveries.c.target_id == target_id, deliveries.c.end_time < end)
    place = deliveries.c.end_time >= begin
    states = (State.WAITING, State.IN_FLIGHT)
    return {state: connection.execute(query.where(in_state(state, place))).scalar_one() for state in states}


def state_where(as_waiting: ColumnElement[bool] | None) -> ColumnElement[int]:
    """The state of a delivery; `waiting` for those that meet a condition over deliveries."""
    state: ColumnElement[int] = deliveries.c.state
    return state if as_waiting is None else case((as_waiting, int(State.WAITING)), else_=state)


def is_any_waiting_as(
    connection: Connection, target_id: int, bounds: tuple[int, int], as_waiting: ColumnElement[bool]
) -> bool:
    """Whether a delivery of a run that ended within bounds (the second exclusive) counts as waiting by a condition."""
    query = (
        select(deliveries.c.run_id)
        .join(runs, deliveries.c.run_id == runs.c.id)
        .where(
            deliveries.c.target_id == target_id,
            runs.c.end_time >= bounds[0],
            runs.c.end_time < bounds[1],
            as_waiting,
        )
        .limit(1)
    )
    return connection.execute(query).first() is not None


class DeliveryState(msgspec.Struct, frozen=True):
    """The state of a delivery. `sent`: the service has a version of the run, or may have: the one with the digest
    `version`."""

    state: State
    end_time: int
    version: bytes | None
    revision: int
    reason: str | None

    @property
    def sent(self) -> bool:
        """See above."""
        return self.version is not None


def states_of(connection: Connection, target_id: int, run_ids: Sequence[int]) -> dict[int, State]:
    """The states of these runs' deliveries to a target, without runs that have none."""
    return {run_id: each.state for run_id, each in deliveries_of(connection, target_id, run_ids).items()}


def deliveries_of(
    connection: Connection, target_id: int, run_ids: Sequence[int], as_waiting: ColumnElement[bool] | None = None
) -> dict[int, DeliveryState]:
    """The deliveries of these runs to a target, without runs that have none. `as_waiting`: see `state_where`."""
    columns = (deliveries.c.end_time, deliveries.c.sent_digest, deliveries.c.revision, deliveries.c.reason)
    query = select(deliveries.c.run_id, state_where(as_waiting), *columns)
    query = query.where(deliveries.c.target_id == target_id)
    rows = paging.rows_in(connection, query, deliveries.c.run_id, run_ids)
    what = "the digest of a version that was sent"
    return {
        run_id: DeliveryState(
            state_of(state), end_time, None if version is None else bytes_of(version, what), revision, reason
        )
        for run_id, state, end_time, version, revision, reason in rows
    }


def sent_as_they_are(connection: Connection, target_id: int, run_ids: Sequence[int]) -> set[int]:
    """Those of these runs of which the present version was sent last."""
    query = select(deliveries.c.run_id).join(runs, runs.c.id == deliveries.c.run_id)
    query = query.where(deliveries.c.target_id == target_id, deliveries.c.sent_digest == runs.c.digest)
    return {row[0] for row in paging.rows_in(connection, query, deliveries.c.run_id, run_ids)}


def known_there(connection: Connection, target_id: int, run_ids: Sequence[int]) -> set[int]:
    """Those of these runs of which the service accepted what was sent last, and nothing else was sent."""
    query = select(deliveries.c.run_id).join(batches, batches.c.id == deliveries.c.batch_id)
    is_there = and_(batches.c.state == int(BatchState.ACCEPTED), IS_ONE_VERSION)
    query = query.where(deliveries.c.target_id == target_id, is_there)
    return {row[0] for row in paging.rows_in(connection, query, deliveries.c.run_id, run_ids)}


Move = tuple[int, State, State, Reason | None]
"""Run id, present state, new state, reason."""


def move(connection: Connection, target_id: int, moves: Iterable[Move], now: int) -> int:
    """Move deliveries to other states; return how many. Their last batch stays recorded. Those that are in another
    state by now, or in flight and deselected, do not change."""
    rows = ((run_id, before, after, reason, ()) for run_id, before, after, reason in moves)
    return _move(connection, target_id, ONE_RUN, rows, now)


def move_if_unchanged(
    connection: Connection, target_id: int, moves: Iterable[tuple[int, int, State, State, Reason | None]], now: int
) -> int:
    """Move deliveries of runs that still have a revision: (run id, revision, present state, new state, reason).

    Returns how many were moved.
    """
    rows = ((run_id, before, after, reason, (revision,)) for run_id, revision, before, after, reason in moves)
    return _move(connection, target_id, ONE_UNCHANGED, rows, now)


def _move(
    connection: Connection,
    target_id: int,
    which: DeliverySelection,
    moves: Iterable[tuple[int, State, State, Reason | None, tuple[int, ...]]],
    now: int,
) -> int:
    by_change: dict[tuple[State, State, Reason | None], list[tuple[int, ...]]] = defaultdict(list)
    for run_id, before, after, reason, more in moves:
        by_change[before, after, reason].append((run_id, *more))
    return sum(
        transition(connection, StateChange(target_id, before, after, now, reason), which, rows)
        for (before, after, reason), rows in by_change.items()
    )


def move_between(
    connection: Connection,
    bounds: tuple[int, int],
    change: StateChange,
    *,
    only: Collection[str] | None = None,
) -> int:
    """Move deliveries that ended within bounds (the second exclusive); return how many.

    Their present state is an open one. With `only`: those with one of these reasons.
    """
    first, end = bounds
    chosen = and_(in_state(change.before), deliveries.c.end_time >= first, deliveries.c.end_time < end)
    if only is not None:
        chosen = and_(chosen, deliveries.c.reason.in_(only))
    return transition(connection, change, chosen)


def resent(state: State) -> ColumnElement[bool]:
    """Deliveries in this state that wait when the groups of their runs are made again: rejected ones, or accepted ones
    that were sent from here. What is assumed to be delivered stays so."""
    return and_(in_state(state), func.coalesce(deliveries.c.reason, "") != ASSUMED.code)


def blocked() -> ColumnElement[bool]:
    """Deliveries that are held only because the service does not take their total now: the total has them."""
    return and_(in_state(State.HELD), deliveries.c.reason == ReasonCode.BLOCKED.value)


def resend_between(connection: Connection, bounds: tuple[int, int], change: StateChange) -> int:
    """Move the deliveries that are `resent` and ended within bounds (the second exclusive); return how many."""
    first, end = bounds
    ended = and_(deliveries.c.end_time >= first, deliveries.c.end_time < end)
    return transition(connection, change, and_(resent(change.before), ended))


def record_assumed_versions(connection: Connection, target_id: int, digests: Mapping[int, bytes]) -> None:
    """Record, by run id, the version that the service has of runs that an earlier publisher delivered."""
    for run_id, digest in digests.items():
        theirs = and_(deliveries.c.state == int(State.ACCEPTED), ARE_ASSUMED, deliveries.c.sent_digest.is_(None))
        connection.execute(update(deliveries).where(_is(target_id, run_id), theirs).values(sent_digest=digest))


def take_assumed_as_sent(connection: Connection, target_id: int, which: ColumnElement[bool]) -> None:
    """Record that the service has the present version of these runs, where an earlier publisher delivered them."""
    present = select(runs.c.digest).where(runs.c.id == deliveries.c.run_id).scalar_subquery()
    assumed = and_(deliveries.c.target_id == target_id, deliveries.c.state == int(State.ACCEPTED), ARE_ASSUMED)
    unknown = and_(assumed, deliveries.c.sent_digest.is_(None), which)
    connection.execute(update(deliveries).where(unknown).values(sent_digest=present))


def count_perhaps_sent(connection: Connection, target_id: int) -> int:
    """The number of deliveries of which a version was sent and is, or may be, at the service."""
    counts = of_target(connection, target_id)
    sent = sum(counts[state] for state in (State.ACCEPTED, State.IN_FLIGHT, State.SUPERSEDED))
    for state in (State.WAITING, State.REJECTED, State.HELD, State.WAIVED):
        perhaps = (deliveries.c.target_id == target_id, in_state(state), deliveries.c.sent_digest.is_not(None))
        sent += connection.execute(select(func.count()).where(*perhaps)).scalar_one()
    return sent


def forget_sent_versions(connection: Connection, target_id: int, run_ids: Sequence[int]) -> None:
    """Record that the service no longer has any version of these runs."""
    no_version = update(deliveries).values(sent_digest=null(), may_be_one_of_several=0)
    of_target = no_version.where(deliveries.c.target_id == target_id)
    paging.execute_in(connection, of_target, deliveries.c.run_id, run_ids)


def set_end_times(connection: Connection, target_id: int, runs: Iterable[UpsertedRun]) -> None:
    """Update deliveries of runs whose end time changed."""
    for run in runs:
        connection.execute(update(deliveries).where(_is(target_id, run.run_id)).values(end_time=run.end_time))


def mark_changed(connection: Connection, target_id: int, run_ids: Iterable[int]) -> None:
    """Record a change of runs that wait or of which an earlier version is in flight."""
    for run_id in run_ids:
        values = {"revision": deliveries.c.revision + 1, "deselected": 0}
        connection.execute(update(deliveries).where(_is(target_id, run_id)).values(values))


def mark_deselected(connection: Connection, target_id: int, run_ids: Iterable[int]) -> None:
    """Mark runs in flight as no longer selected; they are settled with the outcome of the batch."""
    for run_id in run_ids:
        connection.execute(update(deliveries).where(_is(target_id, run_id)).values(deselected=1))


def set_reasons(connection: Connection, target_id: int, reasons: Mapping[int, Reason]) -> None:
    """Set the reasons of deliveries, by run id."""
    for run_id, reason in reasons.items():
        code, parameters = stored(reason)
        values = {"reason": code, "reason_parameters": parameters}
        connection.execute(update(deliveries).where(_is(target_id, run_id)).values(values))


def _is(target_id: int, run_id: int) -> ColumnElement[bool]:
    return and_(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id)


class Shard(msgspec.Struct, frozen=True):
    """The runs whose number modulo `of` is `index`. The default is all of them."""

    index: int = 0
    of: int = 1

    def has(self, run_id: ColumnElement[Any]) -> ColumnElement[bool]:
        """The condition that a run is in it."""
        return run_id % self.of == self.index


WHOLE = Shard()
