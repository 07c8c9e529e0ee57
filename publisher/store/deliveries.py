"""Deliveries: the outbox and the ledger. Every change of a state goes with its counters, in one transaction.

A run may change, or be no longer wanted, while it is being sent: collecting does not wait for sending. `stale` counts
the changes since a delivery was put down or taken off, so that nothing which was decided from an earlier version
settles a later one; it is `UNWANTED` for a run in flight that is no longer wanted. Counters follow the rows that a
statement really touched. `sent_digest` is that of the version which the service has, or may have.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    null,
    select,
    tuple_,
    update,
)

from formats.month import Month, month_bounds, month_of
from formats.period import Period, PeriodKind, period_of
from publisher.store import confirmations, counters, dialect
from publisher.store.part import WHOLE, Part
from publisher.store.runs import RUN_COLUMNS, Put, StoredRun, stored_run
from publisher.store.states import State
from publisher.store.tables import ARE_ASSUMED, ASSUMED, OPEN, classes, deliveries, runs, sources

_Span = TypeVar("_Span")
_NEW: Final = ("target_id", "run_id", "state", "end_time", "changed_at", "reason")
_insert_deliveries: Final = dialect.Bulk(insert(deliveries).values({name: bindparam(name) for name in _NEW}), _NEW)
UNWANTED: Final = -1
NO_LONGER_WANTED: Final = "the run changed after it was, or may have been, delivered and is no longer wanted"
CHANGED_AFTER: Final = "the run changed after it was, or may have been, delivered; the service keeps its first version"

_ZERO: Final[ColumnElement[int]] = literal_column("0")
_ONE: Final[ColumnElement[int]] = literal_column("1")
_one = and_(
    deliveries.c.target_id == bindparam("target"),
    deliveries.c.run_id == bindparam("run"),
    deliveries.c.state == bindparam("before"),
)
_TO: Final = ("changed_at", "reason", "state")
_moved = update(deliveries).values({name: bindparam(name) for name in _TO} | {"stale": _ZERO})
_MOVE: Final = (*_TO, "target", "run", "before")
_RUN: Final = _MOVE.index("run")
_move: Final = dialect.Bulk(_moved.where(_one, deliveries.c.stale >= _ZERO), _MOVE)
_MOVE_SEEN: Final = (*_MOVE, "seen")
_move_seen: Final = dialect.Bulk(_moved.where(_one, deliveries.c.stale == bindparam("seen")), _MOVE_SEEN)
_AWAY: Final = ("changed_at", "batch_id", "sent_digest")
_away = update(deliveries).where(_one).values({name: bindparam(name) for name in _AWAY})
_may_have_another = and_(bindparam("keeps_first") == _ONE, deliveries.c.sent_digest != bindparam("digest"))
_FLY: Final = (*_AWAY, "keeps_first", "digest", "state", "target", "run", "before")
_fly: Final = dialect.Bulk(
    _away.where(deliveries.c.stale == bindparam("seen")).values(
        state=bindparam("state"), stale=case((_may_have_another, _ONE), else_=_ZERO)
    ),
    (*_FLY, "seen"),
)
_fly_on: Final = dialect.Bulk(
    _away.values(state=bindparam("state"), stale=case((_may_have_another, _ONE), else_=deliveries.c.stale)), _FLY
)


_EVER: Final = -(2**63)
_flying_in: Final = and_(
    deliveries.c.target_id == bindparam("target"),
    deliveries.c.state == bindparam("flight"),
    OPEN,
    deliveries.c.end_time >= literal_column(str(_EVER + 1)),
    deliveries.c.batch_id == bindparam("batch"),
)
_SETTLED: Final = ("state", "changed_at", "reason")
_SETTLE: Final = (*_SETTLED, "target", "flight", "batch")
_settled = update(deliveries).values({name: bindparam(name) for name in _SETTLED} | {"stale": _ZERO})
_not_taken: Final = dialect.Bulk(update(deliveries).where(_flying_in).values(sent_digest=null()), _SETTLE[3:])
_keep_earlier: Final = dialect.Bulk(
    update(deliveries)
    .where(_flying_in, deliveries.c.run_id == bindparam("run"))
    .values(sent_digest=bindparam("earlier")),
    (*_SETTLE[3:], "run", "earlier"),
)
_settle_all: Final = dialect.Bulk(_settled.where(_flying_in), _SETTLE)
_settle_unchanged: Final = dialect.Bulk(_settled.where(_flying_in, deliveries.c.stale == _ZERO), _SETTLE)
_settle_changed: Final = dialect.Bulk(_settled.where(_flying_in, deliveries.c.stale > _ZERO), _SETTLE)
_settle_wanted: Final = dialect.Bulk(_settled.where(_flying_in, deliveries.c.stale >= _ZERO), _SETTLE)


def in_state(state: State) -> ColumnElement[bool]:
    """Deliveries in this state.

    For an open one the partial index's condition is spelled out, and an end time is asked for (every one will do), or
    SQLite prefers to walk through all deliveries of the target.
    """
    condition = deliveries.c.state == int(state)
    return condition if state is State.ACCEPTED else and_(condition, OPEN, deliveries.c.end_time >= _EVER)


class Waiting(msgspec.Struct, frozen=True):
    """A delivery, as a rule one that waits, with its run. `seen`: how often the run had changed when this was read.

    `sent`: the digest of the version that the service has, or may have; known of those that wait or are in flight.
    """

    end_time: int
    run: StoredRun
    seen: int = 0
    sent: bytes | None = None


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


def put_down(connection: Connection, target_id: int, rows: Iterable[tuple[Put, State]], now: int) -> None:
    """Put down deliveries of runs that this target did not have before; what is accepted at once is assumed to be."""
    listed = [
        (target_id, put.run_id, int(state), put.end_time, now, ASSUMED if state is State.ACCEPTED else None)
        for put, state in rows
    ]
    _insert_deliveries.run(connection, listed)
    counters.add(connection, target_id, Counter(State(row[2]) for row in listed))


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
            confirmations.withdraw(connection, target_id, [row[_RUN] for row in rows])
        moved = statement.run(connection, rows)
        counters.add(connection, target_id, {before: -moved})
        counters.add(connection, target_id, {after: moved})
        total += moved
    return total


def set_end_times(connection: Connection, target_id: int, puts: Iterable[Put]) -> None:
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
    confirmations.withdraw(connection, target_id, [run_id for run_id, state in gone if state is State.ACCEPTED])
    for run_id, state in gone:
        connection.execute(delete(deliveries).where(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id))
        changes[state] -= 1
    counters.add(connection, target_id, changes)


def _with_runs() -> Select[Any]:
    joined = (
        deliveries.join(runs, deliveries.c.run_id == runs.c.id)
        .join(classes, runs.c.class_id == classes.c.id)
        .join(sources, classes.c.source_id == sources.c.id)
    )
    return select(deliveries.c.end_time, *RUN_COLUMNS).select_from(joined)


def _waiting(*, behind: bool) -> Select[Any]:
    chosen = (
        select(
            deliveries.c.end_time,
            deliveries.c.run_id,
            deliveries.c.stale,
            deliveries.c.sent_digest,
        )
        .where(
            deliveries.c.target_id == bindparam("target"),
            in_state(State.WAITING),
            deliveries.c.run_id % bindparam("of", type_=BigInteger) == bindparam("index", type_=BigInteger),
        )
        .order_by(deliveries.c.end_time, deliveries.c.run_id)
        .limit(bindparam("most", type_=Integer))
    )
    if behind:
        place = tuple_(bindparam("end", type_=BigInteger), bindparam("run", type_=BigInteger))
        chosen = chosen.where(tuple_(deliveries.c.end_time, deliveries.c.run_id) > place)
    page = chosen.subquery("page")
    joined = (
        page.join(runs, page.c.run_id == runs.c.id)
        .join(classes, runs.c.class_id == classes.c.id)
        .join(sources, classes.c.source_id == sources.c.id)
    )
    return (
        select(page.c.end_time, page.c.stale, page.c.sent_digest, *RUN_COLUMNS)
        .select_from(joined)
        .order_by(page.c.end_time, page.c.run_id)
    )


_first_waiting: Final = _waiting(behind=False)
_next_waiting: Final = _waiting(behind=True)


def waiting(
    connection: Connection, target_id: int, after: tuple[int, int] | None, limit: int, part: Part = WHOLE
) -> list[Waiting]:
    """The next deliveries that wait, oldest end time first, behind `after` (end time, run id): an index scan."""
    values = {"target": target_id, "most": limit, "of": part.of, "index": part.index}
    if after is None:
        found = connection.execute(_first_waiting, values)
    else:
        found = connection.execute(_next_waiting, {**values, "end": after[0], "run": after[1]})
    return [Waiting(row[0], stored_run(row[3:]), row[1], row[2]) for row in found.all()]


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
    read are left waiting. Where the service keeps first versions and may have another one, the run counts as changed.
    """
    flight = int(State.IN_FLIGHT)
    if before is State.IN_FLIGHT:
        rows = [
            (now, batch_id, digest, int(keeps_first), digest, flight, target_id, run_id, flight)
            for run_id, digest, _seen in flying
        ]
        return _fly_on.run(connection, rows)
    waits = int(State.WAITING)
    fresh = [
        (now, batch_id, digest, int(keeps_first), digest, flight, target_id, run_id, waits, seen)
        for run_id, digest, seen in flying
    ]
    taken = _fly.run(connection, fresh)
    counters.add(connection, target_id, {State.WAITING: -taken, State.IN_FLIGHT: taken})
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


