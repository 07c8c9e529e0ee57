"""Units of lengths of time: the one in which those of a picture are easy to read."""

from __future__ import annotations

from typing import Final, NamedTuple


class SpanUnit(NamedTuple):
    """A unit: how it is written, and its seconds."""

    name: str
    seconds: int


_UNITS: Final = (SpanUnit("s", 1), SpanUnit("min", 60), SpanUnit("h", 3600), SpanUnit("days", 86_400))
_FROM: Final = 2
"""A unit is used from twice itself on: 90 s are better said so than as 1.5 min."""


def unit_for(longest_s: float) -> SpanUnit:
    """The unit for lengths up to this one: the largest of which it is at least two."""
    return next((unit for unit in reversed(_UNITS) if longest_s >= _FROM * unit.seconds), _UNITS[0])
