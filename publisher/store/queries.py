"""Read the ledger: what waits, page by page with its runs; open end times; runs by end time."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Integer,
    Select,
    and_,
    bindparam,
    exists,
    func,
    select,
    tuple_,
)

from formats.calendar import Month, Period, PeriodKind, month_bounds, month_of, period_of
from formats.rule_codes import Reason
from publisher.store import dialect, paging
from publisher.store.deliveries import WHOLE, Shard, in_state, state_where
from publisher.store.schema import (
    Ambiguity,
    BatchState,
    State,
    batches,
    classes,
    deliveries,
    groups,
    purged_months,
    runs,
    sources,
)
from publisher.store.schema import runs as runs_table
from publisher.store.stored_json import read_with, stored_reason
from publisher.store.stored_run import RUN_COLUMNS, StoredRun, run_or_damage, stored_run
from publisher.store.stored_values import bytes_of, revision_of
from publisher.store.stored_values import state_of as known_state

_Span = TypeVar("_Span")


class SentVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The version of a run that was last sent. The service has it, or may have it, or has an earlier one that was
    sent. `by_several_settings`: it may have this version as it was made by earlier settings."""

    digest: bytes
    may_be_one_of_several: bool = False
    by_several_settings: bool = False

    def is_known_as(self, digest: bytes) -> bool:
        """Whether only this version was sent."""
        return self.digest == digest and not self.may_be_one_of_several


def sent_version(digest: bytes | None, several: int) -> SentVersion | None:
    """The version in the columns `sent_digest` and `may_be_one_of_several`."""
    if digest is None:
        return None
    sent = bytes_of(digest, "the digest of a version that was sent")
    return SentVersion(sent, several == Ambiguity.VERSION, several == Ambiguity.SETTINGS)


class PendingDelivery(msgspec.Struct, frozen=True, gc=False):
    """A delivery, usually a waiting one, with its run. `revision`: that of the run when this was read.

    `sent`: the version that the service has, or may have; known for those that wait or are in flight.
    """

    end_time: int
    run: StoredRun
    revision: int = 0
    sent: SentVersion | None = None


def _pending(end_time: int, row: Sequence[Any], revision: int = 0, sent: SentVersion | None = None) -> PendingDelivery:
    """A delivery, with its run from `RUN_COLUMNS`: damaged too if it is not the run of this delivery."""
    run = run_or_damage(row)
    if run.damage is None and run.job.end != end_time:
        run = msgspec.structs.replace(run, damage=f"the delivery of job {run.record_id} has another end")
    return PendingDelivery(end_time, run, revision_of(revision), sent)


def with_runs() -> Select[Any]:
    """Deliveries with their runs: end time, then `RUN_COLUMNS`."""
    joined = (
        deliveries.join(runs, deliveries.c.run_id == runs.c.id)
        .join(classes, runs.c.class_id == classes.c.id)
        .join(sources, classes.c.source_id == sources.c.id)
    )
    return select(deliveries.c.end_time, *RUN_COLUMNS).select_from(joined)


def _all_waiting(*columns: ColumnElement[Any], after: ColumnElement[bool] | None = None) -> Select[Any]:
    return (
        select(deliveries.c.end_time, deliveries.c.run_id, *columns)
        .where(
            deliveries.c.target_id == bindparam("target"),
            in_state(State.WAITING, after),
            deliveries.c.run_id % bindparam("of", type_=BigInteger) == bindparam("index", type_=BigInteger),
        )
        .order_by(deliveries.c.end_time, deliveries.c.run_id)
    )


def place_of(
    connection: Connection, target_id: int, number: int, after: tuple[int, int] | None = None, part: Shard = WHOLE
) -> tuple[int, int] | None:
    """End time and run id of the n-th waiting delivery after a place; None if fewer wait. An index scan."""
    query = _all_waiting(after=None if after is None else _after(after)).limit(1).offset(number - 1)
    row = connection.execute(query, {"target": target_id, "of": part.of, "index": part.index}).first()
    return None if row is None else (row[0], row[1])


