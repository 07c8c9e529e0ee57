"""One file for each kind, with a delimiter between attributes; changes are appended (`publisher.spool.journal`).

    jobs.txt          a line of names, then one line an object: a serial number, `+` or `-`, the key, the attributes
    jobs.hosts.txt    subordinate objects: the serial number of the line they belong to, and their attributes

Lists are texts with commas, pairs name=value with commas between them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from publisher.spool import name_value
from publisher.spool.base import Kind, Object, SpoolError
from publisher.spool.files import Folder
from publisher.spool.journal import Journal

_SUFFIX: Final = ".txt"
_THERE: Final = "+"
_GONE: Final = "-"
_HEAD: Final = ("serial", "state", "key")
_TAIL_BYTES: Final = 4096


class Delimited(Journal):
    """See the module and `publisher.spool.context`."""

    has_part_files = True

    def __init__(self, folder: Path, delimiter: str) -> None:
        super().__init__(Folder(folder), _SUFFIX)
        self._mark = delimiter
        self._serials: dict[str, int] = {}

    def head_of(self, kind: Kind, part: str) -> str | None:
        """The names of the fields."""
        names = (_HEAD[0], *kind.parts[part]) if part else (*_HEAD, *kind.attributes)
        return self._mark.join(names)

    def lines_of(self, kind: Kind, item: Object) -> dict[str, list[str]]:
        """The lines of the object and its subordinate objects, with one serial number."""
        serial = str(self._next_serial(kind))
        found: dict[str, list[str]] = {}
        for part, fields in kind.parts.items():
            if rows := item.values.get(part):
                found[part] = [
                    self._mark.join(
                        (serial, *(name_value.scalar(row.get(name), of, self._mark) for name, of in fields.items()))
                    )
                    for row in rows
                ]
        values = [self._text(kind, name, item.values) for name in kind.attributes]
        found[""] = [self._mark.join((serial, _THERE, name_value.escaped(item.key, self._mark), *values))]
        return found

    def _text(self, kind: Kind, name: str, values: Any) -> str:
        value = values.get(name)
        if value is None:
            return name_value.ABSENT
        if name in kind.scalars:
            return name_value.scalar(value, kind.scalars[name], self._mark)
        return (
            name_value.listed(value, kind.lists[name], self._mark)
            if name in kind.lists
            else name_value.paired(value, self._mark)
        )

    def end_of(self, kind: Kind, key: str) -> str:
        """A line with `-`."""
        return self._mark.join((str(self._next_serial(kind)), _GONE, name_value.escaped(key, self._mark)))

    def key_of_line(self, kind: Kind, line: str) -> tuple[str, bool]:
        """See `Journal`."""
        words = line.split(self._mark, 3)
        if len(words) < len(_HEAD):
            raise SpoolError(f"{kind.name}{_SUFFIX}: a line is not an object: {line[:80]!r}")
        return name_value.unescaped(words[2]), words[1] == _THERE

    def serial_of(self, line: str) -> int:
        """The first field."""
        word = line.partition(self._mark)[0]
        if not (word.isascii() and word.isdigit()):
            raise SpoolError(f"a line has no serial number: {line[:80]!r}")
        return int(word)

    def object_of(self, kind: Kind, line: str, parts: dict[str, list[str]]) -> Object:
        """See `Journal`."""
        words = line.split(self._mark)
        names = (*_HEAD, *kind.attributes)
        if len(words) != len(names):
            raise SpoolError(f"{kind.name}{_SUFFIX}: a line has {len(words)} fields, not {len(names)}: {line[:80]!r}")
        values: dict[str, Any] = {}
        for name, word in zip(names[len(_HEAD) :], words[len(_HEAD) :], strict=True):
            if word == name_value.ABSENT:
                continue
            if name in kind.scalars:
                values[name] = name_value.scalar_of(word, kind.scalars[name])
            else:
                values[name] = (
                    name_value.list_of(word, kind.lists[name]) if name in kind.lists else name_value.pairs_of(word)
                )
        for part, lines in parts.items():
            if lines:
                values[part] = tuple(self._row(kind, part, each) for each in lines)
        return Object(kind.name, name_value.unescaped(words[2]), values)

    def _row(self, kind: Kind, part: str, line: str) -> dict[str, Any]:
        fields = kind.parts[part]
        words = line.split(self._mark)[1:]
        if len(words) != len(fields):
            raise SpoolError(f"{kind.name}.{part}{_SUFFIX}: a line has another number of fields: {line[:80]!r}")
        return {name: name_value.scalar_of(word, of) for (name, of), word in zip(fields.items(), words, strict=True)}

    def parts_of(self, kind: Kind) -> Callable[[str], dict[str, list[str]]]:
        """Both files are in the order of their serial numbers."""
        walks = {part: _PartLines(self._body(kind, part), self.serial_of) for part in kind.parts}

        def of_line(line: str) -> dict[str, list[str]]:
            serial = self.serial_of(line)
            return {part: walk.of(serial) for part, walk in walks.items()}

        return of_line

    def _next_serial(self, kind: Kind) -> int:
        """Greater than all before, in any file of the kind, even if the clock was set back."""
        last = self._serials.get(kind.name)
        if last is None:
            files = [self.file_of(kind), *(self.file_of(kind, part) for part in kind.parts)]
            last = max(time.time_ns(), *(_last_serial(file, self._mark) for file in files))
        self._serials[kind.name] = last + 1
        return last + 1


class _PartLines:
    """Lines of parts, read in parallel with those of their objects."""

    def __init__(self, lines: Iterator[str], serial_of: Callable[[str], int]) -> None:
        self._lines = lines
        self._serial_of = serial_of
        self._next: tuple[int, str] | None = None
        self._advance()

    def _advance(self) -> None:
        line = next(self._lines, None)
        self._next = (self._serial_of(line), line) if line is not None else None

    def of(self, serial: int) -> list[str]:
        """The lines of one object; lines of earlier objects that were not completed are skipped."""
        found = []
        while self._next is not None and self._next[0] <= serial:
            if self._next[0] == serial:
                found.append(self._next[1])
            self._advance()
        return found


def _last_serial(file: Path, mark: str) -> int:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            block = _TAIL_BYTES
            while True:
                opened.seek(max(0, size - block))
                lines = opened.read().splitlines()
                if len(lines) > 2 or block >= size:
                    break
                block *= 4
    except FileNotFoundError:
        return 0
    words = [line.partition(mark.encode())[0] for line in lines[-2:]]
    return max((int(word) for word in words if word.isdigit()), default=0)
