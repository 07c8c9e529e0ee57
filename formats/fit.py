"""Fit values to the rules of a receiver, with a note of each alteration.

Each function returns the text as written in the message, `""` for a value that is absent or omitted, appends a `Note`
for each alteration, and raises `CannotRenderError` if the rule says that the record is held.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from formats.base import Note
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import NameRule, NumberRule, TextRule, is_host_name
from formats.text import FIRST_INSTANT, LAST_INSTANT, date_time, escape, is_plain, without_forbidden

_SHOWN_CHARACTERS: Final = 200
_LARGEST_FLOAT: Final = 3.4e38
"""Within xsd:float, which is of single precision."""


_WITH_A_REMEDY: Final = {("slurm", "CpuDuration"): RuleCode.NO_CPU_TIME_IN_SLURM}
"""Systems whose accounting lacks a field, if the administrator can do something about it (facts on sources, 6)."""


def unreported(field: str, system: str) -> CannotRenderError:
    """The error of a run whose source lacks a field that the receiver requires."""
    return CannotRenderError(_WITH_A_REMEDY.get((system, field), RuleCode.NOT_IN_SOURCE), field)


def shown(value: object) -> str:
    """A value as a note shows it: printable, at most about 200 characters."""
    if isinstance(value, int) and abs(value) > 2**80:
        return f"a number of {value.bit_length()} bits"
    text = str(value)
    cut = text[:_SHOWN_CHARACTERS].encode("unicode_escape").decode("ascii")
    return cut if len(text) <= _SHOWN_CHARACTERS else f"{cut}... ({len(text)} characters)"


def text(rule: TextRule, value: str | None, notes: list[Note]) -> str:
    """A text, escaped."""
    if not value:
        return ""
    if len(value) <= rule.longest and is_plain(value):
        return value
    return escape(fitting_text(rule, value, notes))


def fitting_text(rule: TextRule, value: str, notes: list[Note]) -> str:
    """As `text`, before escaping."""
    cleaned = without_forbidden(value)
    if not cleaned.strip():
        notes.append(Note(rule.field, "a text of blanks is omitted", shown(value), None))
        return ""
    if excess := rule.excess(cleaned):
        if rule.too_long == "hold":
            raise CannotRenderError(RuleCode.TOO_LONG, rule.field, rule, length=len(value))
        shortened = rule.shortened(cleaned) if rule.too_long == "shorten" else ""
        how = "shortened" if shortened else "left out"
        notes.append(Note(rule.field, f"{excess}: {how} ({rule.source})", shown(value), shown(shortened) or None))
        return shortened
    if cleaned != value:
        notes.append(Note(rule.field, "characters that XML 1.0 forbids become ?", shown(value), shown(cleaned)))
    return cleaned


def token(rule: TextRule, value: str, notes: list[Note]) -> tuple[str, str]:
    """An identifier, unchanged but escaped.

    Characters that a token cannot hold become %XX of their UTF-8 bytes, so that two ids stay different.
    """
    if len(value) <= rule.longest and is_plain(value) and " " not in value:
        return value, value
    safe = "".join(char if _holds(char) else _percent(char) for char in value)
    if not safe:
        raise CannotRenderError(RuleCode.MISSING, rule.field)
    if len(safe) > rule.longest:
        raise CannotRenderError(RuleCode.TOO_LONG, rule.field, rule, length=len(safe))
    if rule.excess(safe):
        raise CannotRenderError(RuleCode.TOO_MANY_BYTES, rule.field, rule, length=len(safe.encode()))
    if safe != value:
        notes.append(Note(rule.field, "blanks and forbidden characters become %XX", shown(value), shown(safe)))
    return safe, escape(safe)


def _holds(char: str) -> bool:
    return not char.isspace() and without_forbidden(char) == char


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def name(rule: NameRule, value: str | None, notes: list[Note]) -> str:
    """The name of a host; no character in it needs escaping."""
    if value and len(value) <= rule.longest and is_host_name(value):
        return value
    if rule.otherwise == "hold":
        if not value:
            raise CannotRenderError(RuleCode.NO_HOST_NAME, rule.field)
        raise CannotRenderError(RuleCode.NOT_HOST_NAME, rule.field, rule, value=shown(value))
    if value:
        notes.append(Note(rule.field, f"not a host name: omitted ({rule.source})", shown(value), None))
    return ""


def number(rule: NumberRule, value: int | None, notes: list[Note]) -> str:
    """A whole number. Zero is omitted if only positive numbers fit: the schemas cannot express it."""
    if value is None:
        return ""
    if rule.least <= value <= rule.largest:
        return str(value)
    if value == 0:
        return ""
    if rule.outside == "hold":
        raise CannotRenderError(RuleCode.OUT_OF_RANGE, rule.field, rule, value=shown(value))
    notes.append(Note(rule.field, f"not in {rule.least}..{rule.largest}: omitted ({rule.source})", shown(value), None))
    return ""


def real(field: str, value: float, notes: list[Note]) -> str:
    """A number as xsd:float; infinite numbers, and those beyond single precision, are omitted."""
    if -_LARGEST_FLOAT <= value <= _LARGEST_FLOAT:  # NaN fails both
        return repr(value)
    notes.append(Note(field, "beyond xsd:float: omitted", shown(value), None))
    return ""


def instant(field: str, value: int | None, notes: list[Note]) -> str:
    """An instant as xsd:dateTime; one outside the years 100 to 9999 is omitted."""
    if value is None:
        return ""
    if FIRST_INSTANT <= value <= LAST_INSTANT:
        return date_time(value)
    notes.append(Note(field, "outside the years 100 to 9999: omitted (xsd:dateTime, SGAS)", shown(value), None))
    return ""


@lru_cache(maxsize=1024)
def create_time(created: int) -> str:
    """The createTime of a record, epoch seconds, as xsd:dateTime; every record has one."""
    if FIRST_INSTANT <= created <= LAST_INSTANT:
        return date_time(created)
    raise CannotRenderError(RuleCode.CREATE_TIME, "RecordIdentity@createTime", value=shown(created))


def charge(value: float | None, rule: NumberRule, notes: list[Note]) -> str:
    """The Charge element, the same in both formats; a charge outside its range is omitted."""
    if value is None:
        return ""
    if rule.least <= value <= rule.largest:
        return f"<Charge>{value!r}</Charge>"
    notes.append(Note(rule.field, f"not in {rule.least}..{rule.largest}: omitted ({rule.source})", shown(value), None))
    return ""
