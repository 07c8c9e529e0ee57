"""Stored runs many at a time, as they are stored: for reports, which look at a few facts of millions of runs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

from sqlalchemy import Connection, func, or_, select

from formats.month import Month, month_bounds, month_of, months_between
from publisher.store import dialect
from publisher.store.tables import runs, sources

Rows = list[tuple[int, bytes]]
"""Class id and stored job of some runs."""


_MOST: Final = 4
"""A window with more than one in so many of all runs is read from the table as it lies, not by end time."""


def stored_runs(
    connection: Connection, from_: int, until: int | None, size: int, *, running: bool = False
) -> Generator[Rows, None, None]:
    """Finished runs that ended from `from_` until `until` (exclusive; None: open), in no order, `size` at a time.

    With `running`, those that still run are among them.
    """
    end = runs.c.end_time + 0 if _is_most(connection, from_, until) else runs.c.end_time  # a sum is in no index
    ended = (runs.c.finished == 1) & (end >= from_)
    if until is not None:
        ended &= end < until
    query = select(runs.c.class_id, runs.c.job).where(
        or_(ended, (runs.c.finished == 0) & runs.c.end_time.is_(None)) if running else ended
    )
    with closing(dialect.streamed(connection, query, size)) as pages:
        yield from pages


def _is_most(connection: Connection, from_: int, until: int | None) -> bool:
    inside = select(func.count()).select_from(runs).where(runs.c.end_time >= from_)
    if until is not None:
        inside = inside.where(runs.c.end_time < until)
    last = connection.execute(select(func.max(runs.c.id))).scalar_one() or 0
    return bool(connection.execute(inside).scalar_one() * _MOST > last)


def months_ended_in(connection: Connection, start: int | None, stop: int | None) -> list[Month]:
    """The months from the first to the last in which finished runs ended, of those that an interval touches."""
    bounds = select(func.min(runs.c.end_time), func.max(runs.c.end_time)).where(runs.c.finished == 1)
    first, last = connection.execute(bounds).one()
    if first is None:
        return []
    begin = first if start is None else max(first, month_bounds(month_of(start))[0])
    end = last if stop is None else min(last, month_bounds(month_of(stop - 1))[1] - 1)
    return months_between(begin, end + 1) if begin <= end else []


def first_and_last_end(connection: Connection) -> tuple[int, int] | None:
    """When the first and the last run ended; None where none has."""
    # Each by itself is a look into an index, both at once would be a look at every run.
    first, last = (connection.execute(select(end(runs.c.end_time))).scalar_one() for end in (func.min, func.max))
    return None if first is None or last is None else (int(first), int(last))


def has_source_of(connection: Connection, kind: str) -> bool:
    """Whether runs of a source of this kind may be in the store."""
    return connection.execute(select(sources.c.id).where(sources.c.kind == kind).limit(1)).first() is not None
