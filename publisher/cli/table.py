"""Tables for people, drawn by rich; without lines, or as paragraphs, if a terminal is too narrow.

rich is imported only when a table is drawn: `--help` and most commands with `--json` do not need it.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from textwrap import wrap
from typing import TYPE_CHECKING, TextIO

from publisher.cli.output import encodable, is_utf8, print_text
from publisher.text import cell_text, safe

if TYPE_CHECKING:
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Column, Table
    from rich.text import Text

_PLAIN_WIDTH = 160
_READABLE = 24
"""Characters that a column keeps: an instant fits, and text is not broken into very short lines."""
_INDENT = 2
_GAP = "   "
_LINES = 3
"""The characters between two columns with a line between them."""
_SPACES = 2
"""Those between two columns of a compact table."""
_MOST_BLOCKS = 2
"""A row is hard to follow through more."""
_RULE_BELOW_HEADINGS = "    \n    \n {0}{0} \n    \n    \n    \n    \n    \n"


def show_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], *, right: AbstractSet[str] = frozenset()
) -> None:
    """Print a table on standard output; columns named in `right` are aligned to the right.

    A cell is a plain value (`publisher.text.cell_text`) or a text of `level_text`. Where the columns would be too
    narrow to read, the table is compact: without lines, with headings of several lines, and if need be in two parts.
    Where these are too wide as well, each row is a paragraph. Raises `OutputClosedError` and `OutputError`.
    """
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(header_style="bold")
    for column in columns:
        table.add_column(Text(_shown(column)), justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(_shown(cell_text(cell))) for cell in row))
    print_text(_drawn(title, table))


def level_text(level: str, text: str) -> Text:
    """Text in the colour of a level: green, yellow or red."""
    from rich.text import Text  # noqa: PLC0415

    return Text(_shown(text), style={"green": "green", "yellow": "yellow", "red": "bold red"}.get(level, ""))


def show_lines(made: Callable[[int, bool], Iterable[Text]]) -> None:
    """Print the lines that are made for a width and for colours or none.

    Raises `OutputClosedError` and `OutputError`.
    """
    text = io.StringIO()
    console = _console(text)
    for line in made(console.width, console.color_system is not None and not console.no_color):
        console.print(line, no_wrap=True, overflow="crop")
    print_text(_without_blanks(text.getvalue()))


def _console(file: TextIO) -> Console:
    """A console of the width of standard output, with its colours if that is a terminal."""
    from rich.console import Console  # noqa: PLC0415

    terminal = sys.stdout.isatty()
    width = None if terminal else plain_width()
    return Console(file=file, force_terminal=terminal, width=width, highlight=False)


def _without_blanks(text: str) -> str:
    """Text without blanks at the ends of lines."""
    return "\n".join(line.rstrip() for line in text.splitlines())


def _drawn(title: str, table: Table) -> str:
    """A table as text for standard output: with lines, compact, or as paragraphs. Its title has the whole width."""
    from rich.box import ASCII  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    text = io.StringIO()
    console = _console(text)
    if title:
        console.print(Text(title, style="bold"), overflow="fold")
    if not is_utf8():
        table.box = ASCII
    if _LINES * len(table.columns) + 1 + sum(_widths(table)) <= console.width:
        console.print(table)
    elif blocks := _blocks(table, widths := _widths(table, compact=True), console.width):
        for number, places in enumerate(blocks):
            if number:
                console.print()
            console.print(_compact(table, places, widths))
    else:
        for paragraph in _paragraphs(table, console.width):
            console.print(paragraph, overflow="fold")
    return _without_blanks(text.getvalue())


def _shown(text: object) -> str:
    """Harmless text in the encoding of standard output, so that its width is that of what is printed."""
    return encodable(safe(text))


def plain_width() -> int:
    """The width of `COLUMNS`, where that is a number."""
    width = os.environ.get("COLUMNS", "")
    return max(_READABLE, int(width)) if width.isascii() and width.isdigit() else _PLAIN_WIDTH


def _cells(column: Column) -> list[Text]:
    from rich.text import Text  # noqa: PLC0415

    return [cell for cell in column.cells if isinstance(cell, Text)]


def _widths(table: Table, *, compact: bool = False) -> list[int]:
    """The least width of each column: its longest word (so that a path can be copied), and `_READABLE` characters or as
    many as it needs if that is less. A compact table breaks headings, and no number.
    """
    widths = []
    for column in table.columns:
        heading, cells = str(column.header), [cell.plain for cell in _cells(column)]
        word = max((len(word) for text in (heading, *cells) for word in text.split()), default=0)
        longest = max(map(len, cells if compact else (heading, *cells)), default=0)
        widths.append(max(word, longest if compact and column.justify == "right" else min(_READABLE, longest)))
    return widths


def _blocks(table: Table, widths: Sequence[int], width: int) -> list[list[int]]:
    """The places of the columns of compact tables that show a table: of one, or of two below each other that begin with
    the same columns, which say what a row is. Empty: each would be too wide, or a second would have long texts, which
    belong to the rest of their row.
    """
    names = next((place for place, column in enumerate(table.columns) if column.justify == "right"), 0)
    if any(len(cell.plain) > _READABLE for column in table.columns[names:] for cell in _cells(column)):
        names = 0
    blocks = [[*range(len(widths))]]
    while sum(widths[place] + _SPACES for place in blocks[-1]) - _SPACES > width:
        fits = 0
        while sum(widths[place] + _SPACES for place in blocks[-1][: fits + 1]) - _SPACES <= width:
            fits += 1
        if not 0 < names < fits or len(blocks) == _MOST_BLOCKS:
            return []
        blocks[-1:] = [blocks[-1][:fits], [*range(names), *blocks[-1][fits:]]]
    return blocks


def _compact(table: Table, places: Sequence[int], widths: Sequence[int]) -> Table:
    """Some columns of a table without lines but that below the headings, which are broken to fit the columns."""
    from rich.box import Box  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    box = Box(_RULE_BELOW_HEADINGS.format("─" if is_utf8() else "-"), ascii=not is_utf8())
    compact = Table(
        box=box, show_edge=False, pad_edge=False, padding=(0, _SPACES - 1, 0, 0), header_style=table.header_style
    )
    headings = [wrap(str(table.columns[place].header), widths[place]) for place in places]
    most = max(map(len, headings))
    for place, lines in zip(places, headings, strict=True):
        right = table.columns[place].justify == "right"
        compact.add_column(
            Text("\n".join([""] * (most - len(lines)) + lines)), justify="right" if right else "left", overflow="fold",
            min_width=widths[place], no_wrap=right,
        )  # fmt: skip
    for row in zip(*(_cells(table.columns[place]) for place in places), strict=True):
        compact.add_row(*row)
    return compact


def _paragraphs(table: Table, width: int) -> Iterator[Text | Padding]:
    """Each row: its first cell on the first line unless it is a number, then cells with their names."""
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    names = [str(column.header) for column in table.columns]
    leading = 0 if table.columns[0].justify == "right" else 1 if names[0] else 2
    for row in zip(*(_cells(column) for column in table.columns), strict=True):
        if any(cell.plain for cell in row[:leading]):
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
