"""The kinds of object: jobs and their versions, made from the record of a run; and a kind for each table.

Tables refer to each other by internal numbers; objects refer to a source or target by name, to a run by its record id,
to a message by the number under which it was sent. Objects are read in the store's order; memory does not grow with
their number.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import Column, Connection, LargeBinary, Select, Table, Text, func, select

from formats.job import Benchmark, Events, Job
from publisher.encoded_run import run_key
from publisher.grid_identity import IDENTITY_FIELDS
from publisher.spool.base import PAIRS, Attribute, Kind, Object, Scalar, key_of, list_of, parts_of, single
from publisher.store import paging, schema
from publisher.store.admin import engine
from publisher.store.classes import GRID_LOG, JOINED, decode, decode_facts
from publisher.store.schema import BatchState, State, batches, classes, deliveries, runs, sources, targets, versions
from publisher.store.transitions import CONFIRMED

_SCALARS: Final[Mapping[Any, Scalar]] = {int: "int", float: "float", str: "text", bool: "flag"}
_BENCHMARKS: Final = "benchmarks"
_EVENTS: Final = "events"
_EVENT: Final = parts_of({"at": "int", "kind": "text"})


def _given(hint: Any) -> Any:
    """The type of a value that is not None."""
    if get_origin(hint) in {Union, types.UnionType}:
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _scalar_of(hint: Any) -> Scalar:
    hint = _given(hint)
    return "text" if get_origin(hint) is Literal else _SCALARS[hint]


def _attribute_of(field: str, hint: Any) -> Attribute:
    """How a field of a job is spooled."""
    hint = _given(hint)
    if field == _EVENTS:
        return _EVENT
    if field == _BENCHMARKS or get_origin(hint) is dict:
        return PAIRS
    if get_origin(hint) is not tuple:
        return single(_scalar_of(hint))
    element = get_args(hint)[0]
    if issubclass(element, msgspec.Struct):
        return parts_of({name: _scalar_of(of) for name, of in get_type_hints(element).items()})
    return list_of(_scalar_of(element))


_JOB: Final = {field: _attribute_of(field, hint) for field, hint in get_type_hints(Job).items()}
_STORED: Final = {"stored_at": single("int"), "digest": single("bytes")}
_GRID: Final = {f"grid_{name}": _JOB[name] for name in IDENTITY_FIELDS}


def _kind_of_jobs(name: str, others: dict[str, Attribute]) -> Kind:
    return Kind(name, dict(sorted((_JOB | others).items(), key=lambda field: field[1].shape)))


JOBS: Final = _kind_of_jobs("jobs", {"source": single("text"), **_STORED, "grid_log": single("text"), **_GRID})
"""Runs. `grid_log`: whether the grid log of the source has the run; `grid_*`: its values there."""
VERSIONS: Final = _kind_of_jobs("versions", _STORED)
"""Earlier versions of runs."""
_STRUCTS: Final = {
    field: get_args(hint)[0] for field, hint in get_type_hints(Job).items() if field in JOBS.parts and field != _EVENTS
}


def values_of_job(job: Job) -> dict[str, Any]:
    """The values of a job, without default values."""
    values = job.known()
    for name in values.keys() & _STRUCTS.keys():
        values[name] = tuple(map(msgspec.structs.asdict, values[name]))
    if _BENCHMARKS in values:
        values[_BENCHMARKS] = {benchmark.type: benchmark.value for benchmark in values[_BENCHMARKS]}
    if _EVENTS in values:
        values[_EVENTS] = _EVENT.value_of([*values[_EVENTS].pairs()])
    return values


def job_of_values(values: Mapping[str, Any]) -> Job:
    """The job that has these values."""
    facts = {name: values[name] for name in Job.__struct_fields__ if values.get(name) not in (None, ())}
    for name in facts.keys() & _STRUCTS.keys():
        facts[name] = tuple([_STRUCTS[name](**part) for part in facts[name]])
    if _BENCHMARKS in facts:
        facts[_BENCHMARKS] = tuple(Benchmark(name, float(score)) for name, score in facts[_BENCHMARKS].items())
    if _EVENTS in facts:
        facts[_EVENTS] = Events.of((at, kind) for at, kind in _EVENT.rows_of(facts[_EVENTS]))
    return Job(**facts)


# --- tables

REFERENCES: Final[Mapping[str, str]] = {
    "source_id": "source", "target_id": "target", "run_id": "record_id", "batch_id": "message",
}  # fmt: skip
"""The names in objects of columns that contain the number of a row in another table."""
_TEXTS: Final = frozenset({"source", "target", "record_id", "state"})
"""The names in objects of columns with numbers that objects have as words."""
_CALLED: Final = {"batches": "messages", "groups": "summaries"}
_CALCULATED: Final = {schema.batches.c.row_check}
"""Columns that are in no object: contexts of earlier versions need not be written again."""


class TableKind(msgspec.Struct, frozen=True):
    """A table whose rows are objects; `key`: the columns that identify one; `states`: the words for its states."""

    table: Table
    kind: Kind
    key: tuple[str, ...]
    states: Mapping[int, str]


_STATES: Final = {int(state): state.word for state in State} | {CONFIRMED: "confirmed"}
_BATCH_STATES: Final = {int(state): state.name.lower() for state in BatchState}


def columns_of(table: Table) -> list[Column[Any]]:
    """The columns that are in the objects of a table."""
    return [column for column in table.c if column not in _CALCULATED]


def _table_kind(table: Table) -> TableKind:
    columns = (*table.primary_key, *(column for column in columns_of(table) if not column.primary_key))
    fields = {_name_of(column): single(_type_of(column)) for column in columns}
    key = ("name",) if "name" in table.c else tuple(_name_of(column) for column in table.primary_key)
    states = _BATCH_STATES if table is schema.batches else _STATES
    return TableKind(table, Kind(_CALLED.get(table.name, table.name), fields), key, states)


def _name_of(column: Column[Any]) -> str:
    return REFERENCES.get(column.name, column.name)


def _type_of(column: Column[Any]) -> Scalar:
    if _name_of(column) in _TEXTS or isinstance(column.type, Text):
        return "text"
    return "bytes" if isinstance(column.type, LargeBinary) else "int"


_WRITTEN_OTHERWISE: Final = {
    schema.runs, schema.classes, schema.class_users, schema.versions, schema.spool_changes, schema.changes,
}  # fmt: skip
TABLES: Final[Mapping[str, TableKind]] = {
    each.kind.name: each
    for each in (_table_kind(table) for table in schema.metadata.sorted_tables if table not in _WRITTEN_OTHERWISE)
}
_FIRST: Final = ("sources", "targets", "messages", JOBS.name, VERSIONS.name)
EXPORTED: Final = (*_FIRST, *(name for name in TABLES if name not in _FIRST))
"""All kinds, each after those that its objects refer to."""


_KINDS: Final = {JOBS.name: JOBS, VERSIONS.name: VERSIONS} | {name: each.kind for name, each in TABLES.items()}
_COUNTED: Final = {JOBS.name: runs, VERSIONS.name: versions} | {name: each.table for name, each in TABLES.items()}


def kind_named(name: str) -> Kind:
    """A kind by its name."""
    return _KINDS[name]


def _object_of_row(each: TableKind, row: Sequence[Any]) -> Object:
    named = {_name_of(column): _plain(value) for column, value in zip(columns_of(each.table), row, strict=True)}
    values = {name: value for name, value in named.items() if value is not None}
    if "state" in values:
        values["state"] = each.states.get(values["state"], str(values["state"]))
    return Object(each.kind.name, key_of(*(_word(named[name]) for name in each.key)), values)


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value


def _word(value: Any) -> object:
    return value.hex() if isinstance(value, bytes) else value


def count_of(connection: Connection, kind: str) -> int:
    """How many objects of a kind there are."""
    return connection.execute(select(func.count()).select_from(_COUNTED[kind])).scalar_one()


def all_of(connection: Connection, kind: str) -> Iterator[Object]:
    """Every object of a kind."""
    if kind == JOBS.name:
        for row in engine.rows(connection, _jobs().order_by(runs.c.id)):
            yield _job(row)
    elif kind == VERSIONS.name:
        query = (
            select(runs.c.record_id, versions.c.digest, versions.c.stored_at, versions.c.job)
            .join(runs, versions.c.run_id == runs.c.id)
            .order_by(versions.c.run_id, versions.c.digest)
        )
        for record_id, mark, stored_at, blob in engine.rows(connection, query):
            values = values_of_job(decode(bytes(blob), b"", f"{record_id}, an earlier version")) | {
                "digest": bytes(mark),
                "stored_at": stored_at,
            }
            yield Object(kind, key_of(record_id, bytes(mark).hex()), values)
    else:
        each = TABLES[kind]
        for row in engine.rows(connection, _rows(each).order_by(*each.table.primary_key)):
            yield _object_of_row(each, row)


def some_of(connection: Connection, kind: str, keys: Sequence[tuple[str, str]]) -> Iterator[tuple[str, Object | None]]:
    """These jobs (by record id), deliveries (by record id and target) or messages (by number): by key, None if gone."""
    objects: dict[str, Object] = {}
    if kind == JOBS.name:
        rows = paging.rows_in(connection, _jobs(), runs.c.record_key, [run_key(word) for word, _ in keys])
        objects.update((each.key, each) for each in map(_job, rows))
    else:
        each = TABLES[kind]
        items = (_object_of_row(each, row) for row in _rows_of(connection, each, keys))
        objects.update((item.key, item) for item in items)
    for word, target in keys:
        key = key_of(target, word) if kind == "deliveries" else key_of(word)
        yield key, objects.get(key)


def _rows_of(connection: Connection, each: TableKind, keys: Sequence[tuple[str, str]]) -> Iterator[Any]:
    if each.table is batches:
        return paging.rows_in(connection, _rows(each), batches.c.id, [int(word) for word, _ in keys])
    of_targets = select(targets.c.id).where(targets.c.name.in_({target for _, target in keys}))
    of_runs = paging.rows_in(connection, select(runs.c.id), runs.c.record_key, [run_key(word) for word, _ in keys])
    query = _rows(each).where(deliveries.c.target_id.in_(of_targets))
    return paging.rows_in(connection, query, deliveries.c.run_id, [run_id for (run_id,) in of_runs])


def _jobs() -> Select[Any]:
    joined = runs.join(classes, runs.c.class_id == classes.c.id).join(sources, classes.c.source_id == sources.c.id)
    columns = (sources.c.name, runs.c.record_id, runs.c.stored_at, runs.c.digest, runs.c.job, classes.c.facts)
    return select(*columns).select_from(joined)


def _job(row: Sequence[Any]) -> Object:
    source, record_id, stored_at, mark, blob, facts = row
    job = decode(bytes(blob), bytes(facts), record_id)
    values = (
        values_of_job(job)
        | {"source": source, "stored_at": stored_at, "digest": bytes(mark)}
        | dict(_grid_facts(bytes(facts)))
    )
    return Object(JOBS.name, key_of(job.record_id), values)


@lru_cache(maxsize=20_000)
def _grid_facts(stored: bytes) -> Mapping[str, Any]:
    facts: Job = decode_facts(stored)
    mark = facts.extras.get(GRID_LOG)
    if mark != JOINED:
        return {"grid_log": mark} if mark is not None else {}
    values = {f"grid_{name}": getattr(facts, name) for name in IDENTITY_FIELDS}
    return {"grid_log": mark} | {name: value for name, value in values.items() if value not in (None, ())}


_REFERRED: Final[Mapping[str, Column[Any]]] = {
    "source_id": sources.c.name, "target_id": targets.c.name, "run_id": runs.c.record_id,
}  # fmt: skip


def _rows(each: TableKind) -> Select[Any]:
    """The rows of a table with names in place of numbers."""
    joined: Any = each.table
    columns: list[Any] = []
    for column in columns_of(each.table):
        referred = _REFERRED.get(column.name, column)
        if referred is not column:
            joined = joined.outerjoin(referred.table, column == referred.table.c.id)
        columns.append(referred.label(_name_of(column)))
    return select(*columns).select_from(joined)
