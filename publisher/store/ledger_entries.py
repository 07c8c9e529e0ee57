"""What was sent to a target, run by run, as `reconcile` reads it, with its receipts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, and_, select

from formats.rule_codes import Reason
from publisher.encoded_run import run_key
from publisher.store import paging
from publisher.store.queries import SentVersion, ended_page, next_place, sent_version
from publisher.store.schema import BatchState, State, batches, deliveries, runs, versions
from publisher.store.stored_json import decoded, stored_reason
from publisher.store.stored_values import bytes_of
from publisher.store.stored_values import state_of as known_state


class LedgerEntry(msgspec.Struct, frozen=True, gc=False):
    """A run that a target selects, with its delivery.

    `digest` and the sums are those of the present version. `sent`: the service accepted a version of it, or may have;
    `changed`: that version is not the present one. `batch_id` is None for what an earlier publisher delivered,
    according to an import. Sums in milliseconds. `changed_at`: when the delivery got its state.
    """

    run_id: int
    record_id: str
    class_id: int
    digest: bytes
    end: int
    state: State
    sent: bool
    changed: bool
    confirmed: bool
    batch_id: int | None
    version: SentVersion | None
    reason: Reason | None
    wall_ms: int
    cpu_ms: int
    changed_at: int = 0


_RUN = ("end_time", "id", "record_id", "class_id", "digest", "wall_ms", "cpu_ms")
_DELIVERY = (
    deliveries.c.state,
    deliveries.c.sent_digest,
    deliveries.c.may_be_one_of_several,
    deliveries.c.confirmed_at,
    deliveries.c.batch_id,
    deliveries.c.reason,
    deliveries.c.reason_parameters,
    deliveries.c.changed_at,
)


def page(
    connection: Connection, target_id: int, bounds: tuple[int, int], after: tuple[int, int] | None, limit: int
) -> tuple[list[LedgerEntry], tuple[int, int] | None]:
    """The deliveries of the next runs that ended within bounds (the second exclusive), by end time and run id; and
    where to continue (end time, run id), None at the end.

    Runs are selected first, and then their deliveries are looked up: in the other order the database would read all
    deliveries of the target for every page.
    """
    some = ended_page((runs.c[name] for name in _RUN), bounds, after, limit).subquery("some")
    on = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == some.c.id)
    query = (
        select(*(some.c[name] for name in _RUN), *_DELIVERY)
        .select_from(some.outerjoin(deliveries, on))
        .order_by(some.c.end_time, some.c.id)
    )
    rows = connection.execute(query).all()
    return [_ledger_entry(row) for row in rows if row.state is not None], next_place(rows, limit)


def entries_of(connection: Connection, target_id: int, run_ids: Sequence[int]) -> list[LedgerEntry]:
    """The deliveries of these runs to a target."""
    query = (
        select(*(runs.c[name] for name in _RUN), *_DELIVERY)
        .join_from(runs, deliveries, deliveries.c.run_id == runs.c.id)
        .where(deliveries.c.target_id == target_id)
    )
    return [_ledger_entry(row) for row in paging.rows_in(connection, query, runs.c.id, run_ids)]


def ambiguous_runs(connection: Connection, target_id: int) -> list[int]:
    """The runs of which the service has one of several versions, and it is unknown which.

    All versions but the present one are kept as earlier ones, which are few: their deliveries are looked up. The
    reverse would read all deliveries of the target.
    """
    several = (
        select(deliveries.c.may_be_one_of_several)
        .where(deliveries.c.target_id == target_id, deliveries.c.run_id == versions.c.run_id)
        .scalar_subquery()
    )
    query = select(versions.c.run_id).distinct().where(several == 1).order_by(versions.c.run_id)
    return [row[0] for row in connection.execute(query)]


def _ledger_entry(row: Sequence[Any]) -> LedgerEntry:
    end, run_id, record_id, class_id, present, wall_ms, cpu_ms, state, *sent, confirmed_at, batch_id, code, why, at = (
        row
    )
    version = sent_version(*sent)
    return LedgerEntry(
        run_id,
        record_id,
        class_id,
        digest := bytes_of(present, f"the digest of job {record_id}"),
        end,
        known_state(state),
        sent=version is not None or known_state(state) is State.ACCEPTED,
        changed=version is not None and not version.is_known_as(digest),
        confirmed=confirmed_at is not None,
        batch_id=batch_id,
        version=version,
        reason=stored_reason(code, why),
        wall_ms=wall_ms,
        cpu_ms=cpu_ms,
        changed_at=at,
    )


def receipts(connection: Connection, batch_ids: Iterable[int]) -> Iterator[tuple[int, dict[str, str]]]:
    """The receipts of these batches, of accepted ones whose receipt is kept."""
    query = select(batches.c.id, batches.c.receipt).where(batches.c.receipt.is_not(None))
    for batch_id, receipt in paging.rows_in(connection, query, batches.c.id, sorted(set(batch_ids))):
        yield batch_id, decoded(receipt, dict[str, str], "a receipt")


def not_accepted(connection: Connection, batch_ids: Iterable[int]) -> set[int]:
    """Those of these batches that the service did not accept, as far as is known: their outcome may be unknown."""
    query = select(batches.c.id).where(batches.c.state != int(BatchState.ACCEPTED))
    return {row[0] for row in paging.rows_in(connection, query, batches.c.id, sorted(set(batch_ids)))}


def states_of_records(connection: Connection, target_id: int, record_ids: Sequence[str]) -> dict[str, State | None]:
    """The states of the deliveries of these records to a target; None for a run that the target does not select.

    Unknown records are not in the result.
    """
    joined = runs.outerjoin(deliveries, (deliveries.c.run_id == runs.c.id) & (deliveries.c.target_id == target_id))
    query = select(runs.c.record_id, deliveries.c.state).select_from(joined)
    rows = paging.rows_in(connection, query, runs.c.record_key, map(run_key, record_ids))
    return {name: None if state is None else known_state(state) for name, state in rows}
