"""Stored runs for the columns of reports."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing

from sqlalchemy import Connection, func, select

from publisher.store import dialect, paging
from publisher.store.schema import runs, sources

Rows = list[tuple[int, int, bytes]]
"""Id, class id, and stored record of runs."""


def stored_runs(connection: Connection, size: int) -> Generator[Rows, None, None]:
    """All finished runs, in any order, `size` at a time."""
    query = select(runs.c.id, runs.c.class_id, runs.c.job).where(runs.c.finished == 1)
    with closing(dialect.streamed(connection, query, size)) as pages:
        yield from pages


def first_and_last_end(connection: Connection) -> tuple[int | None, int | None]:
    """When the first and the last run ended; None where none has."""
    # Each alone is an index look-up; both in one query would read every run.
    first, last = (connection.execute(select(end(runs.c.end_time))).scalar() for end in (func.min, func.max))
    return first, last


def has_source_of(connection: Connection, kind: str) -> bool:
    """Whether runs of a source of this kind may be in the store."""
    return connection.execute(select(sources.c.id).where(sources.c.kind == kind).limit(1)).first() is not None


def count_runs(connection: Connection) -> int:
    """How many runs there are."""
    return int(connection.execute(select(func.count()).select_from(runs)).scalar_one())


def running_runs(connection: Connection) -> Rows:
    """The stored form of the runs that have not ended."""
    query = select(runs.c.id, runs.c.class_id, runs.c.job).where(runs.c.finished == 0, runs.c.end_time.is_(None))
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]


def rows_of_ranges(connection: Connection, first: int, stop: int, size: int) -> Generator[Rows, None, None]:
    """The finished runs with ids from `first` until `stop` (exclusive), `size` at a time."""
    query = select(runs.c.id, runs.c.class_id, runs.c.job).where(
        runs.c.id >= first, runs.c.id < stop, runs.c.finished == 1
    )
    with closing(dialect.streamed(connection, query, size)) as pages:
        yield from pages


def rows_of_ids(connection: Connection, ids: Sequence[int]) -> Rows:
    """The finished runs with these ids."""
    query = select(runs.c.id, runs.c.class_id, runs.c.job).where(runs.c.finished == 1)
    return [(row[0], row[1], row[2]) for row in paging.rows_in(connection, query, runs.c.id, ids)]
