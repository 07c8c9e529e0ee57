"""One file for each kind, one JSON object on each line, with its sublists; changes are appended, the last line of a key
counts.

    {"key":"...","values":{...}}     the present object
    {"key":"...","values":null}      a removed object

`maintain` removes the lines that no longer count.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.spool.base import Kind, Object, SpoolError
from publisher.spool.files import Folder
from publisher.spool.journal import Journal

_SUFFIX: Final = ".jsonl"


class _JournalEntry(msgspec.Struct, frozen=True):
    key: str
    values: dict[str, Any] | None


class _ObjectKey(msgspec.Struct, frozen=True):
    key: str
    values: msgspec.Raw


_decode = msgspec.json.Decoder(_JournalEntry).decode
_key_of = msgspec.json.Decoder(_ObjectKey).decode


class JsonLines(Journal):
    """See the module, `publisher.spool.journal` and `publisher.spool.context`."""

    has_part_files = False

    def __init__(self, folder: Path) -> None:
        super().__init__(Folder(folder), _SUFFIX)

    def lines_of(self, kind: Kind, item: Object) -> dict[str, list[str]]:
        """One line in the file of the kind."""
        values = {
            name: bytes(value).hex() if kind.scalars.get(name) == "bytes" and value is not None else value
            for name, value in item.values.items()
        }
        return {"": [msgspec.json.encode(_JournalEntry(item.key, values)).decode()]}

    def end_of(self, kind: Kind, key: str) -> str:  # noqa: ARG002 - the others need it
        """The line that records the removal of an object."""
        return msgspec.json.encode(_JournalEntry(key, None)).decode()

    def key_of_line(self, kind: Kind, line: str) -> tuple[str, bool]:
        """The key of a line, and whether the object exists."""
        try:
            found = _key_of(line.encode())
        except msgspec.DecodeError as error:
            raise SpoolError(f"{kind.name}{_SUFFIX}: a line is not an object: {error}") from None
        return found.key, bytes(found.values) != b"null"

    def object_of(self, kind: Kind, line: str, parts: dict[str, list[str]]) -> Object:  # noqa: ARG002 - the others need it
        """The object of its line."""
        try:
            found = _decode(line.encode())
        except msgspec.DecodeError as error:
            raise SpoolError(f"{kind.name}{_SUFFIX}: a line is not an object: {error}") from None
        values: dict[str, Any] = {}
        for name, value in (found.values or {}).items():
            if name in kind.lists or name in kind.parts:
                values[name] = tuple(value)
            elif kind.scalars.get(name) == "bytes" and value is not None:
                values[name] = bytes.fromhex(value)
            else:
                values[name] = value
        return Object(kind.name, found.key, values)

    def head_of(self, kind: Kind, part: str) -> None:  # noqa: ARG002 - the others need it
        """There is none."""
        return

    def serial_of(self, line: str) -> int:  # noqa: ARG002 - the others need it
        """Parts have no files of their own."""
        return 0

    def parts_of(self, kind: Kind) -> Callable[[str], dict[str, list[str]]]:  # noqa: ARG002 - the others need it
        """They are in the object's line."""
        return lambda _line: {}
