"""send: the records that wait for a target, in batches: commit in flight, post, commit the receipt.

Promises kept here: one bad record stops only itself (a refused batch is halved until the culprit is alone, and then
judged); in any other trouble everything waits.

Several batches may be on their way, one with each courier; what became of them is seen to in the order in which they
left, and a receipt is committed with the take-off of a later batch: one sync to the disk for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import assert_never

from publisher.messages.item import Limits, halves
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Section
from publisher.publish.context import StopSending, Tools
from publisher.publish.dispatch import DeliveryContext, Dispatcher, InFlightBatch, Receipts
from publisher.publish.pending import PendingReader
from publisher.publish.post import Prefetcher, RetryBudget, WorkerPool, answer_of
from publisher.publish.queue import Batch, SendQueue, after_acceptance, after_refusal
from publisher.publish.rejection import RejectionPolicy
from publisher.publish.stats import DeliveryStats
from publisher.store import batches, in_flight
from publisher.store.deliveries import WHOLE, Shard
from publisher.store.schema import State
from publisher.targets.base import (
    Accepted,
    Outcome,
    Oversized,
    Refused,
    Target,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)


class Sender:
    """Sends what waits for one target. Made for one run."""

    def __init__(
        self,
        recipient: Recipient,
        targets: Sequence[Target],
        section: Section,
        part: Shard,
        tools: Tools,
        patience: RetryBudget,
        sent: DeliveryStats,
    ) -> None:
        """`targets` are the same service, once for each message that may be on its way; `part` of its deliveries.

        Counts in `sent`.
        """
        target = targets[0]
        settings = recipient.required_settings()
        assert recipient.target_id is not None  # a target is planned for before it is sent anything
        self.sent = sent
        self._lane = DeliveryContext(
            recipient.store,
            target.name,
            recipient.target_id,
            part,
            section.form,
            keeps_first=recipient.keeps_first,
            syncs=recipient.sends_sync,
            clock=tools.clock,
            observer=tools.observer,
            sent=self.sent,
        )
        self._couriers = WorkerPool(targets, patience, tools)
        self._flying: deque[InFlightBatch] = deque()
        self._limits = Limits(
            settings.batch_records,
            target.payload_limit_bytes(),
            section.form.overhead_bytes,
            section.form.separator_bytes,
        )
        self._section = section
        self._intake = PendingReader(self._lane, recipient, section.pages)
        self._ahead = Prefetcher(self._intake.next_page, target.name)
        self._backlog = SendQueue(self._limits, self._ahead.next, tools.backlog.loaded)
        self._receipts = Receipts(self._lane)
        self._runway = Dispatcher(self._lane, self._couriers, self._receipts, tools.stopping, self._ahead.begin)
        self._judge = RejectionPolicy(self._lane, self._runway, self._receipts, self._backlog, self._fly, self._stop)
        self._lost_courier: BaseException | None = None

    def run(self) -> None:
        """Settle what was in flight, then send all that waits.

        Raises `StopSending`, `StoreError`, `CredentialError`, and `SigningError`; before that, everything unsent waits
        again.
        """
        lane = self._lane
        try:
            with closing(self._section), self._couriers, self._ahead:
                try:
                    for flight in self._intake.recovered(self._limits):
                        self._launch(flight)
                    self._send_all()
                    self._judge.judge_suspects()
                finally:
                    self._see_off()
        except StopSending:
            if self._lost_courier is not None:
                raise self._lost_courier from None
            raise
        finally:
            self._receipts.settle()
            with lane.store.write() as connection:
                in_flight.let_wait(connection, lane.target_id, State.IN_FLIGHT, lane.clock(), lane.part)
                own = None if lane.part == WHOLE else self._runway.left
                batches.close_open(connection, lane.target_id, lane.clock(), own)

    def _send_all(self) -> None:
        while True:
            flight = self._backlog.next()
            if flight is not None and self._flying and self._backlog.keep_last(flight):
                self._see_to(self._flying.popleft())
            elif flight is not None:
                self._launch(flight)
            elif self._flying:
                self._see_to(self._flying.popleft())
            else:
                return

    def _launch(self, flight: Batch) -> None:
        """Send a flight on its way, as soon as a courier is free for it. Raises `StopSending`."""
        while len(self._flying) >= self._couriers.count:
            self._see_to(self._flying.popleft())
        launched = self._runway.take_off(flight)
        if launched is not None:
            self._flying.append(launched)

    def _fly(self, flight: Batch) -> bool:
        """Send a flight and see to what became of it; True if it was taken. Raises `StopSending`."""
        launched = self._runway.take_off(flight)
        return launched is not None and self._see_to(launched)

    def _see_to(self, launched: InFlightBatch) -> bool:
        """Wait for the outcome of a flight and act on it; True if it was taken. Raises `StopSending`."""
        flight, batch_id = launched.flight, launched.batch_id
        outcome = self._runway.outcome_of(launched)
        match outcome:
            case Accepted():
                self._accept(launched, outcome)
                self._backlog.push(after_acceptance(flight))
                return True
            case Transient() | Throttled() | Unknown() | Unauthorised():
                self._receipts.not_accepted(flight, batch_id, outcome)
                raise self._stop(outcome)
            case Oversized() | Refused():
                self._receipts.not_accepted(flight, batch_id, outcome)
                self._part(launched, outcome)
                return False
            case _:
                assert_never(outcome)

    def _see_off(self) -> None:
        """Nothing more is sent: put down what became of all that is still on its way."""
        while self._flying:
            launched = self._flying.popleft()
            flight, batch_id = launched.flight, launched.batch_id
            if launched.outcome.cancel():
                self._receipts.not_accepted(flight, batch_id, Transient("not sent"))
                continue
            if launched.outcome.exception() is not None:
                # Left open as the batch of one that ends the run: an earlier try of it may have been taken.
                self._lost_courier = self._lost_courier or launched.outcome.exception()
                continue
            outcome = self._runway.outcome_of(launched)
            if isinstance(outcome, Accepted):
                self._accept(launched, outcome)
            else:
                self._receipts.not_accepted(flight, batch_id, outcome)
                self._note_unauthorised(outcome)

    def _accept(self, launched: InFlightBatch, outcome: Accepted) -> None:
        self._judge.taken(launched, self._receipts.accepted(launched.flight, launched.batch_id, outcome))

    def _stop(self, outcome: Outcome) -> StopSending:
        self._note_unauthorised(outcome)
        return StopSending(answer_of(outcome))

    def _note_unauthorised(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unauthorised) and not outcome.misdirected:
            self.sent.unauthorised = True

    def _part(self, launched: InFlightBatch, outcome: Oversized | Refused) -> None:
        flight = launched.flight
        if isinstance(outcome, Oversized) and len(flight.items) > 1:
            behind = [*flight.sister, *flight.others]
            parts = [*halves(flight.items), behind] if behind else halves(flight.items)
            self._backlog.push([Batch(part, State.IN_FLIGHT) for part in parts])
            return
        since = self._runway.left[-1] if flight.since is None else flight.since
        self._backlog.push(after_refusal(flight, since))
        self._judge.refused(launched, outcome, since)
