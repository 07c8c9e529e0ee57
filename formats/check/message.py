"""Recognise a message, its records, and the rules that it breaks, for all formats and messages of any program.

The caller has removed signatures and compression. Input is hostile: there is a result for any bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from lxml import etree

from formats.apel.job import read_job
from formats.apel.text import RECORD_MARK, NotApelTextError, ParsedMessage
from formats.apel.text import parse as parse_text
from formats.auditor.read import read_message
from formats.auditor.record import FORMAT as AUDITOR
from formats.base import Format, Service, Violation
from formats.check.apel import check_text
from formats.check.auditor import check_records
from formats.check.car import check_compute_records
from formats.check.grammar import validate
from formats.check.sgas import check_usage_records
from formats.fit import shown
from formats.job import Job
from formats.registry import FORMATS
from formats.rules import type_of
from formats.text import date_time
from formats.utilization.report import CSV_BEGINS, NotAReportError, builtins, check_report, read_report
from formats.utilization.report import FORMAT as REPORT
from formats.waldur.usage import FORMAT as WALDUR
from formats.waldur.usage import AccountReport, read_reports
from formats.xdmod.slurm import FORMAT as XDMOD
from formats.xdmod.slurm import begins_as_lines, read_fields
from formats.xml.read import CAR, FORMAT_OF_NAMESPACE, NotAMessageError, begins_as_xml, read, record_elements
from formats.xml.read import parse as parse_xml

MOST_RECORDS: Final = 20_000
"""The most records of a message; ten times what services accept."""

LARGEST_TEXT_BYTES: Final = 8 * 2**20
"""The largest text message; services accept a tenth of it."""

ENOUGH_VIOLATIONS: Final = 10_000
"""The number of broken rules of the service from which the grammar is not checked as well: it would take minutes."""


class InspectedRecord(msgspec.Struct, frozen=True):
    """A record of a message, from 1. `job`: of a record about one run; `fields`: those of a text message."""

    number: int
    id: str
    job: Job | None = None
    fields: dict[str, str] = {}


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


def inspect_message(payload: bytes, now: int | None = None) -> Inspection:
    """Inspect these bytes. `now` (epoch seconds) adds the rules that depend on a service's clock. Raises nothing."""
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
    return _inspect_text(text, now)


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
    if (count := len(record_elements(root))) > MOST_RECORDS:
        rule = f"{count} records; at most {MOST_RECORDS} are checked"
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


def _inspect_report(payload: bytes) -> Inspection:
    try:
        report = read_report(payload)
    except NotAReportError as error:
        return _unknown("JSON or CSV of an unknown format", shown(error), "utilization reports")
    records = tuple(
        InspectedRecord(number, date_time(one.start), None, {name: str(value) for name, value in fields.items()})
        for number, (one, fields) in enumerate(zip(report.bins, builtins(report)["bins"], strict=True), 1)
    )
    found = tuple(check_report(report)[:ENOUGH_VIOLATIONS])
    return Inspection(REPORT.name, REPORT.title, REPORT.service, records, found)


def _inspect_list(payload: bytes) -> Inspection:
    try:
        reports = read_reports(payload)
    except (msgspec.MsgspecError, RecursionError):
        return _inspect_auditor(payload)
    return _inspect_waldur(reports[:MOST_RECORDS]) if reports else _inspect_auditor(payload)


def _inspect_waldur(reports: Sequence[AccountReport]) -> Inspection:
    records = tuple(
        InspectedRecord(
            number, one.account, None, {"month": one.month} | {c.type: str(c.amount) for c in one.components}
        )
        for number, one in enumerate(reports, 1)
    )
    violations = tuple(
        Violation(
            "error", number, shown(component.type), "the shares of users do not add up to the amount", WALDUR.title
        )
        for number, one in enumerate(reports, 1)
        for component in one.components
        if component.users and sum(user.usage for user in component.users) != component.amount
    )
    return Inspection(WALDUR.name, WALDUR.title, WALDUR.service, records, violations[:ENOUGH_VIOLATIONS])


def _inspect_auditor(payload: bytes) -> Inspection:
    try:
        found = read_message(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        return _unknown("JSON of an unknown format", shown(error), AUDITOR.title)
    if not found:
        return _unknown("JSON of an unknown format", "an empty list", AUDITOR.title)
    if len(found) > MOST_RECORDS:
        rule = f"{len(found)} records; at most {MOST_RECORDS} are checked"
        return _unknown(f"{AUDITOR.title}, too many to check", rule, "a limit of inspect")
    records = tuple(
        InspectedRecord(number, one.record_id, None, {"components": one.shown_components, "meta": one.shown_meta})
        for number, one in enumerate(found, 1)
    )
    violations = tuple(check_records(found)[:ENOUGH_VIOLATIONS])
    return Inspection(AUDITOR.name, AUDITOR.title, AUDITOR.service, records, violations)


def _inspect_text(text: str, now: int | None) -> Inspection:
    if text.lstrip().startswith(("{", CSV_BEGINS)):
        return _inspect_report(text.encode())
    if text.lstrip().startswith("["):
        return _inspect_list(text.encode())
    return _inspect_lines(text) if begins_as_lines(text) else _inspect_apel(text, now)


def _inspect_apel(text: str, now: int | None) -> Inspection:
    if (count := text.count(RECORD_MARK)) >= MOST_RECORDS:
        rule = f"{count} times {RECORD_MARK} between records; at most {MOST_RECORDS} records are checked"
        return _unknown("text too large to check", rule, "a limit of inspect")
    violations = tuple(check_text(text, now, ENOUGH_VIOLATIONS))
    try:
        message = parse_text(text)
    except NotApelTextError:
        return Inspection("", "text of an unknown format", "", (), violations)
    found = type_of(message.header, message.kind, message.version)
    if found is None:
        return Inspection("", f"text with the header {shown(message.header)}", "", (), violations)
    form = FORMATS[found.name]
    title = f"{form.title} v{found.version} ({shown(message.header)})"
    return Inspection(form.name, title, form.service, _text_records(form, message), violations)


def _inspect_lines(text: str) -> Inspection:
    lines = text.removesuffix("\n").split("\n")
    if len(lines) > MOST_RECORDS:
        return _unknown(f"{XDMOD.title}, too large to check", f"{len(lines)} lines", "a limit of inspect")
    records: list[InspectedRecord] = []
    violations: list[Violation] = []
    for number, line in enumerate(lines, 1):
        fields = read_fields(line)
        if fields is None:
            violations.append(Violation("error", number, "", "has fewer than 26 fields", "Open XDMoD's shredder"))
        else:
            records.append(InspectedRecord(number, fields["JobID"], None, fields))
    return Inspection(XDMOD.name, XDMOD.title, XDMOD.service, tuple(records), tuple(violations))


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
