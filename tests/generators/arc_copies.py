"""A large accounting database of ARC made of a smaller one, in a tenth of the time that making each job takes.

Each job is there ten times, with ids of its own, ends some seconds apart, and other amounts.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from tests.generators.arc_schema import INDEXES, TABLES

COPIES: Final = 10
_NAMES: Final = ("Endpoints", "Queues", "Users", "WLCGVOs", "Status", "DBConfig")
_SIDES: Final = ("AuthTokenAttributes", "JobEvents", "RunTimeEnvironments", "DataTransfers", "JobExtraInfo")
_RECORD: Final = f"(RecordID - 1) * {COPIES} + copy + 1"
_OTHER: Final = {
    "RecordID": _RECORD,
    "JobID": "JobID || copy",
    "LocalJobID": "LocalJobID || copy",
    "EndTime": "EndTime + 7 * copy * (EndTime > 0)",
    "UsedWalltime": "UsedWalltime + 7 * copy * (EndTime > 0)",
    "UsedCPUUserTime": "UsedCPUUserTime + 5 * copy * (EndTime > 0)",
    "UsedMemory": "UsedMemory + 97 * copy",
}
"""The columns of a copy that are not those of its job: a job in progress has no end."""


def write_copies(fewer: Path, path: Path) -> None:
    """Write a database with ten jobs for each of another one, in their order. Side tables have no index but of ids."""
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("ATTACH ? AS fewer", (str(fewer),))
        for statement in TABLES:
            connection.execute(statement)
        connection.execute("CREATE TEMP TABLE copies (copy INTEGER)")
        connection.executemany("INSERT INTO copies VALUES (?)", [(copy,) for copy in range(COPIES)])
        for table in _NAMES:
            connection.execute(f"INSERT INTO {table} SELECT * FROM fewer.{table}")
        for table in ("AAR", *_SIDES):
            names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            columns = ", ".join(_OTHER.get(name, name) for name in names)
            connection.execute(f"INSERT INTO {table} SELECT {columns} FROM fewer.{table} CROSS JOIN copies")
        for statement in INDEXES:
            if not any(f" ON {table}(" in statement for table in _SIDES) or statement.endswith("(RecordID)"):
                connection.execute(statement)
