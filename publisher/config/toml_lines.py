"""The lines of a TOML file on which its tables and keys are."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

KeyPath = tuple[str | int, ...]
_DEEPEST: Final = 8
"""Levels within one value; no setting has more."""


class TomlLines:
    """Finds the line of a key; `text` must be valid TOML."""

    def __init__(self, text: str) -> None:
        self._lines: dict[KeyPath, int] = {}
        tables: Counter[KeyPath] = Counter()
        """How often each array of tables has occurred so far."""
        table: KeyPath = ()
        for number, statement, parsed in _statements(text):
            if statement.startswith("["):
                table = _resolved(tuple(_names(parsed)), tables, new=statement.startswith("[["))
                self._note(table, number)
            else:
                for path in _paths(parsed):
                    self._note((*table, *path), number)

    def _note(self, path: KeyPath, number: int) -> None:
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], number)

    def find(self, path: Sequence[str | int]) -> int | None:
        """The line of a key, or of the innermost table around it that is in the file; None if none is."""
        for length in range(len(path), 0, -1):
            if (number := self._lines.get(tuple(path[:length]))) is not None:
                return number
        return None


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each table header and each key with its value, parsed alone, and the number of its first line."""
    pending, first = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        first = first if pending else number
        pending += line.rstrip("\r") + "\n"
        try:
            parsed = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:  # the value continues on the next line
            continue
        if parsed:
            yield first, pending.lstrip(), parsed
        pending = ""


def _names(header: Any) -> Iterator[str]:
    """The names in the header of a table, from the outermost to the innermost."""
    while header:
        if isinstance(header, list):
            header = header[0]
        else:
            ((name, header),) = header.items()
            yield name


def _resolved(names: Sequence[str], tables: Counter[KeyPath], *, new: bool) -> KeyPath:
    """The path of a table, with the index of each array of tables that it is in."""
    path: KeyPath = ()
    for place, name in enumerate(names, 1):
        path = (*path, name)
        if new and place == len(names):
            tables[path] += 1
        if count := tables[path]:
            path = (*path, count - 1)
    return path


def _paths(value: Any, depth: int = _DEEPEST) -> Iterator[KeyPath]:
    """The path of everything in a value, the outer before the inner."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (name,)
        if depth:
            yield from ((name, *path) for path in _paths(inner, depth - 1))
