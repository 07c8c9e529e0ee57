"""What `check` finds: one line for each thing an administrator should know."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["green", "yellow", "red"]


class Finding(msgspec.Struct, frozen=True):
    """One line of `check`: what was looked at, how it is, and what to do where it is not well."""

    subject: str
    level: Level
    message: str
    hint: str = ""
