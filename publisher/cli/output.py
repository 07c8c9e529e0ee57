"""Printing: data on standard output, messages on standard error, nothing from outside that a terminal would obey."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from publisher.plain_text import counted, safe

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "OutputClosedError", "before_output", "counted", "data", "flush", "json_object", "level_text", "make_table", "safe",
    "say", "show",
]  # fmt: skip

_watchers: list[Callable[[], None]] = []


def before_output(clear: Callable[[], None]) -> None:
    """Have this called before anything is printed: progress that stands on a terminal's line makes room."""
    _watchers.append(clear)


def _make_room() -> None:
    for clear in _watchers:
        clear()


def say(*lines: str) -> None:
    """A message for people, on standard error: each argument is one line, whatever it holds."""
    _make_room()
    for line in lines:
        print(safe(line), file=sys.stderr)


class OutputClosedError(Exception):
    """Nobody reads our standard output any more; what is on its way to it is thrown away from now on."""


@contextmanager
def _to_reader() -> Iterator[None]:
    """Raises `OutputClosedError` where the reader has gone."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        raise OutputClosedError from None


def data(text: str) -> None:
    """Data, on standard output, as it is. Raises `OutputClosedError`."""
    _make_room()
    with _to_reader():
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def flush() -> None:
    """Send out what was printed. Raises `OutputClosedError`."""
    with _to_reader():
        sys.stdout.flush()


def json_object(value: Any) -> None:
    """One JSON object on standard output."""
    encoded = msgspec.json.encode(value, enc_hook=str)
    data(msgspec.json.format(encoded, indent=2).decode("utf-8", "backslashreplace"))


def make_table(title: str, columns: list[str], rows: list[list[object]], *, right: set[str] = frozenset()) -> Table:  # type: ignore[assignment]
    """See `publisher.cli.table.make_table`."""
    from publisher.cli import table  # noqa: PLC0415 - rich, which only commands that draw a table need

    return table.make_table(title, columns, rows, right=right)


def show(table: Table) -> None:
    """A table on standard output; on something that is no terminal it is wide rather than folded.

    Where its columns would be too narrow to read, each row is a paragraph instead.

    Raises `OutputClosedError`.
    """
    from publisher.cli.table import drawn  # noqa: PLC0415 - as above

    data(drawn(table))


def level_text(level: str, text: str) -> Text:
    """Text in the colour of a level: green, yellow or red."""
    from publisher.cli import table  # noqa: PLC0415 - as above

    return table.level_text(level, text)
