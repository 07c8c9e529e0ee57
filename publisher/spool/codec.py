r"""Values of objects as text and back, for every layout of files: a layout only frames the texts.

A character that would end a line, a field, or an item is written `\xHH` (`\uHHHH`, `\UHHHHHHHH`), and so are the
backslash and unprintable characters; a missing value is `\N`, which no text becomes. The type of the value of a
name/value pair is visible: a number is written as a number, and text that looks like a number has its first character
escaped. Where a sublist is one text, it has commas between items, and `=` between name and value.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from publisher.spool.base import Attribute, Scalar, Shape

ABSENT: Final = r"\N"
_ITEMS: Final = ","
_PAIR: Final = "="
_MARKS: Final = {Shape.SINGLE: "", Shape.LIST: _ITEMS, Shape.PAIRS: _ITEMS + _PAIR, Shape.PARTS: ""}
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_NUMBER: Final = re.compile(r"[+-]?(\d|\.\d|inf|nan)", re.IGNORECASE)


@lru_cache
def _escaped_by(marks: str) -> frozenset[str]:
    return frozenset(f"{marks}\\")


def escaped(text: str, marks: str) -> str:
    """Text without control characters, backslashes and these marks."""
    unsafe = _escaped_by(marks)
    if text.isprintable() and unsafe.isdisjoint(text):
        return text
    return "".join([_spelled(char) if char in unsafe or not char.isprintable() else char for char in text])


def _spelled(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unescaped(text: str) -> str:
    """The text that was escaped. Raises `ValueError`."""
    return _ESCAPE.sub(_char, text) if "\\" in text else text


def _char(escape: re.Match[str]) -> str:
    code = int(escape[1] or escape[2] or escape[3], 16)
    if code > sys.maxunicode:
        raise ValueError(f"{escape[0]} is not a character")
    return chr(code)


def cell_text(value: Any, of: Scalar, marks: str) -> str:
    """A cell as text."""
    if isinstance(value, str):
        text = escaped(value, marks)
        return f"{_spelled(text[0])}{text[1:]}" if of == "any" and _NUMBER.match(text) else text
    if value is None:
        return ABSENT
    if of == "flag":
        return "1" if value else "0"
    return bytes(value).hex() if of == "bytes" else repr(value)


def _any_of(text: str) -> int | float | str:
    if not _NUMBER.match(text):
        return unescaped(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


_READ: Final[Mapping[Scalar, Callable[[str], Any]]] = {
    "int": int, "float": float, "text": unescaped, "bytes": bytes.fromhex, "flag": "1".__eq__, "any": _any_of,
}  # fmt: skip


def cell_of(text: str, of: Scalar) -> Any:
    """The cell that has this text. Raises `ValueError`."""
    return None if text == ABSENT else _READ[of](text)


def rows_as_text(attribute: Attribute, value: Any, marks: str) -> list[list[str]]:
    """The rows of a value, each cell as text without these marks."""
    kinds = attribute.columns.values()
    return [
        [cell_text(cell, of, marks) for cell, of in zip(row, kinds, strict=True)] for row in attribute.rows_of(value)
    ]


def value_of_rows(attribute: Attribute, rows: Sequence[Sequence[str]]) -> Any:
    """The value with these rows. Raises `ValueError`."""
    readers = [_READ[of] for of in attribute.columns.values()]
    for row in rows:
        if len(row) != len(readers):
            raise ValueError(f"{len(row)} fields where there are {', '.join(attribute.columns)}: {str(row)[:80]}")
    return attribute.value_of(
        [[None if cell == ABSENT else read(cell) for read, cell in zip(readers, row, strict=False)] for row in rows]
    )


def as_text(attribute: Attribute, value: Any, marks: str) -> str:
    """A value other than subordinate objects as one text; the empty list is absent, a list of one empty text is not."""
    if attribute.single is not None:
        return cell_text(value, attribute.single, marks)
    rows = rows_as_text(attribute, value, marks + _MARKS[attribute.shape])
    return _ITEMS.join([_PAIR.join(row) for row in rows]) if rows else ABSENT


def value_of_text(attribute: Attribute, text: str) -> Any:
    """The value of one text. Raises `ValueError`."""
    if attribute.single is not None:
        return cell_of(text, attribute.single)
    items = text.split(_ITEMS) if text != ABSENT else ()
    return value_of_rows(attribute, [item.split(_PAIR, len(attribute.columns) - 1) for item in items])
