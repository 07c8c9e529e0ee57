"""Utilization of many runs at once: `measure.Tally` over columns of numbers.

The results are the same whole numbers, to the last digit: a rate of 2**96 parts of a millisecond is stored as digits of
24 bits. Digits are summed in machine integers as long as none can overflow, then in Python's. Cost: runs plus bins, for
each group. Runs with impossible figures (more CPU time a second than 16,000 cores have) are tallied one by one.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from formats.utilization.measure import RATE, Bins, BinSums, Ran, Tally
from publisher.report.integers import BOUND, ExactSums, Ints

_DIGIT_BITS: Final = 24
_DIGITS: Final = 96 // _DIGIT_BITS
_ROWS: Final = 1 << 16
_LARGEST_SLOTS: Final = 1 << _DIGIT_BITS
_LONGEST_S: Final = 1 << 38


class _UsageTally:
    """One kind of usage as in `measure`: parts of bins, and changes of the rate between bins."""

    def __init__(self, places: int) -> None:
        self.part = ExactSums(places)
        self.step = ExactSums(places)

    def grow(self, places: int) -> None:
        self.part.grow(places)
        self.step.grow(places)

    def merge(self, other: _UsageTally, at: Ints) -> None:
        self.part.merge(other.part, at)
        self.step.merge(other.step, at)

    def add(self, rate: Ints | None, largest: int, where: _Where) -> None:
        """Add runs with these rates (None: 1 each); `largest` is an upper bound."""
        first, last, long = where.first, where.last, where.long
        if rate is None:
            self.part.add(first, where.head, where.longest)
            self.part.add(last[long], where.tail, where.longest)
            self.step.add(first[long] + 1, 1, 1)
            self.step.add(last[long], -1, 1)
            return
        of_long = rate[long]
        self.part.add(first, rate * where.head, largest * where.longest)
        self.part.add(last[long], of_long * where.tail, largest * where.longest)
        self.step.add(first[long] + 1, of_long, largest)
        self.step.add(last[long], -of_long, largest)

    def sums(self, size_s: int, first: int, stop: int) -> list[int]:
        part, step = self.part.slice(first, stop), self.step.slice(first, stop)
        return [partly + size_s * rate for partly, rate in zip(part, accumulate(step), strict=True)]


class _Where:
    """The bins of runs: seconds in the first (`head`) and, if it is another, in the last (`tail`)."""

    def __init__(self, bins: Bins, begin: Ints, end: Ints, group: Ints | None) -> None:
        size = bins.size_s
        self.first, into = np.divmod(begin - bins.start, size)
        self.last = (end - 1 - bins.start) // size
        self.long = np.flatnonzero(self.last > self.first)
        self.head = np.minimum(size - into, end - begin)
        self.tail = (end - bins.start - self.last * size)[self.long]
        self.longest = max(int(self.head.max(initial=0)), int(self.tail.max(initial=0)))
        if group is not None:
            self.first = self.first + group * bins.count
            self.last = self.last + group * bins.count


class ColumnTally:
    """Sums up columns of runs in the bins of an interval, by group."""

    def __init__(self, bins: Bins) -> None:
        self.bins = bins
        self.groups = 1
        self.jobs = 0
        """Runs in the interval."""
        self.zero_length = 0
        """Runs in the interval that started and ended in the same second, which use nothing (DQS accounting manual)."""
        count = bins.count
        self._seconds = _UsageTally(count)
        self._slot_seconds = _UsageTally(count)
        self._user = [_UsageTally(count) for _ in range(_DIGITS + 1)]
        self._system = [_UsageTally(count) for _ in range(_DIGITS + 1)]
        self._begun, self._ended = ExactSums(count), ExactSums(count)
        self._odd: dict[int, list[Tally]] = {}

    def reserve(self, groups: int) -> None:
        """Make room for so many groups."""
        if groups <= self.groups:
            return
        self.groups = max(groups, self.groups + self.groups // 4)
        places = self.groups * self.bins.count
        for column in self._columns():
            column.grow(places)
        self._begun.grow(places)
        self._ended.grow(places)

    def add(
        self, start: Ints, stop: Ints, user_ms: Ints, system_ms: Ints, slots: Ints, group: Ints | None = None
    ) -> None:
        """Tally runs: epoch seconds (`stop` not included), CPU ms of all cores, slots; groups from 0."""
        if group is not None and len(group):
            self.reserve(int(group.max()) + 1)
        bins = self.bins
        self.zero_length += int(np.count_nonzero((start == stop) & (start >= bins.start) & (start < bins.stop)))
        inside = np.flatnonzero((stop > start) & (start < bins.stop) & (stop > bins.start))
        self.jobs += len(inside)
        for place in range(0, len(inside), _ROWS):
            rows = inside[place : place + _ROWS]
            self._add(
                start[rows], stop[rows], user_ms[rows], system_ms[rows], slots[rows],
                None if group is None else group[rows],
            )  # fmt: skip

    def merge(self, other: ColumnTally, groups: list[int]) -> None:
        """Add another tally over the same bins: `groups` are the distinct numbers here of its groups."""
        self.reserve(max(groups, default=0) + 1)
        self.jobs += other.jobs
        self.zero_length += other.zero_length
        count = self.bins.count
        at = (np.array(groups, np.int64)[:, None] * count + np.arange(count)).reshape(-1)
        for own, more in zip(self._columns(), other._columns(), strict=True):
            own.merge(more, at)
        self._begun.merge(other._begun, at)
        self._ended.merge(other._ended, at)
        for group, tallies in other._odd.items():
            self._odd.setdefault(groups[group], []).extend(tallies)

    def _columns(self) -> tuple[_UsageTally, ...]:
        return (self._seconds, self._slot_seconds, *self._user, *self._system)

    def _add(self, start: Ints, stop: Ints, user_ms: Ints, system_ms: Ints, slots: Ints, group: Ints | None) -> None:
        length = stop - start
        odd = (length >= _LONGEST_S) | (slots >= _LARGEST_SLOTS) | (slots < 0) | (user_ms < 0) | (system_ms < 0)
        odd |= (user_ms // length >= 1 << _DIGIT_BITS) | (system_ms // length >= 1 << _DIGIT_BITS)
        if odd.any():
            self._one_by_one(odd, start, stop, user_ms, system_ms, slots, group)
            keep = ~odd
            start, stop, user_ms, system_ms = start[keep], stop[keep], user_ms[keep], system_ms[keep]
            slots, length, group = slots[keep], length[keep], None if group is None else group[keep]
        self._ordinary(start, stop, length, user_ms, system_ms, slots, group)

    def _one_by_one(
        self, odd: npt.NDArray[np.bool_], start: Ints, stop: Ints, user_ms: Ints, system_ms: Ints, slots: Ints,
        group: Ints | None,
    ) -> None:  # fmt: skip
        columns = [column[odd].tolist() for column in (start, stop, user_ms, system_ms, slots)]
        groups = [0] * len(columns[0]) if group is None else group[odd].tolist()
        for which, *facts in zip(groups, *columns, strict=True):
            self._odd.setdefault(which, [Tally(self.bins)])[0].add(Ran(*facts))

    def _ordinary(
        self, start: Ints, stop: Ints, length: Ints, user_ms: Ints, system_ms: Ints, slots: Ints, group: Ints | None
    ) -> None:
        bins = self.bins
        where = _Where(bins, np.maximum(start, bins.start), np.minimum(stop, bins.stop), group)
        rows = len(start)
        if rows > 1 and rows * (where.longest << _DIGIT_BITS) >= BOUND:  # bins of months, with runs as long
            for part in (slice(None, rows // 2), slice(rows // 2, None)):
                self._ordinary(
                    start[part], stop[part], length[part], user_ms[part], system_ms[part], slots[part],
                    None if group is None else group[part],
                )  # fmt: skip
            return
        self._begun.add(where.first, 1, 1)
        self._ended.add(where.last, 1, 1)
        self._seconds.add(None, 1, where)
        self._slot_seconds.add(slots, int(slots.max(initial=0)), where)
        for columns, amount in ((self._user, user_ms), (self._system, system_ms)):
            if amount.any():
                self._rates(columns, amount, length, where)

    def _rates(self, columns: list[_UsageTally], amount_ms: Ints, length: Ints, where: _Where) -> None:
        digit = amount_ms // length
        rest = amount_ms - digit * length
        columns[0].add(digit, int(digit.max(initial=0)), where)
        for column in columns[1:]:
            rest = rest << _DIGIT_BITS
            digit = rest // length
            rest = rest - digit * length
            column.add(digit, (1 << _DIGIT_BITS) - 1, where)

    def sums(self, group: int = 0) -> list[BinSums]:
        """The sums of the runs of a group in each bin, in order."""
        count, size = self.bins.count, self.bins.size_s
        first, stop = group * count, (group + 1) * count
        seconds = self._seconds.sums(size, first, stop)
        slot_seconds = self._slot_seconds.sums(size, first, stop)
        user = self._rate_sums(self._user, first, stop)
        system = self._rate_sums(self._system, first, stop)
        ended = [0, *self._ended.slice(first, stop)[:-1]]
        begun = self._begun.slice(first, stop)
        running = accumulate(a - b for a, b in zip(begun, ended, strict=True))
        sums = [BinSums(*cell) for cell in zip(seconds, user, system, slot_seconds, running, strict=True)]
        for odd in self._odd.get(group, ()):
            sums = [
                BinSums(*(a + b for a, b in zip(one, more, strict=True)))
                for one, more in zip(sums, odd.sums(), strict=True)
            ]
        return sums

    def _rate_sums(self, columns: list[_UsageTally], first: int, stop: int) -> list[int]:
        total = [0] * (stop - first)
        for place, column in enumerate(columns):
            weight = RATE >> (_DIGIT_BITS * place)
            for at, amount in enumerate(column.sums(self.bins.size_s, first, stop)):
                if amount:
                    total[at] += weight * amount
        return total
