"""The ticks of axes, where matplotlib places them: for pictures in files and charts on terminals."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.ticker import MaxNLocator

from publisher.report.plot.style import edges_of, end_of, is_of_long_periods
from publisher.report.report import Plot

DAY_S: Final = 86_400
"""matplotlib counts time in days."""
_LEAST: Final = 5
"""With fewer ticks, matplotlib knows no interval for some spans of time."""
_STEPS: Final = {12: (1, 2, 3, 6), 4: (1, 2), 1: ()}
"""Which parts of a year may have ticks, by their number in it: every one, every second, ..."""


def value_locator(most: int = 7) -> MaxNLocator:
    """Chooses round amounts."""
    return MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10])


def value_text(value: float, _place: float = 0) -> str:
    """The text of a tick of amounts."""
    return f"{value:,.10g}"


def time_ticks(plot: Plot, stop: int, timezone: str, most: int = 9) -> list[tuple[float, str]]:
    """At most about so many ticks of a plot over time, as epoch seconds and text; times are in a zone."""
    if is_of_long_periods(plot):
        return _period_ticks(plot, stop, most + 3)
    zone = ZoneInfo(timezone)
    low, high = (instant / DAY_S for instant in (edges_of(plot, stop)[0], end_of(plot, stop)))
    locator = AutoDateLocator(tz=zone, minticks=min(3, most), maxticks=max(_LEAST, most))  # type: ignore[no-untyped-call]
    formatter = ConciseDateFormatter(  # type: ignore[no-untyped-call]
        locator, tz=zone, show_offset=False, formats=["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%H:%M:%S"],
        zero_formats=["", "%b\n%Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M"],
    )  # fmt: skip
    first, last = num2date(low, zone), num2date(high, zone)  # type: ignore[no-untyped-call]
    places = [place for place in locator.tick_values(first, last) if low <= place <= high]  # type: ignore[no-untyped-call]
    texts = formatter.format_ticks(places) if places else []  # type: ignore[no-untyped-call]
    ticks = [(float(place) * DAY_S, str(text)) for place, text in zip(places, texts, strict=True)]
    return ticks[:: -(-len(ticks) // most) or 1]


def _period_ticks(plot: Plot, stop: int, most: int) -> list[tuple[float, str]]:
    """The ticks of months, quarters, years, or the whole interval, in the middle of each.

    Of more than fit every n-th has one; of months and quarters those that divide the year evenly.
    """
    middles = [(left + right) / 2 for left, right in pairwise(edges_of(plot, stop))]
    first = plot.labels[0]
    if not first[0].isdigit():
        return [(middles[0], first)]
    in_year = 4 if "Q" in first else 12 if "-" in first else 1
    step = -(-len(plot.labels) // most)
    step = next((parts for parts in _STEPS[in_year] if parts >= step), in_year * -(-step // in_year))
    ticks: list[tuple[float, str]] = []
    for label, middle in zip(plot.labels, middles, strict=True):
        year, _, part = label.partition("-")
        number = int(part.removeprefix("Q") or 1)
        if (int(year) * in_year + number - 1) % step:
            continue
        name = f"{date(2000, number, 1):%b}" if in_year == 12 else part or year
        with_year = in_year > 1 and (not ticks or number <= step)
        ticks.append((middle, f"{name}\n{year}" if with_year else name))
    return ticks
