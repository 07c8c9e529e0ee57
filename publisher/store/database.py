"""Open the store: create or migrate it if needed, refuse it if the program does not know its version.

`Store` is what the rest of the program uses. It provides transactions; the other modules of this package are functions
of a connection, so that a cause and all its effects are in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec
from sqlalchemy import Connection, Dialect, Engine, inspect, text
from sqlalchemy.engine.mock import MockConnection

from publisher.errors import StoreError, StoreMissingError, StoreNewerError, StoreRestoredError
from publisher.store import changes, dialect, paging, sent_mark
from publisher.store.paging import Place, Rows
from publisher.store.schema import metadata
from publisher.store.sent_mark import RESTORED_HINT, SentMark, SentMarkFile


class SchemaVersion(msgspec.Struct, frozen=True):
    """The version of the store that a program works with, and the folder with the migrations to it.

    `head` is the newest migration, repeated here so that Alembic is loaded only to migrate; a test compares both.
    """

    head: str
    migrations: Path


SCHEMA: Final = SchemaVersion("0017", Path(__file__).parent / "migrations")


class TransactionObserver(Protocol):
    """Follows the transactions of the store."""

    def prepare(self, connection: Connection) -> None:
        """Called at the end of a writing transaction, before its commit; an exception rolls it back."""
        ...

    def commit(self) -> None:
        """Called after the commit. Must not raise."""
        ...


class Store:
    """The opened store. Threads may share it; each transaction has its own connection."""

    def __init__(self, engine: Engine, *, is_new: bool = False, mark_file: SentMarkFile | None = None) -> None:
        """`is_new`: the store was created now. `mark_file`: the file by which a restored store is recognised."""
        self.is_new = is_new
        self.mark_file = mark_file
        self._engine = engine
        self._observer: TransactionObserver | None = None

    def observe(self, observer: TransactionObserver) -> None:
        """Prepare and commit every writing transaction of this process with this observer too."""
        self._observer = observer

    @property
    def engine(self) -> Engine:
        """The database engine, for `publisher.store.admin`."""
        return self._engine

    @property
    def place(self) -> str:
        """The place of the store, without a password."""
        return dialect.place(self._engine)

    @property
    def file(self) -> Path | None:
        """The file of an SQLite store; None for a server."""
        return Path(self._engine.url.database or "") if self._engine.dialect.name == "sqlite" else None

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A transaction that reads one consistent state. Raises `StoreError` and its kinds."""
        with dialect.transaction(self._engine, writes=False) as connection:
            yield connection

    @contextmanager
    def write(self, *, sorts_on_disk: bool = False) -> Iterator[Connection]:
        """A transaction that writes: all of it or nothing. Raises `StoreError` and its kinds.

        `sorts_on_disk`: for indexes of a whole table, so that memory does not grow with it.
        """
        with dialect.transaction(self._engine, writes=True, sorts_on_disk=sorts_on_disk) as connection:
            changed = changes.collect_on(connection)
            yield connection
            changes.append(connection, changed)
            if self._observer is not None:
                self._observer.prepare(connection)
        if self._observer is not None:
            self._observer.commit()

    def pages(self, page: Callable[[Connection, Place | None], tuple[Rows, Place | None]]) -> Iterator[Rows]:
        """Yield what `page` reads as `paging.pages`, each page in its own transaction."""

        def in_transaction(after: Place | None) -> tuple[Rows, Place | None]:
            with self.read() as connection:
                return page(connection, after)

        return paging.pages(in_transaction)

    def require_room(self, size_bytes: int) -> None:
        """Raise `StoreFullError` if this many bytes cannot be written; called before a message is sent."""
        dialect.require_room(self._engine, size_bytes)

    def why_not_latest(self) -> str | None:
        """Return why the store may not know of all that was sent, as after a restore; None if it does, as far as is
        known.

        Raises `StoreError` if the mark file cannot be read.
        """
        why = None
        if self.mark_file is not None:
            for _ in range(2):  # other processes may send: they may have made the file after it was looked for
                marked = self.mark_file.read()  # before the store: messages sent in between are then in the store
                with self.read() as connection:
                    stored = sent_mark.of_store(connection)
                why = self.mark_file.why_not_latest(marked, stored, self.place)
                if why is None:
                    break
        return why

    def require_latest(self) -> None:
        """Compare the store with its mark file, before anything is sent; from then on both count the same messages.

        Raises `StoreRestoredError` if the store may not know of all that was sent, and `StoreError` and its kinds.
        """
        with self.read() as connection:
            stored = sent_mark.of_store(connection)
        if stored is None:
            with self.write() as connection:
                stored = sent_mark.of_store(connection) or sent_mark.begin(connection)
        why = self.why_not_latest()
        if why is not None:
            raise StoreRestoredError(f"{why}. Nothing is sent", hint=RESTORED_HINT)
        if self.mark_file is not None:
            self.mark_file.make(stored)

    def accept_restored(self, connection: Connection) -> None:
        """Allow sending from this store although a later state of it, or another store, was used to send before.

        Messages are counted from the later count on, so that the abandoned state is recognised as well. The caller
        holds all locks, and calls `adopt_mark` once the transaction is committed.
        """
        stored = sent_mark.of_store(connection) or sent_mark.begin(connection)
        marked = self.mark_file.read() if self.mark_file is not None else None
        if marked is not None and marked.store == stored.store and marked.messages > stored.messages:
            sent_mark.take_count(connection, marked)

    def adopt_mark(self) -> None:
        """Write the mark of this store to the mark file. Raises `StoreError` and its kinds."""
        with self.read() as connection:
            stored = sent_mark.of_store(connection)
        if self.mark_file is not None and stored is not None:
            self.mark_file.replace(stored)

    def mark_sent(self, mark: SentMark) -> None:
        """Write the mark of a message that was counted and committed, before it is sent. Raises `StoreError` and its
        kinds."""
        if self.mark_file is not None:
            self.mark_file.advance(mark)

    @contextmanager
    def lock(self, name: str, *, shared: bool = False) -> Iterator[bool]:
        """Hold a lock between processes inside the block; yields False at once if another process holds it.

        `shared`: others may hold it shared as well, but not exclusively.
        """
        with dialect.named_lock(self._engine, name, shared=shared) as held:
            yield held

    def refresh_statistics(self) -> None:
        """Update the statistics of the query planner; called after many runs were stored."""
        dialect.refresh_statistics(self._engine)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def open_store(
    url: str,
    busy_timeout_s: float = 30.0,
    *,
    create: bool = True,
    read_only: bool = False,
    mark: Path | None = None,
    schema: SchemaVersion = SCHEMA,
) -> Store:
    """Open the store, creating or migrating it if needed; with `read_only` neither, and it cannot be written.

    `mark`: the mark file, by which a restored store is recognised; None: next to an SQLite store, none for a store on a
    server. Raises `StoreNewerError` for a store of an unknown version, `StoreError` and its kinds if it cannot be used.
    """
    create = create and not read_only
    engine = dialect.make_engine(url, busy_timeout_s, create=create, read_only=read_only)
    try:
        with dialect.translated(engine):
            if read_only:
                _require_up_to_date(engine, schema)
                is_new = False
            else:
                is_new = _bring_up_to_date(engine, schema, create=create)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, is_new=is_new, mark_file=_mark_file(engine, mark))


