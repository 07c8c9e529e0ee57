"""What `check` finds: one line for each thing an administrator should know."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

Level = Literal["green", "yellow", "red"]

DAMAGE_HINT: Final = "`usage-publisher store check` names them, and says what to do"
"""About damaged jobs."""


class Finding(msgspec.Struct, frozen=True):
    """One line of `check`: what was looked at, how it is, and what to do where it is not well."""

    subject: str
    level: Level
    message: str
    hint: str = ""
