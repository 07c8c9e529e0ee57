"""Core numbers as stored: `0-3,7` for the cores 0, 1, 2, 3 and 7 of a host.

Pure. Numbers are ascending; one that a run has twice occurs twice (`0,0`). Text that cannot be read gives no numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

MOST: Final = 1 << 14
"""No machine has a core with so large a number: a text with one is damaged, and is not used."""

_SPAN: Final = re.compile(r"(\d{1,8})(?:-(\d{1,8}))?", re.ASCII)


def compact(numbers: Iterable[int]) -> str:
    """Numbers as text."""
    ordered = sorted(numbers)
    if len(ordered) > 1 and ordered == list(range(ordered[0], ordered[-1] + 1)):  # the usual case
        return f"{ordered[0]}-{ordered[-1]}"
    spans: list[list[int]] = []
    for number in ordered:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)


def expand(text: str) -> tuple[int, ...]:
    """The numbers in a text; none if it cannot be read or has a number that is too large."""
    numbers: list[int] = []
    for part in text.split(","):
        span = _SPAN.fullmatch(part)
        if span is None:
            return ()
        first = int(span[1])
        last = int(span[2]) if span[2] else first
        if last < first or last >= MOST or len(numbers) + last - first >= MOST:
            return ()
        numbers += range(first, last + 1)
    return tuple(numbers)
