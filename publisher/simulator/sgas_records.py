"""What SGAS makes of one record, and what makes it refuse the message (facts on formats, 1.4; on receivers, 1).

Two ways of refusing are distinguished as the service does: its own program fails (`ProcessingFailedError`: HTML that
says nothing), or its database does (`DatabaseRefusedError`: PostgreSQL's words). Values that it cannot read and does
not need become NULL in silence, as there: they are read only when somebody asks (`publisher.simulator.sgas`).

A UsageRecords message is split as SGAS does, with only the elements that it reads.

Order does not matter, unknown elements are ignored, of repeated ones the last counts (the facts on formats, 1.4). XML
is parsed without entities, DTD and network. The schema is not applied: SGAS does not apply it either.

Most messages are thousands of records of one shape. A record whose sequence of tags is that of one which the parser
has read before needs no parser: its texts stand at the same places (`record_shapes`). The unusual goes to the parser.

Durations and instants as SGAS reads them: fractions cut, no zone means UTC (the facts on formats, 1.4).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec
from lxml import etree

from publisher.simulator.record_shapes import Leaf, NotUsageRecordsError, Shapes, Values, collected

UR: Final = "http://schema.ogf.org/urf/2003/09/urf"
_VO = "http://www.sgas.se/namespaces/2009/05/ur/vo"
_SGAS = "http://www.sgas.se/namespaces/2009/07/ur"
_ARC = "http://www.nordugrid.org/ws/schemas/ur-arc"
_DEISA = "http://rmis.deisa.org/acct"
_TRANSFER = "http://www.sgas.se/namespaces/2010/10/filetransfer"


_IDENTITY = f"{{{UR}}}RecordIdentity"
_LEAVES: Final = {
    **{
        f"{{{UR}}}{name}": name
        for name in (
            "GlobalJobId", "LocalJobId", "LocalUserId", "GlobalUserName", "JobName", "Charge", "Status", "Memory",
            "WallDuration", "CpuDuration", "NodeCount", "Processors", "EndTime", "StartTime", "MachineName",
            "SubmitHost", "Queue", "ProjectName", "Host",
        )
    },
    f"{{{_DEISA}}}SubmitTime": "SubmitTime",
    f"{{{_SGAS}}}UserTime": "UserTime",
    f"{{{_SGAS}}}KernelTime": "KernelTime",
    f"{{{_SGAS}}}ExitCode": "ExitCode",
    f"{{{_SGAS}}}MajorPageFaults": "MajorPageFaults",
    f"{{{_SGAS}}}RuntimeEnvironment": "RuntimeEnvironment",
    f"{{{_ARC}}}RuntimeEnvironment": "RuntimeEnvironment",
    f"{{{_VO}}}Name": "VoName",
    f"{{{_VO}}}Issuer": "VoIssuer",
    f"{{{_VO}}}Group": "VoGroup",
    f"{{{_VO}}}Role": "VoRole",
    f"{{{_TRANSFER}}}URL": "TransferUrl",
    f"{{{_TRANSFER}}}Size": "TransferSize",
    f"{{{_TRANSFER}}}StartTime": "TransferStart",
    f"{{{_TRANSFER}}}EndTime": "TransferEnd",
}  # fmt: skip
_BRANCHES: Final = {
    f"{{{UR}}}JobIdentity", f"{{{UR}}}UserIdentity", f"{{{_VO}}}Attribute", f"{{{_TRANSFER}}}FileTransfers",
}  # fmt: skip
_VO_ELEMENT = f"{{{_VO}}}VO"
_TRANSFERS = {f"{{{_TRANSFER}}}FileDownload", f"{{{_TRANSFER}}}FileUpload"}
_WITH_ATTRIBUTES = frozenset({"Memory"})


def read(body: bytes) -> Iterator[Values]:
    """The values of each record, in order. Raises `NotUsageRecordsError`."""
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotUsageRecordsError("not UTF-8") from error
    shaped = SHAPES.read(text.encode() if body[:3] == codecs.BOM_UTF8 else body, text)
    return map(collected, parsed(text)) if shaped is None else iter(shaped)


def parsed(text: str) -> Iterator[list[Leaf]]:
    """The values of each record, by the parser."""
    root = _root(text)
    if root.tag == f"{{{UR}}}JobUsageRecord":
        return iter([list(_leaves(root))])
    if root.tag != f"{{{UR}}}UsageRecords":
        raise NotUsageRecordsError(f"the root is {root.tag}")
    return _records(root)


def _records(root: etree._Element) -> Iterator[list[Leaf]]:
    for element in root:
        if isinstance(element.tag, str):
            if element.tag != f"{{{UR}}}JobUsageRecord":
                raise NotUsageRecordsError(f"{element.tag} among the records")
            yield list(_leaves(element))


def _root(text: str) -> etree._Element:
    parser = etree.XMLParser(
        resolve_entities=False, load_dtd=False, no_network=True, huge_tree=False, remove_comments=True, remove_pis=True,
        encoding="utf-8",
    )  # fmt: skip
    try:
        root = etree.fromstring(text.encode(), parser)
    except etree.XMLSyntaxError as error:
        raise NotUsageRecordsError(f"not well formed: {error.msg}") from error
    if root.getroottree().docinfo.internalDTD is not None:
        raise NotUsageRecordsError("has a document type definition")
    return root


def _leaves(element: etree._Element) -> Iterator[Leaf]:
    for child in element:
        tag = child.tag
        slot = _LEAVES.get(tag)
        if slot is not None:
            attributes = _attributes(child) if slot in _WITH_ATTRIBUTES else ()
            yield slot, child.text or "", attributes
        elif tag == _IDENTITY:
            for name, value in _attributes(child):
                if name in {"recordId", "createTime"}:
                    yield name, value, ()
        elif tag in _BRANCHES:
            yield from _leaves(child)
        elif tag == _VO_ELEMENT:
            yield "Vo", str(child.get(f"{{{_VO}}}type", "")), ()
            yield from _leaves(child)
        elif tag in _TRANSFERS:
            yield "Transfer", child.tag.rpartition("}")[2] if len(child) else "", ()
            yield from _leaves(child)


def _attributes(element: etree._Element) -> tuple[tuple[str, str], ...]:
    """Qualified attributes only: the others do not count (the facts on formats, 1)."""
    return tuple(
        (str(name).rpartition("}")[2], str(value))
        for name, value in element.attrib.items()
        if str(name).startswith(f"{{{UR}}}")
    )


SHAPES: Final = Shapes(parsed)
"""What was learnt of the shapes of records, by all simulators of this process."""


_SECONDS = re.compile(r"PT([0-9]{1,12})S")
_DURATION = re.compile(
    r"(-?)P(?:([0-9]{1,9})D)?(?:T(?=[0-9])(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,12})(?:\.[0-9]+)?S)?)?"
)


def duration_s(text: str) -> int | None:
    """Whole seconds; None for what cannot be read, years and months among it."""
    seconds = _SECONDS.fullmatch(text)
    if seconds is not None:
        return int(seconds.group(1))
    match = _DURATION.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        return None
    sign, *parts = match.groups()
    days, hours, minutes, rest = (int(part) if part else 0 for part in parts)
    total = days * 86400 + hours * 3600 + minutes * 60 + rest
    return -total if sign else total


def instant_s(text: str | None) -> int | None:
    """Epoch seconds; None for what is absent or cannot be read."""
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())


_LONGEST = {
    "recordId": 1000, "GlobalJobId": 1000, "LocalJobId": 500, "JobName": 1000, "LocalUserId": 100,
    "GlobalUserName": 1000, "Status": 100, "Queue": 200, "ProjectName": 200, "SubmitHost": 200, "MachineName": 200,
    "Vo": 100, "VoName": 1000, "VoIssuer": 1000, "VoGroup": 100, "VoRole": 100, "RuntimeEnvironment": 512,
    "TransferUrl": 2500,
}  # fmt: skip
_SHORTEST_LIMIT = min(_LONGEST.values())
_NEVER_EMPTY = frozenset(
    {"LocalJobId", "StartTime", "EndTime", "SubmitTime", "RuntimeEnvironment", "WallDuration", "CpuDuration",
     "UserTime", "KernelTime", "NodeCount", "Processors", "Memory", "Charge", "ExitCode", "Transfer", "MachineName"}
)  # fmt: skip
_SMALLINT, _INT, _BIGINT = 2**15, 2**31, 2**63
_LONGEST_LOCAL_ID = 120
_SHORT_DURATION = len("P9999D")
"""A duration of so few characters does not overflow in any unit."""

_LARGEST_INDEXED = 2692
"""Bytes of a text in an index of PostgreSQL, if it does not compress."""
_UNIQUE = {"GlobalUserName": "globalusername_global_user_name_key", "TransferUrl": "jobtransferurl_url_key"}
"""Columns with an index that their texts can be too long for, and its name."""

_UNIT_BYTES = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB"))}
_MEMORY_METRICS = frozenset({"total", "average", "min", "max"})


class ProcessingFailedError(ValueError):
    """SGAS' own program fails over the data. The text would only be in the service's log."""


class DatabaseRefusedError(ValueError):
    """PostgreSQL refuses the row; SGAS hands its text on."""


class UsageRecord(msgspec.Struct, frozen=True, gc=False):
    """A record as stored. Durations and instants stay as sent until somebody asks; `children`: it has runtime
    environments or transfers, so that its row cannot be deleted."""

    record_id: str
    global_job_id: str | None
    local_job_id: str | None
    create_time: str
    machine: str
    user: str | None
    vo: str | None
    status: str | None
    start: str | None
    end: str | None
    wall: str | None
    cpu: tuple[str, ...]
    node_count: int | None
    processors: int | None
    children: bool


def usage_record(record: Values) -> UsageRecord:
    """A row from the values of a record. Raises `ProcessingFailedError` and `DatabaseRefusedError`."""
    values, many = record
    if "" in values.values():
        values = _without_empty(values)
    if len(max(values.values(), key=len, default="")) > _SHORTEST_LIMIT:
        for slot, text in values.items():
            _fits(slot, text)
    cpu: tuple[str, ...] = ()
    children = False
    for slot, text, attributes in many:
        if not text:
            if slot in _NEVER_EMPTY:
                raise ProcessingFailedError(f"empty {slot}")
        elif slot == "CpuDuration":
            cpu = (*cpu, text)
        elif slot == "Memory":
            _memory(text, attributes)
        elif slot == "TransferSize":
            _integer(slot, text, _BIGINT)
        else:
            children = True
            _fits(slot, text)
    return _row(values, cpu, children=children)


def _without_empty(values: dict[str, str]) -> dict[str, str]:
    for slot, text in values.items():
        if not text and slot in _NEVER_EMPTY:
            raise ProcessingFailedError(f"empty {slot}")
    return {slot: text for slot, text in values.items() if text}


def _row(values: dict[str, str], cpu: tuple[str, ...], *, children: bool) -> UsageRecord:
    get = values.get
    create_time, machine = get("createTime"), get("MachineName")
    if not create_time:
        raise ProcessingFailedError("no createTime")
    if not machine:
        raise ProcessingFailedError("no MachineName")
    record_id, global_job_id, local_job_id = get("recordId"), get("GlobalJobId"), get("LocalJobId")
    if local_job_id is not None and (len(local_job_id) > _LONGEST_LOCAL_ID or local_job_id[0] == "/"):
        local_job_id, record_id = None, global_job_id or f"{machine}:{create_time}"
    if not record_id:
        raise DatabaseRefusedError('null value in column "record_id" violates not-null constraint')
    if not _is_instant(create_time):
        raise DatabaseRefusedError('null value in column "create_time" violates not-null constraint')
    nodes, processors = _count(values, "NodeCount", _SMALLINT), _count(values, "Processors", _INT)
    if processors is None:
        nodes, processors = None, nodes
    _durations(values, cpu)
    if "Charge" in values:
        _charge(values["Charge"])
    if "ExitCode" in values:
        _integer("ExitCode", values["ExitCode"], None)
    return UsageRecord(
        record_id, global_job_id, local_job_id, create_time, machine, get("GlobalUserName"), get("VoName"),
        get("Status"), get("StartTime"), get("EndTime"), get("WallDuration"), cpu, nodes, processors, children,
    )  # fmt: skip


def _fits(slot: str, text: str) -> None:
    longest = _LONGEST.get(slot)
    if longest is not None and len(text) > longest and not (slot == "LocalJobId" and len(text) > _LONGEST_LOCAL_ID):
        raise DatabaseRefusedError(f"value too long for type character varying({longest})")
    if slot in _UNIQUE and not text.isascii() and len(text.encode()) > _LARGEST_INDEXED:
        size = (len(text.encode()) + 12 + 7) // 8 * 8
        raise DatabaseRefusedError(
            f'index row size {size} exceeds btree version 4 maximum 2704 for index "{_UNIQUE[slot]}"'
        )


def _memory(text: str, attributes: tuple[tuple[str, str], ...]) -> None:
    amount = _integer("Memory", text, None)
    for name, value in attributes:
        if name == "metric" and value not in _MEMORY_METRICS:
            raise ProcessingFailedError(f"metric {value} of Memory")
        if name == "storageUnit":
            amount *= _UNIT_BYTES.get(value, 1)
    if not -_BIGINT <= amount < _BIGINT:
        raise DatabaseRefusedError(f'value "{amount}" is out of range for type bigint')


def _count(values: dict[str, str], slot: str, bound: int) -> int | None:
    text = values.get(slot)
    return None if text is None else _integer(slot, text, bound)


def _integer(slot: str, text: str, bound: int | None) -> int:
    try:
        value = int(text)
    except ValueError as error:
        raise ProcessingFailedError(f"{slot} is not an integer") from error
    if bound is not None and not -bound <= value < bound:
        kind = {_SMALLINT: "smallint", _INT: "integer", _BIGINT: "bigint"}[bound]
        raise DatabaseRefusedError(f"{kind} out of range")
    return value


def _charge(text: str) -> None:
    try:
        int(float(text))
    except (ValueError, OverflowError) as error:
        raise ProcessingFailedError("Charge is not a number") from error


def _durations(values: dict[str, str], cpu: tuple[str, ...]) -> None:
    """CpuDuration is a bigint, which no duration that can be read exceeds; the others are integers."""
    for slot in ("WallDuration", "UserTime", "KernelTime"):
        text = values.get(slot)
        if text is not None and len(text) > _SHORT_DURATION and (duration_s(text) or 0) >= _INT:
            raise DatabaseRefusedError("integer out of range")
    if len(cpu) > 1 and any(duration_s(text) is None for text in cpu):
        raise ProcessingFailedError("a CpuDuration of several cannot be read")


def _is_instant(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True
