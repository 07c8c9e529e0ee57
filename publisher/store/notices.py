"""Which troubles somebody was told of, so that he is told once."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, delete, select

from publisher.store import dialect
from publisher.store.tables import notices


def known(connection: Connection) -> dict[str, int]:
    """When each trouble that goes on was told of, by its key."""
    return {row.key: row.told_at for row in connection.execute(select(notices).order_by(notices.c.told_at))}


def remember(connection: Connection, keys: Sequence[str], now: int) -> None:
    """These were told of now."""
    dialect.insert_missing(connection, notices, [{"key": key, "told_at": now} for key in keys])


def forget(connection: Connection, keys: Sequence[str]) -> None:
    """These are over."""
    if keys:
        connection.execute(delete(notices).where(notices.c.key.in_(keys)))
