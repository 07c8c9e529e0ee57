"""The newest runs, of some classes and in some state of delivery: what a person asks for."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, exists, func, select, union, union_all

from publisher.store import dialect, paging
from publisher.store.deliveries import in_state
from publisher.store.prepared import is_member
from publisher.store.schema import State, classes, deliveries, runs, sources
from publisher.store.stored_run import RUN_COLUMNS

_PAGE: Final = 1000


class Newest(msgspec.Struct, frozen=True):
    """Runs that ended from `start` until `stop` (exclusive; None: open), of these classes (None: of all).

    `targets`: only runs with a delivery to one of these (None: any, or none), and in `state` if that is given.
    """

    start: int | None
    stop: int | None
    classes: Collection[int] | None = None
    targets: Collection[int] | None = None
    state: State | None = None

    @property
    def is_of_open_deliveries(self) -> bool:
        """Whether the index over open deliveries has what decides: there may be a million, of which few are wanted."""
        is_open = self.state is not None and self.state is not State.ACCEPTED
        return is_open and bool(self.targets) and self.classes is None


def rows(connection: Connection, chosen: Newest, limit: int | None) -> Generator[list[Any], None, None]:
    """The `RUN_COLUMNS` of these runs, newest first, at most `limit`, some at a time."""
    joined = runs.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)
    query, values = _where(connection, select(*RUN_COLUMNS).select_from(joined), chosen)
    if chosen.is_of_open_deliveries and limit is not None:
        newest = (
            each.order_by(deliveries.c.end_time.desc(), deliveries.c.run_id.desc()).limit(limit).subquery()
            for each in _open(chosen)
        )
        query = query.where(runs.c.id.in_(union_all(*(select(each.c.run_id) for each in newest))))
    ordered = query.order_by(runs.c.end_time.desc(), runs.c.id.desc()).limit(limit)
    return dialect.streamed(connection, ordered, _PAGE, values)


def count(connection: Connection, chosen: Newest) -> int:
    """How many these are: a scan of the index over ends, or of that over open deliveries."""
    if chosen.is_of_open_deliveries:
        query, values = select(func.count()).select_from(union(*_open(chosen)).subquery()), None
    else:
        query, values = _where(connection, select(func.count()).select_from(runs), chosen)
    total: int = connection.execute(query, values).scalar_one()
    return total


def _where(
    connection: Connection, query: Select[Any], chosen: Newest
) -> tuple[Select[Any], dict[str, Any] | None]:  # fmt: skip
    """The query of these runs, and the values of its parameters."""
    values = None
    query = query.where(paging.ended_between(runs.c.end_time, chosen.start, chosen.stop))
    if chosen.classes is not None:
        condition, values = is_member(connection, runs.c.class_id, chosen.classes)
        query = query.where(condition)
    if chosen.targets is not None:
        query = query.where(_delivered(chosen.targets, chosen.state))
    return query, values


def _delivered(targets: Collection[int], state: State | None) -> ColumnElement[bool]:
    """Open deliveries have an index of their own; of the others, each run is asked for its own."""
    to_them = deliveries.c.target_id.in_(sorted(targets))
    if state is None or state is State.ACCEPTED:
        its_own = to_them & (deliveries.c.run_id == runs.c.id)
        return exists().where(its_own if state is None else its_own & in_state(state))
    return runs.c.id.in_(select(deliveries.c.run_id).where(to_them, in_state(state)))


def _open(chosen: Newest) -> Iterator[Select[tuple[int]]]:
    """The runs by their deliveries: the index is over target, state, end, and run."""
    assert chosen.state is not None
    for target_id in sorted(chosen.targets or ()):
        begin = None if chosen.start is None else deliveries.c.end_time >= chosen.start
        query = select(deliveries.c.run_id).where(deliveries.c.target_id == target_id, in_state(chosen.state, begin))
        yield query if chosen.stop is None else query.where(deliveries.c.end_time < chosen.stop)
