"""Opening the store: made and migrated where needed, refused where it is newer than the program.

`Store` is what the rest of the program holds. It gives transactions; the modules beside this one are functions over a
connection, so that a cause and all its effects are in one transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Connection, Engine, inspect, text

from publisher.errors import StoreError, StoreMissingError, StoreNewerError
from publisher.store import dialect
from publisher.store.schema import metadata

MIGRATIONS: Final = Path(__file__).parent / "migrations"
HEAD: Final = "0012"
"""The newest migration; a test holds it against the scripts. Known here so that Alembic is loaded only to migrate."""


class TransactionObserver(Protocol):
    """Who follows the store, transaction by transaction."""

    def prepare(self, connection: Connection) -> None:
        """At the end of a writing transaction, before it is committed; what is raised here rolls it back."""
        ...

    def commit(self) -> None:
        """It is committed. Raises nothing: what was done is done."""
        ...


class Store:
    """The opened store. Threads may share it; each transaction has a connection of its own."""

    def __init__(self, engine: Engine, *, is_new: bool = False) -> None:
        """`is_new`: there was nothing at its place before."""
        self.is_new = is_new
        self._engine = engine
        self._observer: TransactionObserver | None = None

    def observe(self, observer: TransactionObserver) -> None:
        """Have every writing transaction of this process prepared and committed there too."""
        self._observer = observer

    @property
    def engine(self) -> Engine:
        """The database itself, for `publisher.store.admin`."""
        return self._engine

    @property
    def place(self) -> str:
        """Where the store is, without a password."""
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

        `sorts_on_disk`: for making indexes of a whole table, which memory is not to grow with.
        """
        with dialect.transaction(self._engine, writes=True, sorts_on_disk=sorts_on_disk) as connection:
            yield connection
            if self._observer is not None:
                self._observer.prepare(connection)
        if self._observer is not None:
            self._observer.commit()

    def require_room(self, size_bytes: int) -> None:
        """Raise `StoreFullError` where so many bytes cannot be written; asked before a message leaves."""
        dialect.require_room(self._engine, size_bytes)

    @contextmanager
    def lock(self, name: str, *, shared: bool = False) -> Iterator[bool]:
        """Hold a lock among processes while inside; False at once where another process holds it.

        `shared`: others may hold it so too, but nobody for himself.
        """
        with dialect.named_lock(self._engine, name, shared=shared) as held:
            yield held

    def refresh_statistics(self) -> None:
        """Let queries be planned for the present size of the store; called after many runs were stored."""
        dialect.refresh_statistics(self._engine)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def open_store(url: str, busy_timeout_s: float = 30.0, *, create: bool = True, read_only: bool = False) -> Store:
    """Open the store, making or migrating it where needed; with `read_only`, neither, and nothing can be written.

    Raises `StoreNewerError` for a store of a later program, `StoreError` and its kinds where it cannot be used.
    """
    create = create and not read_only
    engine = dialect.make_engine(url, busy_timeout_s, create=create, read_only=read_only)
    try:
        with dialect.translated(engine):
            if read_only:
                _require_up_to_date(engine)
                is_new = False
            else:
                is_new = _bring_up_to_date(engine, create=create)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, is_new=is_new)


def _bring_up_to_date(engine: Engine, *, create: bool) -> bool:
    """Make or migrate what is there; True where there was nothing."""
    with engine.connect() as connection:
        present = _revision(connection)
    if present == HEAD:
        return False
    if present is None and not create:
        raise StoreMissingError(
            f"there is no store in {dialect.place(engine)}", hint="`usage-publisher collect` makes it"
        )
    with dialect.transaction(engine, writes=True, sorts_on_disk=True, rebuilds_tables=True) as connection:
        present = _revision(connection)  # another process may have migrated while we waited for the lock
        if present == HEAD:
            return False
        if present is None:
            _make(connection)
        else:
            _migrate(connection, present, engine)
    engine.dispose()  # other connections sort in memory, and check foreign keys
    return present is None


def _require_up_to_date(engine: Engine) -> None:
    with engine.connect() as connection:
        present = _revision(connection)
    if present is None:
        raise StoreMissingError(
            f"there is no store in {dialect.place(engine)}", hint="`usage-publisher collect` makes it"
        )
    if present != HEAD:
        raise StoreError(
            f"the store {dialect.place(engine)} has version {present}, this program {HEAD}, and it is only to be read",
            hint="`usage-publisher status` brings an older one up to date",
        )


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none()


def _make(connection: Connection) -> None:
    """A new store, as all migrations together would make it: a test holds it against them."""
    metadata.create_all(connection, checkfirst=False)
    key = "CONSTRAINT alembic_version_pkc PRIMARY KEY"
    connection.execute(text(f"CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL, {key} (version_num))"))
    connection.execute(text("INSERT INTO alembic_version VALUES (:head)"), {"head": HEAD})


def _migrate(connection: Connection, present: str, engine: Engine) -> None:
    from alembic import command  # noqa: PLC0415 - a third of a second at every start, needed once a version
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script import ScriptDirectory  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    if present not in known:
        raise StoreNewerError(
            f"the store {dialect.place(engine)} has version {present}, made by a later "
            f"version of this program (this one knows {HEAD})",
            hint="Install that version again; nothing was changed",
        )
    command.upgrade(config, "head")
