"""The ticks of axes, where matplotlib places them: for pictures in files and charts on terminals."""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Final
from zoneinfo import ZoneInfo

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date
from matplotlib.ticker import MaxNLocator

from publisher.report.plot.style import edges_of, end_of, is_of_months_or_years
from publisher.report.report import Plot

DAY_S: Final = 86_400
"""matplotlib counts time in days."""
_LEAST: Final = 5
"""With fewer ticks, matplotlib knows no interval for some spans of time."""
_MONTH_STEPS: Final = (1, 2, 3, 6)


def value_locator(most: int = 7) -> MaxNLocator:
    """Chooses round amounts."""
    return MaxNLocator(nbins=most, steps=[1, 2, 2.5, 5, 10])


def value_text(value: float, _place: float = 0) -> str:
    """The text of a tick of amounts."""
    return f"{value:,.10g}"


def time_ticks(plot: Plot, stop: int, timezone: str, most: int = 9) -> list[tuple[float, str]]:
    """At most about so many ticks of a plot over time, as epoch seconds and text; times are in a zone."""
    if is_of_months_or_years(plot):
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
    """The ticks of months or years, in the middle of each.

    Of more than fit every n-th has one; of months those that divide the year evenly.
    """
    step = -(-len(plot.labels) // most)
    of_months = "-" in plot.labels[0]
    if of_months:
        step = next((months for months in _MONTH_STEPS if months >= step), 12 * -(-step // 12))
    ticks: list[tuple[float, str]] = []
    for label, (left, right) in zip(plot.labels, pairwise(edges_of(plot, stop)), strict=True):
        year, _, month = label.partition("-")
        number = int(year) * 12 + int(month) - 1 if of_months else int(year)
        if number % step:
            continue
        name = f"{date(2000, int(month), 1):%b}" if of_months else year
        with_year = of_months and (not ticks or int(month) <= step)
        ticks.append(((left + right) / 2, f"{name}\n{year}" if with_year else name))
    return ticks
