"""From a plot to the bytes of a file. The same plot gives the same bytes: no date, no random names inside.

Frames for pictures: sizes, titles, grid, the axis of time (UTC) and the legend.

Plots of bars: over bins of time, and over names, where they lie so that the names can be read.

The heat map: rows such as nodes, over bins of time, shaded from nothing to full.

Plots of lines over time: through the middles of bins; areas where series stand on one another.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from publisher.report.plot.fonts import whole_name
from publisher.report.plot.style import (
    DPI,
    FAINT,
    HEIGHT_IN,
    INK,
    MANY,
    MOST_NAMED,
    SETTINGS,
    SHOWN,
    WIDTH_IN,
    Look,
    alone,
    colour,
    dashes,
    edges_of,
    end_of,
    folded,
    instants_of,
    interval_told,
    label_of,
    named_first,
    shortened,
    tops_of,
)
from publisher.report.plot.ticks import time_ticks
from publisher.report.report import Plot
from publisher.text import safe

if TYPE_CHECKING:
    from collections.abc import Callable

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
    """The grid, below everything."""
    axes.grid(visible=True, axis=axis, color=FAINT, linewidth=0.7)


def legend_beside(axes: Axes, names: list[str], by: str, *, top_first: bool) -> None:
    """The legend right of the axes, where it hides nothing; `top_first` for series that stand on one another.

    `names` are those of the series in their order, `by` is what they are grouped by.
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


_APART = 120
"""Up to so many bars have gaps between them; more are drawn as one outline."""
_GAP = 0.06
_BAR_NAME_LENGTH = 32


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
    axes.set_yticks(range(len(names)), [shortened(name, _BAR_NAME_LENGTH) for name in names])
    for text, name in zip(axes.get_yticklabels(), names, strict=True):
        whole_name(text, name)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


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


Form = Literal["png", "svg", "pdf", "ps"]
FORMS: Final[tuple[str, ...]] = get_args(Form)
_METADATA: Final[dict[str, dict[str, str | None]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": "usage-publisher", "Producer": None},
    "ps": {"Creator": "usage-publisher"},
}
_PS_DATE: Final = re.compile(rb"^%%CreationDate: .*\n", re.MULTILINE)
_A4_IN: Final = (11.69, 8.27)
_MOST_NAMED_LETTERS: Final = 20
_one_at_a_time = threading.Lock()
"""matplotlib's settings and its caches of fonts are the process's."""


def draw(
    plot: Plot, stop: int, look: Look, form: Form, *, start: int | None = None, say: Callable[[str], None] | None = None
) -> bytes:
    """The picture as a file of this form. Threads draw one after the other.

    `start` and `stop` are the report's interval (without a start, pictures over names do not show it); `say` is called,
    once for each letter, where no font of this computer has it.
    """
    import matplotlib as mpl  # noqa: PLC0415 - loads for half a second

    from publisher.report.plot.fonts import (  # noqa: PLC0415
        complete,
        not_yet_told,
        with_titles,
    )

    with _one_at_a_time, warnings.catch_warnings(), mpl.rc_context(SETTINGS):
        # Names of jobs and users may have letters that no font here has; they are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        made = io.BytesIO()
        figure = _figure(folded(plot), start, stop, look)
        missing = complete(figure, as_text=form == "svg")
        if form != "svg" and say is not None:
            _tell(not_yet_told(missing), say)
        paper = _paper(figure) if form == "ps" else {}
        figure.savefig(made, format=form, dpi=DPI, metadata=_METADATA[form], **paper)
    if form == "ps":
        return _PS_DATE.sub(b"", made.getvalue())
    return with_titles(made.getvalue()) if form == "svg" else made.getvalue()


def _tell(missing: frozenset[str], say: Callable[[str], None]) -> None:
    """Say which letters are drawn as boxes."""
    if missing:
        some = "".join(sorted(missing)[:_MOST_NAMED_LETTERS]) + (" ..." if len(missing) > _MOST_NAMED_LETTERS else "")
        say(
            f"no font of this computer has these letters, which are boxes in pictures: {safe(some)} "
            "(install one, such as Debian's fonts-noto-cjk; SVG and pages keep the text)"
        )


def _paper(figure: Figure) -> dict[str, Any]:
    """A4 across where the picture has room on it, so that it can be printed as it is; else a sheet of its size."""
    width, height = figure.get_size_inches()
    if width <= _A4_IN[0] and height <= _A4_IN[1]:
        return {"papertype": "a4", "orientation": "landscape"}
    return {"papertype": "figure"}


def _figure(plot: Plot, start: int | None, stop: int, look: Look) -> Figure:

    title = plot.title if look.title is None else look.title
    if not plot.x or not plot.series:
        return _empty(title, look)
    if plot.style == "heat":
        return draw_heat_map(plot, stop, title, look.note, legend=look.legend)
    if instants_of(plot):
        return _over_time(plot, stop, title, look)
    interval = "" if start is None else interval_told(start, stop)
    return _over_names(plot, title, interval, look)


def _over_time(plot: Plot, stop: int, title: str, look: Look) -> Figure:

    figure, axes = frame(title, look.note)
    edges = edges_of(plot, stop)
    if look.style_of(plot) == "bar":
        draw_bars(axes, plot, edges)
    elif plot.stacked and len(plot.series) > 1:
        draw_areas(axes, plot, edges)
    else:
        draw_lines(axes, plot, edges)
    time_axis(axes, edges[0], stop, end_of(plot, stop))
    value_axis(axes, plot.unit, tops_of(plot, standing=plot.stacked))
    _dress(axes, plot, look, "both")
    return figure


def _over_names(plot: Plot, title: str, interval: str, look: Look) -> Figure:

    plot, left_out = named_first(plot, MOST_NAMED)
    more = f"{MOST_NAMED} of {MOST_NAMED + left_out:,}; the others are in the table" if left_out else ""
    note = "; ".join(filter(None, (look.note, interval, more)))
    figure, axes = frame(title, note, height_in=max(2.6, 1.7 + 0.3 * len(plot.x)))
    draw_named_bars(axes, plot)
    amount_axis(axes, plot.unit, tops_of(plot, standing=plot.stacked))
    _dress(axes, plot, look, "x")
    return figure


def _dress(axes: Axes, plot: Plot, look: Look, grid: Literal["both", "x"]) -> None:

    if look.grid:
        grid_lines(axes, grid)
    if look.legend:
        legend_beside(axes, [one.label for one in plot.series], plot.by, top_first=plot.stacked)


def _empty(title: str, look: Look) -> Figure:

    figure, axes = frame(title, look.note)
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", color="#555555", transform=axes.transAxes)
    return figure
