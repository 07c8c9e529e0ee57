"""What sending summaries and sending reports have in common: both tell of whole periods, and replace what was sent.

A period of which not everything is known is held with the reason, and released by itself once it is; what was in flight
when a run ended waits again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from formats.month import Month
from formats.period import Period
from publisher.config import Config
from publisher.config import Target as TargetSettings
from publisher.observe.events import RecordSettled, TargetPaused
from publisher.pipeline.group_sender import Members
from publisher.pipeline.sent import Sent
from publisher.pipeline.tools import StopSending, Tools
from publisher.pipeline.wholeness import NOT_WHOLE, why_not_known_from
from publisher.pipeline.wish import period_kind
from publisher.store import batches, deliveries, groups
from publisher.store.database import Store
from publisher.store.deliveries import Waiting
from publisher.store.states import State


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
        self.sent = Sent()

    def run(self) -> None:
        """Send what changed, period by period.

        Raises `StoreError`, `CredentialError`, `SigningError`; before that, everything unsent waits again.
        """
        try:
            self._release_held()
            with self._store.write() as connection:
                deliveries.put_back(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())
                batches.close_open(connection, self._target_id, self._tools.clock())
            self._send_changed()
        except StopSending as stop:
            self.sent.paused = str(stop)
            self._tools.observer(TargetPaused(self._name, str(stop)))
        finally:
            with self._store.write() as connection:
                deliveries.put_back(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())

    @abstractmethod
    def _send_changed(self) -> None:
        """Send what changed. Raises `StopSending` when the target takes no more in this run."""

    def _why_not_whole(self, period: Period) -> str | None:
        return why_not_known_from(self._store, self._config, self._settings, period.start, str(period))

    def _release_held(self) -> None:
        with self._store.write() as connection:
            held = deliveries.periods_of(connection, self._target_id, State.HELD, period_kind(self._settings))
            for period in held:
                if self._why_not_whole(period) is None:
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

    def _settle_unsent(self, unchanged: Iterable[Members], held: Sequence[tuple[Waiting, str]]) -> None:
        """Accept the runs of groups that the service has as they are, and hold those that cannot be counted."""
        now = self._tools.clock()
        with self._store.write() as connection:
            self.sent.held += deliveries.move_seen(
                connection,
                self._target_id,
                ((one.run.run_id, one.seen, State.WAITING, State.HELD, why) for one, why in held),
                now,
            )
            deliveries.move_seen(
                connection,
                self._target_id,
                ((*one, State.WAITING, State.ACCEPTED, None) for members in unchanged for one in members.seen),
                now,
            )
        for one, why in held:
            self._tools.observer(RecordSettled(self._name, one.run.record_id, State.HELD.word, why))

    def _unmark(self, months: Mapping[Month, int]) -> None:
        """What these months were marked for is done, unless they were marked again meanwhile."""
        with self._store.write() as connection:
            for month, times in months.items():
                groups.unmark(connection, self._target_id, groups.REFOLD, month, times)
