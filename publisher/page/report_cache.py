"""Finished reports, kept until the store changes.

Each report is made once, even if several requests for it arrive at the same time. The least recently used go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

import msgspec
from sqlalchemy import select

from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.store.database import Store
from publisher.store.report_queries import ENDS, State, state_of

Make = Callable[[str, ReportRequest], Report]
"""Makes the report of a view, by its name, for a request."""
_FRESH_S: Final = 60
"""How long a report is kept whose interval is not over, even if the store does not change."""
MOST_CELLS: Final = 3_000_000
"""In all reports together: some hundred megabytes."""


class CachedReports:
    """Reports by view and request, made with `make` from this store. Thread-safe."""

    def __init__(self, store: Store, make: Make, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._store = store
        self._make = make
        self._state: State | None = None
        self._kept: OrderedDict[bytes, Report] = OrderedDict()
        self._making: dict[bytes, Lock] = {}
        self._lock = Lock()

    def report(self, view: str, request: ReportRequest) -> Report:
        """Return the report; make it if necessary. Raises the errors of `make`."""
        now = self._clock()
        # Runs in progress count until now.
        at = now // _FRESH_S if request.running and request.stop > now else None
        key = msgspec.msgpack.encode((view, request, at), enc_hook=str)
        with self._store.read() as connection:
            state = state_of(connection)
        with self._lock:
            if state != self._state:
                self._kept.clear()
                self._state = state
            mine = self._making.setdefault(key, Lock())
        with mine:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
            try:
                made = self._make(view, request)
            finally:
                with self._lock:
                    self._making.pop(key, None)
            with self._lock:
                if state == self._state:
                    self._kept[key] = made
                    while sum(map(_cells, self._kept.values())) > MOST_CELLS:
                        self._kept.popitem(last=False)
            return made

    def known(self) -> tuple[int | None, int | None]:
        """The ends of the first and the last run in epoch seconds; None without any run."""
        with self._store.read() as connection:
            first, last = (connection.execute(select(one)).scalar() for one in ENDS)
        return first, last


def _cells(report: Report) -> int:
    return len(report.rows) * len(report.columns) + sum(len(plot.x) * len(plot.series) for plot in report.plots)
