"""A report's rows as the page's table shows them."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import msgspec

from publisher.plain_text import safe
from publisher.report.forms import is_text, shown_columns, told_apart
from publisher.report.result import UNTOLD, Cell, Column, Kind, Report
from publisher.times import iso

MOST_ROWS: Final = 5_000
"""More make a page that browsers are slow with; CSV and JSON have them all."""


_LARGE: Final = 1000
"""From here on one decimal is shown; CSV and JSON have more."""


class Heading(msgspec.Struct, frozen=True):
    """The head of a column; `number` stands to the right, `instant` in one line."""

    name: str
    unit: str
    number: bool
    instant: bool


class Table(msgspec.Struct, frozen=True):
    """The table: at most `MOST_ROWS` of `count` rows."""

    columns: tuple[Heading, ...]
    rows: tuple[tuple[str, ...], ...]
    count: int

    @property
    def left_out(self) -> int:
        """Rows that are not shown."""
        return self.count - len(self.rows)


def table(report: Report) -> Table:
    """The table of a report."""
    columns = shown_columns(report)
    heads = tuple(Heading(_name(one), _unit(one), not is_text(one), one.kind == "instant") for one in columns)
    keys = told_apart(report)
    places = [(report.columns.index(one), one.kind, one.name in keys) for one in columns]
    rows = tuple(
        tuple(UNTOLD if key and row[place] in (None, "") else _text(row[place], kind) for place, kind, key in places)
        for row in report.rows[:MOST_ROWS]
    )
    return Table(heads, rows, len(report.rows))


def _name(column: Column) -> str:
    """The name for people: without the unit at its end, which stands beside it."""
    words = safe(column.name).split("_")
    last = column.unit.lower().split()[-1:]
    return " ".join(words[:-1] if len(words) > 1 and words[-1:] == last else words)


def _unit(column: Column) -> str:
    return "%" if column.kind == "ratio" and not column.unit else safe(column.unit)


def _text(cell: Cell, kind: Kind) -> str:
    if cell is None:
        return "\N{EN DASH}"
    if kind == "instant" and isinstance(cell, int):
        return iso(cell) or ""
    if kind == "ratio" and isinstance(cell, int | float | Decimal):
        return f"{cell * 100:.1f}"
    if isinstance(cell, float):
        return f"{cell:,.4f}" if abs(cell) < _LARGE else f"{cell:,.1f}"
    if kind == "count" and isinstance(cell, int):
        return f"{cell:,}"
    return safe(cell)
