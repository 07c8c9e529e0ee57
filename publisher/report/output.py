"""A report as a table for people, and as CSV, JSON, and Markdown."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from publisher.csv_text import csv_text
from publisher.report.plot.style import interval_text
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Report, is_others
from publisher.text import duration_text, iso, number_text, numbered, size_text

_TEXT: Final = ("text", "instant")
_DIGITS: Final = 4
_DIGITS_OF_SECONDS: Final = 3
"""Times are kept in milliseconds."""
_BYTES: Final = {"KiB": 1024, "bytes": 1}
"""Units of sizes, in bytes: tables show them in the unit that fits each."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")
"""What Prometheus does not take in names."""
_S: Final = "s"
_SHORT_S: Final = 10


def shown_columns(report: Report) -> list[Column]:
    """The columns of tables and Markdown."""
    by_name = {column.name: column for column in report.columns}
    return [by_name[name] for name in report.shown] if report.shown else list(report.columns)


def caption(report: Report) -> str:
    """What a table is of, and of which time."""
    return f"{report.title}, {interval_text(report.start, report.stop, report.timezone)}"


def heading(column: Column) -> str:
    """The heading of a column in tables: its name, and its unit if neither the name nor the cells have it."""
    if column.of_sql:
        return column.name
    words = column.name.split("_")
    unit = column.unit.lower().split()
    if unit and words[: len(unit)] == unit:
        return " ".join([column.unit, *words[len(unit) :]])
    if unit and words[-1] == unit[-1]:
        words.pop()
    elif unit and unit[-1] in words:
        return " ".join(words)
    in_cells = not column.unit or column.unit == _S or column.unit in _BYTES
    return " ".join(words) if in_cells else f"{' '.join(words)} ({column.unit})"


def is_text(column: Column) -> bool:
    """Whether the cells of a column are aligned to the left."""
    return column.kind in _TEXT


def text_rows(report: Report) -> list[list[str]]:
    """The rows of the columns that are shown, for people, with that of the total; no rows if nothing matched."""
    if report.nothing:
        return []
    rows = (*report.rows, *([report.footer] if report.footer else []))
    texts = [_texts_of(column, [row[report.columns.index(column)] for row in rows]) for column in shown_columns(report)]
    return [list(row) for row in zip(*texts, strict=True)]


def _texts_of(column: Column, cells: list[Cell]) -> list[str]:
    """The cells of a column for people: with thousands separators, few decimals, and the unit if it differs by cell."""
    if column.kind == "text":
        return ["" if cell is None else str(cell) or (UNKNOWN_NAME if column.key else "") for cell in cells]
    numbers = [cell for cell in cells if isinstance(cell, int | float)]
    largest = max(map(abs, numbers), default=0.0)
    return ["" if cell is None else _text_of(cell, column, largest) for cell in cells]


def _text_of(cell: str | float | Decimal, column: Column, largest: float) -> str:
    if isinstance(cell, str | Decimal):
        return cell if isinstance(cell, str) else f"{cell:,f}"
    if column.kind == "instant":
        return iso(int(cell)) or ""
    if column.kind == "ratio":
        return f"{cell * 100:.1f} %"
    return _size_or_duration(cell, column) or _number_of(cell, column, largest)


def _size_or_duration(cell: float, column: Column) -> str:
    """A cell with its own unit; empty if the column has another unit."""
    if column.unit in _BYTES:
        return size_text(cell * _BYTES[column.unit])
    if column.unit != _S:
        return ""
    return f"{cell:.1f} s" if 0 < cell < _SHORT_S and cell != int(cell) else duration_text(cell)


def _number_of(cell: float, column: Column, largest: float) -> str:
    if column.kind == "count":
        return f"{cell:,}"
    return number_text(cell, largest) if column.decimals is None else f"{cell:,.{column.decimals}f}"


def _written(value: Cell, column: Column) -> str:
    """A cell for programs: ISO 8601, seconds with three decimals, other numbers with four; empty if unknown."""
    if value is None:
        return ""
    if column.kind == "instant" and isinstance(value, int):
        return iso(value) or ""
    if isinstance(value, float):
        return f"{value:.{_DIGITS_OF_SECONDS if column.unit == _S else _DIGITS}f}"
    return str(value)


