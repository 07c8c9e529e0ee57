"""Options of several commands: times, and the length of lists.

Every list shows its total and how many entries are shown, in text and in JSON; no list is cut silently.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from publisher.cli import completion
from publisher.cli.output import say
from publisher.errors import UsageError
from publisher.text import duration_s, moment_s

if TYPE_CHECKING:
    from formats.calendar import Month

Since: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="First end time (inclusive), UTC: 2026-11-01, 2026-11-01T12:00, 2026-11, -7d, @EPOCH.",
        autocompletion=completion.months,
    ),
]
Until: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--until",
        metavar="TIME",
        help="Last end time (exclusive), written like --since.",
        autocompletion=completion.months,
    ),
]
All: TypeAlias = Annotated[bool, typer.Option("--all", help="Show the whole list.")]
Yes: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def moment(text: str | None, option: str) -> int | None:
    """The time in an option's value, epoch seconds. Raises `UsageError`."""
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
    """Both ends of a window. Raises `UsageError`, also for a window that ends before it begins."""
    begin, end = moment(since, "--since"), moment(until, "--until")
    if begin is not None and end is not None and begin >= end:
        raise UsageError("--until must be later than --since: the window is empty")
    return begin, end


def month_window(
    month: str | None, since: str | None, until: str | None, *, option: str = "--month"
) -> tuple[int | None, int | None]:
    """The bounds of a window that is given as a month or by its ends. Raises `UsageError`."""
    if month is None:
        return window_bounds(since, until)
    if since is not None or until is not None:
        raise UsageError(f"{option} cannot be combined with --since or --until")
    from formats.calendar import month_bounds  # noqa: PLC0415

    return month_bounds(month_in(month, option))


def month_in(text: str, option: str) -> Month:
    """The month of an option's value such as 2026-11. Raises `UsageError`."""
    from formats.calendar import Month  # noqa: PLC0415

    year, dash, number = text.partition("-")
    if dash and len(year) == 4 and len(number) == 2 and (year + number).isascii() and (year + number).isdigit():
        month = Month(int(year), int(number))
        if 1 <= month.month <= 12:
            return month
    raise UsageError(f"{option}: {text!r} is not a month", hint="Write it as 2026-11")


def confirm(question: str, *, yes: bool, hint: str = "Add --yes") -> None:
    """Ask, unless `--yes` was given. Raises `UsageError` if nobody can answer, and `typer.Abort` for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("this needs confirmation, and standard input is not a terminal", hint=hint)
    typer.confirm(question, abort=True, err=True)


def limit_of(limit: int | None, default: int, *, show_all: bool) -> int | None:
    """The maximum number to show; None: all. Raises `UsageError` if both options are given."""
    if limit is not None and show_all:
        raise UsageError("--limit cannot be combined with --all")
    return None if show_all else default if limit is None else limit


def list_json(records: Sequence[Mapping[str, Any]], total: int) -> dict[str, Any]:
    """A list as `--json` gives it."""
    return {"total": total, "shown": len(records), "records": records}


def say_if_cut(shown: int, total: int, what: str, *, of: str = "") -> None:
    """Print how many entries are shown if these are not all; `what` says which, such as "oldest"."""
    if shown < total:
        say(f"{of}{': ' if of else ''}the {what} {shown:,} of {total:,} are shown; --limit N or --all shows more")
