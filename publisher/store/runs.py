"""Runs as read, stored once for each record id, with the digest and the time when this version was first stored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Integer, bindparam, func, select, update

from formats.identity import index_key, record_key
from formats.job import Job
from publisher.encoded_run import EncodedRun, encode_whole, global_key, run_key
from publisher.job_ids import JobPattern, ids_of, spellings
from publisher.store import changes, dialect, paging, prepared, row_checks
from publisher.store.classes import Interner, decode
from publisher.store.schema import classes, runs, sources, versions
from publisher.store.stored_run import RUN_COLUMNS, StoredRun, damage_among, stored_run
from publisher.text import utf8

_COLUMNS: Final = dialect.column_names(runs.c)
_insert_runs: Final = prepared.BulkInsert(runs, _COLUMNS)
_update_runs: Final = prepared.Bulk(
    update(runs).where(runs.c.id == bindparam("run")).values({name: bindparam(name) for name in _COLUMNS}),
    (*_COLUMNS, "run"),
)
_update_records: Final = prepared.Bulk(
    update(runs).where(runs.c.id == bindparam("run")).values(job=bindparam("job")), ("job", "run")
)
_update_classes: Final = prepared.Bulk(
    update(runs)
    .where(runs.c.id == bindparam("run"))
    .values(
        class_id=bindparam("class_id"),
        job=bindparam("job"),
        **row_checks.of_class(bindparam("class_id", type_=Integer)),
    ),
    ("class_id", "job", "run"),
)
_update_marks: Final = prepared.Bulk(
    update(runs).where(runs.c.id == bindparam("run")).values(mark=bindparam("mark")), ("mark", "run")
)
_known_runs: Final = prepared.Lookup(
    (runs.c.record_key, runs.c.id, runs.c.digest, runs.c.finished, runs.c.mark), runs.c.record_key
)
_known_marks: Final = prepared.Lookup(
    (runs.c.id, runs.c.record_id, runs.c.mark, runs.c.end_time, runs.c.finished), runs.c.record_key
)
_VERSION: Final = (runs.c.record_id, runs.c.id, runs.c.digest, runs.c.finished, runs.c.mark)
_by_end: Final = prepared.Lookup(_VERSION, runs.c.end_time)
_by_name: Final = prepared.Lookup(_VERSION, runs.c.local_id, runs.c.end_time)
_LAST_END: Final = select(func.max(runs.c.end_time))
_by_local_id_and_end: Final = prepared.Lookup(
    (runs.c.id, runs.c.local_id, runs.c.end_time), runs.c.local_id, runs.c.end_time
)
_with_facts: Final = select(
    runs.c.id, runs.c.record_id, runs.c.digest, runs.c.stored_at, runs.c.job, classes.c.facts
).select_from(runs.join(classes, runs.c.class_id == classes.c.id))
_LAST: Final = "\U0010ffff"
"""Sorts after every text with the same beginning, in byte order."""
_MOST_REMEMBERED: Final = 20_000


class UpsertedRun(msgspec.Struct, frozen=True, gc=False):
    """A run that was inserted or changed. `fresh`: it was not stored as finished before.

    `before`: the digest of the version stored until now, if that was finished. `restored`: the digest of the run, if
    what was stored of it was damaged. `encoded`: the run, if it was just read.
    """

    run_id: int
    class_id: int
    end_time: int | None
    finished: bool
    fresh: bool
    before: bytes | None = None
    restored: bytes | None = None
    encoded: EncodedRun | None = None


class Upserted(msgspec.Struct, frozen=True):
    """The result of storing a page of runs: new and changed ones, and the counts of `collect --json`."""

    put: list[UpsertedRun]
    new: int
    changed: int
    unchanged: int
    running: int


def upsert(
    connection: Connection, interner: Interner, found: Sequence[EncodedRun], now: int, *, verified: bool = False
) -> Upserted:
    """Store runs: new ones, new versions of changed ones; an unchanged one costs a look-up.

    Of several with the same record id the last one counts, and a finished one before an unfinished one. An earlier
    version of a finished run is kept (`versions`). Core numbers, which are in no digest, are added to an unchanged run
    that was read by a program without them; and so is its mark, if it has none or another one.

    `verified`: unchanged runs that are damaged in the store are replaced. Those whose key is damaged always are.
    """
    by_key = _last_of_each(found)
    known = _known(connection, list(by_key))
    under_other_keys = _known_under_other_keys(connection, [run for key, run in by_key.items() if key not in known])
    known |= under_other_keys
    new: list[EncodedRun] = []
    changed: list[tuple[EncodedRun, _StoredVersion]] = []
    same: list[tuple[EncodedRun, _StoredVersion]] = []
    with_cores: dict[int, EncodedRun] = {}
    marked: list[tuple[bytes, int]] = []
    unchanged = running = 0
    for key, run in by_key.items():
        before = known.get(key)
        if before is None:
            new.append(run)
        elif before.digest != run.digest and (run.finished or not before.finished):
            changed.append((run, before))
        elif run.finished:
            unchanged += 1
            same.append((run, before))
            if run.mark is not None and before.mark != run.mark:
                marked.append((run.mark, before.run_id))
        else:
            running += 1
        if run.has_core_numbers and before is not None and before.digest == run.digest:
            with_cores[before.run_id] = run
    put = _insert_new(connection, interner, new, now) if new else []
    doubtful = [*changed, *(each for each in same if verified or each[0].key in under_other_keys)]
    damaged = frozenset(damage_among(connection, [before.run_id for _, before in doubtful if before.finished]))
    if damaged:
        put += _restore(connection, interner, [each for each in doubtful if each[1].run_id in damaged], now)
        changed = [changed_run for changed_run in changed if changed_run[1].run_id not in damaged]
    if changed:
        put += _change(connection, interner, changed, now)
    with_cores = {run_id: run for run_id, run in with_cores.items() if run_id not in damaged}
    if with_cores:
        _set_core_numbers(connection, with_cores)
    _update_marks.run(connection, marked)
    finished_new = sum(item.fresh for item in put)
    running += sum(not item.finished for item in put)
    return Upserted(
        put=put,
        new=finished_new,
        changed=sum(item.finished and not item.fresh and item.restored is None for item in put),
        unchanged=unchanged + len(found) - len(by_key),
        running=running,
    )


def _last_of_each(found: Sequence[EncodedRun]) -> dict[bytes, EncodedRun]:
    by_key = {run.key: run for run in found}
    if len(by_key) < len(found):
        by_key |= {run.key: run for run in found if run.finished}
    return by_key


class _StoredVersion(msgspec.Struct, frozen=True, gc=False):
    run_id: int
    digest: bytes
    finished: bool
    mark: bytes | None


def _known(connection: Connection, keys: list[bytes]) -> dict[bytes, _StoredVersion]:
    return {
        bytes(key): _StoredVersion(run_id, _binary(digest) or b"", bool(finished), _binary(mark))
        for key, run_id, digest, finished, mark in _known_runs.rows(connection, keys)
    }


def _binary(value: Any) -> bytes | None:
    """A binary value; in a damaged SQLite store it may be of any type, and is none."""
    return bytes(value) if isinstance(value, bytes | memoryview) else None


def _known_under_other_keys(connection: Connection, found: Sequence[EncodedRun]) -> dict[bytes, _StoredVersion]:
    """Those of these runs that are stored with a damaged key. Taken for new ones, they would be sent twice.

    There is no index of record ids: they are found by their local ids and ends, or by their ends if they have none.
    Most new runs ended after all that are stored.
    """
    last_end = connection.execute(_LAST_END).scalar() if found else None
    if last_end is None:
        return {}
    is_number = isinstance(last_end, int)  # damaged in SQLite, it may be a text, greater than all numbers
    among = [run for run in found if run.end is not None and (not is_number or run.end <= last_end)]
    missing = {run.record_id: run.key for run in among}
    named = sorted({(run.local_id, run.end) for run in among if run.local_id is not None})
    ends = sorted({run.end for run in among if run.end is not None and run.local_id is None})
    return {
        missing[record_id]: _StoredVersion(run_id, _binary(digest) or b"", bool(finished), _binary(mark))
        for lookup, keys in ((_by_name, named), (_by_end, ends))
        for record_id, run_id, digest, finished, mark in lookup.rows(connection, keys)
        if record_id in missing
    }


def marks_of(connection: Connection, record_ids: Sequence[str]) -> dict[str, tuple[bytes, int]]:
    """The marks of those of these runs (by record id) that are finished and have one, and when they ended.

    Damaged runs are left out: what is recognised is not read, and they would never be replaced.
    """
    marked = {
        run_id: (record_id, mark, end)
        for run_id, record_id, stored, end, finished in _known_marks.rows(connection, [*map(run_key, record_ids)])
        if finished and (mark := _binary(stored)) is not None and end is not None
    }
    for run_id in list(damage_among(connection, list(marked))):
        del marked[run_id]
    return {record_id: (mark, end) for record_id, mark, end in marked.values()}


def _insert_new(connection: Connection, interner: Interner, new: list[EncodedRun], now: int) -> list[UpsertedRun]:
    new, class_ids = interner.classed(connection, new)
    run_ids = dialect.allocate_run_ids(connection, runs, len(new))
    inserted = list(zip(new, class_ids, run_ids, strict=True))
    insert_runs(connection, [row_of(run, class_id, run_id, now) for run, class_id, run_id in inserted])
    return [
        UpsertedRun(run_id, class_id, run.end, run.finished, run.finished, encoded=run)
        for run, class_id, run_id in inserted
    ]


def _change(
    connection: Connection, interner: Interner, changed: list[tuple[EncodedRun, _StoredVersion]], now: int
) -> list[UpsertedRun]:
    _keep_versions(connection, [before.run_id for _, before in changed if before.finished])
    return _replace(connection, interner, changed, now)


def _replace(
    connection: Connection, interner: Interner, changed: list[tuple[EncodedRun, _StoredVersion]], now: int
) -> list[UpsertedRun]:
    classed, class_ids = interner.classed(connection, [run for run, _ in changed])
    run_ids = [before.run_id for _, before in changed]
    rows = [row_of(*each, now) for each in zip(classed, class_ids, run_ids, strict=True)]
    _update_runs.run(connection, [(*row, row[0]) for row in rows])
    changes.note_runs(connection, run_ids)
    return [
        UpsertedRun(
            before.run_id,
            class_id,
            run.end,
            run.finished,
            fresh=run.finished and not before.finished,
            before=before.digest if before.finished else None,
            encoded=run,
        )
        for (run, before), class_id in zip(changed, class_ids, strict=True)
    ]


def _restore(
    connection: Connection, interner: Interner, damaged: list[tuple[EncodedRun, _StoredVersion]], now: int
) -> list[UpsertedRun]:
    """Replace what is damaged: no version of it is kept."""
    put = _replace(connection, interner, damaged, now)
    digests = {before.run_id: run.digest for run, before in damaged}
    return [msgspec.structs.replace(item, restored=digests[item.run_id]) for item in put]


def insert_runs(connection: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert new runs: rows as `row_of` makes them."""
    _insert_runs.run(connection, rows)
    changes.note_runs(connection, [row[0] for row in rows])


