"""Frames for pictures: sizes, titles, grid, the axis of time (UTC) and the legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from publisher.report.picture.style import FAINT, HEIGHT_IN, INK, WIDTH_IN, shortened
from publisher.report.picture.ticks import time_ticks
from publisher.times import iso

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DAY_S = 86_400
_UNIT_LENGTH = 40
_TITLE_LENGTH = 88
_SPARE = 0.06


def frame(title: str, note: str, *, height_in: float = HEIGHT_IN) -> tuple[Figure, Axes]:
    """An empty picture with its title; what is written is written as it is, never as mathematics."""
    figure = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(shortened(title, _TITLE_LENGTH), loc="left", fontsize=13, fontweight="bold", color=INK, pad=10)
    if note:
        figure.supxlabel(shortened(note, 2 * _TITLE_LENGTH), x=0.01, ha="left", fontsize=8, color="#555555")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.set_axisbelow(True)
    return figure, axes


def days(instant: float) -> float:
    """An instant (epoch seconds) as matplotlib counts time."""
    return instant / _DAY_S


def time_axis(axes: Axes, start: int, stop: int) -> None:
    """Let the x axis be time from `start` to `stop`, in UTC, with as many labels as fit."""
    axes.set_xlim(days(start), days(stop))
    ticks = time_ticks(start, stop)
    axes.set_xticks([days(start + tick.share * (stop - start)) for tick in ticks], [tick.text for tick in ticks])
    axes.set_xlabel(f"{iso(start)} to {iso(stop)}, UTC", fontsize=9, color=INK)


def value_axis(axes: Axes, unit: str, most: float) -> None:
    """Let the y axis begin at 0 and reach a little beyond the highest value."""
    axes.set_ylim(0, most * (1 + _SPARE) if most > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.set_ylabel(shortened(unit, _UNIT_LENGTH), fontsize=9, color=INK)


def grid_lines(axes: Axes, axis: Literal["both", "x"]) -> None:
    """The grid, behind everything."""
    axes.grid(visible=True, axis=axis, color=FAINT, linewidth=0.7)


def legend_beside(axes: Axes, *, top_first: bool) -> None:
    """The legend right of the axes, where it hides nothing; `top_first` for series that stand on one another."""
    handles, labels = axes.get_legend_handles_labels()
    if top_first:
        handles, labels = handles[::-1], labels[::-1]
    legend = axes.legend(
        handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, handlelength=2.6
    )
    for line in legend.get_lines():
        line.set_linewidth(2)
