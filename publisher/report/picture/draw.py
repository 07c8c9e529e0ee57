"""From a plot to the bytes of a file. The same plot gives the same bytes: no date, no random names inside."""

from __future__ import annotations

import io
import re
import threading
import warnings
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from publisher.plain_text import safe
from publisher.report.picture.look import (
    MOST_NAMED,
    Look,
    edges_of,
    end_of,
    folded,
    instants_of,
    interval_told,
    named_first,
    tops_of,
)
from publisher.report.picture.style import DPI, SETTINGS
from publisher.report.result import Plot

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Form = Literal["png", "svg", "pdf", "ps"]
FORMS: Final[tuple[str, ...]] = get_args(Form)
CONTENT_TYPES: Final = {
    "png": "image/png",
    "svg": "image/svg+xml",
    "pdf": "application/pdf",
    "ps": "application/postscript",
}
_METADATA: Final[dict[str, dict[str, str | None]]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": "usage-publisher", "Producer": None},
    "ps": {"Creator": "usage-publisher"},
}
_PS_DATE: Final = re.compile(rb"^%%CreationDate: .*\n", re.MULTILINE)
_A4_IN: Final = (11.69, 8.27)
_MOST_TOLD: Final = 20
_one_at_a_time = threading.Lock()
"""matplotlib's settings and its caches of fonts are the process's."""


def draw(
    plot: Plot, stop: int, look: Look, form: Form, *, start: int | None = None, say: Callable[[str], None] | None = None
) -> bytes:
    """The picture as a file of this form. Threads draw one after the other.

    `start` and `stop` are the report's interval (without a start, pictures over names do not tell it); `say` is told,
    once for each letter, where no font of this computer has it.
    """
    import matplotlib as mpl  # noqa: PLC0415 - loads for half a second

    from publisher.report.picture.fonts import complete, not_yet_told  # noqa: PLC0415
    from publisher.report.picture.svg import with_titles  # noqa: PLC0415

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
        some = "".join(sorted(missing)[:_MOST_TOLD]) + (" ..." if len(missing) > _MOST_TOLD else "")
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
    from publisher.report.picture.heat import draw_heat_map  # noqa: PLC0415

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
    from publisher.report.picture import axes as frames  # noqa: PLC0415
    from publisher.report.picture.bars import draw_bars  # noqa: PLC0415
    from publisher.report.picture.lines import draw_areas, draw_lines  # noqa: PLC0415

    figure, axes = frames.frame(title, look.note)
    edges = edges_of(plot, stop)
    if look.style_of(plot) == "bar":
        draw_bars(axes, plot, edges)
    elif plot.stacked and len(plot.series) > 1:
        draw_areas(axes, plot, edges)
    else:
        draw_lines(axes, plot, edges)
    frames.time_axis(axes, edges[0], stop, end_of(plot, stop))
    frames.value_axis(axes, plot.unit, tops_of(plot, standing=plot.stacked))
    _dress(axes, plot, look, "both")
    return figure


def _over_names(plot: Plot, title: str, interval: str, look: Look) -> Figure:
    from publisher.report.picture import axes as frames  # noqa: PLC0415
    from publisher.report.picture.bars import draw_named_bars  # noqa: PLC0415

    plot, left_out = named_first(plot, MOST_NAMED)
    more = f"{MOST_NAMED} of {MOST_NAMED + left_out:,}; the others are in the table" if left_out else ""
    note = "; ".join(filter(None, (look.note, interval, more)))
    figure, axes = frames.frame(title, note, height_in=max(2.6, 1.7 + 0.3 * len(plot.x)))
    draw_named_bars(axes, plot)
    frames.amount_axis(axes, plot.unit, tops_of(plot, standing=plot.stacked))
    _dress(axes, plot, look, "x")
    return figure


def _dress(axes: Axes, plot: Plot, look: Look, grid: Literal["both", "x"]) -> None:
    from publisher.report.picture import axes as frames  # noqa: PLC0415

    if look.grid:
        frames.grid_lines(axes, grid)
    if look.legend:
        frames.legend_beside(axes, [one.label for one in plot.series], plot.by, top_first=plot.stacked)


def _empty(title: str, look: Look) -> Figure:
    from publisher.report.picture import axes as frames  # noqa: PLC0415

    figure, axes = frames.frame(title, look.note)
    axes.set_axis_off()
    axes.text(0.5, 0.5, "nothing to show", ha="center", va="center", color="#555555", transform=axes.transAxes)
    return figure
