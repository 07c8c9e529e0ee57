"""Hours of the local day: how the time of runs is divided among them, for prices of certain hours.

When clocks go forward an hour is skipped, when they go back one occurs twice: on such a day a price for 02:00 to 03:00
applies to no hour, or to two. Between changes of a zone's offset local time is computed by addition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np

from publisher.report.integers import Ints

DAY_S: Final = 86_400
_FIRST, _LAST = 0, 253_402_214_400
"""Offsets are looked up from 1970 to 9999; earlier and later ones are assumed to be equal to the first and last."""
_FOREVER: Final = 1 << 61


class Hours(NamedTuple):
    """Part of a day in seconds after midnight, `stop` not included; over midnight if `stop` is not after `start`."""

    start: int
    stop: int

    def holds(self, second: int) -> bool:
        """Whether it contains a second of the day."""
        if self.start < self.stop:
            return self.start <= second < self.stop
        return second >= self.start or second < self.stop


class _Span(NamedTuple):
    """The offset of local time from UTC in seconds, from `start` to `stop` (epoch seconds, not included)."""

    start: int
    stop: int
    ahead_s: int


def _ahead_s(at: int, zone: ZoneInfo) -> int:
    ahead = datetime.fromtimestamp(at, UTC).astimezone(zone).utcoffset()
    return 0 if ahead is None else int(ahead.total_seconds())


def _spans(first: int, last: int, zone: ZoneInfo) -> Iterator[_Span]:
    """The spans of equal offset that cover an interval; the first and the last are open."""
    at = min(max(first, _FIRST), _LAST)
    begin, ahead_s = -_FOREVER, _ahead_s(at, zone)
    while at < min(last, _LAST):
        following = at + DAY_S
        if (then := _ahead_s(following, zone)) != ahead_s:
            low, high = at, following  # the first second of another offset is after low
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _ahead_s(middle, zone) == ahead_s else (low, middle)
            yield _Span(begin, high, ahead_s)
            begin, ahead_s = high, _ahead_s(high, zone)
            following = high if then != ahead_s else following
        at = following
    yield _Span(begin, _FOREVER, ahead_s)


class HoursOfDay:
    """The parts of a local day in which different hours apply; `parts` has for each part the places of its hours.

    An entry of None among the hours always applies.
    """

    def __init__(self, hours: Sequence[Hours | None], zone: ZoneInfo) -> None:
        self._zone = zone
        cuts = sorted({0, *(second for bounds in hours if bounds is not None for second in bounds)} - {DAY_S})
        windows: dict[frozenset[int], list[tuple[int, int]]] = {}
        for begin, end in zip(cuts, [*cuts[1:], DAY_S], strict=True):
            holding = frozenset(place for place, one in enumerate(hours) if one is None or one.holds(begin))
            windows.setdefault(holding, []).append((begin, end))
        self.parts: tuple[frozenset[int], ...] = tuple(windows)
        self._windows = tuple(windows.values())

    def spread(self, start: Ints, stop: Ints, amount: Ints) -> list[Ints]:
        """For each part, the share of the `amount` of each run, in proportion to the run's time in that part.

        The shares are whole numbers that add up to the amount. A run without duration counts where it started.
        """
        if len(self.parts) == 1 or not len(start):
            return [amount] * len(self.parts)
        end = np.maximum(stop, start + 1)
        whole = [amount * 0 for _ in self.parts]
        seconds = self._seconds(start, end)
        left, length = amount.copy(), end - start
        for place, inside in enumerate(seconds):
            length = np.maximum(length, 1)
            # Of the remaining amount by the remaining time: exact if the amount is the time itself.
            share = _share(left, inside, length)
            whole[place] = share
            left, length = left - share, length - inside
        return whole

    def _seconds(self, start: Ints, stop: Ints) -> list[Ints]:
        seconds = [np.zeros(len(start), np.int64) for _ in self.parts]
        for span in _spans(int(start.min()), int(stop.max()), self._zone):
            first, last = np.maximum(start, span.start), np.minimum(stop, span.stop)
            inside = first < last
            first, last = np.where(inside, first, 0) + span.ahead_s, np.where(inside, last, 0) + span.ahead_s
            for place, windows in enumerate(self._windows):
                seconds[place] += np.where(inside, _until(last, windows) - _until(first, windows), 0)
        return seconds


def _until(local: Ints, windows: Sequence[tuple[int, int]]) -> Ints:
    """The number of seconds of windows of the day before a local time, from a fixed midnight on."""
    days, second = local // DAY_S, local % DAY_S
    seconds: Ints = days * sum(end - begin for begin, end in windows)
    for begin, end in windows:
        seconds = seconds + np.clip(second - begin, 0, end - begin)
    return seconds


def _share(amount: Ints, inside: Ints, length: Ints) -> Ints:
    """Amount times inside divided by length, rounded down; exact beyond 64 bits."""
    if int(np.abs(amount).max()) * int(inside.max()) < 1 << 62:
        share: Ints = amount * inside // length
        return share
    rows = zip(amount.tolist(), inside.tolist(), length.tolist(), strict=True)
    return np.fromiter((some * part // whole for some, part, whole in rows), np.int64, len(amount))
