"""Whole months and days, UTC: the periods of summaries, sync counts, and reports.

A run belongs to the UTC month of its end, as the APEL server assigns it (facts/formats.md 4.7). Computed for any
integer in the proleptic Gregorian calendar: an impossible end time is never an error here; the rules of each format
refuse it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Final, Literal

import msgspec

SECONDS_A_DAY: Final = 86_400
_DAYS_BEFORE_1970: Final = 719_468
"""Days from 1 March of the year 0 to 1 January 1970."""


class Month(msgspec.Struct, frozen=True, order=True):
    """A month; `month` is 1 to 12."""

    year: int
    month: int

    @property
    def number(self) -> int:
        """The month as one number that sorts as months do: 202611."""
        return self.year * 100 + self.month

    @property
    def following(self) -> Month:
        """The next month."""
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    def __str__(self) -> str:
        return f"{self.year:04d}-{self.month:02d}"


def date_of_day(day: int) -> date:
    """The date of a day by its number since 1970. Raises `ValueError` or `OverflowError` if it has none."""
    return datetime.fromtimestamp(day * SECONDS_A_DAY, UTC).date()


def month_of(end: int) -> Month:
    """The UTC month of an instant (epoch seconds)."""
    return _month_of_day(end // SECONDS_A_DAY)


def month_bounds(month: Month) -> tuple[int, int]:
    """First second of a month and first second of the next one: epoch seconds, the second exclusive."""
    return _first_second(month), _first_second(month.following)


def month_numbered(number: int) -> Month:
    """The month with this number: 202611 is November 2026."""
    return Month(*divmod(number, 100))


def months_before(month: Month, months: int) -> Month:
    """The month that is so many months earlier."""
    number = month.year * 12 + month.month - 1 - months
    return Month(number // 12, number % 12 + 1)


def months_between(first: int, stop: int) -> list[Month]:
    """The months that the instants from `first` until `stop` (exclusive) touch, in order."""
    months: list[Month] = []
    month = month_of(first)
    while month_bounds(month)[0] < stop:
        months.append(month)
        month = month.following
    return months


@lru_cache(maxsize=4096)
def _month_of_day(day: int) -> Month:
    """The month of a day counted from 1970, in eras of 400 years that begin in March, so that leap days come last."""
    era, day_of_era = divmod(day + _DAYS_BEFORE_1970, 146_097)
    year_of_era = (day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * day_of_year + 2) // 153 + 3
    year = era * 400 + year_of_era
    return Month(year + 1, month - 12) if month > 12 else Month(year, month)


def _first_second(month: Month) -> int:
    year, from_march = (month.year, month.month - 3) if month.month > 2 else (month.year - 1, month.month + 9)
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * from_march + 2) // 5
    day_of_era = year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year
    return (era * 146_097 + day_of_era - _DAYS_BEFORE_1970) * SECONDS_A_DAY


PeriodKind = Literal["day", "month"]
LONGEST_S: Final = {"day": SECONDS_A_DAY, "month": 31 * SECONDS_A_DAY}


class Period(msgspec.Struct, frozen=True, order=True):
    """A day or a month: its first second, the first second after it, and a number that sorts by time.

    202611 is November 2026, 20261121 the 21st of it.
    """

    start: int
    stop: int
    number: int

    def __str__(self) -> str:
        text = f"{self.number:08d}" if self.stop - self.start == SECONDS_A_DAY else f"{self.number:06d}"
        return "-".join(part for part in (text[:4], text[4:6], text[6:]) if part)


def period_of(kind: PeriodKind, instant: int) -> Period:
    """The period that contains an instant (epoch seconds)."""
    month = month_of(instant)
    if kind == "month":
        return Period(*month_bounds(month), month.number)
    start = instant - instant % SECONDS_A_DAY
    day = (start - month_bounds(month)[0]) // SECONDS_A_DAY + 1
    return Period(start, start + SECONDS_A_DAY, month.number * 100 + day)


def periods_between(kind: PeriodKind, first: int, stop: int) -> list[Period]:
    """The periods that the instants from `first` until `stop` (exclusive) touch, in order."""
    periods: list[Period] = []
    period = period_of(kind, first)
    while period.start < stop:
        periods.append(period)
        period = period_of(kind, period.stop)
    return periods


def period_numbered(kind: PeriodKind, number: int) -> Period:
    """The period with this number."""
    day = number % 100 if kind == "day" else 1
    month = month_numbered(number // 100 if kind == "day" else number)
    return period_of(kind, month_bounds(month)[0] + (day - 1) * SECONDS_A_DAY)


class MonthKey(msgspec.Struct, frozen=True, order=True):
    """The beginning of the keys of summaries and sync counts: site and month."""

    site: str
    year: int
    month: int

    @property
    def when(self) -> Month:
        """The month."""
        return Month(self.year, self.month)

    @property
    def text(self) -> str:
        """The key as one line: a JSON list, the same for equal keys only."""
        return msgspec.json.encode(msgspec.structs.astuple(self)).decode("ascii")
