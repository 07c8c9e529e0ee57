"""Columns of 64-bit integers: exact sums of them, and their distinct rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
"""A column of 64-bit integers."""
UNKNOWN: Final = -(1 << 63)
"""In a column: the source does not report it."""
BOUND: Final = 1 << 62
"""Sums of integers below it are computed without looking for overflows."""


class ExactSums:
    """Sums of 64-bit integers by place, always exact."""

    def __init__(self, places: int) -> None:
        self._small = np.zeros(places, np.int64)
        self._big: npt.NDArray[Any] | None = None
        self._reached = 0
        """An upper bound of the sums in `_small`."""

    def grow(self, places: int) -> None:
        """Make room for more places."""
        more = places - len(self._small)
        self._small = np.concatenate([self._small, np.zeros(more, np.int64)])
        if self._big is not None:
            self._big = np.concatenate([self._big, np.zeros(more, object)])

    def add(self, at: Ints, values: Ints | int, largest: int) -> None:
        """Add values at places; `largest` (below 2**62) is an upper bound of their absolute values."""
        added = largest * len(at)
        if added >= BOUND:
            half = len(at) // 2
            for part in (slice(None, half), slice(half, None)):
                self.add(at[part], values if isinstance(values, int) else values[part], largest)
            return
        if self._reached + added >= BOUND:
            self._carry()
        self._reached += added
        np.add.at(self._small, at, values)

    def merge(self, other: ExactSums, at: Ints) -> None:
        """Add the first sums of another to these places, which must be distinct."""
        if self._reached + other._reached >= BOUND:
            self._carry()
        self._reached += other._reached
        self._small[at] += other._small[: len(at)]
        if other._big is not None:
            if self._big is None:
                self._big = np.zeros(len(self._small), object)
            self._big[at] += other._big[: len(at)]

    def _carry(self) -> None:
        small = self._small.astype(object)
        self._big = small if self._big is None else self._big + small
        self._small[:] = 0
        self._reached = 0

    def slice(self, first: int, stop: int) -> list[int]:
        """The sums of these places."""
        small: list[int] = self._small[first:stop].tolist()
        if self._big is None:
            return small
        return [a + b for a, b in zip(small, self._big[first:stop].tolist(), strict=True)]


def sum_by(groups: Ints, values: Ints | list[int], count: int) -> list[int]:
    """Exact sums of values by their group, 0 to `count` - 1; a list may have values beyond 64 bits."""
    if not isinstance(values, list):
        largest = int(max(values.max(initial=0), -values.min(initial=0)))
        if largest * len(values) < BOUND:
            sums = np.zeros(count, np.int64)
            np.add.at(sums, groups, values)
            return [int(total) for total in sums]
        values = values.tolist()
    exact = [0] * count
    for group, value in zip(groups.tolist(), values, strict=True):
        exact[group] += value
    return exact


def distinct(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The distinct rows in ascending order, and the number of the row of each entry.

    The same as `np.unique(..., axis=0)` in a tenth of the time: the columns are combined into one number.
    """
    if not len(columns[0]):
        return np.zeros((0, len(columns)), np.int64), np.zeros(0, np.int64)
    together, span = np.zeros(len(columns[0]), np.int64), 1
    for column in columns:
        low, high = int(column.min()), int(column.max())
        values, width = column, high - low + 1
        if width * span >= BOUND:  # too wide: both are numbered instead
            values_there, values = np.unique(column, return_inverse=True)
            low, width = 0, len(values_there)
            values_there, together = np.unique(together, return_inverse=True)
            span = len(values_there)
        together = together * width + (values - low)
        span *= width
    _, first, number = np.unique(together, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1), number.reshape(-1)
