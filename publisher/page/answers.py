"""Reports that were made are kept as long as the store stands as it stood, so that looking again costs nothing.

Each is made once, whoever asks for it at the same time; the most lately wanted ones are kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Final

import msgspec
from sqlalchemy import Connection, func, select

from publisher.report.request import ReportRequest
from publisher.report.result import Report
from publisher.store.database import Store
from publisher.store.tables import runs, sources

Make = Callable[[str, ReportRequest], Report]
"""A view by its name, for a request."""
State = tuple[object, ...]
MOST_CELLS: Final = 3_000_000
"""Of all reports kept: some hundred megabytes."""


_ENDS: Final = (func.min(runs.c.end_time), func.max(runs.c.end_time))


def state_of(connection: Connection) -> State:
    """What changes whenever runs are stored, changed or purged; index look-ups, however many runs there are."""
    asked = (*_ENDS, func.min(runs.c.id), func.max(runs.c.id))
    ends = [connection.execute(select(one)).scalar() for one in asked]  # one by one: two at once walk through all
    read = connection.execute(select(sources).order_by(sources.c.id)).all()
    return (*ends, *map(tuple, read))


class Answers:
    """Reports by view and request, made with `make` from this store. Safe in threads."""

    def __init__(self, store: Store, make: Make) -> None:
        self._store = store
        self._make = make
        self._state: State | None = None
        self._kept: OrderedDict[bytes, Report] = OrderedDict()
        self._making: dict[bytes, Lock] = {}
        self._lock = Lock()

    def report(self, view: str, request: ReportRequest) -> Report:
        """The report. Raises what making it raises."""
        key = msgspec.msgpack.encode((view, request), enc_hook=str)
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
        """When the first and the last run ended, in epoch seconds."""
        with self._store.read() as connection:
            first, last = (connection.execute(select(one)).scalar() for one in _ENDS)
        return first, last


def _cells(report: Report) -> int:
    return len(report.rows) * len(report.columns) + sum(len(plot.x) * len(plot.series) for plot in report.plots)
