"""Plots of the page as shapes in a view box that stretches with the page, and ticks at shares of the axes.

The browser draws them, with its own colours, sizes, and fonts; those in files are from matplotlib (`report.plot.draw`).
They have no inline styles, which the security policy forbids. Templates add the texts, and escape them.
"""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Final, Literal

import msgspec

from publisher.report.plot.palette import COLOURS
from publisher.report.plot.style import (
    MANY,
    alone,
    edges_of,
    end_of,
    folded,
    highest_of,
    instants_of,
    lowest_of,
    middles_of,
    named_first,
    shortened,
)
from publisher.report.plot.ticks import Tick, axis_ticks, value_ticks
from publisher.report.report import Plot, Series, is_others
from publisher.text import amount_texts, iso, number_text, safe

WIDE: Final = 10_000
HIGH: Final = 1_000
"""The view box: whole numbers keep the shapes small."""
_MOST_POINTS: Final = 2_000
MOST_ROWS: Final = 60
"""Labels of a heat map; with more rows, only every second, third, ... row has a label."""
_LABEL_LENGTH: Final = 24
"""Characters of a row's label; longer labels are shown without their middle."""


class ChartSeries(msgspec.Struct, frozen=True):
    """A series over time: its paths as a line and as bars; `colour` is a class of the style sheet."""

    label: str
    colour: str
    line: str
    bars: str
    dots: str = ""
    """Points without known neighbours, which a line does not show."""


class Bar(msgspec.Struct, frozen=True):
    """A bar of a plot over names: its begin `left` and its length `long` in percent of the axis."""

    label: str
    colour: str
    left: float
    long: float
    value: float


class Drawing(msgspec.Struct, frozen=True, kw_only=True):
    """A plot: `layers` over time, `bars` over names (a tuple for each name), or `shades` of a heat map as an image."""

    kind: Literal["time", "names", "heat", "empty"]
    title: str
    unit: str
    across: tuple[Tick, ...] = ()
    """Ticks of the horizontal axis; none where each bar has its value."""
    up: tuple[Tick, ...] = ()
    """Ticks of the vertical axis, from below."""
    stacked: bool = False
    filled: bool = False
    """True if lines are the upper edges of areas."""
    dense: bool = False
    """True if there are too many bins for an edge around each."""
    layers: tuple[ChartSeries, ...] = ()
    names: tuple[str, ...] = ()
    bars: tuple[tuple[Bar, ...], ...] = ()
    totals: tuple[str, ...] = ()
    """The value of each name, with which it needs no ticks; empty texts if the series do not add up."""
    shades: str = ""
    wide: float = 100.0
    """The width of the shades in percent of the axis; the rest is in the future."""
    by: str = ""
    """The key whose values are in the legend."""
    legend: tuple[tuple[str, str], ...] = ()
    """Labels and colours, the uppermost first."""
    points: str = ""
    """The values at each point, as JSON; empty if there are too many points for a pointer."""
    summary: str = ""
    """The plot in a sentence, for screen readers."""
    left_out: int = 0
    """The number of names that are not drawn."""


def drawing(plot: Plot, stop: int) -> Drawing:
    """The shapes of a plot; `stop` is the end of its report's interval."""
    plot = folded(plot)
    title, unit = safe(plot.title), safe(plot.unit)
    if not plot.x or not plot.series:
        return Drawing(kind="empty", title=title, unit=unit, summary=f"{title}: nothing to show")
    if plot.style == "heat":
        return _heat(plot, stop, title, unit)
    return _over_time(plot, stop, title, unit) if instants_of(plot) else _over_names(plot, title, unit)


def _colour(label: str, place: int) -> str:
    return "other" if is_others(label) else f"c{place % len(COLOURS)}"


def _legend(plot: Plot) -> tuple[tuple[str, str], ...]:
    named = tuple((safe(one.label), _colour(one.label, place)) for place, one in enumerate(plot.series))
    return named[::-1] if plot.stacked else named


# --- over time


