"""render --validate: no message is shown that its service would refuse or that breaks its format's grammar."""

from __future__ import annotations

import msgspec

from formats.inspection import INSPECTED_FORMATS, SCHEMA_SOURCES, inspect_message
from publisher.errors import UsageError
from publisher.pipeline.render import RenderedMessage


class Broken(msgspec.Struct, frozen=True):
    """A rule that a rendered message breaks; `message` counts from 1, `record` is a record's id or empty."""

    message: int
    record: str
    field: str
    rule: str
    source: str


class Validation:
    """Validates the messages of one rendering, in their order; `broken` are the rules that they break.

    `now`: epoch seconds, for rules of a service's clock.
    """

    def __init__(self, now: int) -> None:
        self.broken: list[Broken] = []
        self._now = now
        self._messages = 0

    def passes(self, message: RenderedMessage) -> bool:
        """Whether the message is valid.

        Raises `UsageError` for a format that has no rules to validate against.
        """
        if message.format not in INSPECTED_FORMATS:
            raise UsageError(
                f"there are no rules to validate {message.format} against",
                hint=f"Those of {', '.join(sorted(INSPECTED_FORMATS))} can be validated",
            )
        self._messages += 1
        inspection = inspect_message(message.payload, self._now)
        ids = {record.number: record.id for record in inspection.records}
        self.broken += [
            Broken(self._messages, ids.get(broken.record, ""), broken.field, broken.rule, broken.source)
            for broken in inspection.violations
            if broken.level == "error" or broken.source == SCHEMA_SOURCES.get(inspection.format)
        ]
        return inspection.valid
