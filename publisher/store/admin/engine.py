"""Differences between SQLite and PostgreSQL in maintenance of the whole store: check, copy, backup, vacuum.

Apart from `dialect`, the only module that knows which database it is.
"""

from __future__ import annotations

import os
import shlex
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import Column, Connection, Engine, NullPool, Select, Table, create_engine, func, select, text

from publisher.errors import StoreError, UsageError
from publisher.store import dialect
from publisher.store.database import Store
from publisher.whole_file import sync

_MOST_REPORTED: Final = 20
_AT_ONCE: Final = 1000


def is_file(engine: Engine) -> bool:
    """Whether the store is a file."""
    return engine.dialect.name == "sqlite"


def damage(connection: Connection) -> list[str]:
    """What the database itself finds wrong with its pages and indexes; a server checks its own."""
    if connection.dialect.name != "sqlite":
        return []
    reported = connection.exec_driver_sql(f"PRAGMA integrity_check({_MOST_REPORTED})").scalars().all()
    return [] if reported == ["ok"] else [str(line) for line in reported]


def rows(connection: Connection, query: Select[Any], most: int = _AT_ONCE) -> Iterator[Sequence[Any]]:
    """The rows of a query without holding all of them in memory: from a server through a cursor."""
    with connection.execute(query, execution_options={"yield_per": most}) as result:
        yield from result


def plain(connection: Connection, value: Any) -> Any:
    """A value as this database can hold it: PostgreSQL texts cannot hold NUL, which becomes the replacement
    character."""
    if connection.dialect.name != "sqlite" and isinstance(value, str) and "\0" in value:
        return value.replace("\0", "\ufffd")
    return value


def set_sequences(connection: Connection, tables: Sequence[Table]) -> None:
    """Set the next ids of these tables after the existing ones, after rows were inserted with their ids."""
    if connection.dialect.name == "sqlite":
        return  # takes the id after the greatest automatically
    for table in tables:
        last = connection.execute(select(func.max(table.c.id))).scalar_one()
        setting = text("SELECT setval(pg_get_serial_sequence(:table, 'id'), :last, :used)")
        connection.execute(setting, {"table": table.name, "last": last or 1, "used": last is not None})


@contextmanager
def found_by_run(store: Store) -> Iterator[None]:
    """An index of deliveries by run while inside.

    With each run that goes the database looks for deliveries of it. Nothing else does, so the index, which every new
    delivery would cost, is there for this alone. One that a kill left behind is taken up, and away.
    """
    with store.write(sorts_on_disk=True) as connection:
        connection.execute(text("CREATE INDEX IF NOT EXISTS deliveries_by_run ON deliveries (run_id)"))
    try:
        yield
    finally:
        with store.write() as connection:
            drop_index_by_run(connection)


def drop_index_by_run(connection: Connection) -> None:
    """Drop the index of `found_by_run`, which a killed purge may have left."""
    connection.execute(text("DROP INDEX IF EXISTS deliveries_by_run"))


@contextmanager
def found_by(connection: Connection, *columns: Column[Any]) -> Iterator[None]:
    """Indexes by these columns, which refer to rows of another table, while inside and in this transaction alone.

    With each row that goes the database looks for those that refer to it: without an index, through a whole table.
    The transaction is to be one that sorts on disk.
    """
    names = {f"{column.table.name}_by_{column.name}": column for column in columns}
    for name, column in names.items():
        connection.execute(text(f"CREATE INDEX {name} ON {column.table.name} ({column.name})"))
    yield
    for name in names:
        connection.execute(text(f"DROP INDEX {name}"))


def vacuum(engine: Engine) -> None:
    """Return the space of removed rows to the file system. Raises `StoreError` and its kinds."""
    with dialect.translated(engine):
        if is_file(engine):
            with _driver(engine) as driver:
                driver.execute("VACUUM")
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        else:
            with engine.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT")
                connection.exec_driver_sql("VACUUM (ANALYZE)")


@contextmanager
def _driver(engine: Engine) -> Iterator[sqlite3.Connection]:
    """SQLite's own connection, in no transaction."""
    pooled = engine.raw_connection()
    try:
        yield pooled.driver_connection  # type: ignore[misc]
    finally:
        pooled.close()


def back_up(engine: Engine, file: Path) -> None:
    """Write a consistent copy of the store's file to `part_of(file)`, while other processes use it.

    Raises `UsageError` for a store on a server, naming the command for it, and `StoreError` and its kinds.
    """
    if not is_file(engine):
        place = dialect.place(engine).replace("postgresql+psycopg:", "postgresql:")
        command = shlex.join(["pg_dump", "--format=custom", f"--file={file}", place])
        raise UsageError(
            "a store on PostgreSQL must be backed up with the tools of PostgreSQL",
            hint=f"For example: {command} (and pg_restore to bring it back)",
        )
    part = part_of(file)
    _make_new(part)
    try:
        with dialect.translated(engine):
            _copy_pages(engine, part)
        sync(part)
    except BaseException:
        remove_file(part)
        raise


def part_of(file: Path) -> Path:
    """The name of a backup before it is verified."""
    return file.with_name(f".{file.name}.part")


def finish_backup(file: Path) -> None:
    """Rename a verified backup. Raises `StoreError` if the name exists by now."""
    part = part_of(file)
    try:
        os.link(part, file)  # unlike a rename, a link does not replace a file
    except OSError as error:
        raise StoreError(f"the backup cannot be moved to {file}: {error.strerror}") from error
    part.unlink()
    sync(file.parent)


def remove_file(path: Path) -> None:
    """Remove an unfinished database file, with the files that SQLite made next to it."""
    for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
        with suppress(FileNotFoundError):
            each.unlink()


def _make_new(path: Path) -> None:
    """Create an empty private file; a file left by an earlier, killed backup is removed."""
    try:
        remove_file(path)
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
        os.close(os.open(path, flags, dialect.PRIVATE_FILE_MODE))
    except OSError as error:
        raise StoreError(f"the backup {path} cannot be written: {error.strerror}", hint="Name another place") from error


def _copy_pages(engine: Engine, part: Path) -> None:
    """Copy all pages in one step: with a write-ahead log that is one state, and writers are not blocked."""
    copy = sqlite3.connect(part)
    try:
        with _driver(engine) as driver:
            driver.backup(copy, pages=-1)
        copy.execute("PRAGMA journal_mode = DELETE")  # one file, whole in itself
    finally:
        copy.close()


@contextmanager
def reading_file(file: Path) -> Iterator[Connection]:
    """A database file that no other process has open, opened read-only. Raises `StoreError` and its kinds."""
    place = f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1"
    engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(place, uri=True), poolclass=NullPool)
    try:
        with dialect.translated(engine), engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()
