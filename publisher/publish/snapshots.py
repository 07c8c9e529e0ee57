"""What sending summaries and sending reports have in common: both tell of whole periods, and replace what was sent.

A period of which not everything is known is held with the reason, and released by itself once it is; what was in flight
when a run ended waits again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final

from sqlalchemy import Connection

from formats.calendar import Month, Period
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.events import RecordSettled, TargetPaused
from publisher.messages.completeness import NOT_WHOLE, why_not_known_from
from publisher.messages.due import to_release
from publisher.messages.item import Members
from publisher.publish.context import StopSending, Tools
from publisher.publish.stats import DeliveryStats
from publisher.store import batches, deliveries, groups, in_flight, runs
from publisher.store.database import Store
from publisher.store.schema import State

_MOVED_AT_ONCE: Final = 10_000


class SnapshotSender(ABC):
    """Sends what one target is owed in whole periods. Made for one run; `sent` says what it did."""

    def __init__(
        self, store: Store, config: Config, name: str, target_id: int, settings: TargetSettings, tools: Tools
    ) -> None:
        self._store = store
        self._config = config
        self._name = name
        self._target_id = target_id
        self._settings = settings
        self._tools = tools
        self.sent = DeliveryStats()

    def run(self) -> None:
        """Send what changed, period by period.

        Raises `StoreError`, `CredentialError`, `SigningError`; before that, everything unsent waits again.
        """
        try:
            self._release_held()
            with self._store.write() as connection:
                in_flight.put_back(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())
                batches.close_open(connection, self._target_id, self._tools.clock())
            self._send_changed()
        except StopSending as stop:
            self.sent.paused = str(stop)
            self._tools.observer(TargetPaused(self._name, str(stop)))
        finally:
            with self._store.write() as connection:
                in_flight.put_back(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())

    @abstractmethod
    def _send_changed(self) -> None:
        """Send what changed. Raises `StopSending` when the target takes no more in this run."""

    def _why_not_whole(self, period: Period) -> str | None:
        return why_not_known_from(self._store, self._config, self._settings, period.start, str(period))

    def _release_held(self) -> None:
        released = to_release(self._store, self._settings, self._target_id, self._why_not_whole)
        with self._store.write() as connection:
            for period in released:
                deliveries.move_between(
                    connection,
                    self._target_id,
                    (period.start, period.stop),
                    State.HELD,
                    State.WAITING,
                    None,
                    self._tools.clock(),
                    only_reason=NOT_WHOLE,
                )

    def _hold(self, bounds: tuple[int, int], reason: str) -> None:
        """Hold what waits and ended within bounds (the second exclusive)."""
        with self._store.write() as connection:
            self.sent.held += deliveries.move_between(
                connection, self._target_id, bounds, State.WAITING, State.HELD, reason, self._tools.clock()
            )

    def _settle_unsent(self, unchanged: Iterable[Members], held: Mapping[str, Members]) -> None:
        """Accept the runs of groups that the service has as they are, and hold those that cannot be counted, each with
        the reason under which it stands."""
        now = self._tools.clock()
        taken = chain.from_iterable(unchanged)
        with self._store.write() as connection:
            for why, members in held.items():
                self.sent.held += self._move_seen(connection, members, State.HELD, why, now)
            self._move_seen(connection, taken, State.ACCEPTED, None, now)
        for why, members in held.items():
            with self._store.read() as connection:
                for record_id in runs.record_ids(connection, members.run_ids):
                    self._tools.observer(RecordSettled(self._name, record_id, State.HELD.word, why))

    def _move_seen(
        self, connection: Connection, seen: Iterable[tuple[int, int]], after: State, why: str | None, now: int
    ) -> int:
        """Move runs that wait, some at a time; gives how many were moved."""
        moved = 0
        left = iter(seen)
        while some := list(islice(left, _MOVED_AT_ONCE)):
            moves = ((*one, State.WAITING, after, why) for one in some)
            moved += deliveries.move_seen(connection, self._target_id, moves, now)
        return moved

    def _unmark(self, months: Mapping[Month, int]) -> None:
        """What these months were marked for is done, unless they were marked again meanwhile."""
        with self._store.write() as connection:
            for month, times in months.items():
                groups.unmark(connection, self._target_id, groups.REFOLD, month, times)
