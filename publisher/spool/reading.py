"""Objects out of the store, in the store's order; memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Select, select

from formats.job import Job
from publisher.grid_identity import TOLD
from publisher.spool.kinds import JOBS, REFERENCES, TABLES, VERSIONS, TableKind, object_of_row, values_of_job
from publisher.spool.objects import Object, key_of
from publisher.store import upkeep
from publisher.store.classes import GRID_LOG, JOINED
from publisher.store.stored import decode
from publisher.store.tables import batches, classes, deliveries, runs, sources, targets, versions

_MANY: Final = 500


def all_of(connection: Connection, kind: str) -> Iterator[Object]:
    """Every object of a kind."""
    if kind == JOBS.name:
        for row in upkeep.rows(connection, _jobs().order_by(runs.c.id)):
            yield _job(row)
    elif kind == VERSIONS.name:
        query = (
            select(runs.c.record_id, versions.c.digest, versions.c.stored_at, versions.c.job)
            .join(runs, versions.c.run_id == runs.c.id)
            .order_by(versions.c.run_id, versions.c.digest)
        )
        for record_id, mark, stored_at, blob in upkeep.rows(connection, query):
            values = values_of_job(decode(bytes(blob))) | {"digest": bytes(mark), "stored_at": stored_at}
            yield Object(kind, key_of(record_id, bytes(mark).hex()), values)
    else:
        each = TABLES[kind]
        for row in upkeep.rows(connection, _rows(each).order_by(*each.table.primary_key)):
            yield object_of_row(each, _named(each, row))


def some_of(connection: Connection, kind: str, keys: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Object | None]]:
    """These jobs (by record id), deliveries (by record id and target) or messages (by number): by key, None if gone."""
    found: dict[str, Object] = {}
    for start in range(0, len(keys), _MANY):
        part = keys[start : start + _MANY]
        words = [word for word, _ in part]
        if kind == JOBS.name:
            rows = connection.execute(_jobs().where(runs.c.record_id.in_(words)))
            found.update((each.key, each) for each in map(_job, rows))
        else:
            each = TABLES[kind]
            rows = connection.execute(_rows(each).where(_chosen(kind, words, sorted({target for _, target in part}))))
            found.update((item.key, item) for item in (object_of_row(each, _named(each, row)) for row in rows))
    for word, target in keys:
        key = key_of(target, word) if kind == "deliveries" else key_of(word)
        yield key, found.get(key)


def _chosen(kind: str, words: Sequence[str], names: Sequence[str]) -> ColumnElement[bool]:
    if kind == "deliveries":
        of_runs = select(runs.c.id).where(runs.c.record_id.in_(words))
        of_targets = select(targets.c.id).where(targets.c.name.in_(names))
        return deliveries.c.target_id.in_(of_targets) & deliveries.c.run_id.in_(of_runs)
    return batches.c.id.in_([int(word) for word in words])


def _jobs() -> Select[Any]:
    joined = runs.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)
    return select(sources.c.name, runs.c.stored_at, runs.c.digest, runs.c.job, classes.c.facts).select_from(joined)


def _job(row: Sequence[Any]) -> Object:
    source, stored_at, mark, blob, facts = row
    job = decode(bytes(blob))
    values = (
        values_of_job(job)
        | {"source": source, "stored_at": stored_at, "digest": bytes(mark)}
        | dict(_told(bytes(facts)))
    )
    return Object(JOBS.name, key_of(job.record_id), values)


@lru_cache(maxsize=20_000)
def _told(stored: bytes) -> Mapping[str, Any]:
    facts: Job = decode(stored)
    mark = facts.extras.get(GRID_LOG)
    if mark != JOINED:
        return {"grid_log": mark} if mark is not None else {}
    told = {f"told_{name}": getattr(facts, name) for name in TOLD}
    return {"grid_log": mark} | {name: value for name, value in told.items() if value not in (None, ())}


def _rows(each: TableKind) -> Select[Any]:
    """The rows of a table with names in place of numbers."""
    joined: Any = each.table
    columns: list[Any] = []
    names = {"source_id": sources.c.name, "target_id": targets.c.name, "run_id": runs.c.record_id}
    for column in each.table.c:
        if column.name in names:
            named = names[column.name]
            joined = joined.outerjoin(named.table, column == named.table.c.id)
            columns.append(named.label(REFERENCES[column.name]))
        else:
            columns.append(column.label(REFERENCES.get(column.name, column.name)))
    return select(*columns).select_from(joined)


def _named(each: TableKind, row: Any) -> Mapping[str, Any]:
    return dict(zip((REFERENCES.get(column.name, column.name) for column in each.table.c), row, strict=True))
