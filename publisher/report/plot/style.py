"""How a plot is shown, and where its values are: for pictures in files, on the page, and on a terminal.

Lines differ in their colours (`palette.py`) and their dashes, for prints in grey. matplotlib's global settings change
only while a picture is drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, Literal
from zoneinfo import ZoneInfo

import msgspec

from publisher.report.plot.palette import COLOURS
from publisher.report.report import Plot, Report, Series, others
from publisher.report.request import FIRST_INSTANT
from publisher.text import safe

Style = Literal["line", "bar"]

MOST_SERIES: Final = 7
"""How many series of a key can be distinguished; further ones are summed up, or not drawn."""
MOST_NAMED: Final = 20
"""How many names have a bar; further ones are summed up, or not drawn."""
MOST_DRAWN: Final = 1_000
"""The limit of names and series if more are asked for: pictures cannot be higher than 65,535 pixels."""

MOST_BARS: Final = 120
"""More bars over time are drawn as one outline, without gaps."""

_ABOUT: Final = 1.15
"""Months and years differ by less."""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """What is chosen for a picture. `style` None: that of the plot."""

    style: Style | None = None
    grid: bool = False
    legend: bool = True
    title: str | None = None
    """Replaces the title of the plot."""
    note: str = ""
    """A line below the picture, such as the name of the site."""
    notes: tuple[str, ...] = ()
    """Further lines: what a reader must know about the figures."""
    timezone: str = "UTC"
    """The time zone of the axis and of the interval that is shown."""

    def style_of(self, plot: Plot) -> Style:
        """Lines or bars for a plot over time."""
        return self.style or ("bar" if plot.style == "bar" else "line")


def look_of(report: Report, **choice: Any) -> Look:
    """The look of a report's pictures: its site, its notes, and its time zone; `choice` are other fields."""
    return Look(note=report.site, notes=report.notes, timezone=report.timezone, **choice)


def is_labelled(plot: Plot) -> bool:
    """Whether a plot needs a legend: its title and unit do not name its series."""
    return len(plot.series) > 1 or bool(plot.by) or plot.style == "heat"


def limited(plot: Plot, stop: int, now: int, known_until: int | None) -> Plot:
    """A plot without the future, which knows its incomplete bins.

    `stop` ends the interval of its report; after `known_until` (None: unknown) jobs may not be collected yet. Of an
    interval that is to come nothing is drawn, unless it has amounts: then the clock is slow. Months and years, which
    differ in length and are few, are bars.
    """
    edges = edges_of(plot, stop)
    if not edges:
        return plot
    shown = sum(start < now for start in instants_of(plot))
    if not shown and any(value for series in plot.series for value in series.values):
        shown = len(plot.x)
    until = min(stop, now, stop if known_until is None else known_until)
    places = {place for place, end in enumerate(edges[1 : shown + 1]) if end > until}
    return msgspec.structs.replace(
        plot,
        style="bar" if plot.style == "line" and is_of_long_periods(plot) else plot.style,
        x=plot.x[:shown],
        labels=plot.labels[:shown],
        series=tuple(msgspec.structs.replace(series, values=series.values[:shown]) for series in plot.series),
        partial=tuple(sorted(places | {place for place in plot.partial if place < shown})),
        without_jobs=plot.without_jobs & frozenset(range(shown)),
        known_until=known_until,
        end=min(max(edges[shown], stop), now) if plot.x[0] < now else None,  # type: ignore[operator]
    )


def instants_of(plot: Plot) -> tuple[int, ...]:
    """The x values of a plot over time, in epoch seconds; empty for a plot over names."""
    return tuple(place for place in plot.x if isinstance(place, int))


def edges_of(plot: Plot, stop: int) -> tuple[int, ...]:
    """The edges of the bins of a plot over time: one more than it has bins.

    If bins are unequal, the last ends with the interval if it is then about as long as the one before it. None reaches
    beyond the end of the plot.
    """
    starts = instants_of(plot)
    if not starts:
        return ()
    end = _end_of_last(starts, plot.step_s, stop)
    return (*starts, end if plot.end is None else min(end, plot.end))


def _end_of_last(starts: tuple[int, ...], step_s: int | None, stop: int) -> int:
    last = starts[-1]
    if step_s is not None:
        return last + step_s
    if len(starts) == 1:
        return max(stop, last + 1)
    usual = last - starts[-2]
    return stop if last < stop <= last + usual * _ABOUT else last + usual


