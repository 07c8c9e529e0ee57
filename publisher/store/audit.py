"""What people did: republish, retry, waive, purge, import ... with who, when and to what."""

from __future__ import annotations

import getpass
import os
from typing import Final

import msgspec
from sqlalchemy import Connection, func, insert, select

from publisher.store.tables import audit

LOG_IN: Final = "log in"
"""To the page: what changes nothing in the store."""


class Entry(msgspec.Struct, frozen=True):
    """Something that somebody did."""

    at: int
    who: str
    action: str
    subject: str
    detail: str


def who() -> str:
    """The user who runs the program, and the one behind `sudo` where there is one."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    behind = os.environ.get("SUDO_USER")
    return f"{user} (as {behind})" if behind and behind != user else user


def note(connection: Connection, action: str, subject: str, detail: str, now: int) -> None:
    """Put down what is done, in the transaction that does it."""
    connection.execute(insert(audit).values(at=now, who=who(), action=action, subject=subject, detail=detail))


def count(connection: Connection) -> int:
    """How many entries there are."""
    return connection.execute(select(func.count()).select_from(audit)).scalar_one()


def entries(connection: Connection, limit: int | None = 1000) -> list[Entry]:
    """The latest entries, newest first; None: all."""
    query = (
        select(audit.c.at, audit.c.who, audit.c.action, audit.c.subject, audit.c.detail)
        .order_by(audit.c.id.desc())
        .limit(limit)
    )
    return [Entry(*row) for row in connection.execute(query)]
