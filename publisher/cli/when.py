"""Times on the command line."""

from __future__ import annotations

import time
from typing import Annotated, TypeAlias

import typer

from publisher.errors import UsageError
from publisher.text import duration_s, moment_s

Since: TypeAlias = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="First end time (inclusive): 2026-11-01, 2026-11, -7d, @1793491200."),
]
Until: TypeAlias = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Last end time (exclusive). UTC unless it carries a zone.")
]


def moment(text: str | None, option: str) -> int | None:
    """Epoch seconds of an option's value. Raises `UsageError`."""
    if text is None:
        return None
    try:
        return moment_s(text, now())
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def now() -> int:
    """Epoch seconds now."""
    return int(time.time())


def seconds(text: str, option: str) -> float:
    """Seconds of an option's value such as 1h, or of a whole number of them. Raises `UsageError`."""
    try:
        return duration_s(int(text) if text.isascii() and text.isdecimal() else text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{option}: {error}") from None


def window_bounds(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """Both ends of a window. Raises `UsageError`, also where it ends before it begins."""
    begin, end = moment(since, "--since"), moment(until, "--until")
    if begin is not None and end is not None and begin >= end:
        raise UsageError("--until lies before or at --since: the window holds nothing")
    return begin, end
