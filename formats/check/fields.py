"""The fields of a record, for comparing two renderings, and the origin of each: facts of the run, and the rule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from lxml import etree

from formats.apel.text import parse as parse_text
from formats.base import Format
from formats.job import Job
from formats.registry import FORMATS
from formats.xml.read import parse as parse_xml
from formats.xml.read import record_elements

Fields = dict[str, tuple[str, ...]]

_NAMES_IN_JSON: Final = ("name", "type", "username")
_PARTS_OF_NAMES = frozenset({"type", "metric", "storageUnit", "phaseUnit", "usageType"})


def fields_of(format_name: str, message: bytes) -> Fields:
    """The fields of a message's only record, as `each_fields_of` gives them."""
    (fields,) = each_fields_of(format_name, message)
    return fields


def each_fields_of(format_name: str, message: bytes) -> Iterator[Fields]:
    """The fields of each record of a message, each with its values in order.

    An XML field is named by its path and the attributes that distinguish it (`Memory[KB,max,physical]`). Any other
    attribute, and each attribute of an empty element, is a separate field (`Host@primary`). createTime is omitted,
    because it changes with every version. A value in JSON is named by its path (`components[Cores]/amount`).
    """
    form = FORMATS.get(format_name)
    if form is None:  # of an add-on: its fields are not known
        yield {"message": (message.decode("utf-8", "backslashreplace"),)}
    elif form.is_xml:
        for element in record_elements(parse_xml(message)):
            fields = _gathered(_walk(element, ""))
            fields.pop("RecordIdentity@createTime", None)
            yield fields
    elif form.content_type == "application/json":
        yield from (_gathered(_json_pairs(record, "")) for record in msgspec.json.decode(message, type=list[Any]))
    elif form.inspected is not None and (inspected := form.inspected(message.decode())) is not None:
        yield from (_gathered(record.fields.items()) for record in inspected.records)
    else:
        yield from (_gathered(record.pairs) for record in parse_text(message.decode("ascii")).records)


def _json_pairs(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """The values of an object by their paths; an object of a list is named by the first of `_NAMES_IN_JSON`."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _json_pairs(each, f"{path}/{name}" if path else name)
    elif isinstance(value, list):
        for item in value:
            names = [item.pop(key) for key in _NAMES_IN_JSON if key in item] if isinstance(item, dict) else []
            named = names[0] if names else ""
            yield from _json_pairs(item, f"{path}[{named}]" if named else path)
    else:
        yield path, str(value)


def _gathered(pairs: Iterable[tuple[str, str]]) -> Fields:
    gathered: dict[str, list[str]] = {}
    for name, value in pairs:
        gathered.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in gathered.items()}


def changed_fields(before: Fields, after: Fields) -> Iterator[tuple[str, str | None, str | None]]:
    """The fields that differ: name, value before, value after; None for a missing field."""
    for name in dict.fromkeys([*before, *after]):
        old, new = before.get(name), after.get(name)
        if old != new:
            yield name, _shown(old), _shown(new)


def _shown(values: tuple[str, ...] | None) -> str | None:
    return None if values is None else ", ".join(values)


def _walk(parent: etree._Element, path: str) -> Iterator[tuple[str, str]]:
    for child in parent.iterchildren(tag=etree.Element):
        attributes = {etree.QName(name).localname: str(value) for name, value in child.attrib.items()}
        identifying = sorted(value for name, value in attributes.items() if name in _PARTS_OF_NAMES)
        name = path + etree.QName(child).localname
        says_something = bool(len(child) or child.text)
        for at, value in attributes.items():
            if at not in _PARTS_OF_NAMES or not says_something:
                yield f"{name}@{at}", value
        name += f"[{','.join(identifying)}]" if identifying else ""
        if len(child):
            yield from _walk(child, f"{name}/")
        elif child.text:
            yield name, child.text


class Explained(msgspec.Struct, frozen=True):
    """A field of a record: its value, the facts from which it was made, with values, the settings, and the rule."""

    field: str
    value: str
    facts: dict[str, Any]
    rule: str
    settings: tuple[str, ...] = ()


def explain(form: Format, fields: Fields, job: Job) -> Iterator[Explained]:
    """Every field of a record of `job`, or of a total that it is in, in the record's order.

    The facts are those of this job, also if a value is a sum.
    """
    for name, values in fields.items():
        origin = form.origins.get(name) or form.origins.get(_bare(name))
        if origin is None:
            yield Explained(name, ", ".join(values), {}, "no rule is known")
            continue
        facts = {fact: value for fact in origin.facts if (value := getattr(job, fact)) not in (None, (), {})}
        yield Explained(name, ", ".join(values), msgspec.to_builtins(facts), origin.how, origin.settings)


def _bare(name: str) -> str:
    """The name without the brackets and their content."""
    return re.sub(r"\[[^\]]*\]", "", name)
