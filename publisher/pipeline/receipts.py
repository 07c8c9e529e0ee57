"""Receipts: what became of a batch, put down in the ledger with the take-off of a later one, or when asked.

One sync to the disk does for both. Never more than one waits to be put down.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection

from publisher.observe.events import BatchSettled
from publisher.pipeline.backlog import Flight
from publisher.pipeline.batch import Item
from publisher.pipeline.lane import Lane
from publisher.pipeline.post import answer_of
from publisher.store import batches, deliveries, flights
from publisher.store.sent import KEPT_AS
from publisher.store.states import BatchState, State
from publisher.targets.base import Accepted, Outcome, Unknown

_NOT_NAMED = "the service's answer did not name this record; it is sent again"


class Receipts:
    """Of one run."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._unsettled: Callable[[Connection], None] | None = None
        self._settled: BatchSettled | None = None

    def accepted(self, flight: Flight, batch_id: int, outcome: Accepted) -> list[Item]:
        """A batch was taken; gives what the answer named of it. The rest waits again."""
        missing = set(outcome.missing)
        named = [item for item in flight.items if item.record_id not in missing]
        lost = [item for item in flight.items if item.record_id in missing]
        notes = {
            item.run_id: KEPT_AS + outcome.rewritten[item.record_id]
            for item in named
            if item.record_id in outcome.rewritten
        }
        lane = self._lane
        target_id, keeps_first = lane.target_id, lane.keeps_first

        def settle(connection: Connection) -> None:
            now = lane.clock()
            moves = [(item.run_id, State.IN_FLIGHT, State.WAITING, _NOT_NAMED) for item in lost]
            deliveries.move(connection, target_id, moves, now)
            flights.land(connection, target_id, batch_id, now, keeps_first=keeps_first, expected=len(named))
            deliveries.note(connection, target_id, notes)
            batches.close(connection, batch_id, BatchState.ACCEPTED, now, receipt=outcome.receipt)

        self._settle_later(settle, flight, batch_id, outcome)
        lane.sent.accepted += len(named)
        return named

    def not_accepted(self, flight: Flight, batch_id: int, outcome: Outcome) -> None:
        """A batch was not taken, or nobody knows; its records stay in flight."""
        answer = answer_of(outcome)
        earlier = {item.run_id: item.sent for item in flight.items if item.sent is not None}

        def settle(connection: Connection) -> None:
            if not isinstance(outcome, Unknown):
                flights.not_taken(connection, self._lane.target_id, batch_id, earlier)
            batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, self._lane.clock(), answer=answer)

        self._settle_later(settle, flight, batch_id, outcome)

    def _settle_later(
        self, settle: Callable[[Connection], None], flight: Flight, batch_id: int, outcome: Outcome
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
