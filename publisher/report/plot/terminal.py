"""Plots as text for terminals: bars, columns, lines, and heat maps of Unicode characters, or of ASCII.

Stacked series differ in their colours on a terminal and in their characters elsewhere. Series that are not stacked have
a chart each, on one scale, so that they can be read without colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from publisher.report.plot.palette import colour
from publisher.report.plot.style import (
    Look,
    alone,
    edges_of,
    end_of,
    folded,
    highest_of,
    instants_of,
    interval_text,
    lowest_of,
    middles_of,
    named_first,
    shortened,
)
from publisher.report.plot.ticks import Tick, axis_ticks, value_ticks
from publisher.report.report import Plot, Series
from publisher.text import amount_texts, safe


class _Characters(NamedTuple):
    """What charts are made of."""

    across: str
    """Bars by eighths of a cell, from the left."""
    up: str
    """Columns by eighths of a cell, from below."""
    layers: str
    """A character for each layer of a stack, without colours."""
    shades: str
    """Shades of a heat map, from nothing to full."""
    unknown: str
    axis: str
    braille: bool


_UNICODE: Final = _Characters("▏▎▍▌▋▊▉█", "▁▂▃▄▅▆▇█", "█▒▓░▚◼◇·", "·░▒▓█", " ", "│└─", braille=True)
_ASCII: Final = _Characters("#", "#", "#=+o*%x.", ".-+*#", "?", "|+-", braille=False)
_HEIGHT: Final = 12
"""Rows of a chart over time; of several charts, each has half of them."""
_LEAST_BAR: Final = 10
_SPACED: Final = 3
"""Columns of at least this width have a gap between them."""
_MOST_LABEL: Final = 32
_WIDEST: Final = 160
"""Charts do not become wider than this."""
_DOTS: Final = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bits of the dots of a braille character, by column and row from above."""
_BRAILLE: Final = 0x2800


