"""Superseded runs that a target still wants: only those are sent again, whoever asks for it.

A run that changed after it was delivered may be none of the target's any more: another status, another VO. What the
service holds of it is to be removed there, and nothing takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, select, true

from publisher.pipeline.wish import Wish
from publisher.store.classes import classes_by_id
from publisher.store.states import State
from publisher.store.tables import deliveries, runs


def superseded(connection: Connection, target_id: int, wish: Wish, window: ColumnElement[bool]) -> ColumnElement[bool]:
    """The condition on deliveries and their runs that they are superseded and still wanted, within `window`."""
    are_superseded = deliveries.c.state == int(State.SUPERSEDED)
    query = (
        select(runs.c.class_id)
        .join(deliveries, deliveries.c.run_id == runs.c.id)
        .where(deliveries.c.target_id == target_id, are_superseded, window)
        .distinct()
    )
    wanted = _wanted_classes(connection, wish, list(connection.execute(query).scalars()))
    ends = true() if wish.since is None else runs.c.end_time >= wish.since
    return and_(are_superseded, runs.c.class_id.in_(sorted(wanted)), runs.c.end_time.is_not(None), ends)


def still_wanted(connection: Connection, wish: Wish, run_ids: Sequence[int]) -> set[int]:
    """Those of these runs that the target wants as they are now."""
    found: list[tuple[int, int, int | None]] = []
    for start in range(0, len(run_ids), 1000):
        query = select(runs.c.id, runs.c.class_id, runs.c.end_time).where(runs.c.id.in_(run_ids[start : start + 1000]))
        found += [(run_id, class_id, end) for run_id, class_id, end in connection.execute(query)]
    wanted = _wanted_classes(connection, wish, list({class_id for _, class_id, _ in found}))
    return {run_id for run_id, class_id, end in found if class_id in wanted and wish.wants_end(end)}


def _wanted_classes(connection: Connection, wish: Wish, ids: Sequence[int]) -> set[int]:
    return {item.id for item in classes_by_id(connection, ids) if wish.wants_class(item)}
