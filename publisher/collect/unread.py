"""Files of a source that disappeared before they were read to their end."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from publisher.store import registry

_MOST_NAMED: Final = 5


def unread_error(connection: Connection, source_id: int) -> str | None:
    """Which files of a source disappeared before they were read to their end, for people; None if none did."""
    files = [each.file for each in registry.unread_files(connection, source_id)]
    if not files:
        return None
    named = ", ".join(dict.fromkeys(files[:_MOST_NAMED])) + (" ..." if len(files) > _MOST_NAMED else "")
    return (
        f"not read to the end before it was rotated, cut, or removed: {named}. `usage-publisher collect --unreadable` "
        "says where it was looked for; name its folder in `rotated_to`, or settle it"
    )
