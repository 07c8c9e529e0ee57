"""Plots of lines over time: through the middles of bins or through samples; areas where series stand on one another."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from publisher.report.picture.axes import days
from publisher.report.picture.look import middles_of
from publisher.report.picture.style import MANY, colour, dashes, label_of
from publisher.report.result import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKED = 40
"""So many points are few enough to be marked each."""


def draw_lines(axes: Axes, plot: Plot) -> None:
    """Draw each series as a line; where nothing is known it is broken."""
    places = [days(instant) for instant in middles_of(plot)]
    for place, one in enumerate(plot.series):
        (line,) = axes.plot(
            places,
            [math.nan if value is None else value for value in one.values],
            color=colour(one.label, place),
            linewidth=0.9 if len(places) > MANY else 1.7,
            marker="o" if len(places) <= _MARKED else None,
            markersize=4,
            label=label_of(one.label),
        )
        if dashes(place) and len(places) <= MANY:
            line.set_dashes(dashes(place))


def draw_areas(axes: Axes, plot: Plot) -> None:
    """Draw the series as areas that stand on one another."""
    places = [days(instant) for instant in middles_of(plot)]
    below = [0.0] * len(places)
    for place, one in enumerate(plot.series):
        above = [low + (value or 0.0) for low, value in zip(below, one.values, strict=True)]
        axes.fill_between(
            places, below, above, facecolor=colour(one.label, place), edgecolor="white",
            linewidth=0 if len(places) > MANY else 0.5, label=label_of(one.label),
        )  # fmt: skip
        below = above
