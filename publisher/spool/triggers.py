"""What changed, put down by the database in the transaction that changes it: nothing can be forgotten.

The triggers are there as long as contexts are configured. They count how often an object changed, so that what changes
while it is written out is written again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection, delete, func, insert, select, text

from publisher.store.tables import runs, spool_changes

_GENERATION: Final = "generation"
_BROKEN: Final = "broken"
_NO_CHANGES: Final = (_GENERATION, _BROKEN)
_COUNTED: Final = "ON CONFLICT (kind, key, target) DO UPDATE SET times = spool_changes.times + 1"


def _change(kind: str, key: str, target: str = "''") -> str:
    values = f"SELECT '{kind}', {key}, {target}, 1 WHERE true"
    return f"INSERT INTO spool_changes (kind, key, target, times) {values} {_COUNTED};"


def _of_delivery(row: str) -> str:
    key = f"(SELECT record_id FROM runs WHERE id = {row}.run_id)"  # noqa: S608 - of our own words
    return _change("deliveries", key, f"(SELECT name FROM targets WHERE id = {row}.target_id)")  # noqa: S608


_BODIES: Final[dict[str, Callable[[str], str]]] = {
    "runs": lambda row: _change("jobs", f"{row}.record_id"),
    "deliveries": _of_delivery,
    "batches": lambda row: _change("messages", f"CAST({row}.id AS TEXT)"),
}
_EVENTS: Final = (("insert", "NEW"), ("update", "NEW"), ("delete", "OLD"))
_TOLD_OF_RUNS: Final = f" OF {', '.join(column.name for column in runs.c if column is not runs.c.mark)}"
"""The columns of a run whose change is one of the object: its mark only tells that it is still what it was."""


def install(connection: Connection) -> str:
    """Put the triggers in place, where they are not; gives their generation, another one after they were gone."""
    known = generation(connection)
    if known is not None:
        return known
    remove(connection)  # what a copy by other means may have left
    for table, body in _BODIES.items():
        for happening, row in _EVENTS:
            _install(connection, table, happening, body(row))
    fresh = secrets.token_hex(8)
    connection.execute(insert(spool_changes).values(kind=_GENERATION, key=fresh, target="", times=1))
    return fresh


def _install(connection: Connection, table: str, happening: str, body: str) -> None:
    name = f"spool_{table}_{happening}"
    event = happening.upper() + (_TOLD_OF_RUNS if (table, happening) == ("runs", "update") else "")
    if connection.dialect.name == "sqlite":
        connection.execute(text(f"CREATE TRIGGER {name} AFTER {event} ON {table} BEGIN {body} END"))
        return
    connection.execute(
        text(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} RETURN NULL; END $$")
    )
    connection.execute(text(f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"))


def remove(connection: Connection) -> None:
    """Take the triggers away, and what they put down."""
    for table in _BODIES:
        for happening, _ in _EVENTS:
            name = f"spool_{table}_{happening}"
            if connection.dialect.name == "sqlite":
                connection.execute(text(f"DROP TRIGGER IF EXISTS {name}"))
            else:
                connection.execute(text(f"DROP FUNCTION IF EXISTS {name}() CASCADE"))
    connection.execute(delete(spool_changes))


def generation(connection: Connection) -> str | None:
    """Of the triggers; None where there are none."""
    query = select(spool_changes.c.key).where(spool_changes.c.kind == _GENERATION)
    return connection.execute(query).scalar_one_or_none()


def pending(connection: Connection, limit: int) -> list[tuple[str, str, str, int]]:
    """Changes that were not written yet: (kind, key, target, how often)."""
    query = (
        select(spool_changes.c.kind, spool_changes.c.key, spool_changes.c.target, spool_changes.c.times)
        .where(spool_changes.c.kind.not_in(_NO_CHANGES))
        .order_by(spool_changes.c.kind, spool_changes.c.key, spool_changes.c.target)
        .limit(limit)
    )
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query)]


def count(connection: Connection) -> int:
    """How many objects changed that were not written yet."""
    query = select(func.count()).select_from(spool_changes).where(spool_changes.c.kind.not_in(_NO_CHANGES))
    return connection.execute(query).scalar_one()


def broken(connection: Connection) -> frozenset[str]:
    """The contexts that could not be written: what they missed is not put down for them, they are filled anew."""
    query = select(spool_changes.c.key).where(spool_changes.c.kind == _BROKEN)
    return frozenset(connection.execute(query).scalars())


def set_broken(connection: Connection, name: str, *, is_broken: bool) -> None:
    """Remember that a context is to be filled anew, or that it was."""
    connection.execute(delete(spool_changes).where(spool_changes.c.kind == _BROKEN, spool_changes.c.key == name))
    if is_broken:
        connection.execute(insert(spool_changes).values(kind=_BROKEN, key=name, target="", times=1))


def written(connection: Connection, changes: list[tuple[str, str, str, int]]) -> None:
    """These changes are written; what changed again meanwhile stays."""
    for kind, key, target, times in changes:
        connection.execute(
            delete(spool_changes).where(
                spool_changes.c.kind == kind,
                spool_changes.c.key == key,
                spool_changes.c.target == target,
                spool_changes.c.times == times,
            )
        )
