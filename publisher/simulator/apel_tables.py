"""The tables of the simulated APEL server, by their keys; the last message counts (the facts on formats, 4.8).

What the APEL server reads from a CAR message, and when it refuses it (the facts on formats, 2.1; on receivers, 2).

The first element with a name anywhere in a record counts; the schema is not applied. This module shares no code with
the rendering of CAR.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, Literal

import msgspec
from lxml import etree

LATEST_END_AFTER_NOW_S: Final = 2 * 86400
"""How far an end may be in the future; a message with a later one is refused."""

Table = Literal["jobs", "summaries", "normalised", "sync"]

_SUMMARY = (
    "Site", "Month", "Year", "GlobalUserName", "VO", "VORole", "VOGroup", "SubmitHost", "InfrastructureType",
    "ServiceLevelType", "ServiceLevel", "NodeCount", "Processors",
)  # fmt: skip
_NORMALISED = (
    "Site", "Month", "Year", "GlobalUserName", "VO", "VORole", "VOGroup", "SubmitHost", "Infrastructure", "NodeCount",
    "Processors", "ServiceLevelType",
)  # fmt: skip
KEYS: Final[Mapping[Table, tuple[str, ...]]] = {
    "jobs": ("Site", "LocalJobId", "EndTime"),
    "summaries": _SUMMARY,
    "normalised": _NORMALISED,
    "sync": ("Site", "SubmitHost", "Month", "Year"),
}

Key = tuple[str, ...]


class LoadError(ValueError):
    """The loader refuses a whole message. The text is that of the loader's log."""


class HeldRow(msgspec.Struct, gc=False):
    """A row: its fields as last received, their sender, and how often its key was received."""

    fields: dict[str, str]
    publisher: str
    received: int


class Tables:
    """The tables of the server. Not thread-safe."""

    def __init__(self) -> None:
        self.rows: dict[Table, dict[Key, HeldRow]] = {table: {} for table in KEYS}
        self.record_ids: dict[str, int] = {}

    def replace(self, table: Table, fields: dict[str, str], publisher: str) -> None:
        """REPLACE INTO. Names are compared as in MySQL: case and trailing spaces do not count."""
        key = tuple(fields.get(name, "None").rstrip(" ").lower() for name in KEYS[table])
        held = self.rows[table].get(key)
        self.rows[table][key] = HeldRow(fields, publisher, 1 if held is None else held.received + 1)
        record_id = fields.get("RecordId")
        if record_id:
            self.record_ids[record_id] = self.record_ids.get(record_id, 0) + 1


_CAR = "http://eu-emi.eu/namespaces/2012/11/computerecord"
_TEXTS = (
    "Site", "SubmitHost", "MachineName", "Queue", "LocalJobId", "LocalUserId", "GlobalUserName", "GlobalJobId",
    "Processors", "NodeCount",
)  # fmt: skip
_DURATION = re.compile(
    r"P(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?"
)
_UNITS_S = (365 * 86400, 30.4 * 86400, 86400, 3600, 60, 1)
_MANDATORY = ("Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime")
_BENCHMARKS = frozenset({"si2k", "hepspec", "hepscore23"})
_LONGEST = {"LocalJobId": 255, "Queue": 100, "Site": 255, "SubmitHost": 255, "MachineName": 255, "GlobalUserName": 255}


def read_car(payload: bytes, now_s: float) -> list[dict[str, str]]:
    """The records as APEL has them, by its names of fields; durations and instants as whole seconds. `RecordId` is kept
    beside, although APEL does not. Raises `LoadError`, for the whole message."""
    root = _root(payload)
    records = [root] if root.tag == f"{{{_CAR}}}UsageRecord" else list(root.iter(f"{{{_CAR}}}UsageRecord"))
    if not records:
        raise LoadError("File does not contain car records!")
    return [_record(element, now_s) for element in records]


