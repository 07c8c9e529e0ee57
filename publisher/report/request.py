"""What is asked of a report, and the runs that answer it, streamed from the store.

A run matches if some part of it lies in the interval and every key that is given matches (DQS accounting manual,
"Matching a Job to a Request"). Patterns are those of names of files, in all keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import translate

import msgspec

from formats.utilization import Bins
from formats.utilization_report import Measure
from publisher.config import Config
from publisher.enrich import Enrichers
from publisher.errors import UsageError
from publisher.pipeline import recall
from publisher.report.entries import KEYS, Entry, entries_of
from publisher.store.database import Store

PAGE = 1000
LAST_DAYS_S = 30 * 86_400
DEFAULT_BIN_S = 3600
FIRST, BEHIND = -62_135_596_800, 253_402_300_800
"""The years 1 to 9999: the instants that can be written."""
_MOST_SHOWN = 10


class ReportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked: an interval in epoch seconds (`stop` not included), and patterns by the names of `KEYS`."""

    start: int
    stop: int
    filters: Mapping[str, str] = {}
    bin_s: int | None = None
    """Size of the bins; None: an hour, unless their number is given."""
    bins: int | None = None
    measure: Measure = "queue"
    by: tuple[str, ...] = ()
    """What totals are given by: none, one or two of `SUMMED_BY`."""

    def cut(self) -> Bins:
        """The bins. Raises `UsageError` for an interval or bins that make no sense."""
        self.require_interval()
        if self.bin_s is not None and self.bins is not None:
            raise UsageError("--bin and --bins exclude each other", hint="Give the size of the bins or their number")
        try:
            if self.bins is not None:
                return Bins.by_number(self.start, self.stop, self.bins)
            return Bins(self.start, self.stop, DEFAULT_BIN_S if self.bin_s is None else self.bin_s)
        except ValueError as error:
            raise UsageError(str(error)) from None

    def require_interval(self) -> None:
        """Raises `UsageError` for an interval that makes no sense."""
        if self.start >= self.stop:
            raise UsageError("the report would stop before or when it starts", hint="Let --until lie after --from")
        if self.start < FIRST or self.stop >= BEHIND:
            raise UsageError("the interval must lie in the years 1 to 9999")


class Selection:
    """The entries that answer a request. What was there, whether or not it matched, is known when they are taken."""

    def __init__(self, store: Store, config: Config, request: ReportRequest) -> None:
        for key in request.filters:
            if key not in KEYS:
                raise UsageError(f"nothing is selected by {key!r}; there are: {', '.join(KEYS)}")
        self._store = store
        self._request = request
        self._enrichers = Enrichers(config)
        self._patterns = {key: re.compile(translate(text)) for key, text in request.filters.items()}
        self._there: dict[str, set[str]] = {key: set() for key in request.filters}
        self.runs = 0
        """Entries in the interval."""
        self.matched = 0

    def overlapping(self) -> Iterator[Entry]:
        """Those of which some part lies in the interval."""
        stop = self._request.stop
        begin = self._request.start
        for entry in self._entries(until=None):
            ran = entry.ran
            if ran.start < stop and (ran.stop > begin or ran.start == ran.stop >= begin) and self._matches(entry):
                yield entry

    def ended(self) -> Iterator[Entry]:
        """Those that ended in the interval."""
        for entry in self._entries(until=self._request.stop):
            if self._matches(entry):
                yield entry

    def nothing(self) -> str:
        """What there is where nothing matched."""
        if not self.runs:
            return "no run lies in the interval; `usage-publisher status` says until when there are any"
        told = [f"{key} {_some(values) or 'is not told by any source'}" for key, values in sorted(self._there.items())]
        return f"none of the {self.runs} runs in the interval matches; there are: {'; '.join(told)}"

    def _matches(self, entry: Entry) -> bool:
        self.runs += 1
        matched = True
        for key, pattern in self._patterns.items():
            values = entry.facts[key]
            there = self._there[key]
            if len(there) <= _MOST_SHOWN:
                there.update(values)
            matched = matched and any(pattern.match(value) for value in values)
        self.matched += matched
        return matched

    def _entries(self, until: int | None) -> Iterator[Entry]:
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = list(recall.runs_in(connection, self._request.start, until, after, PAGE))
            for run, _class_id in page:
                yield from entries_of(self._enrichers.apply(run.source, run.job))
            if len(page) < PAGE:
                return
            last = page[-1][0]
            after = (last.job.end or 0, last.run_id)


def _some(values: set[str]) -> str:
    shown = sorted(values)[:_MOST_SHOWN]
    return ", ".join(shown) + (" ..." if len(values) > len(shown) else "")
