"""Groups of runs by up to two keys: words of the runs, or the period that they count in."""

from __future__ import annotations

from typing import Final

import numpy as np

from formats.tally_columns import Ints
from publisher.entries import KEYS
from publisher.report.frame import UNKNOWN, Frame
from publisher.report.periods import edges, periods, zone_of
from publisher.report.request import PERIODS, ReportRequest
from publisher.report.selection import Selection

GROUPED_BY: Final = tuple(key for key in KEYS if key != "job")
"""What runs are told apart by. A run with several words (hosts, complexes) counts under its first."""
BY_PERIOD: Final = (*GROUPED_BY, *PERIODS)


def columns_of(by: tuple[str, ...]) -> frozenset[str]:
    """The columns that the keys need."""
    return frozenset(by) - frozenset(PERIODS)


class Groups:
    """Numbers for the groups met so far; `labels` tells what each is called, a word for each key."""

    def __init__(self, request: ReportRequest, selection: Selection, by: tuple[str, ...], at: str = "end") -> None:
        """`at` names the column of the instant by which a run belongs to a period."""
        self._selection = selection
        self._by = by
        self._at = at
        self.labels: list[tuple[str, ...]] = []
        self._known: dict[tuple[str, ...], int] = {}
        self._period_names: dict[str, tuple[Ints, list[str]]] = {}
        zone = zone_of(request.zone)
        for key in by:
            if key in PERIODS:
                cut = periods(request.start, request.stop, key, zone)  # type: ignore[arg-type]
                self._period_names[key] = (edges(cut), [period.name for period in cut])

    def of(self, frame: Frame) -> Ints:
        """The group of each entry of a frame."""
        if not self._by:
            self._number(())
            return np.zeros(frame.rows, np.int64)
        columns = [self._column(frame, key) for key in self._by]
        together = columns[0][0]
        for codes, words in columns[1:]:
            together = together * len(words) + codes
        found, places = np.unique(together, return_inverse=True)
        groups = []
        for code in found.tolist():
            label: list[str] = []
            for _, words in reversed(columns[1:]):
                code, rest = divmod(code, len(words))  # noqa: PLW2901
                label.append(words[rest])
            label.append(columns[0][1][code])
            groups.append(self._number(tuple(reversed(label))))
        return np.array(groups, np.int64)[places]

    def _number(self, label: tuple[str, ...]) -> int:
        if label not in self._known:
            self._known[label] = len(self.labels)
            self.labels.append(label)
        return self._known[label]

    def _column(self, frame: Frame, key: str) -> tuple[Ints, list[str]]:
        if key in self._period_names:
            bounds, names = self._period_names[key]
            at = frame.numbers[self._at]
            at = np.where(at == UNKNOWN, frame.numbers["stop"], at)
            return np.clip(np.searchsorted(bounds, at, "right") - 1, 0, len(names) - 1), names
        return frame.codes[key], [words[0] if words else "" for words in self._selection.coding(key).values]
