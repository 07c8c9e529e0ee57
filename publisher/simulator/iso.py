"""Durations and instants as SGAS reads them: fractions cut, no zone means UTC (the facts on formats, 1.4)."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_SECONDS = re.compile(r"PT([0-9]{1,12})S")
_DURATION = re.compile(
    r"(-?)P(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:\.[0-9]+)?S)?)?"
)


def duration_s(text: str) -> int | None:
    """Whole seconds; None for what cannot be read, years and months among it."""
    seconds = _SECONDS.fullmatch(text)
    if seconds is not None:
        return int(seconds.group(1))
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        return None
    sign, *parts = match.groups()
    days, hours, minutes, rest = (int(part) if part else 0 for part in parts)
    total = days * 86400 + hours * 3600 + minutes * 60 + rest
    return -total if sign else total


def instant_s(text: str | None) -> int | None:
    """Epoch seconds; None for what is absent or cannot be read."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
