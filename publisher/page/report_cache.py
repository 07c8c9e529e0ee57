"""Reports that were made are kept as long as the store does not change, so that looking again costs nothing.

Each is made once, however many ask for it at the same time; those used last are kept.
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
"""A view by its name, for a request."""
_FRESH_S: Final = 60
"""How long a report is kept whose interval is not over, though nothing new was read."""
MOST_CELLS: Final = 3_000_000
"""Of all reports kept: some hundred megabytes."""


class CachedReports:
    """Reports by view and request, made with `make` from this store. Safe in threads."""

    def __init__(self, store: Store, make: Make, clock: Callable[[], int]) -> None:
        self._clock = clock
        self._store = store
        self._make = make
        self._state: State | None = None
        self._kept: OrderedDict[bytes, Report] = OrderedDict()
        self._making: dict[bytes, Lock] = {}
        self._lock = Lock()

    def report(self, view: str, request: ReportRequest) -> Report:
        """The report. Raises what making it raises."""
        now = self._clock()
        # Runs in progress count until now.
        at = now // _FRESH_S if request.running and request.stop > now else None
        key = msgspec.msgpack.encode((view, request, at), enc_hook=str)
        with self._store.read() as connection:
            state = state_of(connection, now)
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
        """When the first and the last run ended, in epoch seconds."""
        with self._store.read() as connection:
            first, last = (connection.execute(select(one)).scalar() for one in ENDS)
        return first, last


def _cells(report: Report) -> int:
    return len(report.rows) * len(report.columns) + sum(len(plot.x) * len(plot.series) for plot in report.plots)
