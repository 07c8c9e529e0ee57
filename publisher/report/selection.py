"""The runs that match a request: those in the interval that match all given patterns; and their groups.

Patterns are those of file names; a range of array tasks is written as for qacct, `1-10:2` (DQS accounting manual,
"Matching a Job to a Request"). Groups have up to two keys: words of the runs, or the period in which a run counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self

import numpy as np

from formats.utilization.measure import KEYS
from publisher.errors import UsageError
from publisher.job_ids import JobPattern
from publisher.messages.entries import word_test
from publisher.report.calendar import edges, periods, zone_of
from publisher.report.column_tally import Ints
from publisher.report.frame import AMOUNTS, UNKNOWN, Coding, Frame, Mask, Runs
from publisher.report.request import ReportRequest
from publisher.report.view_kind import PERIODS, Interval

MOST_SHOWN: Final = 10
"""The most values that are named if nothing matches."""


@dataclass(slots=True)
class Met:
    """Counts and values of the runs that were read, for notes and for the message that nothing matches."""

    runs: int = 0
    """Entries in the interval."""
    matched: int = 0
    backward: int = 0
    """Matching entries that end before they start."""
    there: dict[str, set[str]] = field(default_factory=dict)
    """Existing values of the keys with a pattern; may be incomplete if something matched."""
    lacking: dict[int, int] = field(default_factory=dict)
    """How many matching entries lack an amount, by the bits of `incomplete`, if that column was requested."""
    ended: str = ""
    """From when to when the existing runs ended, if none is in the interval: the end of a sentence."""

    def count(self, start: Ints, stop: Ints) -> None:
        """Count matching runs."""
        self.runs += len(start)
        self.matched += len(start)
        self.backward += int(np.count_nonzero(stop < start))

    def count_lacking(self, incomplete: Ints) -> None:
        """Count the amounts that matching runs lack."""
        for bit in AMOUNTS:
            self.lacking[bit] = self.lacking.get(bit, 0) + int(np.count_nonzero(incomplete & bit))

    def add(self, other: Met) -> None:
        """Add the counts of other runs."""
        self.runs += other.runs
        self.matched += other.matched
        self.backward += other.backward
        self.ended = self.ended or other.ended
        for bit, runs in other.lacking.items():
            self.lacking[bit] = self.lacking.get(bit, 0) + runs
        for key, words in other.there.items():
            self.there.setdefault(key, set()).update(words)

    def nothing(self) -> str | None:
        """Why nothing matched, and which values exist; None if something matched."""
        if self.matched:
            return None
        if not self.runs:
            return "no run is in the interval" + (f"; {self.ended}" if self.ended else "")
        there = [
            f"{key} {some(values) or 'is not reported by any source'}" for key, values in sorted(self.there.items())
        ]
        return f"none of the {self.runs:,} runs in the interval matches; existing values: {'; '.join(there)}"

    def notes(self, lacks: int = 0, *, shows_unknown: bool = False) -> tuple[str, ...]:
        """Notes on the matching runs; `lacks`: the bits of `incomplete` that matter. `shows_unknown`: the report shows
        amounts that are unknown for all runs as such, so they need no note."""
        notes = []
        if self.backward:
            notes.append(f"Runs that end before they start count with no duration: {self.backward:,}.")
        lacking = {bit: runs for bit, runs in sorted(self.lacking.items()) if runs and bit & lacks}
        unknown = [
            f"{AMOUNTS[bit]} of {runs:,}" for bit, runs in lacking.items() if runs < self.matched or not shows_unknown
        ]
        if unknown:
            notes.append(f"Unknown, and not in the sums: {', '.join(unknown)} of {self.matched:,} runs.")
        return tuple(notes)


class Selection:
    """Frames of the matching runs. `met` is complete when all frames were read."""

    def __init__(
        self, runs: Runs, start: int, stop: int, filters: Mapping[str, str], requested: frozenset[str],
        interval: Interval, *, running_until: int | None = None, there: Callable[[], str] | None = None,
    ) -> None:  # fmt: skip
        """`there` returns from when to when the existing runs ended; it is called if none is in the interval."""
        for key in filters:
            if key not in KEYS:
                raise UsageError(f"jobs cannot be selected by {key!r}; choose one of: {', '.join(KEYS)}")
        self._runs = runs
        self._start, self._stop = start, stop
        self._interval = interval
        self._requested = requested | filters.keys() | ({"end"} if interval == "ended" else set())
        self._running_until = running_until
        self._tests = {key: word_test(key, text) for key, text in filters.items() if key != "job"}
        self._is_asked = JobPattern(filters["job"]) if "job" in filters else None
        self._matching: dict[str, list[bool]] = {key: [] for key in filters}
        self._seen: dict[str, set[int]] = {key: set() for key in filters}
        self._seen_jobs: set[str] = set()
        self._there_are = there
        self._met = Met()

    def coding(self, name: str) -> Coding:
        """The coding of a requested column of words; complete when all frames were read."""
        return self._runs.codings[name]

    def frames(self, meet: Callable[[Frame], None] | None = None) -> Iterator[Frame]:
        """The matching entries, frame by frame. With filters, `meet` first gets all entries of the interval."""
        until = self._stop if self._interval == "ended" else None
        for frame in self._runs.frames(self._start, until, self._requested, running_until=self._running_until):
            inside = frame.where(self._inside(frame))
            self._met.runs += inside.rows
            if meet is not None and self._matching and inside.rows:
                meet(inside)
            matching = inside.where(self._matches(inside)) if self._matching and inside.rows else inside
            self._met.matched += matching.rows
            self._met.backward += int(np.count_nonzero(matching.numbers["stop"] < matching.numbers["start"]))
            if matching.rows:
                self._count_lacking(matching)
                yield matching

    def _count_lacking(self, frame: Frame) -> None:
        if "incomplete" in frame.numbers:
            bits = frame.numbers["incomplete"]
            for bit in AMOUNTS:
                self._met.lacking[bit] = self._met.lacking.get(bit, 0) + int(np.count_nonzero(bits & bit))

    def met(self) -> Met:
        """The counts and values; complete when all frames were read."""
        if not self._met.matched:
            self._met.there = {key: self._there(key) for key in self._matching}
        if not self._met.runs and self._there_are is not None:
            self._met.ended = self._there_are()
        return self._met

    def nothing(self) -> str | None:
        """Why nothing matched, and which values exist; None if something matched."""
        return self.met().nothing()

    def _inside(self, frame: Frame) -> Mask:
        start, stop = frame.numbers["start"], frame.numbers["stop"]
        if self._interval == "overlapping":
            mask: Mask = (start < self._stop) & ((stop > self._start) | ((start == stop) & (stop >= self._start)))
            return mask
        at = start if self._interval == "started" else np.where(
            frame.numbers["end"] == UNKNOWN, stop, frame.numbers["end"]
        )  # fmt: skip
        return (at >= self._start) & (at < self._stop)

    def _matches(self, frame: Frame) -> Mask:
        mask: Mask = np.ones(frame.rows, np.bool_)
        if self._is_asked is not None:
            jobs = frame.objects["job"]
            mask &= np.fromiter(map(self._is_asked, jobs), np.bool_, frame.rows)
            if len(self._seen_jobs) <= MOST_SHOWN:
                self._seen_jobs.update(ids.shown for ids in jobs[:100])
        for key, test in self._tests.items():
            values = self.coding(key).values
            matching = self._matching[key]
            matching += [any(map(test, words)) for words in values[len(matching) :]]
            codes = frame.codes[key]
            mask &= np.array(matching, np.bool_)[codes]
            if len(self._seen[key]) <= MOST_SHOWN:
                self._seen[key].update(np.unique(codes).tolist())
        return mask

    def _there(self, key: str) -> set[str]:
        if key == "job":
            return self._seen_jobs
        values = self.coding(key).values
        return {word for code in self._seen[key] for word in values[code]}


def some(values: set[str]) -> str:
    """The first values in a sentence."""
    shown = sorted(values)[:MOST_SHOWN]
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")


def columns_of(by: tuple[str, ...]) -> frozenset[str]:
    """The columns of the keys."""
    return frozenset(by) - frozenset(PERIODS)


class Groups:
    """The numbers of groups, in the order in which they occur; `labels` are their names, a word for each key."""

    def __init__(self, request: ReportRequest, selection: Selection, by: tuple[str, ...], at: str = "end") -> None:
        """`at`: the column of the instant that decides to which period a run belongs."""
        self._selection = selection
        self._by = by
        self._at = at
        self.labels: list[tuple[str, ...]] = []
        self._known: dict[tuple[str, ...], int] = {}
        self._period_names: dict[str, tuple[Ints, list[str]]] = {}
        zone = zone_of(request.timezone)
        for key in by:
            if key in PERIODS:
                cut = periods(request.start, request.stop, key, zone)
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
        return frame.codes[key], [_group_of(key, words) for words in self._selection.coding(key).values]


def _group_of(key: str, words: tuple[str, ...]) -> str:
    """The group of runs with these words: rows add up, so a run is in one."""
    if key == "complex":  # by its first resource alone, a run would be missing where its GPUs are looked for
        return ",".join(sorted(set(words)))
    return words[0] if words else ""


_MOST: Final = 1 << 62


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
        if width * span >= _MOST:  # too wide: both are numbered instead
            found, values = np.unique(column, return_inverse=True)
            low, width = 0, len(found)
            found, together = np.unique(together, return_inverse=True)
            span = len(found)
        together = together * width + (values - low)
        span *= width
    _, first, number = np.unique(together, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1), number.reshape(-1)


class PartialReport(Protocol):
    """The result of a view for some of the runs, to which results for others can be added in any order."""

    def add(self, other: Self, /) -> None:
        """Add the result for other runs."""
        ...


def selected(
    runs: Runs, request: ReportRequest, requested: frozenset[str], interval: Interval, *,
    running_until: int | None = None, there: Callable[[], str] | None = None,
) -> Selection:  # fmt: skip
    """The selection of the runs that match a request, with these columns. `there`: see `Selection`."""
    return Selection(
        runs, request.start, request.stop, request.filters, requested, request.interval or interval,
        running_until=running_until, there=there,
    )  # fmt: skip
