"""One file for each kind, one JSON object on each line, with its sublists; changes are appended, the last line of a key
counts.

    {"key":"...","values":{...}}     the present object
    {"key":"...","values":null}      a removed object

`maintain` removes the lines that no longer count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from publisher.spool.base import Kind, Object, Shape
from publisher.spool.journal import Journal

_TUPLES: Final = frozenset({Shape.LIST, Shape.PARTS})


class _JournalEntry(msgspec.Struct, frozen=True):
    key: str
    values: dict[str, Any] | None


class _ObjectKey(msgspec.Struct, frozen=True):
    key: str
    values: msgspec.Raw


_decode = msgspec.json.Decoder(_JournalEntry).decode
_key_of = msgspec.json.Decoder(_ObjectKey).decode


class JsonLines(Journal):
    """A file of a kind, with a line of JSON for each object."""

    suffix = ".jsonl"
    has_part_files = False

    def lines_of(self, kind: Kind, item: Object) -> Mapping[str, Sequence[str]]:  # noqa: ARG002 - other layouts need it
        """One line in the file of the kind."""
        values = {name: value.hex() if isinstance(value, bytes) else value for name, value in item.values.items()}
        return {"": [msgspec.json.encode(_JournalEntry(item.key, values)).decode()]}

    def end_of(self, kind: Kind, key: str) -> str:  # noqa: ARG002 - as above
        """A line without values."""
        return msgspec.json.encode(_JournalEntry(key, None)).decode()

    def key_of_line(self, line: str) -> tuple[str, bool]:
        """From the start of the line: the values are not decoded."""
        entry = _key_of(line.encode())
        return entry.key, bytes(entry.values) != b"null"

    def reader_of(self, kind: Kind) -> Callable[[str], Object]:
        """Each line is an object."""

        def read(line: str) -> Object:
            entry = _decode(line.encode())
            values = entry.values or {}
            for name, attribute in kind.fields.items():
                value = values.get(name)
                if value is not None and attribute.shape in _TUPLES:
                    values[name] = tuple(value)
                elif value is not None and attribute.single == "bytes":
                    values[name] = bytes.fromhex(value)
            return Object(kind.name, entry.key, values)

        return read
