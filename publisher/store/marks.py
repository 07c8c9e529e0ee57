"""What changed in the store since it was looked at: its state at a glance, and a mark of each run.

For programs that keep what they read. Writers come one after the other (`Store.write`), so that ids grow with time.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from sqlalchemy import ColumnElement, Connection, func, select

from publisher.store import audit, dialect
from publisher.store.columns import Rows
from publisher.store.tables import audit as audit_table
from publisher.store.tables import classes, runs, sources
from publisher.times import elapsed_s

State = tuple[object, ...]
Numbers = npt.NDArray[np.int64]

ENDS: Final = (func.min(runs.c.end_time), func.max(runs.c.end_time))
_LENGTH_FACTOR, _CLASS_FACTOR = -0x61C8864680B583EB, -0x3D4D51C2D82B14B1
_IN_A_QUERY: Final = 1000
_RECENT_S: Final = 2


class MarkedRuns(msgspec.Struct, frozen=True):
    """Some runs: their ids, and a mark of each that changes with the run; and what is stored of them, if asked for."""

    ids: Numbers
    marks: Numbers
    rows: Rows


def state_of(connection: Connection, now: int) -> State:
    """What changes whenever runs are stored, changed or purged, or persons forgotten; look-ups in indexes.

    Within seconds of a collect it changes every second, because what is told of a collect is told to the second.
    """
    asked = (*ENDS, func.min(runs.c.id), func.max(runs.c.id))
    ends = [connection.execute(select(one)).scalar() for one in asked]  # one by one: two at once walk through all
    done = select(func.max(audit_table.c.id)).where(audit_table.c.action != audit.LOG_IN)
    read = connection.execute(select(sources).order_by(sources.c.id)).all()
    ages = [elapsed_s(row.last_collected, now) for row in read]
    recent = now if any(age is not None and age <= _RECENT_S for age in ages) else None
    return (*ends, connection.execute(done).scalar(), recent, *map(tuple, read))


def class_marks(connection: Connection) -> dict[int, int]:
    """A mark of each class by its id, within this process."""
    found: dict[int, int] = {}
    with closing(dialect.streamed(connection, select(classes.c.id, classes.c.facts), _IN_A_QUERY)) as pages:
        for page in pages:
            found.update((class_id, hash(bytes(facts))) for class_id, facts in page)
    return found


def end_of_latest(connection: Connection, count: int) -> int | None:
    """When the earliest ended of so many runs that ended last; None where there are no more than so many."""
    if (connection.execute(select(func.max(runs.c.id))).scalar() or 0) <= count:
        return None
    ends = select(runs.c.end_time).where(runs.c.end_time.is_not(None)).order_by(runs.c.end_time.desc())
    end: int | None = connection.execute(ends.limit(1).offset(count)).scalar()
    return None if end is None else end + 1


def marks_only(connection: Connection, from_: int | None, size: int) -> Iterator[MarkedRuns]:
    """Finished runs that ended from `from_` on (None: all), `size` at a time."""
    yield from _marked(connection, from_, size)


def marked_runs(connection: Connection, from_: int | None, size: int) -> Generator[MarkedRuns, None, None]:
    """The same with what is stored of them."""
    yield from _marked(connection, from_, size, runs.c.job)


def _marked(
    connection: Connection, from_: int | None, size: int, *more: ColumnElement[Any]
) -> Generator[MarkedRuns, None, None]:
    query = select(runs.c.id, runs.c.class_id, runs.c.digest, func.length(runs.c.job), *more).where(
        runs.c.finished == 1
    )
    if from_ is not None:
        query = query.where(runs.c.end_time + 0 >= from_)  # most of them: read as they lie, not by the index
    with closing(dialect.streamed(connection, query, size)) as pages:
        for page in pages:
            ids, class_ids, digests, lengths, *blobs = zip(*page, strict=True)
            marks = np.frombuffer(b"".join([bytes(digest[:8]) for digest in digests]), "<i8").astype(np.int64)
            with np.errstate(over="ignore"):
                marks = (
                    marks ^ np.array(lengths, np.int64) * _LENGTH_FACTOR ^ np.array(class_ids, np.int64) * _CLASS_FACTOR
                )
            rows = list(zip(class_ids, blobs[0], strict=True)) if blobs else []
            yield MarkedRuns(np.array(ids, np.int64), marks, rows)


def runs_by_id(connection: Connection, ids: Sequence[int]) -> Iterator[tuple[list[int], Rows]]:
    """Ids, and what is stored, of these runs."""
    for start in range(0, len(ids), _IN_A_QUERY):
        query = select(runs.c.id, runs.c.class_id, runs.c.job).where(runs.c.id.in_(ids[start : start + _IN_A_QUERY]))
        page = connection.execute(query).all()
        yield [row[0] for row in page], [(row[1], row[2]) for row in page]


def running_runs(connection: Connection) -> Rows:
    """What is stored of the runs that are not over."""
    query = select(runs.c.class_id, runs.c.job).where(runs.c.finished == 0, runs.c.end_time.is_(None))
    return [(row[0], row[1]) for row in connection.execute(query)]
