"""Summaries, reports and sync counts as last sent, by target, month or day, and key; and which months are marked.

The month of a group is a number: of a month (`formats.calendar`), for reports of a period (`formats.calendar`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, delete, func, literal, select, update

from formats.calendar import Month, month_numbered, month_of
from publisher.store import dialect
from publisher.store.schema import State, groups

SUMMARY: Final = "summary"
SYNC: Final = "sync"
UTILIZATION: Final = "utilization"
REACH: Final = "reach"
"""How far back the runs of a period reach: what reports of earlier ones are made of."""
DUE: Final = "due"
REFOLD: Final = "refold"
KEPT_SYNC: Final = "kept-sync"
"""What the sync counts of a month were when its jobs were purged: what comes later is added to them."""
_NOT_SENT: Final = (DUE, REFOLD, KEPT_SYNC, REACH)
_SNAPSHOTS: Final = (SUMMARY, UTILIZATION)


class GroupRow(msgspec.Struct, frozen=True):
    """A group as the service has it, or as it is on its way: `body` is its JSON form, `digest` that of its content."""

    month: int
    key: str
    state: State
    digest: bytes
    jobs: int
    body: bytes


def mark(connection: Connection, target_id: int, what: str, end_times: Iterable[int], now: int) -> None:
    """Mark the months of these ends: their sync counts are `DUE`, or their summaries must be folded anew (`REFOLD`)."""
    for month in {month_of(end) for end in end_times}:
        row = {
            "target_id": target_id,
            "kind": what,
            "month": month.number,
            "key": "",
            "state": int(State.WAITING),
            "digest": b"",
            "jobs": 1,
            "body": b"",
            "changed_at": now,
        }
        dialect.add_up(connection, groups, row, keys=("target_id", "kind", "month", "key"), column="jobs")


def marked(connection: Connection, target_id: int, what: str) -> dict[Month, int]:
    """The marked months, oldest first, each with how often it was marked."""
    query = select(groups.c.month, groups.c.jobs).where(groups.c.target_id == target_id, groups.c.kind == what)
    return {month_numbered(number): times for number, times in sorted(tuple(row) for row in connection.execute(query))}


def unmark(connection: Connection, target_id: int, what: str, month: Month, times: int) -> None:
    """What a month was marked for is done, unless it was marked again meanwhile."""
    connection.execute(
        delete(groups).where(
            groups.c.target_id == target_id,
            groups.c.kind == what,
            groups.c.month == month.number,
            groups.c.jobs == times,
        )
    )


def unsettled(connection: Connection, target_id: int, kind: str) -> list[int]:
    """The months, by number, of groups that were on their way when a run ended, or that are to be sent again."""
    query = (
        select(groups.c.month)
        .where(
            groups.c.target_id == target_id,
            groups.c.kind == kind,
            groups.c.state.in_([int(State.IN_FLIGHT), int(State.WAITING)]),
        )
        .distinct()
    )
    return sorted(connection.execute(query).scalars())


def send_again(connection: Connection, target_id: int, months: Iterable[int], now: int) -> None:
    """Let all groups of these months, by number, be sent again, changed or not."""
    connection.execute(
        update(groups)
        .where(groups.c.target_id == target_id, groups.c.month.in_(list(months)), groups.c.kind.not_in(_NOT_SENT))
        .values(state=int(State.WAITING), changed_at=now)
    )


def of_month(connection: Connection, target_id: int, kind: str, month: int) -> dict[str, GroupRow]:
    """The groups of a month by their key."""
    query = select(groups).where(groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month)
    return {
        row["key"]: GroupRow(
            row["month"], row["key"], State(row["state"]), bytes(row["digest"]), row["jobs"], bytes(row["body"])
        )
        for row in connection.execute(query).mappings()
    }


def keep_sync(connection: Connection, month: Month, now: int) -> None:
    """Keep the sync counts of a month for every target, because its jobs are purged.

    They hold what was kept before, when other jobs of the month were.
    """
    connection.execute(delete(groups).where(groups.c.kind == KEPT_SYNC, groups.c.month == month.number))
    counts = select(
        groups.c.target_id, literal(KEPT_SYNC), groups.c.month, groups.c.key, groups.c.state, groups.c.digest,
        groups.c.jobs, groups.c.body, literal(now),
    ).where(groups.c.kind == SYNC, groups.c.month == month.number)  # fmt: skip
    columns = ("target_id", "kind", "month", "key", "state", "digest", "jobs", "body", "changed_at")
    dialect.insert_from_select(connection, groups, columns, counts)


def forget(connection: Connection, target_id: int, kind: str, month: int, keys: Sequence[str]) -> None:
    """Forget groups of a month: others have taken their place."""
    connection.execute(
        delete(groups).where(
            groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month, groups.c.key.in_(keys)
        )
    )


def reaches(connection: Connection, target_id: int) -> dict[int, bytes]:
    """What was put down with `put_reach`, by the period's number."""
    query = select(groups.c.month, groups.c.body).where(groups.c.target_id == target_id, groups.c.kind == REACH)
    return {month: bytes(body) for month, body in connection.execute(query)}


def put_reach(connection: Connection, target_id: int, reached: Mapping[int, bytes], now: int) -> None:
    """Put down how far back the runs of periods reach, by the period's number, in a form of the caller's."""
    values = [
        {
            "target_id": target_id,
            "kind": REACH,
            "month": number,
            "key": "",
            "state": int(State.ACCEPTED),
            "digest": b"",
            "jobs": 0,
            "body": body,
            "batch_id": None,
            "changed_at": now,
        }
        for number, body in reached.items()
    ]
    if values:
        dialect.upsert(connection, groups, values, keys=("target_id", "kind", "month", "key"))


def take_off(
    connection: Connection, target_id: int, kind: str, batch_id: int, rows: Iterable[GroupRow], now: int
) -> None:
    """Put groups down as in flight in a batch."""
    values = [
        {
            "target_id": target_id,
            "kind": kind,
            "month": row.month,
            "key": row.key,
            "state": int(State.IN_FLIGHT),
            "digest": row.digest,
            "jobs": row.jobs,
            "body": row.body,
            "batch_id": batch_id,
            "changed_at": now,
            "confirmed_at": None,
        }
        for row in rows
    ]
    dialect.upsert(connection, groups, values, keys=("target_id", "kind", "month", "key"))


def settle(connection: Connection, target_id: int, batch_id: int, state: State, now: int) -> None:
    """Put down what became of the groups of a batch."""
    connection.execute(
        update(groups)
        .where(
            groups.c.target_id == target_id,
            groups.c.batch_id == batch_id,
            groups.c.state == int(State.IN_FLIGHT),
        )
        .values(state=int(state), changed_at=now)
    )


def count(connection: Connection, target_id: int) -> dict[State, int]:
    """How many summaries or reports of a target are in each state."""
    query = select(groups.c.state).where(groups.c.target_id == target_id, groups.c.kind.in_(_SNAPSHOTS))
    found: dict[State, int] = {}
    for state in connection.execute(query).scalars():
        found[State(state)] = found.get(State(state), 0) + 1
    return found


def count_confirmed(connection: Connection, target_id: int) -> int:
    """How many summaries of a target `reconcile` saw at the service as they were last sent."""
    query = select(func.count()).where(
        groups.c.target_id == target_id, groups.c.kind.in_(_SNAPSHOTS), groups.c.confirmed_at.is_not(None)
    )
    return int(connection.execute(query).scalar_one())
