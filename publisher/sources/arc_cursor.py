"""Where reading of an ARC database stopped, and how that is written down small.

The cursor is the memory by which `publisher.sources.arc` keeps its promise that no finished job is ever missed; what
each part is for is told there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from publisher.sources.base import Cursor

Slice = tuple[int, int | None, str]
"""A span of AAR.EndTime (from, before; None is open) and the digest of the rows of table AAR in it."""


class ArcCursor(msgspec.Struct, frozen=True):
    """All that is remembered between two reads.

    `last` is the highest RecordID looked at and `anchor` its JobID; `pending` the RecordIDs up to it that were not yet
    given as finished jobs, `reported` those of them that were reported as unreadable (both packed, see `pack`);
    `marks` the highest rowid of each side table and `slices` the rows of the overlap, both as they were *before* the
    read began.
    """

    last: int = 0
    anchor: str | None = None
    pending: str = ""
    reported: str = ""
    marks: dict[str, int] = {}
    slices: tuple[Slice, ...] = ()

    @classmethod
    def of(cls, cursor: Cursor) -> ArcCursor:
        """From its plain form. One that is not ours stands for the beginning: reading all again changes nothing."""
        try:
            found = msgspec.convert(dict(cursor), cls)
            unpack(found.pending)
            unpack(found.reported)
        except (msgspec.ValidationError, ValueError):
            return cls()
        return found

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def pack(ids: Iterable[int]) -> str:
    """Positive ids as text: steps from one run of ids to the next, `5`, or `5+3` when three more follow at once."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words: list[str] = []
    before = 0
    for first, last in runs:
        words.append(f"{first - before}+{last - first}" if last > first else str(first - before))
        before = last
    return ",".join(words)


def unpack(text: str) -> set[int]:
    """The ids of their packed form. Raises ValueError for other text."""
    ids: set[int] = set()
    end = 0
    for word in text.split(",") if text else ():
        step, _, more = word.partition("+")
        first = end + int(step)
        end = first + int(more or 0)
        ids.update(range(first, end + 1))
    return ids
