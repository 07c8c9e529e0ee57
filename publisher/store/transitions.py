"""Changes of the state of deliveries: the only statements that write a state, or the counters of states.

Each updates its counters in the same transaction, so that `status` never counts, and withdraws the confirmation of what
is no longer accepted: only accepted deliveries can be confirmed. Counters follow the rows that a statement really
changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Text,
    Update,
    and_,
    bindparam,
    delete,
    literal,
    literal_column,
    null,
    update,
)

from formats.rule_codes import Reason
from publisher.reason import ReasonCode, stored
from publisher.store import dialect, paging, prepared
from publisher.store.runs import UpsertedRun
from publisher.store.schema import State, counters, deliveries

CONFIRMED: Final = 101
"""Not a state: confirmed deliveries are accepted ones, counted separately."""
ASSUMED: Final = Reason.of(ReasonCode.ASSUMED)

ZERO: Final[ColumnElement[int]] = literal_column("0")
ONE: Final[ColumnElement[int]] = literal_column("1")
_BEFORE: Final = and_(deliveries.c.target_id == bindparam("target"), deliveries.c.state == bindparam("before"))
_MOVED: Final[Mapping[str, ColumnElement[Any]]] = {
    "state": bindparam("after"),
    "changed_at": bindparam("now"),
    "revision": ZERO,
    "deselected": ZERO,
}
_REASON: Final = ("reason", "reason_parameters")
_WITH_REASON: Final = {**_MOVED, **{name: bindparam(name) for name in _REASON}}
_WITHOUT_REASON: Final = {**_MOVED, **{name: null() for name in _REASON}}
_CONFIRMED: Final = deliveries.c.confirmed_at.is_not(None)


class StateChange(msgspec.Struct, frozen=True):
    """A transition of deliveries of a target that are in the state `before`, at an instant, with its reason."""

    target_id: int
    before: State
    after: State
    now: int
    reason: Reason | None = None


class DeliverySelection:
    """Which deliveries change, prepared: those that meet a condition with these parameters."""

    def __init__(
        self,
        condition: ColumnElement[bool],
        parameters: Sequence[str],
        also: Mapping[str, ColumnElement[Any]] | None = None,
    ) -> None:
        """`also`: further columns that are set, by name; their parameters are among those of the condition."""
        of = ("target", "before", *parameters)
        moving = update(deliveries).where(_BEFORE, condition)
        with_reason = moving.values({**_WITH_REASON, **(also or {})})
        without_reason = moving.values({**_WITHOUT_REASON, **(also or {})})
        withdrawing = update(deliveries).where(_BEFORE, condition, _CONFIRMED).values(confirmed_at=null())
        self.moving_with_reason = prepared.Bulk(with_reason, (*_REASON, "after", "now", *of))
        self.moving = prepared.Bulk(without_reason, ("after", "now", *of))
        self.withdrawing = prepared.Bulk(withdrawing, of)


ONE_RUN: Final = DeliverySelection(
    and_(deliveries.c.run_id == bindparam("run"), deliveries.c.deselected == ZERO), ("run",)
)
"""A run, unless it is in flight and deselected."""
ONE_UNCHANGED: Final = DeliverySelection(
    and_(
        deliveries.c.run_id == bindparam("run"),
        deliveries.c.revision == bindparam("at_revision"),
        deliveries.c.deselected == ZERO,
    ),
    ("run", "at_revision"),
)
"""A run at a revision."""


def transition(
    connection: Connection,
    change: StateChange,
    which: DeliverySelection | ColumnElement[bool],
    rows: Iterable[tuple[Any, ...]] = ((),),
) -> int:
    """Change the state of deliveries; return how many changed. `rows`: values of the parameters of a prepared
    selection."""
    before, after = int(change.before), int(change.after)
    if isinstance(which, DeliverySelection):
        # Before the state changes: afterwards the rows are not found by it, and stay confirmed without being accepted.
        if change.before is State.ACCEPTED:
            rows = list(rows)
            withdrawn = which.withdrawing.run(connection, [(change.target_id, before, *row) for row in rows])
            _count(connection, change.target_id, {CONFIRMED: -withdrawn})
        fixed = (after, change.now, change.target_id, before)
        if change.reason is None:
            moved = which.moving.run(connection, [fixed + row for row in rows])
        else:
            why = stored(change.reason)
            moved = which.moving_with_reason.run(connection, [(*why, *fixed, *row) for row in rows])
    else:
        chosen = and_(deliveries.c.target_id == change.target_id, deliveries.c.state == before, which)
        if change.before is State.ACCEPTED:
            withdraw_where(connection, change.target_id, chosen)
        values = {"after": after, "now": change.now, **dict(zip(_REASON, stored(change.reason), strict=True))}
        moved = connection.execute(update(deliveries).where(chosen).values(_WITH_REASON), values).rowcount
    # By the rows that the statement changed, not by those that were asked for: another process may have moved some.
    if change.before is not change.after:
        _count(connection, change.target_id, {before: -moved, after: moved})
    return moved


_NEW: Final = ("target_id", "run_id", "state", "end_time", "changed_at", "reason")
_insert: Final = prepared.BulkInsert(deliveries, _NEW)


def enqueue(connection: Connection, target_id: int, state: State, found: Sequence[UpsertedRun], now: int) -> None:
    """Record deliveries of runs that are new to this target; what is accepted at once is assumed to be delivered."""
    reason = ASSUMED.code if state is State.ACCEPTED else None
    number = int(state)
    _insert.run(connection, [(target_id, run.run_id, number, run.end_time, now, reason) for run in found])
    _count(connection, target_id, {number: len(found)})


def enqueue_from(
    connection: Connection,
    target_id: int,
    state: State,
    found: Select[tuple[int, int]],
    now: int,
    reason: Reason | None,
) -> None:
    """Record deliveries of the runs (with their ends) that a query returns, without those that exist."""
    code, parameters = stored(reason)
    run_id, end_time = found.selected_columns
    query = found.with_only_columns(
        literal(target_id), run_id, literal(int(state)), end_time, literal(now), literal(code, Text),
        literal(parameters, Text), maintain_column_froms=True,
    )  # fmt: skip
    filled = dialect.insert_from_select(connection, deliveries, (*_NEW, "reason_parameters"), query)
    _count(connection, target_id, {int(state): filled})


def remove(connection: Connection, target_id: int, gone: Iterable[tuple[int, State]]) -> None:
    """Remove deliveries of runs that the target no longer selects and never received: (run id, present state)."""
    for run_id, state in gone:
        remove_where(connection, target_id, state, deliveries.c.run_id == run_id)


def remove_where(connection: Connection, target_id: int, state: State, which: ColumnElement[bool]) -> int:
    """Remove the deliveries in a state that meet a condition; return how many."""
    chosen = and_(deliveries.c.target_id == target_id, deliveries.c.state == int(state), which)
    # Before the rows are gone: their confirmations would stay in the counter.
    if state is State.ACCEPTED:
        withdraw_where(connection, target_id, chosen)
    gone = connection.execute(delete(deliveries).where(chosen)).rowcount
    _count(connection, target_id, {int(state): -gone})
    return gone


def purge(connection: Connection, target_id: int, run_ids: Sequence[int]) -> None:
    """Remove the deliveries of purged runs. The counters still count them."""
    of_target = delete(deliveries).where(deliveries.c.target_id == target_id)
    paging.execute_in(connection, of_target, deliveries.c.run_id, run_ids)


def set_counter(connection: Connection, target_id: int, number: int, jobs: int) -> None:
    """Set a counter, of a state by its number or of what is `CONFIRMED`, to a counted value."""
    row = {"target_id": target_id, "state": number, "jobs": jobs}
    dialect.upsert(connection, counters, [row], keys=("target_id", "state"))


def _count(connection: Connection, target_id: int, differences: Mapping[int, int]) -> None:
    """Add differences to counters, by their numbers."""
    rows = [{"target_id": target_id, "state": number, "jobs": jobs} for number, jobs in differences.items() if jobs]
    dialect.add_up(connection, counters, rows, keys=("target_id", "state"), column="jobs")


_one: Final = and_(deliveries.c.target_id == bindparam("target"), deliveries.c.run_id == bindparam("run"))
_ACCEPTED: Final[ColumnElement[int]] = literal_column(str(int(State.ACCEPTED)))
_confirm: Final = prepared.Bulk(
    update(deliveries)
    .where(_one, deliveries.c.state == _ACCEPTED, deliveries.c.confirmed_at.is_(None))
    .values(confirmed_at=bindparam("confirmed_at")),
    ("confirmed_at", "target", "run"),
)
_withdraw: Final = prepared.Bulk(
    update(deliveries).where(_one, _CONFIRMED).values(confirmed_at=null()), ("target", "run")
)


def confirm(connection: Connection, target_id: int, run_ids: Iterable[int], now: int) -> int:
    """Confirm deliveries that are accepted and not confirmed yet; return how many."""
    confirmed = _confirm.run(connection, [(now, target_id, run_id) for run_id in run_ids])
    _count(connection, target_id, {CONFIRMED: confirmed})
    return confirmed


def withdraw(connection: Connection, target_id: int, run_ids: Iterable[int]) -> int:
    """Withdraw the confirmations of these runs' deliveries; return how many there were."""
    withdrawn = _withdraw.run(connection, [(target_id, run_id) for run_id in run_ids])
    _count(connection, target_id, {CONFIRMED: -withdrawn})
    return withdrawn


def withdraw_where(connection: Connection, target_id: int, which: ColumnElement[bool]) -> int:
    """Withdraw the confirmations of the deliveries of a target that meet a condition; return how many."""
    statement: Update = update(deliveries).where(deliveries.c.target_id == target_id, which, _CONFIRMED)
    withdrawn = connection.execute(statement.values(confirmed_at=null())).rowcount
    _count(connection, target_id, {CONFIRMED: -withdrawn})
    return withdrawn
