"""The order of a report's rows, and its largest rows: `--sort` and `--top`.

The rows of a report by keys are ranked by group: a group is what the keys name, such as a user, in all bins or periods
of the report. The rest becomes one row, `others (72)`, in each bin or period, with the sums and maxima of the columns
that have them. Pictures show the same groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Final, NamedTuple

import msgspec

from publisher.errors import UsageError
from publisher.report.output import heading
from publisher.report.plot.style import instants_of
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report, others
from publisher.report.request import ReportRequest
from publisher.report.view_option import PERIODS
from publisher.text import did_you_mean

_TIMES: Final = frozenset({"start", "period", *PERIODS})
"""Columns that say when: groups are ranked over the whole interval."""
_Key = tuple[Cell, ...]


class Order(NamedTuple):
    """By which column to sort: its place, and the direction."""

    place: int
    column: Column
    descending: bool

    def ranked(self, groups: Iterable[tuple[_Key, list[Cell]]]) -> list[_Key]:
        """Groups in this order, of their cells of the column; groups whose cells are all unknown are last."""
        values = {group: self._value([cell for cell in cells if cell is not None]) for group, cells in groups}
        known = [group for group, value in values.items() if value is not None]
        known.sort(key=lambda group: values[group], reverse=self.descending)  # type: ignore[arg-type, return-value]
        return [*known, *(group for group, value in values.items() if value is None)]

    def _value(self, cells: list[Cell]) -> Cell:
        if not cells:
            return None
        if self.column.adds == "sum":
            return _total(cells)
        return max(cells) if self.descending else min(cells)  # type: ignore[type-var]

    @property
    def words(self) -> str:
        """Which groups are first, for people."""
        if self.column.kind in {"text", "instant"}:
            return f"the {'last' if self.descending else 'first'} by {self.column.name}"
        return f"the {'largest' if self.descending else 'smallest'} by {self.column.name}"


def order_of(report: Report, sort: str | None) -> Order:
    """How to sort a report: `core_h` (numbers largest first, text A to Z), `-core_h` (largest first), `+core_h`.

    Raises `UsageError` for a column that the report does not have.
    """
    name = report.sorted_by if sort is None else sort.lstrip("+-").strip()
    for place, column in enumerate(report.columns):
        if _spelled(name) in {_spelled(column.name), _spelled(heading(column))}:
            is_text = column.kind in {"text", "instant"}
            descending = not is_text if sort is None or sort[:1] not in "+-" else sort.startswith("-")
            return Order(place, column, descending)
    names = [column.name for column in report.columns]
    unknown = f"--sort: {report.view} has no column {name!r}{did_you_mean(name, names)}"
    raise UsageError(unknown, hint=f"Choose one of: {', '.join(names)}")


def _spelled(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").lower()


def ranked(report: Report, request: ReportRequest) -> Report:
    """The report sorted and cut as the request says. Raises `UsageError` for a column that it does not have."""
    if (request.sort is None and request.top is None) or report.total is not None:
        return report
    order = order_of(report, request.sort)
    if report.nothing:
        return report
    grouped_by = [place for place, column in enumerate(report.columns) if column.key]
    keys = [place for place in grouped_by if report.columns[place].name not in _TIMES] or grouped_by
    of_times = [place for place, column in enumerate(report.columns) if column.name in _TIMES]
    times = [place for place in of_times if place not in keys] if keys else []
    keys_or_all = keys or list(range(len(report.columns)))
    cells: dict[_Key, list[Cell]] = {}
    for row in report.rows:
        cells.setdefault(_cells(row, keys_or_all), []).append(row[order.place])
    groups = order.ranked(cells.items())
    kept = groups[: request.top]
    rank = {group: number for number, group in enumerate(kept)}
    by_time: dict[_Key, tuple[list[tuple[Cell, ...]], list[tuple[Cell, ...]]]] = {}
    for row in report.rows:
        shown, rest = by_time.setdefault(_cells(row, times), ([], []))
        (shown if _cells(row, keys_or_all) in rank else rest).append(row)
    rows: list[tuple[Cell, ...]] = []
    for at in sorted(by_time, key=lambda time: [str(cell) for cell in time]):
        shown, rest = by_time[at]
        rows += sorted(shown, key=lambda row: rank[_cells(row, keys_or_all)])
        if rest and keys:
            rows.append(_summed(report.columns, rest, keys, times))
    left_out = len(groups) - len(kept)
    note = (
        f"{len(kept):,} of {len(groups):,} {_what(report, keys)} are shown, {order.words}"
        + (f"; {others(left_out)} is the sum of the others." if keys else ".")
        if left_out
        else ""
    )
    return msgspec.structs.replace(
        report,
        rows=tuple(rows),
        total=len(report.rows),
        plots=tuple(_plot_of(plot, request, order, keys, report) for plot in report.plots),
        notes=(*filter(None, [note]), *report.notes),
    )


def _cells(row: Sequence[Cell], places: Iterable[int]) -> _Key:
    return tuple(row[place] for place in places)


def _what(report: Report, keys: list[int]) -> str:
    return f"values of {' and '.join(report.columns[place].name for place in keys)}" if keys else report.rows_named


def _summed(
    columns: tuple[Column, ...], rows: list[tuple[Cell, ...]], keys: list[int], times: list[int]
) -> tuple[Cell, ...]:  # fmt: skip
    """The row that stands for several: sums and maxima if the columns have them, else unknown."""
    label = others(len({_cells(row, keys) for row in rows}))
    return tuple(
        label if place == keys[0]
        else rows[0][place] if place in times
        else None if column.key
        else "" if column.kind == "text"
        else _merged(column, [row[place] for row in rows if row[place] is not None])
        for place, column in enumerate(columns)
    )  # fmt: skip


def _merged(column: Column, cells: list[Cell]) -> Cell:
    if not cells or not column.adds:
        return None
    return _total(cells) if column.adds == "sum" else max(cells)  # type: ignore[type-var]


def _total(cells: list[Cell]) -> int | float | Decimal:
    return sum(cells[1:], start=cells[0])  # type: ignore[arg-type]


def _plot_of(plot: Plot, request: ReportRequest, order: Order, keys: list[int], report: Report) -> Plot:
    """The plot with as many names or series as rows are shown and, if a column is named, in its order."""
    if request.sort is None:
        return msgspec.structs.replace(plot, most=request.top)
    over_names = not instants_of(plot)
    labels = [str(name) for name in plot.x] if over_names else [one.label for one in plot.series]
    cells: dict[_Key, list[Cell]] = {(label,): [] for label in labels}
    for place, row in enumerate(report.rows):
        by_place = over_names and len(labels) == len(report.rows)
        named = keys[:1] if over_names else keys
        label = labels[place] if by_place else " ".join(str(row[key] or UNKNOWN_NAME) for key in named)
        if (label,) in cells:
            cells[(label,)].append(row[order.place])
    places = [labels.index(str(label)) for (label,) in order.ranked(cells.items())]
    weights = tuple(float(-number) for number in range(len(places)))
    if not over_names:
        series = tuple(plot.series[place] for place in places)
        return msgspec.structs.replace(plot, series=series, weights=weights, most=request.top)
    series = tuple(
        msgspec.structs.replace(one, values=tuple(one.values[place] for place in places)) for one in plot.series
    )
    names = tuple(labels[place] for place in places)
    return msgspec.structs.replace(plot, x=names, series=series, weights=weights, ordered=True, most=request.top)
