"""Files of a context: private, complete or absent, and on disk once synced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

from publisher.spool.base import Kind, SpoolError
from publisher.whole_file import sync, write_partial

_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_NOTE: Final = "context"
_LONGEST_NAME: Final = 180
_BLOCK_BYTES: Final = 65_536
_HIDDEN: Final = re.compile(r"^\.")


@contextmanager
def errors_named(place: Path) -> Iterator[None]:
    """Convert errors of the system to `SpoolError`, which names the place."""
    try:
        yield
    except OSError as error:
        raise SpoolError(
            f"the spooling context in {place} cannot be used: {error.strerror or error}",
            hint="What it lacks is written as soon as it can be used",
        ) from error


def name_of(key: str) -> str:
    """A file name for a key: readable, different for every key, never a path."""
    name = _HIDDEN.sub("%2E", quote(key, safe="@:+=,%").replace("/", "%2F"))
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_LONGEST_NAME]}~{blake2b(key.encode(), digest_size=8).hexdigest()}"


class FolderContext:
    """Base of contexts in a folder: see `publisher.spool.context`. Files that were written are synced by `commit`."""

    suffix: ClassVar[str]
    """The end of the names of its files."""
    has_part_files: ClassVar[bool] = True
    """Whether subordinate objects have files of their own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsynced: set[Path] = set()

    def startup(self) -> None:
        """Create the folder, private. Raises `SpoolError`, also if others can write to it."""
        with errors_named(self.path):
            make_folder(self.path)
            if self.path.stat().st_mode & 0o022:
                raise SpoolError(f"the folder {self.path} is open to other users", hint=f"chmod go-w {self.path}")

    def shutdown(self) -> None:
        """Nothing is kept open."""

    def commit(self) -> None:
        """Sync what was written to disk, all files at once, which is much faster than one by one."""
        with errors_named(self.path):
            for place in sorted(self._unsynced):
                with suppress(FileNotFoundError):  # removed since
                    sync(place)
        self._unsynced.clear()

    def note(self, text: str | None) -> None:
        """Store a text in a file of its own; None deletes it."""
        if text is None:
            self.remove(self.path / _NOTE)
        else:
            self.replace(self.path / _NOTE, text.removesuffix("\n") + "\n")
        self.commit()

    def noted(self) -> str | None:
        """Return the stored text."""
        text = self.read(self.path / _NOTE)
        return text.decode().removesuffix("\n") if text is not None else None

    def part_files(self, kind: Kind) -> Iterable[str]:
        """The names of the subordinate objects that have files of their own."""
        return kind.parts if self.has_part_files else ()

    def read(self, file: Path) -> bytes | None:
        """The content of a file; None if it is missing."""
        with errors_named(self.path):
            try:
                return file.read_bytes()
            except FileNotFoundError:
                return None

    def replace(self, file: Path, text: str) -> bool:
        """Write the text of a file, which ends with a line end; return False if it was the same."""
        if self.read(file) == text.encode():
            return False
        with errors_named(self.path):
            make_folder(file.parent)
        self.rewrite(file, [text.removesuffix("\n")])
        return True

    def remove(self, file: Path) -> None:
        """Remove a file, if it exists."""
        with errors_named(self.path):
            file.unlink(missing_ok=True)
        if file.parent.exists():
            self._unsynced.add(file.parent)

    def append(self, file: Path, lines: Iterable[str]) -> None:
        """Append lines to a file, in one write; an unfinished line left by a kill is removed first."""
        with errors_named(self.path):
            descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
            with os.fdopen(descriptor, "r+b") as opened:
                opened.seek(_end_of_line(opened.fileno(), os.fstat(opened.fileno()).st_size))
                opened.truncate()
                opened.write("".join([f"{line}\n" for line in lines]).encode())
        self._unsynced |= {file, file.parent}

    def rewrite(self, file: Path, lines: Iterable[str]) -> None:
        """Write a file with these lines, completely or not at all; they may be read from it at the same time."""
        with errors_named(self.path):
            fresh = file.with_name(f".{file.name}.new")
            content = (f"{line}\n".encode() for line in lines)
            write_partial(fresh, content, lambda: fresh.replace(file), synced=False)
        self._unsynced |= {file, file.parent}

    def last_line(self, file: Path) -> str:
        """The last complete line of a file; empty if it has none."""
        with errors_named(self.path):
            try:
                opened = file.open("rb")
            except FileNotFoundError:
                return ""
            with opened:
                end = _end_of_line(opened.fileno(), os.fstat(opened.fileno()).st_size)
                opened.seek(_end_of_line(opened.fileno(), end - 1))
                return opened.readline().decode(errors="replace").removesuffix("\n")

    def lines(self, file: Path) -> Iterator[str]:
        """The complete lines of a file, without line ends; an unfinished last line is ignored."""
        with errors_named(self.path):
            try:
                opened = file.open("rb")
            except FileNotFoundError:
                return
            with opened:
                for line in opened:
                    if line.endswith(b"\n"):
                        yield line[:-1].decode()


def make_folder(folder: Path) -> None:
    """Create a private folder, and missing private folders above it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def _end_of_line(descriptor: int, before: int) -> int:
    """Where the last line ends that ends before this place; 0 if none does."""
    while before > 0:
        start = max(0, before - _BLOCK_BYTES)
        line_end = os.pread(descriptor, before - start, start).rfind(b"\n")
        if line_end >= 0:
            return start + line_end + 1
        before = start
    return 0
