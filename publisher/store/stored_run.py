"""A run as stored, read back and verified: what is made of it is what was read, or it is damaged."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, select

from formats.job import Job
from publisher.encoded_run import OWN, class_key, class_needs_local_user, encode_run, local_user_of
from publisher.errors import StoreCorruptError, StoreError
from publisher.grid_identity import IDENTITY_FIELDS
from publisher.store import class_users, paging
from publisher.store.classes import AWAITED, GRID_LOG, JOINED, awaits_grid_log, decode, decode_facts
from publisher.store.row_checks import row_check, sums_check
from publisher.store.schema import classes, runs, sources

_MOST_REMEMBERED: Final = 20_000


class StoredRun(msgspec.Struct, frozen=True, gc=False):
    """A run as stored. `stored_at`: when this version was first stored, which is the record's createTime.

    `job`: what was read, with the values of the source's grid log; `awaits_grid_log`: the log has no entry yet.
    `damage`: why it is not what was stored; None: it is. Then `job` has no facts, and nothing may be made of it.
    """

    run_id: int
    source: str
    record_id: str
    digest: bytes
    stored_at: int
    job: Job
    awaits_grid_log: bool = False
    damage: str | None = None


RUN_COLUMNS: Final = (
    runs.c.id,
    sources.c.name,
    runs.c.record_id,
    runs.c.digest,
    runs.c.stored_at,
    runs.c.job,
    classes.c.facts,
    runs.c.class_id,
    runs.c.finished,
    runs.c.row_check,
)
"""What `stored_run` needs, selected from runs joined with classes and sources."""


def stored_run(row: Sequence[Any]) -> StoredRun:
    """A run from the columns `RUN_COLUMNS`. Raises `StoreNewerError` for a run that a later program stored, and
    `StoreCorruptError` for a damaged one."""
    job = verified(row)
    run_id, source, record_id, digest, stored_at, _blob, facts, *_ = row
    joined = _grid_facts(facts)
    if joined is None:
        return StoredRun(run_id, source, record_id, bytes(digest), stored_at, job)
    if joined.values:
        job = msgspec.structs.replace(job, **joined.values)
    return StoredRun(run_id, source, record_id, bytes(digest), stored_at, job, awaits_grid_log=joined.awaited)


def run_or_damage(row: Sequence[Any]) -> StoredRun:
    """The same; a damaged run has its `damage` instead of its facts, so that only this run is held. Raises
    `StoreNewerError`."""
    try:
        return stored_run(row)
    except StoreCorruptError as error:
        run_id, source, record_id = row[0], str(row[1]), str(row[2])
        nothing = Job(record_id=record_id, system="", status="lost")
        return StoredRun(run_id, source, record_id, b"", 0, nothing, damage=error.message)


def verified(row: Sequence[Any]) -> Job:
    """The facts of a run as they were read, if all that is made of its columns `RUN_COLUMNS` is what was stored.

    Raises as `stored_run`.
    """
    run_id, source, record_id, digest, stored_at, blob, facts, class_id, finished, check, *_ = row
    try:
        job = decode(blob, facts, record_id, bytes(digest))
        if (
            row_check(run_id, class_id, stored_at, finished) == check
            and job.record_id == record_id
            and source is not None
            and (blob[0] == OWN or is_of_class(job, facts))  # the digest of the others covers the class
        ):
            return job
    except TypeError as error:  # in a damaged SQLite store a value may be of any type
        raise StoreCorruptError(f"the store is damaged: a column of job {record_id} has another type") from error
    raise StoreCorruptError(f"the store is damaged: the columns of job {record_id} are not those of its record")


def is_of_class(job: Job, facts: bytes) -> bool:
    """Whether a run as read belongs to the class with these facts, so that decisions for the class apply to it."""
    key, joined = _class_of(facts)
    if joined is None:
        return class_key(job) == key
    return class_key(msgspec.structs.replace(job, **joined.values), AWAITED if joined.awaited else JOINED) == key


@lru_cache(maxsize=5_000)
def _class_of(stored: bytes) -> tuple[bytes, _GridFacts | None]:
    facts = decode_facts(stored)
    mark = facts.extras.get(GRID_LOG)
    return class_key(facts, None if mark is None else str(mark)), _grid_facts(stored)


class _GridFacts(msgspec.Struct, frozen=True):
    """The values that the grid log has for the runs of a class: kept with the class, next to the facts as read."""

    values: dict[str, Any]
    awaited: bool


_without_grid_facts: Final[set[int]] = set()
"""Hashes of facts that can be decoded and have no values of a grid log. The facts would take ten times as much."""


def _grid_facts(stored: bytes) -> _GridFacts | None:
    known = hash(stored)
    if known in _without_grid_facts:
        return None
    if GRID_LOG not in decode_facts(stored).extras:
        if len(_without_grid_facts) >= _MOST_REMEMBERED:
            _without_grid_facts.clear()
        _without_grid_facts.add(known)
        return None
    return _decoded_grid_facts(stored)


@lru_cache(maxsize=5_000)
def _decoded_grid_facts(stored: bytes) -> _GridFacts | None:
    facts = decode_facts(stored)
    if awaits_grid_log(facts):
        return _GridFacts({}, awaited=True)
    if facts.extras.get(GRID_LOG) != JOINED:
        return None
    return _GridFacts({name: getattr(facts, name) for name in IDENTITY_FIELDS}, awaited=False)


_DERIVED: Final = (
    runs.c.end_time,
    runs.c.wall_ms,
    runs.c.cpu_ms,
    runs.c.incomplete_usage,
    runs.c.record_key,
    runs.c.local_id,
    runs.c.global_key,
    runs.c.sums_check,
)
ALL_COLUMNS: Final = (*RUN_COLUMNS, *_DERIVED)
"""What `damaged` needs, selected from runs and, by outer joins, classes and sources."""
WITH_CLASSES: Final = runs.outerjoin(classes, runs.c.class_id == classes.c.id).outerjoin(
    sources, classes.c.source_id == sources.c.id
)


_CLASS_ID: Final = 7


def damaged(connection: Connection, rows: Iterable[Sequence[Any]]) -> Iterator[tuple[int, str]]:
    """The damaged ones of some runs, by their ids, each with what is wrong. All columns of their rows are looked at
    (`ALL_COLUMNS`)."""
    for page in paging.chunks(rows):
        users = class_users.digests_of(connection, {row[_CLASS_ID] for row in page})
        for row in page:
            wrong = _damage_of(row, users)
            if wrong is not None:
                yield row[0], wrong


def _damage_of(row: Sequence[Any], users: Collection[bytes]) -> str | None:
    """`users`: the digests of the local users of its class."""
    run_id, _source, record_id, _digest, _stored_at, _blob, facts, class_id, finished, _check, *derived = row
    try:
        job = verified(row)
    except StoreError as error:
        return error.message
    run = encode_run(job, classed=False)
    sums = (run.end, run.wall_ms, run.cpu_ms, run.incomplete_usage)
    right = [*sums, run.key, run.local_id, run.global_key, sums_check(run_id, class_id, *sums)]
    if derived != right or run.finished != finished:
        return f"job {record_id}: its columns are not those of its record"
    if _lacks_user(facts) and class_users.digest_of(class_id, local_user_of(job)) not in users:
        return f"job {record_id}: its local user is missing among those of its class"
    return None


@lru_cache(maxsize=5_000)
def _lacks_user(facts: bytes) -> bool:
    return not class_needs_local_user(decode_facts(facts))


def damage_among(connection: Connection, run_ids: Sequence[int]) -> Iterator[int]:
    """Those of these runs that are damaged, by their ids."""
    query = select(*ALL_COLUMNS).select_from(WITH_CLASSES)
    rows = paging.rows_in(connection, query, runs.c.id, run_ids)
    return (run_id for run_id, _ in damaged(connection, rows))
