"""What the checks of XML records share: looking into one record's element and collecting the rules it breaks."""

from __future__ import annotations

import re
from typing import Final

from lxml import etree

from formats.fit import shown
from formats.rules import NumberRule, TextRule
from formats.violation import Level, Violation
from formats.xml_text import read_date_time

_ZONE: Final = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_WHOLE: Final = re.compile(r"[+-]?\d{1,19}").fullmatch


class RecordCheck:
    """One record of a message. `found` are the rules that it breaks."""

    def __init__(self, element: etree._Element, number: int, source: str) -> None:
        """`source`: where the rules come from unless one says otherwise."""
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
        """Elements at a path below the record; steps without a namespace of their own have the record's."""
        return self.element.findall("/".join(f"{{{self._namespace}}}{step}" for step in path.split("/")))

    def texts(self, path: str) -> list[str]:
        """Texts of the elements at a path; an empty element's is empty."""
        return [(element.text or "").strip() for element in self.elements(path)]

    def attribute(self, element: etree._Element, name: str) -> str | None:
        """A qualified attribute: one without a prefix is not seen by any service."""
        value = element.get(f"{{{self._namespace}}}{name}")
        return None if value is None else str(value)

    def lengths(self, path: str, rule: TextRule) -> None:
        """No text at the path is longer than its column."""
        for text in self.texts(path):
            self.length(rule, text)

    def length(self, rule: TextRule, text: str) -> None:
        """A text is not longer than its column."""
        if len(text) > rule.longest:
            self.error(rule.field, f"{len(text)} characters; the column has {rule.longest}")
        elif excess := rule.excess(text):
            self.error(rule.field, excess, "facts on receivers, seen on the real services")

    def whole_number(self, field: str, text: str, rule: NumberRule) -> int | None:
        """A whole number in its column's range; None, and an error, for anything else."""
        if not _WHOLE(text):
            self.error(field, f"no whole number: {shown(text)}")
            return None
        if not rule.least <= int(text) <= rule.largest:
            self.error(field, f"{text} is not in {rule.least}..{rule.largest}", rule.source)
            return None
        return int(text)

    def instant(self, field: str, text: str) -> int | None:
        """An instant, epoch seconds, with warnings on what a service takes for granted; None where it is none."""
        try:
            at = read_date_time(text)
        except (ValueError, OverflowError):
            return None
        if not _ZONE.search(text):
            self.warning(field, "without a zone: taken as UTC")
        return at
