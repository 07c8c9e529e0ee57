"""The cores that runs named, of what they held of nodes: each text of core numbers is read once."""

from __future__ import annotations

from typing import Final

import numpy as np

from formats.cores import expand
from formats.tally_columns import Ints
from publisher.report.frame import Frame
from publisher.report.placing import Placed

_MOST_KEPT: Final = 2_000_000
"""Numbers, at eight bytes each."""
_AT_ONCE: Final = 500_000


class CoreNumbers:
    """Codes for texts of core numbers, good until the next frame is looked at; 0: none are named."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._codes: dict[str, int] = {"": 0}
        self._numbers: list[Ints] = [np.zeros(0, np.int64)]
        self._kept = 0

    def of(self, frame: Frame, placed: Placed) -> Ints:
        """The code of each entry. Numbers that are not as many as the run has slots there are no names of cores."""
        if self._kept > _MOST_KEPT:
            self._forget()
        by_run = frame.objects["core_numbers"]
        if not any(by_run):
            return np.zeros(len(placed.row), np.int64)
        codes = np.array(
            [
                self._code(by_run[row][host]) if host < len(by_run[row]) else 0
                for row, host in zip(placed.row.tolist(), placed.host.tolist(), strict=True)
            ],
            np.int64,
        )
        counts = np.array([len(numbers) for numbers in self._numbers], np.int64)
        return np.where(counts[codes] == placed.amount, codes, 0)

    def _code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._numbers)
            self._numbers.append(np.array(expand(text), np.int64))
            self._kept += len(self._numbers[-1])
        return code

    def note_highest(self, highest: dict[int, int], node: Ints, codes: Ints) -> None:
        """Raise the highest number of each node (by its own) to what was named there."""
        named = np.flatnonzero(codes)
        if not len(named):
            return
        pairs = np.unique(np.stack([node[named], codes[named]], axis=1), axis=0)
        for one, code in pairs.tolist():
            highest[one] = max(highest.get(one, -1), int(self._numbers[code][-1]))

    def portions(self, places: Ints, codes: Ints) -> list[Ints]:
        """The places cut so that what their codes name fits into memory: a core of each takes a hundred bytes."""
        behind = np.cumsum([len(self._numbers[code]) for code in codes.tolist()])
        return np.split(places, np.flatnonzero(np.diff(behind // _AT_ONCE)) + 1)

    def entries(self, codes: Ints) -> tuple[Ints, Ints]:
        """For each core that is named, the place of its entry and its number."""
        counts = np.array([len(numbers) for numbers in self._numbers], np.int64)[codes]
        entry = np.repeat(np.arange(len(codes)), counts)
        numbers = [self._numbers[code] for code in codes.tolist()]
        return entry, np.concatenate(numbers) if numbers else np.zeros(0, np.int64)
