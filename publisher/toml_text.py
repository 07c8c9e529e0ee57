"""TOML out of plain values, for `init` and `import`, and where a file is none.

Text from outside can never become a key or table of its own.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+").fullmatch
_NESTED: Final = 2
"""Tables deeper than this stand in one line."""
_PLACE: Final = re.compile(r"(.*) \(at (?:line (\d+), column (\d+)|end of document)\)", re.DOTALL)
"""How the standard library's reader ends what it says."""
_PASSWORD: Final = re.compile(r"(://[^:/@\s]*:)[^@\s]*@")
_MOST_SHOWN: Final = 80
"""Characters of a line before a mistake, and behind it."""


def text_of(tables: Mapping[str, Any], comments: Mapping[tuple[str, ...], Sequence[str]] | None = None) -> str:
    """The file of these tables: `{"site": {"name": ...}, "sources": {"ce1": {...}}}`.

    Values are text, numbers, truth values, lists and mappings; a list of mappings two tables deep is written as
    `[[...]]`. `comments`: lines to stand above a table, by its place.
    """
    return "\n".join("\n".join(part) + "\n" for part in _parts((), tables, comments or {}))


def mistake(text: str, error: tomllib.TOMLDecodeError) -> str:
    """What is wrong with a text that is no TOML: line, column, and the line with `>>>` before the mistake.

    A password within a URL is not shown.
    """
    told = _PLACE.fullmatch(str(error))
    if told is None:
        return str(error)
    lines = text.rstrip("\r\n").split("\n")
    if told[2] is None:  # the end, of which nobody needs to see blank lines
        number, column = len(lines), len(lines[-1]) + 1
    else:
        number, column = int(told[2]), int(told[3])
    line = lines[number - 1].rstrip("\r") if number <= len(lines) else ""
    before, behind = line[: column - 1], line[column - 1 :]
    cut = ("..." if len(before) > _MOST_SHOWN else "") + before[-_MOST_SHOWN:]
    rest = behind[:_MOST_SHOWN] + ("..." if len(behind) > _MOST_SHOWN else "")
    shown = _PASSWORD.sub(r"\1...@", f"{cut}>>>{rest}")
    return f"line {number}, column {column}: {told[1]}: {shown}"


def quoted(text: object) -> str:
    """A basic string. What a terminal would obey, or not show, is written as an escape."""
    escaped = str(text).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in escaped) + '"'


def _parts(
    place: tuple[str, ...], table: Mapping[str, Any], comments: Mapping[tuple[str, ...], Sequence[str]]
) -> Iterator[list[str]]:
    own = {key: value for key, value in table.items() if not _is_table_below(place, value)}
    heading = [f"# {line}" if line else "#" for line in comments.get(place, ())]
    if place and (own or not any(isinstance(value, Mapping) for value in table.values())):
        heading.append(f"[{_dotted(place)}]")
    lines = [*heading, *(f"{_key(key)} = {_value(value)}" for key, value in own.items())]
    if lines:
        yield lines
    for key, value in table.items():
        if not _is_table_below(place, value):
            continue
        here = (*place, key)
        if isinstance(value, Mapping):
            yield from _parts(here, value, comments)
        else:
            for entry in value:
                yield [f"[[{_dotted(here)}]]", *(f"{_key(name)} = {_value(each)}" for name, each in entry.items())]


def _is_table_below(place: tuple[str, ...], value: object) -> bool:
    if isinstance(value, Mapping):
        return len(place) < _NESTED
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(entry, Mapping) for entry in value)


def _dotted(place: Sequence[str]) -> str:
    return ".".join(_key(name) for name in place)


def _key(name: str) -> str:
    return name if _BARE(name) else quoted(name)


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(str(key))} = {_value(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(each) for each in value) + "]"
    return quoted(value)
