"""Contexts with one file for each kind: changes are appended, with one write for each commit, and the last line of a
key counts.

A kill leaves an incomplete line, which the next write removes, or a commit that is written again, which changes
nothing. In files that are written once (`once`) each key has one line, and reading keeps nothing in memory.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Final

from publisher.spool.base import Kind, Object
from publisher.spool.files import Folder, errors_named

_MANY: Final = 5000


class Journal(ABC):
    """A context with a journal for each kind. Its format defines the lines."""

    has_part_files: ClassVar[bool]
    """Whether each kind of subordinate object has a file."""

    def __init__(self, folder: Folder, suffix: str) -> None:
        self._folder = folder
        self._suffix = suffix
        self._pending: dict[Path, list[str]] = {}
        self._count = 0
        self.once = False
        self.startup: Callable[[], None] = folder.make
        self.note = folder.note
        self.noted = folder.noted

    # --- of the format

    @abstractmethod
    def lines_of(self, kind: Kind, item: Object) -> dict[str, list[str]]:
        """The lines of an object by part; the line of the object itself has no part name and comes last."""
        ...

    @abstractmethod
    def end_of(self, kind: Kind, key: str) -> str:
        """The line that records the removal of an object."""
        ...

    @abstractmethod
    def key_of_line(self, kind: Kind, line: str) -> tuple[str, bool]:
        """The key of a line, and whether the object exists."""
        ...

    @abstractmethod
    def object_of(self, kind: Kind, line: str, parts: dict[str, list[str]]) -> Object:
        """The object, from its line and those of its parts."""
        ...

    @abstractmethod
    def head_of(self, kind: Kind, part: str) -> str | None:
        """The first line of a file; None: it has none."""
        ...

    @abstractmethod
    def serial_of(self, line: str) -> int:
        """The serial number that connects a line of a part with the line of its object."""
        ...

    @abstractmethod
    def parts_of(self, kind: Kind) -> Callable[[str], dict[str, list[str]]]:
        """A function that gives the lines of the parts for one object after the other, in the order of the file."""
        ...

    # --- of all

    def file_of(self, kind: Kind, part: str = "") -> Path:
        """The file of a kind, or of its subordinate objects."""
        return self._folder.path / f"{kind.name}{'.' if part else ''}{part}{self._suffix}"

    def clear(self, kind: Kind) -> None:
        """Remove the files of the kind."""
        for part in ("", *kind.parts):
            self._pending.pop(self.file_of(kind, part), None)
            self._folder.remove(self.file_of(kind, part))

    def make_place(self, kind: Kind) -> None:
        """Create the files of the kind, with their first line."""
        for part in self._part_files(kind):
            if not self.file_of(kind, part).exists():
                head = self.head_of(kind, part)
                self._folder.append(self.file_of(kind, part), "" if head is None else f"{head}\n")

    def has_place(self, kind: Kind) -> bool:
        """Whether the files of the kind exist."""
        with errors_named(self._folder.path):
            return all(self.file_of(kind, part).exists() for part in self._part_files(kind))

    def _part_files(self, kind: Kind) -> tuple[str, ...]:
        return ("", *(kind.parts if self.has_part_files else ()))

    def count(self, kind: Kind) -> int:
        """How many lines count: all of the file is read."""
        return len(self._last(kind))

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Append the object; it is on disk after the next commit."""
        for part, lines in self.lines_of(kind, item).items():
            self._put(kind, part, lines)
        return True

    def delete_object(self, kind: Kind, key: str) -> None:
        """Append a line that records the removal."""
        self._put(kind, "", [self.end_of(kind, key)])

    def _put(self, kind: Kind, part: str, lines: list[str]) -> None:
        file = self.file_of(kind, part)
        if file not in self._pending:
            head = self.head_of(kind, part)
            self._pending[file] = [head] if head is not None and not file.exists() else []
        self._pending[file] += lines
        self._count += len(lines)
        if self._count >= _MANY:
            self._flush()

    def _flush(self) -> None:
        for file in sorted(self._pending, key=lambda file: file.name.count("."), reverse=True):  # parts first
            if self._pending[file]:
                self._folder.append(file, "\n".join(self._pending[file]) + "\n")
        self._pending.clear()
        self._count = 0

    def commit(self) -> None:
        """Append what was written."""
        self._flush()
        self._folder.sync()

    def shutdown(self) -> None:  # noqa: B027
        """Nothing is kept open."""

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """In the order of the lines that count."""
        last = None if self.once else self._last(kind)
        parts = self.parts_of(kind)
        for number, line in enumerate(self._body(kind)):
            found = parts(line)
            if last is None or number in last:
                yield self.object_of(kind, line, found)

    def read_object(self, kind: Kind, key: str) -> Object | None:
        """By its key: all of the file is read."""
        return next((item for item in self.read_list(kind) if item.key == key), None)

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Remove lines that no longer count. Files of parts are replaced first: at any instant an object that counts
        has its parts."""
        for kind in kinds:
            if self.file_of(kind).exists():
                self._tidy(kind)
        self._folder.sync()

    def _tidy(self, kind: Kind) -> None:
        last = self._last(kind)
        serials = {self.serial_of(line) for number, line in enumerate(self._body(kind)) if number in last}
        for part in kind.parts:
            file = self.file_of(kind, part)
            if file.exists():
                self._folder.rewrite(
                    file, self._kept(kind, part, lambda _number, line: self.serial_of(line) in serials)
                )
        self._folder.rewrite(self.file_of(kind), self._kept(kind, "", lambda number, _line: number in last))

    def _kept(self, kind: Kind, part: str, counts: Callable[[int, str], bool]) -> Iterator[str]:
        head = self.head_of(kind, part)
        if head is not None:
            yield head
        for number, line in enumerate(self._body(kind, part)):
            if counts(number, line):
                yield line

    def _body(self, kind: Kind, part: str = "") -> Iterator[str]:
        lines = self._folder.lines(self.file_of(kind, part))
        if self.head_of(kind, part) is not None:
            next(lines, None)
        return lines

    def _last(self, kind: Kind) -> set[int]:
        """The numbers of the lines that count; about 24 bytes for each key."""
        places: dict[bytes, int] = {}
        for number, line in enumerate(self._body(kind)):
            key, there = self.key_of_line(kind, line)
            mark = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if there:
                places[mark] = number
            else:
                places.pop(mark, None)
        return set(places.values())
