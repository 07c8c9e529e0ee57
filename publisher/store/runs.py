"""Runs: what was read, once for each record id, with its digest and the time this version was first stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam, insert, or_, select, update

from formats.identity import index_key, record_key
from formats.job import Job
from publisher.encoded_run import EncodedRun, class_key
from publisher.grid_identity import TOLD
from publisher.store import dialect
from publisher.store.classes import AWAITED, GRID_LOG, JOINED, Interner, awaits_grid_log, decode
from publisher.store.schema import classes, runs, sources, versions

_COLUMNS: Final = dialect.column_names(runs.c)
_insert_runs: Final = dialect.Bulk(insert(runs), _COLUMNS)
_CHANGED: Final = tuple(name for name in _COLUMNS if name not in {"id", "record_id"})
_update_runs: Final = dialect.Bulk(
    update(runs).where(runs.c.id == bindparam("run")).values({name: bindparam(name) for name in _CHANGED}),
    (*_CHANGED, "run"),
)
_update_jobs: Final = dialect.Bulk(
    update(runs).where(runs.c.id == bindparam("run")).values(job=bindparam("job")), ("job", "run")
)
_update_marks: Final = dialect.Bulk(
    update(runs).where(runs.c.id == bindparam("run")).values(mark=bindparam("mark")), ("mark", "run")
)
_known_runs: Final = dialect.Lookup(
    (runs.c.record_id, runs.c.id, runs.c.digest, runs.c.finished, runs.c.mark), runs.c.record_id
)
_known_marks: Final = dialect.Lookup(
    (runs.c.record_id, runs.c.mark, runs.c.end_time, runs.c.finished), runs.c.record_id
)
_by_local_id_and_end: Final = dialect.Lookup(
    (runs.c.id, runs.c.local_id, runs.c.end_time), runs.c.local_id, runs.c.end_time
)
_MOST_REMEMBERED: Final = 20_000
_versions: Final = dialect.Lookup((runs.c.id, runs.c.digest), runs.c.id)
_insert_versions: Final = dialect.Bulk(insert(versions), dialect.column_names(versions.c))


class UpsertedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that was put into the store, or changed there. `fresh`: it was not known as finished before.

    `before`: the digest of the version that it had until now, where that was finished.
    """

    run_id: int
    class_id: int
    end_time: int | None
    finished: bool
    fresh: bool
    before: bytes | None = None


class Upserted(msgspec.Struct, frozen=True):
    """What became of a page of runs: those now new or changed, and counts for `collect --json`."""

    put: list[UpsertedRun]
    new: int
    changed: int
    unchanged: int
    running: int


class StoredRun(msgspec.Struct, frozen=True):
    """A run as stored: `stored_at` is when this version was first stored, and so the record's createTime.

    `job` is what was read, with what the grid log of its source told of it; `awaits_grid_log`: it told nothing yet.
    """

    run_id: int
    source: str
    record_id: str
    digest: bytes
    stored_at: int
    job: Job
    awaits_grid_log: bool = False


def upsert(connection: Connection, interner: Interner, found: Sequence[EncodedRun], now: int) -> Upserted:
    """Put runs into the store: new ones, new versions of changed ones; unchanged ones cost a look-up.

    The last of several with the same record id counts, a finished one before one that is not. An earlier version of a
    finished run is kept (`versions`). Core numbers, which are in no digest, are put beside an unchanged run that was
    read by a program that did not know them; and so is its mark, where it has none or another one.
    """
    by_id = _last_of_each(found)
    known = _known(connection, list(by_id))
    new: list[EncodedRun] = []
    changed: list[tuple[EncodedRun, _Known]] = []
    named: dict[int, bytes] = {}
    marked: list[tuple[bytes, int]] = []
    unchanged = running = 0
    for record_id, run in by_id.items():
        before = known.get(record_id)
        if before is None:
            new.append(run)
        elif before.digest != run.digest and (run.finished or not before.finished):
            changed.append((run, before))
        elif run.finished:
            unchanged += 1
            if run.mark is not None and before.mark != run.mark:
                marked.append((run.mark, before.run_id))
        else:
            running += 1
        if run.names_cores and before is not None and before.digest == run.digest:
            named[before.run_id] = run.stored
    put = _insert_new(connection, interner, new, now) if new else []
    if changed:
        put += _change(connection, interner, changed, now)
    if named:
        _name_cores(connection, named)
    _update_marks.run(connection, marked)
    finished_new = sum(item.fresh for item in put)
    running += sum(not item.finished for item in put)
    return Upserted(
        put=put,
        new=finished_new,
        changed=sum(item.finished and not item.fresh for item in put),
        unchanged=unchanged + len(found) - len(by_id),
        running=running,
    )


