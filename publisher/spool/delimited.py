"""One file for each kind, with a delimiter between attributes; changes are appended (`publisher.spool.journal`).

    jobs.txt          a line of names, then one line an object: a serial number, `+` or `-`, the key, the attributes
    jobs.hosts.txt    subordinate objects: the serial number of the line they belong to, and their attributes

Lists are texts with commas, pairs name=value with commas between them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Final

from publisher.spool.base import Kind, Object
from publisher.spool.codec import ABSENT, as_text, escaped, rows_as_text, unescaped, value_of_rows, value_of_text
from publisher.spool.journal import Journal

_THERE: Final = "+"
_GONE: Final = "-"
_HEAD: Final = ("serial", "state", "key")


class Delimited(Journal):
    """Files of a kind and of its subordinate objects, a line each, with fields between delimiters."""

    suffix = ".txt"

    def __init__(self, path: Path, delimiter: str) -> None:
        super().__init__(path)
        self._mark = delimiter
        self._serials: dict[str, int] = {}

    def head_of(self, kind: Kind, part: str) -> Sequence[str]:
        """The names of the fields."""
        names = (_HEAD[0], *kind.parts[part].columns) if part else (*_HEAD, *kind.attributes)
        return [self._mark.join(names)]

    def lines_of(self, kind: Kind, item: Object) -> Mapping[str, Sequence[str]]:
        """The lines of the object and its subordinate objects, with one serial number."""
        mark, serial, values = self._mark, str(self._next_serial(kind)), item.values
        lines = {
            part: [mark.join((serial, *row)) for row in rows_as_text(attribute, values.get(part, ()), mark)]
            for part, attribute in kind.parts.items()
        }
        texts = [
            as_text(attribute, values[name], mark) if name in values else ABSENT
            for name, attribute in kind.attributes.items()
        ]
        return lines | {"": [mark.join((serial, _THERE, escaped(item.key, mark), *texts))]}

    def end_of(self, kind: Kind, key: str) -> str:
        """A line with `-`."""
        return self._mark.join((str(self._next_serial(kind)), _GONE, escaped(key, self._mark)))

    def key_of_line(self, line: str) -> tuple[str, bool]:
        """The third and second field."""
        self._serial_of(line)
        words = line.split(self._mark, len(_HEAD))
        if len(words) < len(_HEAD):
            raise ValueError(f"it has no key: {line[:80]!r}")
        return unescaped(words[2]), words[1] == _THERE

    def reader_of(self, kind: Kind) -> Callable[[str], Object]:
        """Lines of parts are read in parallel with those of their objects."""
        parts = {part: _PartLines(self.body(kind, part), self._serial_of) for part in kind.parts}
        width = len(_HEAD) + len(kind.attributes)

        def read(line: str) -> Object:
            fields = line.split(self._mark)
            if len(fields) != width:
                raise ValueError(f"it has {len(fields)} fields, not {width}: {line[:80]!r}")
            texts = zip(kind.attributes.items(), fields[len(_HEAD) :], strict=True)
            values = {name: value_of_text(attribute, text) for (name, attribute), text in texts if text != ABSENT}
            serial = self._serial_of(line)
            for part, lines in parts.items():
                try:
                    if rows := [line.split(self._mark)[1:] for line in lines.of(serial)]:
                        values[part] = value_of_rows(kind.parts[part], rows)
                except ValueError as error:
                    raise ValueError(f"its lines in {self.file_of(kind, part).name}: {error}") from None
            return Object(kind.name, unescaped(fields[2]), values)

        return read

    def tidy(self, kind: Kind, last: Collection[int]) -> None:
        """Replace files of parts first: at any instant an object that counts has its parts."""
        serials = {self._serial_of(line) for number, line in enumerate(self.body(kind)) if number in last}
        for part in kind.parts:
            if self.file_of(kind, part).exists():
                lines = (line for line in self.body(kind, part) if self._serial_of(line) in serials)
                self.rewrite(self.file_of(kind, part), chain(self.head_of(kind, part), lines))
        super().tidy(kind, last)

    def _serial_of(self, line: str) -> int:
        word = line.partition(self._mark)[0]
        if not (word.isascii() and word.isdigit()):
            raise ValueError(f"it has no serial number: {line[:80]!r}")
        return int(word)

    def _next_serial(self, kind: Kind) -> int:
        """Greater than all before, in any file of the kind, even if the clock was set back."""
        if kind.name not in self._serials:
            words = [self.last_line(file).partition(self._mark)[0] for file in self._files(kind).values()]
            self._serials[kind.name] = max([time.time_ns(), *(int(word) for word in words if word.isdecimal())])
        self._serials[kind.name] += 1
        return self._serials[kind.name]


class _PartLines:
    """Lines of parts, in the order of their serial numbers, as are the lines of their objects."""

    def __init__(self, lines: Iterable[str], serial_of: Callable[[str], int]) -> None:
        self._groups = groupby(lines, serial_of)
        self._serial: float = -1
        self._lines: list[str] = []
        self.of(0)  # a file that is something else is noticed even if no object has lines in it

    def of(self, serial: int) -> list[str]:
        """The lines of one object; those of objects that were not completed, or no longer count, are skipped."""
        while self._serial < serial:
            self._serial, lines = next(self._groups, (math.inf, iter(())))
            self._lines = [*lines]
        return self._lines if self._serial == serial else []
