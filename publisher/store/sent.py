"""What was sent to a target, run by run: the ledger as `reconcile` reads it, in pages, and the receipts behind it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, and_, func, null, select, tuple_, update

from publisher.store.states import BatchState, State
from publisher.store.tables import batches, deliveries, groups, purged_months, runs

KEPT_AS: Final = "the service keeps it under the id "
"""How the reason of a delivery begins whose record the service knows by another id than it was sent with."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """A run that a target wants, with how its delivery stands.

    `sent`: the service took a version of it, or may have; `changed`: that was another than the present one, whose sums
    these are. `batch_id` is None for what was delivered before us, as far as an import says. Sums in milliseconds.
    """

    run_id: int
    record_id: str
    class_id: int
    end: int
    state: State
    sent: bool
    changed: bool
    confirmed: bool
    batch_id: int | None
    sent_digest: bytes | None
    reason: str | None
    wall_ms: int
    cpu_ms: int


_RUN = ("id", "record_id", "class_id", "end_time", "digest", "wall_ms", "cpu_ms")
_DELIVERY = (
    deliveries.c.state,
    deliveries.c.sent_digest,
    deliveries.c.confirmed_at,
    deliveries.c.batch_id,
    deliveries.c.reason,
)


def page(
    connection: Connection, target_id: int, bounds: tuple[int, int], after: tuple[int, int] | None, limit: int
) -> tuple[list[Sent], tuple[int, int] | None]:
    """The deliveries of the next so many runs that ended within bounds (the second exclusive), by end time and run id;
    and where to go on (end time, run id), None at the end.

    Runs are chosen first, and their deliveries looked up: the other way round the database would go through all
    deliveries of the target for every page.
    """
    first, behind = bounds
    chosen = (
        select(*(runs.c[name] for name in _RUN))
        .where(runs.c.end_time >= first, runs.c.end_time < behind)
        .order_by(runs.c.end_time, runs.c.id)
        .limit(limit)
    )
    if after is not None:
        chosen = chosen.where(runs.c.end_time >= after[0], tuple_(runs.c.end_time, runs.c.id) > tuple_(*after))
    some = chosen.subquery("some")
    on = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == some.c.id)
    query = (
        select(*(some.c[name] for name in _RUN), *_DELIVERY)
        .select_from(some.outerjoin(deliveries, on))
        .order_by(some.c.end_time, some.c.id)
    )
    rows = connection.execute(query).all()
    place = (rows[-1].end_time, rows[-1].id) if len(rows) == limit else None
    return [_sent(row) for row in rows if row.state is not None], place


def _sent(row: Sequence[Any]) -> Sent:
    run_id, record_id, class_id, end, present, wall_ms, cpu_ms, state, mark, confirmed_at, batch_id, reason = row
    return Sent(
        run_id,
        record_id,
        class_id,
        end,
        State(state),
        sent=mark is not None or state == State.ACCEPTED,
        changed=mark is not None and mark != present,
        confirmed=confirmed_at is not None,
        batch_id=batch_id,
        sent_digest=mark,
        reason=reason,
        wall_ms=wall_ms,
        cpu_ms=cpu_ms,
    )


def receipts(connection: Connection, batch_ids: Iterable[int]) -> Iterator[tuple[int, dict[str, str]]]:
    """The receipts of these batches, of those that were taken and whose receipt is kept."""
    ids = sorted(set(batch_ids))
    for start in range(0, len(ids), 500):
        query = select(batches.c.id, batches.c.receipt).where(
            batches.c.id.in_(ids[start : start + 500]),
            batches.c.state == int(BatchState.ACCEPTED),
            batches.c.receipt.is_not(None),
        )
        for batch_id, receipt in connection.execute(query):
            yield batch_id, msgspec.json.decode(receipt, type=dict[str, str])


def states_of_records(connection: Connection, target_id: int, record_ids: Sequence[str]) -> dict[str, State | None]:
    """The states of the deliveries of these records to a target; None for a run that the target does not want.

    Records that are not known at all are left out.
    """
    joined = runs.outerjoin(deliveries, (deliveries.c.run_id == runs.c.id) & (deliveries.c.target_id == target_id))
    query = select(runs.c.record_id, deliveries.c.state).select_from(joined).where(runs.c.record_id.in_(record_ids))
    return {name: None if state is None else State(state) for name, state in connection.execute(query)}


def last_taken(connection: Connection, target_id: int) -> int | None:
    """When the service last took a message from us."""
    query = select(func.max(batches.c.closed_at)).where(
        batches.c.target_id == target_id, batches.c.state == int(BatchState.ACCEPTED)
    )
    latest: int | None = connection.execute(query).scalar_one()
    return latest


def is_purged(connection: Connection, month: int) -> bool:
    """Whether the runs of a month were purged, so that nobody can tell any more what was sent."""
    query = select(purged_months.c.month).where(purged_months.c.month == month)
    return connection.execute(query).first() is not None


def batches_of_groups(connection: Connection, target_id: int, kind: str, month: int) -> dict[str, int]:
    """The batches in which the groups of a month were last sent, by their keys."""
    query = select(groups.c.key, groups.c.batch_id).where(
        groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month, groups.c.batch_id.is_not(None)
    )
    return {str(row[0]): row[1] for row in connection.execute(query)}


def forget(connection: Connection, target_id: int, run_ids: Sequence[int]) -> None:
    """The service no longer has any version of these runs."""
    query = update(deliveries).where(deliveries.c.target_id == target_id, deliveries.c.run_id.in_(run_ids))
    connection.execute(query.values(sent_digest=null()))


def let_groups_wait(connection: Connection, target_id: int, found: Iterable[tuple[str, int, str]], now: int) -> None:
    """Let groups that were accepted be sent again: (kind, month's number, key)."""
    for kind, month, key in found:
        one = (groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month, groups.c.key == key)
        connection.execute(
            update(groups)
            .where(*one, groups.c.state == int(State.ACCEPTED))
            .values(state=int(State.WAITING), changed_at=now, confirmed_at=None)
        )
