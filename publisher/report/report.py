"""What every view of `report` returns: columns, rows, and plots, independent of the format of the output.

A view computes; tables, CSV, JSON, Markdown, pictures, and the page only show a `Report`. Cells are plain values:
instants are epoch seconds, amounts of money exact decimals, ratios fractions of 1. None is an unknown value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

UNKNOWN_NAME: Final = "(unknown)"
"""The name of a group without a name, or of a host that no source names."""
IDLE_NODES: Final = "(idle nodes)"
"""The name of the row of idle nodes, which are nobody's."""
EVERYONE: Final = "(all)"
"""The name of the row of the total."""
_OTHERS: Final = re.compile(r"others \([\d,]+\)")


def others(count: int) -> str:
    """The label of the row, bar, or series that sums up so many smaller ones."""
    return f"others ({count:,})"


def keys_text(keys: Iterable[str]) -> str:
    """Keys of groups in titles and legends: `user and VO`."""
    return " and ".join({"vo": "VO", "dn": "DN", "pe": "parallel environment"}.get(key, key) for key in keys)


def is_others(label: str) -> bool:
    """Whether a label is one of `others`."""
    return _OTHERS.fullmatch(label) is not None


Cell = str | int | float | Decimal | None
PlotStyle = Literal["line", "bar", "heat"]
Kind = Literal["text", "instant", "count", "number", "ratio", "money", "decimal"]
"""`count` is a whole number, `ratio` a fraction of 1, `decimal` exact, as `money` of the column's currency is."""


class Column(msgspec.Struct, frozen=True):
    """A column: its `name` in JSON and CSV, the `unit` of its values if they have one (s, KiB, core h, EUR)."""

    name: str
    kind: Kind
    unit: str = ""
    adds: Literal["", "sum", "max"] = ""
    """How the cells of several groups become the cell of all of them; empty: they cannot."""
    decimals: int | None = None
    """How many decimals tables show; None: as many as the largest number needs."""
    key: str = ""
    """The key by which rows are grouped and of which it has the values; an empty cell is a group without a name."""
    tells_apart: bool = False
    """Whether it tells rows of the same keys apart."""
    of_sql: bool = False
    """Whether a person's SQL names it: headings do not alter the name."""


def in_percent(fraction: float | None) -> float | None:
    """A fraction of 1 as plots have it."""
    return None if fraction is None else 100 * fraction


class Series(msgspec.Struct, frozen=True):
    """One line, bar, or layer of a plot: a value for each place of the x axis; None where it is unknown."""

    label: str
    values: tuple[float | None, ...]
    before: bool = False
    """Whether it is of the interval with which the report's is compared. Such series are the last of a plot."""


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """What a picture of a report shows. A view gives all names and series; the drawing decides how many have room.

    `line` and `bar` plots over time are drawn as lines or bars, whichever is chosen; plots over names are always bars.
    A `heat` map has a row for each series and a column for each x. Percentages are values from 0 to 100.
    """

    title: str
    style: PlotStyle
    x: tuple[int, ...] | tuple[str, ...]
    """Starts of bins or periods in epoch seconds, or names."""
    labels: tuple[str, ...] = ()
    """The names of the periods in `x` (2026-11, 2026-W45, 2026-11-03), if they are periods."""
    step_s: int | None = None
    """The length of the bins, if all are equally long."""
    unit: str = ""
    decimals: int | None = None
    """Of each amount, such as 2 for money; None: as many as the largest needs."""
    stacked: bool = False
    """Whether the series add up."""
    names_add_up: bool = False
    """Whether the values of different names add up, so that one bar can show the sum of the smaller ones."""
    top: float = 0.0
    """The axis of values reaches at least this, such as 100 for percentages of all there is."""
    partial: tuple[int, ...] = ()
    """The places of bins that are incomplete: cut by the interval, not over yet, or not collected yet."""
    without_jobs: frozenset[int] = frozenset()
    """The places of bins in which no job counts: an amount that is None is not unknown there."""
    known_until: int | None = None
    """When jobs were last collected, in epoch seconds; None: unknown."""
    end: int | None = None
    """The end of the time axis in epoch seconds; None: that of the interval."""
    ordered: bool = False
    """Whether the names have an order of their own; others are sorted by value."""
    weights: tuple[float, ...] = ()
    """By name (over time by series), which ones matter most if not all have room; empty: the values decide."""
    by: str = ""
    """The key that distinguishes the series; empty if they are measures."""
    most: int | None = None
    """How many names or series to draw; None: as many as have room."""
    left_out: int = 0
    """How many names or series are neither drawn nor part of a sum that is drawn."""
    series: tuple[Series, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a view for an interval in epoch seconds, `stop` not included."""

    view: str
    title: str
    site: str
    start: int
    stop: int
    timezone: str = "UTC"
    """The time zone in which the interval is shown."""
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total: int | None = None
    """How many rows there are, if `rows` are not all of them."""
    footer: tuple[Cell, ...] = ()
    """The row of the total, which tables and Markdown show last; CSV and JSON do not have it among the rows."""
    shown: tuple[str, ...] = ()
    """The columns of tables and Markdown; empty: all. CSV and JSON have all columns."""
    sorted_by: str = ""
    """The column that decides which rows are the largest, if the request does not name one."""
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know about the figures: what was assumed, inferred, or left out."""
    nothing: str | None = None
    """Why the report is empty, and which values exist."""
    sql: str = ""
    """The SQL that it was computed with, if it was."""
    rows_named: str = "rows"
    """The key of the rows in JSON."""
    facts: Mapping[str, Any] = {}
    """Further keys of the JSON object: plain JSON values, instants as text."""
