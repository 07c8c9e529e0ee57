"""Windows that are being sent again: one a target, from the request until nothing waits for the target any more."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, delete, select

from publisher.store import counters, dialect
from publisher.store.states import State
from publisher.store.tables import resends


class Resend(msgspec.Struct, frozen=True):
    """What somebody asked for: runs that ended from `begins` until `ends` (exclusive); all, or only missing ones."""

    begins: int
    ends: int
    only_missing: bool


def begin(connection: Connection, target_id: int, asked: Resend, now: int) -> None:
    """Remember a request, in place of an earlier one of this target: what that let wait still waits."""
    row = {
        "target_id": target_id,
        "begins": asked.begins,
        "ends": asked.ends,
        "only_missing": int(asked.only_missing),
        "asked_at": now,
    }
    dialect.upsert(connection, resends, [row], keys=("target_id",))


def asked_at(connection: Connection, target_id: int, asked: Resend) -> int | None:
    """When the same was asked for, if that is not done yet."""
    query = select(resends.c.asked_at).where(
        resends.c.target_id == target_id,
        resends.c.begins == asked.begins,
        resends.c.ends == asked.ends,
        resends.c.only_missing == int(asked.only_missing),
    )
    found: int | None = connection.execute(query).scalar_one_or_none()
    return found


def under_way(connection: Connection, target_id: int) -> bool:
    """Whether anything was asked for that is not done yet."""
    return connection.execute(select(resends.c.target_id).where(resends.c.target_id == target_id)).first() is not None


def end_if_done(connection: Connection, target_id: int) -> None:
    """Forget the request of a target for which nothing waits any more. Called after a run that went well."""
    counts = counters.of_target(connection, target_id)
    if not counts[State.WAITING] and not counts[State.IN_FLIGHT]:
        connection.execute(delete(resends).where(resends.c.target_id == target_id))
