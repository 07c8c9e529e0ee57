"""The ticks of axes: round values, round instants in UTC, and periods."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from publisher.report.plot.style import edges_of, end_of
from publisher.report.report import Plot

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400
_STEPS_S: Final = (
    1, 5, 15, 30, _MINUTE_S, 5 * _MINUTE_S, 15 * _MINUTE_S, 30 * _MINUTE_S, _HOUR_S, 3 * _HOUR_S, 6 * _HOUR_S,
    12 * _HOUR_S, _DAY_S, 2 * _DAY_S, 7 * _DAY_S, 14 * _DAY_S,
)  # fmt: skip
_STEPS_MONTHS: Final = (1, 3, 6, 12, 24, 60, 120, 240, 600, 1200, 2400, 6000, 12_000)
_MONTH_S: Final = 30.5 * _DAY_S
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONDAY_S: Final = 4 * _DAY_S
"""The first Monday of 1970 in epoch seconds: weeks begin with Monday."""
_LAST_YEAR: Final = 9999


class Tick(NamedTuple):
    """A tick at `share` of the axis (0 to 1), and its text."""

    share: float
    text: str


def value_ticks(most: float, about: int = 5) -> tuple[float, list[Tick]]:
    """The end of an axis from 0 to beyond `most`, and its ticks at round values."""
    if most <= 0:
        return 1.0, [Tick(0.0, "0"), Tick(1.0, "1")]
    rough = most / about
    power: float = 10.0 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= rough * 0.999)
    count = math.ceil(most / step * 0.999)
    digits = max(0, -math.floor(math.log10(step) + 1e-9) + (1 if step / power == 2.5 else 0))
    return step * count, [Tick(place / count, f"{step * place:,.{digits}f}") for place in range(count + 1)]


def time_ticks(start: int, stop: int, most: int = 9) -> list[Tick]:
    """At most so many ticks from `start` to `stop` (epoch seconds) at round instants, UTC."""
    span = max(1, stop - start)
    for step_s in _STEPS_S:
        if span / step_s <= most:
            offset = _MONDAY_S if step_s % (7 * _DAY_S) == 0 else 0
            first = start + (offset - start) % step_s
            return [Tick((at - start) / span, _short(at, step_s)) for at in range(first, stop + 1, step_s)]
    months = next((step for step in _STEPS_MONTHS if span / (step * _MONTH_S) <= most), _STEPS_MONTHS[-1])
    return [Tick((at - start) / span, _month(at, months)) for at in _months(start, stop, months)]


def axis_ticks(plot: Plot, stop: int, most: int = 12) -> list[Tick]:
    """The ticks of a plot over time: in the middle of each period if its bins are periods, else at round instants.

    Of more periods than `most` every second, third, ... has a tick; of months those that divide the year evenly.
    """
    edges, end = edges_of(plot, stop), end_of(plot, stop)
    if not plot.labels:
        return time_ticks(edges[0], end)
    span = max(1, end - edges[0])
    chosen = _chosen(plot.labels, most)
    texts = _period_texts([plot.labels[place] for place in chosen])
    middles = [((left + right) / 2 - edges[0]) / span for left, right in pairwise(edges)]
    return [Tick(middles[place], text) for place, text in zip(chosen, texts, strict=True)]


def _chosen(labels: tuple[str, ...], most: int) -> list[int]:
    """The places of the periods that have a tick."""
    step = -(-len(labels) // most)
    if len(labels[0]) != len("2026-11"):
        return list(range(0, len(labels), step))
    step = next((months for months in (1, 2, 3, 6) if months >= step), 12 * -(-step // 12))
    numbers = [int(label[:4]) * 12 + int(label[5:7]) - 1 for label in labels]
    return [place for place, number in enumerate(numbers) if number % step == 0]


def _month_of(label: str) -> str | None:
    """The name of the month in `2026-11` or `2026-11-03`; None for other periods."""
    parts = label.split("-")
    return _MONTH_NAMES[int(parts[1]) - 1] if len(parts) > 1 and parts[1].isdecimal() else None


def _period_texts(labels: list[str]) -> list[str]:
    """The names of periods for people, with the year where it changes: Nov 2025, Dec, Jan 2026.

    Days of one year have none, for want of room: a plot also shows its interval.
    """
    texts = []
    years = {label.partition("-")[0] for label in labels}
    shown_year = next(iter(years)) if len(years) == 1 and labels[0].count("-") == 2 else ""
    for label in labels:
        year, *rest = label.split("-")
        month = _month_of(label)
        name = " ".join(filter(None, (str(int(rest[1])) if len(rest) > 1 else "", month or "".join(rest))))
        texts.append(" ".join(filter(None, (name, year if year != shown_year or not name else ""))))
        shown_year = year
    return texts


_MONTH_NAMES: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def _at(instant: int) -> datetime:
    return _EPOCH + timedelta(seconds=instant)


def _short(at: int, step_s: int) -> str:
    moment = _at(at)
    if at % _DAY_S == 0 or step_s >= _DAY_S:
        return f"{moment.day} {_MONTH_NAMES[moment.month - 1]}"
    return f"{moment:%H:%M}" if step_s >= _MINUTE_S else f"{moment:%H:%M:%S}"


def _month(at: int, months: int) -> str:
    moment = _at(at)
    return f"{moment.year}" if moment.month == 1 or months >= 12 else f"{_MONTH_NAMES[moment.month - 1]}"


def _months(start: int, stop: int, months: int) -> Iterator[int]:
    """The first second of every n-th month, counted from January."""
    begin = _at(start)
    number = begin.year * 12 + begin.month - 1
    number += -number % months
    while number // 12 <= _LAST_YEAR:
        at = int((datetime(max(1, number // 12), number % 12 + 1, 1, tzinfo=UTC) - _EPOCH).total_seconds())
        if at > stop:
            return
        if at >= start:
            yield at
        number += months
