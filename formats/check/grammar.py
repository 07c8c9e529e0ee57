"""Validate messages against our grammars of UR and CAR, and by rules that grammars cannot express.

Elements of foreign namespaces are removed before a UR is checked: the standard allows extensions, but its schema does
not (facts on formats, 0.8). Host names are those that services accept (`formats.rules.is_host_name`), more than the
standards' domainNameType allows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from copy import deepcopy
from functools import cache
from importlib import resources
from typing import Final

import msgspec
from lxml import etree

from formats.registry import FORMATS
from formats.utilization.report import NotAReportError, check_report, read_report
from formats.xml.read import CAR, FORMAT_OF_NAMESPACE, UR, NotAMessageError, parse, record_elements

_ELEMENT: Final = re.compile(r"[Ee]lement (\w+)")
_SCHEMA_INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"
_ONCE: Final = (
    "WallDuration", "NodeCount", "Processors", "EndTime", "StartTime", "MachineName", "SubmitHost", "Queue",
)  # fmt: skip
"""Base properties of a UR: by the standard each occurs once, but its schema allows repetition."""


class SchemaViolation(msgspec.Struct, frozen=True):
    """A rule that a message breaks: the record (its id, or its position if it has none), field, and rule."""

    record: str
    field: str
    rule: str


class UnknownGrammarError(KeyError):
    """No format with this name has a grammar."""


def validate(format_name: str, payload: bytes) -> list[SchemaViolation]:
    """What is invalid in a message of that format; empty if it is valid.

    Reports have rules instead of a grammar. Raises `UnknownGrammarError` for a format that has neither.
    """
    form = FORMATS.get(format_name)
    if form is not None and form.shape == "report":
        return _of_report(payload)
    if form is None or not form.grammar:
        raise UnknownGrammarError(format_name)
    try:
        root = parse(payload)
    except NotAMessageError as error:
        return [SchemaViolation("", "", str(error))]
    namespace = etree.QName(root).namespace or ""
    if FORMAT_OF_NAMESPACE[namespace] != format_name:
        return [SchemaViolation("", "", f"is a message of {FORMAT_OF_NAMESPACE[namespace]}")]
    grammar = _grammar(form.grammar)
    violations = _frame(root)
    for position, element in enumerate(record_elements(root), 1):
        record = standard_part(element)
        label = _label(record, namespace) or f"record {position}"
        if not grammar.validate(record):
            violations += _violations(label, [error.message for error in grammar.error_log])
        violations += [SchemaViolation(label, field, rule) for field, rule in _beyond_grammar(record, namespace)]
    return violations


def _of_report(payload: bytes) -> list[SchemaViolation]:
    try:
        report = read_report(payload)
    except NotAReportError as error:
        return [SchemaViolation("", "", str(error))]
    return [
        SchemaViolation(f"bin {broken.record}" if broken.record else "", broken.field, broken.rule)
        for broken in check_report(report)
    ]


def standard_part(element: etree._Element) -> etree._Element:
    """A copy of a record without elements of foreign namespaces and without schema hints."""
    record = deepcopy(element)
    record.tail = None
    namespace = etree.QName(record).namespace
    for child in list(record.iter(tag=etree.Element)):
        if child is not record and etree.QName(child).namespace != namespace:
            parent = child.getparent()
            if parent is not None:
                parent.remove(child)
            continue
        for name in child.attrib:
            if etree.QName(name).namespace == _SCHEMA_INSTANCE:
                del child.attrib[name]
    return record


@cache
def _grammar(file: str) -> etree.RelaxNG:
    source = resources.files("formats").joinpath("schemas", file).read_bytes()
    return etree.RelaxNG(etree.fromstring(source))


def _frame(root: etree._Element) -> list[SchemaViolation]:
    """Rules about a `UsageRecords` element, apart from its records."""
    if etree.QName(root).localname != "UsageRecords":
        return []
    records = set(record_elements(root))
    return [
        SchemaViolation("", etree.QName(child).localname, "is not a record, and UsageRecords may contain records only")
        for child in root
        if child not in records
    ]


def _label(record: etree._Element, namespace: str) -> str | None:
    identity = record.find(f"{{{namespace}}}RecordIdentity")
    return None if identity is None else identity.get(f"{{{namespace}}}recordId")


def _violations(record: str, messages: Iterable[str]) -> list[SchemaViolation]:
    """The messages of the schema validation; messages about details are joined to the one that names the element."""
    violations, details = [], []
    for message in messages:
        details.append(message)
        if match := _ELEMENT.search(message):
            violations.append(SchemaViolation(record, match[1], "; ".join(details)))
            details = []
    return [*violations, SchemaViolation(record, "", "; ".join(details))] if details else violations


def _beyond_grammar(record: etree._Element, namespace: str) -> list[tuple[str, str]]:
    """Rules of the standards that their schemas do not express."""
    breaches = []
    counts = Counter(etree.QName(child).localname for child in record)
    if namespace == UR:
        breaches += [(name, f"occurs {counts[name]} times; it must occur once") for name in _ONCE if counts[name] > 1]
    if namespace == CAR:
        kinds = Counter(cpu.get(f"{{{CAR}}}usageType", "all") for cpu in record.findall(f"{{{CAR}}}CpuDuration"))
        if kinds["all"] != 1:
            breaches.append(("CpuDuration", f"usageType all occurs {kinds['all']} times; it must occur once"))
    return breaches
