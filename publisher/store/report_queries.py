"""Stored runs for reports, which look at a few facts of millions of runs; and what changed in the store since the last
look.

For programs that cache what they read: the state of the store, and a mark of each run. Writers are serialised
(`Store.write`), so ids grow with time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Connection, func, or_, select

from formats.calendar import Month, month_bounds, month_of, months_between
from publisher.store import dialect, paging, registry
from publisher.store.schema import audit as audit_table
from publisher.store.schema import classes, runs, sources
from publisher.text import elapsed_s

Rows = list[tuple[int, int, bytes]]
"""Id, class id, and stored record of runs."""


_MOST: Final = 4
"""A window with more than one in this many runs is read in table order, not by end time."""


def stored_runs(
    connection: Connection, from_: int, until: int | None, size: int, *, running: bool = False
) -> Generator[Rows, None, None]:
    """Finished runs that ended from `from_` until `until` (exclusive; None: open), in any order, `size` at a time.

    With `running`, also those that still run.
    """
    end = runs.c.end_time + 0 if _is_most(connection, from_, until) else runs.c.end_time  # no index has a sum
    ended = (runs.c.finished == 1) & (end >= from_)
    if until is not None:
        ended &= end < until
    query = select(runs.c.id, runs.c.class_id, runs.c.job).where(
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
    # Each alone is an index look-up; both in one query would read every run.
    first, last = (connection.execute(select(end(runs.c.end_time))).scalar_one() for end in (func.min, func.max))
    return None if first is None or last is None else (int(first), int(last))


def has_source_of(connection: Connection, kind: str) -> bool:
    """Whether runs of a source of this kind may be in the store."""
    return connection.execute(select(sources.c.id).where(sources.c.kind == kind).limit(1)).first() is not None


State = tuple[object, ...]
Numbers = npt.NDArray[np.int64]

ENDS: Final = (func.min(runs.c.end_time), func.max(runs.c.end_time))
_LENGTH_FACTOR, _CLASS_FACTOR = -0x61C8864680B583EB, -0x3D4D51C2D82B14B1
_CLASSES_AT_ONCE: Final = 1000
_RECENT_S: Final = 2


class MarkedRuns(msgspec.Struct, frozen=True):
    """Runs: their ids, a mark of each that changes with the run, and their stored form if requested."""

    ids: Numbers
    marks: Numbers
    rows: Rows


def state_of(connection: Connection, now: int) -> State:
    """Return a value that changes whenever runs are stored, changed, or purged, or persons forgotten; index look-ups.

    Just after a collect it changes every second, because collects are recorded to the second.
    """
    asked = (*ENDS, func.min(runs.c.id), func.max(runs.c.id))
    ends = [connection.execute(select(one)).scalar() for one in asked]  # one by one: both in one query would read all
    done = select(func.max(audit_table.c.id)).where(audit_table.c.action != registry.LOG_IN)
    read = connection.execute(select(sources).order_by(sources.c.id)).all()
    ages = [elapsed_s(row.last_collected, now) for row in read]
    recent = now if any(age is not None and age <= _RECENT_S for age in ages) else None
    return (*ends, connection.execute(done).scalar(), recent, *map(tuple, read))


def class_marks(connection: Connection) -> dict[int, int]:
    """A mark of each class by its id, valid within this process."""
    found: dict[int, int] = {}
    with closing(dialect.streamed(connection, select(classes.c.id, classes.c.facts), _CLASSES_AT_ONCE)) as pages:
        for page in pages:
            found.update((class_id, hash(bytes(facts))) for class_id, facts in page)
    return found


def end_of_latest(connection: Connection, count: int) -> int | None:
    """The earliest end of the n runs that ended last; None if there are no more than n."""
    if (connection.execute(select(func.max(runs.c.id))).scalar() or 0) <= count:
        return None
    ends = select(runs.c.end_time).where(runs.c.end_time.is_not(None)).order_by(runs.c.end_time.desc())
    end: int | None = connection.execute(ends.limit(1).offset(count)).scalar()
    return None if end is None else end + 1


def marks_only(connection: Connection, from_: int | None, size: int) -> Iterator[MarkedRuns]:
    """Finished runs that ended from `from_` on (None: all), `size` at a time."""
    yield from _marked(connection, from_, size)


def marked_runs(connection: Connection, from_: int | None, size: int) -> Generator[MarkedRuns, None, None]:
    """The same with their stored form."""
    yield from _marked(connection, from_, size, runs.c.job)


def _marked(
    connection: Connection, from_: int | None, size: int, *more: ColumnElement[Any]
) -> Generator[MarkedRuns, None, None]:
    query = select(runs.c.id, runs.c.class_id, runs.c.digest, func.length(runs.c.job), *more).where(
        runs.c.finished == 1
    )
    if from_ is not None:
        query = query.where(runs.c.end_time + 0 >= from_)  # most of them: read in table order, not by the index
    with closing(dialect.streamed(connection, query, size)) as pages:
        for page in pages:
            ids, class_ids, digests, lengths, *blobs = zip(*page, strict=True)
            marks = np.frombuffer(b"".join([bytes(digest[:8]) for digest in digests]), "<i8").astype(np.int64)
            with np.errstate(over="ignore"):
                marks = (
                    marks ^ np.array(lengths, np.int64) * _LENGTH_FACTOR ^ np.array(class_ids, np.int64) * _CLASS_FACTOR
                )
            rows = list(zip(ids, class_ids, blobs[0], strict=True)) if blobs else []
            yield MarkedRuns(np.array(ids, np.int64), marks, rows)


def runs_by_id(connection: Connection, ids: Sequence[int]) -> Iterator[tuple[list[int], Rows]]:
    """Ids and stored form of these runs."""
    query = select(runs.c.id, runs.c.class_id, runs.c.job)
    for page in paging.chunks(paging.rows_in(connection, query, runs.c.id, ids)):
        yield [row[0] for row in page], [(row[0], row[1], row[2]) for row in page]


def running_runs(connection: Connection) -> Rows:
    """The stored form of the runs that have not ended."""
    query = select(runs.c.id, runs.c.class_id, runs.c.job).where(runs.c.finished == 0, runs.c.end_time.is_(None))
    return [(row[0], row[1], row[2]) for row in connection.execute(query)]
