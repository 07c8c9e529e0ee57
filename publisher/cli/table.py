"""Tables for people, drawn by rich: wide rather than folded, and in paragraphs where a terminal is too narrow."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator

from rich.box import ASCII
from rich.console import Console
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from publisher.cli.streams import encodable, is_utf8
from publisher.text import safe

_PLAIN_WIDTH = 160
_READABLE = 24
"""Characters that a column keeps: an instant fits, and text is not folded into shreds."""
_INDENT = 2
_GAP = "   "


def make_table(title: str, columns: list[str], rows: list[list[object]], *, right: set[str] = frozenset()) -> Table:  # type: ignore[assignment]
    """A table of harmless text; columns named in `right` are aligned to the right."""
    table = Table(title=title or None, title_justify="left", header_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_shown("" if cell is None else cell)) for cell in row))
    return table


def drawn(table: Table) -> str:
    """A table as text for standard output; each row is a paragraph where columns would be too narrow to read."""
    terminal = sys.stdout.isatty()
    width = None if terminal else _plain_width()
    text = io.StringIO()
    console = Console(file=text, force_terminal=terminal, width=width, highlight=False)
    if not is_utf8():
        table.box = ASCII
    if _is_readable(table, console.width):
        console.print(table)
    else:
        for paragraph in _paragraphs(table, console.width):
            console.print(paragraph, overflow="fold")
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def level_text(level: str, text: str) -> Text:
    """Text in the colour of a level: green, yellow or red."""
    return Text(_shown(text), style={"green": "green", "yellow": "yellow", "red": "bold red"}.get(level, ""))


def _shown(text: object) -> str:
    """Harmless text that standard output can have: it is as wide as it will be printed."""
    return encodable(safe(text))


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
