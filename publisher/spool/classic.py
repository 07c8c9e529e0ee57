"""One file for each object, with one name and value on each line, separated by white space, as Grid Engine spools
objects.

    jobs/3f/ur-torque,.../object     names and values; lists as texts with commas, pairs as name=value
    jobs/3f/ur-torque,.../hosts      subordinate objects in files beside it: a line of names, then one line each

An object without subordinate objects may have them in its next version, so each object has a folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from publisher.spool.base import Attribute, Kind, Object, parts_of
from publisher.spool.codec import as_text, escaped, rows_as_text, unescaped, value_of_rows, value_of_text
from publisher.spool.files import errors_named
from publisher.spool.object_files import ObjectFiles

_KEY: Final = "spooled_as"
"""The name of the key in the files; no attribute has this name."""
_WIDTH: Final = 21
_SPACE: Final = " "
_TAB: Final = "\t"


class Classic(ObjectFiles):
    """A folder for each object, with lines of names and values."""

    suffix = "/object"

    def maintain(self, kinds: Sequence[Kind]) -> None:
        """Remove the folders of objects that are gone."""
        with errors_named(self.path):
            for kind in kinds:
                for folder in self.path.glob(f"{kind.name}/??/*"):
                    if not any(folder.iterdir()):
                        folder.rmdir()

    def texts_of(self, kind: Kind, item: Object) -> Mapping[str, str]:
        """Lines with their ends."""
        lines = [(_KEY, escaped(item.key, _SPACE))]
        texts: dict[str, str] = {}
        for name, value in item.values.items():
            if name in kind.attributes:
                lines.append((name, _shown(kind.attributes[name], value)))
            elif value and name in kind.parts:
                rows = rows_as_text(kind.parts[name], value, _TAB)
                texts[name] = _text(map(_TAB.join, (kind.parts[name].columns, *rows)))
        return texts | {"": _text(f"{name:<{_WIDTH}} {shown}" for name, shown in lines)}

    def object_of(self, kind: Kind, texts: Mapping[str, str]) -> Object:
        """From complete lines."""
        values: dict[str, Any] = {}
        key = None
        for line in _lines(texts[""]):
            name, _, rest = line.partition(_SPACE)
            shown = rest.lstrip(_SPACE)
            if name == _KEY:
                key = unescaped(shown)
            elif name in kind.attributes:
                values[name] = value_of_text(kind.attributes[name], shown)
            else:
                raise ValueError(f"unknown attribute {name[:80]!r}")
        if key is None:
            raise ValueError("it has no key, so it is incomplete")
        for part, attribute in kind.parts.items():
            head, *rows = [line.split(_TAB) for line in _lines(texts.get(part, ""))] or [[]]
            if rows:
                values[part] = value_of_rows(parts_of({name: attribute.columns[name] for name in head}), rows)
        return Object(kind.name, key, values)


def _shown(attribute: Attribute, value: Any) -> str:
    """Spaces stay in a single value, except at its start."""
    if attribute.single is None:
        return as_text(attribute, value, _SPACE)
    shown = as_text(attribute, value, "")
    return f"\\x20{shown[1:]}" if shown.startswith(_SPACE) else shown


def _text(lines: Iterable[str]) -> str:
    return "".join([f"{line}\n" for line in lines])


def _lines(text: str) -> list[str]:
    *lines, rest = text.split("\n")
    if rest:
        raise ValueError("its last line is incomplete")
    return lines
