"""send: the records that wait for a target, in batches: commit in flight, post, commit the receipt.

Promises kept here: what is sent is in the ledger before it leaves; one bad record stops only itself (a refused batch is
halved until the culprit is alone); a record is rejected only if the service took another record after it; in any other
trouble everything waits.

Several batches may be on their way, one with each courier; what became of them is seen to in the order in which they
left, and a receipt is committed with the take-off of a later batch: one sync to the disk for both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Final, assert_never

import msgspec
from sqlalchemy import Connection

from formats.record import CannotRenderError, RecordFormat
from publisher.config import Target as TargetSettings
from publisher.observe.events import (
    BatchAnswered,
    BatchInFlight,
    BatchSettled,
    RecordSettled,
    TargetPaused,
)
from publisher.pipeline.ahead import Ahead
from publisher.pipeline.backlog import Backlog, Flight, after_acceptance, after_refusal
from publisher.pipeline.batch import Item, Limits, cut, halves, uid_of
from publisher.pipeline.couriers import Couriers
from publisher.pipeline.demand import Demand
from publisher.pipeline.post import Patience, answer_of
from publisher.pipeline.sent import Sent
from publisher.pipeline.tools import StopSending, Tools
from publisher.pipeline.wish import sends_sync
from publisher.store import batches, deliveries, groups, resends
from publisher.store.database import Store
from publisher.store.deliveries import Waiting
from publisher.store.part import WHOLE, Part
from publisher.store.sent import KEPT_AS
from publisher.store.states import BatchState, State
from publisher.targets.base import (
    Accepted,
    Message,
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
_LARGEST_PAGE: Final = 1000
"""Runs read and rendered at a time: a batch of them, within these bounds."""
_MOST_SUSPECTS: Final = 200
_REFUSALS_BEFORE_DOUBT: Final = 20
"""More than it takes to find one bad record in a batch of a few thousand by halving."""
_SCOUTS: Final = 5
_TOOK_NONE: Final = "%s (the service took no record at all in this run; everything waits)"
_NOT_NAMED: Final = "the service's answer did not name this record; it is sent again"


class Suspect(msgspec.Struct, frozen=True):
    """A record that was refused alone, with the answer: bad, or sent in a bad moment.

    `since`: the last batch that had left when it was first refused, alone or with others. Only one that left later
    tells something about the service as it was after that; those beside it on their way may have been taken before.
    `certain`: the answer is about the record, so that trying it again tells nothing. The service may still be at fault
    (a limit or a name configured wrongly, there or here), and then refuses every record alike.
    """

    item: Item
    answer: str
    certain: bool
    since: int


class _Launched(msgspec.Struct, frozen=True):
    """A flight that was taken off, in a batch of so many bytes; its outcome comes."""

    flight: Flight
    batch_id: int
    size_bytes: int
    outcome: Future[Outcome]


class _Overtaken(Exception):  # noqa: N818 - undoes a transaction; not an error of anybody
    """Runs of a flight changed between its rendering and its take-off."""


class Sender:
    """Sends what waits for one target. Made for one run."""

    def __init__(
        self,
        store: Store,
        targets: Sequence[Target],
        target_id: int,
        settings: TargetSettings,
        record_format: RecordFormat,
        demand: Demand,
        tools: Tools,
        part: Part = WHOLE,
    ) -> None:
        """`targets` are the same service, once for each message that may be on its way; `part` of its deliveries."""
        target = targets[0]
        self._store = store
        self._target = target
        self._target_id = target_id
        self._mine = part
        self._begun: deque[int] = deque(maxlen=len(targets) + 1)
        self._format = record_format
        self._demand = demand
        self._clock = tools.clock
        self._observer = tools.observer
        self._stopping = tools.stopping
        self._couriers = Couriers(targets, Patience(settings), tools)
        self._flying: deque[_Launched] = deque()
        self._keeps_first = target.kind == "sgas"
        self._limits = Limits(
            settings.batch_records,
            target.payload_limit_bytes(),
            record_format.overhead_bytes,
            record_format.separator_bytes,
        )
        self._sync_months = sends_sync(settings)
        self._unsettled: Callable[[Connection], None] | None = None
        self._settled: BatchSettled | None = None
        self._after: tuple[int, int] | None = None
        self._page = min(max(settings.batch_records, _SMALLEST_PAGE), _LARGEST_PAGE)
        self._ahead = Ahead(self._next_page, target.name)
        self._backlog = Backlog(self._limits, self._ahead.next)
        self._suspects: dict[int, Suspect] = {}
        self._refusals_since_accept = 0
        self._scouted = False
        self._proof: Item | None = None
        self._taken = 0
        """The last batch with records that are new to the service that it took."""
        self._again = False
        """What the service has is sent again on request: it must do as if new then, for there may be no other."""
        self._lost_courier: BaseException | None = None
        self.sent = Sent()

    def run(self) -> Sent:
        """Settle what was in flight, then send all that waits.

        Raises `StoreError`, `CredentialError`, `SigningError`; before that, everything unsent waits again.
        """
        try:
            with self._couriers, self._ahead:
                try:
                    for flight in self._recovered():
                        self._launch(flight)
                    self._send_all()
                    self._judge_suspects()
                finally:
                    self._see_off()
        except StopSending as stop:
            self.sent.paused = str(stop)
            self._observer(TargetPaused(self._target.name, str(stop)))
            if self._lost_courier is not None:
                raise self._lost_courier from None
        finally:
            self._settle()
            with self._store.write() as connection:
                deliveries.put_back(connection, self._target_id, State.IN_FLIGHT, self._clock(), self._mine)
                own = None if self._mine == WHOLE else self._begun
                batches.close_open(connection, self._target_id, self._clock(), own)
        return self.sent

    def _send_all(self) -> None:
        while True:
            flight = self._backlog.next()
            if flight is not None:
                self._launch(flight)
            elif self._flying:
                self._see_to(self._flying.popleft())
            else:
                return

    # --- what to send

    def _next_page(self) -> Sequence[Item] | None:
        with self._store.read() as connection:
            page = deliveries.waiting(connection, self._target_id, self._after, self._page, self._mine)
        if not page:
            return None
        self._after = (page[-1].end_time, page[-1].run.run_id)
        return self._rendered(page, State.WAITING)

    def _recovered(self) -> Iterator[Flight]:
        """Batches that were in flight when a run ended without an answer: sent again, with the same ids."""
        with self._store.write() as connection:
            deliveries.settle_unwanted(connection, self._target_id, self._clock(), self._mine)
            if not self._keeps_first:
                deliveries.forget_changes(connection, self._target_id, self._mine)
            found = deliveries.in_flight(connection, self._target_id, self._mine)
            self._again = resends.under_way(connection, self._target_id)
        by_batch: dict[int, list[Waiting]] = {}
        for batch_id, delivery in found:
            by_batch.setdefault(batch_id, []).append(delivery)
        for batch_id, page in by_batch.items():
            with self._store.write() as connection:
                uid = batches.uid_of(connection, batch_id)
                answer = "no answer was recorded: sent again with the same ids"
                batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, self._clock(), answer=answer)
            pieces = list(cut(self._rendered(page, State.IN_FLIGHT), self._limits))
            for items in pieces:
                yield Flight(items, State.IN_FLIGHT, uid if len(pieces) == 1 else None)

    def _rendered(self, page: Sequence[Waiting], before: State) -> list[Item]:
        """The page as it will be sent; what cannot be rendered is held with the reason."""
        items = []
        held: list[tuple[Waiting, str]] = []
        for delivery in page:
            run = delivery.run
            try:
                rendered = self._format.record(self._demand.meet(run), run.stored_at)
            except CannotRenderError as error:
                held.append((delivery, str(error)))
                continue
            record_id = rendered.record_id or run.record_id
            there = (delivery.sent and not self._again) or before is State.IN_FLIGHT
            items.append(
                Item(run.run_id, delivery.end_time, record_id, run.digest, rendered.body, delivery.seen, there)
            )
        if held:
            self._hold(held, before)
        return items

    def _hold(self, held: Sequence[tuple[Waiting, str]], before: State) -> None:
        with self._store.write() as connection:
            moves = [(delivery.run.run_id, delivery.seen, before, State.HELD, reason) for delivery, reason in held]
            self.sent.held += deliveries.move_seen(connection, self._target_id, moves, self._clock())
            self._mark_due(connection, [delivery.end_time for delivery, _ in held])
        for delivery, reason in held:
            self._observer(RecordSettled(self._target.name, delivery.run.record_id, State.HELD.word, reason))

    def _mark_due(self, connection: Connection, end_times: Iterable[int]) -> None:
        if self._sync_months:
            groups.mark(connection, self._target_id, groups.DUE, end_times, self._clock())

    # --- sending

    def _launch(self, flight: Flight) -> None:
        """Send a flight on its way, as soon as a courier is free for it. Raises `StopSending`."""
        while len(self._flying) >= self._couriers.count:
            self._see_to(self._flying.popleft())
        launched = self._take_off(flight)
        if launched is not None:
            self._flying.append(launched)

    def _fly(self, flight: Flight) -> bool:
        """Send a flight and see to what became of it; True if it was taken. Raises `StopSending`."""
        launched = self._take_off(flight)
        return launched is not None and self._see_to(launched)

    def _see_to(self, launched: _Launched) -> bool:
        """Wait for the outcome of a flight and act on it; True if it was taken. Raises `StopSending`."""
        flight, batch_id = launched.flight, launched.batch_id
        outcome = self._outcome_of(launched)
        match outcome:
            case Accepted():
                self._accept(flight, batch_id, outcome)
                self._backlog.push(after_acceptance(flight))
                return True
            case Transient() | Throttled() | Unknown() | Unauthorised():
                self._close(flight, batch_id, outcome)
                raise self._stop(outcome)
            case Oversized() | Refused():
                self._close(flight, batch_id, outcome)
                self._part(flight, outcome)
                return False
            case _:
                assert_never(outcome)

    def _see_off(self) -> None:
        """Nothing more is sent: put down what became of all that is still on its way."""
        while self._flying:
            launched = self._flying.popleft()
            flight, batch_id = launched.flight, launched.batch_id
            if launched.outcome.cancel():
                self._close(flight, batch_id, Transient("not sent"))
                continue
            if launched.outcome.exception() is not None:
                # Left open as the batch of one that ends the run: an earlier try of it may have been taken.
                self._lost_courier = self._lost_courier or launched.outcome.exception()
                continue
            outcome = self._outcome_of(launched)
            if isinstance(outcome, Accepted):
                self._accept(flight, batch_id, outcome)
            else:
                self._close(flight, batch_id, outcome)
                self._note_unauthorised(outcome)

    def _stop(self, outcome: Outcome) -> StopSending:
        self._note_unauthorised(outcome)
        return StopSending(answer_of(outcome))

    def _note_unauthorised(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unauthorised) and not outcome.misdirected:
            self.sent.unauthorised = True

    def _as_read(self, flight: Flight) -> Flight:
        """The flight without the runs that changed or are no longer wanted since it was read."""
        with self._store.read() as connection:
            seen = {item.run_id: item.seen for item in flight.items}
            same = deliveries.unchanged(connection, self._target_id, seen)
        return Flight([item for item in flight.items if item.run_id in same], flight.before)

    def _take_off(self, flight: Flight) -> _Launched | None:
        """Commit a flight as in flight and give it to a courier; None where nothing is left to send of it."""
        if self._stopping():
            raise StopSending("told to stop")
        try:
            return self._leave(flight)
        except _Overtaken:
            as_read = self._as_read(flight)
            return self._take_off(as_read) if as_read.items else None

    def _leave(self, flight: Flight) -> _Launched:
        items = flight.items
        uid = flight.uid or uid_of(self._target.name, items)
        payload = self._format.message([item.body for item in items])
        now = self._clock()
        with self._store.write() as connection:
            self._settle_in(connection)
            batch_id = batches.open_batch(
                connection,
                self._target_id,
                uid,
                self._format.name,
                len(items),
                len(payload),
                max(item.end_time for item in items),
                now,
            )
            if flight.before is not State.ACCEPTED:
                flying = [(item.run_id, item.digest, item.seen) for item in items]
                taken = deliveries.take_off(
                    connection,
                    self._target_id,
                    batch_id,
                    flying,
                    now,
                    before=flight.before,
                    keeps_first=self._keeps_first,
                )
                if taken < len(items) and flight.before is State.WAITING:
                    raise _Overtaken
                self._mark_due(connection, (item.end_time for item in items))
        self._begun.append(batch_id)
        self._tell_settled()
        record_ids = tuple(item.record_id for item in items)
        self._observer(BatchInFlight(self._target.name, batch_id, len(items), record_ids))
        message = Message(uid, self._format.name, self._format.content_type, payload, record_ids)
        self._ahead.begin()
        return _Launched(flight, batch_id, len(payload), self._couriers.send(message, batch_id))

    def _outcome_of(self, launched: _Launched) -> Outcome:
        """Raises `CredentialError` and `SigningError`."""
        outcome = launched.outcome.result()
        self._observer(BatchAnswered(self._target.name, launched.batch_id, type(outcome).__name__))
        self.sent.batches += 1
        self.sent.bytes += launched.size_bytes
        return outcome

    def _try_alone(self, flight: Flight) -> tuple[Outcome, int]:
        """Send a flight and wait for its outcome; nothing is done about it yet."""
        launched = self._leave(flight)
        return self._outcome_of(launched), launched.batch_id

    def _accept(self, flight: Flight, batch_id: int, outcome: Accepted) -> None:
        missing = set(outcome.missing)
        named = [item for item in flight.items if item.record_id not in missing]
        lost = [item for item in flight.items if item.record_id in missing]
        notes = {
            item.run_id: KEPT_AS + outcome.rewritten[item.record_id]
            for item in named
            if item.record_id in outcome.rewritten
        }
        target_id, keeps_first = self._target_id, self._keeps_first

        def settle(connection: Connection) -> None:
            now = self._clock()
            moves = [(item.run_id, State.IN_FLIGHT, State.WAITING, _NOT_NAMED) for item in lost]
            deliveries.move(connection, target_id, moves, now)
            deliveries.land(connection, target_id, batch_id, now, keeps_first=keeps_first, expected=len(named))
            deliveries.note(connection, target_id, notes)
            batches.close(connection, batch_id, BatchState.ACCEPTED, now, receipt=outcome.receipt)

        self._settle_later(settle, flight, batch_id, outcome)
        self.sent.accepted += len(named)
        if named:
            self._refusals_since_accept = 0
            self._proof = named[0]
            if flight.tells:
                self._taken = max(self._taken, batch_id)
        for item in flight.items:
            self._suspects.pop(item.run_id, None)

    def _close(self, flight: Flight, batch_id: int, outcome: Outcome) -> None:
        answer = answer_of(outcome)

        def settle(connection: Connection) -> None:
            if not isinstance(outcome, Unknown):
                deliveries.not_taken(connection, self._target_id, batch_id)
            batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, self._clock(), answer=answer)

        self._settle_later(settle, flight, batch_id, outcome)

    # --- refusals

    def _part(self, flight: Flight, outcome: Oversized | Refused) -> None:
        if isinstance(outcome, Oversized) and len(flight.items) > 1:
            behind = [*flight.sister, *flight.others]
            parts = [*halves(flight.items), behind] if behind else halves(flight.items)
            self._backlog.push([Flight(part, State.IN_FLIGHT) for part in parts])
            return
        since = self._begun[-1] if flight.since is None else flight.since
        self._backlog.push(after_refusal(flight, since))
        if len(flight.items) == 1:
            certain = isinstance(outcome, Oversized) or outcome.certain
            self._suspects[flight.items[0].run_id] = Suspect(flight.items[0], outcome.answer, certain, since)
        self._refusals_since_accept += 1
        if self._refusals_since_accept >= _REFUSALS_BEFORE_DOUBT:
            self._doubt(outcome.answer, since)
        if len(self._suspects) >= _MOST_SUSPECTS:
            self._judge_suspects()

    def _doubt(self, answer: str, since: int) -> None:
        """Nothing was taken for a while: is it the records or the service? Show it one that it has; then try others,
        unless it took new ones since it first refused these."""
        self._refusals_since_accept = 0
        if self._proof is None:
            if self._scouted:
                return
            self._scouted = True
            if not self._takes_a_scout() and self._proof is None:
                raise StopSending(_TOOK_NONE % answer)
            return
        if not self._service_is_well():
            raise StopSending(f"{answer} (the service does not take even a record that it holds; everything waits)")
        if since >= self._taken and self._takes_a_scout() is False:
            self._judge([suspect for suspect in self._suspects.values() if not self._is_doubtful(suspect)])
            raise StopSending(f"{answer} (the service takes no new record any more; everything waits)")

    def _takes_a_scout(self) -> bool | None:
        """Whether the service takes a new record, out of a few from anywhere; None where nothing else tells."""
        found: bool | None = None
        for _ in range(_SCOUTS):
            scout = self._backlog.draw()
            if scout is None:
                return found
            if not self._fly(scout):
                found = False
            elif scout.tells:
                return True
        return found

    def _service_is_well(self) -> bool:
        """Whether the service takes a record again that it took before in this run."""
        proof = self._proof
        assert proof is not None  # asked only after an acceptance
        flight = Flight([proof], State.ACCEPTED)
        outcome, batch_id = self._try_alone(flight)
        self._close(flight, batch_id, outcome)
        return isinstance(outcome, Accepted)

    def _judge_suspects(self) -> None:
        """Records refused alone get a second try where that can help; those refused are rejected if the service is
        well after it.

        That it takes a record which it has is not enough for many: SGAS ignores such a one, though it could store none.
        """
        suspects = list(self._suspects.values())
        if suspects and self._proof is None:
            raise StopSending(_TOOK_NONE % suspects[-1].answer)
        doubtful = sum(map(self._is_doubtful, suspects))
        if doubtful >= _REFUSALS_BEFORE_DOUBT and self._takes_a_scout() is not True:
            self._judge([suspect for suspect in suspects if not self._is_doubtful(suspect)])
            raise StopSending(f"{suspects[-1].answer} (the service took no new record after {doubtful}; they wait)")
        self._judge(suspects)

    def _is_doubtful(self, suspect: Suspect) -> bool:
        """Whether it took no new record that left after this one was first refused, and did not say what is wrong."""
        return not suspect.certain and suspect.since >= self._taken

    def _judge(self, suspects: Sequence[Suspect]) -> None:
        if not suspects:
            return
        refused: list[Suspect] = []
        for suspect in suspects:
            self._suspects.pop(suspect.item.run_id, None)
            if suspect.certain:
                refused.append(suspect)
                continue
            flight = Flight([suspect.item], State.IN_FLIGHT)
            outcome, batch_id = self._try_alone(flight)
            if isinstance(outcome, Accepted):
                self._accept(flight, batch_id, outcome)
                continue
            self._close(flight, batch_id, outcome)
            if not isinstance(outcome, Refused | Oversized):
                raise self._stop(outcome)
            refused.append(msgspec.structs.replace(suspect, answer=outcome.answer))
        if refused and not self._service_is_well():
            raise StopSending(f"{refused[0].answer} (the service is not well; everything waits)")
        self._reject(refused)

    def _reject(self, suspects: Sequence[Suspect]) -> None:
        self._settle()
        with self._store.write() as connection:
            moves = [(suspect.item.run_id, State.IN_FLIGHT, State.REJECTED, suspect.answer) for suspect in suspects]
            deliveries.move(connection, self._target_id, moves, self._clock())
        self.sent.rejected += len(suspects)
        for suspect in suspects:
            record_id = suspect.item.record_id
            self._observer(RecordSettled(self._target.name, record_id, State.REJECTED.word, suspect.answer))

    # --- receipts

    def _settle_later(
        self, settle: Callable[[Connection], None], flight: Flight, batch_id: int, outcome: Outcome
    ) -> None:
        self._settle()
        self._unsettled = settle
        size = sum(len(item.body) for item in flight.items)
        name = type(outcome).__name__
        self._settled = BatchSettled(self._target.name, batch_id, name, len(flight.items), size)

    def _settle_in(self, connection: Connection) -> None:
        if self._unsettled is not None:
            self._unsettled(connection)

    def _tell_settled(self) -> None:
        event, self._settled, self._unsettled = self._settled, None, None
        if event is not None:
            self._observer(event)

    def _settle(self) -> None:
        if self._unsettled is not None:
            with self._store.write() as connection:
                self._settle_in(connection)
            self._tell_settled()
