"""The heat map: rows such as nodes, over bins of time, shaded from nothing to full."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from publisher.report.picture.axes import days, frame, time_axis
from publisher.report.picture.look import edges_of, end_of
from publisher.report.picture.style import INK, shortened
from publisher.report.picture.svg import whole_name
from publisher.report.result import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROW_IN = 0.22
_LEAST_IN, _MOST_IN = 3.2, 14.0
_LABELS_IN = 1.6
_NAME_LENGTH = 30
_SHADES = "cividis"
"""From dark blue to yellow: the same order to everybody's eyes, and in grey."""
_LINED = 80
_RASTERIZED = 20_000


def draw_heat_map(plot: Plot, stop: int, title: str, note: str, *, legend: bool) -> Figure:
    """The whole picture; grey is where nothing is known. Of very many rows every so manieth has a label."""
    edges = edges_of(plot, stop)
    height = min(_MOST_IN, max(_LEAST_IN, _LABELS_IN + _ROW_IN * len(plot.series)))
    values = [[math.nan if cell is None else cell for cell in row.values] for row in plot.series]
    if legend and any(math.isnan(cell) for row in values for cell in row):
        note = "; ".join(filter(None, (note, "grey: nothing is known")))
    figure, axes = frame(title, note, height_in=height)
    highest = max((cell for row in values for cell in row if not math.isnan(cell)), default=0.0)
    lined = max(len(values), len(edges)) <= _LINED
    mesh = axes.pcolormesh(
        [days(edge) for edge in edges], list(range(len(values) + 1)), values, cmap=_SHADES, vmin=0,
        vmax=max(1.0, highest), edgecolors="white" if lined else "none", linewidth=0.6 if lined else 0,
        rasterized=len(edges) * len(values) > _RASTERIZED,
    )  # fmt: skip
    axes.set_facecolor("#dedede")
    time_axis(axes, edges[0], stop, end_of(plot, stop))
    _row_labels(axes, [row.label for row in plot.series], height)
    if legend:
        bar = figure.colorbar(mesh, ax=axes, pad=0.015, fraction=0.03, aspect=30)
        bar.set_label(shortened(plot.unit, _NAME_LENGTH), fontsize=9, color=INK)
        bar.ax.tick_params(labelsize=9)
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return figure


def _row_labels(axes: Axes, rows: list[str], height_in: float) -> None:
    fit = max(1, int((height_in - _LABELS_IN) / (_ROW_IN * 0.75)))
    shown = range(0, len(rows), max(1, -(-len(rows) // fit)))
    axes.set_yticks([place + 0.5 for place in shown], [shortened(rows[place], _NAME_LENGTH) for place in shown])
    for text, place in zip(axes.get_yticklabels(), shown, strict=True):
        whole_name(text, rows[place])
    axes.set_ylim(len(rows), 0)
    axes.tick_params(axis="y", length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