def row_of(run: EncodedRun, class_id: int, run_id: int, stored_at: int) -> tuple[Any, ...]:
    """The row of a run: the columns of the table in their order."""
    return (
        run_id,
        run.end,
        run.wall_ms,
        run.cpu_ms,
        stored_at,
        class_id,
        row_checks.sums_check(run_id, class_id, run.end, run.wall_ms, run.cpu_ms, run.incomplete_usage),
        int(run.finished),
        run.incomplete_usage,
        row_checks.row_check(run_id, class_id, stored_at, run.finished),
        run.key,
        run.digest,
        run.mark,
        run.record_id,
        run.local_id,
        run.global_key,
        run.stored,
    )


def _set_core_numbers(connection: Connection, found: dict[int, EncodedRun]) -> None:
    """Store the core numbers of these runs if they are missing or differ."""
    rows = []
    for run_id, record_id, _digest, _stored_at, blob, facts in _rows_with_facts(connection, list(found)):
        stored, core_numbers = decode(blob, facts, record_id), found[run_id].job().core_numbers
        if stored.core_numbers != core_numbers:
            rows.append((encode_whole(msgspec.structs.replace(stored, core_numbers=core_numbers)), run_id))
    _update_records.run(connection, rows)
    changes.note_runs(connection, [run_id for _, run_id in rows])


