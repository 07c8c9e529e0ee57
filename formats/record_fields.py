"""A record as it stands in a message, field by field: what two renderings of one record are compared by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lxml import etree

from formats.apel_text import parse as parse_text
from formats.read_xml import parse as parse_xml
from formats.read_xml import record_elements

Fields = dict[str, tuple[str, ...]]

_PARTS_OF_NAMES = frozenset({"type", "metric", "storageUnit", "phaseUnit", "usageType"})
_XML = frozenset({"ogf-ur", "emi-car"})


def fields_of(format_name: str, message: bytes) -> Fields:
    """The fields of a message's only record, as `each_fields_of` gives them."""
    (fields,) = each_fields_of(format_name, message)
    return fields


def each_fields_of(format_name: str, message: bytes) -> Iterator[Fields]:
    """The fields of each record of a message, each with its values in order.

    An XML field is named by its path and the attributes that tell one from another (`Memory[KB,max,physical]`), any
    other attribute, and every one of an empty element, is a field of its own (`Host@primary`). createTime is left out:
    it changes with every version.
    """
    if format_name in _XML:
        for element in record_elements(parse_xml(message)):
            fields = _gathered(_walk(element, ""))
            fields.pop("RecordIdentity@createTime", None)
            yield fields
    else:
        yield from (_gathered(record.pairs) for record in parse_text(message.decode("ascii")).records)


def _gathered(pairs: Iterable[tuple[str, str]]) -> Fields:
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def changed_fields(before: Fields, after: Fields) -> Iterator[tuple[str, str | None, str | None]]:
    """The fields that differ: name, value before, value after; None where the field was not there."""
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield name, _shown(old), _shown(new)


def _shown(values: tuple[str, ...] | None) -> str | None:
    return None if values is None else ", ".join(values)


def _walk(parent: etree._Element, path: str) -> Iterator[tuple[str, str]]:
    for child in parent.iterchildren(tag=etree.Element):
        attributes = {etree.QName(name).localname: str(value) for name, value in child.attrib.items()}
        telling = sorted(value for name, value in attributes.items() if name in _PARTS_OF_NAMES)
        name = path + etree.QName(child).localname
        says_something = bool(len(child) or child.text)
        for at, value in attributes.items():
            if at not in _PARTS_OF_NAMES or not says_something:
                yield f"{name}@{at}", value
        name += f"[{','.join(telling)}]" if telling else ""
        if len(child):
            yield from _walk(child, f"{name}/")
        elif child.text:
            yield name, child.text