def forget_changes(connection: Connection, target_id: int, part: Part = WHOLE) -> None:
    """Let what is in flight count as unchanged, because its present version is sent next."""
    flying = and_(
        deliveries.c.target_id == target_id,
        in_state(State.IN_FLIGHT),
        deliveries.c.stale > 0,
        part.has(deliveries.c.run_id),
    )
    connection.execute(update(deliveries).where(flying).values(stale=0))


def in_flight(connection: Connection, target_id: int, part: Part = WHOLE) -> list[tuple[int, Waiting]]:
    """Every delivery in flight with its batch id, in the order in which they would wait."""
    query = (
        _with_runs()
        .add_columns(deliveries.c.sent_digest, deliveries.c.stale, deliveries.c.batch_id)
        .where(deliveries.c.target_id == target_id, in_state(State.IN_FLIGHT), part.has(deliveries.c.run_id))
        .order_by(deliveries.c.batch_id, deliveries.c.end_time, deliveries.c.run_id)
    )
    found = connection.execute(query).all()
    return [(row[-1], Waiting(row[0], stored_run(row[1:-3]), row[-2], row[-3])) for row in found]


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


def note(connection: Connection, target_id: int, notes: Mapping[int, str]) -> None:
    """Note something about deliveries, by run id."""
    for run_id, text in notes.items():
        one = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == run_id)
        connection.execute(update(deliveries).where(one).values(reason=text))


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
    counters.add(connection, target_id, {State.IN_FLIGHT: -moved, after: moved})
    return moved


