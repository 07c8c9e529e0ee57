"""Dispatch batches and record their outcomes.

Promise kept here: what is sent is in the ledger before it leaves, in the version that is sent. A batch is not sent if
the disk has no room to record its outcome and the outcomes of all batches in flight.

The outcome of a batch is a `Settlement`, a value. It is committed in the transaction that marks later batches as in
flight, so that one sync to disk serves all; or at once, if no batch follows.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import Final

import msgspec
from msgspec import structs
from sqlalchemy import Connection

from formats.rule_codes import Reason
from publisher.errors import StoreCorruptError
from publisher.events import BatchAnswered, BatchInFlight, BatchSettled, Observer
from publisher.messages.item import Item, Members, uid_of
from publisher.messages.steps import Section
from publisher.publish.context import DeliveryStats, StopSending
from publisher.publish.queue import Batch
from publisher.publish.retry import answer_of
from publisher.publish.workers import WorkerPool
from publisher.reason import ReasonCode
from publisher.store import batches, deliveries, groups, in_flight, sent_mark
from publisher.store.database import Store
from publisher.store.deliveries import Shard
from publisher.store.queries import SentVersion
from publisher.store.schema import BatchState, State
from publisher.targets.base import Accepted, Blocked, Message, Outcome, Oversized, Refused, Unauthorised, Unknown

_NOT_NAMED: Final = Reason.of(ReasonCode.NOT_IN_ANSWER)
_NEAR_BITS: Final = 14
"""Runs of groups are marked as in flight by one statement if their ids differ only in so many bits: 16,384 ids."""
_MOST_TRIES: Final = 10
"""So often a decision of somebody may change a run and change it back while it is being sent."""
_MANY_MEMBERS: Final = 100_000
"""From this many runs in one settlement on, they are sorted on disk; fewer take a few megabytes of memory."""


class DeliveryContext(msgspec.Struct, frozen=True):
    """The deliveries of one target, or a part of them, that one run sends.

    `keeps_first`: the service keeps the first version of a record. `syncs`: sync counts are sent with the records.
    `held_totals`: month and key of those that the service did not take before.
    `sent`: the run's statistics so far; the only field that changes.
    """

    store: Store
    target: str
    target_id: int
    part: Shard
    keeps_first: bool
    syncs: bool
    clock: Callable[[], int]
    observer: Observer
    sent: DeliveryStats
    held_totals: frozenset[tuple[int, str]] = frozenset()

    def mark_due(self, connection: Connection, end_times: Iterable[int]) -> None:
        """Mark the sync counts of the months with these ends as due again."""
        if self.syncs:
            groups.mark_due(connection, self.target_id, groups.DueFor.SYNC, end_times)


class PostedBatch(msgspec.Struct, frozen=True):
    """A batch that was sent, with its size in bytes; its outcome is pending.

    `accepted_before`: the last batch with new records that was known to be accepted when this one was sent.
    """

    batch: Batch
    batch_id: int
    size_bytes: int
    accepted_before: int
    outcome: Future[Outcome]


class Settlement(msgspec.Struct, frozen=True):
    """The outcome of a batch, and the transitions that it causes.

    `batch`: all items. `missing`: items of an accepted batch that the service's answer does not name; they wait again.
    `kept`: those of which the service keeps another version; they are superseded. What was not accepted stays in
    flight: its parts are sent again in this run, or wait again at its end.
    """

    batch: Batch
    batch_id: int
    outcome: Outcome
    missing: Sequence[Item] = ()
    kept: Sequence[Item] = ()

    @staticmethod
    def of(batch: Batch, batch_id: int, outcome: Outcome) -> Settlement:
        """Return what follows from an outcome. A batch of records that were accepted before settles only itself."""
        if not isinstance(outcome, Accepted) or not (outcome.missing or outcome.kept):
            return Settlement(batch, batch_id, outcome)
        missing = set(outcome.missing)
        return Settlement(
            batch,
            batch_id,
            outcome,
            [item for item in batch.items if item.key in missing],
            [item for item in batch.items if item.key in outcome.kept],
        )

    @property
    def accepts(self) -> bool:
        """Whether deliveries become accepted."""
        return isinstance(self.outcome, Accepted) and self.batch.before is not State.ACCEPTED

    @property
    def is_surely_not_taken(self) -> bool:
        """Whether certainly no attempt to send the message was accepted."""
        outcome = self.outcome
        if isinstance(outcome, Refused | Oversized | Blocked | Unauthorised):
            return not outcome.after_unknown
        return not isinstance(outcome, Accepted | Unknown)

    @property
    def named(self) -> Sequence[Item]:
        """The items that the service's answer accepts."""
        if not self.missing and not self.kept:
            return self.batch.items
        others = {item.key for item in (*self.missing, *self.kept)}
        return [item for item in self.batch.items if item.key not in others]

    @property
    def rewritten(self) -> dict[int, Reason]:
        """By run: the other id under which the service keeps its record."""
        if not isinstance(self.outcome, Accepted) or not self.outcome.rewritten:
            return {}
        ids = self.outcome.rewritten
        return {
            _run_id(item): Reason.of(ReasonCode.KEPT_UNDER_OTHER_ID, record_id=ids[item.key])
            for item in self.named
            if item.key in ids
        }

    def kept_versions(self) -> dict[int, in_flight.KeptVersion]:
        """By run: the version of a record that the service keeps, and why the one that was sent changes nothing."""
        assert isinstance(self.outcome, Accepted)
        return {
            _run_id(item): in_flight.KeptVersion(
                _not_sent_now(item), Reason.of(ReasonCode.KEPT_VERSION, difference=self.outcome.kept[item.key])
            )
            for item in self.kept
        }

    @property
    def earlier(self) -> dict[int, SentVersion]:
        """By run: the version of a record that the service had before, or may have had."""
        return {_run_id(item): item.sent for item in self.batch.items if item.group is None and item.sent is not None}