class TextPlot:
    """Draws plots in a number of columns: `unicode` or ASCII, `coloured` or with a character for each layer."""

    def __init__(self, width: int, *, unicode: bool, coloured: bool) -> None:
        self._width = min(width, _WIDEST)
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
        if plot.style == "heat":
            return [*heads, *self._heat(plot, stop)]
        if instants_of(plot):
            return [*heads, *self._over_time(plot, stop, look), *self._left_out(plot, len(plot.series))]
        plot = named_first(plot)
        return [*heads, *self._over_names(plot), *self._left_out(plot, len(plot.x))]

    def _left_out(self, plot: Plot, drawn: int) -> list[Text]:
        return [Text(f"{drawn} of {drawn + plot.left_out:,}; the table has the others")] if plot.left_out else []

    # --- over names

    def _over_names(self, plot: Plot) -> list[Text]:
        """A bar for each name, or for each series of each name; the amount after it."""
        labels = self._labels([str(name) for name in plot.x])
        measures = [] if plot.stacked or len(plot.series) == 1 else self._labels([one.label for one in plot.series])
        lowest, highest = lowest_of(plot), highest_of(plot, stacked=plot.stacked)
        sums = [[one.values[place] for one in plot.series] for place in range(len(plot.x))]
        shown = sums if measures else [[sum(value or 0.0 for value in values)] for values in sums]
        texts = iter(
            amount_texts([value for values in shown for value in values], max(highest, -lowest), plot.decimals)
        )
        amounts = [[next(texts) for _ in values] for values in shown]
        widest = max(len(amount) for each in amounts for amount in each)
        before = cell_len(labels[0]) + 1 + (cell_len(measures[0]) + 1 if measures else 0)
        room = max(_LEAST_BAR, self._width - before - widest - 1)
        scale = room / (highest - lowest or 1.0)
        zero = max(1, round(-lowest * scale)) if lowest < 0 else 0
        lines = []
        for label, values, written in zip(labels, sums, amounts, strict=True):
            if not measures:
                bar = self._bar(plot, values, scale, zero)
                lines.append(Text.assemble(f"{label} ", bar, f" {written[0]}"))
                continue
            for place, (measure, value, text) in enumerate(zip(measures, values, written, strict=True)):
                name = label if place == 0 else " " * cell_len(label)
                bar = Text(self._across((value or 0.0) * scale), style=self._style(plot, place))
                lines.append(Text.assemble(f"{name} {measure} ", bar, f" {text}"))
        lines.append(Text(" " * before + safe(plot.unit), style="dim"))
        return [*lines, *(self._legend(plot) if plot.stacked else [])]

    def _labels(self, names: Sequence[str]) -> list[str]:
        """Names in cells of one width."""
        most = max(_LEAST_BAR, min(_MOST_LABEL, self._width // 3))
        shown = [shortened(name, most) for name in names]
        width = max(map(cell_len, shown))
        return [set_cell_size(name, width) for name in shown]

    def _bar(self, plot: Plot, values: Sequence[float | None], scale: float, zero: int) -> Text:
        """A bar of one series, or of layers, each of whole cells so that all of them together have the right length.

        Before the cell `zero` are negative amounts, also in whole cells.
        """
        if len(values) == 1:
            amount = values[0] or 0.0
            below = min(zero, max(1, round(-amount * scale))) if amount < 0 else 0
            bar = self._layer(0) * below + self._across(max(0.0, amount) * scale)
            return Text.assemble(" " * (zero - below), (bar, self._style(plot, 0)))
        layers, reached, drawn = Text(), 0.0, 0
        for place, value in enumerate(values):
            reached += (value or 0.0) * scale
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
        most, up = value_ticks(highest_of(plot, stacked=plot.stacked), 4)
        margin = max(len(tick.text) for tick in up)
        room = max(_LEAST_BAR, self._width - margin - 2)
        as_lines = look.style_of(plot) == "line" and not (plot.stacked and len(plot.series) > 1)
        together = plot.stacked or len(plot.series) == 1
        height = _HEIGHT if together else _HEIGHT // 2
        unit = [Text(safe(plot.unit), style="dim")]
        lines: list[Text] = [*unit, *(self._legend(plot) if len(plot.series) > 1 and together else [])]
        for some in [plot.series] if together else [(one,) for one in plot.series]:
            if not together:
                lines.append(Text(shortened(some[0].label, self._width), style="bold"))
            if as_lines and self._characters.braille:
                rows = self._line(_interpolated(some[0], plot, stop, 2 * room), height, most)
            else:
                gaps = room >= _SPACED * len(plot.x)
                cells = [_columns(one, plot, stop, room, gaps=gaps and not as_lines) for one in some]
                rows = self._stack(plot, cells, height, most)
            lines += self._with_axis(rows, up, margin)
        lines.append(self._time_labels(axis_ticks(plot, stop, max(2, room // 12)), margin, room))
        bins = len(plot.x) / room
        return [
            *lines,
            *([Text(f"each column is the mean of up to {-int(-bins // 1)} bins", style="dim")] if bins > 1 else []),
        ]

    def _stack(self, plot: Plot, cells: list[list[float | None]], height: int, most: float) -> list[Text]:
        """Columns of one series by eighths of a cell, or of layers in whole cells; the uppermost row first."""
        steps = self._characters.up
        rows = [Text() for _ in range(height)]
        for values in zip(*cells, strict=True):
            tops = [0.0]
            for value in values:
                tops.append(tops[-1] + (value or 0.0) / most * height)
            for row in range(height):
                if len(cells) == 1:
                    eighths = min(len(steps), max(0, round((tops[1] - row) * len(steps))))
                    rows[row].append(steps[eighths - 1] if eighths else " ", style=self._style(plot, 0))
                    continue
                layer = next((place for place, top in enumerate(tops[1:]) if row + 0.5 < top), None)
                rows[row].append(
                    " " if layer is None else self._layer(layer),
                    style="" if layer is None else self._style(plot, layer),
                )
        return rows[::-1]

    def _line(self, values: list[float | None], height: int, most: float) -> list[Text]:
        """A line of braille dots, two in a column and four in a row, with gaps where values are unknown."""
        dots = [[0] * (len(values) // 2) for _ in range(height)]
        previous: int | None = None
        for place, value in enumerate(values):
            if value is None:
                previous = None
                continue
            at = round(min(1.0, value / most) * (4 * height - 1))
            towards = at if previous is None else previous + (previous < at) - (previous > at)
            for level in range(min(at, towards), max(at, towards) + 1):
                dots[height - 1 - level // 4][place // 2] |= _DOTS[place % 2][3 - level % 4]
            previous = at
        style = colour("", 0) if self._coloured else ""
        return [Text("".join(chr(_BRAILLE + bits) if bits else " " for bits in row), style=style) for row in dots]

    def _with_axis(self, rows: list[Text], up: list[Tick], margin: int) -> list[Text]:
        """The rows of a chart with the value axis to their left, and the time axis below."""
        side, corner, floor = tuple(self._characters.axis)
        texts = {min(len(rows) - 1, max(0, round(len(rows) * (1 - tick.share)))): tick.text for tick in up[1:]}
        lines = [Text.assemble(f"{texts.get(place, ''):>{margin}} {side}", row) for place, row in enumerate(rows)]
        width = max((row.cell_len for row in rows), default=0)
        return [*lines, Text(f"{up[0].text:>{margin}} {corner}{floor * width}")]

    def _time_labels(self, ticks: list[Tick], margin: int, room: int) -> Text:
        line = " " * (margin + 2 + room)
        for tick in ticks:
            at = margin + 2 + min(max(0, round(tick.share * room) - len(tick.text) // 2), room - len(tick.text))
            if at >= 0 and not line[max(0, at - 1) : at + len(tick.text) + 1].strip():
                line = line[:at] + tick.text + line[at + len(tick.text) :]
        return Text(line.rstrip())

    # --- heat maps

    def _heat(self, plot: Plot, stop: int) -> list[Text]:
        shades = self._characters.shades
        labels = self._labels([row.label for row in plot.series])
        margin = cell_len(labels[0])
        room = max(_LEAST_BAR, self._width - margin - 1)
        wide = min(room, len(plot.x) * max(1, min(4, room // len(plot.x))))
        lines = []
        for label, row in zip(labels, plot.series, strict=True):
            cells = _columns(row, plot, stop, wide)
            marks = (self._characters.unknown if cell is None else shades[_shade(cell, len(shades))] for cell in cells)
            lines.append(Text(f"{label} {''.join(marks)}"))
        lines.append(self._time_labels(axis_ticks(plot, stop, max(2, wide // 12)), margin - 1, wide))
        bounds = [f"to {100 * place // (len(shades) - 1)}" if place else "0" for place in range(len(shades))]
        items = [
            Text(f"{safe(plot.unit)}:"),
            *(Text(f"{one} {bound}") for one, bound in zip(shades, bounds, strict=True)),
        ]
        if any(cell is None for row in plot.series for cell in row.values):
            items.append(Text("blank: unknown" if self._characters.unknown == " " else "? unknown"))
        return [*lines, *self._wrapped(items)]

    # --- all

    def _layer(self, place: int) -> str:
        layers = self._characters.layers
        return layers[0] if self._coloured else layers[place % len(layers)]

    def _style(self, plot: Plot, place: int) -> str:
        return colour(plot.series[place].label, place) if self._coloured else ""

    def _legend(self, plot: Plot) -> list[Text]:
        """What each layer is."""
        return self._wrapped([
            Text.assemble((self._layer(place), self._style(plot, place)), f" {shortened(one.label, _MOST_LABEL)}")
            for place, one in enumerate(plot.series)
        ])  # fmt: skip

    def _wrapped(self, items: Sequence[Text]) -> list[Text]:
        """Items in as many lines as they need."""
        lines = [Text()]
        for item in items:
            if lines[-1] and lines[-1].cell_len + 3 + item.cell_len > self._width:
                lines.append(Text())
            lines[-1] = Text.assemble(lines[-1], "   ", item) if lines[-1] else item
        return lines


def _columns(one: Series, plot: Plot, stop: int, room: int, *, gaps: bool = False) -> list[float | None]:
    """The mean of the bins in each column of text, None if they are unknown; `gaps`: with one between two bins."""
    edges = edges_of(plot, stop)
    start, span = edges[0], max(1, end_of(plot, stop) - edges[0])
    sums, counts = [0.0] * room, [0] * room
    for value, (left, right) in zip(one.values, pairwise(edges), strict=True):
        if value is None:
            continue
        first = min(room - 1, int((left - start) / span * room))
        last = max(first, min(room, int((right - start) / span * room)) - 1 - gaps)
        for column in range(first, last + 1):
            sums[column] += value
            counts[column] += 1
    return [total / count if count else None for total, count in zip(sums, counts, strict=True)]


def _interpolated(one: Series, plot: Plot, stop: int, room: int) -> list[float | None]:
    """The values of a line at so many places: between the middles of neighbouring bins, or means of several bins."""
    if len(plot.x) >= room:
        return _columns(one, plot, stop, room)
    start, span = edges_of(plot, stop)[0], max(1, end_of(plot, stop) - edges_of(plot, stop)[0])
    points = [(middle - start) / span * room for middle in middles_of(plot, stop)]
    values: list[float | None] = [None] * room
    for at in alone(one.values):
        values[min(room - 1, int(points[at]))] = one.values[at]
    known = zip(pairwise(points), pairwise(one.values), strict=True)
    for (left, right), (low, high) in known:
        if low is None or high is None:
            continue
        for place in range(int(left), min(room - 1, int(right)) + 1):
            values[place] = low + (high - low) * min(1.0, max(0.0, (place - left) / (right - left)))
    return values


def _shade(percent: float, count: int) -> int:
    """Which shade a percentage has: the first for nothing, the last for more than the one before it reaches."""
    if percent <= 0:
        return 0
    return min(count - 1, 1 + int(min(percent, 99.999) / 100 * (count - 1)))
