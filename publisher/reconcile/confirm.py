"""What follows from a comparison for the ledger: confirmed, or to be sent again, recorded page by page.

At its end, when it was, and since when accepted jobs are unconfirmed.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.calendar import Month
from publisher.reconcile.evidence import EvidenceDatabase
from publisher.reconcile.ledger import LedgerRun
from publisher.reconcile.result import Difference, Found
from publisher.store import groups, reconciliations, transitions
from publisher.store.database import Store
from publisher.store.reconciliations import Reconciled
from publisher.store.schema import State


class ConfirmedPage(msgspec.Struct):
    """What the comparison of a page of runs gave. Only what is accepted is confirmed, or loses its confirmation.

    What is confirmed already is not written again: a month in which nothing changed since costs no writing.
    `delivered`: never sent from here, and the service has it as it would be sent.
    """

    confirmed: list[int] = []
    doubted: list[int] = []
    again: list[tuple[int, State]] = []
    differences: list[Difference] = []
    delivered: list[tuple[int, bytes]] = []

    def agrees(self, entry: LedgerRun) -> None:
        """The service has this run as it was sent."""
        if entry.run.state is State.ACCEPTED and not entry.run.confirmed:
            self.confirmed.append(entry.run.run_id)

    def has_unsent(self, entry: LedgerRun) -> None:
        """The service has this run, which was not sent from here as far as this store knows."""
        if entry.run.state in {State.WAITING, State.HELD} and not entry.run.sent:
            self.delivered.append((entry.run.run_id, entry.run.digest))

    def lacks(self, entry: LedgerRun) -> None:
        """The service does not have this run, or perhaps not; it may be sent again."""
        self.doubts(entry)
        if entry.run.state is State.ACCEPTED:
            self.again.append((entry.run.run_id, State.ACCEPTED))

    def doubts(self, entry: LedgerRun) -> None:
        """The service does not have this run as it was sent."""
        if entry.run.state is State.ACCEPTED and entry.run.confirmed:
            self.doubted.append(entry.run.run_id)


class Verdicts:
    """Records what the comparison of pages gave, for one target."""

    def __init__(self, store: Store, target_id: int, found: Found, database: EvidenceDatabase, now: int) -> None:
        self._store = store
        self._target_id = target_id
        self._found = found
        self._database = database
        self._now = now

    def write(self, page: ConfirmedPage) -> int:
        """Record a page; gives by how much more, or fewer, deliveries are confirmed now."""
        change = 0
        if page.confirmed or page.doubted:
            with self._store.write() as connection:
                change += transitions.confirm(connection, self._target_id, page.confirmed, self._now)
                change -= transitions.withdraw(connection, self._target_id, page.doubted)
        self._found.delivered_jobs += self._database.add_delivered_runs(self._found.target, page.delivered)
        self._found.again_jobs += self._database.add_runs_to_send(self._found.target, page.again)
        self._database.add_differences(self._found.target, page.differences)
        return change

    def groups(
        self, kind: str, month: int, agreeing: Sequence[str], lacking: Sequence[str], differences: Sequence[Difference]
    ) -> None:
        """Record what the comparison of the groups of a month gave, by their keys."""
        with self._store.write() as connection:
            groups.confirm(connection, self._target_id, kind, month, agreeing, self._now)
            groups.withdraw(connection, self._target_id, kind, month, lacking)
        again = [(kind, month, key) for key in lacking]
        self._found.again_groups += self._database.add_groups_to_send(self._found.target, again)
        self._database.add_differences(self._found.target, differences)


def remember(
    store: Store,
    target_id: int,
    now: int,
    *,
    due_at: int | None,
    problem: str | None,
    has_evidence: bool,
    differences: int,
    next_month: Month | None = None,
) -> None:
    """Record that a target was reconciled. `due_at`: when `run` does so next; None: as it was planned before.

    `next_month`: the one with which `run` continues, where it had no time for all.
    """
    with store.read() as connection:
        last_batch_id = reconciliations.last_batch(connection, target_id)  # first: what comes later is in neither
        unconfirmed = reconciliations.unconfirmed_months(connection, target_id)
        before = reconciliations.of_target(connection, target_id) or Reconciled(due_at=now)
    reconciled = Reconciled(
        due_at=before.due_at if due_at is None else due_at,
        looked_at=now,
        evidence_at=now if has_evidence else before.evidence_at,
        problem=problem,
        differences=differences,
        unconfirmed_since=min(unconfirmed.values(), default=None),
        last_batch_id=last_batch_id,
        next_month=before.next_month if due_at is None else None if next_month is None else next_month.number,
    )
    with store.write() as connection:
        reconciliations.record(connection, target_id, reconciled)
