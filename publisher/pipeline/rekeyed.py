"""Delivered runs whose key at the service changed afterwards: held before anything is sent, or they would count twice.

APEL replaces a job record by site, local id and end (facts on formats, 4.8). A run that was delivered and then turns
out to have ended at another time, or to have another local id, would stand beside its first version. Only a person can
have that one removed. Summaries need no such care, because a group that vanished is sent with zero jobs; neither does
SGAS, which knows a record by its id alone. Settings in the key are guarded by `key_guard`.

What waits is looked through before anything is sent (`hold`), and every page once more when it is rendered
(`is_rekeyed`): a run may change while others are sent, or between a kill and the run that settles what was in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, and_, select

from formats.job import Job
from publisher.config import JOB_RECORD_KINDS
from publisher.store import deliveries, groups, sent
from publisher.store.runs import StoredRun, version_of
from publisher.store.states import State
from publisher.store.stored import decode
from publisher.store.tables import deliveries as table
from publisher.store.tables import runs, versions

REASON: Final = (
    "the end time or local id changed after delivery, and both are in the service's key: sent again, the job would "
    "count twice. Let the service's administrator remove the first record, then name this one to `held retry`, or "
    "waive it"
)


def hold(connection: Connection, target_id: int, records: str, now: int, *, syncs: bool) -> list[str]:
    """Hold what waits for a target that way; gives the record ids. `records` is the format that it is sent; `syncs`:
    sync counts go with the records, and are due for the months in which the runs end now."""
    found = waiting(connection, target_id, records)
    moves = [(each.run_id, each.seen, State.WAITING, State.HELD, REASON) for each in found]
    deliveries.move_seen(connection, target_id, moves, now)
    if syncs:
        groups.mark(connection, target_id, groups.DUE, (each.end_time for each in found), now)
    return [each.record_id for each in found]


class Rekeyed(NamedTuple):
    """A run that waits and would count twice. `seen`: how often it had changed."""

    run_id: int
    record_id: str
    seen: int
    end_time: int


def waiting(connection: Connection, target_id: int, records: str) -> list[Rekeyed]:
    """What waits for a target and is to be held. `records` is the format that it is sent."""
    if records not in JOB_RECORD_KINDS or connection.execute(select(versions.c.run_id).limit(1)).first() is None:
        return []
    sent_version = and_(versions.c.run_id == table.c.run_id, versions.c.digest == table.c.sent_digest)
    query = (
        select(runs.c.id, runs.c.record_id, table.c.stale, table.c.end_time, runs.c.job, versions.c.job)
        .select_from(table)
        .join(versions, sent_version)
        .join(runs, runs.c.id == table.c.run_id)
        .where(
            table.c.target_id == target_id,
            deliveries.in_state(State.WAITING),
            table.c.sent_digest != runs.c.digest,
        )
    )
    return [
        Rekeyed(*row)
        for *row, now_blob, sent_blob in connection.execute(query)
        if _key(decode(now_blob)) != _key(decode(sent_blob))
    ]


def is_rekeyed(connection: Connection, records: str, run: StoredRun, sent_digest: bytes | None) -> bool:
    """Whether a run has another key than the version with this digest, which the service has, or may have."""
    if records not in JOB_RECORD_KINDS or sent_digest is None or sent_digest == run.digest:
        return False
    first = version_of(connection, run.run_id, sent_digest)
    return first is not None and _key(first) != _key(run.job)


def sent_otherwise(connection: Connection, target_id: int) -> dict[int, Job]:
    """By run id: the versions that the service has, or may have, of runs that have another key now.

    In whatever state their deliveries are: also waived, or no longer wanted. Goes through the earlier versions, and
    looks up the delivery of each by its key: the other way round it would go through all deliveries of the target.
    """
    sent_digest = (
        select(table.c.sent_digest)
        .where(table.c.target_id == target_id, table.c.run_id == versions.c.run_id)
        .scalar_subquery()
    )
    now_digest = select(runs.c.digest).where(runs.c.id == versions.c.run_id).scalar_subquery()
    now_blob = select(runs.c.job).where(runs.c.id == versions.c.run_id).scalar_subquery()
    query = select(versions.c.run_id, versions.c.job, now_blob).where(
        versions.c.digest == sent_digest, versions.c.digest != now_digest
    )
    found = ((run_id, decode(first), decode(now)) for run_id, first, now in connection.execute(query))
    return {run_id: first for run_id, first, now in found if _key(first) != _key(now)}


def forget_first(connection: Connection, target_id: int, run_ids: Sequence[int]) -> None:
    """Somebody says that the service no longer has the first versions of those of these runs that are held that way."""
    query = select(table.c.run_id).where(
        table.c.target_id == target_id, table.c.run_id.in_(run_ids), table.c.reason == REASON
    )
    sent.forget(connection, target_id, list(connection.execute(query).scalars()))


def _key(job: Job) -> tuple[str | None, int | None]:
    return job.local_id, job.end
