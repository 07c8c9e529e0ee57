"""Messages split by simple means, without our code: lxml for records in XML, lines for text.

A record is its fields by name, each with all its values in their order. The name is the path below the record with the
attributes that distinguish such properties (`Memory[max,KB,physical]`); attributes with a value are fields
(`RecordIdentity@recordId`). Values are compared as values: a duration in seconds, a score as a number (`17.50` is
`17.5`), an absent `metric` as the schema's default, `total`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree

Fields = dict[str, tuple[object, ...]]

_TELLING = ("metric", "phaseUnit", "storageUnit", "type", "usageType")
_CARRYING = {
    "RecordIdentity": ("createTime", "recordId"),
    "SubmitHost": ("type",),
    "Infrastructure": ("type", "description"),
    "Middleware": ("name", "version", "description"),
    "Queue": ("description",),
    "Host": ("primary",),
}
_WHOLE = frozenset({"FileDownload", "FileUpload", "Attribute"})
"""Elements whose children belong together: one value."""
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?").fullmatch


def records_of_xml(payload: bytes) -> dict[str, Fields]:
    """The records of a message, by record id."""
    root = etree.fromstring(payload)
    records = [_fields(record) for record in root]
    return {str(record["RecordIdentity@recordId"][0]): record for record in records}


def records_of_text(payload: bytes) -> tuple[str, list[dict[str, str]]]:
    """The header line of a text message, and its records."""
    header, _, rest = payload.decode("ascii").partition("\n")
    pieces = (piece.strip().splitlines() for piece in rest.split("%%"))
    return header, [dict(_pair(line) for line in lines) for lines in pieces if lines]


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key, value.strip()


def _fields(record: etree._Element) -> Fields:
    found: dict[str, list[object]] = {}
    for name, value in _walk(record, ""):
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _walk(parent: etree._Element, path: str) -> Iterator[tuple[str, object]]:
    for child in parent:
        local = etree.QName(child).localname
        attributes = {etree.QName(name).localname: str(value) for name, value in child.attrib.items()}
        name = path + local
        for carried in _CARRYING.get(local, ()):
            if carried in attributes:
                yield f"{name}@{carried}", attributes.pop(carried)
        if attributes.get("metric") == "total":
            del attributes["metric"]
        name += f"[{','.join(attributes.pop(key) for key in _TELLING if key in attributes)}]".replace("[]", "")
        assert not attributes, f"{name} has attributes that are not compared: {attributes}"
        if local in _WHOLE:
            yield name, frozenset((etree.QName(part).localname, part.text) for part in child)
        elif len(child):
            yield from _walk(child, f"{name}/")
        else:
            yield name, _value(local, child.text or "")


def _value(local: str, text: str) -> object:
    if local in {"WallDuration", "CpuDuration", "TimeDuration", "UserTime", "KernelTime"}:
        match = _DURATION(text)
        assert match is not None, f"{text} is no duration"
        return sum(
            int(part or 0) * seconds for part, seconds in zip(match.groups(), (86_400, 3_600, 60, 1), strict=True)
        )
    if local == "ServiceLevel" and re.fullmatch(r"[0-9.]+", text):
        return float(text)
    return text
