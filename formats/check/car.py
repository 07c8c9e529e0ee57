"""Check whether the APEL server would accept a message of compute accounting records, and what it would store.

The rules are those of the facts on formats, 2.1, and on receivers, 2. APEL does not apply the schema, uses the first
element with a name anywhere in the record, and loads all of a message or nothing: an error in one record is an error of
the message, and the sender is not informed.

Also the common part of all checks of XML records: access to a record's elements, and the rules that it breaks.
"""

from __future__ import annotations

import re
from typing import Final

from lxml import etree

from formats.base import Level, Violation
from formats.benchmark import BENCHMARKS, LARGEST_SCORE
from formats.fit import shown
from formats.names import vo_read_by_apel
from formats.rules import INT32, LATEST_END_AFTER_NOW_S, NumberRule, TextRule, compared
from formats.rules import CarRules as Rules
from formats.signed_text import looks_encrypted
from formats.text import read_date_time
from formats.xml.read import CAR, record_elements

_ZONE: Final = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}").fullmatch


class RecordCheck:
    """One record of a message. `found` are the rules that it breaks."""

    def __init__(self, element: etree._Element, number: int, source: str) -> None:
        """`source`: the source of rules that do not name another."""
        self.element = element
        self.found: list[Violation] = []
        self._namespace = etree.QName(element).namespace or ""
        self._number = number
        self._source = source

    def error(self, field: str, rule: str, source: str | None = None) -> None:
        """The service refuses the message for this."""
        self._say("error", field, rule, source)

    def warning(self, field: str, rule: str, source: str | None = None) -> None:
        """The service alters or ignores something."""
        self._say("warning", field, rule, source)

    def _say(self, level: Level, field: str, rule: str, source: str | None) -> None:
        self.found.append(Violation(level, self._number, field, rule, source or self._source))

    def elements(self, path: str) -> list[etree._Element]:
        """Elements at a path below the record; steps without a namespace have that of the record."""
        return self.element.findall("/".join(f"{{{self._namespace}}}{step}" for step in path.split("/")))

    def texts(self, path: str) -> list[str]:
        """Texts of the elements at a path, without surrounding blanks; empty for an empty element."""
        return [text.strip() for text in self.raw_texts(path)]

    def raw_texts(self, path: str, namespace: str | None = None) -> list[str]:
        """Texts of the elements at a path, unchanged; steps have this namespace, or that of the record."""
        steps = "/".join(f"{{{namespace or self._namespace}}}{step}" for step in path.split("/"))
        return [element.text or "" for element in self.element.findall(steps)]

    def attribute(self, element: etree._Element, name: str) -> str | None:
        """A qualified attribute: the services ignore attributes without a prefix."""
        value = element.get(f"{{{self._namespace}}}{name}")
        return None if value is None else str(value)

    def lengths(self, path: str, rule: TextRule) -> None:
        """Check that no text at the path is longer than its column."""
        for text in self.texts(path):
            self.length(rule, text)

    def length(self, rule: TextRule, text: str) -> None:
        """Check that a text is not longer than its column."""
        if len(text) > rule.longest:
            self.error(rule.field, f"{len(text)} characters; the column has {rule.longest}")
        elif excess := rule.excess(text):
            self.error(rule.field, excess, "APEL server")

    def whole_number(self, field: str, text: str, rule: NumberRule) -> int | None:
        """A whole number in its column's range; for anything else add an error and return None."""
        if not _WHOLE(text):
            self.error(field, f"not a whole number: {shown(text)}")
            return None
        if not rule.least <= int(text) <= rule.largest:
            self.error(field, f"{text} is not in {rule.least}..{rule.largest}", rule.source)
            return None
        return int(text)

    def instant(self, field: str, text: str) -> int | None:
        """An instant, epoch seconds, with a warning if the service has to assume its zone; None if it is not an
        instant."""
        try:
            at = read_date_time(text)
        except (ValueError, OverflowError):
            return None
        if not _ZONE.search(text):
            self.warning(field, "without a zone: taken as UTC")
        return at


