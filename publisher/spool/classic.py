"""One object a file, one name and its value a line, with white space between: as Grid Engine spools its objects.

    jobs/3f/ur-torque,.../object     names and values; lists as texts with commas, pairs as name=value
    jobs/3f/ur-torque,.../hosts      subordinate objects in files beside it: a line of names, then one line each

An object without subordinate ones may have them in its next version, so each has a folder of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from publisher.spool import text
from publisher.spool.errors import SpoolError
from publisher.spool.files import Folder, name_of, part_of, told
from publisher.spool.objects import Kind, Object, Scalar

_OBJECT: Final = "object"
_KEY: Final = "spooled_as"
"""What the key is called in the files: no attribute is."""
_WIDTH: Final = 21
_MARKS: Final = "\t"


class Classic:
    """See the module and `publisher.spool.context`."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder)
        self.startup = self._folder.make
        self.commit = self._folder.sync
        self.note = self._folder.note
        self.noted = self._folder.noted

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Take away the folders of objects that are gone."""
        with told(self._folder.path):
            for kind in kinds:
                for folder in self._folder.path.glob(f"{kind.name}/??/*"):
                    if not any(folder.iterdir()):
                        folder.rmdir()

    def shutdown(self) -> None:
        """Nothing is kept open."""

    def clear(self, kind: Kind) -> None:
        """The folder of the kind goes."""
        self._folder.remove_all(kind.name)

    def write_object(self, kind: Kind, item: Object) -> bool:
        """Subordinate objects first, so that an object that is new is there when all of it is."""
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
        """The object first, its subordinate ones then."""
        folder = self._place(kind, key)
        for name in (_OBJECT, *kind.parts):
            self._folder.remove(folder / name)

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """In the order of the files."""
        for file in self._folder.files(kind.name, f"??/*/{_OBJECT}"):
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
                key = text.unescaped(value)
            elif name in kind.scalars:
                values[name] = text.scalar_of(value, kind.scalars[name])
            elif name in kind.lists:
                values[name] = text.list_of(value, kind.lists[name])
            elif name in kind.pairs:
                values[name] = text.pairs_of(value)
            else:
                raise SpoolError(f"{file}: unknown attribute {name[:80]!r}")
        if key is None:
            raise SpoolError(f"{file}: it has no key, so it is not whole")
        for part, fields in kind.parts.items():
            rows = list(_part_rows(self._folder.lines(file.parent / part), fields))
            if rows:
                values[part] = tuple(rows)
        return Object(kind.name, key, values)


def _object_text(kind: Kind, item: Object) -> str:
    lines = [(_KEY, text.escaped(item.key, " "))]
    for name, value in item.values.items():
        if name in kind.scalars:
            shown = text.scalar(value, kind.scalars[name], "")
            lines.append((name, f"\\x20{shown[1:]}" if shown.startswith(" ") else shown))
        elif name in kind.lists:
            lines.append((name, text.listed(value, kind.lists[name], " ")))
        elif name in kind.pairs:
            lines.append((name, text.paired(value, " ")))
    return "".join(f"{name:<{_WIDTH}} {shown}\n" for name, shown in lines)


def _part_text(rows: Any, fields: Mapping[str, Scalar]) -> str:
    head = text.fields(list(fields), _MARKS)
    return head + "".join(
        text.fields([text.scalar(row.get(name), kind, _MARKS) for name, kind in fields.items()], _MARKS) for row in rows
    )


def _part_rows(lines: Iterator[str], fields: Mapping[str, Scalar]) -> Iterator[dict[str, Any]]:
    head = next(lines, None)
    names = head.split(_MARKS) if head is not None else []
    for line in lines:
        yield {name: text.scalar_of(value, fields[name]) for name, value in zip(names, line.split(_MARKS), strict=True)}