def _over_time(plot: Plot, stop: int, title: str, unit: str) -> Drawing:
    edges = edges_of(plot, stop)
    start, span = edges[0], end_of(plot, stop) - edges[0]
    top, up = value_ticks(highest_of(plot, stacked=plot.stacked))
    bounds = [round((edge - start) / span * WIDE) for edge in edges]
    middles = [round((middle - start) / span * WIDE) for middle in middles_of(plot, stop)]
    filled = plot.stacked and len(plot.series) > 1
    layers: list[ChartSeries] = []
    below = [0.0] * len(middles)
    for place, one in enumerate(plot.series):
        heights = [
            None if value is None and not filled else low + (value or 0.0)
            for low, value in zip(below, one.values, strict=True)
        ]
        rows = [None if height is None else HIGH - round(height / top * HIGH) for height in heights]
        line = _line([bounds[0], *middles, bounds[-1]], [rows[0], *rows, rows[-1]]) if filled else _line(middles, rows)
        layers.append(
            ChartSeries(
                label=safe(one.label),
                colour=_colour(one.label, place),
                line=f"{line}V{HIGH}H{bounds[0]}Z" if filled else line,
                bars=_bars(bounds, rows),
                dots="" if filled else "".join(f"M{middles[at]} {rows[at]}h0" for at in alone(one.values)),
            )
        )
        if plot.stacked:
            below = [height or 0.0 for height in heights]
    if plot.stacked:
        layers.reverse()  # the upper areas reach down to the axis, and the lower are drawn over them
    return Drawing(
        kind="time", title=title, unit=unit, across=tuple(axis_ticks(plot, stop)), up=tuple(up),
        by=safe(plot.by),
        stacked=plot.stacked, filled=filled, dense=len(middles) > MANY, layers=tuple(layers), legend=_legend(plot),
        summary=_summary(plot, title), points=_points(plot, stop, start, span),
    )  # fmt: skip


def _line(across: list[int], rows: list[int | None]) -> str:
    """A path through the points, interrupted where a value is unknown."""
    parts: list[str] = []
    pen_up = True
    for x, y in zip(across, rows, strict=True):
        if y is not None:
            parts.append(f"{'M' if pen_up else 'L'}{x} {y}")
        pen_up = y is None
    return "".join(parts)


def _bars(bounds: list[int], rows: list[int | None]) -> str:
    """The outline of all bars."""
    parts = [f"M{bounds[0]} {HIGH}"]
    at = HIGH
    for right, y in zip(bounds[1:], rows, strict=True):
        height = HIGH if y is None else y
        if height != at:
            parts.append(f"V{height}")
            at = height
        parts.append(f"H{right}")
    return "".join((*parts, f"V{HIGH}Z"))


def _points(plot: Plot, stop: int, start: int, span: int) -> str:
    if len(plot.x) > _MOST_POINTS:
        return ""
    facts = {
        "names": [iso(instant) for instant in instants_of(plot)],
        "shares": [round((middle - start) / span, 5) for middle in middles_of(plot, stop)],
        "series": [[safe(one.label), [None if v is None else round(v, 4) for v in one.values]] for one in plot.series],
    }
    return json.dumps(facts, separators=(",", ":"))


def _summary(plot: Plot, title: str) -> str:
    def of(one: Series) -> str:
        known = [value for value in one.values if value is not None]
        if not known:
            return f"{safe(one.label)} is unknown"
        least, mean, most = (
            number_text(each, max(known)) for each in (min(known), sum(known) / len(known), max(known))
        )
        return f"{safe(one.label)} from {least} to {most}, {mean} on average"

    return f"{title}. {'; '.join(map(of, plot.series))} ({safe(plot.unit)}). The table below has every value."


# --- over names