_SOURCE: Final = "APEL server"
_RECEIVERS: Final = "APEL server"
_SIGNING: Final = "SSM"

_LENGTHS: Final = (
    ("Site", Rules.SITE),
    ("SubmitHost", Rules.SUBMIT_HOST),
    ("MachineName", TextRule("MachineName", 255, "APEL column, 255 characters")),
    ("Queue", Rules.QUEUE),
    ("LocalJobId", Rules.LOCAL_JOB_ID),
    ("LocalUserId", Rules.LOCAL_USER_ID),
    ("GlobalUserName", Rules.GLOBAL_USER_NAME),
    ("Group", Rules.GROUP),
)
_DURATION: Final = re.compile(
    r"P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,12})M)?(?:(\d{1,18})(\.\d+)?S)?)?"
).fullmatch
_COUNT: Final = NumberRule("", 0, INT32, "APEL's procedure takes signed 32 bits")
_KNOWN: Final = frozenset(name.lower() for name in BENCHMARKS)
_BEFORE_ROOT: Final = re.compile(rb"\A(?:\xef\xbb\xbf)?\s*(?:<\?xml\b[^>]*\?>)?\s*(?:<!--|<\?(?!xml\s))")


def check_compute_records(root: etree._Element, payload: bytes, now: int | None) -> list[Violation]:
    """Everything that the server would refuse or alter in a message, given its bytes and its root element.

    `now` (epoch seconds) adds the rule that depends on its clock.
    """
    violations = []
    if not payload.isascii():
        violations.append(Violation("error", 0, "", "not ASCII: SSM's receiver cannot decode it", _SIGNING))
    if _BEFORE_ROOT.match(payload):
        rule = "a comment or an instruction before the root: not recognised"
        violations.append(Violation("error", 0, "", rule, _SOURCE))
    if looks_encrypted(payload):
        rule = "contains the media type of encrypted messages: SSM treats it as encrypted"
        violations.append(Violation("error", 0, "", rule, _SIGNING))
    records = record_elements(root)
    if not records:
        violations.append(Violation("error", 0, "", "no records: the file does not contain car records", _RECEIVERS))
    keys: dict[tuple[str, ...], int] = {}
    for number, element in enumerate(records, 1):
        check = _CarCheck(element, number, _SOURCE)
        key = check.all_rules(now)
        if key in keys:
            check.warning("", f"has the key of record {keys[key]}, which it replaces", "APEL database")
        keys[key] = number
        violations += check.found
    return violations