def _keep_versions(connection: Connection, run_ids: list[int]) -> None:
    rows = [
        {"run_id": run_id, "digest": digest, "stored_at": at, "job": encode_whole(decode(blob, facts, record_id))}
        for run_id, record_id, digest, at, blob, facts in _rows_with_facts(connection, run_ids)
    ]
    dialect.insert_missing(connection, versions, rows)


def _rows_with_facts(connection: Connection, run_ids: Iterable[int]) -> Iterator[Sequence[Any]]:
    """Id, record id, digest, time of storing, record, and the facts of the class of these runs."""
    return paging.rows_in(connection, _with_facts, runs.c.id, run_ids)


def set_classes(connection: Connection, class_ids: Mapping[int, int]) -> None:
    """Give runs the class that their grid log decides: their records keep what was read."""
    rows = [
        (class_ids[run_id], encode_whole(decode(blob, facts, record_id)), run_id)
        for run_id, record_id, _digest, _stored_at, blob, facts in _rows_with_facts(connection, list(class_ids))
    ]
    _update_classes.run(connection, rows)
    changes.note_runs(connection, class_ids)


_joined: Final = runs.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)


def find(connection: Connection, name: str) -> Iterator[StoredRun]:
    """Runs with this record id, and those that a text refers to (`publisher.job_ids`), in order of storing.

    The runs of a requeued job share all but the record id; the tasks of an array share the beginning of their local
    ids.
    """
    name = utf8(name)  # an argument may have any bytes, which no database looks for
    spelt, asked = spellings(name), JobPattern(name)
    called = (
        runs.c.record_key == run_key(record_key(name)),
        runs.c.local_id.in_(sorted(map(index_key, spelt.whole))),
        runs.c.global_key.in_(sorted(map(global_key, spelt.others))),
        *(
            (runs.c.local_id >= beginning) & (runs.c.local_id < beginning + _LAST)
            for beginning in sorted(spelt.beginnings)
        ),
    )
    run_ids = {run_id for one in called for run_id in connection.execute(select(runs.c.id).where(one)).scalars()}
    for run in in_order(connection, sorted(run_ids)):
        if record_key(name) == run.record_id or asked(ids_of(run.job)) or _has_key(run.job, name):
            yield run


