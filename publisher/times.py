"""Durations and instants as people write them, in the configuration and on the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

CLOCK_SKEW_S: Final = 300
"""By how much the clocks of two hosts may differ: hosts that share a store, this host and an authority."""


def past(instant: int | None, now: int) -> int | None:
    """An instant that was noted earlier; None where it lies in the future, so that the clock was wrong then, or is now.

    Such a time says nothing: who asks for it does as if it had not been noted.
    """
    return None if instant is None or instant > now + CLOCK_SKEW_S else instant


def elapsed_s(instant: int | None, now: int) -> int | None:
    """Seconds since an instant that was noted earlier; None where it is not known, or lies in the future (`past`)."""
    known = past(instant, now)
    return None if known is None else max(0, now - known)


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_DURATION_HELP = "a duration is a number of seconds or text such as 30s, 15m, 6h, 2d"
_INSTANT_HELP = "a time is written like 2026-11-20 or 2026-11-20T00:00:00Z"
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def duration_s(value: object) -> float:
    """Seconds of `90`, `"90s"`, `"1h30m"`, `"2d"`. Raises ValueError for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str) and (found := _DURATION.findall(value)) and not _DURATION.sub("", value).strip():
        seconds = sum(float(number) * _UNIT_S[unit] for number, unit in found)
    else:
        raise ValueError(_DURATION_HELP)
    if not 0 <= seconds < math.inf:
        raise ValueError("a duration is neither negative nor endless")
    return seconds


_MONTHS = re.compile(r"(\d{1,4})\s*(months?|years?)")


def months_of_age(value: object) -> int:
    """How many months `"36 months"` or `"3 years"` are. Raises ValueError for anything else, and for less than one."""
    found = _MONTHS.fullmatch(value) if isinstance(value, str) else None
    count = int(found[1]) * (12 if found[2].startswith("year") else 1) if found else 0
    if count < 1:
        raise ValueError("an age in months is text such as 36 months or 3 years, one month at least")
    return count


def instant_s(value: object) -> int:
    """Epoch seconds of a TOML date or date-time, or of text in ISO 8601; without a zone it is UTC."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(_INSTANT_HELP) from None
    if isinstance(value, datetime):
        return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp())
    if isinstance(value, date):
        return int(datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp())
    raise ValueError(_INSTANT_HELP)


_MOMENT_HELP = "a time is written like 2026-11-01, 2026-11-01T12:00, 2026-11, -7d or @1793491200"
_MONTH = re.compile(r"(\d{4})-(\d{2})")


def moment_s(text: str, now_s: int) -> int:
    """Epoch seconds of a time as people write it on the command line, UTC unless it carries a zone.

    A date, a date with a time, a month (its first second), `-7d` (so long ago), `@` and epoch seconds. Raises
    ValueError.
    """
    try:
        if text.startswith("@"):
            return int(text[1:])
        if text.startswith("-"):
            return now_s - int(duration_s(text[1:]))
        if month := _MONTH.fullmatch(text):
            return int(datetime(int(month[1]), int(month[2]), 1, tzinfo=UTC).timestamp())
        return instant_s(text)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is no time; {_MOMENT_HELP}") from None


def iso(instant: int | None) -> str | None:
    """An instant in ISO 8601, UTC, with `Z`; None stays None. Years beyond 9999 come out as `@` and epoch seconds."""
    if instant is None:
        return None
    try:
        return datetime.fromtimestamp(instant, UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return f"@{instant}"


def future_notes(times: Mapping[str, int]) -> list[str]:
    """A sentence for each time, by its name, that was noted for the future."""
    return [
        f"{name.replace('_', ' ')} was noted as {iso(at)}, which lies in the future: a clock was wrong. It does not "
        "count, and the next run notes it anew"
        for name, at in times.items()
    ]
