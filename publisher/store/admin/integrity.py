"""Check: whether the contents of the store are consistent, and what to do if not; and repair of the counters.

Reads one state while a publisher may work; memory does not grow with the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, inspect, or_, select

from formats.identity import encoded_digest
from publisher.errors import StoreError
from publisher.finding import Finding
from publisher.store import class_users, closed_months, registry, suspects, transitions
from publisher.store.admin import column_checks, engine, purge
from publisher.store.classes import decode, decode_facts
from publisher.store.schema import (
    BatchState,
    State,
    batches,
    classes,
    counters,
    deliveries,
    metadata,
    runs,
    targets,
    versions,
)
from publisher.store.stored_run import ALL_COLUMNS, WITH_CLASSES, damaged
from publisher.store.transitions import CONFIRMED

RESTORE: Final = (
    "Restore the store from a backup (docs/how-to/lost-store.md), or `store export` what is left of it; keep the "
    "damaged store for study"
)
REREAD: Final = (
    "Read the sources of these jobs again: `usage-publisher collect --since T --until T` replaces what is damaged. If "
    "the sources no longer have them, restore the store from a backup"
)
SETTLE: Final = (
    "Settle these pieces: `usage-publisher collect --unreadable --settle --piece N --reason TEXT`; then read their "
    "sources again: `usage-publisher collect --since T --until T`"
)
USERS: Final = "`usage-publisher store check --repair` reads them from the jobs again"
_MOST_NAMED: Final = 3


class Miscounted(msgspec.Struct, frozen=True):
    """A counter that differs from the counted value. `state`: its number, or that of confirmed deliveries."""

    target_id: int
    target: str
    state: int
    kept: int
    counted: int

    @property
    def word(self) -> str:
        """What is counted."""
        known = {int(state): state.word for state in State} | {CONFIRMED: "confirmed"}
        return known.get(self.state, f"in state {self.state}")


def check(connection: Connection) -> Iterator[Finding]:
    """All findings, one for each check; red ones are errors."""
    yield from check_small(connection)
    yield _finding(
        "runs",
        _first_of(text for _, text in wrong_runs(connection)),
        "digests, columns and classes are those of the stored jobs",
        REREAD,
    )
    yield _finding(
        "versions",
        _first_of(text for _, text in wrong_versions(connection)),
        "digests are those of the stored jobs",
        RESTORE,
    )


def check_small(connection: Connection) -> Iterator[Finding]:
    """Those about all but the records of runs."""
    damage = engine.damage(connection)
    yield _finding("database", damage, "pages and indexes are sound", RESTORE)
    other = list(_other_tables(connection))
    yield _finding("tables", other, "are those of this version", RESTORE)
    yield _finding("references", list(_lost(connection)), "every row that another one names is there", RESTORE)
    wrong = miscounted(connection)
    lines = [f"{each.target}: {each.kept} {each.word} kept, {each.counted} counted" for each in wrong]
    yield _finding(
        "counters", lines, "are what counting gives", "`usage-publisher store check --repair` sets them right"
    )
    yield _finding("classes", _first_of(_wrong_classes(connection)), "can be read", RESTORE)
    yield _finding("local users", _first_of(class_users.wrong(connection)), "are those of their classes", USERS)
    yield _finding("deliveries", _first_of(_wrong_deliveries(connection)), "agree with their jobs and batches", RESTORE)
    if not other:
        yield _finding("groups", _first_of(column_checks.wrong_groups(connection)), "are what was sent", RESTORE)
        yield _finding("batches", _first_of(column_checks.wrong_batches(connection)), "are what was stored", RESTORE)
        yield _finding("rows", _first_of(column_checks.wrong_rows(connection)), "are what was stored", RESTORE)
        yield _finding("closed months", _first_of(closed_months.wrong(connection)), "are what was stored", RESTORE)
        yield _finding("columns", _first_of(column_checks.wrong_columns(connection)), "can be read", RESTORE)
        yield _finding("suspect jobs", _first_of(suspects.damaged(connection)), "are what was read", SETTLE)
    flying = connection.execute(
        select(func.count()).select_from(batches).where(batches.c.state == int(BatchState.IN_FLIGHT))
    ).scalar_one()
    if flying:
        yield Finding("batches", "yellow", f"{flying} in flight", "A run is active, or the next run settles them")
    unused = _unused_classes(connection)
    if unused:
        yield Finding("classes", "green", f"{unused} belong to no job", "Harmless; `store purge` removes them")


def _finding(subject: str, wrong: list[str], good: str, hint: str) -> Finding:
    return Finding(subject, "red", "; ".join(wrong), hint) if wrong else Finding(subject, "green", good)


def _first_of(wrong: Iterator[str]) -> list[str]:
    """The first few by name, and how many there are."""
    first: list[str] = []
    more = 0
    for each in wrong:
        if len(first) < _MOST_NAMED:
            first.append(each)
        else:
            more += 1
    return [*first, f"and {more} more"] if more else first


def _other_tables(connection: Connection) -> Iterator[str]:
    looker = inspect(connection)
    there = set(looker.get_table_names())
    for table in metadata.sorted_tables:
        if table.name not in there:
            yield f"table {table.name} is missing"
            continue
        names = {column["name"] for column in looker.get_columns(table.name)}
        missing = sorted({column.name for column in table.c} - names)
        if missing:
            yield f"table {table.name} lacks {', '.join(missing)}"


def _lost(connection: Connection) -> Iterator[str]:
    for table in metadata.sorted_tables:
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            other = key.column.table
            query = (
                select(func.count())
                .select_from(table.outerjoin(other, key.parent == key.column))
                .where(key.parent.is_not(None), key.column.is_(None))
            )
            lost = connection.execute(query).scalar_one()
            if lost:
                yield f"{lost} {table.name} whose {key.parent.name} is in no row of {other.name}"


def miscounted(connection: Connection) -> list[Miscounted]:
    """The wrong counters: they must equal the existing deliveries plus the purged ones."""
    counted = _counted(connection)
    names = {row[0]: row[1] for row in connection.execute(select(targets.c.id, targets.c.name))}
    for target_id in names:
        for state, jobs in purge.delivered(connection, target_id).items():
            counted[target_id, state] += jobs
    kept = {
        (row[0], row[1]): row[2]
        for row in connection.execute(select(counters.c.target_id, counters.c.state, counters.c.jobs))
    }
    return [
        Miscounted(target_id, names.get(target_id, f"target {target_id}"), state, kept.get(key, 0), counted[key])
        for key in sorted({*counted, *kept}, key=str)  # in a damaged store a state may be of any type
        if kept.get(key, 0) != counted[key]
        for target_id, state in [key]
    ]


def _counted(connection: Connection) -> Counter[tuple[int, int]]:
    """How many deliveries there are, by target and counter; those with an unknown state are counted separately.

    Grouped by the target alone, in the order of the table: by target and state, SQLite would first sort all of them, in
    memory.
    """
    in_each = [func.count().filter(deliveries.c.state == int(state)) for state in State]
    query = select(deliveries.c.target_id, func.count(deliveries.c.confirmed_at), *in_each).group_by(
        deliveries.c.target_id
    )
    counted: Counter[tuple[int, int]] = Counter()
    for target_id, confirmed, *jobs in connection.execute(query):
        counted[target_id, CONFIRMED] = confirmed
        counted.update({(target_id, int(state)): count for state, count in zip(State, jobs, strict=True)})
    return counted


def repair_counters(connection: Connection, now: int) -> list[Miscounted]:
    """Set the counters to counted values, in a writing transaction; return those that were wrong."""
    wrong = miscounted(connection)
    for each in wrong:
        transitions.set_counter(connection, each.target_id, each.state, each.counted)
        registry.record_action(
            connection, "repair", each.target, f"{each.word}: {each.kept} kept, {each.counted} counted", now
        )
    return wrong


def wrong_runs(connection: Connection, chosen: ColumnElement[bool] | None = None) -> Iterator[tuple[int, str]]:
    """The damaged runs, each with what is wrong; all, or those that meet a condition."""
    query = select(*ALL_COLUMNS).select_from(WITH_CLASSES)
    yield from damaged(connection, engine.rows(connection, query if chosen is None else query.where(chosen)))


def wrong_versions(connection: Connection, chosen: ColumnElement[bool] | None = None) -> Iterator[tuple[int, str]]:
    """The damaged earlier versions, by the ids of their runs."""
    query = select(versions.c.run_id, versions.c.digest, versions.c.job)
    for run_id, mark, blob in engine.rows(connection, query if chosen is None else query.where(chosen)):
        try:
            decode(_bytes(blob), b"", f"number {run_id}, an earlier version", _bytes(mark))
        except StoreError as error:
            yield run_id, error.message


def _wrong_classes(connection: Connection) -> Iterator[str]:
    for class_id, facts, mark in engine.rows(connection, select(classes.c.id, classes.c.facts, classes.c.digest)):
        if encoded_digest(_bytes(facts)) != _bytes(mark):
            yield f"class {class_id}: its digest is not that of its facts"
        try:
            decode_facts(_bytes(facts), class_id)
        except StoreError as error:
            yield error.message


def _wrong_deliveries(connection: Connection) -> Iterator[str]:
    flying = deliveries.c.state == int(State.IN_FLIGHT)
    query = (
        select(runs.c.record_id, targets.c.name, deliveries.c.end_time, runs.c.end_time)
        .join(runs, deliveries.c.run_id == runs.c.id)
        .join(targets, deliveries.c.target_id == targets.c.id)
        .where(or_(deliveries.c.end_time != runs.c.end_time, runs.c.end_time.is_(None)))
    )
    for record_id, name, end, of_run in engine.rows(connection, query):
        yield f"record {record_id} for target {name} has end time {end}, its job {of_run}"
    query_states = (
        select(targets.c.name, func.count())
        .select_from(deliveries.join(targets, deliveries.c.target_id == targets.c.id))
        .where(deliveries.c.state.not_in([int(state) for state in State]))
        .group_by(targets.c.name)
    )
    for name, count in connection.execute(query_states):
        yield f"{count} for target {name} are in a state that there is not"
    open_batches = select(batches.c.id).where(batches.c.state == int(BatchState.IN_FLIGHT))
    query_flying = (
        select(targets.c.name, func.count())
        .select_from(deliveries.join(targets, deliveries.c.target_id == targets.c.id))
        .where(and_(flying, or_(deliveries.c.batch_id.is_(None), deliveries.c.batch_id.not_in(open_batches))))
        .group_by(targets.c.name)
    )
    for name, count in connection.execute(query_flying):
        yield f"{count} for target {name} are in flight in no batch that is"


def _bytes(value: Any) -> bytes:
    """A stored value; in a damaged SQLite store it may be of any type."""
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode("utf-8", "surrogateescape")


def _unused_classes(connection: Connection) -> int:
    used = select(runs.c.class_id).distinct()
    query = select(func.count()).select_from(classes).where(classes.c.id.not_in(used))
    return connection.execute(query).scalar_one()