def _has_key(job: Job, name: str) -> bool:
    """Whether the text refers to a local id longer than an index entry."""
    return job.local_id is not None and index_key(job.local_id) == index_key(name)


def named(connection: Connection, keys: Sequence[tuple[str, int]]) -> list[tuple[Any, ...]]:
    """Run id, local id, and end of the runs that have one of these local ids, in this spelling, and exactly this
    end."""
    return _by_local_id_and_end.rows(connection, keys)


def ended_at(connection: Connection, ends: Iterable[int]) -> list[int]:
    """The ids of the runs with one of these ends."""
    return [row[0] for row in paging.rows_in(connection, select(runs.c.id), runs.c.end_time, ends)]


def by_ids(
    connection: Connection, run_ids: Sequence[int], make: Callable[[Sequence[Any]], StoredRun] = stored_run
) -> list[StoredRun]:
    """The runs with these ids. `make`: `run_or_damage`, where a damaged one must not stop the others."""
    query = select(*RUN_COLUMNS).select_from(_joined)
    return [make(row) for row in paging.rows_in(connection, query, runs.c.id, run_ids)]


def in_order(connection: Connection, run_ids: Iterable[int]) -> Iterator[StoredRun]:
    """The runs with these ids in this order, without those that are not stored."""
    for page in paging.chunks(run_ids):
        by_id = {run.run_id: run for run in by_ids(connection, page)}
        yield from (by_id[run_id] for run_id in page if run_id in by_id)


def record_ids(connection: Connection, run_ids: Sequence[int]) -> Iterator[str]:
    """The record ids of these runs."""
    query = select(runs.c.record_id).order_by(runs.c.id)
    return (row[0] for row in paging.rows_in(connection, query, runs.c.id, run_ids))


def earlier_versions(connection: Connection, run_ids: Sequence[int]) -> list[tuple[int, Job]]:
    """The earlier versions of these runs that were kept: (run id, facts)."""
    query = select(versions.c.run_id, versions.c.job)
    rows = paging.rows_in(connection, query, versions.c.run_id, run_ids)
    return [(run_id, decode(blob, b"", f"number {run_id}, an earlier version")) for run_id, blob in rows]


def version_of(connection: Connection, run_id: int, digest: bytes) -> Job | None:
    """An earlier (or the present) version of a run by its digest; None if it was not kept."""
    query = select(versions.c.job).where(versions.c.run_id == run_id, versions.c.digest == digest)
    blob = connection.execute(query).scalar_one_or_none()
    if blob is not None:
        return decode(blob, b"", f"number {run_id}, an earlier version")
    present = (row for row in _rows_with_facts(connection, [run_id]) if bytes(row[2]) == digest)
    return next((decode(blob, facts, record_id) for _, record_id, _, _, blob, facts in present), None)


def as_changed(connection: Connection, run_ids: Iterable[int]) -> list[UpsertedRun]:
    """Those of these runs that have ended, as changed ones: what is derived from them is another one now."""
    query = select(runs.c.id, runs.c.class_id, runs.c.end_time).where(runs.c.finished == 1)
    rows = paging.rows_in(connection, query, runs.c.id, run_ids)
    return [UpsertedRun(run_id, class_id, end, finished=True, fresh=False) for run_id, class_id, end in rows]
