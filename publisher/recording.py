"""Runs of the program, recorded in the history of their store (`publisher.store.history`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from publisher.configured_store import ConfiguredStore
from publisher.store import history
from publisher.store.database import Store
from publisher.store.history import ProgramRun


class Recording:
    """One run: recorded when it first needs the store, so that one without work leaves no store behind.

    `done`: what it did, by the keys of its `--json`; without lists, which may be long. `exit_code`: that of a run which
    ends without an exception; None: 0.
    """

    def __init__(self, command: str, clock: Callable[[], int], keep_months: int) -> None:
        self.done: dict[str, Any] = {}
        self.exit_code: int | None = None
        self._command = command
        self._clock = clock
        self._keep_months = keep_months
        self._store: Store | None = None
        self._id = 0

    def begin(self, store: Store) -> None:
        """Record that it began, if this is not recorded yet. Raises `StoreError` and its kinds."""
        if self._store is None:
            with store.write() as connection:
                host = os.uname().nodename
                self._id = history.begin(connection, self._command, host, self._clock(), self._keep_months)
            self._store = store

    def end(self, exit_code: int, error: str | None = None) -> None:
        """Record its end and what it did, if it ever needed the store. Raises as `begin`."""
        if self._store is not None:
            done = self.done if error is None else self.done | {"error": error}
            with self._store.write() as connection:
                history.end(connection, self._id, self._clock(), exit_code, done)


class History:
    """The runs of the program with a store; without a store there are none."""

    def __init__(self, opened: ConfiguredStore, clock: Callable[[], int], keep_months: int) -> None:
        self._opened = opened
        self._clock = clock
        self._keep_months = keep_months

    def begin(self, command: str) -> Recording:
        """Record a run of the program from when it needs the store, until `end`."""
        recording = Recording(command, self._clock, self._keep_months)
        self._opened.record(recording.begin)
        return recording

    def end(self, recording: Recording, exit_code: int, error: str | None = None) -> None:
        """Record the end of a run, and why it stopped. Raises `StoreError` and its kinds."""
        self._opened.record(None)
        recording.end(exit_code, error)

    def count(self) -> int:
        """How many runs are recorded."""
        with self._opened.reading() as connection:
            return 0 if connection is None else history.count(connection)

    def newest(self, limit: int | None = None) -> list[ProgramRun]:
        """The runs, newest first; None: all."""
        with self._opened.reading() as connection:
            return [] if connection is None else history.newest(connection, limit)

    def of_id(self, run_id: int) -> ProgramRun | None:
        """The run with this id, if it is known."""
        with self._opened.reading() as connection:
            return None if connection is None else history.of_id(connection, run_id)