def _root(payload: bytes) -> etree._Element:
    parser = etree.XMLParser(resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(payload.strip(), parser)
    except etree.XMLSyntaxError as error:
        raise LoadError(f"not well formed: {error.msg}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise LoadError("XML format not recognised.")
    first = root.getprevious()
    if first is not None or root.tag not in {f"{{{_CAR}}}UsageRecords", f"{{{_CAR}}}UsageRecord"}:
        raise LoadError("XML format not recognised.")
    return root


def _record(record: etree._Element, now_s: float) -> dict[str, str]:
    first: dict[str, etree._Element] = {}
    cpu: list[etree._Element] = []
    groups: dict[str, str] = {}
    for element in record.iter(f"{{{_CAR}}}*"):
        name = element.tag.rpartition("}")[2]
        first.setdefault(name, element)
        if name == "CpuDuration":
            cpu.append(element)
        elif name == "GroupAttribute":
            groups.setdefault(_attribute(element, "type"), _text(element))
    fields = {name: _text(first[name]) for name in _TEXTS if name in first}
    _users_groups(fields, first, groups)
    whole = [element for element in cpu if _attribute(element, "usageType") == "all"] or cpu
    seconds = {
        "WallDuration": _duration_s(_text(first["WallDuration"])) if "WallDuration" in first else None,
        "CpuDuration": _duration_s(_text(whole[0])) if whole else None,
        "StartTime": _instant_s(_text(first["StartTime"])) if "StartTime" in first else None,
        "EndTime": _instant_s(_text(first["EndTime"])) if "EndTime" in first else None,
    }
    if len([element for element in cpu if _attribute(element, "usageType") == "all"]) > 1:
        seconds["CpuDuration"] = None
    fields |= {name: str(value) for name, value in seconds.items() if value is not None}
    _service_level(fields, first)
    if "Infrastructure" in first:
        fields["InfrastructureType"] = _attribute(first["Infrastructure"], "type")
        fields["InfrastructureDescription"] = _attribute(first["Infrastructure"], "description")
    if "RecordIdentity" in first:
        fields["RecordId"] = _attribute(first["RecordIdentity"], "recordId")
    _require_valid(fields, now_s)
    return fields


def _users_groups(fields: dict[str, str], first: dict[str, etree._Element], groups: dict[str, str]) -> None:
    """VO, VOGroup and VORole; an FQAN overrides them, as the loader's `parse_fqan` splits it (release 2.5.0)."""
    fields["VO"] = _text(first["Group"]) if "Group" in first else ""
    fields["VOGroup"], fields["VORole"] = groups.get("group", ""), groups.get("role", "")
    fqan = groups.get("FQAN", "").partition(";")[0]
    if fqan and fqan != "None":
        fields["FQAN"] = fqan
        fields["VO"], fields["VOGroup"], fields["VORole"] = fqan, "", ""
        if fqan.startswith("/"):
            parts = fqan.split("/")
            place = next((at for at, part in enumerate(parts) if part.lower().startswith("role=")), len(parts))
            fields["VO"] = parts[1]
            fields["VOGroup"] = "".join(f"/{part}" for part in parts[:place] if part)
            fields["VORole"] = "".join(parts[place : place + 1])
    for name in ("VO", "VOGroup", "VORole"):
        fields[name] = fields[name] or "None"


def _service_level(fields: dict[str, str], first: dict[str, etree._Element]) -> None:
    if "ServiceLevel" not in first:
        fields["ServiceLevelType"], fields["ServiceLevel"] = "custom", "1.000"
        return
    kind = _attribute(first["ServiceLevel"], "type")
    if not kind:
        raise LoadError("Unit but not value supplied for ScalingFactor.")
    if kind.lower() not in _BENCHMARKS:
        raise LoadError(f"ScalingFactorUnit {kind} not valid.")
    fields["ServiceLevelType"], fields["ServiceLevel"] = kind, _text(first["ServiceLevel"])


def _require_valid(fields: dict[str, str], now_s: float) -> None:
    for name in _MANDATORY:
        if not fields.get(name):
            raise LoadError(f"Mandatory field {name} not specified.")
    start, end = int(fields["StartTime"]), int(fields["EndTime"])
    if end < start:
        raise LoadError("EndTime is before StartTime.")
    if end > now_s + LATEST_END_AFTER_NOW_S:
        raise LoadError(f"Epoch time {end} is in the future.")
    for name in ("WallDuration", "CpuDuration"):
        if int(fields[name]) >= 2**31:
            raise LoadError(f"(1264, \"Out of range value for column '{name}'\")")
    for name, longest in _LONGEST.items():
        if len(fields.get(name, "")) > longest:
            raise LoadError(f"(1406, \"Data too long for column '{name}'\")")


def _text(element: etree._Element) -> str:
    return (element.text or "").strip()


def _attribute(element: etree._Element, name: str) -> str:
    return str(element.get(f"{{{_CAR}}}{name}", ""))


def _duration_s(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        return None
    parts = zip(match.groups(), _UNITS_S, strict=True)
    return round(sum(float(part) * unit for part, unit in parts if part))


def _instant_s(text: str) -> int | None:
    if "T" not in text:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
