"""Everything that an SQLite store holds, read past the program."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

Contents = dict[str, list[tuple[Any, ...]]]
_SAME_EACH_TIME: Final = {"erased": "pseudonym, erased_at", "changes": "number, kinds, runs"}
"""Of these tables only the columns that nothing random goes into."""


def contents_of(file: Path) -> Contents:
    """Every row of every table, and the names of the indexes; nothing, where nothing is in it. Its pages are sound."""
    if not file.exists() or not file.stat().st_size:
        return {}
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found: Contents = {}
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if not name.startswith(("sqlite_", "alembic_")):
                query = f"SELECT {_SAME_EACH_TIME.get(name, '*')} FROM {name}"
                found[name] = sorted(connection.execute(query).fetchall(), key=repr)
        if not any(found.values()):
            return {}
        indexes = connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'").fetchall()
        return found | {"indexes": sorted(indexes)}