def _over_names(plot: Plot, title: str, unit: str) -> Drawing:
    plot = named_first(plot)
    highest, lowest = highest_of(plot, stacked=plot.stacked), lowest_of(plot)
    top, across = (highest - lowest, []) if lowest < 0 else value_ticks(highest)
    rows: list[tuple[Bar, ...]] = []
    for number in range(len(plot.x)):
        left = zero = -lowest / top * 100
        row = []
        for place, one in enumerate(plot.series):
            value = one.values[number] or 0.0
            long = round(abs(value) / top * 100, 3)
            begin = zero - long if value < 0 else left
            row.append(Bar(safe(one.label), _colour(one.label, place), round(begin, 3), long, value))
            left += long if plot.stacked else 0
        rows.append(tuple(row))
    names = tuple(safe(name) for name in plot.x)
    totals: tuple[str, ...] = ("",) * len(rows)
    if plot.stacked or len(plot.series) == 1:
        sums = [sum(bar.value for bar in row) for row in rows]
        totals, across = tuple(amount_texts(sums, max(highest, -lowest), plot.decimals)), []
    of = f" of {len(names) + plot.left_out}" if plot.left_out else ""
    return Drawing(
        kind="names", title=title, unit=unit, across=tuple(across), stacked=plot.stacked, names=names,
        by=safe(plot.by), bars=tuple(rows), totals=totals,
        legend=_legend(plot)[::-1] if plot.stacked else _legend(plot),
        summary=f"{title}: {len(names)}{of} bars. The table below has every value.",
        left_out=plot.left_out,
    )  # fmt: skip


# --- heat maps


def _heat(plot: Plot, stop: int, title: str, unit: str) -> Drawing:
    edges = edges_of(plot, stop)
    start, end = edges[0], end_of(plot, stop)
    step = -(-len(plot.series) // MOST_ROWS)
    shown = range(0, len(plot.series), step)
    labels = ((row + 0.5, shortened(plot.series[row].label, _LABEL_LENGTH)) for row in shown)
    known = [cell for row in plot.series for cell in row.values if cell is not None]
    mean = f"{sum(known) / len(known):.0f} % on average" if known else "all unknown"
    return Drawing(
        kind="heat", title=title, unit=unit, across=tuple(axis_ticks(plot, stop)),
        wide=round((edges[-1] - start) / (end - start) * 100, 3),
        up=tuple(Tick(middle / len(plot.series), label) for middle, label in labels),
        names=tuple(safe(row.label) for row in plot.series), shades=_picture(plot),
        summary=f"{title}: {len(plot.series)} rows, {mean}. The table below has every value.",
    )  # fmt: skip


_UNKNOWN: Final = 255
_SHADES: Final = 250
"""The shade of the value 1; that of 0 is 0."""
_DARK, _MIDDLE, _LIGHT = (0x00, 0x22, 0x4E), (0x7D, 0x7C, 0x78), (0xFE, 0xE8, 0x38)
"""The ends and the middle of the colour map cividis; the shades between them are mixed."""
_NOT_KNOWN: Final = (0xDE, 0xDE, 0xDE)


def _palette() -> bytes:
    def mixed(share: float) -> bytes:
        low, high, part = (_DARK, _MIDDLE, share * 2) if share < 0.5 else (_MIDDLE, _LIGHT, share * 2 - 1)
        return bytes(round(one + (other - one) * part) for one, other in zip(low, high, strict=True))

    return b"".join(mixed(min(1.0, shade / _SHADES)) for shade in range(_UNKNOWN)) + bytes(_NOT_KNOWN)


def _picture(plot: Plot) -> str:
    """A PNG with one pixel for each cell, as a data URL; the browser stretches it."""
    lines = bytearray()
    for row in plot.series:
        lines.append(0)  # PNG: this line is not filtered
        lines += bytes(
            _UNKNOWN if cell is None else round(max(0.0, min(1.0, cell / 100)) * _SHADES) for cell in row.values
        )
    size = struct.pack(">IIBBBBB", len(plot.x), len(plot.series), 8, 3, 0, 0, 0)
    chunks = ((b"IHDR", size), (b"PLTE", _palette()), (b"IDAT", zlib.compress(bytes(lines), 9)), (b"IEND", b""))
    png = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(png).decode('ascii')}"