def _last_of_each(found: Sequence[EncodedRun]) -> dict[str, EncodedRun]:
    by_id = {run.record_id: run for run in found}
    if len(by_id) < len(found):
        by_id |= {run.record_id: run for run in found if run.finished}
    return by_id


class _Known(msgspec.Struct, frozen=True, gc=False):
    run_id: int
    digest: bytes
    finished: bool
    mark: bytes | None


def _known(connection: Connection, record_ids: list[str]) -> dict[str, _Known]:
    return {
        record_id: _Known(run_id, bytes(digest), bool(finished), None if mark is None else bytes(mark))
        for record_id, run_id, digest, finished, mark in _known_runs.rows(connection, record_ids)
    }


def marks_of(connection: Connection, record_ids: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """Of these runs, by record id: the marks of those that are finished and have one, and when they ended."""
    return {
        record_id: (bytes(mark), end)
        for record_id, mark, end, finished in _known_marks.rows(connection, record_ids)
        if finished and mark is not None and end is not None
    }


def _insert_new(connection: Connection, interner: Interner, new: list[EncodedRun], now: int) -> list[UpsertedRun]:
    class_ids = interner.ids_of_sealed(connection, new)
    run_ids = dialect.allocate_run_ids(connection, runs, len(new))
    rows = [
        (
            run_id,
            run.record_id,
            class_id,
            int(run.finished),
            run.end,
            run.wall_ms,
            run.cpu_ms,
            run.local_id,
            run.global_id,
            run.digest,
            now,
            run.stored,
            run.untold,
            run.mark,
        )
        for run, class_id, run_id in zip(new, class_ids, run_ids, strict=True)
    ]
    _insert_runs.run(connection, rows)
    return [
        UpsertedRun(run_id, class_id, run.end, run.finished, run.finished)
        for run, class_id, run_id in zip(new, class_ids, run_ids, strict=True)
    ]


def _change(
    connection: Connection, interner: Interner, changed: list[tuple[EncodedRun, _Known]], now: int
) -> list[UpsertedRun]:
    _keep_versions(connection, [before.run_id for _, before in changed if before.finished])
    class_ids = interner.ids_of_sealed(connection, [run for run, _ in changed])
    rows = []
    put = []
    for (run, before), class_id in zip(changed, class_ids, strict=True):
        told = (run.wall_ms, run.cpu_ms, run.local_id, run.global_id)
        facts = (run.digest, now, run.stored, run.untold, run.mark)
        rows.append((class_id, int(run.finished), run.end, *told, *facts, before.run_id))
        put.append(
            UpsertedRun(
                before.run_id,
                class_id,
                run.end,
                run.finished,
                fresh=run.finished and not before.finished,
                before=before.digest if before.finished else None,
            )
        )
    _update_runs.run(connection, rows)
    return put


def _name_cores(connection: Connection, named: dict[int, bytes]) -> None:
    """Store these jobs, which are those that are stored but for their core numbers, where these are missing."""
    run_ids = list(named)
    rows = []
    for start in range(0, len(run_ids), 1000):
        query = select(runs.c.id, runs.c.job).where(runs.c.id.in_(run_ids[start : start + 1000]))
        rows += [
            (named[run_id], run_id) for run_id, stored in connection.execute(query) if bytes(stored) != named[run_id]
        ]
    _update_jobs.run(connection, rows)


def _keep_versions(connection: Connection, run_ids: list[int]) -> None:
    kept = []
    for run_id in run_ids:
        row = connection.execute(select(runs.c.digest, runs.c.stored_at, runs.c.job).where(runs.c.id == run_id)).one()
        known = select(versions.c.run_id).where(versions.c.run_id == run_id, versions.c.digest == row.digest)
        if connection.execute(known).first() is None:
            kept.append((run_id, row.digest, row.stored_at, row.job))
    _insert_versions.run(connection, kept)


RUN_COLUMNS: Final = (
    runs.c.id,
    sources.c.name,
    runs.c.record_id,
    runs.c.digest,
    runs.c.stored_at,
    runs.c.job,
    classes.c.facts,
)
"""What `stored_run` needs, selected from runs joined with classes and sources."""


def stored_run(row: Sequence[Any]) -> StoredRun:
    """A run from the columns `RUN_COLUMNS`. Raises `StoreNewerError` for a run that a later program stored."""
    run_id, source, record_id, mark, stored_at, blob, facts = row
    job, told = decode(blob), _told(facts)
    if told is None:
        return StoredRun(run_id, source, record_id, bytes(mark), stored_at, job)
    if told.changes:
        job = msgspec.structs.replace(job, **told.changes)
    return StoredRun(run_id, source, record_id, bytes(mark), stored_at, job, awaits_grid_log=told.awaited)


def is_of_class(job: Job, facts: bytes) -> bool:
    """Whether a run as read is of the class with these facts, so that what is decided for the class is right for it."""
    key, told = _class_of(facts)
    if told is None:
        return class_key(job) == key
    return class_key(msgspec.structs.replace(job, **told.changes), AWAITED if told.awaited else JOINED) == key


@lru_cache(maxsize=5_000)
def _class_of(stored: bytes) -> tuple[bytes, _Told | None]:
    facts = decode(stored)
    mark = facts.extras.get(GRID_LOG)
    return class_key(facts, None if mark is None else str(mark)), _told(stored)


class _Told(msgspec.Struct, frozen=True):
    """What the grid log told of the runs of a class: kept with the class, beside the facts as read."""

    changes: dict[str, Any]
    awaited: bool


_nothing_told: Final[set[int]] = set()
"""Hashes of facts that can be read and of which no grid log told anything, as most: facts take ten times as much."""


def _told(stored: bytes) -> _Told | None:
    known = hash(stored)
    if known in _nothing_told:
        return None
    if GRID_LOG not in decode(stored).extras:
        if len(_nothing_told) >= _MOST_REMEMBERED:
            _nothing_told.clear()
        _nothing_told.add(known)
        return None
    return _told_by(stored)


@lru_cache(maxsize=5_000)
def _told_by(stored: bytes) -> _Told | None:
    facts = decode(stored)
    if awaits_grid_log(facts):
        return _Told({}, awaited=True)
    if facts.extras.get(GRID_LOG) != JOINED:
        return None
    return _Told({name: getattr(facts, name) for name in TOLD}, awaited=False)


def find(connection: Connection, name: str, limit: int = 100) -> list[StoredRun]:
    """Runs by record id, local id or global id; the runs of a requeued job share the latter two."""
    key = index_key(name)
    joined = runs.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)
    query = (
        select(*RUN_COLUMNS)
        .select_from(joined)
        .where(or_(runs.c.record_id == record_key(name), runs.c.local_id == key, runs.c.global_id == key))
        .order_by(runs.c.id)
        .limit(limit)
    )
    return [stored_run(row) for row in connection.execute(query)]


