"""Many rows and keys, some at a time: memory does not grow with their number, nor a statement with that of its keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Delete, Select, Update, and_

Rows = TypeVar("Rows")
_Value = TypeVar("_Value")
Place = tuple[int, int]
"""The end of a page: end time and run id of its last row."""
EVER: Final = -(2**63)
"""A lower bound of ends that excludes none."""


def ended_between(end: ColumnElement[int], start: int | None, stop: int | None) -> ColumnElement[bool]:
    """Whether an end is known, and from `start` until `stop` (exclusive; None: open).

    Also an open beginning is a bound: for IS NOT NULL alone, SQLite reads all rows instead of an index of ends.
    """
    begins = end >= (EVER if start is None else start)
    return begins if stop is None else and_(begins, end < stop)


def chunks(values: Iterable[_Value], size: int = 1000) -> Iterator[list[_Value]]:
    """Cut a sequence, in order, into parts that fit into one statement."""
    left = iter(values)
    while some := list(islice(left, size)):
        yield some


def rows_in(
    connection: Connection, query: Select[Any], column: ColumnElement[Any], values: Iterable[Any]
) -> Iterator[Any]:
    """The rows of a query whose column has one of these values, in any order."""
    for some in chunks(values):
        yield from connection.execute(query.where(column.in_(some)))


def execute_in(
    connection: Connection, statement: Update | Delete, column: ColumnElement[Any], values: Iterable[Any]
) -> int:
    """Update or delete the rows whose column has one of these values; return how many there were."""
    return sum(connection.execute(statement.where(column.in_(some))).rowcount for some in chunks(values))


def pages(page: Callable[[Place | None], tuple[Rows, Place | None]]) -> Iterator[Rows]:
    """Yield what `page` reads, page by page.

    `page` gets the place where the previous page ended, None at first, and returns where its own ended, None for the
    last.
    """
    after: Place | None = None
    while True:
        rows, after = page(after)
        yield rows
        if after is None:
            return


def pages_by_id(
    connection: Connection, query: Select[Any], column: ColumnElement[int], size: int
) -> Iterator[Sequence[Any]]:
    """Yield the rows of a query, whose first column is the id in `column`, by id; they may be changed meanwhile."""
    last: int | None = None
    while True:
        later = query if last is None else query.where(column > last)
        rows = connection.execute(later.order_by(column).limit(size)).all()
        yield rows
        if len(rows) < size:
            return
        last = rows[-1][0]
