"""Printing: data on standard output, messages on standard error, nothing from outside that a terminal would obey."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from publisher.plain_text import counted, safe

__all__ = [
    "OutputClosedError", "before_output", "counted", "data", "flush", "json_object", "level_text", "make_table", "safe",
    "say", "show",
]  # fmt: skip

_PLAIN_WIDTH = 160
_READABLE = 24
"""Characters that a column keeps: an instant fits, and text is not folded into shreds."""
_INDENT = 2
_GAP = "   "


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
    """A table of harmless text; columns named in `right` are aligned to the right."""
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(safe("" if cell is None else cell)) for cell in row))
    return table


def show(table: Table) -> None:
    """A table on standard output; on something that is no terminal it is wide rather than folded.

    Where its columns would be too narrow to read, each row is a paragraph instead.

    Raises `OutputClosedError`.
    """
    terminal = sys.stdout.isatty()
    width = None if terminal else _plain_width()
    drawn = io.StringIO()
    console = Console(file=drawn, force_terminal=terminal, width=width, highlight=False)
    if _is_readable(table, console.width):
        console.print(table)
    else:
        for paragraph in _paragraphs(table, console.width):
            console.print(paragraph, overflow="fold")
    data("\n".join(line.rstrip() for line in drawn.getvalue().splitlines()))


def _plain_width() -> int:
    """As wide as `COLUMNS` says, where it says something that can be used."""
    told = os.environ.get("COLUMNS", "")
    return max(_READABLE, int(told)) if told.isascii() and told.isdigit() else _PLAIN_WIDTH


def _cells(column: Column) -> list[Text]:
    return [cell for cell in column.cells if isinstance(cell, Text)]


def _is_readable(table: Table, width: int) -> bool:
    """Whether every column can have `_READABLE` characters, or as many as it needs if that is less."""
    needed = (
        max([len(str(column.header)), *(cell.cell_len for cell in _cells(column))], default=0)
        for column in table.columns
    )
    return sum(min(most, _READABLE) + 3 for most in needed) + 1 <= width


def _paragraphs(table: Table, width: int) -> Iterator[Text | Padding]:
    """The title, then each row: what it is about on the first line, then the other cells with their names."""
    if table.title:
        yield Text(str(table.title), style="bold")
    names = [str(column.header) for column in table.columns]
    leading = 1 if names[0] else 2
    for row in zip(*(_cells(column) for column in table.columns), strict=True):
        yield Text("  ").join(row[:leading])
        line = Text()
        for name, cell in zip(names[leading:], row[leading:], strict=True):
            if not cell.plain:
                continue
            item = Text.assemble((f"{name}: ", "bold"), cell) if name else cell
            if line and _INDENT + line.cell_len + len(_GAP) + item.cell_len > width:
                yield Padding.indent(line, _INDENT)
                line = Text()
            line = Text.assemble(line, _GAP, item) if line else item
        if line:
            yield Padding.indent(line, _INDENT)


def level_text(level: str, text: str) -> Text:
    """Text in the colour of a level: green, yellow or red."""
    return Text(safe(text), style={"green": "green", "yellow": "yellow", "red": "bold red"}.get(level, ""))
