"""Contexts with one file for each kind: changes are appended, with one write for each commit, and the last line of a
key counts.

A kill leaves an incomplete line, which the next write removes, or a commit that is written again, which changes
nothing. In files that are written once (`once`) each key has one line, and reading keeps nothing in memory.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Final

from publisher.spool.base import Kind, Object, SpoolError
from publisher.spool.files import FolderContext, errors_named

_MANY: Final = 5000


class Journal(FolderContext, ABC):
    """A context with a journal for each kind. Its layout defines the lines."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._pending: dict[Path, list[str]] = {}
        self._count = 0
        self.once = False

    # --- of the layout

    @abstractmethod
    def lines_of(self, kind: Kind, item: Object) -> Mapping[str, Sequence[str]]:
        """The lines of an object by part; the line of the object itself has no part name."""
        ...

    @abstractmethod
    def end_of(self, kind: Kind, key: str) -> str:
        """The line that records the removal of an object."""
        ...

    @abstractmethod
    def key_of_line(self, line: str) -> tuple[str, bool]:
        """The key of a line, and whether the object exists. Raises `ValueError`."""
        ...

    @abstractmethod
    def reader_of(self, kind: Kind) -> Callable[[str], Object]:
        """A function that makes the objects of lines, in the order of the file. It raises as `key_of_line`, and
        `TypeError`."""
        ...

    def head_of(self, kind: Kind, part: str) -> Sequence[str]:  # noqa: ARG002 - layouts with one need it
        """The lines at the start of a file, which are of no object."""
        return ()

    def tidy(self, kind: Kind, last: Collection[int]) -> None:
        """Keep only the lines with these numbers."""
        lines = (line for number, line in enumerate(self.body(kind)) if number in last)
        self.rewrite(self.file_of(kind), chain(self.head_of(kind, ""), lines))

    # --- of all

    def clear(self, kind: Kind) -> None:
        """Remove the files of the kind."""
        for file in self._files(kind).values():
            self._pending.pop(file, None)
            self.remove(file)

    def make_place(self, kind: Kind) -> None:
        """Create the files of the kind, with their first line."""
        for part, file in self._files(kind).items():
            if not file.exists():
                self.append(file, self.head_of(kind, part))

    def has_place(self, kind: Kind) -> bool:
        """Whether the files of the kind exist."""
        with errors_named(self.path):
            return all(file.exists() for file in self._files(kind).values())

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

    def commit(self) -> None:
        """Append what was written, and sync it to disk."""
        self._flush()
        super().commit()

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """In the order of the lines that count."""
        last = None if self.once else self._last(kind)
        with self._damage_named(kind) as lines:
            read = self.reader_of(kind)
            for number, line in enumerate(lines):
                if last is None or number in last:
                    yield read(line)

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Remove lines that no longer count."""
        for kind in kinds:
            if self.file_of(kind).exists():
                with self._damage_named(kind):
                    self.tidy(kind, self._last(kind))
        super().commit()

    def file_of(self, kind: Kind, part: str = "") -> Path:
        """The file of a kind, or of its subordinate objects."""
        return self.path / f"{kind.name}{'.' if part else ''}{part}{self.suffix}"

    def body(self, kind: Kind, part: str = "") -> Iterator[str]:
        """The lines of objects."""
        return islice(self.lines(self.file_of(kind, part)), len(self.head_of(kind, part)), None)

    def _files(self, kind: Kind) -> dict[str, Path]:
        return {part: self.file_of(kind, part) for part in ("", *self.part_files(kind))}

    def _put(self, kind: Kind, part: str, lines: Sequence[str]) -> None:
        file = self.file_of(kind, part)
        if file not in self._pending:
            self._pending[file] = [] if file.exists() else [*self.head_of(kind, part)]
        self._pending[file] += lines
        self._count += len(lines)
        if self._count >= _MANY:
            self._flush()

    def _flush(self) -> None:
        for file in sorted(self._pending, key=lambda file: file.name.count("."), reverse=True):  # parts first
            if self._pending[file]:
                self.append(file, self._pending[file])
        self._pending.clear()
        self._count = 0

    def _last(self, kind: Kind) -> set[int]:
        """The numbers of the lines that count; about 24 bytes for each key."""
        numbers: dict[bytes, int] = {}
        with self._damage_named(kind) as lines:
            for number, line in enumerate(lines):
                key, exists = self.key_of_line(line)
                mark = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()
                if exists:
                    numbers[mark] = number
                else:
                    numbers.pop(mark, None)
        return set(numbers.values())

    @contextmanager
    def _damage_named(self, kind: Kind) -> Iterator[_Lines]:
        lines = _Lines(self.body(kind), first=len(self.head_of(kind, "")) + 1)
        try:
            yield lines
        except (ValueError, TypeError) as error:
            place = f"{self.file_of(kind)}:{lines.number}"
            raise SpoolError(f"{place}: the line is not an object: {error}") from None


class _Lines:
    """Lines of a file; `number`: that of the line which is read."""

    def __init__(self, lines: Iterator[str], first: int) -> None:
        self._lines = lines
        self.number = first

    def __iter__(self) -> Iterator[str]:
        for line in self._lines:
            yield line
            self.number += 1
