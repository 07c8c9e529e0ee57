"""Whether SGAS would take a message of usage records, and what it would make of it.

Keeps the promise that what is sent is valid against what the service really accepts: the rules of the facts on formats,
1.4, and the facts on receivers, 1. SGAS applies no schema and stores a POST whole or not at all, so one record's error
is the message's. What it does not store (disk, network, service levels) is no violation; what it spoils is a warning.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

from lxml import etree

from formats.base import Violation
from formats.check.car import RecordCheck
from formats.fit import shown
from formats.rules import INT32, INT64, NumberRule, TextRule
from formats.rules import SgasRules as Rules
from formats.xml.ogf_ur import NAMESPACES
from formats.xml.read import UR, record_elements

_SOURCE: Final = "facts on formats, 1.4"
_RECEIVERS: Final = "facts on receivers, 1"
LARGEST_BODY_BYTES: Final = 2 * 2**20
"""What the front end of an SGAS service takes as shipped."""

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
)
_VO_LENGTHS: Final = {"Name": Rules.VO_NAME, "Issuer": Rules.VO_ISSUER, "Group": Rules.VO_GROUP, "Role": Rules.VO_ROLE}
_DURATION: Final = re.compile(
    r"(-)?P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,12})M)?(?:(\d{1,18})(\.\d+)?S)?)?"
).fullmatch
_METRICS: Final = frozenset({"total", "average", "min", "max"})
_MEMORY_TYPES: Final = frozenset({"shared", "physical", "dedicated"})
_BYTES: Final = {unit: 1024**power for power, unit in enumerate(("B", "KB", "MB", "GB", "TB", "PB", "EB"))}
_BIT_UNITS: Final = frozenset({"b", "Kb", "Mb", "Gb", "Tb", "Pb", "Eb"})
_BIGINT: Final = NumberRule("", -INT64 - 1, INT64, "SGAS column, 64 bits")
_INTEGER: Final = NumberRule("", -INT32 - 1, INT32, "SGAS column, 32 bits")
_SMALLINT: Final = NumberRule("NodeCount", -32_768, 32_767, "SGAS column, 16 bits")
_VO: Final = NAMESPACES["vo"]
_TR: Final = NAMESPACES["tr"]
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
    """All that SGAS would refuse or alter in a message, given its bytes and its root element."""
    found = list(_message(root, payload))
    ids: Counter[str] = Counter()
    for number, element in enumerate(record_elements(root), 1):
        check = RecordCheck(element, number, _SOURCE)
        if etree.QName(element).localname != "JobUsageRecord":
            check.error("", "its element is UsageRecord; the service takes JobUsageRecord only")
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
                    "RecordIdentity@recordId", "there before in this message: the first one counts", _RECEIVERS
                )
        found += check.found
    return found


def _message(root: etree._Element, payload: bytes) -> list[Violation]:
    found = []
    if len(payload) > LARGEST_BODY_BYTES:
        rule = f"{len(payload)} bytes; the front end as shipped takes {LARGEST_BODY_BYTES}"
        found.append(Violation("error", 0, "", rule, _RECEIVERS))
    try:
        payload.decode("utf-8")
    except UnicodeDecodeError:
        rule = "not UTF-8, as which the service decodes it whatever it declares"
        found.append(Violation("error", 0, "", rule, _RECEIVERS))
    records = record_elements(root)
    if records != [root] and len(records) < len(root):
        known = set(records)
        others = sorted({etree.QName(child).localname for child in root if child not in known})
        found.append(
            Violation("error", 0, shown(others[0]), "is no record, and the service takes nothing else", _SOURCE)
        )
    elif not records:
        found.append(Violation("warning", 0, "", "no records: the service answers 200 and stores nothing", _RECEIVERS))
    return found


def _identity(check: RecordCheck) -> str | None:
    identities = check.elements("RecordIdentity")
    record_id = created = None
    if identities:
        record_id = check.attribute(identities[0], "recordId")
        created = check.attribute(identities[0], "createTime")
    if not record_id:
        check.error("RecordIdentity@recordId", "mandatory, and missing; attributes must have the namespace's prefix")
    else:
        check.length(Rules.RECORD_ID, record_id)
    if created is None:
        check.error("RecordIdentity@createTime", "mandatory, and missing; attributes must have the namespace's prefix")
    elif check.instant("RecordIdentity@createTime", created) is None:
        check.error("RecordIdentity@createTime", f"no date and time: {shown(created)}", _RECEIVERS)
    if not any(check.texts("JobIdentity/GlobalJobId")):
        rule = "missing: the record sent again is no duplicate, but replaces the first, or fails"
        check.warning("GlobalJobId", rule, _RECEIVERS)
    for local_id in check.texts("JobIdentity/LocalJobId"):
        if not local_id:
            check.error("LocalJobId", "an empty element")
        elif Rules.rewrites_record_id(local_id):
            rule = "longer than 120 characters or with a slash first: dropped, and the record id is rewritten"
            check.warning("LocalJobId", rule, _RECEIVERS)
    return record_id


def _texts(check: RecordCheck) -> None:
    for path, rule in _LENGTHS:
        check.lengths(path, rule)
    if not any(check.texts("MachineName")):
        check.error("MachineName", "mandatory, and missing or empty")
    if len(check.elements("Host")) > 1:
        check.warning("Host", "of several hosts the last one is kept")
    for vo in check.element.iter(f"{{{_VO}}}VO"):
        if not (vo.findtext(f"{{{_VO}}}Name") or "").strip():
            check.warning("VO/Name", "missing: nothing of the VO is stored")
        for part in vo.iter(tag=etree.Element):
            column = _VO_LENGTHS.get(etree.QName(part).localname)
            if column is not None:
                check.length(column, (part.text or "").strip())
        check.length(Rules.VO_TYPE, vo.get(f"{{{_VO}}}type") or "")


def _times(check: RecordCheck) -> None:
    deisa = f"{{{NAMESPACES['deisa']}}}SubmitTime"
    for field in ("StartTime", "EndTime"):
        texts = check.texts(field)
        if not texts:
            check.warning(field, "missing: stored as NULL", _RECEIVERS)
        for text in texts:
            _time(check, field, text)
    for element in check.element.findall(deisa):
        _time(check, "SubmitTime", (element.text or "").strip())


def _time(check: RecordCheck, field: str, text: str) -> None:
    if not text:
        check.error(field, "an empty element")
    elif check.instant(field, text) is None:
        check.warning(field, f"no date and time, stored as NULL: {shown(text)}")
    elif re.search(r"[+-]\d{4}$", text):
        check.warning(field, "a zone without a colon loses its minutes")


def _amounts(check: RecordCheck) -> None:
    sgas = NAMESPACES["sgas"]
    for text in check.texts("WallDuration"):
        _duration(check, "WallDuration", text, INT32)
    for name in ("UserTime", "KernelTime"):
        for element in check.element.findall(f"{{{sgas}}}{name}"):
            _duration(check, name, (element.text or "").strip(), INT32)
    cpu = check.texts("CpuDuration")
    for text in cpu:
        _duration(check, "CpuDuration", text, INT64, summed=len(cpu) > 1)
    nodes, processors = check.texts("NodeCount"), check.texts("Processors")
    for text in nodes:
        check.whole_number("NodeCount", text, _SMALLINT)
    for text in processors:
        check.whole_number("Processors", text, _INTEGER)
    if nodes and not processors:
        check.warning("NodeCount", "taken for Processors, which is missing")
    for text in check.texts("Charge"):
        _charge(check, text)
    for element in check.element.findall(f"{{{sgas}}}ExitCode"):
        code = check.whole_number("ExitCode", (element.text or "").strip(), _BIGINT)
        if code is not None and not 0 <= code <= 255:
            check.warning("ExitCode", f"stored as {code & 0xFF}: its last eight bits")


def _duration(check: RecordCheck, field: str, text: str, largest_s: int, *, summed: bool = False) -> None:
    match = _DURATION(text)
    if match is None or not any(match.group(2, 3, 4, 5)):
        if summed:
            check.error(field, f"of several one is no duration: {shown(text)}", _RECEIVERS)
        else:
            check.warning(field, f"no duration of days to seconds, stored as NULL: {shown(text)}", _RECEIVERS)
        return
    sign, days, hours, minutes, seconds, fraction = match.groups()
    total_s = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
    if total_s > largest_s:
        check.error(field, f"{total_s} seconds; the column has {largest_s}")
    if sign:
        check.warning(field, "negative, and stored so", _RECEIVERS)
    if fraction:
        check.warning(field, "the fraction of a second is cut", _RECEIVERS)


def _charge(check: RecordCheck, text: str) -> None:
    try:
        charge = float(text)
    except ValueError:
        check.error("Charge", f"no number: {shown(text)}")
        return
    if not abs(charge) <= INT32:
        check.error("Charge", f"{shown(text)} does not fit 32 bits")
    elif charge != int(charge):
        check.warning("Charge", "cut to a whole number")


def _memory(check: RecordCheck) -> None:
    for element in check.elements("Memory"):
        metric = check.attribute(element, "metric")
        unit, kind = check.attribute(element, "storageUnit"), check.attribute(element, "type")
        if metric is not None and metric not in _METRICS:
            check.error("Memory@metric", f"none of {', '.join(sorted(_METRICS))}: {shown(metric)}")
        if kind is not None and kind not in _MEMORY_TYPES:
            check.warning("Memory@type", f"none of {', '.join(sorted(_MEMORY_TYPES))}: {shown(kind)} is lost")
        if unit in _BIT_UNITS:
            check.warning("Memory@storageUnit", f"a unit of bits gives fractions of bytes: {unit}")
        elif unit is not None and unit not in _BYTES:
            check.warning("Memory@storageUnit", f"unknown, taken for bytes: {shown(unit)}")
        amount = check.whole_number("Memory", (element.text or "").strip(), _BIGINT)
        factor = _BYTES.get(unit or "", 1)
        if amount is not None and not -INT64 <= amount * factor <= INT64:
            rule = f"{amount} {unit or 'B'} does not fit 64 bits of bytes: at most {INT64 // factor} {unit or 'B'}"
            check.error("Memory", rule, "facts on receivers, seen on the real services")


def _extensions(check: RecordCheck) -> None:
    for child in check.element.iterchildren(tag=etree.Element):
        name = etree.QName(child)
        if name.localname == "RuntimeEnvironment" and name.namespace != UR:
            text = (child.text or "").strip()
            if not text:
                check.error("RuntimeEnvironment", "an empty element")
            check.length(Rules.RUNTIME_ENVIRONMENT, text)
        elif name.namespace != UR and child.tag not in _KNOWN_EXTENSIONS:
            check.warning(
                shown(name.localname), "an extension that the service does not know: ignored", "facts on formats, 1.3"
            )
    for transfer in check.element.findall(f"{{{_TR}}}FileTransfers/*"):
        kind = etree.QName(transfer).localname
        if not (transfer.findtext(f"{{{_TR}}}URL") or "").strip():
            check.error(f"{shown(kind)}/URL", "missing or empty")
        check.length(Rules.TRANSFER_URL, transfer.findtext(f"{{{_TR}}}URL") or "")
        size = transfer.findtext(f"{{{_TR}}}Size")
        if size is not None:
            check.whole_number(f"{shown(kind)}/Size", size.strip(), _BIGINT)
