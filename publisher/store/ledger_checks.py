"""Checks of deliveries where something is sent: none is left out because a bit of its row, or of an index, changed.

The state of a delivery has no check number. An open state is stored in its row and once more in the index over open
deliveries, and how many are in each state is counted in the transaction that changes them: these must agree.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, and_, func, select

from formats.calendar import Month, month_bounds
from publisher.errors import StoreCorruptError
from publisher.store.deliveries import in_state, of_target
from publisher.store.schema import State, deliveries, runs
from publisher.text import counted

_OPEN: Final = tuple(state for state in State if state is not State.ACCEPTED)
_NEAR: Final = 100
"""How far a run, the first or the last of its month but for its damaged end, may be from the others."""
_of_row: Final = deliveries.alias("of_row")


def require_month(connection: Connection, target_id: int, bounds: tuple[int, int], met: int) -> None:
    """Raise `StoreCorruptError` if the deliveries of a target that ended within bounds (the second exclusive) are not
    as many as were met by the ends of their runs, or if their states are not those of the index over open ones.

    A run whose end is damaged is in no sum of its month, nor is one that seems to be superseded or held, and nothing
    else would show that it is missing. Ids ascend with time: only deliveries of runs near those of the month are read.
    """
    # Selected first: PostgreSQL would look for the least id of all runs, from the first one on.
    ids = select(runs.c.id).where(runs.c.end_time >= bounds[0], runs.c.end_time < bounds[1]).offset(0).subquery("ids")
    first, last = connection.execute(select(func.min(ids.c.id), func.max(ids.c.id))).one()
    query = select(func.count(), *(func.count().filter(deliveries.c.state == int(state)) for state in State)).where(
        deliveries.c.target_id == target_id,
        deliveries.c.run_id.between((first or 0) - _NEAR, (last or 0) + _NEAR),
        deliveries.c.end_time >= bounds[0],
        deliveries.c.end_time < bounds[1],
    )
    number, *in_each = connection.execute(query).one()
    if number < met or (number > met and first is not None):
        raise StoreCorruptError(
            f"the store is damaged: of a month, {number:,} deliveries and {counted(met, 'job')} are "
            "stored, which must be as many"
        )
    if first is None:
        return
    by_row = dict(zip(State, in_each, strict=True))
    for state in _OPEN:
        indexed = select(func.count()).where(
            deliveries.c.target_id == target_id,
            in_state(state, deliveries.c.end_time >= bounds[0]),
            deliveries.c.end_time < bounds[1],
        )
        _require(state, by_row[state], connection.execute(indexed).scalar_one())
    if sum(in_each) != number:
        raise StoreCorruptError("the store is damaged: deliveries are in a state that there is not")


def require_counted(connection: Connection, target_id: int) -> None:
    """Raise `StoreCorruptError` if the deliveries of a target that are to be sent, or to be decided about, are not as
    many as were counted when they got their states. All that wait are read: call it when most were sent."""
    kept = of_target(connection, target_id)
    row = and_(_of_row.c.target_id == deliveries.c.target_id, _of_row.c.run_id == deliveries.c.run_id)
    for state in (State.WAITING, State.IN_FLIGHT):
        query = (
            select(func.count())
            .select_from(deliveries.join(_of_row, row))
            .where(deliveries.c.target_id == target_id, in_state(state), _of_row.c.state == int(state))
        )
        _require(state, connection.execute(query).scalar_one(), kept[state])
    for state in (State.HELD, State.REJECTED):  # there may be many of them for long
        query = select(func.count()).where(deliveries.c.target_id == target_id, in_state(state))
        _require(state, connection.execute(query).scalar_one(), kept[state])


def require_held(connection: Connection, target_id: int, month: Month) -> None:
    """Raise `StoreCorruptError` if runs of a month are damaged, and no delivery of it is held for that or otherwise:
    nothing else would show that its sync counts are not sent."""
    begin, end = month_bounds(month)
    held = select(func.count()).where(
        deliveries.c.target_id == target_id,
        in_state(State.HELD, deliveries.c.end_time >= begin),
        deliveries.c.end_time < end,
    )
    if not connection.execute(held).scalar_one():
        raise StoreCorruptError(
            f"the store is damaged: columns of jobs of {month} are not what was stored, so its sync counts are not sent"
        )


def _require(state: State, stored: int, expected: int) -> None:
    if stored != expected:
        raise StoreCorruptError(
            f"the store is damaged: {stored:,} deliveries in the state {state.word} are stored, "
            f"which must be {expected:,}"
        )
