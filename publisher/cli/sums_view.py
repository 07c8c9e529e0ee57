"""The sums of `reconcile --source`, as a table, JSON, and CSV: source, store, what was sent, and service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from publisher.cli.output import exact, say
from publisher.cli.table import level_text, show_table
from publisher.csv_text import csv_text
from publisher.text import counted

if TYPE_CHECKING:
    from publisher.reconcile.amounts import Amounts
    from publisher.reconcile.conservation import Conservation, SumsRow

_ALWAYS: Final = frozenset({"source", "store", "sent"})
_MEASURES: Final = (("jobs", "jobs"), ("core_ms", "core h"), ("cpu_ms", "CPU h"))
_MEASURES_OF_PROGRAMS: Final = (("jobs", "jobs"), ("wall_ms", "wall h"), ("core_ms", "core h"), ("cpu_ms", "CPU h"))
_MS_PER_HOUR: Final = 3_600_000
_SHOWN: Final = 200
"""Rows of a target by VO or user that are shown; CSV and JSON have all."""


def show_sums(found: Conservation) -> None:
    """Tables for people: one for each target; a column that is 0 throughout is left out."""
    from publisher.reconcile.conservation import COLUMNS  # noqa: PLC0415

    for name, rows in found.targets.items():
        shown = [column for column in COLUMNS if column in _ALWAYS or any(_has_amounts(row, column) for row in rows)]
        if all(row.amounts["accepted"] == row.amounts["sent"] for row in rows):
            shown = [column for column in shown if column != "accepted"]
        whose = [] if found.by is None else [found.by]
        columns = ["month", *whose, "of", *(column.replace("_", " ") for column in shown), ""]
        limited = rows if len(rows) <= _SHOWN else [*rows[:_SHOWN], *(row for row in rows[_SHOWN:] if row.of is None)]
        lines = [line for row in limited for line in _lines(row, shown, whose=bool(whose))]
        show_table(
            f"{name}: sums of source, store, and service", columns, lines, right=set(columns[1 + len(whose) : -1])
        )
        if len(limited) < len(rows):
            say(f"{name}: the first {_SHOWN} of {len(rows)} rows; --format csv gives all")
    _show_tools(found)
    for source, reading in found.readings.items():
        if reading.tool_error is not None:
            say(f"{source}: {reading.tool_error}")
        if reading.error is not None:
            say(f"{source}: not read to its end: {reading.error}")
        if reading.unreadable:
            pieces = counted(reading.unreadable, "piece")
            say(f"{source}: unreadable, and in no sum: {pieces} of input")


def _show_tools(found: Conservation) -> None:
    """Both sides of each source whose batch system's own program was asked, in what any of the programs says."""
    asked = {name: reading for name, reading in found.readings.items() if reading.own is not None}
    said = [
        (measure, heading)
        for measure, heading in _MEASURES_OF_PROGRAMS
        if any(getattr(one.tool, measure) is not None for one in asked.values())
    ]
    columns = ["source", "program"]
    for _, title in said:
        columns += [title, f"{title} there"]
    rows: list[list[object]] = []
    for name, reading in asked.items():
        own, tool = reading.own, reading.tool
        if own is not None and tool is not None:
            pairs = [(getattr(own, measure), getattr(tool, measure), measure) for measure, _ in said]
            figures = [_figure(amount, "source", measure) for *pair, measure in pairs for amount in pair]
            remark = level_text("red", "differs") if reading.differing else level_text("green", "agrees")
            rows.append([name, tool.tool, *figures, remark])
    if rows:
        show_table("Beside the program of the batch system", [*columns, ""], rows, right=set(columns[2:]))


def _has_amounts(row: SumsRow, column: str) -> bool:
    if column == "service":
        return row.service is not None
    return any(msgspec.structs.astuple(row.amounts[column]))


def _lines(row: SumsRow, shown: Sequence[str], *, whose: bool) -> list[list[object]]:
    remark = level_text("green", "agrees")
    if row.purged:
        remark = level_text("yellow", "purged: what was sent is unknown")
    elif not row.explained:
        remark = level_text("red", "differs")
    elif row.stuck.jobs:
        remark = level_text("yellow", f"held or rejected: {_amount_text(row.stuck)}")
    elif row.pending.jobs:
        remark = level_text("yellow", f"not sent yet: {_amount_text(row.pending)}")
    lines: list[list[object]] = []
    for place, (measure, title) in enumerate(_MEASURES):
        first: list[object] = ["" if place else row.month or "total"]
        if whose:
            first.append("" if place else _whose(row))
        figures = [_figure(_amount(row, column, place), column, measure) for column in shown]
        lines.append([*first, title, *figures, "" if place else remark])
    return lines


def _amount_text(amounts: Amounts) -> str:
    return f"{counted(amounts.jobs, 'job')}, {amounts.core_ms / _MS_PER_HOUR:,.2f} core h"


def _whose(row: SumsRow) -> str:
    return "all" if row.of is None else row.of or "unknown"


def _figure(amount: int | None, column: str, measure: str) -> str:
    if amount is None or (amount == 0 and column not in _ALWAYS):
        return ""
    return f"{amount:,}" if measure == "jobs" else f"{amount / _MS_PER_HOUR:,.2f}"


def sums_json(found: Conservation) -> dict[str, Any]:
    """The same for `--json`: every row."""
    return {
        "by": found.by,
        "agrees": found.agrees,
        "sources": {name: msgspec.to_builtins(reading) for name, reading in found.readings.items()},
        "targets": {name: [_row_json(row) for row in rows] for name, rows in found.targets.items()},
    }


def _row_json(row: SumsRow) -> dict[str, Any]:
    return {
        "month": None if row.month is None else str(row.month),
        "of": row.of,
        "explained": row.explained,
        "purged": row.purged,
        **{column: msgspec.structs.asdict(amounts) for column, amounts in row.amounts.items()},
        "service": None if row.service is None else dict(zip(_fields(), row.service, strict=True)),
    }


def _fields() -> list[str]:
    return [measure for measure, _ in _MEASURES]


def write_csv(found: Conservation) -> None:
    """The same as CSV on standard output: a line for each row and measure, whole jobs and milliseconds."""
    from publisher.reconcile.conservation import COLUMNS  # noqa: PLC0415

    lines: list[list[object]] = [["target", "month", found.by or "of", "measure", *COLUMNS, "explained"]]
    for name, rows in found.targets.items():
        for row in rows:
            start = [name, row.month or "total", _whose(row)]
            for place, measure in enumerate(_fields()):
                figures = [_amount(row, column, place) for column in COLUMNS]
                lines.append([*start, measure, *figures, str(row.explained).lower()])
    exact(csv_text(lines))


def _amount(row: SumsRow, column: str, place: int) -> int | None:
    """The jobs, core time, or CPU time of a column; None: unknown."""
    if column != "service":
        return int(getattr(row.amounts[column], _MEASURES[place][0]))
    return None if row.service is None else row.service[place]
