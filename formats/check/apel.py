"""Check whether the APEL server would accept a text message, and what it would store.

The rules are those of the facts on formats, 4, and on receivers, 2, applied to messages of any program. For an *error*
the service refuses the whole message, since it loads a message in one transaction; a *warning* is a value that it
alters or ignores.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from formats.apel.summary import read_count, read_group
from formats.apel.text import NotApelTextError, ParsedMessage, TextRecord, parse, whole
from formats.base import Violation
from formats.benchmark import BENCHMARKS, LARGEST_SCORE
from formats.calendar import Month, month_bounds
from formats.fit import shown
from formats.rules import LATEST_END_AFTER_NOW_S, TEXTS, MessageType, type_of
from formats.score import preferred_score, read_scores
from formats.signed_text import looks_encrypted

_TYPES_OF_SCORES: Final = frozenset(name.lower() for name in BENCHMARKS)
_SYNTAX: Final = "APEL message format"
_JOBS: Final = "APEL message format"
_SUMMARIES: Final = "APEL message format"
_MONTH: Final = ("Month", "Year")
_INSTANTS: Final = ("StartTime", "EndTime", "EarliestEndTime", "LatestEndTime")
_DATE: Final = re.compile(r"\d{4}-\d\d?-\d\d?T\d\d?:\d\d?:\d\d?(Z|UTC|GMT)", re.IGNORECASE | re.ASCII)
"""What the server's class takes for an instant besides whole numbers (apel/db/records/record.py, `checked`)."""


def check_text(text: str, now: int | None = None, most: int | None = None) -> list[Violation]:
    """Everything that the server would refuse or alter in a message.

    `now` (epoch seconds) adds the rules that depend on its clock. After `most` errors the other records are not
    checked; the last error says so.
    """
    if not text.strip():
        return [Violation("error", 0, "", "an empty message stops the server's loader", "APEL server")]
    violations = list(_characters(text))
    try:
        message = parse(text)
    except NotApelTextError as error:
        return [*violations, Violation("error", 0, "", str(error), "APEL message format")]
    message_type = type_of(message.header, message.kind, message.version)
    if message_type is None:
        rule = f"message type {shown(message.header)} not recognised"
        return [*violations, Violation("error", 0, "", rule, "APEL message format")]
    if not message.records:
        violations.append(Violation("warning", 0, "", "a header without records: nothing is stored", "APEL server"))
    errors = 0
    for record in message.records:
        for violation in _record(message_type, record, now):
            violations.append(violation)
            errors += violation.level == "error"
            if most is not None and errors >= most:
                rule = f"not checked from here on: {errors} rules are broken before"
                return [*violations, Violation("error", record.number, "", rule, "a limit of inspect")]
    violations += _equal_keys(message_type, message)
    return violations


def _characters(text: str) -> Iterator[Violation]:
    if text.startswith("\ufeff"):
        yield Violation("error", 0, "", "a byte order mark spoils the header", _SYNTAX)
    if not text.isascii():
        yield Violation("error", 0, "", "not ASCII: SSM's receiver cannot decode it", "SSM")
    if looks_encrypted(text.encode("utf-8", "surrogatepass")):
        yield Violation(
            "error", 0, "", "contains the media type of encrypted messages: SSM treats it as encrypted", "SSM"
        )


def _record(message_type: MessageType, record: TextRecord, now: int | None) -> Iterator[Violation]:
    def error(field: str, rule: str, source: str = _SYNTAX) -> Violation:
        return Violation("error", record.number, field, rule, source)

    for line in record.unreadable:
        yield error("", f"a line without a colon: {shown(line)}" if line.strip() else "a blank line in a record")
    for key, times in Counter(key for key, _ in record.pairs).items():
        if times > 1:
            yield Violation("warning", record.number, key, "occurs more than once: the last one counts", _SYNTAX)
        if key in message_type.ignored:
            yield Violation("warning", record.number, key, "ignored", _SYNTAX)
        elif key.startswith("APEL-") and key.endswith("-message"):
            rule = "the header of another message: records before and after it are joined; a file must have one message"
            yield error(key, rule)
        elif key not in message_type.fields:
            yield error(key, "unknown field")
    for key in message_type.fields:
        if record.get(key) is None:
            if key in message_type.mandatory:
                yield error(key, "mandatory, and missing or null")
            elif key in message_type.needed:
                yield error(key, "missing or null, and the server has no default", "APEL server")
    yield from _texts(message_type, record)
    yield from _numbers(message_type, record)
    yield from _scores(message_type, record)
    if message_type.shape == "record":
        yield from _times_of_job(record, now)
    else:
        yield from _month(message_type, record, now)


def _texts(message_type: MessageType, record: TextRecord) -> Iterator[Violation]:
    for key, rule in TEXTS.items():
        value = record.get(key)
        if value is not None and key in message_type.fields and len(value) > rule.longest:
            yield Violation("error", record.number, key, f"longer than {rule.longest} characters", rule.source)
    fqan = record.get("FQAN") if "FQAN" in message_type.fields else None
    if fqan is not None and any(record.get(key) is not None for key in ("VO", "VOGroup", "VORole")):
        yield Violation("warning", record.number, "FQAN", "overrides VO, VOGroup and VORole", _JOBS)


