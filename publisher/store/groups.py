"""Totals, reports and sync counts as last sent, by target, month or day, and key; and which months are due.

The month of a group is a number: of a month (`formats.calendar`), for reports of a period (`formats.calendar`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any, Final

import msgspec
from sqlalchemy import (
    Connection,
    RowMapping,
    and_,
    bindparam,
    delete,
    func,
    not_,
    null,
    or_,
    select,
    update,
)

from formats.calendar import Month, month_numbered, month_of
from formats.identity import DIGEST_BYTES
from formats.totals import MonthTotal, TotalsKind
from publisher import plugins
from publisher.errors import PublisherError, StoreCorruptError
from publisher.store import dialect, paging, prepared
from publisher.store.row_checks import is_group_wrong, state_check, state_columns
from publisher.store.schema import State, due_months, groups, purged_sync_counts, report_reaches, targets
from publisher.store.stored_json import read_with
from publisher.store.stored_values import bytes_of, checked_state_of, state_of

SYNC: Final = "sync"
"""The kind of sync counts; that of totals is in their descriptor (`formats.totals.TotalsKind`)."""
UTILIZATION: Final = "utilization"
"""The kind of reports, a word in stores."""
IS_SNAPSHOT: Final = groups.c.kind != SYNC
"""Totals and reports: what settles runs."""


UNLIKE_OURS: Final = bytes(DIGEST_BYTES)
"""The digest of a group that another publisher sent. It equals no digest of ours, so our group is sent."""


class DueFor(StrEnum):
    """What a month is due for. Stored as its text."""

    SYNC = "sync"
    """Its sync counts must be computed again."""
    FOLD = "fold"
    """Its runs must be folded again into totals or reports, even if nothing waits."""


class GroupRow(msgspec.Struct, frozen=True):
    """A group as the service has it, or as it is in flight: `body` is its JSON form, `digest` that of its content."""

    month: int
    key: str
    state: State
    digest: bytes
    jobs: int
    body: bytes

    @staticmethod
    def of(total: MonthTotal, state: State) -> GroupRow:
        """The row of a total."""
        return GroupRow(total.key.when.number, total.key.text, state, total.digest, total.jobs, total.to_json())

    def total(self, totals: TotalsKind) -> MonthTotal:
        """The total or sync count; `totals`: those of its kind.

        Raises `StoreCorruptError` if it is not what was stored: a changed key or month would let it look as if it had
        vanished, and zero would replace it.
        """
        name = f"the group {self.key[:200]} of {self.month}"
        total = read_with(totals.from_json, self.body, name)
        digest = total.digest
        known = digest if self.digest == UNLIKE_OURS else self.digest
        if (digest, total.key.text, total.key.when.number, total.jobs) != (known, self.key, self.month, self.jobs):
            raise StoreCorruptError(f"the store is damaged: {name} is not what was stored")
        return total


def mark_due(connection: Connection, target_id: int, purpose: DueFor, end_times: Iterable[int]) -> None:
    """Mark the months of these ends as due."""
    rows = [
        {"target_id": target_id, "purpose": purpose.value, "month": month.number, "times": 1}
        for month in {month_of(end) for end in end_times}
    ]
    dialect.add_up(connection, due_months, rows, keys=("target_id", "purpose", "month"), column="times")


def months_due(connection: Connection, target_id: int, purpose: DueFor) -> dict[Month, int]:
    """The due months, oldest first, each with how often it was marked."""
    query = (
        select(due_months.c.month, due_months.c.times)
        .where(due_months.c.target_id == target_id, due_months.c.purpose == purpose.value)
        .order_by(due_months.c.month)
    )
    return {month_numbered(number): times for number, times in connection.execute(query)}


def end_due(connection: Connection, target_id: int, purpose: DueFor, month: Month, times: int) -> None:
    """Remove the mark of a month, unless it was marked again in the meantime."""
    connection.execute(
        delete(due_months).where(
            due_months.c.target_id == target_id,
            due_months.c.purpose == purpose.value,
            due_months.c.month == month.number,
            due_months.c.times == times,
        )
    )


_WAITING: Final[Mapping[str, Any]] = {**state_columns(State.WAITING), "confirmed_at": None}


def require_kinds(connection: Connection, target_id: int) -> None:
    """Raise `StoreCorruptError` if a group of a target is of another kind than was stored.

    It would be sent as a new one, and never as an empty one once its jobs are in another group. A kind that is unknown
    because its add-on was removed is no damage: no kind that is known reads its groups.
    """
    kind: str | None = ""
    of_target = groups.c.target_id == target_id
    while kind is not None:
        following = select(groups.c.kind).where(of_target, groups.c.kind > kind).order_by(groups.c.kind).limit(1)
        kind = connection.execute(following).scalar_one_or_none()
        if kind is not None and kind != UTILIZATION and not plugins.has_totals(kind):
            of_kind = (of_target, groups.c.kind == kind, is_group_wrong(kind))
            for month, key in connection.execute(select(groups.c.month, groups.c.key).where(*of_kind).limit(1)):
                raise StoreCorruptError(
                    f"the store is damaged: the group {key[:200]} of {month} is of the kind {ascii(kind)[:40]}, "
                    "not that stored"
                )


def require_places(connection: Connection, target_id: int) -> None:
    """Raise `StoreCorruptError` if a group of a target has another state, or is of another month, target, or kind than
    was stored.

    It would be sent once more where it was; where it is now, it would look vanished, and zero would replace it. All
    groups are read, as one that has another target is among those of that.
    """
    is_own = groups.c.target_id == target_id
    is_damaged = (
        and_(groups.c.kind == kind, or_(and_(is_own, is_wrong), and_(not_(is_own), is_of_this)))
        for kind in (*plugins.totals_by_kind(), UTILIZATION)
        for is_wrong, is_of_this in [(is_group_wrong(kind), not_(is_group_wrong(kind, target_id)))]
    )
    query = select(groups.c.month, groups.c.key).where(or_(*is_damaged)).limit(1)
    for month, key in connection.execute(query):
        raise StoreCorruptError(
            f"the store is damaged: the state, or the place, of the group {key[:200]} of {month} is not what was stored"
        )
    require_kinds(connection, target_id)


def unsettled(connection: Connection, target_id: int, kind: str) -> list[int]:
    """The months, by number, of groups that were in flight when a run ended, that are to be sent again, or that the
    service did not take.

    Raises `StoreCorruptError` if a group of any month has another state or place than was stored.
    """
    require_places(connection, target_id)
    open_ones = groups.c.state.in_([int(State.IN_FLIGHT), int(State.WAITING), int(State.HELD)])
    query = select(groups.c.month).where(groups.c.target_id == target_id, groups.c.kind == kind, open_ones).distinct()
    return sorted(connection.execute(query).scalars())


def with_jobs_before(connection: Connection, target_id: int, kind: str, month: int) -> list[int]:
    """The months, by number, before this one of which the service has groups with jobs."""
    query = (
        select(groups.c.month)
        .where(groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month < month, groups.c.jobs > 0)
        .distinct()
    )
    return sorted(connection.execute(query).scalars())


def send_again(connection: Connection, target_id: int, months: Iterable[int], kept: Collection[str]) -> None:
    """Mark all groups of these months, by number, to be sent again, changed or not; without those of the keys
    `kept`."""
    chosen = and_(groups.c.target_id == target_id, groups.c.month.in_(list(months)), groups.c.key.not_in(kept))
    connection.execute(update(groups).where(chosen).values(_WAITING))


def send_missing(connection: Connection, target_id: int, found: Iterable[tuple[str, int, str]]) -> None:
    """Mark accepted groups to be sent again: (kind, number of the month, key). When they were sent stays recorded."""
    accepted = groups.c.state == int(State.ACCEPTED)
    for kind, month, key in found:
        one = (groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month, groups.c.key == key)
        connection.execute(update(groups).where(*one, accepted).values(_WAITING))


def of_month(connection: Connection, target_id: int, kind: str, month: int) -> dict[str, GroupRow]:
    """The groups of a month by their key. Raises `StoreCorruptError`, also if one lacks as its kind is damaged."""
    require_kinds(connection, target_id)
    query = select(groups).where(groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month)
    return {row["key"]: _row(row) for row in connection.execute(query).mappings()}


def _row(row: RowMapping) -> GroupRow:
    return GroupRow(
        row["month"],
        row["key"],
        checked_state_of(row["state"], row["state_check"], row["target_id"], row["kind"], row["month"]),
        bytes_of(row["digest"], "the digest of a group"),
        row["jobs"],
        bytes_of(row["body"], "a group"),
    )


def left_over(
    connection: Connection, target_id: int, totals: TotalsKind, options: msgspec.Struct | None
) -> dict[str, int]:
    """By the name of an amount that the settings (`options`) do not have any more: how many totals have it. Damaged
    totals are left out."""
    counts: Counter[str] = Counter()
    if totals.left_over is None:
        return counts
    query = select(groups.c.body, groups.c.state).where(groups.c.target_id == target_id, groups.c.kind == totals.kind)
    for body, state in connection.execute(query):
        with suppress(PublisherError):
            total = read_with(totals.from_json, bytes_of(body, "a group"), "a group")
            counts.update(totals.left_over(total, options, state_of(state) is State.ACCEPTED))
    return dict(sorted(counts.items()))


def keep_sync_counts(connection: Connection, month: Month) -> None:
    """Keep the sync counts of a month for every target, because its jobs are purged.

    They include what was kept before, when other jobs of the month were purged. Raises `StoreCorruptError`.
    """
    for target_id in connection.execute(select(targets.c.id)).scalars().all():
        require_kinds(connection, target_id)
    kept = purged_sync_counts
    connection.execute(delete(kept).where(kept.c.month == month.number))
    counts = select(groups.c.target_id, groups.c.month, groups.c.key, groups.c.body, groups.c.digest).where(
        groups.c.kind == SYNC, groups.c.month == month.number
    )
    dialect.insert_from_select(connection, kept, dialect.column_names(kept.c), counts)


def kept_sync_counts(connection: Connection, target_id: int, month: Month, totals: TotalsKind) -> list[MonthTotal]:
    """The kept sync counts of a target for a month. Raises `StoreCorruptError`."""
    kept = purged_sync_counts
    query = select(kept.c.key, kept.c.digest, kept.c.body).where(
        kept.c.target_id == target_id, kept.c.month == month.number
    )
    return [kept_count(totals, month.number, *row) for row in connection.execute(query)]


def kept_count(totals: TotalsKind, month: int, key: str, digest: bytes, body: bytes) -> MonthTotal:
    """A kept sync count from its columns. Raises `StoreCorruptError`."""
    what = f"the kept sync count {key}"
    digest, body = bytes_of(digest, f"the digest of {what}"), bytes_of(body, what)
    count = read_with(totals.from_json, body, what)
    return GroupRow(month, key, State.ACCEPTED, digest, count.jobs, body).total(totals)


def forget(connection: Connection, target_id: int, kind: str, month: int, keys: Sequence[str]) -> None:
    """Delete groups of a month that others replaced."""
    of_month = delete(groups).where(groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month)
    paging.execute_in(connection, of_month, groups.c.key, keys)


def reaches(connection: Connection, target_id: int) -> dict[int, bytes]:
    """How far back the runs of periods reach, as recorded with `set_reaches`, by the period's number."""
    query = select(report_reaches.c.period, report_reaches.c.reach).where(report_reaches.c.target_id == target_id)
    return {period: bytes_of(reach, "the reach of a report") for period, reach in connection.execute(query)}


