"""Record the result of a comparison: page by page what is confirmed and what may be sent again; at the end its time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from formats.calendar import Month
from publisher.reconcile.evidence import EvidenceDatabase
from publisher.reconcile.ledger import LedgerRun
from publisher.reconcile.result import Difference, Found, MonthFound
from publisher.store import groups, reconciliations, transitions
from publisher.store.database import Store
from publisher.store.reconciliations import ByMonth, Counts, Reconciled
from publisher.store.schema import State


class ConfirmedPage(msgspec.Struct):
    """Result of comparing a page of runs. Only accepted deliveries are confirmed, or lose their confirmation.

    What is confirmed already is not written again, so an unchanged month costs no writing. `delivered`: runs that were
    never sent from here and that the service has as they would be sent, with the digest that was compared.
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
        """The service has this run, which was never sent from here."""
        # Only what was never sent from here: of a run that was, the service may have an earlier version.
        if entry.run.state in {State.WAITING, State.HELD} and not entry.run.sent:
            self.delivered.append((entry.run.run_id, entry.run.digest))

    def lacks(self, entry: LedgerRun) -> None:
        """The service does not have this run, or may not have it; it may be sent again."""
        self.doubts(entry)
        if entry.run.state is State.ACCEPTED:
            self.again.append((entry.run.run_id, State.ACCEPTED))

    def doubts(self, entry: LedgerRun) -> None:
        """The service does not have this run as it was sent."""
        if entry.run.state is State.ACCEPTED and entry.run.confirmed:
            self.doubted.append(entry.run.run_id)


class Verdicts:
    """Records the results of one target."""

    def __init__(self, store: Store, target_id: int, found: Found, database: EvidenceDatabase, now: int) -> None:
        self._store = store
        self._target_id = target_id
        self._found = found
        self._database = database
        self._now = now

    def write(self, page: ConfirmedPage) -> int:
        """Record a page; return the change of the number of confirmed deliveries."""
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
        """Record the result for the groups of a month, by their keys."""
        with self._store.write() as connection:
            groups.confirm(connection, self._target_id, kind, month, agreeing, self._now)
            groups.withdraw(connection, self._target_id, kind, month, lacking)
        again = [(kind, month, key) for key in lacking]
        self._found.again_groups += self._database.add_groups_to_send(self._found.target, again)
        self._database.add_differences(self._found.target, differences)


def counts_of(months: Iterable[MonthFound], differences: Mapping[int, int]) -> ByMonth:
    """What was found in these months. `differences`: how many by the number of the month; 0: in no known month."""
    counts = {
        month.month.number: Counts(differences.get(month.month.number, 0), month.missing, month.differing)
        for month in months
    }
    return {0: Counts(differences.get(0, 0)), **counts}


def remember(
    store: Store,
    target_id: int,
    now: int,
    *,
    due_at: int | None,
    problem: str | None,
    has_evidence: bool,
    counts: ByMonth,
    others_stay: bool,
    next_month: Month | None = None,
) -> None:
    """Record that a target was reconciled. `due_at`: when `run` does so next; None leaves the plan unchanged.

    `others_stay`: what was found before in other months stays; else all months that matter were compared.

    Only evidence settles what evidence contradicted: without it, or with a part of it, what was counted before stays.
    A target that never gave any is judged by its receipts, which are always there.

    `next_month`: the month with which the next run continues; None: all were compared.
    """
    with store.read() as connection:
        last_batch_id = reconciliations.last_batch(connection, target_id)  # first, so that a later batch is not in it
        unconfirmed = reconciliations.unconfirmed_months(connection, target_id)
        before = reconciliations.of_target(connection, target_id) or Reconciled(due_at=now)
        known = reconciliations.months_of(connection, target_id)
    if before.evidence_at is not None and (problem is not None or not has_evidence):
        counts = {month: one.at_least(known.get(month, Counts())) for month, one in counts.items()}
        others_stay = True
    if others_stay:
        counts = known | counts
    total = Counts()
    for count in counts.values():
        total = total.plus(count)
    reconciled = Reconciled(
        due_at=before.due_at if due_at is None else due_at,
        looked_at=now,
        evidence_at=now if has_evidence else before.evidence_at,
        problem=problem,
        differences=total.differences,
        missing=total.missing,
        differing=total.differing,
        unconfirmed_since=min(unconfirmed.values(), default=None),
        last_batch_id=last_batch_id,
        next_month=before.next_month if due_at is None else None if next_month is None else next_month.number,
    )
    with store.write() as connection:
        reconciliations.record(connection, target_id, reconciled)
        reconciliations.record_months(connection, target_id, counts)
