"""Disks without room: SQLite's own limit, a bound on the size of files, and a small file system where we may mount."""

from __future__ import annotations

import resource
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import Engine, event

from publisher.events import BatchInFlight, Event
from tests.publisher.site import Site


@contextmanager
def every_connection(statement: str) -> Iterator[None]:
    """Have every new connection to a store say this first."""

    def say(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(statement)

    event.listen(Engine, "connect", say)
    try:
        yield
    finally:
        event.remove(Engine, "connect", say)


def pages_of(store: Path) -> int:
    """How many pages a store has."""
    with closing(sqlite3.connect(store)) as connection:
        return int(connection.execute("PRAGMA page_count").fetchone()[0])


@contextmanager
def files_no_larger_than(most_bytes: int) -> Iterator[None]:
    """Have the system refuse whatever would make a file larger; the signal that goes with it is ignored by Python."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@contextmanager
def full_when(site: Site, number: int) -> Iterator[None]:
    """Let no file grow after this number of messages was sent, as if another program had filled the disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    left = 0

    def watch(event: Event) -> None:
        nonlocal left
        left += isinstance(event, BatchInFlight)
        if left == number:
            log = site.store_file.with_name(f"{site.store_file.name}-wal")
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size, hard))

    site.watch = watch
    try:
        yield
    finally:
        site.watch = lambda _event: None
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


class SmallDisk:
    """A file system of two MiB in memory, mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        assert _mounts(path, "size=2m")

    def remount(self, options: str) -> None:
        """Mount it again with other options."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)

    def unmount(self) -> None:
        """Take it away."""
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)

    def fill(self, but_bytes: int = 0) -> None:
        """Leave room for this number of bytes, in whole blocks."""
        ballast = self.path / "ballast"
        with ballast.open("wb", buffering=0) as file:
            try:
                while file.write(b"\0" * 4096):
                    pass
            except OSError:
                pass
            file.truncate(file.tell() - but_bytes)

    def make_room(self) -> None:
        """Take away what fills it."""
        (self.path / "ballast").unlink()


def _mounts(folder: Path, options: str) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def may_mount() -> bool:
    """Whether the machine lets us mount a file system."""
    with tempfile.TemporaryDirectory() as folder:
        if not _mounts(Path(folder), "size=64k"):
            return False
        subprocess.run(["umount", "--lazy", folder], check=True)
        return True