def set_reaches(connection: Connection, target_id: int, reached: Mapping[int, bytes]) -> None:
    """Record how far back the runs of periods reach, by the period's number, in a form of the caller's."""
    rows = [{"target_id": target_id, "period": period, "reach": reach} for period, reach in reached.items()]
    dialect.upsert(connection, report_reaches, rows, keys=("target_id", "period"))


def mark_in_flight(
    connection: Connection, target_id: int, kind: str, batch_id: int, rows: Iterable[GroupRow], now: int
) -> None:
    """Record groups as in flight in a batch."""
    _put(connection, target_id, kind, State.IN_FLIGHT, batch_id, rows, now)


def assume(connection: Connection, target_id: int, kind: str, rows: Iterable[GroupRow], now: int) -> None:
    """Record groups that an earlier publisher delivered."""
    _put(connection, target_id, kind, State.ACCEPTED, None, rows, now)


def _put(
    connection: Connection,
    target_id: int,
    kind: str,
    state: State,
    batch_id: int | None,
    rows: Iterable[GroupRow],
    now: int,
) -> None:
    values = [
        {
            "target_id": target_id,
            "kind": kind,
            "month": row.month,
            "key": row.key,
            "state": int(state),
            "state_check": state_check(state, target_id, kind, row.month),
            "digest": row.digest,
            "jobs": row.jobs,
            "body": row.body,
            "batch_id": batch_id,
            "changed_at": now,
            "confirmed_at": None,
        }
        for row in rows
    ]
    dialect.upsert(connection, groups, values, keys=("target_id", "kind", "month", "key"))


