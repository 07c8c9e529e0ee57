"""The periods that reports are of: whole UTC days or months.

Reckoned for any integer, like months (`formats.month`), so that an absurd end time is no error here.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from formats.month import SECONDS_A_DAY, month_bounds, month_numbered, month_of

PeriodKind = Literal["day", "month"]
LONGEST_S: Final = {"day": SECONDS_A_DAY, "month": 31 * SECONDS_A_DAY}


class Period(msgspec.Struct, frozen=True, order=True):
    """A day or a month: its first second, the first that is no longer in it, and a number that sorts as they do.

    202611 is November 2026, 20261121 the 21st of it.
    """

    start: int
    stop: int
    number: int

    def __str__(self) -> str:
        text = f"{self.number:08d}" if self.stop - self.start == SECONDS_A_DAY else f"{self.number:06d}"
        return "-".join(part for part in (text[:4], text[4:6], text[6:]) if part)


def period_of(kind: PeriodKind, instant: int) -> Period:
    """The period that an instant (epoch seconds) lies in."""
    month = month_of(instant)
    if kind == "month":
        return Period(*month_bounds(month), month.number)
    start = instant - instant % SECONDS_A_DAY
    day = (start - month_bounds(month)[0]) // SECONDS_A_DAY + 1
    return Period(start, start + SECONDS_A_DAY, month.number * 100 + day)


def periods_between(kind: PeriodKind, first: int, behind: int) -> list[Period]:
    """The periods that the instants from `first` until `behind` (exclusive) touch, in order."""
    periods: list[Period] = []
    period = period_of(kind, first)
    while period.start < behind:
        periods.append(period)
        period = period_of(kind, period.stop)
    return periods


def period_numbered(kind: PeriodKind, number: int) -> Period:
    """The period of its number."""
    day = number % 100 if kind == "day" else 1
    month = month_numbered(number // 100 if kind == "day" else number)
    return period_of(kind, month_bounds(month)[0] + (day - 1) * SECONDS_A_DAY)
