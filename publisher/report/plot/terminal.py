"""Plots as text for terminals: charts over time by plotext, bars of names, and heat maps; in Unicode or in ASCII.

Stacked series differ in their colours on a terminal and in their characters elsewhere. Series that are not stacked have
a chart each, on one scale, so that they can be read without colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import plotext  # type: ignore[import-untyped]
from matplotlib.colors import to_rgb
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from publisher.report.plot.axis import time_ticks, value_locator, value_text
from publisher.report.plot.palette import colour
from publisher.report.plot.style import (
    Look,
    amounts_of,
    edges_of,
    end_of,
    folded,
    highest_of,
    instants_of,
    interval_text,
    lowest_of,
    marks_of,
    named_first,
    shortened,
    stacks_of,
    unknown_in,
    unknown_text,
)
from publisher.report.report import Plot, Series
from publisher.text import amount_texts, safe


class _Characters(NamedTuple):
    """What charts are made of."""

    across: str
    """Bars by eighths of a cell, from the left."""
    layers: str
    """A character for each layer of a stack, without colours."""
    shades: str
    """Shades of a heat map, from nothing to full."""
    unknown: str
    line: str
    """The marker of lines."""


_UNICODE: Final = _Characters("▏▎▍▌▋▊▉█", "█▒▓░▚◼◇·", "·░▒▓█", " ", "braille")
_ASCII: Final = _Characters("#", "#=+o*%x.", ".-+*#", "?", "*")
_ASCII_AXIS: Final = str.maketrans("│┤─└┬", "||-++")
_HEIGHT: Final = 14
"""Rows of a chart over time; of several charts, each has half of them."""
_LEAST_BAR: Final = 10
_MOST_LABEL: Final = 32
_WIDEST: Final = 160
"""Charts do not become wider than this."""
_WIDE: Final = 0.65
"""The width of bars, as a part of the shortest bin."""
_AXIS: Final = 12
"""Columns for amounts beside a chart."""


class TextPlot:
    """Draws plots in a number of columns: `unicode` or ASCII, `coloured` or with a character for each layer."""

    def __init__(self, width: int, *, unicode: bool, coloured: bool) -> None:
        self._width = min(width, _WIDEST)
        self._unicode = unicode
        self._characters = _UNICODE if unicode else _ASCII
        self._coloured = coloured and unicode

    def lines(self, plot: Plot, start: int, stop: int, look: Look) -> list[Text]:
        """The lines of the chart of a report's interval."""
        plot = folded(plot)
        title = plot.title if look.title is None else look.title
        about = ", ".join(filter(None, (look.note, interval_text(start, stop, look.timezone))))
        heads = [
            Text(shortened(title, self._width), style="bold"), Text(shortened(about, self._width), style="dim"), Text()
        ]  # fmt: skip
        if not plot.x or not plot.series:
            return [*heads, Text("nothing to show")]
        if not instants_of(plot):
            plot = named_first(plot)
            return [*heads, *self._over_names(plot), *self._left_out(plot, len(plot.x))]
        chart = self._heat(plot, stop, look) if plot.style == "heat" else self._over_time(plot, stop, look)
        marks = marks_of(plot, stop, look.timezone).removeprefix("hatched: ")
        left_out = self._left_out(plot, len(plot.series))
        unknown = [Text(text)] if (text := unknown_text(plot)) else []
        return [*heads, *chart, *left_out, *unknown, *self._about_marks(plot, marks)]

    def _left_out(self, plot: Plot, drawn: int) -> list[Text]:
        return [Text(f"{drawn} of {drawn + plot.left_out:,}; the table has the others")] if plot.left_out else []

    def _about_marks(self, plot: Plot, marks: str) -> list[Text]:
        count = f"{len(plot.partial)} of {len(plot.x)} bins {'is' if len(plot.partial) == 1 else 'are'}"
        return self._wrapped([Text(part) for part in f"{count} {marks}".split(" ")], " ") if marks else []

    # --- over names

    def _over_names(self, plot: Plot) -> list[Text]:
        """A bar for each name, or for each series of each name; the amount after it."""
        labels = self._labels([str(name) for name in plot.x])
        stacks = stacks_of(plot)
        measures = self._labels([_stack_name(plot, stack) for stack in stacks]) if len(stacks) > 1 else []
        lowest, highest = lowest_of(plot), highest_of(plot)
        amounts = [
            amount for of_name in zip(*(amounts_of(plot, stack) for stack in stacks), strict=True) for amount in of_name
        ]
        texts = amount_texts(amounts, max(highest, -lowest), plot.decimals)
        before = cell_len(labels[0]) + 1 + (cell_len(measures[0]) + 1 if measures else 0)
        room = max(_LEAST_BAR, self._width - before - max(map(len, texts)) - 1)
        scale = room / (highest - lowest or 1.0)
        zero = max(1, round(-lowest * scale)) if lowest < 0 else 0
        lines = []
        for line, text in enumerate(texts):
            at, number = divmod(line, len(stacks))
            name = labels[at] if number == 0 else " " * cell_len(labels[at])
            heads = [name, measures[number]] if measures else [name]
            bar = self._bar(plot, stacks[number], at, scale, zero)
            lines.append(Text.assemble(" ".join(heads), " ", bar, f" {text}"))
        lines.append(Text(" " * before + safe(plot.unit), style="dim"))
        return [*lines, *(self._legend(plot) if plot.stacked else [])]

    def _labels(self, names: Sequence[str]) -> list[str]:
        """Names in cells of one width."""
        most = max(_LEAST_BAR, min(_MOST_LABEL, self._width // 3))
        shown = [shortened(name, most) for name in names]
        width = max(map(cell_len, shown))
        return [set_cell_size(name, width) for name in shown]

    def _bar(self, plot: Plot, stack: Sequence[int], at: int, scale: float, zero: int) -> Text:
        """A bar of one series, or of layers, each of whole cells so that all of them together have the right length.

        Before the cell `zero` are negative amounts, also in whole cells.
        """
        values = [plot.series[place].values[at] or 0.0 for place in stack]
        if len(values) == 1:
            amount = values[0]
            below = min(zero, max(1, round(-amount * scale))) if amount < 0 else 0
            bar = self._layer(0) * below + self._across(max(0.0, amount) * scale)
            return Text.assemble(" " * (zero - below), (bar, self._style(plot, stack[0])))
        layers, reached, drawn = Text(), 0.0, 0
        for place, value in zip(stack, values, strict=True):
            reached += value * scale
            cells = round(reached) - drawn
            layers.append(self._layer(place) * cells, style=self._style(plot, place))
            drawn += cells
        return layers

    def _across(self, cells: float) -> str:
        """A bar of a length in cells; of anything there is at least a trace."""
        steps = self._characters.across
        eighths = max(round(cells * len(steps)), 1 if cells > 0 else 0)
        whole, part = divmod(eighths, len(steps))
        return steps[-1] * whole + (steps[part - 1] if part else "")

    # --- over time

    def _over_time(self, plot: Plot, stop: int, look: Look) -> list[Text]:
        together = plot.stacked or len(plot.series) == 1
        lines = [Text(safe(plot.unit), style="dim")]
        if together:
            lines += self._legend(plot) if len(plot.series) > 1 else []
            return [*lines, *self._chart(plot, plot.series, stop, look, _HEIGHT)]
        for series in plot.series:
            lines.append(Text(shortened(series.label, self._width), style="bold"))
            lines += self._chart(plot, (series,), stop, look, _HEIGHT // 2 + 1)
        return lines

    def _chart(self, plot: Plot, series: Sequence[Series], stop: int, look: Look, height: int) -> list[Text]:
        """One chart: a line, or bars of one series or of layers."""
        as_line = look.style_of(plot) == "line" and len(series) == 1
        edges, columns = _joined(edges_of(plot, stop), series, self._width * (2 if as_line else 1))
        middles = [(left + right) / 2 for left, right in pairwise(edges)]
        amounts = _amounts(plot)
        ticks = self._apart(
            time_ticks(plot, stop, look.timezone, max(2, (self._width - _AXIS) // 12)), end_of(plot, stop) - edges[0]
        )
        plotext.clear_figure()
        plotext.theme("clear")
        plotext.limit_size(False, False)
        plotext.plot_size(self._width, height)
        plotext.xaxes(True, False)
        plotext.yaxes(True, False)
        if as_line:
            marked: dict[str, Any] = {"marker": self._characters.line, "color": self._colour(plot, 0)}
            plotext.plot(middles, columns[0], **marked)
            plotext.scatter(middles, columns[0], **marked)
        else:
            sums = [[value or 0.0 for value in columns[0]]]
            for values in columns[1:]:
                sums.append([low + (value or 0.0) for low, value in zip(sums[-1], values, strict=True)])
            for place in reversed(range(len(sums))):  # the lower layers are drawn over the upper ones
                marker = self._layer(place)
                plotext.bar(middles, sums[place], marker=marker, color=self._colour(plot, place), width=_WIDE)
            unknown = Series("", tuple(float(is_unknown) for is_unknown in unknown_in(plot, series)))
            _, (parts,) = _joined(edges_of(plot, stop), (unknown,), self._width)
            for at, of_bin in enumerate(zip(*columns, strict=True)):
                if None in of_bin and parts[at]:
                    plotext.text("?", middles[at], sums[-1][at])
        plotext.xlim(edges[0], end_of(plot, stop))
        plotext.ylim(0, amounts[-1])
        plotext.xticks([at for at, _ in ticks], [text for _, text in ticks])
        plotext.yticks(amounts, [value_text(value) for value in amounts])
        drawn = str(plotext.build())
        text = drawn if self._coloured else str(plotext.uncolorize(drawn))
        lines = text.rstrip("\n").split("\n")
        bins = len(plot.x) / len(middles)
        return [
            *(Text.from_ansi(line if self._unicode else line.translate(_ASCII_AXIS)) for line in lines),
            *([Text(f"each column is the mean of up to {-int(-bins // 1)} bins", style="dim")] if bins > 1 else []),
        ]

    def _apart(self, ticks: Sequence[tuple[float, str]], span_s: int) -> list[tuple[float, str]]:
        """The ticks of an axis of `span_s` seconds whose texts do not overlap: of others plotext leaves out any."""
        cells_a_second = (self._width - _AXIS) / span_s
        kept: list[tuple[float, str]] = []
        free = float("-inf")
        for at, text in ticks:
            line, half = text.replace("\n", " "), len(text) / 2 + 1
            if at * cells_a_second - half >= free:
                kept.append((at, line))
                free = at * cells_a_second + half
        return kept

    # --- heat maps

    def _heat(self, plot: Plot, stop: int, look: Look) -> list[Text]:
        shades = self._characters.shades
        labels = self._labels([row.label for row in plot.series])
        margin = cell_len(labels[0])
        edges, rows = _joined(edges_of(plot, stop), plot.series, max(_LEAST_BAR, self._width - margin - 1))
        times = max(1, min(4, (self._width - margin - 1) // len(rows[0])))
        lines = []
        for label, row in zip(labels, rows, strict=True):
            marks = (self._characters.unknown if cell is None else shades[_shade(cell, len(shades))] for cell in row)
            lines.append(Text(f"{label} {''.join(mark * times for mark in marks)}"))
        room, span = times * len(rows[0]), max(1, edges[-1] - edges[0])
        line = " " * (margin + 1 + room)
        for at, text in time_ticks(plot, stop, look.timezone, max(2, room // 12)):
            place = margin + 1 + min(int((at - edges[0]) / span * room), room - len(text))
            if place > margin and not line[place - 1 : place + len(text) + 1].strip():
                line = line[:place] + text.replace("\n", " ") + line[place + len(text) :]
        bounds = [f"to {100 * place // (len(shades) - 1)}" if place else "0" for place in range(len(shades))]
        items = [
            Text(f"{safe(plot.unit)}:"),
            *(Text(f"{one} {bound}") for one, bound in zip(shades, bounds, strict=True)),
        ]
        if any(cell is None for row in plot.series for cell in row.values):
            items.append(Text("blank: unknown" if self._characters.unknown == " " else "? unknown"))
        return [*lines, Text(line.rstrip()), *self._wrapped(items)]

    # --- all

    def _layer(self, place: int) -> str:
        layers = self._characters.layers
        return layers[0] if self._coloured else layers[place % len(layers)]

    def _style(self, plot: Plot, place: int) -> str:
        return colour(plot.series[place], place) if self._coloured else ""

    def _colour(self, plot: Plot, place: int) -> tuple[int, ...] | str:
        """The colour as plotext has it."""
        style = self._style(plot, place)
        return tuple(round(part * 255) for part in to_rgb(style)) if style else "default"

    def _legend(self, plot: Plot) -> list[Text]:
        """What each layer is."""
        return self._wrapped([
            Text.assemble((self._layer(place), self._style(plot, place)), f" {shortened(one.label, _MOST_LABEL)}")
            for place, one in enumerate(plot.series) if not one.before
        ])  # fmt: skip

    def _wrapped(self, items: Sequence[Text], between: str = "   ") -> list[Text]:
        """Items in as many lines as they need."""
        lines = [Text()]
        for item in items:
            if lines[-1] and lines[-1].cell_len + len(between) + item.cell_len > self._width:
                lines.append(Text())
            lines[-1] = Text.assemble(lines[-1], between, item) if lines[-1] else item
        return lines


def _stack_name(plot: Plot, stack: Sequence[int]) -> str:
    """What the bars of a stack are: the only series in it, or the report's own period."""
    return plot.series[stack[0]].label if len(stack) == 1 else "now"


def _amounts(plot: Plot) -> list[float]:
    """The ticks of amounts from 0 to the first that is not below the highest."""
    top = max(plot.top, highest_of(plot)) or 1.0
    ticks = [float(value) for value in value_locator(5).tick_values(0, top) if value >= 0]
    return [*(value for value in ticks if value < top), min(value for value in ticks if value >= top)]


def _joined(
    edges: tuple[int, ...], series: Sequence[Series], room: int
) -> tuple[tuple[int, ...], list[list[float | None]]]:
    """The edges and the values of at most so many bins: means of neighbours if there are more."""
    size = -(-(len(edges) - 1) // room)
    joined = [[_mean(one.values[at : at + size]) for at in range(0, len(one.values), size)] for one in series]
    return (*edges[:-1:size], edges[-1]), joined


def _mean(values: Sequence[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None


def _shade(percent: float, count: int) -> int:
    """Which shade a percentage has: the first for nothing, the last for more than the one before it reaches."""
    if percent <= 0:
        return 0
    return min(count - 1, 1 + int(min(percent, 99.999) / 100 * (count - 1)))
