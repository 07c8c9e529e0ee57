"""Plots of lines over time: through the middles of bins; areas where series stand on one another."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from publisher.report.picture.axes import days
from publisher.report.picture.look import alone
from publisher.report.picture.style import MANY, SHOWN, colour, dashes
from publisher.report.result import Plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKED = 40
"""So many points are few enough to be marked each."""


def draw_lines(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Draw each series as a line; where nothing is known it is broken. Few points and lone ones are marked."""
    places = [days((left + right) / 2) for left, right in pairwise(edges)]
    few = len(places) <= _MARKED
    for place, one in enumerate(plot.series):
        lone = alone(one.values)
        (line,) = axes.plot(
            places,
            [math.nan if value is None else value for value in one.values],
            color=colour(one.label, place),
            linewidth=0.9 if len(places) > MANY else 1.7,
            marker="o" if few or lone else None,
            markevery=None if few else lone,
            markersize=4 if len(places) <= MANY else 2,
            label=SHOWN,
        )
        if dashes(place) and len(places) <= MANY:
            line.set_dashes(dashes(place))


def draw_areas(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Draw the series as areas that stand on one another, from the first edge of the bins to the last."""
    middles = ((left + right) / 2 for left, right in pairwise(edges))
    places = [days(instant) for instant in (edges[0], *middles, edges[-1])]
    below = [0.0] * len(places)
    for place, one in enumerate(plot.series):
        values = (one.values[0], *one.values, one.values[-1])
        above = [low + (value or 0.0) for low, value in zip(below, values, strict=True)]
        axes.fill_between(
            places, below, above, facecolor=colour(one.label, place), edgecolor="white",
            linewidth=0 if len(places) > MANY else 0.5, label=SHOWN,
        )  # fmt: skip
        below = above
