"""The steps of one target carried out: its sections sent, and what goes with them recorded.

A period of which not everything is known is held with the reason, and released by itself once it is; what was in flight
of groups when a run ended waits again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import Final

from sqlalchemy import Connection

from formats.reason import Reason
from publisher.events import RecordSettled, TargetPaused
from publisher.messages.item import Held
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Finished, Release, Scope, Section, Step
from publisher.publish.context import StopSending, Tools
from publisher.publish.group_sender import GroupSender
from publisher.publish.post import RetryBudget
from publisher.publish.sender import Sender
from publisher.publish.stats import DeliveryStats
from publisher.reason import INCOMPLETE
from publisher.store import batches, deliveries, groups, in_flight, runs
from publisher.store.deliveries import Shard
from publisher.store.schema import State
from publisher.store.transitions import Change
from publisher.targets.base import Target

_MOVED_AT_ONCE: Final = 10_000


class StepSender:
    """Sends what one target is due. Made for one run; `sent` says what it did."""

    def __init__(self, recipient: Recipient, targets: Sequence[Target], part: Shard, tools: Tools) -> None:
        """`targets` are the same service, once for each message that may be on its way; `part` of its deliveries."""
        assert recipient.name is not None
        assert recipient.target_id is not None  # a target is planned for before it is sent anything
        self._recipient = recipient
        self._store = recipient.store
        self._name = recipient.name
        self._target_id = recipient.target_id
        self._targets = targets
        self._part = part
        self._tools = tools
        self._patience = RetryBudget(recipient.required_settings())
        self._groups: dict[str, GroupSender] = {}
        self.sent = DeliveryStats()

    def run(self) -> None:
        """Send all that is due. Raises `StoreError`, `CredentialError`, `SigningError`; before that, everything unsent
        waits again."""
        target = self._targets[0]
        steps = items(
            self._recipient,
            Scope(part=self._part, backlog=self._tools.backlog),
            now=self._tools.clock(),
            limit_bytes=target.payload_limit_bytes(),
        )
        is_snapshot = self._recipient.format.is_snapshot
        try:
            if is_snapshot:
                self._let_wait()
            for step in steps:
                self._carry_out(step)
        except StopSending as stop:
            self.sent.paused = str(stop)
            self._tools.observer(TargetPaused(self._name, str(stop)))
        finally:
            if is_snapshot:
                self._let_wait()

    def _carry_out(self, step: Step) -> None:
        match step:
            case Release():
                self._release(step)
            case Section(kind=None):
                self._send_records(step)
            case Section(kind=str(kind)):
                self._send_groups(step, kind)
            case Finished():
                self._finish(step)
            case _:
                pass  # nothing is sent of a period that is not due

    def _send_records(self, section: Section) -> None:
        sender = Sender(self._recipient, self._targets, section, self._part, self._tools, self._patience, self.sent)
        sender.run()

    def _send_groups(self, section: Section, kind: str) -> None:
        if kind not in self._groups:
            settings = self._recipient.required_settings()
            self._groups[kind] = GroupSender(
                self._store, self._targets[0], self._target_id, settings, section, kind, self._tools, self._patience,
                self.sent,
            )  # fmt: skip
        now = self._tools.clock()
        if section.outdated and section.period is not None:
            with self._store.write() as connection:
                groups.forget(connection, self._target_id, kind, section.period.number, section.outdated)
        for page in section.pages:
            for held in page.held:
                self._hold(held)
            with self._store.write() as connection:
                self._move(connection, chain.from_iterable(page.unchanged), State.ACCEPTED, None, now)
                if section.changes_sync and section.period is not None:
                    groups.mark_due(connection, self._target_id, groups.DueFor.SYNC, [section.period.start])
            self._groups[kind].send(page.items)

    def _let_wait(self) -> None:
        with self._store.write() as connection:
            in_flight.let_wait(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())
            batches.close_open(connection, self._target_id, self._tools.clock())

    def _release(self, step: Release) -> None:
        with self._store.write() as connection:
            for period in step.periods:
                change = Change(self._target_id, State.HELD, State.WAITING, self._tools.clock())
                deliveries.move_between(connection, (period.start, period.stop), change, only=INCOMPLETE)

    def _hold(self, held: Held) -> None:
        now = self._tools.clock()
        with self._store.write() as connection:
            if held.bounds is not None:
                change = Change(self._target_id, State.WAITING, State.HELD, now, held.reason)
                self.sent.held += deliveries.move_between(connection, held.bounds, change)
                return
            self.sent.held += self._move(connection, held.members, State.HELD, held.reason, now)
        with self._store.read() as connection:
            for record_id in runs.record_ids(connection, held.members.run_ids):
                self._tools.observer(RecordSettled(self._name, record_id, State.HELD.word, held.reason))

    def _move(
        self, connection: Connection, members: Iterable[tuple[int, int]], after: State, why: Reason | None, now: int
    ) -> int:
        """Move runs that wait, some at a time; gives how many were moved."""
        moved = 0
        left = iter(members)
        while some := list(islice(left, _MOVED_AT_ONCE)):
            moves = ((*one, State.WAITING, after, why) for one in some)
            moved += deliveries.move_if_unchanged(connection, self._target_id, moves, now)
        return moved

    def _finish(self, step: Finished) -> None:
        with self._store.write() as connection:
            groups.set_reaches(connection, self._target_id, step.reaches)
            for month, times in step.marks.items():
                groups.end_due(connection, self._target_id, step.purpose, month, times)