def _settle(
    connection: Connection, target_id: int, chosen: ColumnElement[bool], after: State, reason: str | None, now: int
) -> int:
    """Move what is chosen, all of it in flight."""
    moved = connection.execute(
        update(deliveries).where(chosen).values(state=int(after), changed_at=now, reason=reason, stale=0)
    ).rowcount
    counters.add(connection, target_id, {State.IN_FLIGHT: -moved})
    counters.add(connection, target_id, {after: moved})
    return moved


def oldest_waiting(connection: Connection, target_id: int) -> int | None:
    """End time of the oldest run that waits."""
    return connection.execute(_oldest(target_id, State.WAITING)).scalars().first()


def oldest_open(connection: Connection, target_id: int) -> int | None:
    """End time of the oldest run that the service does not have and should: waiting, in flight, held or rejected."""
    states = (State.WAITING, State.IN_FLIGHT, State.HELD, State.REJECTED)
    ends = [connection.execute(_oldest(target_id, state)).scalars().first() for state in states]
    return min((end for end in ends if end is not None), default=None)


def _oldest(target_id: int, state: State) -> Select[Any]:
    return (
        select(deliveries.c.end_time)
        .where(deliveries.c.target_id == target_id, in_state(state))
        .order_by(deliveries.c.end_time)
        .limit(1)
    )


def listed(
    connection: Connection, target_id: int, state: State, limit: int, after: tuple[int, int] | None = None
) -> Iterator[tuple[str, int, str | None, int]]:
    """(record id, end time, reason, run id) of deliveries in an open state, oldest first."""
    query = (
        select(runs.c.record_id, deliveries.c.end_time, deliveries.c.reason, deliveries.c.run_id)
        .join(runs, deliveries.c.run_id == runs.c.id)
        .where(deliveries.c.target_id == target_id, in_state(state))
        .order_by(deliveries.c.end_time, deliveries.c.run_id)
        .limit(limit)
    )
    if after is not None:
        query = query.where(tuple_(deliveries.c.end_time, deliveries.c.run_id) > tuple_(*after))
    for row in connection.execute(query):
        yield row[0], row[1], row[2], row[3]


def settle_unwanted(connection: Connection, target_id: int, now: int, part: Part = WHOLE) -> None:
    """Supersede what is in flight and no longer wanted: the service may have it."""
    unwanted = and_(
        deliveries.c.target_id == target_id,
        in_state(State.IN_FLIGHT),
        deliveries.c.stale < 0,
        part.has(deliveries.c.run_id),
    )
    _settle(connection, target_id, unwanted, State.SUPERSEDED, NO_LONGER_WANTED, now)


