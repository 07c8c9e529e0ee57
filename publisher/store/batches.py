"""Batches: the messages that were sent, with the services' answers.

The state of a batch must agree with what is set with it; a check number covers the columns that were set before the
message left. By its `uid` alone `import ssm-queue` knows a message that was accepted just before a kill.

And the windows that are being sent again: one for each target, from the request until nothing of it waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from publisher.errors import StoreCorruptError
from publisher.store import deliveries, dialect, paging, prepared
from publisher.store.row_checks import batch_check
from publisher.store.schema import BatchState, batches, resends
from publisher.store.stored_json import decoded

ROOM_BYTES: Final = 256 * 1024
"""Disk space that suffices to record a message as in flight, and its outcome, without its runs."""
ROOM_OF_RUN_BYTES: Final = 16 * 1024
"""Disk space for a run of a message: a page of the table and one of an index, when sent and when settled."""
ROOM_OF_NEXT_RUN_BYTES: Final = 1024
"""Disk space for one of many runs that ended in the same month, as in summaries: they share pages."""

_RECORDED: Final = ("target_id", "uid", "format", "records", "bytes", "latest_end", "created_at")
_OPENED: Final = (*_RECORDED, "state", "row_check")
_open: Final = prepared.Bulk(
    insert(batches).values({name: bindparam(name) for name in _OPENED}).returning(batches.c.id), _OPENED
)
_CLOSED: Final = ("state", "closed_at", "receipt", "answer")
_close: Final = prepared.Bulk(
    update(batches).where(batches.c.id == bindparam("batch")).values({name: bindparam(name) for name in _CLOSED}),
    (*_CLOSED, "batch"),
)


def open_batch(
    connection: Connection,
    target_id: int,
    uid: str,
    format_name: str,
    records: int,
    size_bytes: int,
    latest_end: int | None,
    now: int,
) -> int:
    """Record a batch as in flight; return its id."""
    row = (target_id, uid, format_name, records, size_bytes, latest_end, now)
    batch_id: int = _open.one(connection, (*row, int(BatchState.IN_FLIGHT), batch_check(*row)))[0]
    return batch_id


def formats_of(
    connection: Connection, target_ids: Sequence[int], state: BatchState, begin: int, until: int
) -> set[str]:
    """The formats of the batches of these targets in a state whose last run ended in between (epoch seconds)."""
    query = (
        select(batches.c.format)
        .distinct()
        .where(
            batches.c.target_id.in_(target_ids),
            batches.c.state == int(state),
            batches.c.latest_end >= begin,
            batches.c.latest_end < until,
        )
    )
    return {row[0] for row in connection.execute(query)}


def close(
    connection: Connection,
    batch_id: int,
    state: BatchState,
    now: int,
    *,
    receipt: Mapping[str, str] | None = None,
    answer: str | None = None,
) -> None:
    """Record the outcome of a batch: the receipt if it was accepted, else the answer."""
    text = msgspec.json.encode(receipt).decode() if receipt is not None else None
    _close.run(connection, [(int(state), now, text, answer, batch_id)])


def close_open(connection: Connection, target_id: int, now: int, batch_ids: Iterable[int] | None = None) -> None:
    """Close the batches of a run that ended before their outcome was recorded; with ids, only these."""
    # One whose state alone says so is damaged, and stays so for the check: it was closed.
    in_flight = (batches.c.state == int(BatchState.IN_FLIGHT), batches.c.closed_at.is_(None))
    closing = (
        update(batches)
        .where(batches.c.target_id == target_id, *in_flight)
        .values(state=int(BatchState.NOT_ACCEPTED), closed_at=now, answer="no answer was recorded")
    )
    if batch_ids is None:
        connection.execute(closing)
    else:
        paging.execute_in(connection, closing, batches.c.id, batch_ids)


def receipt_of(connection: Connection, target_id: int, uid: str) -> dict[str, str] | None:
    """Return the receipt of an accepted batch with this id; None if there is none."""
    with_receipt = (batches.c.target_id == target_id, batches.c.receipt.is_not(None), batches.c.uid == uid)
    text = connection.execute(select(batches.c.receipt).where(*with_receipt).limit(1)).scalar_one_or_none()
    return None if text is None else decoded(text, dict[str, str], "a receipt")


def last_sent_end(connection: Connection, target_id: int) -> int | None:
    """The latest end time among all records that the service accepted."""
    query = select(func.max(batches.c.latest_end)).where(
        batches.c.target_id == target_id, batches.c.state == int(BatchState.ACCEPTED)
    )
    latest: int | None = connection.execute(query).scalar_one()
    return latest


STATE_COLUMNS: Final = (batches.c.id, batches.c.state, batches.c.closed_at, batches.c.receipt, batches.c.answer)
"""What `batch_state` needs."""


def batch_state(batch_id: int, state: int, closed_at: object, receipt: object, answer: object) -> BatchState:
    """The state of a batch, from its columns `STATE_COLUMNS`.

    Raises `StoreCorruptError` if it contradicts the columns that are set with it: an open batch is not closed, an
    accepted one has a receipt, another one an answer, unless `store purge` removed these texts.
    """
    is_closed = closed_at is not None
    agrees = {
        BatchState.IN_FLIGHT: not is_closed and receipt is None and answer is None,
        BatchState.ACCEPTED: is_closed and answer is None,
        BatchState.NOT_ACCEPTED: is_closed and receipt is None,
    }
    if not agrees.get(state):  # type: ignore[call-overload] # as numbers they are equal
        raise StoreCorruptError(f"the store is damaged: batch {batch_id} is in another state than was stored")
    return BatchState(state)


def wrongly_recorded(connection: Connection) -> Iterator[str]:
    """Which batches are not what was recorded before they left."""
    query = select(batches.c.id, batches.c.row_check, *(batches.c[name] for name in _RECORDED))
    for batch_id, check, *row in connection.execute(query):
        if check != batch_check(*row):
            yield f"the store is damaged: batch {batch_id} is not what was recorded"


def require_recorded(connection: Connection) -> None:
    """Raise `StoreCorruptError` if a batch is not what was recorded before it left. Reads all of them."""
    for damage in wrongly_recorded(connection):
        raise StoreCorruptError(damage)


def check_of(row: Mapping[str, Any]) -> int:
    """The check number of a batch with these columns."""
    return batch_check(*(row[name] for name in _RECORDED))


class BatchRow(msgspec.Struct, frozen=True):
    """A batch as `jobs ID` and `audit` show it."""

    batch_id: int
    uid: str
    state: BatchState
    format: str
    records: int
    bytes: int
    created_at: int
    closed_at: int | None
    receipt: Mapping[str, str]
    answer: str | None


def get(connection: Connection, batch_id: int) -> BatchRow | None:
    """Return a batch by its id."""
    row = connection.execute(select(batches).where(batches.c.id == batch_id)).mappings().first()
    if row is None:
        return None
    return BatchRow(
        batch_id=row["id"],
        uid=row["uid"],
        state=batch_state(*(row[column.name] for column in STATE_COLUMNS)),
        format=row["format"],
        records=row["records"],
        bytes=row["bytes"],
        created_at=row["created_at"],
        closed_at=row["closed_at"],
        receipt=decoded(row["receipt"], dict[str, str], "a receipt") if row["receipt"] else {},
        answer=row["answer"],
    )


class Resend(msgspec.Struct, frozen=True):
    """A requested window: runs that ended from `begins` until `ends` (exclusive); all of them, or only missing ones."""

    begins: int
    ends: int
    only_missing: bool


def record_resend(connection: Connection, target_id: int, asked: Resend, now: int) -> None:
    """Record a request in place of an earlier one of this target; what the earlier one set to wait still waits."""
    row = {
        "target_id": target_id,
        "begins": asked.begins,
        "ends": asked.ends,
        "only_missing": int(asked.only_missing),
        "asked_at": now,
    }
    dialect.upsert(connection, resends, [row], keys=("target_id",))


def resend_asked_at(connection: Connection, target_id: int, asked: Resend) -> int | None:
    """Return when the same request was made, if it is unfinished."""
    query = select(resends.c.asked_at).where(
        resends.c.target_id == target_id,
        resends.c.begins == asked.begins,
        resends.c.ends == asked.ends,
        resends.c.only_missing == int(asked.only_missing),
    )
    asked_at: int | None = connection.execute(query).scalar_one_or_none()
    return asked_at


def is_resending(connection: Connection, target_id: int) -> bool:
    """Whether a request is unfinished."""
    return connection.execute(select(resends.c.target_id).where(resends.c.target_id == target_id)).first() is not None


def end_resend_if_done(connection: Connection, target_id: int) -> None:
    """Forget the request of a target if nothing of its window waits. Call it after a successful run."""
    window = connection.execute(
        select(resends.c.begins, resends.c.ends).where(resends.c.target_id == target_id)
    ).first()
    if window is not None and not any(deliveries.on_their_way(connection, target_id, *window).values()):
        connection.execute(delete(resends).where(resends.c.target_id == target_id))
