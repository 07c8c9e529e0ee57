"""The history: each run of the program that changes what is stored or delivered, and what it did.

A run is recorded when it first needs the store, and again at its end: one that was killed has no end. What it did is
the object that its `--json` prints, without long lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from sqlalchemy import Connection, Select, delete, func, insert, select, update

from formats.calendar import month_bounds, month_of, months_before
from publisher.errors import StoreCorruptError
from publisher.store.schema import program_runs
from publisher.store.stored_json import decoded, read_with

_NOTHING: Final = "{}"
_LARGEST_ID: Final = 2**63 - 1


_LATEST: Final = 2**53
"""Larger instants are damage, as in `publisher.store.admin.column_checks`."""
_Instant = Annotated[int, msgspec.Meta(ge=-_LATEST, le=_LATEST)]


class SourceDone(msgspec.Struct, frozen=True):
    """What a run read from a source. Keys that an earlier version did not record count as 0, here and below."""

    new: int = 0
    changed: int = 0
    unreadable: int = 0
    error: str | None = None
    interrupted: bool = False


class MonthDone(msgspec.Struct, frozen=True):
    """What `reconcile` confirmed of a month."""

    confirmed: int = 0


class TargetDone(msgspec.Struct, frozen=True):
    """What a run sent to a target. `reconcile` alone records the fields from `months` on."""

    accepted: int = 0
    groups: int = 0
    rejected: int = 0
    held: int = 0
    waiting: int = 0
    error: str | None = None
    months: dict[str, MonthDone] | None = None
    no_evidence: str | None = None
    differences_total: int | None = None
    counted_twice: tuple[str, ...] = ()


class ReconciledDone(msgspec.Struct, frozen=True):
    """What the reconciliation within a run found for a target (`publisher.reconcile.schedule`)."""

    confirmed: int = 0
    differences: int = 0
    problem: str | None = None
    unfinished: bool = False
    counted_twice: tuple[str, ...] = ()


class CheckedDone(msgspec.Struct, frozen=True):
    """What the check of a part of the store found."""

    damage: tuple[str, ...] = ()
    error: str | None = None


class RunDone(msgspec.Struct, frozen=True):
    """What a run did: of the object that its `--json` prints, what the history shows. `error`: what ended it."""

    sources: dict[str, SourceDone] = {}
    targets: dict[str, TargetDone] = {}
    reconciled: dict[str, ReconciledDone] = {}
    checked: CheckedDone = CheckedDone()
    problems: tuple[str, ...] = ()
    error: str | None = None


class ProgramRun(msgspec.Struct, frozen=True):
    """A run of the program. Instants are epoch seconds; without `ended_at` it is at work, or was killed.

    `damage`: why a part of the row cannot be read. That part is None, or empty, and nothing else fails: what a run did
    is information, on which nothing depends.
    """

    id: int
    command: str
    host: str
    began_at: int | None
    ended_at: int | None
    exit_code: int | None
    done: RunDone | None
    damage: str | None = None


def begin(connection: Connection, command: str, host: str, now: int, keep_months: int) -> int:
    """Record that a run begins, and forget those that began longer ago than the months to keep; return its id.

    The age is that at the last run, if that is less: one with a clock that is years ahead must not delete the history.
    """
    began_at = program_runs.c.began_at
    last = connection.execute(select(func.max(began_at)).where(began_at.between(0, _LATEST))).scalar()
    oldest = months_before(month_of(now if last is None else min(now, last)), keep_months)
    connection.execute(delete(program_runs).where(began_at < month_bounds(oldest)[0]))
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
    """The runs, the newest first."""
    return _read(connection, select(program_runs).order_by(program_runs.c.id.desc()).limit(limit))


def of_id(connection: Connection, run_id: int) -> ProgramRun | None:
    """The run with this id, if there is one."""
    if not 0 <= run_id <= _LARGEST_ID:  # neither database can compare it with an id
        return None
    return next(iter(_read(connection, select(program_runs).where(program_runs.c.id == run_id))), None)


def _read(connection: Connection, query: Select[Any]) -> list[ProgramRun]:
    return [run_of(dict(row)) for row in connection.execute(query).mappings()]


def run_of(row: Mapping[str, Any]) -> ProgramRun:
    """The run of a row, as far as it can be read."""
    damage = []

    def read(name: str, kind: Any, instead: Any) -> Any:
        what = f"`{name}` of run {row['id']} in the history"
        try:
            if name == "done":
                return decoded(row[name], kind, what)
            return read_with(lambda value: msgspec.convert(value, kind), row[name], what)
        except StoreCorruptError as error:
            damage.append(error.message)
            return instead

    return ProgramRun(
        id=row["id"],
        command=read("command", str, ""),
        host=read("host", str, ""),
        began_at=read("began_at", _Instant, None),
        ended_at=read("ended_at", _Instant | None, None),
        exit_code=read("exit_code", int | None, None),
        done=read("done", RunDone, None),
        damage="; ".join(damage) or None,
    )