class _CarCheck(RecordCheck):
    """One record, read as the server reads it: the first element with a name anywhere in it."""

    def first(self, name: str) -> str | None:
        """The text of the first element with that name; None if there is none."""
        element = next(self.element.iter(f"{{{CAR}}}{name}"), None)
        return None if element is None else (element.text or "").strip()

    def all_rules(self, now: int | None) -> tuple[str, ...]:
        """Apply all rules; return the key under which the server stores the record."""
        for name in ("Site", "LocalJobId", "WallDuration", "CpuDuration", "StartTime", "EndTime"):
            if not self.first(name):
                self.error(name, "mandatory, and missing or empty", _RECEIVERS)
        for name, rule in _LENGTHS:
            self.length(rule, self.first(name) or "")
        self._durations()
        self._times(now)
        for name in ("Processors", "NodeCount"):
            if text := self.first(name):
                self.whole_number(name, text, _COUNT)
        self._infrastructure()
        self._service_level()
        self._groups()
        return tuple((self.first(name) or "").rstrip().lower() for name in ("Site", "LocalJobId", "EndTime"))

    def _durations(self) -> None:
        wall = self.first("WallDuration")
        if wall:
            self._duration("WallDuration", wall)
        durations = list(self.element.iter(f"{{{CAR}}}CpuDuration"))
        whole = [element for element in durations if self.attribute(element, "usageType") == "all"]
        if len(whole) > 1:
            self.error("CpuDuration", "usageType all occurs more than once", _RECEIVERS)
        elif durations and not whole:
            self.warning("CpuDuration", "none with usageType all: the first one is used as the total", _RECEIVERS)
        if taken := (whole or durations)[:1]:
            text = (taken[0].text or "").strip()
            if text:
                self._duration("CpuDuration", text)

    def _duration(self, field: str, text: str) -> None:
        match = _DURATION(text)
        if match is None or not any(match.groups()):
            self.error(
                field, f"not a duration that the server reads, so it counts as missing: {shown(text)}", _RECEIVERS
            )
            return
        years, months, days, hours, minutes, seconds, fraction = match.groups()
        if years or months:
            self.warning(field, "years and months are read as 365 and 30.4 days", "GFD.98")
        total_s = int(days or 0) * 86_400 + int(hours or 0) * 3_600 + int(minutes or 0) * 60 + int(seconds or 0)
        if total_s > INT32:
            self.error(field, f"{total_s} seconds; the column has {INT32}", _RECEIVERS)
        if fraction:
            self.warning(field, "rounded to whole seconds", _RECEIVERS)

    def _times(self, now: int | None) -> None:
        at = {}
        for field in ("StartTime", "EndTime"):
            text = self.first(field)
            if text:
                at[field] = self.instant(field, text)
                if at[field] is None:
                    self.error(field, f"not a date and time: {shown(text)}")
        start, end = at.get("StartTime"), at.get("EndTime")
        if start is not None and end is not None and end < start:
            self.error("EndTime", "before StartTime", _RECEIVERS)
        if now is not None and end is not None and end > now + LATEST_END_AFTER_NOW_S:
            self.error("EndTime", "more than two days in the future", _RECEIVERS)

    def _infrastructure(self) -> None:
        element = next(self.element.iter(f"{{{CAR}}}Infrastructure"), None)
        if element is None:
            self.warning("Infrastructure", "missing: stored as None", _RECEIVERS)
            return
        self.length(TextRule("Infrastructure@type", 20, ""), self.attribute(element, "type") or "")
        self.length(Rules.INFRASTRUCTURE, self.attribute(element, "description") or "")

    def _service_level(self) -> None:
        element = next(self.element.iter(f"{{{CAR}}}ServiceLevel"), None)
        if element is None:
            self.warning("ServiceLevel", "missing: stored as custom, 1", _RECEIVERS)
            return
        kind, text = self.attribute(element, "type"), (element.text or "").strip()
        if kind is None:
            self.error("ServiceLevel@type", "missing; attributes must have the namespace's prefix", _RECEIVERS)
        elif kind.lower() not in _KNOWN:
            self.error("ServiceLevel@type", f"not one of {', '.join(BENCHMARKS)}: {shown(kind)}", _RECEIVERS)
        try:
            score = float(text)
        except ValueError:
            self.error("ServiceLevel", f"not a number: {shown(text)}")
            return
        if not 0 <= score <= LARGEST_SCORE:
            self.error("ServiceLevel", f"{shown(text)} is not in 0..{LARGEST_SCORE}", "APEL column, DECIMAL(10,3)")
        elif round(score, 3) != score:
            self.warning("ServiceLevel", "rounded to three decimals", "APEL column, DECIMAL(10,3)")

    def _groups(self) -> None:
        kinds: dict[str, str] = {}
        for element in self.element.iter(f"{{{CAR}}}GroupAttribute"):
            kinds.setdefault(self.attribute(element, "type") or "", (element.text or "").strip())
        fqan, vo = kinds.get("FQAN"), self.first("Group")
        if fqan:
            self.length(Rules.GROUP_ATTRIBUTE, fqan)
            read = vo_read_by_apel(fqan)
            if vo and compared(read) != compared(vo):
                self.warning("Group", f"the FQAN overrides it: stored as {shown(read)}", _RECEIVERS)
        for ours, servers in (("vo-group", "group"), ("vo-role", "role")):
            if ours in kinds and not fqan and servers not in kinds:
                self.warning("GroupAttribute", f"type {ours} is ignored; the server reads {servers}")