def named(connection: Connection, keys: Sequence[tuple[str, int]]) -> list[tuple[Any, ...]]:
    """Run id, local id, and end of the runs that have one of these local ids, spelt as here, and ended just then."""
    return _by_local_id_and_end.rows(connection, keys)


def by_ids(connection: Connection, run_ids: Sequence[int]) -> list[StoredRun]:
    """These runs."""
    found: list[StoredRun] = []
    for start in range(0, len(run_ids), 1000):
        joined = runs.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)
        query = select(*RUN_COLUMNS).select_from(joined).where(runs.c.id.in_(run_ids[start : start + 1000]))
        found += [stored_run(row) for row in connection.execute(query)]
    return found


def record_ids(connection: Connection, run_ids: Sequence[int]) -> Iterator[str]:
    """The record ids of these runs."""
    for start in range(0, len(run_ids), 1000):
        query = select(runs.c.record_id).where(runs.c.id.in_(run_ids[start : start + 1000])).order_by(runs.c.id)
        yield from connection.execute(query).scalars()


def digests_of(connection: Connection, run_ids: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """The present versions of these runs, as far as they are there."""
    return ((run_id, bytes(digest)) for run_id, digest in _versions.rows(connection, run_ids))


def version_of(connection: Connection, run_id: int, mark: bytes) -> Job | None:
    """An earlier (or the present) version of a run by its digest; None where it was not kept."""
    query = (
        select(runs.c.job)
        .where(runs.c.id == run_id, runs.c.digest == mark)
        .union_all(select(versions.c.job).where(versions.c.run_id == run_id, versions.c.digest == mark))
    )
    blob = connection.execute(query).scalars().first()
    return decode(blob) if blob is not None else None