class Settlements:
    """The settlements of one run; commits the outcomes of batches. Those that wait for their commit, and the batches
    without an outcome, are never more than the workers."""

    def __init__(self, context: DeliveryContext) -> None:
        self._context = context
        self._pending: list[Settlement] = []
        self._committed: list[BatchSettled] = []
        self._accepted = 0

    def add(self, settlement: Settlement) -> None:
        """Commit this settlement with the next batches."""
        self._pending.append(settlement)

    def commit(self) -> None:
        """Commit the settlements that wait, if any, now."""
        if not self._pending:
            return
        with self._context.store.write(sorts_on_disk=self.settles_many) as connection:
            self.apply(connection)
        self.report()

    @property
    def settles_many(self) -> bool:
        """Whether the runs of large summaries are settled by one statement, so that memory does not grow with them."""
        return any(
            settlement.batch.items[0].group is not None
            and sum(len(item.members) for item in settlement.batch.items) >= _MANY_MEMBERS
            for settlement in self._pending
        )

    def apply(self, connection: Connection) -> None:
        """Record the settlements that wait in this transaction; call `report` once it is committed."""
        self._accepted = 0
        self._committed = [self._apply(connection, settlement) for settlement in self._pending]

    def _apply(self, connection: Connection, settlement: Settlement) -> BatchSettled:
        context, batch_id, outcome = self._context, settlement.batch_id, settlement.outcome
        items, now = settlement.batch.items, context.clock()
        target_id, is_record = context.target_id, settlement.batch.items[0].group is None
        settled = len(items) if is_record else 0
        if settlement.accepts and isinstance(outcome, Accepted):
            named = len(items) - len(settlement.missing) - len(settlement.kept)
            # An answer that does not name a record says nothing about it: sent again under its id, it counts once.
            moves = [(_run_id(item), State.IN_FLIGHT, State.WAITING, _NOT_NAMED) for item in settlement.missing]
            deliveries.move(connection, target_id, moves, now)
            if settlement.kept:
                in_flight.keep_earlier(connection, target_id, batch_id, settlement.kept_versions(), now)
            accepted = in_flight.mark_accepted(
                connection,
                target_id,
                batch_id,
                now,
                keeps_first=context.keeps_first,
                expected=named if is_record and not settlement.kept else None,
            )
            deliveries.set_reasons(connection, target_id, settlement.rewritten)
            batches.close(connection, batch_id, BatchState.ACCEPTED, now, receipt=outcome.receipt)
            if not is_record:
                groups.settle(connection, target_id, batch_id, State.ACCEPTED, now)
                settled = accepted
            self._accepted += named if is_record else accepted
        elif isinstance(outcome, Accepted):  # the service had these records and accepted them again
            batches.close(connection, batch_id, BatchState.ACCEPTED, now, receipt=outcome.receipt)
        else:
            # Only then: a version that the service may have must stay known, or a changed key would make it count
            # twice.
            if is_record and settlement.is_surely_not_taken:
                in_flight.not_taken(connection, target_id, batch_id, settlement.earlier)
            answer = answer_of(outcome)
            batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, now, answer=answer)
        size = sum(len(item.body) for item in items)
        return BatchSettled(context.target, batch_id, type(outcome).__name__, settled, size)

    def report(self) -> None:
        """Report what was applied; the transaction is committed."""
        self._pending.clear()
        self._context.sent.accepted += self._accepted
        self._accepted = 0
        events, self._committed = self._committed, []
        for event in events:
            self._context.observer(event)