def _waiting(*, first: bool) -> Select[Any]:
    place = tuple_(bindparam("end", type_=BigInteger), bindparam("run", type_=BigInteger))
    after = tuple_(deliveries.c.end_time, deliveries.c.run_id) > place if not first else None
    chosen = _all_waiting(
        deliveries.c.revision, deliveries.c.sent_digest, deliveries.c.may_be_one_of_several, after=after
    )
    page = chosen.limit(bindparam("most", type_=Integer)).subquery("page")
    # Outer joins: they are done in the order in which they are written.
    joined = (
        page.outerjoin(runs, page.c.run_id == runs.c.id)
        .outerjoin(classes, runs.c.class_id == classes.c.id)
        .outerjoin(sources, classes.c.source_id == sources.c.id)
    )
    before_run = (page.c.end_time, page.c.revision, page.c.sent_digest, page.c.may_be_one_of_several)
    return select(*before_run, page.c.run_id, *RUN_COLUMNS[1:]).select_from(joined)


_place: Final = itemgetter(0, 4)
"""End time and run id, in a row that waits."""
_first_waiting: Final = _waiting(first=True)
_next_waiting: Final = _waiting(first=False)


def waiting(
    connection: Connection, target_id: int, after: tuple[int, int] | None, limit: int, part: Shard = WHOLE
) -> Iterator[PendingDelivery]:
    """The next deliveries that wait, oldest end time first, after `after` (end time, run id): an index scan.

    All rows are read at once; each run is decoded when the iterator reaches it.
    """
    values = {"target": target_id, "most": limit, "of": part.of, "index": part.index}
    query = _first_waiting
    if after is not None:
        query = _next_waiting
        values |= {"end": after[0], "run": after[1]}
    # Values within the query would make it another query, to be prepared again, for each page.
    rows = [row for page in dialect.streamed(connection, query, limit, values) for row in page]
    # If the database sorted them, all records would pass through its sorter.
    read_with(lambda read: read.sort(key=_place), rows, "the index over open deliveries")
    return (_pending(row[0], row[4:], row[1], sent_version(row[2], row[3])) for row in rows)


def oldest_waiting(connection: Connection, target_id: int) -> int | None:
    """End time of the oldest run that waits."""
    return connection.execute(_oldest(target_id, State.WAITING)).scalars().first()


def oldest_open(connection: Connection, target_id: int) -> int | None:
    """End time of the oldest run that the service lacks and should have: waiting, in flight, held, or rejected."""
    states = (State.WAITING, State.IN_FLIGHT, State.HELD, State.REJECTED)
    ends = [connection.execute(_oldest(target_id, state)).scalars().first() for state in states]
    return min((end for end in ends if end is not None), default=None)


def _oldest(target_id: int, state: State) -> Select[Any]:
    return (
        select(deliveries.c.end_time)
        .where(deliveries.c.target_id == target_id, in_state(state))
        .order_by(deliveries.c.end_time)
        .limit(1)
    )


def listed(
    connection: Connection, target_id: int, state: State, limit: int | None, after: tuple[int, int] | None = None
) -> Iterator[tuple[str, int, Reason | None, int]]:
    """(record id, end time, reason, run id) of deliveries in an open state, oldest first; None: all of them."""
    place = None if after is None else _after(after)
    query = (
        select(
            runs.c.record_id,
            deliveries.c.end_time,
            deliveries.c.reason,
            deliveries.c.reason_parameters,
            deliveries.c.run_id,
        )
        .join(runs, deliveries.c.run_id == runs.c.id)
        .where(deliveries.c.target_id == target_id, in_state(state, place))
        .order_by(deliveries.c.end_time, deliveries.c.run_id)
        .limit(limit)
    )
    for record_id, end_time, code, parameters, run_id in connection.execute(query):
        yield record_id, end_time, stored_reason(code, parameters), run_id


def held_for(
    connection: Connection,
    target_id: int,
    codes: Collection[str],
    bounds: tuple[int, int],
    after: tuple[int, int] | None,
    limit: int,
    as_waiting: ColumnElement[bool] | None = None,
) -> tuple[list[PendingDelivery], tuple[int, int] | None]:
    """The next of the deliveries that ended within bounds (the second exclusive) and are held for one of these
    reasons, without those that count as waiting, by end time; and where to continue (end time, run id), None at the
    end."""
    query = (
        with_runs()
        .where(
            deliveries.c.target_id == target_id,
            in_state(State.HELD, None if after is None else _after(after)),
            state_where(as_waiting) == int(State.HELD),
            deliveries.c.reason.in_(codes),
            deliveries.c.end_time >= bounds[0],
            deliveries.c.end_time < bounds[1],
        )
        .order_by(deliveries.c.end_time, deliveries.c.run_id)
        .limit(limit)
    )
    page = [_pending(row[0], row[1:]) for row in connection.execute(query)]
    place = (page[-1].end_time, page[-1].run.run_id) if len(page) == limit else None
    return page, place


