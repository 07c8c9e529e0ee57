"""What the simulated APEL server holds: its tables, by their keys, last message wins (the facts on formats, 4.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

LATEST_END_AFTER_NOW_S: Final = 2 * 86400
"""An end later than this lies in the future, and its message is refused."""

Table = Literal["jobs", "summaries", "normalised", "sync"]

_SUMMARY = (
    "Site", "Month", "Year", "GlobalUserName", "VO", "VORole", "VOGroup", "SubmitHost", "InfrastructureType",
    "ServiceLevelType", "ServiceLevel", "NodeCount", "Processors",
)  # fmt: skip
_NORMALISED = (
    "Site", "Month", "Year", "GlobalUserName", "VO", "VORole", "VOGroup", "SubmitHost", "Infrastructure", "NodeCount",
    "Processors", "ServiceLevelType",
)  # fmt: skip
KEYS: Final[Mapping[Table, tuple[str, ...]]] = {
    "jobs": ("Site", "LocalJobId", "EndTime"),
    "summaries": _SUMMARY,
    "normalised": _NORMALISED,
    "sync": ("Site", "SubmitHost", "Month", "Year"),
}

Key = tuple[str, ...]


class LoadError(ValueError):
    """The loader refuses a message, the whole of it. The text is as the loader's log has it."""


class HeldRow(msgspec.Struct, gc=False):
    """A row: its fields as last received, whose they are, and how often its key came."""

    fields: dict[str, str]
    publisher: str
    received: int


class Tables:
    """The tables of the server. Not for several threads at a time."""

    def __init__(self) -> None:
        self.rows: dict[Table, dict[Key, HeldRow]] = {table: {} for table in KEYS}
        self.record_ids: dict[str, int] = {}

    def replace(self, table: Table, fields: dict[str, str], publisher: str) -> None:
        """REPLACE INTO. Names are compared as MySQL does: without case and trailing blanks."""
        key = tuple(fields.get(name, "None").rstrip(" ").lower() for name in KEYS[table])
        held = self.rows[table].get(key)
        self.rows[table][key] = HeldRow(fields, publisher, 1 if held is None else held.received + 1)
        record_id = fields.get("RecordId")
        if record_id:
            self.record_ids[record_id] = self.record_ids.get(record_id, 0) + 1
