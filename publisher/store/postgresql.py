"""A store on PostgreSQL: its connections, its single writer, its locks, its errors.

Promises kept here: a writing transaction holds the store's write lock from its beginning, so that what it read is still
true when it writes, as with SQLite's write lock; a lock belongs to a session, so it ends with its holder; and a
publisher that lost its lock while at work writes nothing more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, ExceptionContext
from sqlalchemy.exc import ArgumentError, DBAPIError

from publisher.errors import (
    MissingExtraError,
    StoreBusyError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreUnreachableError,
)
from publisher.store import compiled

READING: Final = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
"""Options of a connection that sees one snapshot from its first query on."""
WRITING: Final = {"isolation_level": "READ COMMITTED", "postgresql_readonly": False}
"""Options of a connection that writes: each statement sees all that was committed before it."""

_CONNECT_TIMEOUT_S: Final = 10
# Advisory locks belong to the database; a store is a schema in it.
_KEY: Final = "hashtextextended('usage-publisher/' || coalesce(current_schema(), '') || '/' || %s, 0)"
_WRITE: Final = f"SELECT pg_advisory_xact_lock({_KEY})"
_TRY: Final = f"SELECT pg_try_advisory_lock({_KEY})"
_TRY_SHARED: Final = f"SELECT pg_try_advisory_lock_shared({_KEY})"
_UNLOCK: Final = f"SELECT pg_advisory_unlock({_KEY})"
_UNLOCK_SHARED: Final = f"SELECT pg_advisory_unlock_shared({_KEY})"
_SESSION: Final = """
    SELECT set_config('lock_timeout', %s, false),
           set_config('idle_session_timeout', '0', false),
           set_config('idle_in_transaction_session_timeout', '0', false),
           set_config('tcp_keepalives_idle', '20', false),
           set_config('tcp_keepalives_interval', '10', false),
           set_config('tcp_keepalives_count', '3', false),
           CASE WHEN current_setting('synchronous_commit') = 'off'
                THEN set_config('synchronous_commit', 'on', false) END
"""
"""A host that vanishes keeps its locks for less than a minute; a commit is on the server's disk."""

_held: ContextVar[tuple[Connection, ...]] = ContextVar("_held", default=())
"""The connections of the locks that this thread holds."""


def make_engine(url: URL, busy_timeout_s: float) -> Engine:
    """Return an engine for a store on a server; nothing is connected yet. Raises `MissingExtraError` if the driver is
    missing, and `StoreError`."""
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    try:
        engine = create_engine(
            url,
            paramstyle="format",
            pool_pre_ping=True,
            max_overflow=-1,  # a target at work has one connection for its lock and one for its transactions
            connect_args={"connect_timeout": _CONNECT_TIMEOUT_S},
        )
    except ArgumentError as error:
        raise StoreError(
            f"the store {place(url)} cannot be used: {error}", hint="See `store.url` in the configuration"
        ) from error
    except ModuleNotFoundError as error:
        raise (MissingExtraError.of(error) or error) from error
    compiled.share(engine)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _record: object) -> None:
        encoding = connection.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            raise StoreError(
                f"the database of the store {place(url)} is encoded in {encoding}",
                hint="Create it again with: createdb --encoding=UTF8 --template=template0 NAME",
            )
        _replace_nul(connection)
        connection.execute(_SESSION, (f"{max(1, round(busy_timeout_s * 1000))}ms",))
        connection.commit()

    @event.listens_for(engine, "handle_error")
    def _close_cursor(context: ExceptionContext) -> None:
        if context.execution_context is not None:
            close_cursor(context.execution_context.cursor)

    return engine


def close_cursor(cursor: Any) -> None:
    """Close a cursor before SQLAlchemy does, which would show the traceback of a failure. If the session was lost, the
    first attempt fails and leaves the cursor open."""
    with suppress(Exception):
        cursor.close()


def _replace_nul(connection: Any) -> None:
    """PostgreSQL texts cannot hold NUL; the answers of services may contain it."""
    from psycopg.types.string import StrDumperUnknown  # noqa: PLC0415 - the driver is an extra

    class Dumper(StrDumperUnknown):
        def dump(self, obj: str) -> Any:
            return super().dump(obj.replace("\0", "\ufffd") if "\0" in obj else obj)

    connection.adapters.register_dumper(str, Dumper)


