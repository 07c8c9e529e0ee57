"""Questions of `init`: asked on a terminal until an answer is accepted, or answered by options or from a pipe."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any, Final

import typer

from formats.calendar import Month
from publisher.cli.output import say
from publisher.errors import UsageError

UNKNOWN: Final = "-"
"""The answer that something is unknown, or that there is none."""
_MONTH: Final = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])").fullmatch


def ask(question: str, option: str, given: object, accept: Callable[[str], None], default: object = None) -> None:
    """Give `accept` the value of an option, or an answer; on a terminal it is asked for until it is accepted.

    Raises `UsageError` for an option or an answer from a pipe that is not accepted, and where nobody answers.
    """
    if given is not None:
        if not str(given).strip():
            raise UsageError(f"{question}: the answer is empty")
        accept(str(given))
        return
    while True:
        answer = _answer(question, option, default)
        try:
            accept(answer)
        except UsageError as error:
            if not sys.stdin.isatty():
                say("")  # end the line of the question
                raise
            say(*(f"  {line}" for line in error.lines))
        else:
            return


def _answer(question: str, option: str, default: object) -> str:
    """An answer that is not empty. Raises `UsageError` where nobody answers."""
    try:
        answer = ""
        while not answer.strip():
            answer = str(typer.prompt(question, default=None if default is None else str(default), err=True))
    except typer.Abort:
        if sys.stdin.isatty():
            raise
        say("")  # end the line of the question
        hint = f"Answer with {option}: usage-publisher init --help"
        raise UsageError(f"{question}: standard input is not a terminal", hint=hint) from None
    return answer.strip()


def ask_path(
    question: str, option: str, given: Path | str | None, default: Path | None, urls: list[str] | None = None,
    programs: Collection[str] = (), check: Callable[[Path], None] | None = None,
) -> Path:  # fmt: skip
    """A path, made absolute; of the name of one of these programs, that which a shell finds. One that is typed and does
    not exist is asked for again unless it is confirmed. `urls`: a URL is accepted too, and appended. `check` raises
    `UsageError` for a path that cannot be the answer, of those that no option gives."""
    from publisher.config.store_url import is_url  # noqa: PLC0415

    chosen: list[Path] = []

    def accept(answer: str) -> None:
        if urls is not None and is_url(answer):
            urls.append(answer)
            chosen.append(Path(answer))
            return
        path = path_of(answer)
        if answer in programs and not path.exists() and (program := shutil.which(answer)) is not None:
            path = Path(program)
        if given is None and sys.stdin.isatty() and not path.exists():
            say(f"  {path} does not exist")
            if not typer.confirm("  Use it anyway?", err=True):
                return
        if given is None and check is not None:
            check(path)
        chosen.append(path)

    while not chosen:
        ask(question, option, given, accept, default)
    return chosen[0]


def path_of(answer: str) -> Path:
    """The absolute path of an answer. Raises `UsageError` for the answer that there is none."""
    if answer == UNKNOWN:
        raise UsageError(f"{answer!r} is not a path", hint="This answer is needed")
    return Path(answer).expanduser().absolute()


def first_day_after(month: str) -> str:
    """The first day after a month such as 2026-10. Raises `UsageError`."""
    parts = _MONTH(month)
    if parts is None:
        raise UsageError(f"{month!r} is not a month", hint="Write it as 2026-10")
    return f"{Month(int(parts[1]), int(parts[2])).following}-01"


def benchmark_of(given: str) -> dict[str, Any]:
    """The benchmark of an answer such as HEPscore23:14.2, as a table of the configuration. Raises `UsageError`."""
    kind, _, score = given.partition(":")
    try:
        return {"type": kind.strip(), "value": float(score)}
    except ValueError:
        raise UsageError(f"{given!r} is not a score", hint="Write it as HEPscore23:14.2") from None
