"""A site in a folder: sources and services in memory, a real store, the real pipeline between them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

from publisher.api import Publisher
from publisher.targets.base import Target
from publisher.targets.identity import TargetContext
from publisher.testing.jobs import NOVEMBER, NOW, OCTOBER, SCORE, make_job, make_jobs
from publisher.testing.memory import ListSource
from publisher.testing.site import FolderSite, Killed
from tests.publisher.receivers import RecordReceiver
from tests.publisher.store.server import PostgresqlServer

__all__ = [
    "NOVEMBER", "NOW", "OCTOBER", "SCORE", "Killed", "ListSource", "Site", "close_sites", "make_job", "make_jobs",
    "store_url_of", "stores_on",
]  # fmt: skip


class _Databases:
    """The stores of sites on a server: a database for each folder."""

    def __init__(self, server: PostgresqlServer) -> None:
        self.server = server
        self._names: dict[Path, str] = {}

    def of(self, folder: Path) -> str:
        """The database of a folder's site, made where it is new."""
        if folder not in self._names:
            self._names[folder] = self.server.new_database()
        return self._names[folder]


_databases: _Databases | None = None
_open_sites: list[Site] = []


def close_sites() -> None:
    """Close the stores of all sites, as their processes would at their end."""
    while _open_sites:
        _open_sites.pop().reopen()


@contextmanager
def stores_on(server: PostgresqlServer) -> Iterator[None]:
    """Within this, sites have their stores on a server, each a fresh one."""
    global _databases  # noqa: PLW0603 - sites are made deep inside the tests, which do not care which store they have
    _databases = _Databases(server)
    try:
        yield
    finally:
        close_sites()
        _databases = None
        server.forget()


def store_url_of(folder: Path) -> str:
    """The store of a site in a folder, as it is configured: a file there, or a database on the server at hand."""
    return _databases.server.url(_databases.of(folder)) if _databases is not None else "sqlite:///store.db"


class Site(FolderSite):
    """See the module. `receivers` are both the targets of the configuration and the services to which they send."""

    def __init__(self, folder: Path, sources: Sequence[ListSource], receivers: Sequence[RecordReceiver]) -> None:
        on_server = (_databases.server, _databases.of(folder)) if _databases is not None else (None, "")
        super().__init__(folder, sources, *on_server)
        self._server: PostgresqlServer | None = on_server[0]
        self.receivers = {receiver.name: receiver for receiver in receivers}
        self.table["targets"] = {name: _settings(receiver) for name, receiver in self.receivers.items()}
        self._images: dict[Path, str] = {}

    @property
    def publisher(self) -> Publisher:
        """The real publisher over this site."""
        if self._publisher is None:
            _open_sites.append(self)
        return super().publisher

    def _make_target(self, name: str, settings: Any, context: TargetContext) -> Target:
        return self.receivers.get(name) or super()._make_target(name, settings, context)

    @contextmanager
    def full_at(self, statement: Literal["INSERT", "UPDATE"], table: str, when: str = "1 = 1") -> Iterator[None]:
        """Within this the store has no room for what a statement writes to a table; `when`: of which rows, as SQL."""
        if self._server is not None:
            full = "BEGIN RAISE EXCEPTION 'no space left on device' USING ERRCODE = 'disk_full'; END"
            self._run(
                f"CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ {full} $$",
                f"CREATE TRIGGER full_disk BEFORE {statement} ON {table} FOR EACH ROW WHEN ({when}) "
                "EXECUTE FUNCTION full_disk()",
            )
        else:
            full = "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
            self._run(f"CREATE TRIGGER full_disk BEFORE {statement} ON {table} FOR EACH ROW WHEN {when} {full}")
        try:
            yield
        finally:
            self._run("DROP FUNCTION full_disk CASCADE" if self._server is not None else "DROP TRIGGER full_disk")

    def _run(self, *statements: str) -> None:
        if self._server is not None:
            import psycopg

            with psycopg.connect(self.store_url) as session:
                for statement in statements:
                    session.execute(statement)
            return
        with closing(sqlite3.connect(self.store_file)) as connection:
            for statement in statements:
                connection.execute(statement)

    def snapshot(self, folder: Path) -> None:
        """Of a store on a server, what is committed."""
        if self._server is not None:
            self.reopen()
            self._images[folder] = self._server.copy(self.database)
        super().snapshot(folder)

    def restore(self, folder: Path) -> None:
        """Put it in place; a new process comes next."""
        self.reopen()
        if self._server is not None:
            self._server.replace(self.database, self._images[folder])
        super().restore(folder)


def _settings(receiver: RecordReceiver) -> dict[str, Any]:
    common = {"attempts": 1, "workers": 1}
    if receiver.kind == "sgas":
        return {"type": "sgas", "url": "https://sgas.example.org:6143/sgas", **common}
    if receiver.kind == "ams":
        return {
            "type": "ams", "url": f"https://{receiver.name}.example.org", "project": "p", "topic": "t",
            "records": "emi-car", "sync": False, "batch_records": 100, **common,
        }  # fmt: skip
    return {"type": "directory", "path": receiver.name, "records": "apel-summary", **common}
