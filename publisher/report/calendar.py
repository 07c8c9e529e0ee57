"""Days, weeks, months and years of an interval, in a time zone.

A day in which clocks change has 23 or 25 hours, and its week and month as many more or less: a period reaches from
one local midnight to another. Where a midnight does not exist, it begins with the first instant of its date.

Units of lengths of time: the one in which those of a picture are easy to read.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import numpy as np

from formats.calendar import Month, month_bounds
from publisher.errors import UsageError
from publisher.report.column_tally import Ints
from publisher.report.request import PeriodName

_MOST = 100_000


class ReportPeriod(msgspec.Struct, frozen=True):
    """A period: what it is called, and the part of it that lies in the interval, epoch seconds, `stop` not included."""

    name: str
    start: int
    stop: int

    @property
    def inside_s(self) -> int:
        """How many seconds of it lie in the interval."""
        return self.stop - self.start


def zone_of(name: str) -> ZoneInfo:
    """A time zone by its name. Raises `UsageError`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"--zone {name}: no such time zone", hint="Use a name such as Europe/Oslo") from None


def periods(start: int, stop: int, kind: PeriodName, zone: ZoneInfo) -> list[ReportPeriod]:
    """The periods that an interval touches, in order. Weeks are those of ISO 8601, which begin on Monday.

    Raises `UsageError` for too many of them.
    """
    first = datetime.fromtimestamp(start, zone).date()
    day = _beginning(first, kind)
    found: list[ReportPeriod] = []
    while (begin := _instant(day, zone)) < stop:
        following = _following(day, kind)
        end = _instant(following, zone) if following is not None else stop
        if end > start:
            found.append(ReportPeriod(_name(day, kind), max(begin, start), min(end, stop)))
        if following is None:
            break
        if len(found) > _MOST:
            raise UsageError(f"more than {_MOST} periods; choose longer ones, or a shorter interval")
        day = following
    return found


def period_axis(cut: list[ReportPeriod]) -> dict[str, Any]:
    """The x axis of a plot over these periods: fields of `publisher.report.report.Plot`."""
    lengths = {period.inside_s for period in cut}
    return {
        "x": tuple(period.start for period in cut),
        "labels": tuple(period.name for period in cut),
        "step_s": lengths.pop() if len(lengths) == 1 else None,
    }


def month_in(month: Month, zone: ZoneInfo) -> tuple[int, int]:
    """The bounds of a month of a time zone, epoch seconds, the second not included."""
    first = date(month.year, month.month, 1)
    following = _following(first, "month")
    return _instant(first, zone), month_bounds(month)[1] if following is None else _instant(following, zone)


def edges(cut: list[ReportPeriod]) -> Ints:
    """The starts of the periods, and the stop of the last."""
    return np.array([*(one.start for one in cut), cut[-1].stop], np.int64)


def _beginning(day: date, kind: PeriodName) -> date:
    if kind == "week":
        return day - timedelta(days=min(day.weekday(), (day - date.min).days))
    if kind == "month":
        return day.replace(day=1)
    return day.replace(month=1, day=1) if kind == "year" else day


def _following(day: date, kind: PeriodName) -> date | None:
    """The first day of the next period; None behind the year 9999."""
    try:
        if kind == "day":
            return day + timedelta(days=1)
        if kind == "week":
            return day + timedelta(days=7 - day.weekday())
        if kind == "month":
            return date(day.year + day.month // 12, day.month % 12 + 1, 1)
        return date(day.year + 1, 1, 1)
    except (ValueError, OverflowError):
        return None


def _instant(day: date, zone: ZoneInfo) -> int:
    at = datetime(day.year, day.month, day.day, tzinfo=zone)
    return int(at.timestamp())


def _name(day: date, kind: PeriodName) -> str:
    if kind == "day":
        return day.isoformat()
    if kind == "week":
        year, week, _ = day.isocalendar()
        return f"{year:04}-W{week:02}"
    return f"{day.year:04}-{day.month:02}" if kind == "month" else f"{day.year:04}"


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