def _after(place: tuple[int, int]) -> ColumnElement[bool]:
    return tuple_(deliveries.c.end_time, deliveries.c.run_id) > tuple_(*place)


def ended_page(
    columns: Iterable[ColumnElement[Any]], bounds: tuple[int, int], after: tuple[int, int] | None, limit: int
) -> Select[Any]:
    """The next of the runs that ended within bounds (the second exclusive), by end time and id.

    The lower bound is the end time of the place: with two bounds, SQLite may begin at the lower one.
    """
    first, end = bounds if after is None else (after[0], bounds[1])
    query = select(*columns).where(runs.c.end_time >= first, runs.c.end_time < end)
    if after is not None:
        query = query.where(tuple_(runs.c.end_time, runs.c.id) > tuple_(*after))
    return query.order_by(runs.c.end_time, runs.c.id).limit(limit)


def next_place(rows: Sequence[Any], limit: int) -> tuple[int, int] | None:
    """End time and run id of the last of these rows, which begin with them; None if there are no more."""
    return (rows[-1][0], rows[-1][1]) if len(rows) == limit else None


def months_of(connection: Connection, target_id: int, state: State) -> list[Month]:
    """The months in which deliveries in an open state end, oldest first; one index look-up a month."""
    return _spans(_oldest(target_id, state), connection, month_of, lambda month: month_bounds(month)[1])


def periods_of(connection: Connection, target_id: int, state: State, kind: PeriodKind) -> list[Period]:
    """The periods in which deliveries in an open state end, oldest first."""
    return _spans(_oldest(target_id, state), connection, partial(period_of, kind), lambda period: period.stop)


def _ends_from(target_id: int, first: int) -> Select[Any]:
    """Ends of deliveries in any state, by the index over the ends of runs. Without a join: the database would rather
    read all deliveries of the target while it does not know how many there are."""
    has_delivery = exists().where(deliveries.c.target_id == target_id, deliveries.c.run_id == runs.c.id)
    return select(runs.c.end_time).where(runs.c.end_time >= first, has_delivery).order_by(runs.c.end_time).limit(1)


def periods_from(connection: Connection, target_id: int, kind: PeriodKind, first: int) -> list[Period]:
    """The periods in which deliveries in any state end, from the one in which the first of them ends at `first` or
    later; one index look-up for each."""
    ends = _ends_from(target_id, first)
    return _spans(ends, connection, partial(period_of, kind), lambda period: period.stop)


def _spans(
    ends: Select[Any], connection: Connection, span_of: Callable[[int], _Span], end_of: Callable[[_Span], int]
) -> list[_Span]:
    """The spans of time in which the ends are; `ends` returns the first of them."""
    spans: list[_Span] = []
    end = connection.execute(ends).scalars().first()
    while end is not None:
        spans.append(span_of(end))
        end = connection.execute(ends.where(ends.selected_columns[0] >= end_of(spans[-1]))).scalars().first()
    return spans


def count_waiting_from(connection: Connection, target_id: int, first: int) -> int:
    """How many waiting deliveries ended at `first` or later."""
    chosen = and_(deliveries.c.target_id == target_id, in_state(State.WAITING, deliveries.c.end_time >= first))
    return connection.execute(select(func.count()).select_from(deliveries).where(chosen)).scalar_one()


