"""How far a report has read the runs of the store, as events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from publisher.events import Observer, WorkAdvanced
from publisher.status.jobs import count_in
from publisher.store.database import Store

_COUNTED_AFTER_S: Final = 1.0
"""A report that is done earlier does not pay for counting the runs of its interval."""


class ReadingProgress:
    """Called by `publisher.report.runs.StoreRuns` with each page that it read."""

    def __init__(self, store: Store, observer: Observer, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._observer = observer
        self._clock = clock
        self._began = clock()
        self._done = 0
        self._total: int | None = None

    def __call__(self, start: int, stop: int | None, runs: int) -> None:
        """`runs` more of those that ended from `start` until `stop` were read."""
        self._done += runs
        if self._total is None and self._clock() - self._began >= _COUNTED_AFTER_S:
            with self._store.read() as connection:
                self._total = count_in(connection, start, stop)
        self._observer(WorkAdvanced("report", self._done, self._total))