def to_csv(report: Report) -> str:
    """CSV of all columns, with headings: see `publisher.csv_text`."""
    columns = report.columns
    rows = () if report.nothing else report.rows
    return csv_text([
        [column.name for column in columns],
        *([_written(cell, column) for cell, column in zip(row, columns, strict=True)] for row in rows),
    ])  # fmt: skip


def to_markdown(report: Report) -> str:
    """A table in Markdown and the notes below it; if nothing matched, the reason instead of the table."""
    if report.nothing:
        return "\n".join(f"{_cell(text)}\n" for text in (report.nothing, *report.notes))
    columns = shown_columns(report)
    rules = ["---" if is_text(column) else "---:" for column in columns]
    lines = [[heading(column) for column in columns], rules, *text_rows(report)]
    table = "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)
    return table + "".join(f"\n{_cell(note)}\n" for note in report.notes)


def to_prometheus(report: Report) -> str:
    """A gauge for each column of numbers, in the text format of Prometheus. What tells rows apart are the labels, and
    where nothing does, such as of jobs with one number in two clusters, the number of the row: of two samples with the
    same labels, Prometheus refuses the file."""
    *names, number = numbered([*map(_prometheus_name, report.columns), "row"])
    places = [place for place, column in enumerate(report.columns) if column.key or column.tells_apart]
    rows = () if report.nothing else report.rows
    texts = [[_written(row[place], report.columns[place]) for place in places] for row in rows]
    labels = [names[place] for place in places]
    if len(set(map(tuple, texts))) < len(texts):
        labels = [*labels, number]
        texts = [[*some, str(place)] for place, some in enumerate(texts, 1)]
    registry = CollectorRegistry(auto_describe=False)
    families = []
    for place, column in enumerate(report.columns):
        if not is_text(column):
            name = f"usage_publisher_report_{report.view}_{names[place]}"
            family = GaugeMetricFamily(name, f"{report.title}: {heading(column)}.", labels=labels)
            for row, some in zip(rows, texts, strict=True):
                value = row[place]
                if isinstance(value, int | float | Decimal):
                    family.add_metric(some, float(value))
            families.append(family)
    registry.register(_Families(families))
    return generate_latest(registry).decode()


def _prometheus_name(column: Column) -> str:
    name = _NOT_IN_NAMES.sub("_", column.name)
    return name if name[:1].isalpha() else f"column_{name}"  # none may begin with a digit, nor a label with `__`


class _Families(Collector):
    """Families that are made already."""

    def __init__(self, families: list[GaugeMetricFamily]) -> None:
        self._families = families

    def collect(self) -> list[GaugeMetricFamily]:
        """The families."""
        return self._families


def _cell(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\|" else letter if letter.isprintable() else " " for letter in text)


def json_object(report: Report) -> dict[str, Any]:
    """The report as the object of `--json`: all columns, instants in ISO 8601, money as text.

    `total` is the number of rows of the whole report, `shown` how many of them are given, without sums of others.
    """
    return {
        "view": report.view,
        "title": report.title,
        "site": report.site,
        "since": iso(report.start),
        "until": iso(report.stop),
        **report.facts,
        "total": len(report.rows) if report.total is None else report.total,
        "shown": len(report.rows) if report.total is None else sum(not _is_sum(row) for row in report.rows),
        report.rows_named: [
            {column.name: _plain(value, column) for column, value in zip(report.columns, row, strict=True)}
            for row in report.rows
        ],
        **({"nothing": report.nothing} if report.nothing else {}),
        **({"notes": list(report.notes)} if report.notes else {}),
    }


def to_json(report: Report) -> str:
    """The object of `--json` as text."""
    return json.dumps(json_object(report), indent=2) + "\n"


def _is_sum(row: tuple[Cell, ...]) -> bool:
    return any(isinstance(cell, str) and is_others(cell) for cell in row)


def _plain(value: Cell, column: Column) -> str | int | float | None:
    if column.kind == "instant" and isinstance(value, int):
        return iso(value)
    return str(value) if isinstance(value, Decimal) else value
