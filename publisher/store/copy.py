"""copy: everything from one store into another, of either kind: all of it, the same, or nothing.

Read in one transaction, so it is one state; written in one transaction, so a copy that is killed, or finds the disk
full, leaves an empty store behind. Before it is committed, every table is read back and compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Table, insert, select

from publisher.errors import StoreCorruptError, UsageError
from publisher.store import dialect, upkeep
from publisher.store.database import Store
from publisher.store.exclusive import exclusive
from publisher.store.tables import metadata, spool_changes

_AT_ONCE: Final = 1000
_TABLES: Final = [table for table in metadata.sorted_tables if table is not spool_changes]
"""What contexts have yet to write is a matter of the store that they follow."""
_SUM_BITS: Final = 128
_encode = msgspec.msgpack.Encoder().encode


class TableCopied(msgspec.Struct, frozen=True):
    """A table that was copied: how many rows, and a digest of them in any order (hexadecimal)."""

    table: str
    rows: int
    digest: str


class _Digest:
    """Counts rows and adds up their hashes, so that the order in which a database gives them does not matter."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = 0

    def add(self, row: Sequence[Any]) -> None:
        self.rows += 1
        mark = hashlib.blake2b(_encode(list(row)), digest_size=_SUM_BITS // 8).digest()
        self._sum = (self._sum + int.from_bytes(mark, "big")) % (1 << _SUM_BITS)

    @property
    def hex(self) -> str:
        return f"{self._sum:032x}"


def copy(source: Store, destination: Store, tell: Callable[[str], None] = lambda _table: None) -> list[TableCopied]:
    """Copy everything; memory does not grow with it. `tell` hears of each table before it is copied.

    Raises `UsageError` where a publisher is at work in the source or the destination holds anything, and `StoreError`
    and its kinds, with nothing in the destination changed.
    """
    with exclusive(source), source.read() as read, destination.write() as write:
        for table in _TABLES:
            if write.execute(select(table).limit(1)).first() is not None:
                raise UsageError(
                    f"there is something in the store {destination.place} already (table {table.name})",
                    hint="Copy into a new place; nothing was changed",
                )
        copied = [_copy_table(read, write, table, tell) for table in _TABLES]
        upkeep.set_sequences(write, [table for table in _TABLES if "id" in table.c])
    destination.refresh_statistics()
    return copied


def _copy_table(read: Connection, write: Connection, table: Table, tell: Callable[[str], None]) -> TableCopied:
    tell(table.name)
    names = dialect.column_names(table.c)
    putting = dialect.Bulk(insert(table), names)
    given, got = _Digest(), _Digest()
    for page in _pages(upkeep.rows(read, select(table), _AT_ONCE)):
        listed = [tuple(upkeep.plain(write, value) for value in row) for row in page]
        for row in listed:
            given.add(row)
        putting.run(write, listed)
    for copied in upkeep.rows(write, select(table), _AT_ONCE):
        got.add(copied)
    if (given.rows, given.hex) != (got.rows, got.hex):
        raise StoreCorruptError(
            f"table {table.name} is not the same after copying: {given.rows} rows were read, {got.rows} are there",
            hint="Nothing was kept of the copy; `usage-publisher store check` looks for damage in the source",
        )
    return TableCopied(table.name, got.rows, got.hex)


def _pages(found: Iterable[Sequence[Any]]) -> Iterable[Sequence[Sequence[Any]]]:
    page: list[Sequence[Any]] = []
    for row in found:
        page.append(row)
        if len(page) == _AT_ONCE:
            yield page
            page = []
    if page:
        yield page
