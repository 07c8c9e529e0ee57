"""A report as rows of text, CSV, JSON and Markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from publisher.report.report import UNKNOWN_NAME, Cell, Column, Report
from publisher.text import iso

_TEXT: Final = ("text", "instant")
_DIGITS: Final = 4
_DIGITS_OF_SECONDS: Final = 3
"""Times are kept in milliseconds."""


def shown_columns(report: Report) -> list[Column]:
    """The columns of tables and Markdown."""
    by_name = {column.name: column for column in report.columns}
    return [by_name[name] for name in report.shown] if report.shown else list(report.columns)


def heading(column: Column) -> str:
    """What a column is called in tables: its name, and its unit where the name does not end in it."""
    in_name = not column.unit or column.name.endswith(column.unit.lower().replace(" ", "_"))
    return column.name if in_name else f"{column.name} ({column.unit})"


def is_text(column: Column) -> bool:
    """Whether cells of a column are read from the left."""
    return column.kind in _TEXT


def written(value: Cell, column: Column) -> str:
    """A cell as text: instants in ISO 8601, seconds with three decimals and other numbers with four, or nothing."""
    if value is None:
        return ""
    if column.kind == "instant" and isinstance(value, int):
        return iso(value) or ""
    if isinstance(value, float):
        return f"{value:.{_DIGITS_OF_SECONDS if column.unit == 's' else _DIGITS}f}"
    return str(value)


def grouping_columns(report: Report) -> set[str]:
    """The columns that rows are grouped by; an empty cell of them is a group without a name."""
    return {column for key in report.facts.get("by", ()) for column in (key, f"of_{key}")}


def text_rows(report: Report) -> list[list[str]]:
    """The rows of the columns that are shown, for people. Where nothing matched there are none, not rows of zeros."""
    columns = shown_columns(report)
    keys = {place for place, column in enumerate(columns) if column.name in grouping_columns(report)}
    return [
        [UNKNOWN_NAME if place in keys and not cell else cell for place, cell in enumerate(row)]
        for row in _text_rows(report, columns)
    ]


def _text_rows(report: Report, columns: Sequence[Column]) -> Iterator[list[str]]:
    if report.nothing:
        return
    places = [report.columns.index(column) for column in columns]
    for row in report.rows:
        yield [written(row[place], column) for place, column in zip(places, columns, strict=True)]


def to_csv(report: Report) -> str:
    """CSV of every column, with a row of headings.

    A text that a spreadsheet would take for a formula is set after an apostrophe.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = report.columns
    writer.writerow([column.name for column in columns])
    for row in _text_rows(report, columns):
        writer.writerow(
            [f"'{cell}" if column.kind == "text" and cell[:1] in _FORMULA else cell
             for cell, column in zip(row, columns, strict=True)]
        )  # fmt: skip
    return text.getvalue()


_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def to_markdown(report: Report) -> str:
    """A table in Markdown; the notes below it. Where nothing matched, the reason instead of the table."""
    if report.nothing:
        return "\n".join(f"{_cell(text)}\n" for text in (report.nothing, *report.notes))
    columns = shown_columns(report)
    rules = ["---" if is_text(column) else "---:" for column in columns]
    lines = [[heading(column) for column in columns], rules, *text_rows(report)]
    table = "".join("| " + " | ".join(_cell(cell) for cell in line) + " |\n" for line in lines)
    return table + "".join(f"\n{_cell(note)}\n" for note in report.notes)


def _cell(text: str) -> str:
    return "".join(f"\\{letter}" if letter in "\\|" else letter if letter.isprintable() else " " for letter in text)


def json_object(report: Report) -> dict[str, Any]:
    """The report as the object for programs: every column, instants in ISO 8601, money as text."""
    return {
        "view": report.view,
        "title": report.title,
        "site": report.site,
        "since": iso(report.start),
        "until": iso(report.stop),
        **report.facts,
        report.rows_named: [
            {column.name: _plain(value, column) for column, value in zip(report.columns, row, strict=True)}
            for row in report.rows
        ],
        **({"nothing": report.nothing} if report.nothing else {}),
        **({"notes": list(report.notes)} if report.notes else {}),
    }


def to_json(report: Report) -> str:
    """The object as text."""
    return json.dumps(json_object(report), indent=2) + "\n"


def _plain(value: Cell, column: Column) -> str | int | float | None:
    if column.kind == "instant" and isinstance(value, int):
        return iso(value)
    return str(value) if isinstance(value, Decimal) else value
