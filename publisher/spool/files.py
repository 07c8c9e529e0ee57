"""Files of a context: private, complete or absent, and on disk once synced."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
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


def part_of(key: str) -> str:
    """One of 256 folders, so that none has too many files."""
    return blake2b(key.encode(), digest_size=1).hexdigest()


class Folder:
    """The folder of a context. Files that were written are synced by `sync`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsynced: set[Path] = set()

    def make(self) -> None:
        """Create it, private. Raises `SpoolError`, also if others can write to it."""
        with errors_named(self.path):
            _make(self.path)
            if self.path.stat().st_mode & 0o022:
                raise SpoolError(f"the folder {self.path} is open to other users", hint=f"chmod go-w {self.path}")

    def read(self, file: Path) -> str | None:
        """The text of a file; None if it is missing."""
        with errors_named(self.path):
            try:
                return file.read_text("utf-8")
            except FileNotFoundError:
                return None

    def replace(self, file: Path, text: str) -> bool:
        """Write the text of a file; return False if it was the same."""
        if self.read(file) == text:
            return False
        with errors_named(self.path):
            _make(file.parent)
        self.rewrite(file, iter(text.removesuffix("\n").split("\n")))
        return True

    def remove(self, file: Path) -> None:
        """Remove a file, if it exists."""
        with errors_named(self.path):
            file.unlink(missing_ok=True)
        if file.parent.exists():
            self._unsynced.add(file.parent)

    def append(self, file: Path, text: str) -> None:
        """Append text to a file, in one write; an unfinished line left by a kill is removed first."""
        with errors_named(self.path):
            descriptor = os.open(file, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE_MODE)
            with os.fdopen(descriptor, "r+b") as opened:
                end = _whole_lines(opened.fileno())
                opened.truncate(end)
                opened.seek(end)
                opened.write(text.encode("utf-8"))
        self._unsynced |= {file, file.parent}

    def rewrite(self, file: Path, lines: Iterator[str]) -> None:
        """Write a file with these lines, completely or not at all; they may be read from it at the same time."""
        with errors_named(self.path):
            fresh = file.with_name(f".{file.name}.new")
            content = (f"{line}\n".encode() for line in lines)
            write_partial(fresh, content, lambda: fresh.replace(file), synced=False)
        self._unsynced |= {file, file.parent}

    def lines(self, file: Path) -> Iterator[str]:
        """The complete lines of a file, without line ends; an unfinished last line is ignored."""
        with errors_named(self.path):
            try:
                opened = file.open(encoding="utf-8", newline="\n")
            except FileNotFoundError:
                return
            with opened:
                for line in opened:
                    if line.endswith("\n"):
                        yield line[:-1]

    def files(self, folder: str, pattern: str) -> Iterator[Path]:
        """The files of a kind, in the order of their folders and names."""
        with errors_named(self.path):
            yield from sorted(file for file in (self.path / folder).glob(pattern) if not file.name.startswith("."))

    def remove_all(self, folder: str) -> None:
        """Remove the folder of a kind with all its contents."""
        with errors_named(self.path):
            if (self.path / folder).exists():
                shutil.rmtree(self.path / folder)
        self._unsynced.discard(self.path / folder)

    def sync(self) -> None:
        """Sync what was written to disk, all files at once, which is much faster than one by one."""
        with errors_named(self.path):
            for place in sorted(self._unsynced):
                with suppress(FileNotFoundError):  # removed since
                    sync(place)
        self._unsynced.clear()

    def note(self, text: str | None) -> None:
        """See `Context.note`."""
        file = self.path / _NOTE
        if text is None:
            self.remove(file)
        else:
            self.replace(file, text)
        self.sync()

    def noted(self) -> str | None:
        """See `Context.noted`."""
        text = self.read(self.path / _NOTE)
        return text.removesuffix("\n") if text is not None else None


class FolderContext:
    """Base of contexts with one file for each object: see `publisher.spool.context.SpoolingContext`."""

    pattern: ClassVar[str]
    """Matches the file of each object in the folder of its kind."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder)
        self.startup = self._folder.make
        self.commit = self._folder.sync
        self.note = self._folder.note
        self.noted = self._folder.noted

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Nothing to do: removed objects leave nothing."""

    def make_place(self, kind: Kind) -> None:
        """Create the folder of the kind."""
        with errors_named(self._folder.path):
            _make(self._folder.path / kind.name)

    def has_place(self, kind: Kind) -> bool:
        """Whether the folder of the kind exists."""
        with errors_named(self._folder.path):
            return (self._folder.path / kind.name).is_dir()

    def count(self, kind: Kind) -> int:
        """By the names of the files."""
        with errors_named(self._folder.path):
            return sum(1 for _ in (self._folder.path / kind.name).glob(self.pattern))

    def shutdown(self) -> None:
        """Nothing is kept open."""


def _make(folder: Path) -> None:
    """Create a private folder, and missing private folders above it."""
    if not folder.is_dir():
        _make(folder.parent)
        folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)


def _whole_lines(descriptor: int) -> int:
    """The end of the last complete line of a file."""
    end = os.fstat(descriptor).st_size
    block = 65_536
    while end > 0:
        start = max(0, end - block)
        tail = os.pread(descriptor, end - start, start)
        found = tail.rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
