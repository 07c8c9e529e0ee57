r"""Values as text in files of lines, both ways.

What would end a line, a field or an item is written `\xHH` (`\uHHHH`, `\UHHHHHHHH`), as are the backslash and what
cannot be printed; an absent value is `\N`, which no text becomes. The value of a name/value pair says its type by how
it looks: a number is a number, and text that looks like one has its first character spelled so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from publisher.spool.errors import SpoolError
from publisher.spool.objects import Scalar

ABSENT: Final = r"\N"
ITEMS: Final = ","
PAIR: Final = "="
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-f]{2})|u([0-9a-f]{4})|U([0-9a-f]{8}))")
_NUMBER: Final = re.compile(r"[+-]?(\d|\.\d|inf|nan)", re.IGNORECASE)


def escaped(text: str, marks: str) -> str:
    """Text without control characters, backslashes and these marks."""
    if text.isprintable() and not any(mark in text for mark in (*marks, "\\")):
        return text
    return "".join(_spelled(char) if char in marks or char == "\\" or not char.isprintable() else char for char in text)


def _spelled(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def unescaped(text: str) -> str:
    """The text that was escaped."""
    return _ESCAPE.sub(lambda found: chr(int(found[1] or found[2] or found[3], 16)), text) if "\\" in text else text


def scalar(value: Any, kind: Scalar, marks: str) -> str:
    """A value as text."""
    if value is None:
        return ABSENT
    if kind == "bytes":
        return bytes(value).hex()
    if kind == "flag":
        return "1" if value else "0"
    return escaped(value, marks) if kind == "text" else repr(value)


def scalar_of(text: str, kind: Scalar) -> Any:
    """The value of its text. Raises `SpoolError`."""
    if text == ABSENT:
        return None
    try:
        match kind:
            case "int":
                return int(text)
            case "float":
                return float(text)
            case "bytes":
                return bytes.fromhex(text)
            case "flag":
                return text == "1"
            case "text":
                return unescaped(text)
    except ValueError:
        raise SpoolError(f"{text[:80]!r} is no {kind}") from None


def listed(values: Iterable[Any], kind: Scalar, marks: str) -> str:
    """A list of values as a list of texts; the empty list is absent, a list of one empty text is not."""
    return ITEMS.join(scalar(value, kind, marks + ITEMS) for value in values) or ABSENT


def list_of(text: str, kind: Scalar) -> tuple[Any, ...]:
    """The values of a list."""
    return () if text == ABSENT else tuple(scalar_of(item, kind) for item in text.split(ITEMS))


def paired(pairs: Mapping[str, Any], marks: str) -> str:
    """Name/value pairs as a list of texts."""
    marks += ITEMS + PAIR
    return ITEMS.join(f"{escaped(name, marks)}{PAIR}{_loose(value, marks)}" for name, value in pairs.items()) or ABSENT


def pairs_of(text: str) -> dict[str, Any]:
    """The name/value pairs of a list. Raises `SpoolError`."""
    found: dict[str, Any] = {}
    for item in text.split(ITEMS) if text != ABSENT else ():
        name, mark, value = item.partition(PAIR)
        if not mark:
            raise SpoolError(f"{item[:80]!r} is no pair of a name and a value")
        found[unescaped(name)] = loose_of(value)
    return found


def _loose(value: Any, marks: str) -> str:
    if isinstance(value, str):
        text = escaped(value, marks)
        return f"\\x{ord(text[0]):02x}{text[1:]}" if _NUMBER.match(text) else text
    return repr(value)


def loose(value: Any) -> str:
    """The value of a pair as text that tells its type."""
    return _loose(value, "")


def loose_of(text: str) -> Any:
    """The value of a pair."""
    if not _NUMBER.match(text):
        return unescaped(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def fields(values: Sequence[str], mark: str) -> str:
    """One line of fields between marks, which the fields do not hold."""
    return mark.join(values) + "\n"
