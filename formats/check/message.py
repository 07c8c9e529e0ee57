"""Recognise a message, its records, and the rules that it breaks, for all formats and messages of any program.

The caller has removed signatures and compression. Input is hostile: there is a result for any bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final

import msgspec
from lxml import etree

from formats.apel.job import read_job
from formats.apel.text import RECORD_MARK, NotApelTextError, ParsedMessage
from formats.apel.text import parse as parse_text
from formats.base import MOST_INSPECTED, Format, InspectedRecord, Service, Violation
from formats.check.apel import check_text
from formats.check.car import check_compute_records
from formats.check.grammar import validate
from formats.check.sgas import check_usage_records
from formats.fit import shown
from formats.registry import FORMATS
from formats.rules import type_of
from formats.xml.read import CAR, FORMAT_OF_NAMESPACE, NotAMessageError, begins_as_xml, read, record_elements
from formats.xml.read import parse as parse_xml

LARGEST_TEXT_BYTES: Final = 8 * 2**20
"""The largest text message; services accept a tenth of it."""

ENOUGH_VIOLATIONS: Final = 10_000
"""The number of broken rules of the service from which the grammar is not checked as well: it would take minutes."""


class Inspection(msgspec.Struct, frozen=True):
    """A message: the name of its `format` (empty: unknown), and the `service` whose rules were applied."""

    format: str
    title: str
    service: Service
    records: tuple[InspectedRecord, ...] = ()
    violations: tuple[Violation, ...] = ()

    @property
    def taken(self) -> bool:
        """Whether the service would accept the message."""
        return not any(violation.level == "error" for violation in self.violations)

    @property
    def valid(self) -> bool:
        """Whether the service would accept it, and it conforms to the format's grammar."""
        return self.taken and not any(self.is_of_grammar(violation) for violation in self.violations)

    def is_of_grammar(self, violation: Violation) -> bool:
        """Whether this is a rule of the format's grammar: a warning, since no service applies the grammar."""
        return self.format in FORMATS and violation.source == FORMATS[self.format].grammar_source


def inspect_message(payload: bytes, now: int | None = None, added: Sequence[Format] = ()) -> Inspection:
    """Inspect these bytes. `now` (epoch seconds) adds the rules that depend on a service's clock. `added`: formats
    beside those of the registry. Raises nothing."""
    if not payload.strip():
        return _unknown("an empty message", "it is empty: the APEL server's loader would stop", "APEL server")
    if begins_as_xml(payload):
        return _inspect_xml(payload, now)
    if b"\0" in payload:
        return _unknown("binary data", "contains NUL bytes: neither text nor XML", "APEL message format")
    if len(payload) > LARGEST_TEXT_BYTES:
        rule = f"{len(payload)} bytes; at most {LARGEST_TEXT_BYTES} are checked"
        return _unknown("text too large to check", rule, "a limit of inspect")
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError as error:
        return _unknown("unreadable text", f"not UTF-8 from byte {error.start} on", "SSM")
    return _inspect_text(text, now, added)


def _unknown(title: str, rule: str, source: str) -> Inspection:
    return Inspection("", title, "", (), (Violation("error", 0, "", rule, source),))


def _inspect_xml(payload: bytes, now: int | None) -> Inspection:
    try:
        root = parse_xml(payload)
    except NotAMessageError as error:
        return _unknown("XML of an unknown format", shown(error), "SGAS LUTS and APEL server")
    except RecursionError:
        return _unknown("XML of an unknown format", "nested too deeply", "SGAS LUTS and APEL server")
    namespace = etree.QName(root).namespace or ""
    form = FORMATS[FORMAT_OF_NAMESPACE[namespace]]
    if (count := len(record_elements(root))) > MOST_INSPECTED:
        rule = f"{count} records; at most {MOST_INSPECTED} are checked"
        return _unknown(f"{form.title}, too large to check", rule, "a limit of inspect")
    if namespace == CAR:
        violations = check_compute_records(root, payload, now)
    else:
        violations = check_usage_records(root, payload)
    if len(violations) < ENOUGH_VIOLATIONS:
        violations += _grammar(form, payload, root, namespace)
    else:
        rule = f"not checked: {len(violations)} rules of the service are broken"
        violations.append(Violation("warning", 0, "", rule, form.grammar_source))
    read_back = [record.job for record in read(payload)]
    records = tuple(InspectedRecord(number, job.record_id, job) for number, job in enumerate(read_back, 1))
    return Inspection(
        form.name,
        form.title,
        form.service,
        records,
        tuple(violations),
    )


