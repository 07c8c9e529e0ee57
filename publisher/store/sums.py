"""Sums of runs by class and state of their delivery, read from the index over their ends: no record is decoded.

The class of a run and its end, wall and CPU time decide its part in a summary (`publisher.encoded_run`), and they are
columns. Runs whose columns do not suffice are separated: those that lack an amount, and those with an amount or an end
that no message can hold. Memory does not grow with the runs: pages are summed one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    func,
    literal_column,
    not_,
    select,
    tuple_,
)

from formats.apel.fold import LATEST_END, LONGEST_MS, Sums
from publisher.store import paging
from publisher.store.deliveries import state_where
from publisher.store.paging import Place
from publisher.store.schema import OPEN, State, deliveries, purged_runs, runs

PAGE: Final = 20_000
_NOT_DUE: Final = frozenset({State.WAIVED, State.SUPERSEDED})
_SECOND_COLUMN: Final[ColumnElement[Any]] = literal_column("2")
"""The state: written out, PostgreSQL would take its parameters for others than those of the column."""
_BEFORE_ALL: Final = -1
"""Less than any id."""

_amounts: Final[ColumnElement[bool]] = and_(
    runs.c.incomplete_usage == 0, runs.c.wall_ms.between(0, LONGEST_MS), runs.c.cpu_ms.between(0, LONGEST_MS)
)
UNUSABLE: Final[ColumnElement[bool]] = not_(and_(_amounts, runs.c.end_time.between(0, LATEST_END)))
"""The runs that are not in sums here: each must be folded from its record."""


class ClassSums(msgspec.Struct, frozen=True):
    """The sums of runs of a class whose deliveries are in one state and have changed equally often (`revision`).

    `waiting`: their ids, if they wait.
    """

    class_id: int
    state: State
    revision: int
    sums: Sums
    waiting: array[int]


def _chosen(columns: Sequence[ColumnElement[Any]], condition: ColumnElement[bool] | None) -> Select[Any]:
    """Runs that ended within bounds, after a place, by end."""
    place = tuple_(bindparam("end", type_=BigInteger), bindparam("run", type_=BigInteger))
    query = (
        select(*columns)
        .where(
            runs.c.end_time >= bindparam("end", type_=BigInteger),
            runs.c.end_time < bindparam("stop", type_=BigInteger),
            tuple_(runs.c.end_time, runs.c.id) > place,
        )
        .order_by(runs.c.end_time, runs.c.id)
    )
    return query if condition is None else query.where(condition)


def _by_class(
    condition: ColumnElement[bool] | None, as_waiting: ColumnElement[bool] | None = None, *, waiting: bool = False
) -> Select[Any]:
    """A page summed. With its limit and an outer join, runs are selected first and then looked up: see `ended_in`.

    `waiting`: by revision as well, and with the ids of waiting runs as a text.
    """
    columns = (runs.c.id, runs.c.end_time, runs.c.class_id, runs.c.wall_ms, runs.c.cpu_ms)
    page = _chosen(columns, condition).limit(bindparam("most", type_=Integer)).subquery("page")
    mine = and_(deliveries.c.target_id == bindparam("target"), deliveries.c.run_id == page.c.id)
    amounts = (
        func.sum(page.c.wall_ms), func.sum(page.c.cpu_ms), func.min(page.c.end_time), func.max(page.c.end_time),
    ) if condition is not None else ()  # fmt: skip
    state = state_where(as_waiting)
    query = (
        select(page.c.class_id, state, func.count(), *amounts)
        .select_from(page.outerjoin(deliveries, mine))
        .group_by(page.c.class_id, _SECOND_COLUMN)
    )
    if not waiting:
        return query
    ids = func.aggregate_strings(cast(page.c.id, Text), ",").filter(state == int(State.WAITING))
    return query.add_columns(deliveries.c.revision, ids).group_by(deliveries.c.revision)


def _last_of_page(condition: ColumnElement[bool] | None) -> Select[Any]:
    skipped = bindparam("most", type_=Integer) - 1
    return _chosen((runs.c.end_time, runs.c.id), condition).limit(1).offset(skipped)


_summed: Final = (_by_class(_amounts, waiting=True), _last_of_page(_amounts))
_counted: Final = (_by_class(None), _last_of_page(None))
_ended: Final[ColumnElement[bool]] = runs.c.end_time.is_not(None)
_held: Final = (_by_class(_ended), _last_of_page(_ended))


def by_class(
    connection: Connection,
    target_id: int,
    bounds: tuple[int, int],
    page: int = PAGE,
    as_waiting: ColumnElement[bool] | None = None,
) -> Iterator[ClassSums]:
    """The deliveries of a target whose runs ended within bounds (the second exclusive), summed: a class, state, and
    revision may occur more than once. Without `UNUSABLE` runs. `as_waiting`: deliveries that count as waiting."""
    summed = _summed if as_waiting is None else (_by_class(_amounts, as_waiting, waiting=True), _summed[1])
    for class_id, state, jobs, *amounts, revision, ids in _pages(
        connection, summed, target_id, _usable_ends(bounds), page
    ):
        if state is not None:
            waiting = array("q", map(int, ids.split(",") if ids else ()))
            yield ClassSums(class_id, State(state), revision, Sums(jobs, *map(int, amounts)), waiting)


class HeldSums(msgspec.Struct, frozen=True):
    """The sums of runs of a class in the store. `state`: that of their deliveries to a target; None: they have none."""

    class_id: int
    state: State | None
    jobs: int
    wall_ms: int
    cpu_ms: int


def held_by_class(
    connection: Connection, target_id: int, bounds: tuple[int, int], page: int = PAGE
) -> Iterator[HeldSums]:
    """All runs that ended within bounds (the second exclusive), with their deliveries to a target, summed: a class
    and state may occur more than once. An unknown amount is 0."""
    for class_id, state, jobs, wall_ms, cpu_ms, *_ in _pages(connection, _held, target_id, bounds, page):
        yield HeldSums(class_id, None if state is None else State(state), jobs, int(wall_ms), int(cpu_ms))


class StoredSums(msgspec.Struct, frozen=True, gc=False):
    """A run in the store, found by its key."""

    end: int | None
    class_id: int
    wall_ms: int
    cpu_ms: int


def by_key(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, StoredSums]:
    """The runs in the store with these keys (`publisher.encoded_run.run_key`)."""
    query = select(runs.c.record_key, runs.c.end_time, runs.c.class_id, runs.c.wall_ms, runs.c.cpu_ms)
    found = paging.rows_in(connection, query, runs.c.record_key, keys)
    return {bytes(key): StoredSums(end, class_id, wall_ms, cpu_ms) for key, end, class_id, wall_ms, cpu_ms in found}


def purged_among(connection: Connection, keys: Sequence[bytes]) -> set[bytes]:
    """The keys of those runs that were purged."""
    found = paging.rows_in(connection, select(purged_runs.c.run), purged_runs.c.run, keys)
    return {bytes(row[0]) for row in found}


def sent_earlier(connection: Connection, target_id: int, bounds: tuple[int, int]) -> list[tuple[int, int, bytes]]:
    """Run, class, and digest of the version sent of the runs that ended within bounds and of which the service has
    an earlier version than ours: superseded, or waived after that."""
    query = (
        select(deliveries.c.run_id, runs.c.class_id, deliveries.c.sent_digest)
        .select_from(deliveries.join(runs, runs.c.id == deliveries.c.run_id))
        .where(
            deliveries.c.target_id == target_id,
            OPEN,
            deliveries.c.state.in_(sorted(map(int, _NOT_DUE))),
            deliveries.c.sent_digest.is_not(None),
            deliveries.c.end_time >= bounds[0],
            deliveries.c.end_time < bounds[1],
        )
    )
    return [(run_id, class_id, bytes(digest)) for run_id, class_id, digest in connection.execute(query)]


def _usable_ends(bounds: tuple[int, int]) -> tuple[int, int]:
    """Bounds narrowed here: with two lower bounds in a query, SQLite may begin at the lower one, page after page."""
    return max(bounds[0], 0), min(bounds[1], LATEST_END + 1)


def _pages(
    connection: Connection,
    queries: tuple[Select[Any], Select[Any]],
    target_id: int,
    bounds: tuple[int, int],
    page: int,
) -> Iterator[Sequence[Any]]:
    summed, last_of_page = queries

    def read(after: Place | None) -> tuple[Sequence[Any], Place | None]:
        end, run = after or (bounds[0], _BEFORE_ALL)
        values = {"end": end, "run": run, "stop": bounds[1], "most": page}
        last = connection.execute(last_of_page, values).first()
        rows = connection.execute(summed, {**values, "target": target_id}).all()
        return rows, None if last is None else (last[0], last[1])

    for rows in paging.pages(read):
        yield from rows


def due_by_class(connection: Connection, target_id: int, bounds: tuple[int, int], page: int = PAGE) -> dict[int, int]:
    """How many runs of each class that ended within bounds are due to a target: all but waived and superseded ones."""
    due: dict[int, int] = {}
    for class_id, state, jobs in _pages(connection, _counted, target_id, bounds, page):
        if state is not None and State(state) not in _NOT_DUE:
            due[class_id] = due.get(class_id, 0) + jobs
    return due
