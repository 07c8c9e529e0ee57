"""The one sender: records, summaries, sync counts, and reports, in batches that are committed before they are sent.

Promises kept here: one bad item stops only itself (a refused batch is bisected, or sent in the parts that the answer
shows, and then the rejection policy decides); a message that is too large is split; a service that refuses our
credentials, or asks for a long pause, is left alone; on any other problem everything waits.

Several batches may be in flight, one for each worker. Their outcomes are handled in the order in which they were sent,
and committed when a later batch is marked as in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Any, TypeVar, assert_never

from msgspec import structs

from publisher.events import RecordSettled, TargetPaused
from publisher.messages.item import Item, Limits, halves
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import DUE, Finished, Release, Scope, Section
from publisher.publish import bookkeeping
from publisher.publish.context import DeliveryStats, StopSending, Tools
from publisher.publish.dispatcher import DeliveryContext, Dispatcher, PostedBatch, Settlement, Settlements
from publisher.publish.queue import Batch, SendQueue, after_acceptance, after_refusal
from publisher.publish.rejection import (
    PolicyStep,
    Probe,
    ProbeResult,
    RefusedRecord,
    Reject,
    RejectionPolicy,
    ResendAccepted,
    Steps,
    Stop,
    TryAgain,
)
from publisher.publish.retry import RetryBudget, answer_of
from publisher.publish.workers import Prefetcher, WorkerPool
from publisher.store import deliveries, groups, in_flight
from publisher.store.queries import SentVersion
from publisher.store.schema import State
from publisher.targets.base import (
    Accepted,
    Blocked,
    ChecksSettings,
    Outcome,
    Oversized,
    Refused,
    Target,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)

_T = TypeVar("_T")


class Sender:
    """Sends what is due to one target. Made for one run; `sent` has its statistics."""

    def __init__(self, recipient: Recipient, targets: Sequence[Target], tools: Tools, scope: Scope = DUE) -> None:
        """`targets`: the same service, once for each message that may be in flight; `scope`: which part of what is
        due."""
        assert recipient.name is not None
        assert recipient.target_id is not None  # deliveries are planned before anything is sent
        settings = recipient.required_settings()
        self.sent = DeliveryStats()
        self._recipient = recipient
        self._tools = tools
        self._scope = structs.replace(scope, backlog=tools.backlog)
        self._most = settings.batch_records
        self._limit_bytes = targets[0].payload_limit_bytes()
        self._sends_groups = settings.format.is_snapshot
        self._context = DeliveryContext(
            recipient.store,
            recipient.name,
            recipient.target_id,
            scope.part,
            keeps_first=not settings.second_version.sends_changed,
            syncs=recipient.sends_sync,
            clock=tools.clock,
            observer=tools.observer,
            sent=self.sent,
            held_totals=self._held_totals(recipient),
        )
        self._asked, self._first = False, targets[0]
        self._workers = WorkerPool(targets, RetryBudget(settings), tools)
        self._sent_batches: deque[int] = deque(maxlen=len(targets) + 1)
        self._settlements = Settlements(self._context)
        self._form_name = ""
        self._policy = RejectionPolicy(replaces=False)
        """The policy of the format that is being sent, for all its sections."""
        self._last: SectionSender | None = None
        self._finished: list[Finished] = []
        """Recorded when all that was sent before is decided: until then it may have to be sent again."""

    def _held_totals(self, recipient: Recipient) -> frozenset[tuple[int, str]]:
        if not self._sends_groups or recipient.target_id is None:
            return frozenset()
        with recipient.store.read() as connection:
            return frozenset(groups.in_state(connection, recipient.target_id, State.HELD))

    def run(self) -> None:
        """Settle what was in flight, then send all that is due.

        Raises `StoreError`, `CredentialError`, and `SigningError`; before that, everything unsent is set to wait again.
        """
        context = self._context
        try:
            if self._sends_groups:
                # The months of summaries that were in flight when a run ended are folded again.
                bookkeeping.put_back(context)
            with self._workers:
                for step in items(self._recipient, self._scope, now=context.clock(), limit_bytes=self._limit_bytes):
                    match step:
                        case Release():
                            bookkeeping.release(context, step)
                        case Section():
                            self._send(step)
                        case Finished():
                            self._finished.append(step)
                            self._finish()
                        case _:
                            pass  # a period that is not due is not sent
                self._conclude()
        except StopSending as stop:
            self.sent.paused = str(stop)
            context.observer(TargetPaused(context.target, str(stop)))
        finally:
            self._settlements.commit()
            bookkeeping.put_back(context, self._sent_batches)

    def _conclude(self) -> None:
        """No section of the same format follows: decide about refused items. Raises `StopSending`."""
        if self._last is not None:
            self._last.conclude()
            self._settlements.commit()
        self._finish()

    def _finish(self) -> None:
        """Record finished months."""
        # While refused items are undecided their months stay marked: cleared, nothing would make them again.
        if self._policy.is_settled:
            for step in self._finished:
                bookkeeping.finish(self._context, step)
            self._finished.clear()

    def _send(self, section: Section) -> None:
        """Send the items of a section, and settle all that no later section is needed for."""
        replaces = section.kind is not None
        if section.form.name != self._form_name:
            self._conclude()
            self._form_name, self._policy = section.form.name, RejectionPolicy(replaces=replaces)
            self._finished.clear()  # of what this run left out
        bookkeeping.prepare_section(self._context, section)
        limits = Limits(
            section.most or self._most,
            self._limit_bytes,
            section.form.overhead_bytes,
            section.form.separator_bytes,
            by_day=self._recipient.required_settings().by_day,
        )
        dispatcher = Dispatcher(
            self._context, section, self._workers, self._settlements, self._sent_batches, self._tools.stopping
        )

        def next_page() -> Sequence[Item] | None:
            page = next(section.pages, None)
            return None if page is None else bookkeeping.items_of(self._context, section, page)

        with closing(section):
            if replaces:
                queue = SendQueue(limits, next_page)
                self._last = self._section_sender(dispatcher, queue)
                self._last.run(())
            else:
                with Prefetcher(next_page, self._context.target) as pages:
                    queue = SendQueue(limits, pages.next, self._tools.backlog.loaded)
                    again = bookkeeping.recovered(self._context, self._recipient, limits)
                    self._last = self._section_sender(dispatcher, queue, pages.begin)
                    self._last.run(again)
        if section.most is None:
            self._most = queue.most  # of a service that was slow
        self._settlements.commit()
        self._finish()

    def _section_sender(
        self, dispatcher: Dispatcher, queue: SendQueue, prepare_next: Callable[[], None] = lambda: None
    ) -> SectionSender:
        return SectionSender(
            self._context, dispatcher, queue, self._policy, self._workers.count, prepare_next, self._why_not_ready
        )

    def _why_not_ready(self) -> Outcome | None:
        """Why the target would refuse every message, if it says so; asked before the first one."""
        if self._asked or not isinstance(self._first, ChecksSettings):
            return None
        self._asked = True
        return self._first.why_not_ready()


class SectionSender:
    """Sends the batches of one section, several at a time, and carries out the steps of the rejection policy."""

    def __init__(
        self,
        context: DeliveryContext,
        dispatcher: Dispatcher,
        queue: SendQueue,
        policy: RejectionPolicy,
        workers: int,
        prepare_next: Callable[[], None],
        why_not_ready: Callable[[], Outcome | None],
    ) -> None:
        """`prepare_next` is called when a batch has been sent, `why_not_ready` before batches are sent."""
        self._context = context
        self._dispatcher = dispatcher
        self._queue = queue
        self._policy = policy
        self._workers = workers
        self._prepare_next = prepare_next
        self._why_not_ready = why_not_ready
        self._posted: deque[PostedBatch] = deque()
        self._lost: BaseException | None = None
        """The error that ended a worker."""

    def run(self, again: Iterable[Batch]) -> None:
        """Send these batches, and then all of the queue. Raises `StopSending`, and as posting does."""
        try:
            try:
                for batch in again:
                    self._launch([batch])
                if self._follow(self._policy.admit_section()):
                    self._send_all()
                self._follow(self._policy.conclude(is_last=False))
            finally:
                self._settle_rest()
        except StopSending:
            if self._lost is not None:
                raise self._lost from None
            raise

    def conclude(self) -> None:
        """Decide about refused items of this section and those before it. Raises `StopSending`, and as posting does."""
        self._follow(self._policy.conclude(is_last=True))

    def _send_all(self) -> None:
        while True:
            batch = self._next()
            if batch is not None:
                self._launch(self._with_more(batch))
            elif self._posted:
                self._handle(self._posted.popleft())
            else:
                return

    def _next(self, besides: int = 0) -> Batch | None:
        """Return the next batch; None if nothing is left, or only items that must wait for the outcomes of the posted
        batches, and of the `besides` batches that leave now."""
        batch = self._queue.next()
        if batch is not None and (self._posted or besides) and self._queue.keep_last(batch):
            return None
        return batch

    def _with_more(self, first: Batch) -> list[Batch]:
        """Return a batch as soon as a worker is free for it, with more for others that are free: they leave with one
        commit. Raises `StopSending`."""
        self._free_worker()
        while self._posted and self._posted[0].outcome.done():
            self._handle(self._posted.popleft())
        leaving = [first]
        while len(self._posted) + len(leaving) < self._workers:
            batch = self._next(len(leaving))
            if batch is None:
                break
            leaving.append(batch)
        return leaving

    def _launch(self, leaving: Sequence[Batch]) -> None:
        """Send batches as soon as a worker is free. Raises `StopSending`."""
        self._free_worker()
        if (outcome := self._why_not_ready()) is not None:
            raise self._stop(outcome)
        self._posted += self._dispatcher.send(leaving, self._policy.last_new, self._prepare_next)

    def _free_worker(self) -> None:
        """Handle outcomes until a worker is free. Raises `StopSending`."""
        while len(self._posted) >= self._workers:
            self._handle(self._posted.popleft())

    def _handle(self, sent: PostedBatch) -> bool:
        """Wait for the outcome of a batch and act on it; True if it was accepted. Raises `StopSending`."""
        outcome = self._dispatcher.outcome_of(sent)
        match outcome:
            case Accepted():
                self._accept(sent, outcome)
                self._queue.push(after_acceptance(sent.batch))
                return True
            # A slow service never answers for the whole, and the same message would time out in every run.
            case Transient() | Unknown() if outcome.timed_out and len(sent.batch.items) > 1:
                self._settle(sent, outcome)
                self._halve(sent.batch, outcome)
                return False
            # The trouble is the service's, not that of these records: nothing is rejected for it, and everything waits.
            case Transient() | Throttled() | Unknown() | Unauthorised():
                self._settle(sent, outcome)
                raise self._stop(outcome)
            case Blocked():
                self._block(sent, outcome)
                return False
            case Oversized() | Refused():
                self._settle(sent, outcome)
                self._divide(sent, outcome)
                return False
            case _:
                assert_never(outcome)

    def _settle_rest(self) -> None:
        """Nothing more is sent: record the outcomes of all batches in flight."""
        while self._posted:
            sent = self._posted.popleft()
            if sent.outcome.cancel():
                self._settle(sent, Transient("not sent"))
                continue
            if sent.outcome.exception() is not None:
                # Left in flight: an earlier attempt to send it may have been accepted.
                self._lost = self._lost or sent.outcome.exception()
                continue
            outcome = self._dispatcher.outcome_of(sent)
            if isinstance(outcome, Accepted):
                self._accept(sent, outcome)
            elif isinstance(outcome, Blocked):
                self._block(sent, outcome)
            else:
                self._settle(sent, outcome)
                self._note_unauthorised(outcome)

    def _block(self, sent: PostedBatch, outcome: Blocked) -> None:
        """Hold a total with the answer; the others go on. What would hold records again and again is no state of an
        account or month, and is refused."""
        if sent.batch.items[0].group is None:
            refused = Refused(outcome.answer, certain=True, after_unknown=outcome.after_unknown)
            self._settle(sent, refused)
            self._divide(sent, refused)
            return
        self._settle(sent, outcome)
        if len(sent.batch.items) > 1:
            self._queue.push([Batch(half, State.IN_FLIGHT) for half in halves(sent.batch.items)])
            return
        self._dispatcher.settlements.commit()
        bookkeeping.block(self._context, sent.batch_id, sent.batch.items[0], outcome)

    def _settle(self, sent: PostedBatch, outcome: Outcome) -> Settlement:
        settlement = Settlement.of(sent.batch, sent.batch_id, outcome)
        self._dispatcher.settlements.add(settlement)
        return settlement

    def _accept(self, sent: PostedBatch, outcome: Accepted) -> None:
        named = self._settle(sent, outcome).named
        self._dispatcher.count_groups(len(named))
        self._policy.accepted(sent.batch_id, named, sent.batch.items)

    def _stop(self, outcome: Outcome) -> StopSending:
        self._note_unauthorised(outcome)
        return StopSending(answer_of(outcome))

    def _note_unauthorised(self, outcome: Outcome) -> None:
        if isinstance(outcome, Unauthorised) and not outcome.misdirected:
            self._context.sent.unauthorised = True

    def _halve(self, batch: Batch, outcome: Transient | Unknown) -> None:
        """The message timed out repeatedly: send it in halves, and no larger ones. A service that is slow, or a proxy
        with a short time-out before it, would never answer the whole message."""
        items = [self._may_be_there(item) for item in batch.items] if isinstance(outcome, Unknown) else batch.items
        first, second = halves(items)
        self._queue.shorten(len(first))
        self._queue.push([Batch(first, State.IN_FLIGHT, rest=[*second, *batch.other_half, *batch.rest])])

    def _divide(self, sent: PostedBatch, outcome: Oversized | Refused) -> None:
        batch = sent.batch
        if outcome.after_unknown:
            batch = structs.replace(batch, items=[self._may_be_there(item) for item in batch.items])
        if isinstance(outcome, Oversized) and len(batch.items) > 1:
            after = [*batch.other_half, *batch.rest]
            parts = [*halves(batch.items), after] if after else halves(batch.items)
            self._queue.push([Batch(part, State.IN_FLIGHT) for part in parts])
            return
        last = self._dispatcher.last_sent
        since = last if batch.since is None else batch.since
        certain = isinstance(outcome, Oversized) or outcome.certain
        known = () if isinstance(outcome, Oversized) else outcome.parts
        self._queue.push(after_refusal(batch, since, known))
        self._follow(
            self._policy.refused(
                sent.batch_id,
                batch.items,
                outcome.answer,
                certain=certain,
                as_a_whole=len(batch.items) == 1 or len(known) == 1,
                accepted_before=sent.accepted_before,
                sent_before=last,
                since=since,
                too_large_bytes=sent.size_bytes if isinstance(outcome, Oversized) else None,
            )
        )

    def _may_be_there(self, item: Item) -> Item:
        """Return a record that was sent, marked so: the service may have this version or, if it keeps the first, an
        earlier one."""
        if item.group is not None:
            return item
        before = item.sent
        several = self._context.keeps_first and before is not None and not before.is_known_as(item.digest)
        return structs.replace(item, sent=SentVersion(item.digest, several), may_be_there=True)

    # --- steps of the rejection policy

    def _follow(self, asked: Steps[_T]) -> _T:
        """Carry out the steps of the policy, one by one; return its result. Raises `StopSending`."""
        answer: Any = None
        while True:
            try:
                step = asked.send(answer)
            except StopIteration as end:
                result: _T = end.value
                return result
            answer = self._carry_out(step)

    def _carry_out(self, step: PolicyStep) -> ProbeResult | bool | None:
        match step:
            case Probe():
                return self._probe(newest=step.newest)
            case ResendAccepted():
                (sent,) = self._dispatcher.send_now([Batch([step.item], State.ACCEPTED)], self._policy.last_new)
                return isinstance(self._settle(sent, self._dispatcher.outcome_of(sent)).outcome, Accepted)
            case TryAgain():
                self._try_again(step.record)
            case Reject():
                self._reject(step.records)
            case Stop():
                raise StopSending(step.why)
            case _:
                assert_never(step)
        return None

    def _probe(self, *, newest: bool) -> ProbeResult:
        batch = self._queue.draw(newest=newest)
        if batch is None:
            return ProbeResult.NOTHING_LEFT
        sent = self._dispatcher.send([batch], self._policy.last_new, self._prepare_next)
        if not sent or not self._handle(sent[0]):
            return ProbeResult.NOT_ACCEPTED
        return ProbeResult.NEW if batch.has_new else ProbeResult.KNOWN

    def _try_again(self, record: RefusedRecord) -> None:
        (sent,) = self._dispatcher.send_now([Batch([record.item], State.IN_FLIGHT)], self._policy.last_new)
        outcome = self._dispatcher.outcome_of(sent)
        if isinstance(outcome, Accepted):
            self._accept(sent, outcome)
            return
        self._settle(sent, outcome)
        if not isinstance(outcome, Refused | Oversized):
            raise self._stop(outcome)
        if outcome.after_unknown:
            record = structs.replace(record, item=self._may_be_there(record.item))
        last = self._dispatcher.last_sent
        self._policy.refused_again(
            record, sent.batch_id, outcome.answer, accepted_before=sent.accepted_before, sent_before=last
        )

    def _reject(self, records: Sequence[RefusedRecord]) -> None:
        context = self._context
        replaces = any(record.item.group is not None for record in records)
        self._dispatcher.settlements.commit()
        with context.store.write(sorts_on_disk=replaces) as connection:
            for batch_id, reason in {record.batch_id: record.reason for record in records}.items():
                now = context.clock()
                context.sent.rejected += in_flight.mark_refused(connection, context.target_id, batch_id, reason, now)
                groups.settle(connection, context.target_id, batch_id, State.REJECTED, now)
            run_ids = [record.item.members.run_ids[0] for record in records if record.item.group is None]
            states = deliveries.states_of(connection, context.target_id, run_ids)
        # A total of which no run waits: nothing else would say that the service has another one.
        alone = [record for record in records if record.item.group is not None and not len(record.item.members)]
        context.sent.rejected += len(alone)
        for record in records:
            is_single = record.item.group is None and states.get(record.item.members.run_ids[0]) is State.REJECTED
            if is_single or record in alone:
                context.observer(RecordSettled(context.target, record.item.key, State.REJECTED.word, record.reason))
