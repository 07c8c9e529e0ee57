"""How a plot is to be shown, and where its values are: for pictures of files and for those of the page alike.

How pictures look: colours that colour-blind people distinguish, line styles for those who print in grey, sizes.

The colours are those of Okabe and Ito, without black and with yellow last, which is weak on white. Nothing here changes
matplotlib's global settings for longer than a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Literal

import msgspec

from publisher.report.report import Plot, Series, count_of_others, is_others, others
from publisher.text import iso, safe

Style = Literal["line", "bar"]

MOST_LAYERS: Final = 8
"""So many series that stand on one another can be distinguished; of more, the least are summed up."""
MOST_NAMED: Final = 60
"""So many names can be read beside one another; of more, the least are summed up, or left to the table."""

_ABOUT: Final = 1.15
"""Months and years differ by less."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is chosen of a picture. `style` None: as the plot says."""

    style: Style | None = None
    grid: bool = False
    legend: bool = True
    title: str | None = None
    """Instead of the plot's own."""
    note: str = ""
    """A line below, such as the site it is about."""

    def style_of(self, plot: Plot) -> Style:
        """Lines or bars; over names there are only bars."""
        if plot.style == "bar":
            return "bar"
        return self.style or "line"


def instants_of(plot: Plot) -> tuple[int, ...]:
    """The places of a plot over time, in epoch seconds; none for one over names."""
    return tuple(place for place in plot.x if isinstance(place, int))


def edges_of(plot: Plot, stop: int) -> tuple[int, ...]:
    """The edges of the bins of a plot over time, one more than there are.

    Of unequal ones the last is about as long as the one before, and ends with the interval where that suits.
    """
    starts = instants_of(plot)
    if not starts:
        return ()
    if plot.step_s is not None:
        return (*starts, starts[-1] + plot.step_s)
    last = starts[-1]
    if len(starts) == 1:
        return (last, max(stop, last + 1))
    usual = last - starts[-2]
    return (*starts, stop if last < stop <= last + usual * _ABOUT else last + usual)


def end_of(plot: Plot, stop: int) -> int:
    """Where the axis of a plot over time ends: with the interval, or with the last bin that reaches beyond it."""
    return max(stop, edges_of(plot, stop)[-1])


def interval_told(start: int, stop: int) -> str:
    """An interval for people, `stop` not included: without the parts of the time that say nothing."""
    texts = [(iso(instant) or "").removesuffix("Z").replace("T", " ") for instant in (start, stop)]
    for nothing in (":00", " 00:00"):
        if all(one.endswith(nothing) for one in texts):
            texts = [one.removesuffix(nothing) for one in texts]
    return f"{texts[0]} until {texts[1]}, UTC"


def middles_of(plot: Plot, stop: int) -> Iterator[float]:
    """Where a line goes through: the middles of the bins, in epoch seconds."""
    return ((left + right) / 2 for left, right in pairwise(edges_of(plot, stop)))


def folded(plot: Plot) -> Plot:
    """A plot of series that stand on one another, with the least of them summed up where they are too many."""
    if not plot.stacked or len(plot.series) <= MOST_LAYERS:
        return plot
    weights = [sum(value or 0.0 for value in one.values) for one in plot.series]
    ranked = sorted(range(len(plot.series)), key=lambda place: -weights[place])
    kept = [place for place in ranked if not is_others(plot.series[place].label)][: MOST_LAYERS - 1]
    shown = tuple(plot.series[place] for place in sorted(kept))
    rest = [plot.series[place] for place in ranked if place not in kept]
    summed = tuple(sum(value or 0.0 for value in values) for values in zip(*(one.values for one in rest), strict=True))
    label = others(sum(count_of_others(one.label) for one in rest))
    return msgspec.structs.replace(plot, series=(*shown, Series(label, summed)))