def _grammar(form: Format, payload: bytes, root: etree._Element, namespace: str) -> list[Violation]:
    numbers: dict[str, int] = {}
    for number, element in enumerate(record_elements(root), 1):
        identity = element.find(f"{{{namespace}}}RecordIdentity")
        label = None if identity is None else identity.get(f"{{{namespace}}}recordId")
        numbers.setdefault(str(label) if label else f"record {number}", number)
    return [
        Violation(
            "warning", numbers.get(broken.record, 0), shown(broken.field), shown(broken.rule), form.grammar_source
        )
        for broken in validate(form.name, payload)
    ]


def _inspect_text(text: str, now: int | None, added: Sequence[Format]) -> Inspection:
    why_not: list[Violation] = []
    for form in (*FORMATS.values(), *added):
        try:
            inspection = _inspected(form, text)
        except (ValueError, RecursionError) as error:
            why_not.append(Violation("error", 0, "", shown(error), form.title))
            continue
        if inspection is not None:
            return inspection
    return Inspection("", "text of an unknown format", "", (), tuple(why_not)) if why_not else _inspect_apel(text, now)


def _inspected(form: Format, text: str) -> Inspection | None:
    inspected = None if form.inspected is None else form.inspected(text)
    if inspected is None:
        return None
    # A report has as many bins as its interval; how many there may be follows from the size of the text.
    most = None if form.shape == "report" else MOST_INSPECTED
    records = tuple(islice(inspected.records, None if most is None else most + 1))
    if most is not None and len(records) > most:
        return _unknown(f"{form.title}, too large to check", f"more than {most} records", "a limit of inspect")
    violations = tuple(islice(inspected.violations, ENOUGH_VIOLATIONS))
    return Inspection(form.name, form.title, form.service, records, violations)


def _inspect_apel(text: str, now: int | None) -> Inspection:
    if (count := text.count(RECORD_MARK)) >= MOST_INSPECTED:
        rule = f"{count} times {RECORD_MARK} between records; at most {MOST_INSPECTED} records are checked"
        return _unknown("text too large to check", rule, "a limit of inspect")
    violations = tuple(check_text(text, now, ENOUGH_VIOLATIONS))
    try:
        message = parse_text(text)
    except NotApelTextError:
        return Inspection("", "text of an unknown format", "", (), violations)
    message_type = type_of(message.header, message.kind, message.version)
    if message_type is None:
        return Inspection("", f"text with the header {shown(message.header)}", "", (), violations)
    form = FORMATS[message_type.name]
    title = f"{form.title} v{message_type.version} ({shown(message.header)})"
    return Inspection(form.name, title, form.service, _text_records(form, message), violations)


def _text_records(form: Format, message: ParsedMessage) -> tuple[InspectedRecord, ...]:
    records = []
    for record in message.records:
        job = read_job(record) if form.shape == "record" else None
        identity = (record.get("LocalJobId") or "") if job is not None else _group_id(record.fields)
        records.append(InspectedRecord(record.number, identity, job, record.fields))
    return tuple(records)


def _group_id(fields: dict[str, str]) -> str:
    """A group's name for people: its month and submit host."""
    return f"{fields.get('Year', '?')}-{fields.get('Month', '?'):>02} {fields.get('SubmitHost', '')}".rstrip()
