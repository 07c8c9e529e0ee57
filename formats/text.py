"""Values as written in XML: escaped, in ASCII, durations and instants in one spelling.

All text is US-ASCII with character references: every parser reads it the same, and no other form survives the transport
to APEL (facts/formats.md 0.2). Line ends and tabs are references too, because a parser would normalise them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

FIRST_INSTANT: Final = -59_011_459_200
"""0100-01-01T00:00:00Z, the first instant that every receiver stores: SGAS refuses or alters earlier ones."""

LAST_INSTANT: Final = 253_402_300_799
"""9999-12-31T23:59:59Z."""

REPLACEMENT: Final = "?"
"""Replaces a character that XML 1.0 cannot express."""

is_plain = re.compile(r"[!#-%'-;=?-~][ !#-%'-;=?-~]*").fullmatch
"""Matches a text that needs no change: printable ASCII without markup, not empty, no leading blank."""

_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_MARKUP: Final = re.compile('[\t\n\r\x7f"&<>]')
_REFERENCES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}

_SECONDS_A_DAY: Final = 86_400
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MINUTES_AND_SECONDS: Final = tuple(f"{minute:02d}:{second:02d}Z" for minute in range(60) for second in range(60))
"""The part of a dateTime after the hour; small enough to stay in the processor's cache."""


class _HourTexts(dict[int, str]):
    """The part of a dateTime up to the hour, by hours since 1970; empty for an hour outside the years 100 to 9999."""

    def __missing__(self, hour: int) -> str:
        if not FIRST_INSTANT <= hour * 3600 <= LAST_INSTANT:
            return ""
        at = _EPOCH + timedelta(hours=hour)
        if len(self) >= _KEPT_HOURS:
            self.clear()
        text = self[hour] = f"{at.year:04d}-{at.month:02d}-{at.day:02d}T{at.hour:02d}:"
        return text


_KEPT_HOURS: Final = 16_384
HOURS: Final = _HourTexts()


def without_forbidden(text: str) -> str:
    """Replace every character that XML 1.0 forbids (controls, lone surrogates, U+FFFE, U+FFFF) with `?`."""
    return _FORBIDDEN.sub(REPLACEMENT, text)


def escape(text: str) -> str:
    """The text for element content or a quoted attribute: ASCII, markup and line ends as references.

    The text must not contain forbidden characters.
    """
    if is_plain(text):
        return text
    return _MARKUP.sub(_reference, text).encode("ascii", "xmlcharrefreplace").decode("ascii")


def _reference(match: re.Match[str]) -> str:
    char = match[0]
    return _REFERENCES.get(char) or f"&#{ord(char)};"


def date_time(instant: int) -> str:
    """An instant (epoch seconds) as `YYYY-MM-DDThh:mm:ssZ`; it must lie within the years 100 to 9999."""
    return HOURS[instant // 3600] + MINUTES_AND_SECONDS[instant % 3600]


def duration_seconds(duration_ms: int) -> int:
    """Whole seconds of a duration, rounded half up."""
    return (duration_ms + 500) // 1000


_DURATION: Final = re.compile(
    r"(-)?P(?:(\d{1,9})D)?(?:T(?:(\d{1,12})H)?(?:(\d{1,12})M)?(?:(\d{1,19})(?:\.(\d{1,9}))?S)?)?"
)
_INSTANT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d{1,12})?(?:(Z)|([+-])(\d\d):?(\d\d)?)?")


def read_duration_ms(text: str) -> int:
    """Milliseconds of an ISO duration of days, hours, minutes and seconds.

    Raises `ValueError` for anything else, also for years and months, which have no fixed length.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.group(*range(2, 7))) or text.rstrip().endswith("T"):
        raise ValueError(f"not a duration of days, hours, minutes and seconds: {text[:60]!r}")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = int(days or 0) * _SECONDS_A_DAY + int(hours or 0) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    ms = whole * 1000 + int(((fraction or "") + "000")[:3])
    return -ms if sign else ms


def read_date_time(text: str) -> int:
    """Epoch seconds of an xsd:dateTime; without a zone it is UTC, as for the receivers.

    Fractions are truncated. Raises `ValueError` for any other text.
    """
    match = _INSTANT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a date and time: {text[:60]!r}")
    year, month, day, hour, minute, second = (int(group) for group in match.groups()[:6])
    at = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    _zulu, sign, zone_hours, zone_minutes = match.groups()[6:]
    seconds = int((at - _EPOCH).total_seconds())
    if sign:
        offset = int(zone_hours) * 3600 + int(zone_minutes or 0) * 60
        seconds += -offset if sign == "+" else offset
    return seconds