def named_first(plot: Plot, most: int) -> tuple[Plot, int]:
    """A plot over names with so many of them, and how many are left out.

    They are those of the most weight, in their order. Where names add up, the last is the sum of the others, and
    nothing is left out.
    """
    if len(plot.x) <= most:
        return plot, 0
    columns = list(zip(*(one.values for one in plot.series), strict=True))
    weights = plot.weights or [sum(value or 0.0 for value in column) for column in columns]
    ranked = sorted(range(len(weights)), key=lambda place: -weights[place])
    room = most - 1 if plot.names_add_up else most
    kept, rest = sorted(ranked[:room]), ranked[room:]
    names = tuple(str(plot.x[place]) for place in kept)
    series = [Series(one.label, tuple(one.values[place] for place in kept)) for one in plot.series]
    if not plot.names_add_up:
        return msgspec.structs.replace(plot, x=names, weights=(), series=tuple(series)), len(rest)
    summed = [sum(one.values[place] or 0.0 for place in rest) for one in plot.series]
    series = [Series(one.label, (*one.values, value)) for one, value in zip(series, summed, strict=True)]
    return msgspec.structs.replace(plot, x=(*names, others(len(rest))), weights=(), series=tuple(series)), 0


def alone(values: Sequence[float | None]) -> list[int]:
    """The places of values beside which nothing is known: a line does not show them."""
    unknown = [True, *(value is None for value in values), True]
    return [place for place, value in enumerate(values) if value is not None and unknown[place] and unknown[place + 2]]


def tops_of(plot: Plot, *, standing: bool) -> float:
    """The highest value that is drawn, at least 0; `standing` where the series stand on one another."""
    if standing:
        columns = zip(*(one.values for one in plot.series), strict=True)
        return max((sum(value or 0.0 for value in column) for column in columns), default=0.0)
    return max((value for one in plot.series for value in one.values if value is not None), default=0.0)


COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442")
DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (6, 2), (2, 2), (7, 2, 2, 2), (10, 3), (4, 1, 1, 1), (1, 1.5))
GREY: Final = "#8c8c8c"
INK: Final = "#222222"
FAINT: Final = "#d5d5d5"

WIDTH_IN, HEIGHT_IN = 10.0, 5.2
DPI: Final = 120
SHOWN: Final = "shown"
"""The label of what is drawn of a series: the legend's texts are put in when it is made."""
LEGEND_LENGTH: Final = 28
_BREAKS: Final = " -_./:,;=@"
"""A line may end after one of them."""
MANY: Final = 400
"""Beyond so many points a line is thin and neither dashed nor edged: they would hide what it shows."""

FONT: Final = "DejaVu Sans"
"""matplotlib brings it along; what it does not have: `fonts.py`."""

SETTINGS: Final[Any] = {
    "font.family": [FONT, "sans-serif"],
    "font.sans-serif": [FONT],
    "font.size": 10.0,
    "svg.hashsalt": "usage-publisher",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
    "ps.fonttype": 3,  # the other kind takes ten times as long
    "text.usetex": False,
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "path.simplify": True,
}
"""Set while a picture is drawn, so that what the user's own settings say does not matter."""


def colour(label: str, place: int) -> str:
    """The colour of a series."""
    return GREY if is_others(label) else COLOURS[place % len(COLOURS)]


def dashes(place: int) -> tuple[float, ...]:
    """The dashes of a line in points, none for a solid one; where colours come again, with other dashes."""
    return DASHES[(place + place // len(COLOURS)) % len(DASHES)]


def shortened(text: str, most: int) -> str:
    """Text from outside that fits a label: harmless, and without the middle where it is long."""
    text = safe(text)
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[-(most - 1 - head) :]}"


def wrapped(text: str, most: int) -> str:
    """Text from outside for a legend: of up to two lines, broken where it can be, else without its middle."""
    text = shortened(text, 2 * most)
    if len(text) <= most:
        return text
    breaks = [place for place in range(len(text) - most, most + 1) if text[place - 1] in _BREAKS]
    place = min(breaks, key=lambda one: abs(one - len(text) // 2), default=most)
    return f"{text[:place].rstrip()}\n{text[place:].lstrip()}"


def label_of(text: str) -> str:
    """The text of a legend. A hair space is before an underscore, which matplotlib takes for "not to be shown"."""
    label = wrapped(text, LEGEND_LENGTH)
    return f"\N{HAIR SPACE}{label}" if label.startswith("_") else label
