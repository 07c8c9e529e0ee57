"""What every view of `report` gives: columns, rows and plots, whatever it is then written or drawn as.

A view computes; tables, CSV, JSON, Markdown, pictures and the page only show a `Report`. Cells are plain values:
instants are epoch seconds, amounts of money exact decimals, ratios 1 for "all of it", None where nothing is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from formats.utilization.measure import KEYS

UNKNOWN_NAME: Final = "(unknown)"
"""The name of a group that has none, or of a host that no source names."""

_OTHERS: Final = "(others: "


def others(count: int) -> str:
    """What the sum of so many names or series is called that are not shown by themselves."""
    return f"{_OTHERS}{count:,})"


def is_others(label: str) -> bool:
    """Whether a label is one of `others`."""
    return label.startswith(_OTHERS)


def count_of_others(label: str) -> int:
    """How many are in a sum of this label; 1 for a name or series of its own."""
    number = label.removeprefix(_OTHERS).rstrip(")").replace(",", "")
    return int(number) if is_others(label) and number.isdecimal() else 1


VIEWS: Final[Mapping[str, str]] = {
    "utilization": "Queue and CPU utilization in bins, as DQS measures them.",
    "totals": "What runs used, summed by up to two keys, as qacct gives it.",
    "occupation": "How much of cores, memory or GPUs was taken, by day, week, month or year.",
    "waiting": "How long jobs waited: mean, median, 90th and 99th percentile.",
    "scarce": "Which classes of resources are short: occupation against waiting.",
    "charges": "What users or projects owe for a month, from the price list.",
    "paths": "What happened to jobs, event by event, and how often each path was taken.",
    "load": "Samples of DQS' stat_file: active and total queues, their states, and load.",
    "job": "One job in full.",
}
"""The views by name, and what each shows."""

_PATTERNS: Final = frozenset(KEYS)
_OF_RUNS: Final = _PATTERNS | {"counted", "archive"}
TAKEN: Final[Mapping[str, frozenset[str]]] = {
    "utilization": _OF_RUNS | {"by", "bin", "bins", "measure", "dask"},
    "totals": _OF_RUNS | {"by", "zone", "dask"},
    "occupation": _OF_RUNS | {"by", "period", "zone", "resource", "dask"},
    "waiting": _OF_RUNS | {"by", "zone"},
    "scarce": _OF_RUNS,
    "charges": _PATTERNS | {"by", "archive", "dask"},
    "paths": _OF_RUNS,
    "load": frozenset({"by", "bin", "bins", "stat-file", "queue", "host", "complex", "archive"}),
    "job": frozenset({"job", "task", "user"}),
}
"""By view the options it takes, without their dashes; its command has these and no others. All take an interval."""

Cell = str | int | float | Decimal | None
Kind = Literal["text", "instant", "count", "number", "ratio", "money"]
"""`count` is a whole number, `ratio` a share of a whole (1 is all), `money` a decimal of the column's currency."""


class Column(msgspec.Struct, frozen=True):
    """A column: its `name` in JSON and CSV, the `unit` of its values where they have one (s, KiB, core h, EUR)."""

    name: str
    kind: Kind
    unit: str = ""


class Series(msgspec.Struct, frozen=True):
    """One line, bar or layer of a plot: a value for each place of the x axis; None where nothing is known."""

    label: str
    values: tuple[float | None, ...]


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """What a picture of a report shows.

    `x` are the starts of bins or periods in epoch seconds (`step_s` long where all are alike), or names. A `line` is
    drawn over time and may be drawn as bars, `bar` has names on its axis; a `heat` map has a row for each series and a
    column for each x. Where `stacked`, the series add up; where `names_add_up`, the values of different names do, and
    those that there is no room for are drawn as one bar. `weights`: how much each name matters where not all have room,
    if not by its values. A view gives all names and series: what has room is decided where it is drawn.
    """

    title: str
    style: Literal["line", "bar", "heat"]
    x: tuple[int, ...] | tuple[str, ...]
    step_s: int | None = None
    unit: str = ""
    stacked: bool = False
    names_add_up: bool = False
    weights: tuple[float, ...] = ()
    by: str = ""
    """The key whose values the series are; empty where they are measures."""
    series: tuple[Series, ...]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a view for an interval, epoch seconds, `stop` not included."""

    view: str
    title: str
    site: str
    start: int
    stop: int
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    shown: tuple[str, ...] = ()
    """The columns of tables and Markdown; without any, all. CSV and JSON have them all."""
    plots: tuple[Plot, ...] = ()
    notes: tuple[str, ...] = ()
    """What a reader must know of the figures: what was assumed, inferred or left out."""
    nothing: str | None = None
    """Why there is nothing to show, and what there is."""
    rows_named: str = "rows"
    """What the rows are called in JSON."""
    facts: Mapping[str, Any] = {}
    """What the JSON object says besides: plain JSON values, instants as text."""
