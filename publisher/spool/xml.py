"""One file for each object, as XML, with its sublists.

    <jobs key="..."><queue>main</queue><fqans><item>/atlas</item></fqans><extras><pair name="x">1</pair></extras>
    <hosts><part><name>wn1</name></part></hosts></jobs>

Characters that XML cannot express are escaped as in the other text files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from lxml import etree

from publisher.spool import name_value
from publisher.spool.base import Kind, Object, Scalar, SpoolError
from publisher.spool.files import FolderContext, name_of, part_of

_SUFFIX: Final = ".xml"
_PARSER: Final = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


class Xml(FolderContext):
    """See the module and `publisher.spool.context`."""

    pattern = f"??/*{_SUFFIX}"

    def clear(self, kind: Kind) -> None:
        """Remove the folder of the kind."""
        self._folder.remove_all(kind.name)

    def write_object(self, kind: Kind, item: Object) -> bool:
        """One file."""
        root = _element(kind, item)
        etree.indent(root)
        return self._folder.replace(self._place(kind, item.key), etree.tostring(root, encoding="unicode") + "\n")

    def delete_object(self, kind: Kind, key: str) -> None:
        """Remove its file."""
        self._folder.remove(self._place(kind, key))

    def read_list(self, kind: Kind) -> Iterator[Object]:
        """In the order of the files."""
        for file in self._folder.files(kind.name, self.pattern):
            found = self._read(kind, file)
            if found is not None:
                yield found

    def read_object(self, kind: Kind, key: str) -> Object | None:
        """By its key."""
        return self._read(kind, self._place(kind, key))

    def _place(self, kind: Kind, key: str) -> Path:
        return self._folder.path / kind.name / part_of(key) / f"{name_of(key)}{_SUFFIX}"

    def _read(self, kind: Kind, file: Path) -> Object | None:
        shown = self._folder.read(file)
        if shown is None:
            return None
        try:
            root = etree.fromstring(shown.encode(), etree.XMLParser(**_PARSER))  # type: ignore[arg-type]
            return _object(kind, root)
        except (etree.XMLSyntaxError, KeyError) as error:
            raise SpoolError(f"{file}: {error}") from None


def _element(kind: Kind, item: Object) -> etree._Element:
    root = etree.Element(kind.name, key=name_value.escaped(item.key, ""))
    for name, value in item.values.items():
        one = etree.SubElement(root, name)
        if name in kind.scalars:
            one.text = name_value.scalar(value, kind.scalars[name], "")
        elif name in kind.lists:
            for each in value:
                etree.SubElement(one, "item").text = name_value.scalar(each, kind.lists[name], "")
        elif name in kind.pairs:
            for key, each in value.items():
                etree.SubElement(one, "pair", name=name_value.escaped(key, "")).text = name_value.loose(each)
        else:
            for row in value:
                part = etree.SubElement(one, "part")
                for field, of in kind.parts[name].items():
                    if row.get(field) is not None:
                        etree.SubElement(part, field).text = name_value.scalar(row[field], of, "")
    return root


def _object(kind: Kind, root: etree._Element) -> Object:
    values: dict[str, Any] = {}
    for one in root:
        name = str(one.tag)
        if name in kind.scalars:
            values[name] = name_value.scalar_of(one.text or "", kind.scalars[name])
        elif name in kind.lists:
            values[name] = tuple(name_value.scalar_of(each.text or "", kind.lists[name]) for each in one)
        elif name in kind.pairs:
            values[name] = {
                name_value.unescaped(str(each.get("name"))): name_value.loose_of(each.text or "") for each in one
            }
        else:
            values[name] = tuple(_row(kind.parts[name], part) for part in one)
    return Object(kind.name, name_value.unescaped(str(root.attrib["key"])), values)


def _row(fields: Mapping[str, Scalar], part: etree._Element) -> dict[str, Any]:
    there = {str(each.tag): each.text or "" for each in part}
    return {name: name_value.scalar_of(there[name], of) if name in there else None for name, of in fields.items()}
