"""A rule that a message breaks, as the checks of all formats say it."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["error", "warning"]


class Violation(msgspec.Struct, frozen=True):
    """A rule that a message breaks, and where the rule comes from.

    An *error* makes the service refuse the message; a *warning* is something that it alters or ignores, or that the
    standard forbids and the service does not mind. `record` counts from 1 and is 0 for the message as a whole.
    """

    level: Level
    record: int
    field: str
    rule: str
    source: str
