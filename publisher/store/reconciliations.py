"""Reconciliations: when each target was compared with its service, when the next one is due, and what is unconfirmed.

Instants are epoch seconds. `unconfirmed_since` applies to deliveries that were accepted up to `last_batch_id`; those of
later batches are unconfirmed since their batch was accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec
from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    and_,
    delete,
    func,
    insert,
    literal_column,
    null,
    or_,
    select,
    update,
)

from formats.calendar import SECONDS_A_DAY, Month, month_of
from publisher.reason import ReasonCode
from publisher.store import dialect
from publisher.store.schema import BatchState, State, batches, deliveries, reconciled_months, reconciliations


class Reconciled(msgspec.Struct, frozen=True, kw_only=True):
    """The last reconciliation of a target.

    `due_at`: when `run` makes the next one. `looked_at`: when the last one ended; `evidence_at`: the last one for which
    the service, or a file, gave evidence. `problem`: why the last one had none: shown as it is, and never compared.
    `differences`, `missing`, `differing`: what evidence contradicted last; the latter of what was sent, counted as in
    `MonthFound`. Those of receipts where there never was evidence. `next_month`: the month, by number, with which
    the next run continues; None: the last one compared all months.
    """

    due_at: int
    looked_at: int | None = None
    evidence_at: int | None = None
    problem: str | None = None
    differences: int = 0
    missing: int = 0
    differing: int = 0
    unconfirmed_since: int | None = None
    last_batch_id: int = 0
    next_month: int | None = None


def of_target(connection: Connection, target_id: int) -> Reconciled | None:
    """The last reconciliation of a target; None: there was none, and none is planned."""
    columns = (reconciliations.c[name] for name in Reconciled.__struct_fields__)
    row = connection.execute(select(*columns).where(reconciliations.c.target_id == target_id)).mappings().first()
    return None if row is None else Reconciled(**row)


def record(connection: Connection, target_id: int, reconciled: Reconciled) -> None:
    """Remember a reconciliation instead of the one before."""
    row = {"target_id": target_id, **msgspec.to_builtins(reconciled)}
    dialect.upsert(connection, reconciliations, [row], keys=("target_id",))


class Counts(msgspec.Struct, frozen=True):
    """What a reconciliation found in a month: all differences, and of what was sent what is missing or differs."""

    differences: int = 0
    missing: int = 0
    differing: int = 0

    def plus(self, other: Counts) -> Counts:
        """Those of both."""
        return Counts(
            self.differences + other.differences, self.missing + other.missing, self.differing + other.differing
        )

    def at_least(self, other: Counts) -> Counts:
        """The greater of each."""
        return Counts(
            max(self.differences, other.differences),
            max(self.missing, other.missing),
            max(self.differing, other.differing),
        )


ByMonth: TypeAlias = dict[int, Counts]
"""Counts by the number of the month; 0: in no known month."""


def months_of(connection: Connection, target_id: int) -> ByMonth:
    """What the last comparison of each month found, where it found anything."""
    query = select(reconciled_months).where(reconciled_months.c.target_id == target_id)
    return {
        row["month"]: Counts(row["differences"], row["missing"], row["differing"])
        for row in connection.execute(query).mappings()
    }


def record_months(connection: Connection, target_id: int, found: ByMonth) -> None:
    """Remember what was found instead of all that was found before."""
    connection.execute(delete(reconciled_months).where(reconciled_months.c.target_id == target_id))
    rows = [
        {"target_id": target_id, "month": month, **msgspec.structs.asdict(counts)}
        for month, counts in found.items()
        if counts != Counts()
    ]
    if rows:
        connection.execute(insert(reconciled_months), rows)


def make_due(connection: Connection, target_id: int, now: int) -> None:
    """Let the next run reconcile a target, if it was reconciled before, from its newest month on: jobs are sent again,
    so that what was confirmed, or found to differ, is no longer known."""
    mine = update(reconciliations).where(reconciliations.c.target_id == target_id)
    connection.execute(mine.values(next_month=null()))
    connection.execute(mine.where(reconciliations.c.due_at > now).values(due_at=now))


def end_differences(connection: Connection, target_id: int, settled: int, unsettled: Mapping[int, int]) -> None:
    """Count so many differences less in the last reconciliation: their jobs were taken over. `unsettled`: how many it
    found of such jobs, by the number of the month."""
    with_differences, left = months_of(connection, target_id), settled
    for month, jobs in unsettled.items():
        counts = with_differences.get(month, Counts())
        ended = min(left, jobs, counts.differences)
        with_differences[month] = msgspec.structs.replace(counts, differences=counts.differences - ended)
        left -= ended
    record_months(connection, target_id, with_differences)
    query = update(reconciliations).where(reconciliations.c.target_id == target_id)
    connection.execute(query.values(differences=sum(counts.differences for counts in with_differences.values())))


def unconfirmed_months(connection: Connection, target_id: int) -> dict[Month, int]:
    """The months in which deliveries ended that were sent from here, accepted, and not confirmed, oldest first; and
    since when the oldest of them is accepted. Goes through all deliveries of the target."""
    day = deliveries.c.end_time // literal_column(str(SECONDS_A_DAY), Integer)  # as text: PostgreSQL compares it
    chosen = and_(
        deliveries.c.target_id == target_id,
        deliveries.c.state == int(State.ACCEPTED),
        deliveries.c.confirmed_at.is_(None),
        or_(deliveries.c.reason.is_(None), deliveries.c.reason != ReasonCode.ASSUMED.value),
    )
    since_by_month: dict[Month, int] = {}
    for number, since in connection.execute(
        select(day, func.min(deliveries.c.changed_at)).where(chosen).group_by(day).order_by(day)
    ):
        month = month_of(number * SECONDS_A_DAY)
        since_by_month[month] = min(since, since_by_month.get(month, since))
    return since_by_month


def last_batch(connection: Connection, target_id: int) -> int:
    """The number of the last batch of a target that was accepted; 0: there was none."""
    query = select(func.max(batches.c.id)).where(*_accepted(target_id))
    return connection.execute(query).scalar_one() or 0


def accepted_after(connection: Connection, target_id: int, batch_id: int) -> int | None:
    """When the first batch after a batch was accepted; None: none was."""
    later = select(batches.c.closed_at).where(*_accepted(target_id), batches.c.id > batch_id)
    accepted_at: int | None = connection.execute(later.order_by(batches.c.id).limit(1)).scalar()
    return accepted_at


def _accepted(target_id: int) -> tuple[ColumnElement[bool], ...]:
    return batches.c.target_id == target_id, batches.c.state == int(BatchState.ACCEPTED)