def end_of(plot: Plot, stop: int) -> int:
    """The end of the time axis: that of the plot or the interval, or of a last bin that reaches beyond it."""
    return max(stop if plot.end is None else plot.end, edges_of(plot, stop)[-1])


def marks_of(plot: Plot, stop: int, timezone: str) -> str:
    """What the marks of incomplete bins mean, for a line below a picture; empty if it has none."""
    if not plot.partial:
        return ""
    known_until = plot.known_until
    if known_until is None or not instants_of(plot)[0] <= known_until < end_of(plot, stop):
        return "hatched: incomplete, because the interval or the time now cuts it"
    at = datetime.fromtimestamp(known_until, ZoneInfo(timezone))
    return f"hatched: incomplete; jobs were collected up to {at:%Y-%m-%d %H:%M}"


def unknown_text(plot: Plot) -> str:
    """What marks of unknown amounts over time mean, for a line below a picture; empty if it has none."""
    return "? or a gap: unknown" if any(unknown_in(plot, plot.series)) and plot.style != "heat" else ""


def unknown_in(plot: Plot, some: Iterable[Series]) -> list[bool]:
    """At each x whether an amount of some series is unknown: where no job counts, there is none to know."""
    amounts_at = zip(*(series.values for series in some), strict=True)
    return [None in amounts and place not in plot.without_jobs for place, amounts in enumerate(amounts_at)]


def stacks_of(plot: Plot) -> list[list[int]]:
    """The places of series that are drawn on top of each other; stacks, or series that do not add up, are drawn side
    by side. The period before is a stack of its own.
    """
    places = range(len(plot.series))
    if not plot.stacked:
        return [[place] for place in places]
    stacks = ([place for place in places if plot.series[place].before is before] for before in (False, True))
    return [stack for stack in stacks if stack]


def amounts_of(plot: Plot, stack: Sequence[int]) -> list[float | None]:
    """The sum of the known values of a stack at each x; None where none of them is known."""
    return [known_sum(plot.series[place].values[at] for place in stack) for at in range(len(plot.x))]


