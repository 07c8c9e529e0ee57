"""Plots of bars: over bins of time, and over names, where they lie so that the names can be read."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from matplotlib.colors import to_rgba

from publisher.report.picture.axes import days
from publisher.report.picture.style import SHOWN, colour, shortened
from publisher.report.picture.svg import whole_name
from publisher.report.result import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_APART = 120
"""Up to so many bars have gaps between them; more are drawn as one outline."""
_GAP = 0.06
_NAME_LENGTH = 32


def draw_bars(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Draw the series over bins of time: on one another where they add up, else side by side."""
    bounds = [days(edge) for edge in edges]
    if len(bounds) - 1 > _APART:
        _outlines(axes, plot, bounds)
        return
    parts = 1 if plot.stacked else max(1, len(plot.series))
    below = [0.0] * (len(bounds) - 1)
    for place, one in enumerate(plot.series):
        values = [value or 0.0 for value in one.values]
        shift = 0.0 if plot.stacked else (1 - 2 * _GAP) / parts * place
        lefts = [left + (right - left) * (_GAP + shift) for left, right in pairwise(bounds)]
        widths = [(right - left) * (1 - 2 * _GAP) / parts for left, right in pairwise(bounds)]
        axes.bar(lefts, values, widths, below, align="edge", color=colour(one.label, place), label=SHOWN)
        if plot.stacked:
            below = [low + value for low, value in zip(below, values, strict=True)]


def _outlines(axes: Axes, plot: Plot, bounds: list[float]) -> None:
    """Bars that are too many for gaps: one shape a series, transparent where they do not stand on one another."""
    below = [0.0] * (len(bounds) - 1)
    lone = plot.stacked or len(plot.series) == 1
    for place, one in enumerate(plot.series):
        above = [low + (value or 0.0) for low, value in zip(below, one.values, strict=True)]
        shade = colour(one.label, place)
        axes.stairs(
            above, bounds, baseline=below, fill=True, facecolor=to_rgba(shade, 1.0 if lone else 0.35),
            edgecolor="none" if lone else shade, linewidth=0 if lone else 0.8, label=SHOWN,
        )  # fmt: skip
        if plot.stacked:
            below = above


def draw_named_bars(axes: Axes, plot: Plot) -> None:
    """Draw bars that lie, the first at the top."""
    names = [str(name) for name in plot.x]
    parts = 1 if plot.stacked else max(1, len(plot.series))
    thick = 0.8 / parts
    below = [0.0] * len(names)
    for place, one in enumerate(plot.series):
        values = [value or 0.0 for value in one.values]
        shift = 0.0 if plot.stacked else thick * (place - (parts - 1) / 2)
        where = [number + shift for number in range(len(names))]
        axes.barh(where, values, thick, below, color=colour(one.label, place), label=SHOWN)
        if plot.stacked:
            below = [low + value for low, value in zip(below, values, strict=True)]
    axes.set_yticks(range(len(names)), [shortened(name, _NAME_LENGTH) for name in names])
    for text, name in zip(axes.get_yticklabels(), names, strict=True):
        whole_name(text, name)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