def ended_in(
    connection: Connection,
    target_id: int,
    bounds: tuple[int, int],
    after: tuple[int, int] | None,
    limit: int,
    *,
    changed_since: int | None = None,
    only: ColumnElement[bool] | None = None,
    as_waiting: ColumnElement[bool] | None = None,
) -> tuple[list[tuple[State, PendingDelivery]], tuple[int, int] | None]:
    """The deliveries in any state, with states, of the next runs that ended within bounds (the second exclusive), by
    end time; and where to continue (end time, run id), None at the end.

    `changed_since`: only those enqueued or changed then or later; `only`: a condition on runs; `as_waiting`: deliveries
    that count as waiting. Runs are selected first by the index over their ends, and then their deliveries are looked
    up.
    """
    chosen = ended_page((runs.c.id, runs.c.end_time), bounds, after, limit)
    if only is not None:
        chosen = chosen.where(only)
    some = chosen.subquery("some")
    is_its_delivery = and_(deliveries.c.target_id == target_id, deliveries.c.run_id == some.c.id)
    if changed_since is not None:
        is_its_delivery = and_(is_its_delivery, deliveries.c.changed_at >= changed_since)
    # Outer joins: they are done in the order in which they are written.
    joined = (
        some.outerjoin(deliveries, is_its_delivery)
        .outerjoin(runs, runs.c.id == deliveries.c.run_id)
        .outerjoin(classes, runs.c.class_id == classes.c.id)
        .outerjoin(sources, classes.c.source_id == sources.c.id)
    )
    columns = (
        some.c.end_time,
        some.c.id,
        state_where(as_waiting),
        deliveries.c.revision,
        deliveries.c.end_time,
        deliveries.c.sent_digest,
        deliveries.c.may_be_one_of_several,
        *RUN_COLUMNS,
    )
    query = select(*columns).select_from(joined).order_by(some.c.end_time, some.c.id)
    rows = connection.execute(query).all()
    pending = [
        (known_state(row[2]), _pending(row[4], row[7:], row[3], sent_version(row[5], row[6])))
        for row in rows
        if row[2] is not None
    ]
    return pending, next_place(rows, limit)


def last_taken(connection: Connection, target_id: int) -> int | None:
    """When the service last accepted a message from this store."""
    query = select(func.max(batches.c.closed_at)).where(
        batches.c.target_id == target_id, batches.c.state == int(BatchState.ACCEPTED)
    )
    latest: int | None = connection.execute(query).scalar_one()
    return latest


def is_purged(connection: Connection, month: int) -> bool:
    """Whether the runs of a month were purged, so that it is no longer known what was sent."""
    query = select(purged_months.c.month).where(purged_months.c.month == month)
    return connection.execute(query).first() is not None


def batches_of_groups(connection: Connection, target_id: int, kind: str, month: int) -> dict[str, int]:
    """The batches in which the groups of a month were last sent, by their keys."""
    query = select(groups.c.key, groups.c.batch_id).where(
        groups.c.target_id == target_id, groups.c.kind == kind, groups.c.month == month, groups.c.batch_id.is_not(None)
    )
    return {str(row[0]): row[1] for row in connection.execute(query)}


def sent_versions(connection: Connection, target_id: int, run_ids: Sequence[int]) -> dict[int, SentVersion]:
    """By run id: the version that a target has, or may have, without runs that were never sent."""
    query = select(deliveries.c.run_id, deliveries.c.sent_digest, deliveries.c.may_be_one_of_several).where(
        deliveries.c.target_id == target_id, deliveries.c.sent_digest.is_not(None)
    )
    rows = paging.rows_in(connection, query, deliveries.c.run_id, run_ids)
    versions = ((run_id, sent_version(digest, several)) for run_id, digest, several in rows)
    return {run_id: version for run_id, version in versions if version is not None}


def runs_in(
    connection: Connection, from_: int | None, until: int | None, after: tuple[int, int] | None, limit: int
) -> tuple[list[tuple[StoredRun, int]], tuple[int, int] | None]:
    """The next runs that ended from `from_` until `until` (exclusive), with their class ids, by end time; and where
    to continue (end time, run id), None at the end."""
    joined = runs_table.join(classes, runs_table.c.class_id == classes.c.id).join(
        sources, classes.c.source_id == sources.c.id
    )
    query = (
        select(runs_table.c.end_time, *RUN_COLUMNS, runs_table.c.class_id)
        .select_from(joined)
        .where(paging.ended_between(runs_table.c.end_time, from_, until))
        .order_by(runs_table.c.end_time, runs_table.c.id)
        .limit(limit)
    )
    if after is not None:
        end, run_id = after
        query = query.where(tuple_(runs_table.c.end_time, runs_table.c.id) > tuple_(end, run_id))
    rows = connection.execute(query).all()
    return [(stored_run(row[1:-1]), row[-1]) for row in rows], next_place(rows, limit)
