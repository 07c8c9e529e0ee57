"""Makers of one XML element each: bound to name, attributes and rule once, then called for every record.

A maker takes a value and the list of notes and gives the element, or `""` for a value that is absent or left out. The
common case (a value within its rule) is decided first; everything else goes to `formats.fit`.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from formats import fit
from formats.record import Note
from formats.rules import NumberRule, TextRule
from formats.xml_text import FIRST_INSTANT, LAST_INSTANT, date_time, duration_seconds, is_plain

NumberElement = Callable[[int | None, list[Note]], str]
TextElement = Callable[[str | None, list[Note]], str]


def tags(name: str, attributes: str) -> tuple[str, str]:
    """Opening and closing tag of an element."""
    return f"<{name} {attributes}>" if attributes else f"<{name}>", f"</{name}>"


def _named(rule: NumberRule, name: str) -> NumberRule:
    """The rule under the element's own name, which is what a note should say: some rules serve several elements."""
    return msgspec.structs.replace(rule, field=name.rpartition(":")[2])


def number_element(rule: NumberRule, name: str, attributes: str = "") -> NumberElement:
    """Element of a whole number."""
    opening, closing = tags(name, attributes)
    rule = _named(rule, name)
    least, largest = rule.least, rule.largest

    def element(value: int | None, notes: list[Note]) -> str:
        if value is None:
            return ""
        if least <= value <= largest:
            return f"{opening}{value}{closing}"
        number = fit.number(rule, value, notes)
        return f"{opening}{number}{closing}" if number else ""

    return element


def duration_element(rule: NumberRule, name: str, attributes: str = "") -> NumberElement:
    """Element of a duration given in milliseconds, written in whole seconds; the rule is about the seconds."""
    opening, closing = tags(name, attributes)
    opening += "PT"
    closing = "S" + closing
    rule = _named(rule, name)
    least, largest = rule.least, rule.largest

    def element(value_ms: int | None, notes: list[Note]) -> str:
        if value_ms is None:
            return ""
        seconds = duration_seconds(value_ms)
        if least <= seconds <= largest:
            return f"{opening}{seconds}{closing}"
        number = fit.number(rule, seconds, notes)
        return f"{opening}{number}{closing}" if number else ""

    return element


def instant_element(name: str, attributes: str = "") -> NumberElement:
    """Element of an instant given in epoch seconds."""
    opening, closing = tags(name, attributes)

    def element(value: int | None, notes: list[Note]) -> str:
        if value is None:
            return ""
        if FIRST_INSTANT <= value <= LAST_INSTANT:
            return f"{opening}{date_time(value)}{closing}"
        fit.instant(name, value, notes)
        return ""

    return element


def text_element(rule: TextRule, name: str, attributes: str = "") -> TextElement:
    """Element of a text."""
    opening, closing = tags(name, attributes)
    longest = rule.longest

    def element(value: str | None, notes: list[Note]) -> str:
        if not value:
            return ""
        if len(value) <= longest and is_plain(value):
            return f"{opening}{value}{closing}"
        text = fit.text(rule, value, notes)
        return f"{opening}{text}{closing}" if text else ""

    return element