def known_sum(values: Iterable[float | None]) -> float | None:
    """The sum of the known ones; None if none is known: unknown is never drawn as 0."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def is_of_long_periods(plot: Plot) -> bool:
    """Whether the bins of a plot are months, quarters, years, or the whole interval."""
    return bool(plot.labels) and plot.labels[0].count("-") < 2 and "W" not in plot.labels[0]


def interval_text(start: int, stop: int, timezone: str = "UTC") -> str:
    """An interval for people, `stop` not included; midnights and full minutes without their zeros. One from the first
    instant on has no beginning for people."""
    zone = ZoneInfo(timezone)
    texts = [f"{datetime.fromtimestamp(instant, zone):%Y-%m-%d %H:%M:%S}" for instant in (start, stop)]
    for zeros in (":00", " 00:00"):
        if all(text.endswith(zeros) for text in texts):
            texts = [text.removesuffix(zeros) for text in texts]
    if start <= FIRST_INSTANT:
        return f"until {texts[1]}, {timezone}"
    return f"{texts[0]} until {texts[1]}, {timezone}"


def folded(plot: Plot) -> Plot:
    """A plot with as many series of its key as can be distinguished, the largest first.

    If the series add up, the last one is the sum of the others. Measures and the rows of heat maps all stay, unless the
    plot says how many to draw.
    """
    if not plot.by or (plot.style == "heat" and plot.most is None):
        return plot
    asked_for = plot.most if instants_of(plot) else None
    most = min(asked_for or MOST_SERIES, MOST_DRAWN)
    weights = instants_of(plot) and plot.weights
    weights = weights or tuple(known_sum(series.values) or 0.0 for series in plot.series)
    before = tuple(series for series in plot.series if series.before)
    ranked = sorted(range(len(plot.series) - len(before)), key=lambda place: -weights[place])
    kept, rest = _divided(ranked, most, sums_up=plot.stacked)
    if plot.style == "heat":
        kept.sort()
    shown = tuple(plot.series[place] for place in kept)
    if not rest or not plot.stacked:
        return msgspec.structs.replace(plot, series=(*shown, *before), left_out=len(rest))
    summed = Series(others(len(rest)), tuple(amounts_of(plot, rest)))
    return msgspec.structs.replace(plot, series=(*shown, summed, *before))


def _divided(ranked: list[int], most: int, *, sums_up: bool) -> tuple[list[int], list[int]]:
    """The first of a ranking, and the rest. A rest of one is no reason for a sum: it is drawn under its own name."""
    room = most + 1 if sums_up and len(ranked) == most + 1 else most
    return ranked[:room], ranked[room:]


def named_first(plot: Plot) -> Plot:
    """A plot over names with as many of them as have room, the largest first, unless they have an order of their own.

    If the values of names add up, the last bar is the sum of the others.
    """
    now = [place for place, one in enumerate(plot.series) if not one.before]
    sums = [amount or 0.0 for amount in amounts_of(plot, now)]
    weights = plot.weights or sums
    ranked = sorted(range(len(plot.x)), key=lambda place: -weights[place])
    kept, rest = _divided(ranked, min(plot.most or MOST_NAMED, MOST_DRAWN), sums_up=plot.names_add_up)
    kept.sort(key=(lambda place: place) if plot.ordered else (lambda place: -sums[place]))
    names = [str(plot.x[place]) for place in kept]
    values = [[one.values[place] for place in kept] for one in plot.series]
    if rest and plot.names_add_up:
        names.append(others(len(rest)))
        for one, of_series in zip(plot.series, values, strict=True):
            of_series.append(known_sum(one.values[place] for place in rest))
    series = tuple(
        msgspec.structs.replace(one, values=tuple(each)) for one, each in zip(plot.series, values, strict=True)
    )
    left_out = 0 if plot.names_add_up else len(rest)
    return msgspec.structs.replace(plot, x=tuple(names), weights=(), series=series, left_out=left_out)


def alone(values: Sequence[float | None]) -> list[int]:
    """The places of values without known neighbours, which a line does not show."""
    unknown = [True, *(value is None for value in values), True]
    return [place for place, value in enumerate(values) if value is not None and unknown[place] and unknown[place + 2]]


def highest_of(plot: Plot) -> float:
    """The highest value that is drawn, at least 0: of the sums of series that are stacked."""
    amounts = (amount for stack in stacks_of(plot) for amount in amounts_of(plot, stack))
    return max((amount for amount in amounts if amount is not None), default=0.0)


def lowest_of(plot: Plot) -> float:
    """The lowest value of a plot over names, at most 0: adjustments can make charges negative."""
    return min(
        (value for series in plot.series for value in series.values if value is not None and value < 0), default=0.0
    )


DASHES: Final[tuple[tuple[float, ...], ...]] = ((), (6, 2), (2, 2), (7, 2, 2, 2), (10, 3), (4, 1, 1, 1), (1, 1.5))

WIDTH_IN, HEIGHT_IN = 10.0, 5.2
DPI: Final = 120
SHOWN: Final = "shown"
"""The label of each series in matplotlib: the texts are set when the legend is made."""
LEGEND_LENGTH: Final = 28
_BREAKS: Final = " -_./:,;=@"
"""Characters after which a line may end."""
MANY: Final = 400
"""A line with more points is thin, without dashes and edges, which would hide its course."""

FONT: Final = "DejaVu Sans"
"""Part of matplotlib. For letters that it does not have see `fonts.py`."""

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
"""Set while a picture is drawn, so that the user's matplotlibrc has no effect."""


def dashes(place: int) -> tuple[float, ...]:
    """The dashes of a line in points, empty for a solid line; a colour that repeats has other dashes."""
    return DASHES[(place + place // len(COLOURS)) % len(DASHES)]


def shortened(text: str, most: int) -> str:
    """Text from outside as a label: safe to show, and without its middle if it is too long."""
    text = safe(text)
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[-(most - 1 - head) :]}"


def wrapped(text: str, most: int) -> str:
    """Text from outside for a legend: at most two lines, and without its middle if it is too long."""
    text = shortened(text, 2 * most)
    if len(text) <= most:
        return text
    breaks = [middle for middle in range(len(text) - most, most + 1) if text[middle - 1] in _BREAKS]
    middle = min(breaks, key=lambda one: abs(one - len(text) // 2), default=most)
    return f"{text[:middle].rstrip()}\n{text[middle:].lstrip()}"


def label_of(text: str) -> str:
    """The text of a legend. matplotlib hides labels that begin with an underscore, hence the hair space before it."""
    label = wrapped(text, LEGEND_LENGTH)
    return f"\N{HAIR SPACE}{label}" if label.startswith("_") else label
