"""The runway: a flight is committed as in flight before it leaves with a courier.

Promise kept here: what is sent is in the ledger before it leaves, in the version that is sent. It does not leave where
there is no room to record what becomes of it, and of all that is on its way.

Receipts: what became of a batch, put down in the ledger with the take-off of a later one, or when asked.

One sync to the disk does for both. Never more than one waits to be put down.

A lane: the deliveries of one target, or a part of them, as one run sends them; what its workers share.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future

import msgspec
from sqlalchemy import Connection

from formats.reason import Reason
from publisher.events import BatchAnswered, BatchInFlight, BatchSettled, Observer
from publisher.messages.item import Item, MessageFormat, uid_of
from publisher.publish.context import StopSending
from publisher.publish.post import WorkerPool, answer_of
from publisher.publish.queue import Batch
from publisher.publish.stats import DeliveryStats
from publisher.reason import ReasonCode
from publisher.store import batches, deliveries, groups, in_flight
from publisher.store.database import Store
from publisher.store.deliveries import Shard
from publisher.store.schema import BatchState, State
from publisher.targets.base import Accepted, Message, Outcome, Unknown


class DeliveryContext(msgspec.Struct, frozen=True):
    """`keeps_first`: the service keeps the first version of a record. `syncs`: sync messages go with the records.

    `sent` is what the run did so far; the one thing here that changes.
    """

    store: Store
    target: str
    target_id: int
    part: Shard
    record_format: MessageFormat
    keeps_first: bool
    syncs: bool
    clock: Callable[[], int]
    observer: Observer
    sent: DeliveryStats

    def mark_due(self, connection: Connection, end_times: Iterable[int]) -> None:
        """Let the sync of the months with these ends be made anew."""
        if self.syncs:
            groups.mark_due(connection, self.target_id, groups.DueFor.SYNC, end_times)


_NOT_NAMED = Reason.of(ReasonCode.NOT_IN_ANSWER)


class Receipts:
    """Of one run."""

    def __init__(self, lane: DeliveryContext) -> None:
        self._lane = lane
        self._unsettled: Callable[[Connection], None] | None = None
        self._settled: BatchSettled | None = None

    def accepted(self, flight: Batch, batch_id: int, outcome: Accepted) -> list[Item]:
        """A batch was taken; gives what the answer named of it. The rest waits again."""
        missing = set(outcome.missing)
        named = [item for item in flight.items if item.key not in missing]
        lost = [item for item in flight.items if item.key in missing]
        notes = {
            _run_id(item): Reason.of(ReasonCode.KEPT_UNDER_OTHER_ID, record_id=outcome.rewritten[item.key])
            for item in named
            if item.key in outcome.rewritten
        }
        lane = self._lane
        target_id, keeps_first = lane.target_id, lane.keeps_first

        def settle(connection: Connection) -> None:
            now = lane.clock()
            moves = [(_run_id(item), State.IN_FLIGHT, State.WAITING, _NOT_NAMED) for item in lost]
            deliveries.move(connection, target_id, moves, now)
            in_flight.mark_accepted(connection, target_id, batch_id, now, keeps_first=keeps_first, expected=len(named))
            deliveries.set_reasons(connection, target_id, notes)
            batches.close(connection, batch_id, BatchState.ACCEPTED, now, receipt=outcome.receipt)

        self._settle_later(settle, flight, batch_id, outcome)
        lane.sent.accepted += len(named)
        return named

    def not_accepted(self, flight: Batch, batch_id: int, outcome: Outcome) -> None:
        """A batch was not taken, or nobody knows; its records stay in flight."""
        answer = answer_of(outcome)
        earlier = {_run_id(item): item.sent for item in flight.items if item.sent is not None}

        def settle(connection: Connection) -> None:
            if not isinstance(outcome, Unknown):
                in_flight.not_taken(connection, self._lane.target_id, batch_id, earlier)
            batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, self._lane.clock(), answer=answer)

        self._settle_later(settle, flight, batch_id, outcome)

    def _settle_later(
        self, settle: Callable[[Connection], None], flight: Batch, batch_id: int, outcome: Outcome
    ) -> None:
        self.settle()
        self._unsettled = settle
        size = sum(len(item.body) for item in flight.items)
        name = type(outcome).__name__
        self._settled = BatchSettled(self._lane.target, batch_id, name, len(flight.items), size)

    def settle_in(self, connection: Connection) -> None:
        """Put down what waits to be, in this transaction; `tell` says so once it is committed."""
        if self._unsettled is not None:
            self._unsettled(connection)

    def tell(self) -> None:
        """What was put down is committed."""
        event, self._settled, self._unsettled = self._settled, None, None
        if event is not None:
            self._lane.observer(event)

    def settle(self) -> None:
        """Put down what waits to be, now."""
        if self._unsettled is not None:
            with self._lane.store.write() as connection:
                self.settle_in(connection)
            self.tell()


class InFlightBatch(msgspec.Struct, frozen=True):
    """A flight that was taken off, in a batch of so many bytes; its outcome comes.

    `knew`: the last batch with new records that was known to be taken when it left.
    """

    flight: Batch
    batch_id: int
    size_bytes: int
    knew: int
    outcome: Future[Outcome]


def _run_id(record: Item) -> int:
    return record.members.run_ids[0]


class _Overtaken(Exception):  # noqa: N818 - undoes a transaction; not an error of anybody
    """Runs of a flight changed between its rendering and its take-off."""


class Dispatcher:
    """Of one run."""

    def __init__(
        self,
        lane: DeliveryContext,
        couriers: WorkerPool,
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

    def take_off(self, flight: Batch) -> InFlightBatch | None:
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

    def there_and_back(self, flight: Batch) -> tuple[InFlightBatch, Outcome]:
        """Send a flight of what is in flight or accepted, and wait for its outcome; nothing is done about it yet.

        Raises as `outcome_of`.
        """
        launched = self._leave(flight)
        return launched, self.outcome_of(launched)

    def outcome_of(self, launched: InFlightBatch) -> Outcome:
        """Wait for it. Raises `CredentialError` and `SigningError`."""
        outcome = launched.outcome.result()
        self._lane.observer(BatchAnswered(self._lane.target, launched.batch_id, type(outcome).__name__))
        self._lane.sent.batches += 1
        self._lane.sent.bytes += launched.size_bytes
        return outcome

    def _as_read(self, flight: Batch) -> Batch:
        """The flight without the runs that changed or are no longer wanted since it was read."""
        with self._lane.store.read() as connection:
            seen = {run_id: revision for item in flight.items for run_id, revision in item.members}
            same = in_flight.unchanged(connection, self._lane.target_id, seen)
        return Batch([item for item in flight.items if _run_id(item) in same], flight.before)

    def _leave(self, flight: Batch) -> InFlightBatch:
        lane = self._lane
        items = flight.items
        payload = lane.record_format.message([item.body for item in items])
        uid = flight.uid or uid_of(lane.target, items, payload)
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
                max(item.latest_end or 0 for item in items),
                now,
            )
            if flight.before is not State.ACCEPTED:
                flying = [(run_id, item.digest, revision) for item in items for run_id, revision in item.members]
                taken = in_flight.mark_in_flight(
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
                lane.mark_due(connection, (item.latest_end or 0 for item in items))
        self.left.append(batch_id)
        self._receipts.tell()
        record_ids = tuple(item.key for item in items)
        lane.observer(BatchInFlight(lane.target, batch_id, len(items), record_ids))
        message = Message(uid, lane.record_format.name, lane.record_format.content_type, payload, record_ids)
        self._begin_next()
        knew = self.taken_new
        return InFlightBatch(flight, batch_id, len(payload), knew, self._couriers.send(message, batch_id))
