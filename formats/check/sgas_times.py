"""Read durations and instants as SGAS does, in seconds: more spellings than those of ISO 8601.

Of an instant only the beginning of date and time counts: text after a known form is ignored. Fractions of seconds are
truncated; without a zone it is UTC (facts on formats, 1.4; measured with LUTS 3.8.1).
"""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Final

_SECONDS: Final = re.compile(r"PT([0-9]{1,12})S").fullmatch
_NUMBER: Final = r"([0-9]+(?:[,.][0-9]+)?)"
_DURATION: Final = re.compile(
    rf"([+-])?P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?\n?"
).fullmatch

YEARS_NOT_STORED: Final = range(13, 100)
"""SGAS writes these years without leading zeros, which PostgreSQL cannot read; earlier years it reads as months."""

_COMMON: Final = re.compile(r"[12][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z").fullmatch
_DATE: Final = re.compile(
    r"(?P<year>[0-9]{4})(?:"
    r"-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})|(?P<month_b>[0-9]{2})(?P<day_b>[0-9]{2})"
    r"|-W(?P<week>[0-9]{2})-(?P<weekday>[0-9])|W(?P<week_b>[0-9]{2})(?P<weekday_b>[0-9])"
    r"|-(?P<ordinal>[0-9]{3})|(?P<ordinal_b>[0-9]{3})"
    r"|-W(?P<week_only>[0-9]{2})|W(?P<week_only_b>[0-9]{2})|-(?P<month_only>[0-9]{2})|)"
    r"|(?P<century>[0-9]{2})"
).match
"""A date, or the beginning of one: the first of these that the text begins with."""
_FRACTION: Final = r"(?:[,.][0-9]+)?"
_TIME: Final = re.compile(
    rf"(?:(?P<h1>[0-9]{{2}}):(?P<m1>[0-9]{{2}}):(?P<s1>[0-9]{{2}}{_FRACTION})"
    rf"|(?P<h2>[0-9]{{2}})(?P<m2>[0-9]{{2}})(?P<s2>[0-9]{{2}}{_FRACTION})"
    rf"|(?P<h3>[0-9]{{2}}):(?P<m3>[0-9]{{2}}{_FRACTION})|(?P<h4>[0-9]{{2}})(?P<m4>[0-9]{{2}}{_FRACTION})"
    rf"|(?P<h5>[0-9]{{2}}{_FRACTION}))(?:Z|(?P<sign>[+-])(?P<zh>[0-9]{{2}})(?::(?P<zm>[0-9]{{2}}))?)?"
).match


def duration_s(text: str) -> int | None:
    """Whole seconds; None for text that cannot be read, also for years and months. Raises `OverflowError`."""
    seconds = _SECONDS(text)
    if seconds is not None:
        return int(seconds.group(1))
    match = _DURATION(text)
    if match is None:
        return None
    sign = match.group(1)
    years, months, weeks, days, hours, minutes, seconds_ = (
        float((part or "0").replace(",", ".")) for part in match.groups()[1:]
    )
    if years or months:
        return None
    span = timedelta(weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds_)
    if sign == "-":
        span = -span
    return span.days * 86400 + span.seconds


def instant(text: str) -> datetime | None:
    """An instant in UTC; None for text that cannot be read. Raises `OverflowError` outside the years 1 to 9999."""
    if is_common_instant(text):
        with suppress(ValueError):  # a month 0 is read as the first
            return datetime.fromisoformat(text)
    parts = text.split("T")
    if len(parts) != 2:
        return None
    found_date, found_time = _DATE(parts[0]), _TIME(parts[1])
    if found_date is None or found_time is None:
        return None
    try:
        day, of_day = _date(found_date.groupdict()), _time(found_time.groupdict())
        return datetime.combine(day, of_day).astimezone(UTC).replace(microsecond=0)
    except ValueError:
        return None


def instant_s(text: str | None) -> int | None:
    """Epoch seconds; None for text that is missing or cannot be read. Raises `OverflowError`."""
    at = None if text is None else instant(text)
    return None if at is None else int(at.timestamp())


def is_common_instant(text: str) -> bool:
    """Whether an instant has the most common spelling, which is valid or not an instant, but never out of bounds."""
    return _COMMON(text) is not None


def is_common_duration(text: str) -> bool:
    """Whether a duration has the most common spelling, and fits 32 bits."""
    return len(text) <= len("PT999999999S") and _SECONDS(text) is not None


def _date(groups: dict[str, str | None]) -> date:
    def number(*names: str) -> int | None:
        return next((int(groups[name] or 0) for name in names if groups[name] is not None), None)

    century, ordinal = number("century"), number("ordinal", "ordinal_b")
    if century is not None:
        return date(century * 100 + 1, 1, 1)
    year = number("year") or 0
    week = number("week", "week_b", "week_only", "week_only_b")
    if week is not None:
        first = date(year, 1, 1)
        weekday = number("weekday", "weekday_b")
        passed = week - (first.isocalendar().week == 1)
        return first + timedelta(weeks=passed, days=(1 if weekday is None else weekday) - first.isoweekday())
    if ordinal is not None:
        return date(year, 1, 1) + timedelta(days=ordinal - 1)
    month, day = number("month", "month_b", "month_only"), number("day", "day_b")
    return date(year, month or 1, 1 if day is None else day)


def _time(groups: dict[str, str | None]) -> time:
    """A time of day with its zone. Raises `ValueError` for an hour 24, a second 60, or a zone of a day and more."""
    zone = timedelta(hours=int(groups["zh"] or 0), minutes=int(groups["zm"] or 0))
    hour, minute, second = (
        next((float(groups[f"{part}{form}"].replace(",", ".")) for form in forms if groups[f"{part}{form}"]), 0.0)  # type: ignore[union-attr]
        for part, forms in (("h", "12345"), ("m", "1234"), ("s", "12"))
    )
    minute += hour % 1 * 60
    second += minute % 1 * 60
    if int(hour) > 23 or int(minute) > 59:
        raise ValueError("not a time of day")
    return time(int(hour), int(minute), int(second), tzinfo=timezone(-zone if groups["sign"] == "-" else zone))