def settle(connection: Connection, target_id: int, batch_id: int, state: State, now: int) -> None:
    """Record the new state of the groups of a batch."""
    connection.execute(
        update(groups)
        .where(
            groups.c.target_id == target_id,
            groups.c.batch_id == batch_id,
            groups.c.state == int(State.IN_FLIGHT),
        )
        .values(**state_columns(state), changed_at=now)
    )


def forget_sent(connection: Connection, target_id: int, batch_id: int) -> None:
    """Delete the groups that are in flight in a batch: no version of them was ever sent before."""
    in_batch = (groups.c.target_id == target_id, groups.c.batch_id == batch_id, groups.c.state == int(State.IN_FLIGHT))
    connection.execute(delete(groups).where(*in_batch))


def put_back(connection: Connection, target_id: int, now: int) -> None:
    """Let all groups of a target that are in flight wait again."""
    connection.execute(
        update(groups)
        .where(groups.c.target_id == target_id, groups.c.state == int(State.IN_FLIGHT))
        .values(**state_columns(State.WAITING), changed_at=now)
    )


def in_state(connection: Connection, target_id: int, state: State) -> list[tuple[int, str]]:
    """Month, by number, and key of the totals and reports of a target that are in this state, in order."""
    mine = (groups.c.target_id == target_id, groups.c.state == int(state), IS_SNAPSHOT)
    query = select(groups.c.month, groups.c.key).where(*mine).order_by(groups.c.month, groups.c.key)
    return [(month, key) for month, key in connection.execute(query)]


