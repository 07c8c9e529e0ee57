r"""One file for each object, with one name and value on each line, separated by white space, as Grid Engine spools
objects.

    jobs/3f/ur-torque,.../object     names and values; lists as texts with commas, pairs as name=value
    jobs/3f/ur-torque,.../hosts      subordinate objects in files beside it: a line of names, then one line each

An object without subordinate objects may have them in its next version, so each object has a folder. This module also
converts values to text and back, for all files of lines. A character that would end a line, a field, or an item is
written `\xHH` (`\uHHHH`, `\UHHHHHHHH`), and so are the backslash and unprintable characters; a missing value is `\N`,
which no text becomes. The type of the value of a name/value pair is visible: a number is written as a number, and text
that looks like a number has its first character escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from publisher.spool.base import Kind, Object, Scalar, SpoolError
from publisher.spool.files import FolderContext, errors_named, name_of, part_of

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
        raise SpoolError(f"{text[:80]!r} is not a {kind}") from None


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
            raise SpoolError(f"{item[:80]!r} is not a pair of a name and a value")
        found[unescaped(name)] = loose_of(value)
    return found


def _loose(value: Any, marks: str) -> str:
    if isinstance(value, str):
        text = escaped(value, marks)
        return f"\\x{ord(text[0]):02x}{text[1:]}" if _NUMBER.match(text) else text
    return repr(value)


def loose(value: Any) -> str:
    """The value of a pair as text that shows its type."""
    return _loose(value, "")


def loose_of(text: str) -> Any:
    """The value of a pair."""
    if not _NUMBER.match(text):
        return unescaped(text)
    try:
        return int(text)
    except ValueError:
        return float(text)


def joined(values: Sequence[str], mark: str) -> str:
    """One line of fields separated by marks, which the fields do not contain."""
    return mark.join(values) + "\n"


_OBJECT: Final = "object"
_KEY: Final = "spooled_as"
"""The name of the key in the files; no attribute has this name."""
_WIDTH: Final = 21
_MARKS: Final = "\t"


class Classic(FolderContext):
    """See the module and `publisher.spool.context`."""

    pattern = f"??/*/{_OBJECT}"

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Remove the folders of objects that are gone."""
        with errors_named(self._folder.path):
            for kind in kinds:
                for folder in self._folder.path.glob(f"{kind.name}/??/*"):
                    if not any(folder.iterdir()):
                        folder.rmdir()

    def clear(self, kind: Kind) -> None:
        """Remove the folder of the kind."""
        self._folder.remove_all(kind.name)

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Write subordinate objects first, so that a new object exists only when it is complete."""
        folder = self._place(kind, item.key)
        written = False
        for part, fields in kind.parts.items():
            rows = item.values.get(part, ())
            file = folder / part
            if rows:
                written |= self._folder.replace(file, _part_text(rows, fields))
            elif file.exists():
                self._folder.remove(file)
                written = True
        return self._folder.replace(folder / _OBJECT, _object_text(kind, item)) or written

    def delete_object(self, kind: Kind, key: str) -> None:
        """Remove the object first, then its subordinate objects."""
        folder = self._place(kind, key)
        for name in (_OBJECT, *kind.parts):
            self._folder.remove(folder / name)

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """In the order of the files."""
        for file in self._folder.files(kind.name, self.pattern):
            yield self._read(kind, file)

    def read_object(self, kind: Kind, key: str) -> Object | None:
        """By its key."""
        file = self._place(kind, key) / _OBJECT
        return self._read(kind, file) if file.exists() else None

    def _place(self, kind: Kind, key: str) -> Path:
        return self._folder.path / kind.name / part_of(key) / name_of(key)

    def _read(self, kind: Kind, file: Path) -> Object:
        values: dict[str, Any] = {}
        key = None
        for line in self._folder.lines(file):
            name, _, rest = line.partition(" ")
            value = rest.lstrip(" ")
            if name == _KEY:
                key = unescaped(value)
            elif name in kind.scalars:
                values[name] = scalar_of(value, kind.scalars[name])
            elif name in kind.lists:
                values[name] = list_of(value, kind.lists[name])
            elif name in kind.pairs:
                values[name] = pairs_of(value)
            else:
                raise SpoolError(f"{file}: unknown attribute {name[:80]!r}")
        if key is None:
            raise SpoolError(f"{file}: it has no key, so it is incomplete")
        for part, fields in kind.parts.items():
            rows = list(_part_rows(self._folder.lines(file.parent / part), fields))
            if rows:
                values[part] = tuple(rows)
        return Object(kind.name, key, values)


def _object_text(kind: Kind, item: Object) -> str:
    lines = [(_KEY, escaped(item.key, " "))]
    for name, value in item.values.items():
        if name in kind.scalars:
            shown = scalar(value, kind.scalars[name], "")
            lines.append((name, f"\\x20{shown[1:]}" if shown.startswith(" ") else shown))
        elif name in kind.lists:
            lines.append((name, listed(value, kind.lists[name], " ")))
        elif name in kind.pairs:
            lines.append((name, paired(value, " ")))
    return "".join(f"{name:<{_WIDTH}} {shown}\n" for name, shown in lines)


def _part_text(rows: Any, fields: Mapping[str, Scalar]) -> str:
    head = joined(list(fields), _MARKS)
    return head + "".join(
        joined([scalar(row.get(name), kind, _MARKS) for name, kind in fields.items()], _MARKS) for row in rows
    )


def _part_rows(lines: Iterator[str], fields: Mapping[str, Scalar]) -> Iterator[dict[str, Any]]:
    head = next(lines, None)
    names = head.split(_MARKS) if head is not None else []
    for line in lines:
        yield {name: scalar_of(value, fields[name]) for name, value in zip(names, line.split(_MARKS), strict=True)}
