"""Counts of the runs that a report read, and the sentences about them: notes, and why nothing matched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from publisher.report.archive import AMOUNTS
from publisher.report.integers import Ints

MOST_SHOWN: Final = 10
"""The most values that are named if nothing matches."""


@dataclass(slots=True)
class Met:
    """Counts and values of the runs that were read, for notes and for the message that nothing matches."""

    runs: int = 0
    """Entries in the interval."""
    matched: int = 0
    backward: int = 0
    """Matching entries that end before they start."""
    there: dict[str, set[str]] = field(default_factory=dict)
    """Existing values of the keys with a pattern; may be incomplete if something matched."""
    lacking: dict[int, int] = field(default_factory=dict)
    """How many matching entries lack an amount, by the bits of `incomplete`, if that column was requested."""
    sql: str = ""
    """The SQL that read the runs."""
    ended: str = ""
    """From when to when the existing runs ended, if none is in the interval: the end of a sentence."""

    def count(self, start: Ints, stop: Ints) -> None:
        """Count matching runs."""
        self.runs += len(start)
        self.matched += len(start)
        self.backward += int(np.count_nonzero(stop < start))

    def count_lacking(self, incomplete: Ints) -> None:
        """Count the amounts that matching runs lack."""
        for bit in AMOUNTS:
            self.lacking[bit] = self.lacking.get(bit, 0) + int(np.count_nonzero(incomplete & bit))

    def add(self, other: Met) -> None:
        """Add the counts of other runs."""
        self.runs += other.runs
        self.matched += other.matched
        self.backward += other.backward
        self.ended = self.ended or other.ended
        if other.sql not in self.sql:  # each month and resource that is added may have the same
            self.sql += other.sql
        for bit, runs in other.lacking.items():
            self.lacking[bit] = self.lacking.get(bit, 0) + runs
        for key, words in other.there.items():
            self.there.setdefault(key, set()).update(words)

    def nothing(self) -> str | None:
        """Why nothing matched, and which values exist; None if something matched."""
        if self.matched:
            return None
        if not self.runs:
            return "no job is in the interval" + (f"; {self.ended}" if self.ended else "")
        there = [
            f"{key} {some(values) or 'is not reported by any source'}" for key, values in sorted(self.there.items())
        ]
        return f"none of the {self.runs:,} jobs in the interval matches; existing values: {'; '.join(there)}"

    def notes(self, lacks: int = 0, *, shows_unknown: bool = False) -> tuple[str, ...]:
        """Notes on the matching runs; `lacks`: the bits of `incomplete` that matter. `shows_unknown`: the report shows
        amounts that are unknown for all runs as such, so they need no note."""
        notes = []
        if self.backward:
            notes.append(f"Jobs that end before they start count with no duration: {self.backward:,}.")
        lacking = {bit: runs for bit, runs in sorted(self.lacking.items()) if runs and bit & lacks}
        unknown = [
            f"{AMOUNTS[bit]} of {runs:,}" for bit, runs in lacking.items() if runs < self.matched or not shows_unknown
        ]
        if unknown:
            notes.append(f"Unknown, and not in the sums: {', '.join(unknown)} of {self.matched:,} jobs.")
        return tuple(notes)


def some(values: set[str]) -> str:
    """The first values in a sentence."""
    shown = sorted(values)[:MOST_SHOWN]
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")