def count(connection: Connection, target_id: int) -> dict[State, int]:
    """How many totals or reports of a target are in each state."""
    query = select(groups.c.state, groups.c.state_check, groups.c.target_id, groups.c.kind, groups.c.month).where(
        groups.c.target_id == target_id, IS_SNAPSHOT
    )
    return Counter(checked_state_of(*row) for row in connection.execute(query))


def count_confirmed(connection: Connection, target_id: int) -> int:
    """How many totals of a target `reconcile` has seen at the service as they were last sent."""
    query = select(func.count()).where(groups.c.target_id == target_id, IS_SNAPSHOT, groups.c.confirmed_at.is_not(None))
    return int(connection.execute(query).scalar_one())


_one: Final = and_(
    groups.c.target_id == bindparam("target"),
    groups.c.kind == bindparam("of_kind"),
    groups.c.month == bindparam("of_month"),
    groups.c.key == bindparam("of_key"),
)
_ONE: Final = ("target", "of_kind", "of_month", "of_key")
_confirm: Final = prepared.Bulk(
    update(groups)
    .where(_one, groups.c.state == bindparam("before"), groups.c.confirmed_at.is_(None))
    .values(confirmed_at=bindparam("confirmed_at")),
    ("confirmed_at", *_ONE, "before"),
)
_withdraw: Final = prepared.Bulk(
    update(groups).where(_one, groups.c.confirmed_at.is_not(None)).values(confirmed_at=null()), _ONE
)


def confirm(connection: Connection, target_id: int, kind: str, month: int, keys: Sequence[str], now: int) -> None:
    """Confirm groups of a month by their keys, if they are accepted and not confirmed yet."""
    _confirm.run(connection, [(now, target_id, kind, month, key, int(State.ACCEPTED)) for key in keys])


def withdraw(connection: Connection, target_id: int, kind: str, month: int, keys: Sequence[str]) -> None:
    """Withdraw the confirmation of groups of a month by their keys."""
    _withdraw.run(connection, [(target_id, kind, month, key) for key in keys])
