"""Pictures of plots as PNG, SVG, PDF, and PostScript. The same plot gives the same bytes: no dates, no random ids.

Frames with titles, axes, and legends; bars over time and over names; heat maps; lines and areas over time.
"""

from __future__ import annotations

import io
import math
import re
import threading
import warnings
from itertools import groupby, pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

import matplotlib as mpl
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure

from publisher.report.plot.axis import DAY_S, time_ticks, value_locator, value_text
from publisher.report.plot.fonts import complete, not_yet_reported, whole_name, with_titles
from publisher.report.plot.palette import FAINT, INCOMPLETE, INK, NOTE, SHADES, UNKNOWN, colour
from publisher.report.plot.style import (
    DPI,
    HEIGHT_IN,
    MANY,
    MOST_BARS,
    SETTINGS,
    SHOWN,
    WIDTH_IN,
    Look,
    alone,
    amounts_of,
    dashes,
    edges_of,
    end_of,
    folded,
    highest_of,
    instants_of,
    interval_text,
    label_of,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes


_UNIT_LENGTH = 40
_TITLE_LENGTH = 88
_SPARE = 0.06
_SPARE_FOR_TEXT = 0.12


_NOTE_LENGTH = 165
_NOTE_IN = 0.15
_MOST_NOTES = 5


def frame(title: str, notes: list[str], *, height_in: float = HEIGHT_IN) -> tuple[Figure, Axes]:
    """An empty picture with its title and the notes below it. Texts are never parsed as mathematics."""
    lines = [line for note in notes for line in wrap(safe(note), _NOTE_LENGTH)]
    more = max(0, len(lines) - 1) * _NOTE_IN
    figure = Figure(figsize=(WIDTH_IN, height_in + more), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(shortened(title, _TITLE_LENGTH), loc="left", fontsize=13, fontweight="bold", color=INK, pad=10)
    if lines:
        figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=8, color=NOTE)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.set_axisbelow(True)
    return figure, axes


def notes_of(look: Look, *first: str) -> list[str]:
    """The lines below a picture: where it is from and `first`, and what a reader must know about the figures."""
    more = len(look.notes) - _MOST_NOTES
    notes = look.notes[:_MOST_NOTES] if more > 1 else look.notes
    return [
        *filter(None, ["; ".join(filter(None, (look.note, *first)))]),
        *notes,
        *([f"{more} more notes are in the table."] if more > 1 else []),
    ]


def days(instant: float) -> float:
    """An instant (epoch seconds) as matplotlib counts time."""
    return instant / DAY_S


def time_axis(axes: Axes, plot: Plot, start: int | None, stop: int, timezone: str) -> None:
    """Make the x axis time in a zone, with as many labels as fit; `start` and `stop` are the interval."""
    first = edges_of(plot, stop)[0]
    axes.set_xlim(days(first), days(end_of(plot, stop)))
    ticks = time_ticks(plot, stop, timezone)
    axes.set_xticks([days(at) for at, _ in ticks], [text for _, text in ticks])
    axes.set_xlabel(interval_text(first if start is None else start, stop, timezone), fontsize=9, color=INK)


def mark_incomplete(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Hatch incomplete bins, and draw a line where jobs were last collected."""
    for _, run in groupby(enumerate(plot.partial), lambda pair: pair[1] - pair[0]):
        places = [place for _, place in run]
        axes.axvspan(
            days(edges[places[0]]), days(edges[places[-1] + 1]), facecolor=INCOMPLETE, edgecolor=FAINT, hatch="///",
            linewidth=0, zorder=0.2,
        )  # fmt: skip
    if plot.known_until is not None and edges[0] < plot.known_until < edges[-1]:
        axes.axvline(days(plot.known_until), color=NOTE, linewidth=0.9, linestyle=(0, (4, 3)), zorder=3)


def value_axis(axes: Axes, unit: str, most: float, top: float) -> None:
    """Make the y axis amounts from 0 to `top`, or to a little beyond the highest amount."""
    axes.set_ylim(0, top if 0 < top >= most else most * (1 + _SPARE) if most > 0 else 1)
    if 0 < top < most:
        axes.axhline(top, color=INK, linewidth=0.9)
    axes.yaxis.set_major_locator(value_locator())
    axes.yaxis.set_major_formatter(value_text)
    axes.set_ylabel(shortened(unit, _UNIT_LENGTH), fontsize=9, color=INK)


def amount_axis(axes: Axes, unit: str, least: float, most: float, top: float) -> None:
    """Make the x axis amounts from 0 or the lowest to beyond the highest, with room for the amount beside its bar."""
    most = max(most, top)
    spare = (most - least) * _SPARE_FOR_TEXT
    axes.set_xlim(least - spare if least < 0 else 0, most + spare if most > least else 1)
    axes.xaxis.set_major_locator(value_locator())
    axes.xaxis.set_major_formatter(value_text)
    axes.set_xlabel(shortened(unit, _UNIT_LENGTH), fontsize=9, color=INK)


def grid_lines(axes: Axes, axis: Literal["both", "x"]) -> None:
    """Draw the grid below everything else."""
    axes.grid(visible=True, axis=axis, color=FAINT, linewidth=0.7)


def legend_beside(axes: Axes, names: list[str], by: str, *, top_first: bool) -> None:
    """Draw the legend to the right of the axes; `top_first` for stacked series.

    `names` are those of the series in their order, `by` is the key that distinguishes them.
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
    for patch in legend.get_patches():  # the first bar may be pale
        patch.set_facecolor(to_rgba(patch.get_facecolor(), 1.0))


_GAP = 0.06
_PALE = 0.55
"""The opacity of bars of incomplete bins."""
_HATCH = "////"
"""Over bars of the period before."""
_BAR_NAME_LENGTH = 32


def draw_bars(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Draw the series over bins of time: stacked if they add up, else side by side."""
    bounds = [days(edge) for edge in edges]
    if len(bounds) - 1 > MOST_BARS:
        _outlines(axes, plot, bounds)
        return
    stacks = stacks_of(plot)
    partial = frozenset(plot.partial)
    widths = [(right - left) * (1 - 2 * _GAP) / len(stacks) for left, right in pairwise(bounds)]
    for number, stack in enumerate(stacks):
        shift = _GAP + (1 - 2 * _GAP) / len(stacks) * number
        lefts = [left + (right - left) * shift for left, right in pairwise(bounds)]
        below = [0.0] * len(widths)
        for place in stack:
            one = plot.series[place]
            values = [value or 0.0 for value in one.values]
            shade = colour(one, place)
            shades = [to_rgba(shade, _PALE if at in partial else 1.0) for at in range(len(values))]
            axes.bar(lefts, values, widths, below, align="edge", color=shades, label=SHOWN)
            below = [low + value for low, value in zip(below, values, strict=True)]
        for at, is_unknown in enumerate(unknown_in(plot, [plot.series[place] for place in stack])):
            if not is_unknown:
                continue
            axes.annotate(
                "?", (lefts[at] + widths[at] / 2, below[at]), xytext=(0, 2), textcoords="offset points", ha="center",
                fontsize=8, color=NOTE,
            )  # fmt: skip


def _outlines(axes: Axes, plot: Plot, bounds: list[float]) -> None:
    """Draw bars that are too many for gaps: one shape for each series, transparent if they are not stacked."""
    stacks = stacks_of(plot)
    lone = len(stacks) == 1
    for stack in stacks:
        below = [0.0] * (len(bounds) - 1)
        gaps = [amount is None for amount in amounts_of(plot, stack)]
        for place in stack:
            one = plot.series[place]
            above = [low + (value or 0.0) for low, value in zip(below, one.values, strict=True)]
            shade = colour(one, place)
            axes.stairs(
                [math.nan if gap else value for gap, value in zip(gaps, above, strict=True)], bounds, baseline=below,
                fill=True, facecolor=to_rgba(shade, 1.0 if lone else 0.35), edgecolor="none" if lone else shade,
                linewidth=0 if lone else 0.8, label=SHOWN,
            )  # fmt: skip
            below = above


def draw_named_bars(axes: Axes, plot: Plot) -> None:
    """Draw horizontal bars, the first at the top, with the amount at the end of each."""
    names = [str(name) for name in plot.x]
    stacks = stacks_of(plot)
    thick = 0.8 / len(stacks)
    largest = max(highest_of(plot), -lowest_of(plot))
    for number, stack in enumerate(stacks):
        shift = thick * (number - (len(stacks) - 1) / 2)
        where = [at + shift for at in range(len(names))]
        below = [0.0] * len(names)
        for place in stack:
            one = plot.series[place]
            values = [value or 0.0 for value in one.values]
            hatched: dict[str, Any] = {"hatch": _HATCH, "edgecolor": "white", "linewidth": 0} if one.before else {}
            axes.barh(where, values, thick, below, color=_bar_colours(plot, place), label=SHOWN, **hatched)
            below = [low + value for low, value in zip(below, values, strict=True)]
        _write_amounts(axes, amounts_of(plot, stack), where, largest, plot.decimals)
    axes.set_yticks(range(len(names)), [shortened(name, _BAR_NAME_LENGTH) for name in names])
    for text, name in zip(axes.get_yticklabels(), names, strict=True):
        whole_name(text, name)
    axes.set_ylim(max(len(names), _LEAST_BARS) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)


_LEAST_BARS = 4
"""The room for bars: fewer are not thicker."""


def _bar_colours(plot: Plot, place: int) -> list[str]:
    """The colour of each bar of a series: grey for the sum of other names."""
    series = plot.series[place]
    if len(plot.series) > 1:
        return [colour(series, place)] * len(plot.x)
    return [colour(Series(str(name), ()), place) for name in plot.x]


def _write_amounts(
    axes: Axes, values: Sequence[float | None], where: Sequence[float], largest: float, decimals: int | None
) -> None:
    for value, text, at in zip(values, amount_texts(values, largest, decimals), where, strict=True):
        negative = value is not None and value < 0
        axes.annotate(
            text, (value or 0.0, at), xytext=(-4 if negative else 4, 0), textcoords="offset points", va="center",
            ha="right" if negative else "left", fontsize=8, color=NOTE if value is None else INK,
        )  # fmt: skip


_ROW_IN = 0.22
_LEAST_IN, _MOST_IN = 3.2, 14.0
_LABELS_IN = 1.6
_NAME_LENGTH = 30
_SHADES = LinearSegmentedColormap.from_list("shades", SHADES)
_LINED = 80
_RASTERIZED = 20_000


def draw_heat_map(plot: Plot, start: int | None, stop: int, title: str, look: Look) -> Figure:
    """The whole picture of percentages; grey is unknown. If there are very many rows, every n-th has a label."""
    edges = edges_of(plot, stop)
    height = min(_MOST_IN, max(_LEAST_IN, _LABELS_IN + _ROW_IN * len(plot.series)))
    values = [[math.nan if cell is None else cell for cell in row.values] for row in plot.series]
    unknown = "grey: unknown" * any(math.isnan(cell) for row in values for cell in row)
    figure, axes = frame(title, _notes(plot, stop, len(plot.series), look, unknown), height_in=height)
    highest = max((cell for row in values for cell in row if not math.isnan(cell)), default=0.0)
    lined = max(len(values), len(edges)) <= _LINED
    mesh = axes.pcolormesh(
        [days(edge) for edge in edges], list(range(len(values) + 1)), values, cmap=_SHADES, vmin=0,
        vmax=max(100.0, highest), edgecolors="white" if lined else "none", linewidth=0.3 if lined else 0,
        rasterized=len(edges) * len(values) > _RASTERIZED,
    )  # fmt: skip
    axes.set_facecolor(UNKNOWN)
    for place in plot.partial:
        axes.axvspan(days(edges[place]), days(edges[place + 1]), fill=False, edgecolor="white", hatch="//", linewidth=0)
    time_axis(axes, plot, start, stop, look.timezone)
    _row_labels(axes, [row.label for row in plot.series], height)
    if look.legend:
        bar = figure.colorbar(mesh, ax=axes, pad=0.015, fraction=0.03, aspect=30, anchor=(0.0, 1.0))
        bar.set_label(shortened(plot.unit, _NAME_LENGTH), fontsize=9, color=INK)
        bar.ax.tick_params(labelsize=9)
        bar.ax.yaxis.set_major_formatter(value_text)
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
"""Up to so many points have a marker each."""


def draw_lines(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Draw each series as a line with gaps where it is unknown. Few points and isolated points are marked."""
    places = [days((left + right) / 2) for left, right in pairwise(edges)]
    few = len(places) <= _MARKED
    for place, one in enumerate(plot.series):
        lone = alone(one.values)
        (line,) = axes.plot(
            places,
            [math.nan if value is None else value for value in one.values],
            color=colour(one, place),
            linewidth=0.9 if len(places) > MANY else 1.7,
            marker="o" if few or lone else None,
            markevery=None if few else lone,
            markersize=4 if len(places) <= MANY else 2,
            label=SHOWN,
        )
        if dashes(place) and len(places) <= MANY:
            line.set_dashes(dashes(place))


def draw_areas(axes: Axes, plot: Plot, edges: tuple[int, ...]) -> None:
    """Draw the series as stacked areas, from the first edge of the bins to the last."""
    middles = ((left + right) / 2 for left, right in pairwise(edges))
    places = [days(instant) for instant in (edges[0], *middles, edges[-1])]
    amounts = amounts_of(plot, range(len(plot.series)))
    known = [amount is not None for amount in (amounts[0], *amounts, amounts[-1])]
    below = [0.0] * len(places)
    for place, one in enumerate(plot.series):
        values = (one.values[0], *one.values, one.values[-1])
        above = [low + (value or 0.0) for low, value in zip(below, values, strict=True)]
        axes.fill_between(
            places, below, above, where=known, facecolor=colour(one, place), edgecolor="white",
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
"""matplotlib's settings and caches of fonts are shared by all threads."""


def draw(
    plot: Plot, stop: int, look: Look, form: Form, *, start: int | None = None, say: Callable[[str], None] | None = None
) -> bytes:
    """The content of a picture file. Threads draw one after the other.

    `start` and `stop` are the report's interval; without a start, plots over names do not show it. `say` is given a
    message about letters that no font of this computer has, once for each letter.
    """
    with _one_at_a_time, warnings.catch_warnings(), mpl.rc_context(SETTINGS):
        # Letters of names that no font has are drawn as boxes.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        made = io.BytesIO()
        figure = _figure(folded(plot), start, stop, look)
        missing = complete(figure, as_text=form == "svg")
        if form != "svg" and say is not None:
            _report(not_yet_reported(missing), say)
        paper = _paper(figure) if form == "ps" else {}
        figure.savefig(made, format=form, dpi=DPI, metadata=_METADATA[form], **paper)
    if form == "ps":
        return _PS_DATE.sub(b"", made.getvalue())
    return with_titles(made.getvalue()) if form == "svg" else made.getvalue()


def _report(missing: frozenset[str], say: Callable[[str], None]) -> None:
    """Report which letters are drawn as boxes."""
    if missing:
        some = "".join(sorted(missing)[:_MOST_NAMED_LETTERS]) + (" ..." if len(missing) > _MOST_NAMED_LETTERS else "")
        say(
            f"no font of this computer has these letters, which are drawn as boxes: {safe(some)}. Install a font that "
            "has them, such as Debian's fonts-noto-cjk, or use --format svg or html, which keep the text."
        )


def _paper(figure: Figure) -> dict[str, Any]:
    """A4 landscape if the picture fits on it, else a sheet of its size."""
    width, height = figure.get_size_inches()
    if width <= _A4_IN[0] and height <= _A4_IN[1]:
        return {"papertype": "a4", "orientation": "landscape"}
    return {"papertype": "figure"}


def _figure(plot: Plot, start: int | None, stop: int, look: Look) -> Figure:
    title = plot.title if look.title is None else look.title
    if not plot.x or not plot.series:
        return _empty(title, look)
    if plot.style == "heat":
        return draw_heat_map(plot, start, stop, title, look)
    if instants_of(plot):
        return _over_time(plot, start, stop, title, look)
    return _over_names(plot, title, "" if start is None else interval_text(start, stop, look.timezone), look)


def _over_time(plot: Plot, start: int | None, stop: int, title: str, look: Look) -> Figure:
    figure, axes = frame(title, _notes(plot, stop, len(plot.series), look, unknown_text(plot)))
    edges = edges_of(plot, stop)
    mark_incomplete(axes, plot, edges)
    if look.style_of(plot) == "bar":
        draw_bars(axes, plot, edges)
    elif plot.stacked and len(plot.series) > 1:
        draw_areas(axes, plot, edges)
    else:
        draw_lines(axes, plot, edges)
    time_axis(axes, plot, start, stop, look.timezone)
    value_axis(axes, plot.unit, highest_of(plot), plot.top)
    _finish(axes, plot, look, "both")
    return figure


def _over_names(plot: Plot, title: str, interval: str, look: Look) -> Figure:
    plot = named_first(plot)
    figure, axes = frame(
        title, notes_of(look, interval, _left_out(plot, len(plot.x))),
        height_in=1.7 + 0.3 * max(len(plot.x), _LEAST_BARS),
    )  # fmt: skip
    draw_named_bars(axes, plot)
    amount_axis(axes, plot.unit, lowest_of(plot), highest_of(plot), plot.top)
    _finish(axes, plot, look, "x")
    return figure


def _notes(plot: Plot, stop: int, drawn: int, look: Look, *more: str) -> list[str]:
    """The lines below a picture over time."""
    return notes_of(look, *more, marks_of(plot, stop, look.timezone), _left_out(plot, drawn))


def _left_out(plot: Plot, drawn: int) -> str:
    return f"{drawn} of {drawn + plot.left_out:,}; the table has the others" if plot.left_out else ""


def _finish(axes: Axes, plot: Plot, look: Look, grid: Literal["both", "x"]) -> None:
    if look.grid:
        grid_lines(axes, grid)
    if look.legend:
        legend_beside(axes, [series.label for series in plot.series], plot.by, top_first=plot.stacked)


def _empty(title: str, look: Look) -> Figure:
    figure, axes = frame(title, notes_of(look))
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", color=NOTE, transform=axes.transAxes)
    return figure
