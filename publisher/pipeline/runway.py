"""The runway: a flight is committed as in flight before it leaves with a courier.

Promise kept here: what is sent is in the ledger before it leaves, in the version that is sent. It does not leave where
there is no room to record what becomes of it, and of all that is on its way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import msgspec

from publisher.observe.events import BatchAnswered, BatchInFlight
from publisher.pipeline.backlog import Flight
from publisher.pipeline.batch import uid_of
from publisher.pipeline.couriers import Couriers
from publisher.pipeline.lane import Lane
from publisher.pipeline.receipts import Receipts
from publisher.pipeline.tools import StopSending
from publisher.store import batches, flights
from publisher.store.states import State
from publisher.targets.base import Message, Outcome


class Launched(msgspec.Struct, frozen=True):
    """A flight that was taken off, in a batch of so many bytes; its outcome comes.

    `knew`: the last batch with new records that was known to be taken when it left.
    """

    flight: Flight
    batch_id: int
    size_bytes: int
    knew: int
    outcome: Future[Outcome]


class _Overtaken(Exception):  # noqa: N818 - undoes a transaction; not an error of anybody
    """Runs of a flight changed between its rendering and its take-off."""


class Runway:
    """Of one run."""

    def __init__(
        self,
        lane: Lane,
        couriers: Couriers,
        receipts: Receipts,
        stopping: Callable[[], bool],
        begin_next: Callable[[], None],
    ) -> None:
        """`begin_next` is told when a flight has left: the next may be made ready."""
        self._lane = lane
        self._couriers = couriers
        self._receipts = receipts
        self._stopping = stopping
        self._begin_next = begin_next
        self.left: deque[int] = deque(maxlen=couriers.count + 1)
        """The batches that left, the last of them: all that may still be on their way."""
        self.taken_new = 0
        """The last batch with records that are new to the service that is known to be taken."""

    def take_off(self, flight: Flight) -> Launched | None:
        """Commit a flight as in flight and give it to a courier; None where nothing is left to send of it.

        Raises `StopSending` when told to stop, and `StoreFullError`.
        """
        if self._stopping():
            raise StopSending("told to stop")
        try:
            return self._leave(flight)
        except _Overtaken:
            as_read = self._as_read(flight)
            return self.take_off(as_read) if as_read.items else None

    def there_and_back(self, flight: Flight) -> tuple[Launched, Outcome]:
        """Send a flight of what is in flight or accepted, and wait for its outcome; nothing is done about it yet.

        Raises as `outcome_of`.
        """
        launched = self._leave(flight)
        return launched, self.outcome_of(launched)

    def outcome_of(self, launched: Launched) -> Outcome:
        """Wait for it. Raises `CredentialError` and `SigningError`."""
        outcome = launched.outcome.result()
        self._lane.observer(BatchAnswered(self._lane.target, launched.batch_id, type(outcome).__name__))
        self._lane.sent.batches += 1
        self._lane.sent.bytes += launched.size_bytes
        return outcome

    def _as_read(self, flight: Flight) -> Flight:
        """The flight without the runs that changed or are no longer wanted since it was read."""
        with self._lane.store.read() as connection:
            seen = {item.run_id: item.seen for item in flight.items}
            same = flights.unchanged(connection, self._lane.target_id, seen)
        return Flight([item for item in flight.items if item.run_id in same], flight.before)

    def _leave(self, flight: Flight) -> Launched:
        lane = self._lane
        items = flight.items
        uid = flight.uid or uid_of(lane.target, items)
        payload = lane.record_format.message([item.body for item in items])
        now = lane.clock()
        lane.store.require_room(self._couriers.count * (batches.ROOM_BYTES + len(items) * batches.ROOM_OF_RUN_BYTES))
        with lane.store.write() as connection:
            self._receipts.settle_in(connection)
            batch_id = batches.open_batch(
                connection,
                lane.target_id,
                uid,
                lane.record_format.name,
                len(items),
                len(payload),
                max(item.end_time for item in items),
                now,
            )
            if flight.before is not State.ACCEPTED:
                flying = [(item.run_id, item.digest, item.seen) for item in items]
                taken = flights.take_off(
                    connection,
                    lane.target_id,
                    batch_id,
                    flying,
                    now,
                    before=flight.before,
                    keeps_first=lane.keeps_first,
                )
                if taken < len(items) and flight.before is State.WAITING:
                    raise _Overtaken
                lane.mark_due(connection, (item.end_time for item in items))
        self.left.append(batch_id)
        self._receipts.tell()
        record_ids = tuple(item.record_id for item in items)
        lane.observer(BatchInFlight(lane.target, batch_id, len(items), record_ids))
        message = Message(uid, lane.record_format.name, lane.record_format.content_type, payload, record_ids)
        self._begin_next()
        knew = self.taken_new
        return Launched(flight, batch_id, len(payload), knew, self._couriers.send(message, batch_id))
