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
from typing import Final, assert_never

from publisher.collect.wants import sends_sync
from publisher.config.schema import Config
from publisher.events import TargetPaused
from publisher.messages.item import Limits, halves, view_of
from publisher.plugins import record_format as form_of
from publisher.publish.background import RenderedPages, RenderOrder
from publisher.publish.context import StopSending, Tools
from publisher.publish.dispatch import DeliveryContext, Dispatcher, InFlightBatch, Receipts
from publisher.publish.pending import PendingReader
from publisher.publish.post import Prefetcher, RetryBudget, WorkerPool, answer_of
from publisher.publish.queue import Batch, SendQueue, after_acceptance, after_refusal
from publisher.publish.rejection import RejectionPolicy
from publisher.publish.stats import DeliveryStats
from publisher.store import batches, in_flight
from publisher.store.database import Store
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

_SMALLEST_PAGE: Final = 100
_LARGEST_PAGE: Final = 250
"""Runs read and rendered at a time: a batch of them, within these bounds."""


class Sender:
    """Sends what waits for one target. Made for one run."""

    def __init__(
        self,
        store: Store,
        config: Config,
        targets: Sequence[Target],
        target_id: int,
        tools: Tools,
        part: Shard = WHOLE,
        *,
        waiting: int = 0,
    ) -> None:
        """`targets` are the same service, once for each message that may be on its way; `part` of its deliveries.

        `waiting`: about how many wait. Raises as `publisher.plugins.record_format`.
        """
        target = targets[0]
        settings = config.targets[target.name]
        record_format = form_of(settings.records, view_of(settings, config))
        self.sent = DeliveryStats()
        self._lane = DeliveryContext(
            store,
            target.name,
            target_id,
            part,
            record_format,
            keeps_first=target.kind == "sgas",
            syncs=sends_sync(settings),
            clock=tools.clock,
            observer=tools.observer,
            sent=self.sent,
        )
        self._couriers = WorkerPool(targets, RetryBudget(settings), tools)
        self._flying: deque[InFlightBatch] = deque()
        self._limits = Limits(
            settings.batch_records,
            target.payload_limit_bytes(),
            record_format.overhead_bytes,
            record_format.separator_bytes,
        )
        size = min(max(settings.batch_records, _SMALLEST_PAGE), _LARGEST_PAGE)
        order = RenderOrder(config, target.name, target_id, part, size)
        renderer = order.renderer(store)
        self._intake = PendingReader(self._lane, renderer, RenderedPages(renderer, order, waiting).pages)
        self._ahead = Prefetcher(self._intake.next_page, target.name)
        self._backlog = SendQueue(self._limits, self._ahead.next)
        self._receipts = Receipts(self._lane)
        self._runway = Dispatcher(self._lane, self._couriers, self._receipts, tools.stopping, self._ahead.begin)
        self._judge = RejectionPolicy(self._lane, self._runway, self._receipts, self._backlog, self._fly, self._stop)
        self._lost_courier: BaseException | None = None

    def run(self) -> DeliveryStats:
        """Settle what was in flight, then send all that waits.

        Raises `StoreError`, `CredentialError`, `SigningError`; before that, everything unsent waits again.
        """
        lane = self._lane
        try:
            with closing(self._intake), self._couriers, self._ahead:
                try:
                    for flight in self._intake.recovered(self._limits):
                        self._launch(flight)
                    self._send_all()
                    self._judge.judge_suspects()
                finally:
                    self._see_off()
        except StopSending as stop:
            self.sent.paused = str(stop)
            lane.observer(TargetPaused(lane.target, str(stop)))
            if self._lost_courier is not None:
                raise self._lost_courier from None
        finally:
            self._receipts.settle()
            with lane.store.write() as connection:
                in_flight.put_back(connection, lane.target_id, State.IN_FLIGHT, lane.clock(), lane.part)
                own = None if lane.part == WHOLE else self._runway.left
                batches.close_open(connection, lane.target_id, lane.clock(), own)
        return self.sent

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
