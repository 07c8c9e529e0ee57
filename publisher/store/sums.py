"""Sums of runs by class and state of their delivery, read from the index over their ends: no record is decoded.

The class of a run and its end, wall and CPU time decide its part in a summary (`publisher.encoded_run`), and they are
columns. Runs whose columns do not suffice are separated: those that lack an amount, and those with an amount or an end
that no message can hold. Memory does not grow with the runs: pages are summed one by one.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
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

from formats.totals import LATEST_END, LONGEST_MS, Sums
from publisher.errors import StoreCorruptError
from publisher.store import ledger_checks, paging
from publisher.store.deliveries import state_where
from publisher.store.paging import Place
from publisher.store.row_checks import SUMS_PRIME, is_sum
from publisher.store.schema import OPEN, State, deliveries, purged_runs, runs
from publisher.store.stored_values import bytes_of, revision_of, state_of
from publisher.text import counted

PAGE: Final = 20_000
_NOT_DUE: Final = frozenset({State.WAIVED, State.SUPERSEDED})
_SECOND_COLUMN: Final[ColumnElement[Any]] = literal_column("2")
"""The state: written out, PostgreSQL would take its parameters for others than those of the column."""
_MOST: Final = bindparam("most", type_=Integer)
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


_ROW: Final = (
    runs.c.id, runs.c.class_id, runs.c.end_time, runs.c.wall_ms, runs.c.cpu_ms, runs.c.incomplete_usage,
    runs.c.sums_check,
)  # fmt: skip
"""The columns of a run that are summed, and their check number: all of them are in the index."""


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
    condition: ColumnElement[bool] | None,
    as_waiting: ColumnElement[bool] | None = None,
    *,
    waiting: bool = False,
    amounts_matter: bool = True,
) -> Select[Any]:
    """A page summed. With its limit and an outer join, runs are selected first and then looked up: see `ended_in`.

    `waiting`: by revision as well, and with the ids of waiting runs as a text. `amounts_matter` False: amounts of any
    size, which are only checked.
    """
    page = _chosen(_ROW, condition).limit(_MOST).subquery("page")
    mine = and_(deliveries.c.target_id == bindparam("target"), deliveries.c.run_id == page.c.id)
    amounts = (
        func.sum(page.c.wall_ms if amounts_matter else page.c.wall_ms % SUMS_PRIME),
        func.sum(page.c.cpu_ms if amounts_matter else page.c.cpu_ms % SUMS_PRIME),
        func.min(page.c.end_time), func.max(page.c.end_time),
        func.sum(page.c.id), func.sum(page.c.end_time), func.sum(page.c.incomplete_usage), func.sum(page.c.sums_check),
    )  # fmt: skip
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


class _PagedSums:
    """Sums of a page of runs that meet a condition, as SQL."""

    def __init__(
        self,
        condition: ColumnElement[bool] | None,
        summed: Callable[[ColumnElement[bool] | None], Select[Any]] = _by_class,
    ) -> None:
        self.condition = condition
        self._summed = summed
        self.sums = summed(condition)
        self.last = _chosen((runs.c.end_time, runs.c.id), condition).limit(1).offset(_MOST - 1)
        self.rows = _chosen(_ROW, condition).limit(_MOST)

    def without(self, run_ids: Sequence[int]) -> Select[Any]:
        """The sums of the page without these runs."""
        others = runs.c.id.not_in(run_ids)
        return self._summed(others if self.condition is None else and_(self.condition, others))


_summed: Final = _PagedSums(_amounts, lambda given: _by_class(given, waiting=True))
_counted: Final = _PagedSums(None, lambda given: _by_class(given, amounts_matter=False))
_held: Final = _PagedSums(runs.c.end_time.is_not(None))


def by_class(
    connection: Connection,
    target_id: int,
    bounds: tuple[int, int],
    page: int = PAGE,
    as_waiting: ColumnElement[bool] | None = None,
    damaged: list[int] | None = None,
) -> Iterator[ClassSums]:
    """The deliveries of a target whose runs ended within bounds (the second exclusive), summed: a class, state, and
    revision may occur more than once. Without `UNUSABLE` runs. `as_waiting`: deliveries that count as waiting.

    `damaged`: gets the ids of the runs whose columns are damaged, which are not summed; None: they are an error, as for
    the other sums here.
    """
    summed = _summed
    if as_waiting is not None:
        summed = _PagedSums(_amounts, lambda given: _by_class(given, as_waiting, waiting=True))
    for class_id, state, jobs, *amounts, revision, ids in _pages(
        connection, summed, target_id, _usable_ends(bounds), page, damaged
    ):
        if state is not None:
            waiting = array("q", map(int, ids.split(",") if ids else ()))
            yield ClassSums(
                class_id, state_of(state), revision_of(revision), Sums(jobs, *map(int, amounts[:4])), waiting
            )


class StateSums(msgspec.Struct, frozen=True):
    """The sums of runs of a class in the store. `state`: that of their deliveries to a target; None: they have none."""

    class_id: int
    state: State | None
    jobs: int
    wall_ms: int
    cpu_ms: int


def by_class_and_state(
    connection: Connection, target_id: int, bounds: tuple[int, int], page: int = PAGE
) -> Iterator[StateSums]:
    """All runs that ended within bounds (the second exclusive), with their deliveries to a target, summed: a class
    and state may occur more than once. An unknown amount is 0."""
    for class_id, state, jobs, wall_ms, cpu_ms, *_ in _pages(connection, _held, target_id, bounds, page):
        yield StateSums(class_id, None if state is None else state_of(state), jobs, int(wall_ms), int(cpu_ms))


class StoredSums(msgspec.Struct, frozen=True, gc=False):
    """A run in the store, found by its key."""

    end: int | None
    class_id: int
    wall_ms: int
    cpu_ms: int


def by_key(connection: Connection, keys: Sequence[bytes]) -> dict[bytes, StoredSums]:
    """The runs in the store with these keys (`publisher.encoded_run.run_key`)."""
    query = select(runs.c.record_key, runs.c.end_time, runs.c.class_id, runs.c.wall_ms, runs.c.cpu_ms)
    rows = paging.rows_in(connection, query, runs.c.record_key, keys)
    return {bytes(key): StoredSums(end, class_id, wall_ms, cpu_ms) for key, end, class_id, wall_ms, cpu_ms in rows}


def purged_among(connection: Connection, keys: Sequence[bytes]) -> set[bytes]:
    """The keys of those runs that were purged."""
    rows = paging.rows_in(connection, select(purged_runs.c.run), purged_runs.c.run, keys)
    return {bytes(row[0]) for row in rows}


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
    return [
        (run_id, class_id, bytes_of(digest, f"the digest of job {run_id}"))
        for run_id, class_id, digest in connection.execute(query)
    ]


def _usable_ends(bounds: tuple[int, int]) -> tuple[int, int]:
    """Bounds narrowed here: with two lower bounds in a query, SQLite may begin at the lower one, page after page."""
    return max(bounds[0], 0), min(bounds[1], LATEST_END + 1)


def _pages(
    connection: Connection,
    queries: _PagedSums,
    target_id: int,
    bounds: tuple[int, int],
    page: int,
    damaged: list[int] | None = None,
) -> Iterator[Sequence[Any]]:
    def read(after: Place | None) -> tuple[Sequence[Any], Place | None]:
        end, run = after or (bounds[0], _BEFORE_ALL)
        values = {"end": end, "run": run, "stop": bounds[1], "most": page, "target": target_id}
        last = connection.execute(queries.last, values).first()
        rows = connection.execute(queries.sums, values).all()
        if not all(map(_is_sound, rows)):
            wrong = [row.id for row in connection.execute(queries.rows, values) if not _row_is_sound(row)]
            if damaged is None or not wrong:
                raise _corrupt(len(wrong))
            damaged.extend(wrong)
            rows = connection.execute(queries.without(wrong), {**values, "most": page - len(wrong)}).all()
            if not all(map(_is_sound, rows)):
                raise _corrupt(len(wrong))
        return rows, None if last is None else (last[0], last[1])

    for rows in paging.pages(read):
        yield from rows


def _is_sound(row: Sequence[Any]) -> bool:
    """Whether the sums of a row are those of columns as they were stored (`publisher.store.row_checks`)."""
    class_id, _state, jobs, wall_ms, cpu_ms, _first, _last, ids, ends, incomplete, check = row[:11]
    try:
        return is_sum(int(check), *map(int, (ids, class_id * jobs, ends, wall_ms, cpu_ms, incomplete)))
    except (TypeError, ValueError):  # in a damaged SQLite store a value may be of any type
        return False


def _row_is_sound(row: Sequence[Any]) -> bool:
    *columns, check = row
    try:
        return is_sum(check, *columns)
    except TypeError:
        return False


def _corrupt(number: int) -> StoreCorruptError:
    return StoreCorruptError(
        f"the store is damaged: the columns of {counted(number, 'job')} are not what was stored, so sums cannot be made"
    )


def due_by_class(
    connection: Connection,
    target_id: int,
    bounds: tuple[int, int],
    page: int = PAGE,
    damaged: list[int] | None = None,
) -> dict[int, int]:
    """How many runs of each class that ended within bounds are due to a target: all but waived and superseded ones.

    `damaged`: as in `by_class`.
    """
    due: dict[int, int] = {}
    met = 0
    for class_id, state, jobs, *_ in _pages(connection, _counted, target_id, bounds, page, damaged):
        if state is None:
            continue
        met += jobs
        if state_of(state) not in _NOT_DUE:
            due[class_id] = due.get(class_id, 0) + jobs
    if not damaged:
        ledger_checks.require_month(connection, target_id, bounds, met)
    return due
