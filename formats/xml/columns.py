"""Read the columns of the records of UR and CAR messages: as SGAS and APEL read them, many times as fast as jobs.

APEL takes the first element of a name anywhere in a record, VO, group, and role from the first FQAN, and no memory
(facts on receivers, 2 and last section).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from lxml import etree

from formats.benchmark import milli_of
from formats.columns import RecordColumns, Value, local_key
from formats.names import apel_fqan_parts
from formats.text import read_date_time, read_duration_ms
from formats.xml import ogf_ur
from formats.xml.read import CAR, UR, parse, record_elements

_VO: Final = ogf_ur.NAMESPACES["vo"]
_SGAS: Final = ogf_ur.NAMESPACES["sgas"]
_SGAS_PARTS: Final = frozenset({f"{{{_SGAS}}}UserTime", f"{{{_SGAS}}}KernelTime"})
_COMMON: Final = {
    "MachineName": "machine", "SubmitHost": "submit_host", "Queue": "queue", "LocalUserId": "local_user",
    "GlobalUserName": "user", "NodeCount": "nodes", "Processors": "processors", "StartTime": "start",
    "EndTime": "end", "WallDuration": "wall",
}  # fmt: skip
_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    UR: {
        **{f"{{{UR}}}{tag}": name for tag, name in _COMMON.items()},
        f"{{{UR}}}ProjectName": "project",
        f"{{{_VO}}}Name": "vo",
    },
    CAR: {
        **{f"{{{CAR}}}{tag}": name for tag, name in _COMMON.items()},
        f"{{{CAR}}}Site": "site",
        f"{{{CAR}}}LocalJobId": "local_id",
        f"{{{CAR}}}Group": "vo",
    },
}
_UR_TEXTS: Final = ("machine", "submit_host", "queue", "local_user", "user", "vo", "project")
_CAR_TEXTS: Final = ("site", "machine", "submit_host", "queue", "local_user", "user", "vo")

T = TypeVar("T")


def read_columns(payload: bytes) -> list[RecordColumns]:
    """The records of a UR or CAR message, in order. Raises `formats.xml.read.NotAMessageError`."""
    root = parse(payload)
    namespace = etree.QName(root).namespace or ""
    return [_StoredColumns(element, namespace).columns() for element in record_elements(root)]


class _StoredColumns:
    """The element of one record."""

    def __init__(self, element: etree._Element, namespace: str) -> None:
        self._is_car = namespace == CAR
        self._type = f"{{{namespace}}}type"
        self._texts: dict[str, str] = {}
        self._groups: dict[str, str] = {}
        self._infrastructure: etree._Element | None = None
        self._level: etree._Element | None = None
        self._whole: list[int | None] = []
        self._parts: dict[str | None, int | None] = {}
        self._others: list[int | None] = []
        self._record_id = ""
        fields, texts = _FIELDS[namespace], self._texts
        usage, cpu = f"{{{namespace}}}usageType", f"{{{namespace}}}CpuDuration"
        for child in element.iter("*"):
            tag = child.tag
            name = fields.get(tag)
            if name is not None:
                texts.setdefault(name, child.text or "")
            elif tag == cpu:
                kind = child.get(usage)
                self._parts.setdefault(kind, _milliseconds(child.text))
                if kind in {None, "all"}:
                    self._whole.append(self._parts[kind])
            elif tag in _SGAS_PARTS:
                self._others.append(_milliseconds(child.text))
            elif tag == f"{{{namespace}}}RecordIdentity":
                self._record_id = self._record_id or child.get(f"{{{namespace}}}recordId") or ""
            elif self._is_car:
                self._of_car(child)

    def _of_car(self, child: etree._Element) -> None:
        tag = child.tag
        if tag == f"{{{CAR}}}GroupAttribute":
            self._groups.setdefault(child.get(self._type) or "", child.text or "")
        elif tag == f"{{{CAR}}}Infrastructure" and self._infrastructure is None:
            self._infrastructure = child
        elif tag == f"{{{CAR}}}ServiceLevel" and self._level is None:
            self._level = child

    def columns(self) -> RecordColumns:
        """The record."""
        texts = self._texts
        end = _as(read_date_time, texts.get("end"))
        wall_ms = _milliseconds(texts.get("wall"))
        if self._is_car:
            local_id = texts.get("local_id", "")
            key = local_key(texts.get("site", ""), local_id, end)
            return RecordColumns(self._record_id, end, wall_ms, self._cpu_ms(), self._car_columns(), key, local_id)
        columns: dict[str, Value] = {name: texts.get(name, "") for name in _UR_TEXTS}
        columns |= {name: _number(texts.get(name), "") for name in ("nodes", "processors")}
        columns["start"] = _instant(texts.get("start"))
        return RecordColumns(self._record_id, end, wall_ms, self._cpu_ms(), columns)

    def _car_columns(self) -> dict[str, Value]:
        texts, groups = self._texts, self._groups
        columns: dict[str, Value] = {name: texts.get(name, "") for name in _CAR_TEXTS}
        columns |= {name: _number(texts.get(name), 0) for name in ("nodes", "processors")}
        columns["start"] = _instant(texts.get("start"))
        columns["vo_group"], columns["vo_role"] = groups.get("group", ""), groups.get("role", "")
        if fqan := groups.get("FQAN"):
            columns["vo"], columns["vo_group"], columns["vo_role"] = apel_fqan_parts(fqan)
        infrastructure, level = self._infrastructure, self._level
        if infrastructure is not None:
            columns["infrastructure"] = infrastructure.get(self._type) or ""
            columns["description"] = infrastructure.get(f"{{{CAR}}}description") or ""
        if level is not None and (score := milli_of(level.text)) is not None:
            columns["benchmark"], columns["score_milli"] = level.get(self._type) or "", score
        return columns

    def _cpu_ms(self) -> int | None:
        """CPU time by the rules of `formats.xml.read`."""
        halves = (self._parts.get("user"), self._parts.get("system"))
        first = self._whole[0] if self._whole else None
        if not self._is_car and self._parts.get(None) is None and halves != (None, None):
            first = None
        candidates = (first, _total(halves), _total(self._others))
        return next((amount for amount in candidates if amount is not None), None)


def _total(amounts: Iterable[int | None]) -> int | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None


def _number(text: str | None, missing: Value) -> Value:
    number = _as(int, text)
    return missing if number is None else number


def _instant(text: str | None) -> Value:
    instant = _as(read_date_time, text)
    return "" if instant is None else instant


def _milliseconds(text: str | None) -> int | None:
    return _as(read_duration_ms, text)


def _as(convert: Callable[[str], T], text: str | None) -> T | None:
    try:
        return None if text is None else convert(text)
    except (ValueError, OverflowError):
        return None
