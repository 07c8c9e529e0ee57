"""Sources and targets, found by their names.

A changed bit in a name would let a source or target look new, and all its jobs be sent again: a row is looked for among
all of them, without an index, and its digest is compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, RowMapping, Table, select, update

from publisher.errors import StoreCorruptError
from publisher.store.row_checks import row_digest
from publisher.store.schema import sources, targets
from publisher.text import safe

NAMED: Final[Mapping[Table, tuple[str, ...]]] = {
    sources: ("id", "name", "kind"),
    targets: ("id", "name", "kind", "filter_settings", "assumes"),
}
"""The columns that the digest of a row covers."""


def find(connection: Connection, table: Table, name: str) -> RowMapping | None:
    """The row with this name; None: there is none.

    Raises `StoreCorruptError` if it is damaged, or if there is none and another one is damaged, which may be it.
    """
    rows = connection.execute(select(table)).mappings().all()
    matches = [row for row in rows if row["name"] == name]
    for row in matches or rows:
        if is_damaged(table, row):
            raise StoreCorruptError(f"the store is damaged: {said(table, row)} is not what was stored")
    return matches[0] if matches else None


def seal(connection: Connection, table: Table, name: str) -> None:
    """Set the digest of a row that was inserted or changed in this transaction."""
    row = connection.execute(select(table).where(table.c.name == name)).mappings().one()
    connection.execute(update(table).where(table.c.id == row["id"]).values(row_digest=_digest_of(table, row)))


def is_damaged(table: Table, row: RowMapping) -> bool:
    """Whether a row is not what was stored."""
    return bool(row["row_digest"] != _digest_of(table, row))


def said(table: Table, row: RowMapping) -> str:
    """Which row it is, for people."""
    return f"the {table.name.removesuffix('s')} {safe(str(row['name']))[:200]}"


def _digest_of(table: Table, row: RowMapping) -> bytes:
    return row_digest(*(row[column] for column in NAMED[table]))
