"""One file for each kind, one JSON object on each line, with its sublists; changes are appended, the last line of a key
counts.

    {"key":"...","values":{...}}     the present object
    {"key":"...","values":null}      a removed object

`maintain` removes the lines that no longer count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import GenericAlias
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from publisher.spool.base import Attribute, Kind, Object, Scalar, Shape
from publisher.spool.journal import Journal

_TYPES: Final[Mapping[Scalar, Any]] = {
    "int": int, "float": float, "text": str, "bytes": str, "flag": bool, "any": int | float | str,
}  # fmt: skip
"""As they are in JSON."""


class _JournalEntry(msgspec.Struct, frozen=True):
    key: str
    values: dict[str, Any] | None


class _ObjectKey(msgspec.Struct, frozen=True):
    key: str
    values: msgspec.Raw


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

        decode = _decoder(kind)
        in_hex = [name for name, attribute in kind.fields.items() if attribute.single == "bytes"]

        def read(line: str) -> Object:
            entry = decode(line)
            values = msgspec.to_builtins(entry.values) if entry.values is not None else {}
            for name in in_hex:
                if name in values:
                    values[name] = bytes.fromhex(values[name])
            return Object(kind.name, entry.key, values)

        return read


def _decoder(kind: Kind) -> Callable[[str], Any]:
    """It refuses unknown attributes, and values of other types."""
    fields = [(str(name), _type_of(name, attribute) | UnsetType, UNSET) for name, attribute in kind.fields.items()]
    values = msgspec.defstruct(kind.name, fields, forbid_unknown_fields=True)
    entry = msgspec.defstruct("Entry", [("key", str), ("values", values | None)], forbid_unknown_fields=True)
    return msgspec.json.Decoder(entry).decode


def _type_of(name: str, attribute: Attribute) -> Any:
    columns = {column: _TYPES[of] for column, of in attribute.columns.items()}
    match attribute.shape:
        case Shape.SINGLE:
            return columns["value"]
        case Shape.LIST:
            return GenericAlias(tuple, (columns["value"], ...))
        case Shape.PAIRS:
            return GenericAlias(dict, (str, columns["value"]))
        case Shape.PARTS:
            fields = [(column, of | None) for column, of in columns.items()]
            return GenericAlias(tuple, (msgspec.defstruct(name, fields, forbid_unknown_fields=True), ...))
