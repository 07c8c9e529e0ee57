"""What differs between SQLite and PostgreSQL. Only this module, `prepared`, and `postgresql` know which database it is.

SQLite: one file with mode 0600 in write-ahead mode, every commit synced to the disk; writers take the lock when they
begin, so that a transaction that reads before it writes cannot fail half-way. PostgreSQL: see the
module of this name.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import sqlite3
import stat
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Connection,
    Engine,
    Executable,
    Select,
    Table,
    create_engine,
    event,
    func,
    inspect,
    select,
    text,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, MultipleResultsFound
from sqlalchemy.sql.base import ColumnCollection

from publisher.errors import StoreBusyError, StoreCorruptError, StoreError, StoreFullError, StoreMissingError
from publisher.sqlite_file import open_read_only
from publisher.store import compiled, prepared
from publisher.store import postgresql as server
from publisher.store.file_owner import name_of, owner_of

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert as ServerInsert

_WRITES: Final = "publisher.writes"
_SORTS_ON_DISK: Final = "publisher.sorts_on_disk"
_COUNTED: Final = {"preserve_rowcount": True}
"""How many rows an INSERT made is known only if asked for (PostgreSQL: -1 otherwise)."""
_LOG_PAGES: Final = 4_000
"""Pages (of 4 KiB) after which SQLite puts its log into the database; each commit is synced to the disk in the log.
Pages of indexes that many commits change, one after another, are then written to the database once for all of them."""
_CACHE_KIB: Final = 4_096
"""Of each connection. Twice as much takes 2 % fewer instructions to collect, and 2 MiB more for a million jobs."""
_READ_CACHE_KIB: Final = 1_024
"""Who only reads goes through what waits in its order, and needs few pages twice."""
PRIVATE_FILE_MODE: Final = 0o600
PRIVATE_DIRECTORY_MODE: Final = 0o700


VERSION_TABLE: Final = "alembic_version"
_OTHER_FILE: Final = "Set store.url to a file of its own; nothing was changed"


def make_engine(url: str, busy_timeout_s: float, *, create: bool, read_only: bool = False) -> Engine:
    """Return an engine for the store's URL. With `create`, a missing folder and a private empty file are made.

    With `read_only` the database itself refuses to write. Raises `StoreError` if the place cannot be used.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise StoreError("the URL of the store cannot be read", hint="See `store.url` in the configuration") from error
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed, busy_timeout_s, create=create, read_only=read_only)
    engine = server.make_engine(parsed, busy_timeout_s)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_WRITES, False):
            if read_only:
                raise StoreError(f"the store {server.place(parsed)} is read-only here")
            server.take_write_lock(connection)

    return engine


def _sqlite_engine(url: URL, busy_timeout_s: float, *, create: bool, read_only: bool) -> Engine:
    path = Path(url.database or "")
    if create:
        _make_private(path)
    try:
        _require_access(path, os.R_OK)
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        raise StoreMissingError(
            f"the store {path} does not exist", hint="`usage-publisher collect` creates it"
        ) from None
    except OSError as error:
        raise _cannot_open(path, error) from error
    if mode & 0o077:
        _require_no_other_program(path)
        raise StoreError(f"the store {path} is open to other users", hint=f"Fix it with: chmod 600 {path}")
    # The connection that was used last has the latest pages in its cache; another one would have to read them again.
    engine = create_engine(
        url, pool_use_lifo=True, connect_args={"timeout": busy_timeout_s, "check_same_thread": False}
    )
    compiled.share(engine)

    @event.listens_for(engine, "connect")
    def _prepare(connection: sqlite3.Connection, _record: object) -> None:
        # A changed bit in a text would otherwise stop everything that reads its row; so it is damage of one run.
        connection.text_factory = _text
        connection.isolation_level = None  # this module begins transactions, below
        if connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            # A mistyped path must not change the journal of another program's database, which may be at work.
            try:
                require_no_other_tables(path, _tables(connection))
            except StoreError:
                connection.close()
                raise
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute(f"PRAGMA cache_size = -{_READ_CACHE_KIB if read_only else _CACHE_KIB}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
        if read_only:
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        options = connection.get_execution_options()
        if options.get(_SORTS_ON_DISK, False):
            prepared.execute(connection, "PRAGMA temp_store = FILE", ())
        prepared.execute(connection, "BEGIN IMMEDIATE" if options.get(_WRITES, False) else "BEGIN", ())

    return engine


def _require_no_other_program(path: Path) -> None:
    """A file of another program, which others may read, must keep its mode: nobody should be told to change it."""
    try:
        with closing(open_read_only(path)) as connection:
            require_no_other_tables(path, _tables(connection))
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB:
            raise StoreError(f"{path} is not a store: it is not an SQLite database", hint=_OTHER_FILE) from error


def _tables(connection: sqlite3.Connection) -> list[str]:
    return [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]


def require_no_other_tables(path: object, tables: Collection[str]) -> None:
    """Raise `StoreError` for the tables of another program: nothing is written among them."""
    if tables and VERSION_TABLE not in tables:
        named = ", ".join(sorted(tables)[:3])
        raise StoreError(f"{path} is not a store: another program has its tables there ({named})", hint=_OTHER_FILE)


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "backslashreplace")


