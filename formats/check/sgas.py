"""Check whether SGAS would accept a message of usage records, and what it would store.

The rules are those of the facts on formats, 1.4, and on receivers, 1. SGAS does not apply the schema, and stores all of
a POST or nothing, so an error in one record is an error of the message. Values that it does not store (disk, network,
service levels) are not violations; values that it alters are warnings.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import Final

from lxml import etree

from formats.base import Violation
from formats.check.car import RecordCheck
from formats.check.sgas_times import YEARS_NOT_STORED, duration_s, instant
from formats.fit import shown
from formats.rules import INDEXED_BYTES, INT32, INT64, NumberRule, TextRule
from formats.rules import SgasRules as Rules
from formats.xml.ogf_ur import NAMESPACES
from formats.xml.read import UR, record_elements

_SOURCE: Final = "SGAS LUTS"
_RECEIVERS: Final = "SGAS LUTS"
LARGEST_BODY_BYTES: Final = 2 * 2**20
"""The largest body that the front end of an SGAS service accepts, as shipped."""

_LENGTHS: Final = (
    ("JobIdentity/GlobalJobId", Rules.GLOBAL_JOB_ID),
    ("UserIdentity/LocalUserId", Rules.LOCAL_USER_ID),
    ("UserIdentity/GlobalUserName", Rules.GLOBAL_USER_NAME),
    ("JobName", Rules.JOB_NAME),
    ("Status", TextRule("Status", 100, "SGAS column, 100 characters")),
    ("Queue", Rules.QUEUE),
    ("ProjectName", Rules.PROJECT),
    ("SubmitHost", TextRule("SubmitHost", 200, "SGAS column, 200 characters")),
    ("MachineName", TextRule("MachineName", 200, "SGAS column, 200 characters")),
    ("Host", TextRule("Host", INDEXED_BYTES, "SGAS column with an index", longest_bytes=INDEXED_BYTES)),
)
_VO_LENGTHS: Final = {"Name": Rules.VO_NAME, "Issuer": Rules.VO_ISSUER, "Group": Rules.VO_GROUP, "Role": Rules.VO_ROLE}
_METRICS: Final = frozenset({"total", "average", "min", "max"})
_MEMORY_TYPES: Final = frozenset({"shared", "physical", "dedicated"})
_BYTES: Final = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB"))}
_BIT_UNITS: Final = frozenset({"b", "Kb", "Mb", "Gb", "Tb", "Pb", "Eb"})
_BIGINT: Final = NumberRule("", -INT64 - 1, INT64, "SGAS column, 64 bits")
_INTEGER: Final = NumberRule("", -INT32 - 1, INT32, "SGAS column, 32 bits")
_SMALLINT: Final = NumberRule("NodeCount", -32_768, 32_767, "SGAS column, 16 bits")
_VO: Final = NAMESPACES["vo"]
_TR: Final = NAMESPACES["tr"]
_FACTS_OF_TRANSFERS: Final = ("Size", "StartTime", "EndTime", "BypassCache", "RetrievedFromCache")
_KNOWN_EXTENSIONS: Final = frozenset(
    {
        f"{{{NAMESPACES['deisa']}}}SubmitTime",
        f"{{{_TR}}}FileTransfers",
        f"{{{NAMESPACES['arc']}}}RuntimeEnvironment",
        "{http://www.sgas.se/namespaces/2010/08/logger}LoggerName",
        *(f"{{{NAMESPACES['sgas']}}}{name}" for name in
          ("UserTime", "KernelTime", "ExitCode", "MajorPageFaults", "RuntimeEnvironment")),
    }
)  # fmt: skip


def check_usage_records(root: etree._Element, payload: bytes) -> list[Violation]:
    """Everything that SGAS would refuse or alter in a message, given its bytes and its root element."""
    violations = list(_message(root, payload))
    ids: Counter[str] = Counter()
    for number, element in enumerate(record_elements(root), 1):
        check = RecordCheck(element, number, _SOURCE)
        if etree.QName(element).localname != "JobUsageRecord":
            check.error("", "its element is UsageRecord; the service accepts only JobUsageRecord")
        record_id = _identity(check)
        _texts(check)
        _times(check)
        _amounts(check)
        _memory(check)
        _extensions(check)
        if record_id is not None:
            ids[record_id] += 1
            if ids[record_id] == 2:
                check.warning(
                    "RecordIdentity@recordId", "occurs earlier in this message: the first one counts", _RECEIVERS
                )
        violations += check.found
    return violations


def _message(root: etree._Element, payload: bytes) -> list[Violation]:
    violations = []
    if len(payload) > LARGEST_BODY_BYTES:
        rule = f"{len(payload)} bytes; the front end, as shipped, accepts {LARGEST_BODY_BYTES}"
        violations.append(Violation("error", 0, "", rule, _RECEIVERS))
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        rule = "not UTF-8; the service decodes every message as UTF-8, whatever it declares"
        violations.append(Violation("error", 0, "", rule, _RECEIVERS))
    records = record_elements(root)
    if records != [root] and len(records) < len(root):
        known = set(records)
        others = sorted({etree.QName(child).localname for child in root if child not in known})
        violations.append(
            Violation("error", 0, shown(others[0]), "is not a record, and the service accepts records only", _SOURCE)
        )
    elif not records:
        violations.append(
            Violation("warning", 0, "", "no records: the service answers 200 and stores nothing", _RECEIVERS)
        )
    return violations


def _identity(check: RecordCheck) -> str | None:
    identities = check.elements("RecordIdentity")
    record_id = None
    created = [check.attribute(identity, "createTime") for identity in identities] or [None]
    if identities:
        record_id = check.attribute(identities[-1], "recordId")
    if record_id is None:
        check.error("RecordIdentity@recordId", "mandatory, and missing; attributes must have the namespace's prefix")
    elif not record_id:
        check.warning("RecordIdentity@recordId", "empty: all records without an id are one to the service", _RECEIVERS)
    else:
        check.length(Rules.RECORD_ID, record_id)
    if None in created:
        check.error("RecordIdentity@createTime", "mandatory, and missing; attributes must have the namespace's prefix")
    elif _time(check, "RecordIdentity@createTime", created[-1] or "") is None:
        check.error("RecordIdentity@createTime", f"not a date and time: {shown(created[-1] or '')}", _RECEIVERS)
    global_ids = check.raw_texts("JobIdentity/GlobalJobId")
    if not any(global_ids):
        rule = "missing: the record sent again is not recognised as a duplicate: it replaces the first, or fails"
        check.warning("GlobalJobId", rule, _RECEIVERS)
    local_id = next(reversed(check.raw_texts("JobIdentity/LocalJobId")), None)
    if local_id == "":
        check.error("LocalJobId", "an empty element")
    elif local_id is not None and Rules.rewrites_record_id(local_id):
        rule = "longer than 120 characters or beginning with a slash: dropped, and the record id is rewritten"
        check.warning("LocalJobId", rule, _RECEIVERS)
        if global_ids and not global_ids[-1]:
            check.error("GlobalJobId", "empty, and would be the record id", _RECEIVERS)
    return record_id


def _texts(check: RecordCheck) -> None:
    for path, rule in _LENGTHS:
        check.lengths(path, rule)
    if not next(reversed(check.raw_texts("MachineName")), ""):
        check.error("MachineName", "mandatory, and missing or empty")
    if len(check.elements("Host")) > 1:
        check.warning("Host", "of several hosts the last one is kept")
    has_name = False
    for vo in check.element.iter(f"{{{_VO}}}VO"):
        has_name = has_name or bool(vo.findtext(f"{{{_VO}}}Name"))
        if not has_name:
            check.warning("VO/Name", "missing: nothing about the VO is stored")
            continue
        for part in vo.iter(tag=etree.Element):
            column = _VO_LENGTHS.get(etree.QName(part).localname)
            if column is not None:
                check.length(column, (part.text or "").strip())
        check.length(Rules.VO_TYPE, vo.get(f"{{{_VO}}}type") or "")


def _times(check: RecordCheck) -> None:
    for field in ("StartTime", "EndTime"):
        texts = check.raw_texts(field)
        if not texts:
            check.warning(field, "missing: stored as NULL", _RECEIVERS)
        for text in texts:
            _time(check, field, text)
    for text in check.raw_texts("SubmitTime", NAMESPACES["deisa"]):
        _time(check, "SubmitTime", text)


def _time(check: RecordCheck, field: str, text: str) -> datetime | None:
    """The instant as the service reads it; if it cannot, add an error or a warning and return None."""
    try:
        at = instant(text)
    except OverflowError:
        check.error(field, f"out of bounds: {shown(text)}", _RECEIVERS)
        return None
    if not text:
        check.error(field, "an empty element")
    elif at is None:
        check.warning(field, f"not a date and time, stored as NULL: {shown(text)}")
    elif at.year in YEARS_NOT_STORED:
        check.error(field, f"the database cannot read the year: {shown(text)}", _RECEIVERS)
    elif check.instant(field, text) is None:
        check.warning(field, f"read as {at:%Y-%m-%dT%H:%M:%SZ}: {shown(text)}", _RECEIVERS)
    elif re.search(r"[+-]\d{4}$", text):
        check.warning(field, "a zone without a colon loses its minutes")
    return at


def _amounts(check: RecordCheck) -> None:
    sgas = NAMESPACES["sgas"]
    for text in check.raw_texts("WallDuration"):
        _duration(check, "WallDuration", text)
    for name in ("UserTime", "KernelTime"):
        for text in check.raw_texts(name, sgas):
            _duration(check, name, text)
    cpu = check.raw_texts("CpuDuration")
    for text in cpu:
        _duration(check, "CpuDuration", text, bits=64, summed=len(cpu) > 1)
    nodes, processors = check.raw_texts("NodeCount"), check.raw_texts("Processors")
    for text in nodes:
        _count(check, "NodeCount", text, _SMALLINT if processors else _INTEGER)
    for text in processors:
        _count(check, "Processors", text, _INTEGER)
    for text in check.raw_texts("MajorPageFaults", sgas):
        _count(check, "MajorPageFaults", text, _INTEGER)
    if nodes and not processors:
        check.warning("NodeCount", "used as Processors, which is missing")
    for text in check.texts("Charge"):
        _charge(check, text)
    for text in check.raw_texts("ExitCode", sgas):
        code = check.whole_number("ExitCode", text.strip(), _BIGINT)
        if code is not None and not 0 <= code <= 255:
            check.warning("ExitCode", f"stored as {code & 0xFF}: its last eight bits")


def _count(check: RecordCheck, field: str, text: str, column: NumberRule) -> None:
    """Check a number that the service does not require: one that it cannot read is stored as NULL."""
    if not text:
        check.error(field, "an empty element", _RECEIVERS)
        return
    try:
        number = int(text)
    except ValueError:
        check.warning(field, f"not a whole number, stored as NULL: {shown(text)}", _RECEIVERS)
        return
    if not column.least <= number <= column.largest:
        check.error(field, f"{shown(text)} is not in {column.least}..{column.largest}", column.source)


def _duration(check: RecordCheck, field: str, text: str, *, bits: int = 32, summed: bool = False) -> None:
    try:
        total_s = duration_s(text)
    except OverflowError:
        check.error(field, f"out of bounds: {shown(text)}", _RECEIVERS)
        return
    if not text:
        check.error(field, "an empty element", _RECEIVERS)
    elif total_s is None and summed:
        check.error(field, f"one of several is not a duration: {shown(text)}", _RECEIVERS)
    elif total_s is None:
        check.warning(field, f"not a duration of weeks to seconds, stored as NULL: {shown(text)}", _RECEIVERS)
    elif not -(2 ** (bits - 1)) <= total_s < 2 ** (bits - 1):
        check.error(field, f"{total_s} seconds; the column has {2 ** (bits - 1) - 1}")
    elif total_s < 0:
        check.warning(field, "negative; it is stored unchanged", _RECEIVERS)
    elif re.search("[.,]", text):
        check.warning(field, "the fraction of a second is cut", _RECEIVERS)


def _charge(check: RecordCheck, text: str) -> None:
    try:
        charge = float(text)
    except ValueError:
        check.error("Charge", f"not a number: {shown(text)}")
        return
    if not -INT32 - 2 < charge < INT32 + 1:
        check.error("Charge", f"{shown(text)} does not fit 32 bits")
    elif charge != int(charge):
        check.warning("Charge", "cut to a whole number")


def _memory(check: RecordCheck) -> None:
    for element in check.elements("Memory"):
        metric = check.attribute(element, "metric")
        unit, kind = check.attribute(element, "storageUnit"), check.attribute(element, "type")
        if metric is not None and metric not in _METRICS:
            check.error("Memory@metric", f"not one of {', '.join(sorted(_METRICS))}: {shown(metric)}")
        if kind is not None and kind not in _MEMORY_TYPES:
            check.warning("Memory@type", f"not one of {', '.join(sorted(_MEMORY_TYPES))}: {shown(kind)} is lost")
        if unit in _BIT_UNITS:
            check.error("Memory@storageUnit", f"a unit of bits gives fractions of bytes: {unit}", _RECEIVERS)
        elif unit is not None and unit not in _BYTES:
            check.warning("Memory@storageUnit", f"unknown, read as bytes: {shown(unit)}")
        amount = check.whole_number("Memory", (element.text or "").strip(), _BIGINT)
        factor = _BYTES.get(unit or "", 1)
        if amount is not None and not -INT64 <= amount * factor <= INT64:
            rule = f"{amount} {unit or 'B'} does not fit 64 bits of bytes: at most {INT64 // factor} {unit or 'B'}"
            check.error("Memory", rule, "SGAS LUTS")


def _extensions(check: RecordCheck) -> None:
    for child in check.element.iterchildren(tag=etree.Element):
        name = etree.QName(child)
        if name.localname == "RuntimeEnvironment" and name.namespace != UR:
            text = child.text or ""
            if not text:
                check.error("RuntimeEnvironment", "an empty element")
            check.length(Rules.RUNTIME_ENVIRONMENT, text)
        elif name.namespace != UR and child.tag not in _KNOWN_EXTENSIONS:
            check.warning(shown(name.localname), "an extension that the service does not know: ignored", "SGAS LUTS")
    for transfer in check.element.findall(f"{{{_TR}}}FileTransfers/*"):
        _transfer(check, transfer)


def _transfer(check: RecordCheck, transfer: etree._Element) -> None:
    kind = shown(etree.QName(transfer).localname)
    if kind not in {"FileDownload", "FileUpload"}:
        return
    facts: dict[str, str] = {}
    for name in ("URL", *_FACTS_OF_TRANSFERS):
        elements = transfer.findall(f"{{{_TR}}}{name}")
        if any(not element.text for element in elements) and name != "URL":
            check.error(f"{kind}/{name}", "an empty element", _RECEIVERS)
        if elements:
            facts[name] = elements[-1].text or ""
    if not facts.get("URL"):
        check.error(f"{kind}/URL", "missing or empty")
    check.length(Rules.TRANSFER_URL, facts.get("URL", ""))
    if facts.get("Size"):
        _count(check, f"{kind}/Size", facts["Size"], _BIGINT)
    for name in ("StartTime", "EndTime"):
        if facts.get(name):
            _time(check, f"{kind}/{name}", facts[name])
