"""The rules of AUDITOR for an array of its records (facts on AUDITOR: Record)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from formats.auditor.read import AuditorRecord, read_message
from formats.base import InspectedRecord, InspectedText, Violation
from formats.fit import shown
from formats.rules import INT64

_SOURCE: Final = "AUDITOR"
_LONGEST: Final = 256


def inspected(text: str) -> InspectedText | None:
    """See `Format.inspected`."""
    if not text.lstrip().startswith("["):
        return None
    message = read_message(text.encode())
    if not message:
        raise ValueError("an empty list")
    records = (
        InspectedRecord(number, one.record_id, None, {"components": one.shown_components, "meta": one.shown_meta})
        for number, one in enumerate(message, 1)
    )
    return InspectedText(records, _broken_by(message))


def _broken_by(records: Sequence[AuditorRecord]) -> Iterator[Violation]:
    """The rules that these records break, in order."""
    for number, record in enumerate(records, 1):
        for field, rule in _of_record(record):
            yield Violation("error", number, field, rule, _SOURCE)
    for name, times in Counter(record.record_id for record in records).items():
        if times > 1:
            rule = f"{shown(name)} is repeated: nothing of the message is stored"
            yield Violation("error", 0, "record_id", rule, _SOURCE)


def _of_record(record: AuditorRecord) -> Iterator[tuple[str, str]]:
    texts = [("record_id", record.record_id)]
    for key, values in (record.meta or {}).items():
        texts += [("meta", key), *((f"meta/{key}", value) for value in values)]
    for component in record.components:
        texts += [("components", component.name), *(("scores", score.name) for score in component.scores)]
        if not 0 <= component.amount <= INT64:
            yield component.name, f"the amount {shown(component.amount)} is not a whole number from 0 to {INT64}"
        for score in component.scores:
            if not score.value >= 0:
                yield component.name, f"the score {score.value} is negative"
    for field, text in texts:
        if not text.strip() or len(text) > _LONGEST or "\0" in text:
            yield field, f"{shown(text)!r} is blank, has NUL, or has more than {_LONGEST} characters"
    for name, time in (("start_time", record.start_time), ("stop_time", record.stop_time)):
        try:
            _ = record.start if name == "start_time" else record.stop
        except ValueError:
            yield name, f"{shown(time)} is not a time"
