"""Backup: a consistent copy of the store's file while a publisher works, verified before it gets its name.

Copy: everything from one store to another, of either kind, unchanged, or nothing. It is read in one transaction, so it
is one state, and written in one transaction, so a copy that is killed, or finds the disk full, leaves an empty store.
Before the commit, every table is read back and compared.

`exclusive` holds all locks of the store: nothing is collected or sent during maintenance of the whole store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Table, func, insert, select

from publisher.errors import StoreCorruptError, UsageError
from publisher.store import dialect, paging, prepared
from publisher.store.admin import engine, integrity
from publisher.store.database import Store
from publisher.store.schema import State, counters, metadata, runs, sources, spool_changes, targets


class Backup(msgspec.Struct, frozen=True):
    """A verified backup. `runs`: those in it, also unfinished ones; `jobs` and `deliveries` as `status` counts them,
    with those that were purged."""

    file: Path
    bytes: int
    runs: int
    jobs: int
    deliveries: int


def backup(store: Store, file: Path) -> Backup:
    """Write a backup with mode 0600, and verify it. A kill leaves nothing under its name.

    Raises `UsageError` if the name exists, and for a store on a server, naming the command for it; `StoreFullError` if
    the disk is full; `StoreCorruptError` if the copy is damaged.
    """
    file = file.absolute()
    if file.exists() or file.is_symlink():
        raise UsageError(f"{file} already exists", hint="Name a new file")
    engine.back_up(store.engine, file)
    part = engine.part_of(file)
    try:
        with engine.reading_file(part) as connection:
            wrong = engine.damage(connection)
            wrong += [f"counter of {counter.target} ({counter.word})" for counter in integrity.miscounted(connection)]
            count = connection.execute(select(func.count()).select_from(runs)).scalar_one()
            jobs = connection.execute(select(func.sum(sources.c.jobs))).scalar_one() or 0
            of_states = select(func.sum(counters.c.jobs)).where(counters.c.state.in_([int(state) for state in State]))
            delivery_count = connection.execute(of_states).scalar_one() or 0
        _require_sound(wrong)
        size = part.stat().st_size
        engine.finish_backup(file)
    except BaseException:
        engine.remove_file(part)
        raise
    return Backup(file, size, count, jobs, delivery_count)


def _require_sound(wrong: list[str]) -> None:
    if wrong:
        raise StoreCorruptError(
            f"the store is damaged, and so is its backup, which was not kept: {'; '.join(wrong)}",
            hint="`usage-publisher store check` says what to do",
        )


@contextmanager
def exclusive(store: Store, names: Iterable[str] = ()) -> Iterator[None]:
    """Hold the locks of collecting and of every target, those known to the store and `names`.

    Raises `UsageError` at once if another process holds one of them.
    """
    with store.read() as connection:
        known = set(connection.execute(select(targets.c.name)).scalars())
    with ExitStack() as stack:
        for name in ("collect", *(f"target-{name}" for name in sorted(known.union(names)))):
            if not stack.enter_context(store.lock(name)):
                work = "collecting" if name == "collect" else f"sending to target {name.removeprefix('target-')}"
                raise UsageError(
                    f"a publisher is {work} in the store {store.place}",
                    hint="Stop the timer, or try again when it is done; nothing was changed",
                )
        yield


_AT_ONCE: Final = 1000
_TABLES: Final = [table for table in metadata.sorted_tables if table is not spool_changes]
"""What contexts have yet to write is a matter of the store that they follow."""
_SUM_BITS: Final = 128
_encode = msgspec.msgpack.Encoder().encode


class TableCopied(msgspec.Struct, frozen=True):
    """A copied table: number of rows, and a digest of them in any order (hexadecimal)."""

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


def copy(
    source: Store, destination: Store, begin_table: Callable[[str], None] = lambda _table: None
) -> list[TableCopied]:
    """Copy everything; memory does not grow with it. `begin_table` is called with each table before it is copied.

    Raises `UsageError` if a publisher works in the source or the destination contains anything, and `StoreError` and
    its kinds, with the destination unchanged.
    """
    with exclusive(source), source.read() as read, destination.write() as write:
        for table in _TABLES:
            if write.execute(select(table).limit(1)).first() is not None:
                raise UsageError(
                    f"the store {destination.place} is not empty (table {table.name})",
                    hint="Copy into a new place; nothing was changed",
                )
        copied = [_copy_table(read, write, table, begin_table) for table in _TABLES]
        engine.set_sequences(write, [table for table in _TABLES if "id" in table.c])
    destination.refresh_statistics()
    return copied


def _copy_table(read: Connection, write: Connection, table: Table, begin_table: Callable[[str], None]) -> TableCopied:
    begin_table(table.name)
    names = dialect.column_names(table.c)
    putting = prepared.Bulk(insert(table), names)
    given, got = _Digest(), _Digest()
    for page in paging.chunks(engine.rows(read, select(table), _AT_ONCE), _AT_ONCE):
        listed = [tuple(engine.plain(write, value) for value in row) for row in page]
        for row in listed:
            given.add(row)
        putting.run(write, listed)
    for copied in engine.rows(write, select(table), _AT_ONCE):
        got.add(copied)
    if (given.rows, given.hex) != (got.rows, got.hex):
        raise StoreCorruptError(
            f"table {table.name} differs after copying: {given.rows} rows were read, {got.rows} were written",
            hint="The copy was discarded; `usage-publisher store check` looks for damage in the source",
        )
    return TableCopied(table.name, got.rows, got.hex)