def put_back(connection: Connection, target_id: int, state: State, now: int, part: Part = WHOLE) -> int:
    """Let all deliveries in an open state wait again; gives how many. What is no longer wanted is superseded."""
    chosen = and_(deliveries.c.target_id == target_id, in_state(state), part.has(deliveries.c.run_id))
    if state is State.IN_FLIGHT:
        settle_unwanted(connection, target_id, now, part)
    moved = connection.execute(
        update(deliveries).where(chosen).values(state=int(State.WAITING), changed_at=now, reason=None, stale=0)
    ).rowcount
    counters.add(connection, target_id, {state: -moved})
    counters.add(connection, target_id, {State.WAITING: moved})
    return moved


def months_of(connection: Connection, target_id: int, state: State) -> list[Month]:
    """The months in which deliveries in an open state end, oldest first; one index look-up a month."""
    return _spans(_oldest(target_id, state), connection, month_of, lambda month: month_bounds(month)[1])


def periods_of(connection: Connection, target_id: int, state: State, kind: PeriodKind) -> list[Period]:
    """The same of periods."""
    return _spans(_oldest(target_id, state), connection, partial(period_of, kind), lambda period: period.stop)


def _ends_from(target_id: int, first: int) -> Select[Any]:
    """Ends of deliveries in any state, by the index over the ends of runs. No join: the database would rather walk
    through all deliveries of the target, as long as it does not know how many there are."""
    wanted = exists().where(deliveries.c.target_id == target_id, deliveries.c.run_id == runs.c.id)
    return select(runs.c.end_time).where(runs.c.end_time >= first, wanted).order_by(runs.c.end_time).limit(1)


def periods_from(connection: Connection, target_id: int, kind: PeriodKind, first: int) -> list[Period]:
    """The periods in which deliveries in any state end, from the one in which the first of them ends at `first` or
    later; an index look-up for each."""
    ends = _ends_from(target_id, first)
    return _spans(ends, connection, partial(period_of, kind), lambda period: period.stop)


def _spans(
    ends: Select[Any], connection: Connection, span_of: Callable[[int], _Span], behind: Callable[[_Span], int]
) -> list[_Span]:
    """The spans of time that the ends lie in; `ends` gives the first of them."""
    found: list[_Span] = []
    end = connection.execute(ends).scalars().first()
    while end is not None:
        found.append(span_of(end))
        end = connection.execute(ends.where(ends.selected_columns[0] >= behind(found[-1]))).scalars().first()
    return found


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
    counters.add(connection, target_id, {before: -moved, after: moved})
    return moved


def count_waiting_from(connection: Connection, target_id: int, first: int) -> int:
    """How many of those that wait ended at `first` or later."""
    chosen = and_(deliveries.c.target_id == target_id, in_state(State.WAITING), deliveries.c.end_time >= first)
    return connection.execute(select(func.count()).select_from(deliveries).where(chosen)).scalar_one()


def ended_in(
    connection: Connection,
    target_id: int,
    bounds: tuple[int, int],
    after: tuple[int, int] | None,
    limit: int,
    *,
    changed_since: int | None = None,
    only: ColumnElement[bool] | None = None,
) -> tuple[list[tuple[State, Waiting]], tuple[int, int] | None]:
    """The deliveries in any state, with states, of the next so many runs that ended within bounds (the second
    exclusive), by end time; and where to go on (end time, run id), None at the end.

    `changed_since`: only those that were put down or moved then or later; `only`: of runs for which this holds. Runs
    are chosen first by the index over their ends, and their deliveries looked up, as in `publisher.store.sent`.
    """
    first, behind = bounds
    chosen = (
        select(runs.c.id, runs.c.end_time)
        .where(runs.c.end_time >= first, runs.c.end_time < behind)
        .order_by(runs.c.end_time, runs.c.id)
        .limit(limit)
    )
    if after is not None:
        chosen = chosen.where(runs.c.end_time >= after[0], tuple_(runs.c.end_time, runs.c.id) > tuple_(*after))
    if only is not None:
        chosen = chosen.where(only)
    some = chosen.subquery("some")
    wanted = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == some.c.id)
    if changed_since is not None:
        wanted = and_(wanted, deliveries.c.changed_at >= changed_since)
    # Outer joins: the order in which they stand is the one in which they are done.
    joined = (
        some.outerjoin(deliveries, wanted)
        .outerjoin(runs, runs.c.id == deliveries.c.run_id)
        .outerjoin(classes, runs.c.class_id == classes.c.id)
        .outerjoin(sources, classes.c.source_id == sources.c.id)
    )
    columns = (some.c.end_time, some.c.id, deliveries.c.state, deliveries.c.stale, deliveries.c.end_time, *RUN_COLUMNS)
    query = select(*columns).select_from(joined).order_by(some.c.end_time, some.c.id)
    rows = connection.execute(query).all()
    place = (rows[-1][0], rows[-1][1]) if len(rows) == limit else None
    return [(State(row[2]), Waiting(row[4], stored_run(row[5:]), row[3])) for row in rows if row[2] is not None], place
