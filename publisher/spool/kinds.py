"""The kinds of object there are: jobs and their versions, made from the record of a run; and a kind for each table.

Tables refer to each other by internal numbers; objects do by what they are called: a source and a target by name, a run
by its record id, a message by the number it was sent under.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from sqlalchemy import LargeBinary, Table, Text

from formats.job import Benchmark, Job
from publisher.grid_identity import TOLD
from publisher.spool.objects import Kind, Object, Scalar, key_of
from publisher.store import tables
from publisher.store.counters import CONFIRMED
from publisher.store.states import BatchState, State

_SCALARS: Final[Mapping[Any, Scalar]] = {int: "int", float: "float", str: "text", bool: "flag"}
_BENCHMARKS: Final = "benchmarks"
_SEVERAL: Final = frozenset({"fqans"})
"""Of what a grid log tells: lists."""


def _scalar_of(hint: Any) -> Scalar:
    if get_origin(hint) in {Union, types.UnionType}:
        return _scalar_of(next(part for part in get_args(hint) if part is not type(None)))
    return "text" if get_origin(hint) is Literal else _SCALARS[hint]


def _fields_of(struct: type[msgspec.Struct]) -> dict[str, Scalar]:
    return {name: _scalar_of(hint) for name, hint in get_type_hints(struct).items()}


def _kind_of_jobs(name: str, scalars: Mapping[str, Scalar], lists: Mapping[str, Scalar]) -> Kind:
    own: dict[str, Scalar] = {}
    several: dict[str, Scalar] = {}
    pairs: list[str] = []
    parts: dict[str, Mapping[str, Scalar]] = {}
    for field, hint in get_type_hints(Job).items():
        if get_origin(hint) is dict or field == _BENCHMARKS:
            pairs.append(field)
        elif get_origin(hint) is tuple and issubclass(get_args(hint)[0], msgspec.Struct):
            parts[field] = _fields_of(get_args(hint)[0])
        elif get_origin(hint) is tuple:
            several[field] = _SCALARS[get_args(hint)[0]]
        else:
            own[field] = _scalar_of(hint)
    return Kind(name, own | dict(scalars), several | dict(lists), tuple(pairs), parts)


_OF_RUNS: Final[Mapping[str, Scalar]] = {"source": "text", "stored_at": "int", "digest": "bytes", "grid_log": "text"}
_TOLD_TEXTS: Final[Mapping[str, Scalar]] = {f"told_{name}": "text" for name in TOLD if name not in _SEVERAL}
_TOLD_LISTS: Final[Mapping[str, Scalar]] = {f"told_{name}": "text" for name in TOLD if name in _SEVERAL}
JOBS: Final = _kind_of_jobs("jobs", {**_OF_RUNS, **_TOLD_TEXTS}, _TOLD_LISTS)
"""Runs. `grid_log` says what the grid log of the source told of a run, `told_*` what that was."""
VERSIONS: Final = _kind_of_jobs("versions", {"stored_at": "int", "digest": "bytes"}, {})
"""Earlier versions of runs."""

_PARTS: Final = {field: get_args(hint)[0] for field, hint in get_type_hints(Job).items() if field in JOBS.parts}
_DEFAULTS: Final = {field.name: field for field in msgspec.structs.fields(Job)}


def values_of_job(job: Job) -> dict[str, Any]:
    """What a job has that is not as a matter of course."""
    found: dict[str, Any] = {}
    for name, field in _DEFAULTS.items():
        value = getattr(job, name)
        if field.default is not msgspec.NODEFAULT and value == field.default:
            continue
        if field.default_factory is not msgspec.NODEFAULT and value == field.default_factory():
            continue
        if name == _BENCHMARKS:
            value = {each.type: each.value for each in value}
        elif name in _PARTS:
            value = tuple({part: getattr(each, part) for part in JOBS.parts[name]} for each in value)
        found[name] = value
    return found


def job_of_values(values: Mapping[str, Any]) -> Job:
    """The job that has these values."""
    given = {name: values[name] for name in _DEFAULTS if values.get(name) is not None}
    if _BENCHMARKS in given:
        given[_BENCHMARKS] = tuple(Benchmark(name, float(score)) for name, score in given[_BENCHMARKS].items())
    for name, struct in _PARTS.items():
        if name in given:
            given[name] = tuple(struct(**each) for each in given[name])
    return Job(**given)


# --- tables

REFERENCES: Final[Mapping[str, str]] = {
    "source_id": "source", "target_id": "target", "run_id": "record_id", "batch_id": "message",
}  # fmt: skip
"""How a column that holds the number of a row elsewhere is called in an object."""
_NAMED: Final = {"source", "target", "record_id"}
_CALLED: Final = {"batches": "messages", "groups": "summaries"}


class TableKind(msgspec.Struct, frozen=True):
    """A table whose rows are objects; `key` the columns that identify one, `states` the words for its states."""

    table: Table
    kind: Kind
    key: tuple[str, ...]
    states: Mapping[int, str]


_STATES: Final = {int(state): state.word for state in State} | {CONFIRMED: "confirmed"}
_BATCH_STATES: Final = {int(state): state.name.lower() for state in BatchState}


def _table_kind(table: Table) -> TableKind:
    scalars: dict[str, Scalar] = {}
    for column in table.c:
        name = REFERENCES.get(column.name, column.name)
        if name in _NAMED or column.name == "state":
            scalars[name] = "text"
        else:
            scalars[name] = (
                "bytes" if isinstance(column.type, LargeBinary) else "text" if isinstance(column.type, Text) else "int"
            )
    key = tuple(REFERENCES.get(column.name, column.name) for column in table.primary_key)
    states = _BATCH_STATES if table is tables.batches else _STATES
    kind = Kind(_CALLED.get(table.name, table.name), scalars)
    return TableKind(table, kind, ("name",) if "name" in table.c else key, states)


_APART: Final = {tables.runs, tables.classes, tables.versions, tables.spool_changes}
TABLES: Final[Mapping[str, TableKind]] = {
    each.kind.name: each
    for each in (_table_kind(table) for table in tables.metadata.sorted_tables if table not in _APART)
}
_FIRST: Final = ("sources", "targets", "messages", JOBS.name, VERSIONS.name)
EXPORTED: Final = (*_FIRST, *(name for name in TABLES if name not in _FIRST))
"""All kinds, each behind those that its objects refer to."""


def kind_named(name: str) -> Kind:
    """A kind by its name."""
    special = {JOBS.name: JOBS, VERSIONS.name: VERSIONS}
    return special[name] if name in special else TABLES[name].kind


def object_of_row(each: TableKind, row: Mapping[str, Any]) -> Object:
    """A row, its references given as names, as an object."""
    values = {name: value for name, value in row.items() if value is not None}
    if "state" in values:
        values["state"] = each.states.get(values["state"], str(values["state"]))
    for name, kind in each.kind.scalars.items():
        if kind == "bytes" and name in values:
            values[name] = bytes(values[name])
    return Object(each.kind.name, key_of(*(_word(row[name]) for name in each.key)), values)


def _word(value: Any) -> object:
    return bytes(value).hex() if isinstance(value, bytes | memoryview) else value
