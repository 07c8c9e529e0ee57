"""The history: each run of the program that changes what is stored or delivered, and what it did.

A run is recorded when it first needs the store, and again at its end: one that was killed has no end. What it did is
the object that its `--json` prints, without long lists.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Select, delete, func, insert, select, update

from formats.calendar import month_bounds, month_of, months_before
from publisher.store.schema import program_runs
from publisher.store.stored_json import decoded

_NOTHING: Final = "{}"
_LARGEST_ID: Final = 2**63 - 1


class ProgramRun(msgspec.Struct, frozen=True):
    """A run of the program. Instants are epoch seconds; without `ended_at` it is at work, or was killed.

    `done`: by `sources`, `targets`, and `reconciled` what was done, and the `error` that ended it.
    """

    id: int
    command: str
    host: str
    began_at: int
    ended_at: int | None
    exit_code: int | None
    done: dict[str, Any]


def begin(connection: Connection, command: str, host: str, now: int, keep_months: int) -> int:
    """Record that a run begins, and forget those that began longer ago than the months to keep; return its id.

    The age is that at the last run, if that is less: one with a clock that is years ahead must not delete the history.
    """
    last = connection.execute(select(func.max(program_runs.c.began_at))).scalar()
    oldest = months_before(month_of(now if last is None else min(now, last)), keep_months)
    connection.execute(delete(program_runs).where(program_runs.c.began_at < month_bounds(oldest)[0]))
    values = {"command": command, "host": host, "began_at": now, "done": _NOTHING}
    return int(connection.execute(insert(program_runs).values(values).returning(program_runs.c.id)).scalar_one())


def end(connection: Connection, run_id: int, now: int, exit_code: int, done: dict[str, Any]) -> None:
    """Record the end of a run."""
    values = {"ended_at": now, "exit_code": exit_code, "done": msgspec.json.encode(done).decode()}
    connection.execute(update(program_runs).where(program_runs.c.id == run_id).values(values))


def count(connection: Connection) -> int:
    """How many runs are recorded."""
    return int(connection.execute(select(func.count()).select_from(program_runs)).scalar_one())


def newest(connection: Connection, limit: int | None = None) -> list[ProgramRun]:
    """The runs, the newest first. Raises `StoreCorruptError`."""
    return _read(connection, select(program_runs).order_by(program_runs.c.id.desc()).limit(limit))


def of_id(connection: Connection, run_id: int) -> ProgramRun | None:
    """The run with this id, if there is one. Raises `StoreCorruptError`."""
    if not 0 <= run_id <= _LARGEST_ID:  # neither database can compare it with an id
        return None
    return next(iter(_read(connection, select(program_runs).where(program_runs.c.id == run_id))), None)


def _read(connection: Connection, query: Select[Any]) -> list[ProgramRun]:
    return [
        ProgramRun(**row | {"done": decoded(row["done"], dict[str, Any], f"run {row['id']} in the history")})
        for row in map(dict, connection.execute(query).mappings())
    ]
