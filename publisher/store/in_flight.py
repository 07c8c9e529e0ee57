"""Deliveries in flight in a batch, from just before it is sent until its outcome is recorded.

Their states change in `publisher.store.transitions` alone. See `publisher.store.deliveries` for `revision`,
`deselected`, and `may_be_one_of_several`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, bindparam, case, func, literal_column, null, or_, select, update

from formats.rule_codes import Reason
from publisher.reason import ReasonCode
from publisher.store import paging, prepared
from publisher.store.deliveries import IS_ONE_VERSION, WHOLE, Shard, in_state
from publisher.store.queries import PendingDelivery, SentVersion, sent_version, with_runs
from publisher.store.schema import OPEN, Ambiguity, State, deliveries, earlier_settings, runs
from publisher.store.stored_run import run_or_damage
from publisher.store.transitions import ONE_UNCHANGED, ZERO, DeliverySelection, StateChange, transition

NO_LONGER_SELECTED: Final = Reason.of(ReasonCode.NO_LONGER_SELECTED)
CHANGED_AFTER_DELIVERY: Final = Reason.of(ReasonCode.CHANGED_AFTER_DELIVERY)


_VERSION: Final[ColumnElement[int]] = literal_column(str(int(Ambiguity.VERSION)))
_SETTINGS: Final[ColumnElement[int]] = literal_column(str(int(Ambiguity.SETTINGS)))
_before_present_settings: Final = (
    select(func.max(earlier_settings.c.last_batch_id))
    .where(earlier_settings.c.target_id == deliveries.c.target_id)
    .scalar_subquery()
)
"""The last message that was made by earlier settings; NULL if there is none."""


def _sent(digest: ColumnElement[bytes]) -> dict[str, ColumnElement[Any]]:
    """The columns of a batch, with the digest of the version that it sends."""
    return {
        "batch_id": bindparam("batch"),
        "sent_digest": digest,
        "may_be_one_of_several": case(
            (or_(bindparam("keeps_first") == ZERO, deliveries.c.sent_digest.is_(None)), ZERO),
            (deliveries.c.sent_digest != digest, _VERSION),
            # If what was sent before arrived, it is there as it was: by the present settings it would look altered.
            (and_(IS_ONE_VERSION, deliveries.c.batch_id <= _before_present_settings), _SETTINGS),
            else_=deliveries.c.may_be_one_of_several,
        ),
    }


_one_run: Final = deliveries.c.run_id == bindparam("run")
_several_runs: Final = deliveries.c.run_id.bool_op("IN")(prepared.Listed("runs"))
_leaving: Final = DeliverySelection(
    and_(_several_runs, deliveries.c.revision == bindparam("revision_read"), deliveries.c.deselected == ZERO),
    ("batch", "keeps_first", "runs", "revision_read"),
    _sent(select(runs.c.digest).where(runs.c.id == deliveries.c.run_id).scalar_subquery()),
)
_AS_THEY_WERE: Final = {"revision": deliveries.c.revision, "deselected": deliveries.c.deselected}
_leaving_again: Final = DeliverySelection(
    _one_run, ("batch", "keeps_first", "digest", "run"), {**_sent(bindparam("digest")), **_AS_THEY_WERE}
)
_in_next_batch: Final = DeliverySelection(
    _several_runs, ("batch", "runs"), {"batch_id": bindparam("batch"), **_AS_THEY_WERE}
)

_of_batch: Final = and_(
    OPEN, deliveries.c.end_time >= literal_column(str(paging.EVER + 1)), deliveries.c.batch_id == bindparam("batch")
)
_batch: Final = DeliverySelection(_of_batch, ("batch",))
_batch_selected: Final = DeliverySelection(and_(_of_batch, deliveries.c.deselected == ZERO), ("batch",))
_batch_changed: Final = DeliverySelection(
    and_(_of_batch, deliveries.c.revision != ZERO, deliveries.c.deselected == ZERO), ("batch",)
)
_batch_unchanged: Final = DeliverySelection(
    and_(
        _of_batch,
        deliveries.c.revision == ZERO,
        deliveries.c.deselected == ZERO,
        IS_ONE_VERSION,
    ),
    ("batch",),
)
_in_batch: Final = and_(
    deliveries.c.target_id == bindparam("target"),
    deliveries.c.state == literal_column(str(int(State.IN_FLIGHT))),
    _of_batch,
)
_none_sent: Final = prepared.Bulk(
    update(deliveries).where(_in_batch).values(sent_digest=null(), may_be_one_of_several=ZERO), ("target", "batch")
)
_earlier_sent: Final = prepared.Bulk(
    update(deliveries)
    .where(_in_batch, _one_run)
    .values(
        sent_digest=bindparam("earlier"),
        # Its message is not named any more: it may have been made by any of the settings.
        may_be_one_of_several=case(
            (and_(bindparam("several") == ZERO, _before_present_settings.is_not(None)), _SETTINGS),
            else_=bindparam("several"),
        ),
    ),
    ("earlier", "several", "target", "batch", "run"),
)


def mark_in_flight(
    connection: Connection,
    target_id: int,
    batch_id: int,
    leaving: Iterable[tuple[int, int]],
    now: int,
    *,
    keeps_first: bool,
) -> int:
    """Mark waiting runs as in flight in a batch: (run id, revision read), thousands at a time; return how many.

    Runs that changed since they were read keep waiting, so it is the present version that is sent. If the service keeps
    first versions and may have another one, it may have one of several until it certainly did not accept this one.
    """
    by_revision: dict[int, list[int]] = defaultdict(list)
    for run_id, revision in leaving:
        by_revision[revision].append(run_id)
    change = StateChange(target_id, State.WAITING, State.IN_FLIGHT, now)
    first = int(keeps_first)
    rows = [(batch_id, first, prepared.listed(run_ids), revision) for revision, run_ids in by_revision.items()]
    return transition(connection, change, _leaving, rows)


def send_again(
    connection: Connection,
    target_id: int,
    batch_id: int,
    leaving: Iterable[tuple[int, bytes]],
    now: int,
    *,
    keeps_first: bool,
) -> None:
    """Move records that are in flight, in a batch that was not accepted, to another batch: (run id, digest of the
    version that is sent now)."""
    change = StateChange(target_id, State.IN_FLIGHT, State.IN_FLIGHT, now)
    first = int(keeps_first)
    transition(connection, change, _leaving_again, [(batch_id, first, digest, run_id) for run_id, digest in leaving])


def move_to_batch(connection: Connection, target_id: int, batch_id: int, run_ids: Iterable[int], now: int) -> None:
    """Move runs that are in flight with their groups to another batch: the groups are sent once more with the same
    contents, so the recorded versions stay."""
    change = StateChange(target_id, State.IN_FLIGHT, State.IN_FLIGHT, now)
    transition(connection, change, _in_next_batch, [(batch_id, prepared.listed(run_ids))])


def unchanged(connection: Connection, target_id: int, revisions: Mapping[int, int]) -> set[int]:
    """Which of these runs (by run id, with the revision read) still wait at that revision."""
    # Without the condition of the index over open deliveries: the row decides, as where it is marked as in flight.
    query = select(deliveries.c.run_id, deliveries.c.revision).where(
        deliveries.c.target_id == target_id, deliveries.c.state == int(State.WAITING)
    )
    rows = paging.rows_in(connection, query, deliveries.c.run_id, list(revisions))
    return {run_id for run_id, revision in rows if revision == revisions[run_id]}


def forget_changes(connection: Connection, target_id: int, shard: Shard = WHOLE) -> None:
    """Mark what is in flight as unchanged, because its present version is sent next."""
    chosen = and_(
        deliveries.c.target_id == target_id,
        in_state(State.IN_FLIGHT),
        deliveries.c.revision > 0,
        deliveries.c.deselected == 0,
        shard.has(deliveries.c.run_id),
    )
    connection.execute(update(deliveries).where(chosen).values(revision=0))


def in_flight(connection: Connection, target_id: int, shard: Shard = WHOLE) -> list[tuple[int, PendingDelivery]]:
    """Every delivery in flight with its batch id, in the order in which they would wait."""
    query = (
        with_runs()
        .add_columns(
            deliveries.c.sent_digest,
            deliveries.c.may_be_one_of_several,
            deliveries.c.revision,
            deliveries.c.batch_id,
        )
        .where(deliveries.c.target_id == target_id, in_state(State.IN_FLIGHT), shard.has(deliveries.c.run_id))
        .order_by(deliveries.c.batch_id, deliveries.c.end_time, deliveries.c.run_id)
    )
    sent = []
    for end_time, *run, digest, several, revision, batch_id in connection.execute(query):
        sent.append((batch_id, PendingDelivery(end_time, run_or_damage(run), revision, sent_version(digest, several))))
    return sent


def mark_accepted(
    connection: Connection, target_id: int, batch_id: int, now: int, *, keeps_first: bool, expected: int | None = None
) -> int:
    """Settle the deliveries in flight in an accepted batch; return how many. `expected`: there are no more.

    A run that changed while it was in flight waits again or, if the service keeps the first version of a record, is
    superseded.
    """
    batch = [(batch_id,)]
    accepted = StateChange(target_id, State.IN_FLIGHT, State.ACCEPTED, now)
    settled = transition(connection, accepted, _batch_unchanged, batch)
    if expected is None or settled < expected:
        changed = (
            StateChange(target_id, State.IN_FLIGHT, State.SUPERSEDED, now, CHANGED_AFTER_DELIVERY)
            if keeps_first
            else StateChange(target_id, State.IN_FLIGHT, State.WAITING, now)
        )
        settled += transition(connection, changed, _batch_selected, batch)
        settled += _supersede(connection, target_id, batch_id, now)
    return settled


def not_taken(connection: Connection, target_id: int, batch_id: int, earlier: Mapping[int, SentVersion]) -> None:
    """Record that the service certainly accepted nothing of this batch; its deliveries stay in flight.

    `earlier`: the versions that it had before, or may have had, of some of the runs; it still has them.
    """
    _none_sent.run(connection, [(target_id, batch_id)])
    _record_earlier(connection, target_id, batch_id, earlier)


def _record_earlier(connection: Connection, target_id: int, batch_id: int, earlier: Mapping[int, SentVersion]) -> None:
    _earlier_sent.run(
        connection,
        [
            (sent.digest, int(sent.may_be_one_of_several), target_id, batch_id, run_id)
            for run_id, sent in earlier.items()
        ],
    )


class KeptVersion(msgspec.Struct, frozen=True):
    """The version of a run that a service keeps although another was sent, and the reason."""

    version: SentVersion
    reason: Reason


def keep_earlier(
    connection: Connection, target_id: int, batch_id: int, kept: Mapping[int, KeptVersion], now: int
) -> None:
    """Supersede the deliveries in flight in a batch of which the service keeps another version, by run id.

    A run that changed while it was in flight stays in flight: its later version was not compared.
    """
    versions = {run_id: each.version for run_id, each in kept.items()}
    _record_earlier(connection, target_id, batch_id, versions)
    for run_id, each in kept.items():
        change = StateChange(target_id, State.IN_FLIGHT, State.SUPERSEDED, now, each.reason)
        transition(connection, change, ONE_UNCHANGED, [(run_id, 0)])


def mark_refused(
    connection: Connection,
    target_id: int,
    batch_id: int,
    reason: Reason,
    now: int,
    *,
    after: State = State.REJECTED,
) -> int:
    """Reject the deliveries in flight in a batch that was refused, or hold them; return how many.

    A run that changed while it was in flight waits again: its later version was not refused.
    """
    batch = [(batch_id,)]
    transition(connection, StateChange(target_id, State.IN_FLIGHT, State.WAITING, now), _batch_changed, batch)
    refused = StateChange(target_id, State.IN_FLIGHT, after, now, reason)
    number = transition(connection, refused, _batch_selected, batch)
    _supersede(connection, target_id, batch_id, now)
    return number


def _supersede(connection: Connection, target_id: int, batch_id: int, now: int) -> int:
    """Supersede what is left in flight in a batch: deselected runs."""
    change = StateChange(target_id, State.IN_FLIGHT, State.SUPERSEDED, now, NO_LONGER_SELECTED)
    return transition(connection, change, _batch, [(batch_id,)])


def settle_deselected(connection: Connection, target_id: int, now: int, shard: Shard = WHOLE) -> None:
    """Supersede what is in flight and deselected: the service may have it."""
    deselected = and_(in_state(State.IN_FLIGHT), deliveries.c.deselected == 1, shard.has(deliveries.c.run_id))
    change = StateChange(target_id, State.IN_FLIGHT, State.SUPERSEDED, now, NO_LONGER_SELECTED)
    transition(connection, change, deselected)


def let_wait(connection: Connection, target_id: int, before: State, now: int, shard: Shard = WHOLE) -> int:
    """Let all deliveries in an open state wait again; return how many. Deselected ones are superseded."""
    if before is State.IN_FLIGHT:
        settle_deselected(connection, target_id, now, shard)
    chosen: ColumnElement[bool] = and_(in_state(before), shard.has(deliveries.c.run_id))
    return transition(connection, StateChange(target_id, before, State.WAITING, now), chosen)