def place(url: URL) -> str:
    """The URL without its passwords and the driver."""
    hidden = {name: "***" for name in ("password", "sslpassword") if name in url.query}
    return url.set(drivername=url.get_backend_name()).update_query_dict(hidden).render_as_string(hide_password=True)


def take_write_lock(connection: Connection) -> None:
    """Wait until no other transaction writes; then verify that the locks of this thread are still held.

    Raises `DBAPIError` after the busy time-out, that or `StoreUnreachableError` if a lock is lost.
    """
    connection.exec_driver_sql(_WRITE, ("write",))
    for session in _held.get():
        if session.invalidated:
            raise StoreUnreachableError(
                f"the connection to the store {place(connection.engine.url)} that held this run's lock was lost",
                hint="Another run may have started; the next run continues where this one stopped",
            )
        session.exec_driver_sql("SELECT 1")


@contextmanager
def named_lock(engine: Engine, name: str, *, shared: bool = False) -> Iterator[bool]:
    """A lock between processes on any hosts; it ends with its connection. Yields False at once if another process holds
    it.

    `shared`: others may hold it shared as well, but not exclusively.
    """
    with engine.connect() as session:
        session.execution_options(isolation_level="AUTOCOMMIT")
        if not session.exec_driver_sql(_TRY_SHARED if shared else _TRY, (name,)).scalar_one():
            yield False
            return
        token = _held.set((*_held.get(), session))
        try:
            yield True
        finally:
            _held.reset(token)
            _unlock(session, name, _UNLOCK_SHARED if shared else _UNLOCK)


def _unlock(session: Connection, name: str, statement: str) -> None:
    if session.invalidated:
        return  # the lock ended with the connection
    try:
        session.exec_driver_sql(statement, (name,))
    except DBAPIError as error:
        if not error.connection_invalidated:
            raise


def copy(connection: Connection, statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """Send rows with a COPY statement. Raises the errors of the driver."""
    driver: Any = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(statement) as copying:
        for row in rows:
            copying.write_row(row)


_KINDS: Final[tuple[tuple[str, type[StoreError], str, str], ...]] = (
    (
        "53100 53200 58030",
        StoreFullError,
        "cannot be written",
        "Free some space; nothing is lost, and what was in flight is sent again under the same ids",
    ),
    ("55P03 40P01 40001", StoreBusyError, "is locked by another process", "Try again when it is done"),
    ("XX001 XX002", StoreCorruptError, "is damaged", "Restore it from a backup"),
    (
        "25006 42501",
        StoreError,
        "cannot be written",
        "Let the publisher's user own the database or schema, on the server that accepts writes",
    ),
    (
        "28000 28P01",
        StoreError,
        "refuses the login",
        "Check user and password: in store.url, or in the file that PGPASSFILE names (~/.pgpass)",
    ),
    ("3D000 3F000", StoreError, "is not there", "Make the database with: createdb NAME"),
    (
        "08000 08001 08003 08004 08006 53300 57P01 57P02 57P03 57P05",
        StoreUnreachableError,
        "cannot be reached",
        "Check that the server runs and accepts connections",
    ),
)
"""Codes of PostgreSQL's Appendix A, the kind of error, what about the store, what to do."""


def translate(error: BaseException, url: URL) -> StoreError:
    """Return the store's kind of error for one of the driver, naming the store without its password."""
    said = " ".join(str(error).split())  # the driver has lines with tabs
    code = getattr(error, "sqlstate", None) or _code_of(said)
    for codes, kind, what, hint in _KINDS:
        if code in codes.split():
            return kind(f"the store {place(url)} {what}: {said}", hint=hint)
    return StoreError(f"the store {place(url)} cannot be used: {said}")


def _code_of(said: str) -> str:
    """The code for a connection that was refused or lost: then the driver has only text."""
    if "authentication failed" in said or "no password supplied" in said:
        return "28P01"
    return "3D000" if '" does not exist' in said else "08006"
