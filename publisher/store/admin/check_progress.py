"""How far runs of the program checked the store, and the damaged jobs that they found."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
from sqlalchemy import Connection, insert, select, update

from publisher.errors import StoreCorruptError
from publisher.store.schema import check_progress
from publisher.store.stored_json import decoded


class CheckProgress(msgspec.Struct, frozen=True):
    """The last stored job that was checked, when (epoch seconds), and the damaged ones that are known, by their ids."""

    last_id: int
    checked_at: int
    damaged: list[int]


def get(connection: Connection) -> CheckProgress | None:
    """The progress; None before the first check. Raises `StoreCorruptError`."""
    row = connection.execute(select(check_progress)).mappings().first()
    if row is None:
        return None
    damaged = decoded(row["damaged"], list[int], "how far the store was checked")
    return CheckProgress(row["last_id"], row["checked_at"], damaged)


def count_damaged(connection: Connection) -> int:
    """How many stored jobs were found damaged, and were not replaced before the last check.

    Zero if this cannot be read: the next check begins anew, and says so.
    """
    with suppress(StoreCorruptError):
        progress = get(connection)
        return 0 if progress is None else len(progress.damaged)
    return 0


def record(connection: Connection, progress: CheckProgress) -> None:
    """Record the progress of a check."""
    values: dict[str, Any] = {
        "last_id": progress.last_id,
        "checked_at": progress.checked_at,
        "damaged": msgspec.json.encode(progress.damaged).decode(),
    }
    changed = connection.execute(update(check_progress).values(values)).rowcount
    if not changed:
        connection.execute(insert(check_progress).values({"part": "runs", **values}))
