"""Days, weeks, months, quarters, and years of an interval in a time zone; and units of durations.

A period extends from one local midnight to another: a day in which clocks change has 23 or 25 hours. If a midnight does
not exist, the period begins with the first instant of its date.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import date, datetime, timedelta
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec
import numpy as np

from formats.calendar import Month, month_bounds
from publisher.errors import UsageError
from publisher.report.integers import Ints
from publisher.report.view_option import Compared, PeriodLength, PeriodName

_MOST = 100_000


class ReportPeriod(msgspec.Struct, frozen=True):
    """A period: its name, and the part of it inside the interval, epoch seconds, `stop` not included."""

    name: str
    start: int
    stop: int
    whole: bool = True
    """Whether all of it is inside the interval."""

    @property
    def inside_s(self) -> int:
        """The seconds of it inside the interval."""
        return self.stop - self.start


def zone_of(name: str) -> ZoneInfo:
    """The time zone of this name. Raises `UsageError`."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UsageError(f"--timezone {name}: unknown time zone", hint="Use a name such as Europe/Oslo") from None


def periods(start: int, stop: int, kind: PeriodLength, zone: ZoneInfo) -> list[ReportPeriod]:
    """The periods that overlap an interval, in order. Weeks are those of ISO 8601, which begin on Monday.

    `all` is one period. Raises `UsageError` for too many periods.
    """
    if kind == "all":
        return [ReportPeriod(kind, start, stop)]
    first = datetime.fromtimestamp(start, zone).date()
    day = _beginning(first, kind)
    bins: list[ReportPeriod] = []
    while (begin := _instant(day, zone)) < stop:
        following = _following(day, kind)
        end = _instant(following, zone) if following is not None else stop
        if end > start:
            bins.append(
                ReportPeriod(_name(day, kind), max(begin, start), min(end, stop), begin >= start and end <= stop)
            )
        if following is None:
            break
        if len(bins) > _MOST:
            raise UsageError(f"more than {_MOST:,} periods", hint="Choose longer periods or a shorter interval")
        day = following
    return bins


def compared_with(start: int, stop: int, how: Compared, zone: ZoneInfo) -> tuple[int, int]:
    """The interval with which another is compared: the one of the same length before it, or that of the year before.

    Before whole months are as many months. Raises `UsageError` for one before the year 1.
    """
    first, last = datetime.fromtimestamp(start, zone), datetime.fromtimestamp(stop, zone)
    months = (last.year - first.year) * 12 + last.month - first.month
    is_months = all(each.day == 1 and _instant(each.date(), zone) == at for each, at in ((first, start), (last, stop)))
    if how == "previous" and not is_months:
        return 2 * start - stop, start
    back = 12 if how == "year" else months
    return _months_before(first, back), _months_before(last, back)


def _months_before(at: datetime, months: int) -> int:
    """The same time of the same day so many months earlier; of the last day if that month is shorter."""
    year, month = divmod(at.year * 12 + at.month - 1 - months, 12)
    if year < 1:
        raise UsageError("--compare: the interval before would begin before the year 1")
    day = min(at.day, monthrange(year, month + 1)[1])
    return int(at.replace(year=year, month=month + 1, day=day).timestamp())


def period_axis(cut: list[ReportPeriod]) -> dict[str, Any]:
    """The x axis of a plot over these periods: fields of `publisher.report.report.Plot`."""
    lengths = {period.inside_s for period in cut}
    return {
        "x": tuple(period.start for period in cut),
        "labels": tuple(period.name for period in cut),
        "partial": tuple(place for place, period in enumerate(cut) if not period.whole),
        "step_s": lengths.pop() if len(lengths) == 1 else None,
    }


def month_in(month: Month, zone: ZoneInfo) -> tuple[int, int]:
    """The start and the end of a month in a time zone, epoch seconds, the end not included."""
    first = date(month.year, month.month, 1)
    following = _following(first, "month")
    return _instant(first, zone), month_bounds(month)[1] if following is None else _instant(following, zone)


def edges(cut: list[ReportPeriod]) -> Ints:
    """The starts of the periods, and the end of the last."""
    return np.array([*(period.start for period in cut), cut[-1].stop], np.int64)


def _beginning(day: date, kind: PeriodName) -> date:
    if kind == "week":
        return day - timedelta(days=min(day.weekday(), (day - date.min).days))
    if kind == "month":
        return day.replace(day=1)
    if kind == "quarter":
        return day.replace(month=day.month - (day.month - 1) % 3, day=1)
    return day.replace(month=1, day=1) if kind == "year" else day


def _following(day: date, kind: PeriodName) -> date | None:
    """The first day of the next period; None after the year 9999."""
    try:
        if kind == "day":
            return day + timedelta(days=1)
        if kind == "week":
            return day + timedelta(days=7 - day.weekday())
        if kind == "month":
            return date(day.year + day.month // 12, day.month % 12 + 1, 1)
        if kind == "quarter":
            return date(day.year + day.month // 10, (day.month + 2) % 12 + 1, 1)
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
    if kind == "quarter":
        return f"{day.year:04}-Q{(day.month + 2) // 3}"
    return f"{day.year:04}-{day.month:02}" if kind == "month" else f"{day.year:04}"


class SpanUnit(NamedTuple):
    """A unit of durations: its symbol, and its seconds."""

    name: str
    seconds: int


_UNITS: Final = (SpanUnit("s", 1), SpanUnit("min", 60), SpanUnit("h", 3600), SpanUnit("days", 86_400))
_FROM: Final = 2
"""A unit is used from twice its size on: 90 s rather than 1.5 min."""


def unit_for(longest_s: float) -> SpanUnit:
    """The unit for durations up to this one: the largest that fits in it twice."""
    return next((unit for unit in reversed(_UNITS) if longest_s >= _FROM * unit.seconds), _UNITS[0])