def _mark_file(engine: Engine, given: Path | None) -> SentMarkFile | None:
    if engine.dialect.name != "sqlite":
        return None if given is None else SentMarkFile(given, is_shared=True)
    return SentMarkFile(given or Path(f"{engine.url.database}.sent"), is_shared=False)


def _bring_up_to_date(engine: Engine, schema: SchemaVersion, *, create: bool) -> bool:
    """Create or migrate the store; True if it was created."""
    with engine.connect() as connection:
        present = _version(connection)
    if present == schema.head:
        return False
    if present is None and not create:
        raise _missing(engine)
    with dialect.transaction(engine, writes=True, sorts_on_disk=True) as connection:
        present = _version(connection)  # another process may have migrated it while we waited for the lock
        if present == schema.head:
            return False
        if present is None:
            _create(connection, schema)
        else:
            _migrate(connection, present, schema, engine)
    engine.dispose()  # other connections sort in memory
    return present is None


def _require_up_to_date(engine: Engine, schema: SchemaVersion) -> None:
    with engine.connect() as connection:
        present = _version(connection)
    if present is None:
        raise _missing(engine)
    if present != schema.head:
        raise StoreError(
            f"the store {dialect.place(engine)} has version {present}, this program needs {schema.head}, and the "
            "command only reads",
            hint="`usage-publisher status` migrates the store, or says why it cannot",
        )


def _missing(engine: Engine) -> StoreMissingError:
    return StoreMissingError(
        f"the store {dialect.place(engine)} does not exist", hint="`usage-publisher collect` creates it"
    )


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(dialect.VERSION_TABLE):
        if connection.dialect.name == "sqlite":  # a database on a server may have schemas of other programs
            dialect.require_no_other_tables(connection.engine.url.database, inspect(connection).get_table_names())
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _create(connection: Connection, schema: SchemaVersion) -> None:
    """Create the tables that all migrations together would create; a test compares both."""
    for statement in _statements(connection.dialect):
        connection.exec_driver_sql(statement)
    key = "CONSTRAINT alembic_version_pkc PRIMARY KEY"
    connection.execute(text(f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, {key} (version_num))"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": schema.head})


def _statements(dialect: Dialect) -> list[str]:
    """What creates the tables. Compiling it takes longer than executing it, so a process does it once."""
    if dialect.name not in _compiled_statements:
        statements: list[str] = []
        recorder = MockConnection(dialect, lambda sql, *_: statements.append(str(sql.compile(dialect=dialect))))
        metadata.create_all(recorder, checkfirst=False)
        _compiled_statements[dialect.name] = statements
    return _compiled_statements[dialect.name]


_compiled_statements: Final[dict[str, list[str]]] = {}


def _migrate(connection: Connection, present: str, schema: SchemaVersion, engine: Engine) -> None:
    from alembic import command  # noqa: PLC0415 - a third of a second at every start, needed once a version
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(schema.migrations).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if present not in known:
        raise StoreNewerError(
            f"the store {dialect.place(engine)} has version {present}, which this program does not know (its own is "
            f"{schema.head}): a later version of the program created it, or one from before the first release. "
            "Nothing was changed",
            hint="Install the version that created it, or read the sources again into a new store "
            "(docs/reference/store.md, Versions)",
        )
    command.upgrade(config, "head")
