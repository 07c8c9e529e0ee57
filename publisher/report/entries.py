"""What the runs of a report are summed by; the entries themselves are those of `publisher.entries`."""

from __future__ import annotations

from typing import Final

from publisher.entries import KEYS, Entry, entries_of

__all__ = ["KEYS", "SUMMED_BY", "Entry", "entries_of"]

SUMMED_BY: Final = (
    "host", "queue", "group", "owner", "project", "department", "pe", "account", "vo", "slots", "month",
)  # fmt: skip
"""What totals are given by."""
