"""take over: what the publisher before us sent is recorded as delivered, and by whom that was decided.

Only what was never sent from here, and waits or is held, is moved; everything else stays as it is. A shadow does not
stop being one by this: its setting does that, afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import ColumnElement, Connection, and_, true

from publisher.store import dialect, registry
from publisher.store.admin import purge
from publisher.store.schema import State, deliveries
from publisher.store.transitions import ASSUMED, StateChange, transition
from publisher.text import iso


def assume_until(connection: Connection, target_id: int, target: str, until: int, now: int) -> int:
    """Record what ended up to then as delivered before us; gives how many jobs that are."""
    moved = _assume(connection, target_id, deliveries.c.end_time <= until, now)
    detail = f"{moved} jobs that ended up to {iso(until)} count as delivered before us"
    registry.record_action(connection, "take over", target, detail, now)
    return moved


def assume_runs(
    connection: Connection, target_id: int, target: str, run_ids: Iterable[int], evidence: str, now: int
) -> int:
    """Record these runs as delivered before us; `evidence`: by what. Gives how many they are."""
    chosen = (deliveries.c.run_id.in_(some) for some in dialect.chunks(run_ids))
    moved = sum(_assume(connection, target_id, each, now) for each in chosen)
    registry.record_action(
        connection, "take over", target, f"{moved} jobs count as delivered before us: {evidence}", now
    )
    return moved


def _assume(connection: Connection, target_id: int, chosen: ColumnElement[bool], now: int) -> int:
    total = 0
    for state in (State.WAITING, State.HELD):
        theirs = and_(
            deliveries.c.sent_digest.is_(None),
            chosen,
            purge.not_held_for_good() if state is State.HELD else true(),
        )
        total += transition(connection, StateChange(target_id, state, State.ACCEPTED, now, ASSUMED), theirs)
    return total
