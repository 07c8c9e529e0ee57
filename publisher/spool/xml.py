"""One file for each object, as XML, with its sublists.

    <jobs key="..."><queue>main</queue><fqans><item>/atlas</item></fqans><extras><pair name="x">1</pair></extras>
    <hosts><part><name>wn1</name></part></hosts></jobs>

Characters that XML cannot express are escaped as in the other text files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from lxml import etree

from publisher.spool.base import Attribute, Kind, Object, Shape
from publisher.spool.codec import ABSENT, as_text, escaped, rows_as_text, unescaped, value_of_rows, value_of_text
from publisher.spool.object_files import ObjectFiles

_PARSER: Final = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}


class Xml(ObjectFiles):
    """An XML file for each object."""

    suffix = ".xml"
    has_part_files = False

    def texts_of(self, kind: Kind, item: Object) -> Mapping[str, str]:
        """One text."""
        root = etree.Element(kind.name, key=escaped(item.key, ""))
        for name, value in item.values.items():
            element, attribute = etree.SubElement(root, name), kind.fields[name]
            if attribute.single is not None:
                element.text = as_text(attribute, value, "")
            else:
                _add_rows(element, attribute, rows_as_text(attribute, value, ""))
        etree.indent(root)
        return {"": etree.tostring(root, encoding="unicode") + "\n"}

    def object_of(self, kind: Kind, texts: Mapping[str, str]) -> Object:
        """From the elements of one text."""
        try:
            root = etree.fromstring(texts[""].encode(), etree.XMLParser(**_PARSER))  # type: ignore[arg-type]
        except etree.XMLSyntaxError as error:
            raise ValueError(str(error)) from None
        values = {}
        for element in root:
            name = str(element.tag)
            attribute = kind.fields[name]
            if attribute.single is not None:
                values[name] = value_of_text(attribute, element.text or "")
            else:
                values[name] = value_of_rows(attribute, _rows(element, attribute))
        return Object(kind.name, unescaped(str(root.attrib["key"])), values)


def _add_rows(element: etree._Element, attribute: Attribute, rows: Sequence[Sequence[str]]) -> None:
    for row in rows:
        match attribute.shape:
            case Shape.LIST:
                etree.SubElement(element, "item").text = row[0]
            case Shape.PAIRS:
                etree.SubElement(element, "pair", name=row[0]).text = row[1]
            case Shape.PARTS:
                part = etree.SubElement(element, "part")
                for column, text in zip(attribute.columns, row, strict=True):
                    if text != ABSENT:
                        etree.SubElement(part, column).text = text


def _rows(element: etree._Element, attribute: Attribute) -> list[list[str]]:
    match attribute.shape:
        case Shape.LIST:
            return [[item.text or ""] for item in element]
        case Shape.PAIRS:
            return [[str(pair.attrib["name"]), pair.text or ""] for pair in element]
        case _:
            parts = [{str(field.tag): field.text or "" for field in part} for part in element]
            if unknown := {*chain.from_iterable(parts)} - attribute.columns.keys():
                raise ValueError(f"unknown attribute {min(unknown)[:80]!r}")
            return [[part.get(column, ABSENT) for column in attribute.columns] for part in parts]