def _not_sent_now(record: Item) -> SentVersion:
    """The version that was sent before this one; which one it was is unknown where the ledger does not show it."""
    if record.sent is None or record.sent.digest == record.digest:
        return SentVersion(record.digest, may_be_one_of_several=True)
    return record.sent


def _run_id(record: Item) -> int:
    return record.members.run_ids[0]


class _Changed(Exception):  # noqa: N818 - rolls a transaction back; it is not an error
    """Runs of batches changed after they were rendered."""


class Dispatcher:
    """Marks the batches of one section as in flight and gives them to workers."""

    def __init__(
        self,
        context: DeliveryContext,
        section: Section,
        workers: WorkerPool,
        settlements: Settlements,
        sent: deque[int],
        stopping: Callable[[], bool],
    ) -> None:
        """`sent`: the batches that this run has sent, the most recent ones: all that may still be in flight."""
        self._context = context
        self._section = section
        self._workers = workers
        self.settlements = settlements
        self._stopping = stopping
        self._sent = sent

    def send(
        self, leaving: Sequence[Batch], accepted_before: int, prepare_next: Callable[[], None]
    ) -> list[PostedBatch]:
        """Commit batches as in flight, all in one transaction, and give them to workers that are free for them. Items
        that changed are left out, and batches of which no item is left.

        `accepted_before` as in `PostedBatch`; `prepare_next` is called once the batches are sent.
        Raises `StopSending` when interrupted, `StoreFullError`, and `StoreCorruptError`.
        """
        tries = 0
        while leaving:
            if self._stopping():
                raise StopSending("interrupted")
            try:
                return self.send_now(leaving, accepted_before, prepare_next)
            except _Changed:
                as_read = [self._as_read(batch) if batch.before is State.WAITING else batch for batch in leaving]
            tries = tries + 1 if _count(as_read) == _count(leaving) else 0
            if tries == _MOST_TRIES:
                raise StoreCorruptError(
                    "the store is damaged: deliveries that wait by an index are in another state in their rows"
                )
            leaving = [batch for batch in as_read if batch.items]
        return []

    def send_now(
        self, leaving: Sequence[Batch], accepted_before: int, prepare_next: Callable[[], None] = lambda: None
    ) -> list[PostedBatch]:
        """Like `send`, but also when interrupted; for items that are in flight or accepted already."""
        context, store = self._context, self._context.store
        now = context.clock()
        messages = [self._message(batch) for batch in leaving]
        # What was sent, and its outcome, must be recorded: so nothing leaves before the disk has room for both.
        store.require_room(self._workers.count * max(_room_bytes(batch.items) for batch in leaving))
        with store.write(sorts_on_disk=self.settlements.settles_many) as connection:
            self.settlements.apply(connection)
            batch_ids = [
                self._open(connection, batch, message, now) for batch, message in zip(leaving, messages, strict=True)
            ]
            # In the transaction of the departure: a store restored to an earlier state then counts fewer than the file.
            mark = sent_mark.count_messages(connection, len(leaving), now)
        self._sent += batch_ids
        # Before a message leaves: killed after that, the file would not know of it, nor show that a store was restored.
        store.mark_sent(mark)
        self.settlements.report()
        prepare_next()
        posted = []
        for batch, batch_id, message in zip(leaving, batch_ids, messages, strict=True):
            context.observer(BatchInFlight(context.target, batch_id, len(batch.items), message.record_ids))
            # With the batch: a total that returns to earlier sums has an earlier id, by which a service would ignore
            # it.
            key = "" if self._section.kind is None else f"{message.batch_id}-{batch_id}"
            outcome = self._workers.send(structs.replace(message, idempotency_key=key), batch_id)
            posted.append(PostedBatch(batch, batch_id, len(message.payload), accepted_before, outcome))
        return posted

    def _message(self, batch: Batch) -> Message:
        form = self._section.form
        payload = form.message([item.body for item in batch.items])
        keys = tuple(item.key for item in batch.items)
        record_ids = keys if self._section.kind is None else ()
        uid = uid_of(self._context.target, batch.items, payload)
        sent_before = tuple(item.key for item in batch.items if item.was_sent)
        return Message(uid, form.name, form.content_type, payload, record_ids, keys=keys, sent_before=sent_before)

    def _open(self, connection: Connection, batch: Batch, message: Message, now: int) -> int:
        """Record a batch, and its items as in flight; return its id."""
        latest = max((item.latest_end for item in batch.items if item.latest_end is not None), default=None)
        batch_id = batches.open_batch(
            connection,
            self._context.target_id,
            message.batch_id,
            message.format,
            len(batch.items),
            len(message.payload),
            latest,
            now,
        )
        if batch.before is not State.ACCEPTED:
            self._mark_in_flight(connection, batch, batch_id, now)
        return batch_id

    @property
    def last_sent(self) -> int:
        """The number of the last batch that was sent."""
        return self._sent[-1]

    def count_groups(self, accepted: int) -> None:
        """Count accepted items, if they are summaries or reports."""
        if self._section.kind not in {None, groups.SYNC}:
            self._context.sent.groups += accepted

    def outcome_of(self, sent: PostedBatch) -> Outcome:
        """Wait for the outcome of a batch. Raises `CredentialError` and `SigningError`."""
        outcome = sent.outcome.result()
        self._context.observer(BatchAnswered(self._context.target, sent.batch_id, type(outcome).__name__))
        if not (isinstance(outcome, Refused) and outcome.known_before):
            self._context.sent.batches += 1
            self._context.sent.bytes += sent.size_bytes
        return outcome

    def _mark_in_flight(self, connection: Connection, batch: Batch, batch_id: int, now: int) -> None:
        context, items = self._context, batch.items
        target_id, keeps_first = context.target_id, context.keeps_first
        members = chain.from_iterable(item.members for item in items)
        if self._section.kind is None:
            context.mark_due(connection, (item.latest_end for item in items if item.latest_end is not None))
            if batch.before is State.IN_FLIGHT:
                versions = [(_run_id(item), item.digest) for item in items]
                in_flight.send_again(connection, target_id, batch_id, versions, now, keeps_first=keeps_first)
            elif in_flight.mark_in_flight(connection, target_id, batch_id, members, now, keeps_first=keeps_first) < len(
                items
            ):
                raise _Changed
            return
        rows = [item.group for item in items if item.group is not None]
        groups.mark_in_flight(connection, target_id, self._section.kind, batch_id, rows, now)
        for some in _near_together(members):
            if batch.before is State.IN_FLIGHT:
                in_flight.move_to_batch(connection, target_id, batch_id, some.run_ids, now)
            else:
                in_flight.mark_in_flight(connection, target_id, batch_id, some, now, keeps_first=keeps_first)

    def _as_read(self, batch: Batch) -> Batch:
        """Return the batch without the runs that changed, or are no longer selected, since it was read."""
        revisions: Mapping[int, int] = dict(run for item in batch.items for run in item.members)
        with self._context.store.read() as connection:
            same = in_flight.unchanged(connection, self._context.target_id, revisions)
        return Batch([item for item in batch.items if _run_id(item) in same], batch.before)


def _near_together(members: Iterable[tuple[int, int]]) -> Iterator[Members]:
    """Yield the runs of many groups (run id, revision), those with near ids together.

    A statement writes each page of the table with one of its runs, and SQLite remembers the page as it was. The runs of
    a group are everywhere in the pages of its month.
    """
    near: dict[int, Members] = defaultdict(Members.packed)
    for run_id, revision in members:
        near[run_id >> _NEAR_BITS].add(run_id, revision)
    for place in sorted(near):
        yield near.pop(place)


def _count(leaving: Sequence[Batch]) -> int:
    return sum(len(batch.items) for batch in leaving)


def _room_bytes(items: Sequence[Item]) -> int:
    """Return the disk space that recording these items as in flight, and their outcome, may take."""
    members = 0 if items[0].group is None else sum(len(item.members) for item in items)
    return batches.ROOM_BYTES + len(items) * batches.ROOM_OF_RUN_BYTES + members * batches.ROOM_OF_NEXT_RUN_BYTES
