"""Sending groups (summaries, sync counts): cut into messages, in flight, posted, settled, with the runs behind them.

A group replaces the one of the same key at the service, so sending one again is harmless. What is refused alone is
rejected with the answer, if the service takes a group after it that it took before in the run; else everything waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Final, assert_never

import msgspec

from formats.reason import Reason
from publisher.config.schema import Target as TargetSettings
from publisher.events import BatchAnswered, BatchInFlight, BatchSettled
from publisher.messages.item import Item, Members, uid_of
from publisher.messages.steps import Section
from publisher.publish.context import StopSending, Tools
from publisher.publish.post import RetryBudget, answer_of, post
from publisher.publish.stats import DeliveryStats
from publisher.reason import ReasonCode
from publisher.store import batches, groups, in_flight, runs
from publisher.store.database import Store
from publisher.store.schema import BatchState, State
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

_MEMBERS_AT_ONCE: Final = 10_000


class GroupSender:
    """Sends groups of one kind to one target. Made for one run; counts in `sent`."""

    def __init__(
        self,
        store: Store,
        target: Target,
        target_id: int,
        settings: TargetSettings,
        section: Section,
        kind: str,
        tools: Tools,
        patience: RetryBudget,
        sent: DeliveryStats,
    ) -> None:
        self._store = store
        self._target = target
        self._target_id = target_id
        self._format = section.form
        self._kind = kind
        self._tools = tools
        self._patience = patience
        self._sent = sent
        self._most = section.most or settings.batch_records
        self._most_bytes = target.payload_limit_bytes()
        self._proof: Sequence[Item] | None = None

    def send(self, items: Sequence[Item]) -> None:
        """Send these groups. Raises `StopSending` when the target takes no more in this run, and as posting does."""
        refused: list[tuple[Sequence[Item], int, Outcome]] = []
        try:
            self._send(items, refused)
            state = State.REJECTED if not refused or self._service_is_well() else State.WAITING
        except BaseException:
            self._settle_refused(refused, State.WAITING)
            raise
        self._settle_refused(refused, state)
        if state is State.WAITING:
            raise StopSending(f"{answer_of(refused[-1][2])} (the service is not well; everything waits)")

    def _settle_refused(self, refused: Sequence[tuple[Sequence[Item], int, Outcome]], state: State) -> None:
        for batch, batch_id, outcome in refused:
            rejected = state is State.REJECTED
            reason = Reason.of(ReasonCode.REFUSED, answer=answer_of(outcome)) if rejected else None
            runs = self._settle(batch, batch_id, outcome, state, reason)
            self._sent.rejected += runs if rejected else 0

    def _service_is_well(self) -> bool:
        """Whether the service takes a group again that it took before in this run."""
        if self._proof is None:
            return False
        outcome, batch_id = self._post(self._proof)
        accepted = isinstance(outcome, Accepted)
        self._settle(self._proof, batch_id, outcome, State.ACCEPTED if accepted else State.WAITING, None)
        return accepted

    def _send(self, items: Sequence[Item], refused: list[tuple[Sequence[Item], int, Outcome]]) -> None:
        """Send all that is taken; what is refused alone is put into `refused`, still in flight."""
        stack = list(reversed(list(self._cut(items))))
        while stack:
            if self._tools.stopping():
                raise StopSending("told to stop")
            batch = stack.pop()
            outcome, batch_id = self._post(batch)
            match outcome:
                case Accepted():
                    self._sent.accepted += self._settle(batch, batch_id, outcome, State.ACCEPTED, None)
                    self._sent.groups += len(batch) if self._kind != groups.SYNC else 0
                    self._proof = [msgspec.structs.replace(batch[0], members=Members([], []))]
                case Transient() | Throttled() | Unknown() | Unauthorised():
                    self._settle(batch, batch_id, outcome, State.WAITING, None)
                    self._sent.unauthorised = isinstance(outcome, Unauthorised) and not outcome.misdirected
                    raise StopSending(outcome.answer)
                case Oversized() | Refused():
                    if len(batch) > 1:
                        self._settle(batch, batch_id, outcome, State.WAITING, None)
                        middle = len(batch) // 2
                        stack += [batch[middle:], batch[:middle]]
                    else:
                        refused.append((batch, batch_id, outcome))
                case _:
                    assert_never(outcome)

    def _cut(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        batch: list[Item] = []
        size = self._format.overhead_bytes
        for item in items:
            grown = size + len(item.body) + (self._format.separator_bytes if batch else 0)
            if batch and (len(batch) >= self._most or (self._most_bytes is not None and grown > self._most_bytes)):
                yield batch
                batch, grown = [], self._format.overhead_bytes + len(item.body)
            batch.append(item)
            size = grown
        if batch:
            yield batch

    def _post(self, batch: Sequence[Item]) -> tuple[Outcome, int]:
        payload = self._format.message([item.body for item in batch])
        name = self._target.name
        uid = uid_of(name, batch, payload)
        now = self._tools.clock()
        latest = max((item.latest_end for item in batch if item.latest_end is not None), default=None)
        members = sum(len(item.members) for item in batch)
        self._store.require_room(
            batches.ROOM_BYTES + len(batch) * batches.ROOM_OF_RUN_BYTES + members * batches.ROOM_OF_NEXT_RUN_BYTES
        )
        with self._store.write() as connection:
            batch_id = batches.open_batch(
                connection, self._target_id, uid, self._format.name, len(batch), len(payload), latest, now
            )
            groups.mark_in_flight(
                connection,
                self._target_id,
                self._kind,
                batch_id,
                (item.group for item in batch if item.group is not None),
                now,
            )
            flying = chain.from_iterable(item.members for item in batch)
            while part := dict(islice(flying, _MEMBERS_AT_ONCE)):
                versions = runs.digests_of(connection, list(part))
                leaving = [(run_id, digest, part[run_id]) for run_id, digest in versions]
                in_flight.mark_in_flight(
                    connection, self._target_id, batch_id, leaving, now, before=State.WAITING, keeps_first=False
                )
        self._tools.observer(BatchInFlight(name, batch_id, len(batch)))
        message = Message(uid, self._format.name, self._format.content_type, payload)
        tools = self._tools
        outcome = post(self._target, message, batch_id, self._patience, tools.observer, tools.sleep, tools.stopping)
        tools.observer(BatchAnswered(name, batch_id, type(outcome).__name__))
        self._sent.batches += 1
        self._sent.bytes += len(payload)
        return outcome, batch_id

    def _settle(
        self, batch: Sequence[Item], batch_id: int, outcome: Outcome, state: State, reason: Reason | None
    ) -> int:
        """Put down what became of a batch; gives how many of its runs were settled."""
        now = self._tools.clock()
        with self._store.write(sorts_on_disk=True) as connection:  # runs of a whole month, settled by one statement
            if isinstance(outcome, Accepted):
                batches.close(connection, batch_id, BatchState.ACCEPTED, now, receipt=outcome.receipt)
                settled = in_flight.mark_accepted(connection, self._target_id, batch_id, now, keeps_first=False)
            else:
                batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, now, answer=answer_of(outcome))
                settled = in_flight.mark_not_accepted(connection, self._target_id, batch_id, state, reason, now)
            groups.settle(connection, self._target_id, batch_id, state, now)
        size = sum(len(item.body) for item in batch)
        self._tools.observer(BatchSettled(self._target.name, batch_id, type(outcome).__name__, settled, size))
        return settled