def _numbers(message_type: MessageType, record: TextRecord) -> Iterator[Violation]:
    for key, rule in message_type.numbers.items():
        value = record.get(key)
        if value is None or key not in message_type.fields or key in message_type.scores:
            continue
        number = whole(value)
        if number is None:
            if key in _INSTANTS and _DATE.fullmatch(value):
                rule_text = "not epoch seconds: a date is shifted by the server's time zone, or refused"
                yield Violation("warning", record.number, key, rule_text, _JOBS)
            elif key in _INSTANTS:
                yield Violation("error", record.number, key, f"not epoch seconds: {shown(value)}", _JOBS)
            else:
                yield Violation("error", record.number, key, f"not a whole number: {shown(value)}", rule.source)
        elif not rule.least <= number <= rule.largest:
            text = f"{shown(number)} is not in {rule.least}..{rule.largest}"
            if message_type.shape == "sync" and key in _MONTH:
                yield Violation("warning", record.number, key, f"{text}: stored unchecked", "APEL server")
            else:
                yield Violation("error", record.number, key, text, rule.source)


def _scores(message_type: MessageType, record: TextRecord) -> Iterator[Violation]:
    benchmarks = set()
    for key in sorted(message_type.scores):
        value = record.get(key)
        if value is None:
            continue
        try:
            scores = read_scores(value)
        except ValueError:
            rule = f"not a list such as {{HEPscore23: 10.5}}: {shown(value)}"
            yield Violation("error", record.number, key, rule, "APEL server")
            continue
        preferred = preferred_score(scores)
        if preferred is None:
            yield Violation("error", record.number, key, "not a benchmark that the server knows", "APEL server")
            continue
        benchmarks.add(preferred[0])
        if len(scores) > 1:
            yield Violation("warning", record.number, key, f"of several benchmarks {preferred[0]} counts", _JOBS)
        largest = LARGEST_SCORE if key == "ServiceLevel" else float(message_type.numbers[key].largest)
        yield from _score(record, key, preferred[1], largest)
    if len(benchmarks) > 1:
        rule = "normalised by different benchmarks"
        yield Violation("error", record.number, "NormalisedWallDuration", rule, "APEL message format")
    if "ServiceLevelType" in message_type.fields:
        yield from _plain_score(message_type, record)


def _plain_score(message_type: MessageType, record: TextRecord) -> Iterator[Violation]:
    level, level_type = record.get("ServiceLevel"), record.get("ServiceLevelType")
    if level is not None:
        try:
            yield from _score(record, "ServiceLevel", float(level), LARGEST_SCORE)
        except ValueError:
            yield Violation("error", record.number, "ServiceLevel", f"not a number: {shown(level)}", _JOBS)
    if level is None and level_type is None:
        return
    known = level_type is not None and level_type.lower() in _TYPES_OF_SCORES
    if not known and message_type.shape == "record":
        rule = "none of si2k, hepspec, hepscore23"
        yield Violation("error", record.number, "ServiceLevelType", rule, _JOBS)
    elif not known:
        rule = "none of si2k, hepspec, hepscore23: stored unchecked"
        yield Violation("warning", record.number, "ServiceLevelType", rule, _SUMMARIES)


def _score(record: TextRecord, key: str, score: float, largest: float) -> Iterator[Violation]:
    if not 0 <= score <= largest:
        yield Violation("error", record.number, key, f"{score} is not in 0..{largest}", "APEL column, DECIMAL(10,3)")
    elif key == "ServiceLevel" and round(score, 3) != score:
        yield Violation("warning", record.number, key, "rounded to three decimals", "APEL column, DECIMAL(10,3)")
    elif key != "ServiceLevel" and int(score) != score:
        yield Violation("warning", record.number, key, "cut to a whole number", "APEL message format")


def _times_of_job(record: TextRecord, now: int | None) -> Iterator[Violation]:
    start, end = whole(record.get("StartTime")), whole(record.get("EndTime"))
    if start is not None and end is not None and end < start:
        yield Violation("error", record.number, "EndTime", "before StartTime", "APEL server")
    if now is not None and end is not None and end > now + LATEST_END_AFTER_NOW_S:
        yield Violation("error", record.number, "EndTime", "more than two days in the future", "APEL server")


def _month(message_type: MessageType, record: TextRecord, now: int | None) -> Iterator[Violation]:
    number, year = whole(record.get("Month")), whole(record.get("Year"))
    if message_type.shape == "sync" or number is None or year is None or not (1 <= number <= 12 and 1 <= year <= 9999):
        return
    start, stop = month_bounds(Month(year, number))
    if now is not None and start > now:
        yield Violation("error", record.number, "Month", "in the future", _SUMMARIES)
    earliest, latest = whole(record.get("EarliestEndTime")), whole(record.get("LatestEndTime"))
    for key, end in (("EarliestEndTime", earliest), ("LatestEndTime", latest)):
        if end is not None and not start <= end <= stop:
            yield Violation("error", record.number, key, "not within the month", "APEL server")
    if earliest is not None and latest is not None and earliest > latest:
        yield Violation("error", record.number, "LatestEndTime", "before EarliestEndTime", _SUMMARIES)


def _equal_keys(message_type: MessageType, message: ParsedMessage) -> Iterator[Violation]:
    """Records that would replace each other; the server keeps the last (facts on formats, 4.8)."""
    seen: dict[object, int] = {}
    for record in message.records:
        key = _key(message_type, record)
        if key in seen:
            rule = f"has the key of record {seen[key]}, which it replaces"
            yield Violation("warning", record.number, "", rule, "APEL database")
        seen[key] = record.number


def _key(message_type: MessageType, record: TextRecord) -> object:
    if message_type.shape == "record":
        return tuple((record.get(key) or "").lower() for key in ("Site", "LocalJobId", "EndTime"))
    if message_type.shape == "sync":
        return read_count(record).key
    return read_group(record).key
