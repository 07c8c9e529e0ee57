"""Frames for pictures: sizes, titles, grid, the axis of time (UTC) and the legend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from publisher.report.picture.look import interval_told
from publisher.report.picture.style import FAINT, HEIGHT_IN, INK, WIDTH_IN, label_of, shortened
from publisher.report.picture.svg import whole_name
from publisher.report.picture.ticks import time_ticks

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


def time_axis(axes: Axes, start: int, stop: int, end: int) -> None:
    """Let the x axis be time from `start` to `end`, in UTC, with as many labels as fit; `stop` ends the interval."""
    axes.set_xlim(days(start), days(end))
    ticks = time_ticks(start, end)
    axes.set_xticks([days(start + tick.share * (end - start)) for tick in ticks], [tick.text for tick in ticks])
    axes.set_xlabel(interval_told(start, stop), fontsize=9, color=INK)


def value_axis(axes: Axes, unit: str, most: float) -> None:
    """Let the y axis begin at 0 and reach a little beyond the highest value."""
    axes.set_ylim(0, most * (1 + _SPARE) if most > 0 else 1)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=7, steps=[1, 2, 2.5, 5, 10]))
    axes.yaxis.set_major_formatter(_value)
    axes.set_ylabel(shortened(unit, _UNIT_LENGTH), fontsize=9, color=INK)


def _value(value: float, _place: float) -> str:
    return f"{value:,.10g}"


def amount_axis(axes: Axes, unit: str, most: float) -> None:
    """Let the x axis be amounts from 0 to a little beyond the highest."""
    axes.set_xlim(0, most * (1 + _SPARE) if most > 0 else 1)
    axes.xaxis.set_major_formatter(_value)
    axes.set_xlabel(shortened(unit, _UNIT_LENGTH), fontsize=9, color=INK)


def grid_lines(axes: Axes, axis: Literal["both", "x"]) -> None:
    """The grid, behind everything."""
    axes.grid(visible=True, axis=axis, color=FAINT, linewidth=0.7)


def legend_beside(axes: Axes, names: list[str], by: str, *, top_first: bool) -> None:
    """The legend right of the axes, where it hides nothing; `top_first` for series that stand on one another.

    `names` are those of the series in their order, `by` is what they are told apart by.
    """
    handles, _ = axes.get_legend_handles_labels()
    if top_first:
        handles, names = handles[::-1], names[::-1]
    legend = axes.legend(
        handles, [label_of(name) for name in names], title=label_of(by) or None, title_fontsize=9, alignment="left",
        loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9, handlelength=2.6,
    )  # fmt: skip
    for text, name in zip(legend.get_texts(), names, strict=True):
        whole_name(text, name)
    for line in legend.get_lines():
        line.set_linewidth(2)
