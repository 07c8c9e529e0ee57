"""ARC's publishing.db: for each accounting target up to which end time its jobs were published (facts on ARC)."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import msgspec

from publisher.errors import UsageError


class Watermark(msgspec.Struct, frozen=True):
    """Up to which end time (inclusive) a target got its jobs, and when ARC last reported there; epoch seconds."""

    last_end: int
    last_report: int


def read_watermarks(path: Path) -> dict[str, Watermark]:
    """By the name of the block, such as `arex/jura/sgas:neic`. Nothing is written. Raises `UsageError`."""
    hint = "Name the file with --publishing-db; it belongs to the user of A-REX, as a rule root"
    try:
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    query = "SELECT TargetID, LastEndTime, LastReport FROM AccountingTargets"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            rows = connection.execute(query).fetchall()
    except sqlite3.Error as error:
        raise UsageError(f"{path} is no publishing.db of ARC: {error}", hint=hint) from error
    found: dict[str, Watermark] = {}
    for name, last_end, last_report in rows:
        if isinstance(last_end, int | float) and last_end > 0:
            report = int(last_report) if isinstance(last_report, int | float) else 0
            found[str(name)] = Watermark(int(last_end), report)
    return found