def file_of(url: str) -> Path | None:
    """The file of an SQLite store; None for a server, or for a URL that cannot be read."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        return None
    return Path(parsed.database or "") if parsed.get_backend_name() == "sqlite" else None


def _make_private(path: Path) -> None:
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, mode=PRIVATE_DIRECTORY_MODE)
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, PRIVATE_FILE_MODE))
        _require_access(path, os.R_OK | os.W_OK, follow_link=False)
    except OSError as error:
        raise _cannot_open(path, error) from error


def _require_access(path: Path, how: int, *, follow_link: bool = True) -> None:
    """Raise `OSError` unless a file can be opened. It is not opened: where this process has the store open already,
    closing another descriptor of the file would end SQLite's locks, and another process would remove the WAL, with what
    is committed later (SQLite, How To Corrupt An SQLite Database File, 2.2)."""
    mode = path.stat(follow_symlinks=follow_link).st_mode
    problem = 0
    if stat.S_ISLNK(mode):
        problem = errno.ELOOP
    elif stat.S_ISDIR(mode):
        problem = errno.EISDIR
    elif not os.access(path, how, effective_ids=True):
        problem = errno.EROFS if os.statvfs(path).f_flag & os.ST_RDONLY and how & os.W_OK else errno.EACCES
    if problem:
        raise OSError(problem, os.strerror(problem))


def _cannot_open(path: Path, error: OSError) -> StoreError:
    if isinstance(error, IsADirectoryError):
        return StoreError(f"{path} is not a store: it is a folder", hint="Set store.url to a file in it")
    if isinstance(error, PermissionError) and path.is_file() and (owner := owner_of(path)) != os.geteuid():
        me = name_of(os.geteuid())
        return StoreError(
            f"the store {path} cannot be opened: it belongs to the user {name_of(owner)}",
            hint=f"Give it to the publisher's user: chown {me} {path}*, as root; or run this as {name_of(owner)}",
        )
    return StoreError(
        f"the store {path} cannot be created or opened: {error.strerror}",
        hint=f"Check that {name_of(os.geteuid())} owns the folder {path.parent} and may write there, or set store.url",
    )


@contextmanager
def transaction(engine: Engine, *, writes: bool, sorts_on_disk: bool = False) -> Iterator[Connection]:
    """A transaction; a writing one holds the write lock from its beginning. Raises `StoreError` and its kinds.

    `sorts_on_disk`: from then on SQLite sorts on disk for this connection, not in memory.
    """
    options: dict[str, Any] = {_WRITES: writes, _SORTS_ON_DISK: sorts_on_disk}
    if engine.dialect.name != "sqlite":
        options |= server.WRITING if writes else server.READING
    with translated(engine), engine.connect() as connection:
        # Set within the block: if that fails, the connection is closed nevertheless.
        connection.execution_options(**options)
        with connection.begin():
            yield connection


@contextmanager
def translated(engine: Engine) -> Iterator[None]:
    """Turn the errors of the database into `StoreError` and its kinds, which name the store without its password."""
    driver: Any = engine.dialect.dbapi
    try:
        yield
    except (DBAPIError, driver.Error) as error:
        said = getattr(error, "orig", error)
        if engine.dialect.name == "sqlite":
            raise _translate(str(said), place(engine)) from error
        raise server.translate(said, engine.url) from error
    except (UnicodeDecodeError, MultipleResultsFound) as error:  # a text, or a key that two rows have: damage
        raise StoreCorruptError(f"the store {place(engine)} is damaged: {error}") from error


def require_room(engine: Engine, size_bytes: int) -> None:
    """Raise `StoreFullError` if the disk of an SQLite store has less free space; a server checks its own.

    A file system of unknown size counts as having room.
    """
    if engine.dialect.name != "sqlite":
        return
    disk = os.statvfs(Path(engine.url.database or "").parent)
    free_bytes = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free_bytes < size_bytes:
        raise StoreFullError(
            f"the store {place(engine)} has {free_bytes:,} bytes of free disk space; {size_bytes:,} are needed to "
            "record a message and its outcome",
            hint="Free some space there; this message was not sent",
        )


def reach(url: str, busy_timeout_s: float) -> None:
    """Connect to a store, or to an empty database on a server, without changing anything. Raises `StoreError` and its
    kinds."""
    engine = make_engine(url, busy_timeout_s, create=False)
    try:
        with translated(engine), engine.connect() as connection:
            if engine.dialect.name == "sqlite":
                require_no_other_tables(place(engine), inspect(connection).get_table_names())
    finally:
        engine.dispose()


def place(engine: Engine) -> str:
    """Where the store is, without a password."""
    return server.place(engine.url)


def _translate(said: str, place: str) -> StoreError:
    low = said.lower()
    if "disk i/o error" in low:
        return StoreFullError(
            f"the store {place} cannot be written: {said}",
            hint="Free some space there; if it has space, the disk may fail (see the kernel's messages). Nothing is "
            "lost, and what was in flight is sent again under the same ids",
        )
    if "disk is full" in low or "disk full" in low or "no space left" in low:
        return StoreFullError(
            f"the store {place} cannot be written: {said}",
            hint="Free some space there and in the folder for temporary files (SQLITE_TMPDIR, or /var/tmp); nothing is "
            "lost, and what was in flight is sent again under the same ids",
        )
    if "locked" in low or "busy" in low:
        return StoreBusyError(
            f"the store {place} is locked by another process: {said}", hint="Try again when it is done"
        )
    if any(word in low for word in _OF_DAMAGE):
        return StoreCorruptError(f"the store {place} is damaged: {said}")
    if "readonly" in low or "read-only" in low:
        return StoreError(
            f"the store {place} cannot be written: {said}", hint="Check owner and mode of file and folder"
        )
    return StoreError(
        f"the store {place} cannot be used: {said}",
        hint="`usage-publisher store check` looks for damage; what to do then is in docs/how-to/lost-store.md",
    )


_OF_DAMAGE: Final = ("malformed", "not a database", "corrupt", "no such ", "syntax error", "unrecognized token")
"""In what SQLite says of a damaged file, or of its schema: the version of the store is known by then."""


def refresh_statistics(engine: Engine) -> None:
    """Update the table statistics of the query planner; takes milliseconds.

    Without room for them the earlier ones stay: what was written before is complete, and must not be taken for failed.
    """
    if engine.dialect.name == "sqlite":
        with suppress(StoreFullError), translated(engine), engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA analysis_limit = 1000")
            connection.exec_driver_sql("ANALYZE")
            connection.commit()


def upsert(connection: Connection, table: Table, rows: list[dict[str, Any]], *, keys: Sequence[str]) -> None:
    """Insert rows, or update these columns of rows with the same keys. All rows have the same columns."""
    if rows:
        connection.execute(_setting(connection.dialect.name, table, tuple(keys), tuple(rows[0])), rows)


@lru_cache
def _setting(dialect: str, table: Table, keys: tuple[str, ...], columns: tuple[str, ...]) -> Executable:
    statement = _insert(dialect, table)
    others = {name: statement.excluded[name] for name in columns if name not in keys}
    return statement.on_conflict_do_update(index_elements=list(keys), set_=others)


def add_up(
    connection: Connection, table: Table, rows: Sequence[dict[str, Any]], *, keys: Sequence[str], column: str
) -> None:
    """Insert rows, or add the value of `column` to that of the row with the same keys. All have the same columns."""
    if rows:
        adding = _adding(connection.dialect.name, table, tuple(keys), column, tuple(rows[0]))
        adding.run(connection, [tuple(row.values()) for row in rows])


@lru_cache
def _adding(dialect: str, table: Table, keys: tuple[str, ...], column: str, columns: tuple[str, ...]) -> prepared.Bulk:
    statement = _insert(dialect, table)
    added = {column: table.c[column] + statement.excluded[column]}
    return prepared.Bulk(statement.on_conflict_do_update(index_elements=list(keys), set_=added), columns)


def insert_missing(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> int:
    """Insert rows, without those that break a uniqueness rule; return how many are new."""
    if not rows:
        return 0
    statement = _insert(connection.dialect.name, table).on_conflict_do_nothing()
    return connection.execute(statement, rows, execution_options=_COUNTED).rowcount


def insert_missing_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> int:
    """Insert rows with all columns in order, without those that break a uniqueness rule; return how many are new."""
    return _inserting_missing(connection.dialect.name, table).run(connection, rows)


@lru_cache
def _inserting_missing(dialect: str, table: Table) -> prepared.Bulk:
    statement = _insert(dialect, table)
    return prepared.Bulk(statement.on_conflict_do_nothing(), column_names(table.c))


def insert_from_select(connection: Connection, table: Table, columns: Sequence[str], query: Select[Any]) -> int:
    """`INSERT ... SELECT` without rows whose key exists; return how many were inserted."""
    statement = _insert(connection.dialect.name, table).from_select(list(columns), query).on_conflict_do_nothing()
    return connection.execute(statement, execution_options=_COUNTED).rowcount


def _insert(dialect: str, table: Table) -> sqlite.Insert | ServerInsert:
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - much to load, for a store on a server

    return postgresql.insert(table)


def allocate_run_ids(connection: Connection, table: Table, count: int) -> Sequence[int]:
    """Return ids for new rows of a table, ascending. The caller holds the write transaction that inserts them."""
    if connection.dialect.name == "sqlite":
        last: int = connection.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one()
        return range(last + 1, last + 1 + count)
    sequence = text("SELECT nextval(pg_get_serial_sequence(:table, 'id')) FROM generate_series(1, :count)")
    return sorted(connection.execute(sequence, {"table": table.name, "count": count}).scalars())


def streamed(
    connection: Connection, query: Select[Any], size: int, values: Mapping[str, Any] | None = None
) -> Generator[list[Any], None, None]:
    """Yield the rows of a query as tuples, `size` at a time, without holding them all. Close it if it is not read to
    its end. `values`: of the query's parameters.

    SQLite's are the driver's own: a row object of SQLAlchemy for each of a million costs as much as reading it.
    """
    result = connection.execute(query, values, execution_options=_streams(connection))
    cursor: Any = result.cursor
    is_file = connection.dialect.name == "sqlite"
    try:
        if is_file:
            while rows := cursor.fetchmany(size):
                yield rows
        else:
            yield from map(list, result.partitions(size))
    finally:
        if not is_file:
            server.close_cursor(cursor)
        # An error may keep an unfinished stream until its connection is closed: a file has nothing to close then.
        if not (is_file and connection.closed):
            result.close()


def _streams(connection: Connection) -> dict[str, Any]:
    """SQLite streams by default; with the option set, SQLAlchemy would take the first row from the driver's cursor."""
    return {} if connection.dialect.name == "sqlite" else {"stream_results": True}


def column_names(columns: ColumnCollection[str, Any]) -> tuple[str, ...]:
    """The names of a table's columns, in order."""
    return tuple(column.name for column in columns)


@contextmanager
def named_lock(engine: Engine, name: str, *, shared: bool = False) -> Iterator[bool]:
    """A lock between processes that ends with its holder; yields False at once if another process holds it.

    SQLite: a locked file next to the store. PostgreSQL: an advisory lock of a connection kept open, which a writing
    transaction of the same thread verifies.
    """
    if engine.dialect.name == "sqlite":
        with _file_lock(Path(f"{engine.url.database}.{_file_word(name)}.lock"), shared=shared) as held:
            yield held
        return
    with translated(engine), server.named_lock(engine, name, shared=shared) as held:
        yield held


@contextmanager
def _file_lock(path: Path, *, shared: bool) -> Iterator[bool]:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE_FILE_MODE)
    except OSError as error:
        raise StoreError(f"the lock {path} cannot be created: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _file_word(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)
    return safe if safe == name else f"{safe}-{hashlib.blake2b(name.encode(), digest_size=4).hexdigest()}"
