"""Plots of the page as data: `templates/page.js` draws them with uPlot, in the colours and the size of the page.

Files of plots are drawn by matplotlib (`report.plot.draw`), with the same names, series, and colours. Without
JavaScript the table has every value.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from publisher.report.plot.palette import COLOURS, OTHERS, colour
from publisher.report.plot.style import (
    MOST_BARS,
    amounts_of,
    edges_of,
    end_of,
    folded,
    highest_of,
    instants_of,
    lowest_of,
    marks_of,
    named_first,
    stacks_of,
    unknown_text,
)
from publisher.report.report import Plot, Series
from publisher.text import amount_texts, iso, number_text, safe

_DIGITS: Final = 4
_VARIABLES: Final = {OTHERS: "--other", **{shade: f"--c{place}" for place, shade in enumerate(COLOURS)}}
"""The variable of the style sheet of each colour."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A plot: over time, over names, or a heat map over time."""

    kind: Literal["time", "names", "heat", "empty"]
    title: str
    unit: str
    data: str = "{}"
    """What the script draws, as JSON."""
    summary: str = ""
    """The plot in a sentence, for screen readers."""
    left_out: int = 0
    """How many names are not drawn."""
    note: str = ""
    """Which bins are incomplete."""


def chart_of(plot: Plot, stop: int, timezone: str = "UTC") -> Chart:
    """The data of a plot; `stop` is the end of its report's interval."""
    plot = folded(plot)
    title, unit = safe(plot.title), safe(plot.unit)
    if not plot.x or not plot.series:
        return Chart(kind="empty", title=title, unit=unit, summary=f"{title}: nothing to show")
    if not instants_of(plot):
        return _over_names(plot, title, unit)
    heat = plot.style == "heat"
    names = plot.labels or [(iso(instant) or "")[:16].replace("T", " ") for instant in instants_of(plot)]
    data = {
        "kind": "heat" if heat else "time",
        "zone": timezone,
        "edges": edges_of(plot, stop),
        "end": end_of(plot, stop),
        "names": names,
        "top": plot.top,
        "outlined": len(plot.x) > MOST_BARS,
        "partial": plot.partial,
        "without_jobs": sorted(plot.without_jobs),
        "known_until": plot.known_until,
        **_shared(plot),
    }
    return Chart(
        kind="heat" if heat else "time", title=title, unit=unit, data=_json(data),
        note=safe("; ".join(filter(None, (unknown_text(plot), marks_of(plot, stop, timezone))))),
        summary=_summary_of_heat(plot, title) if heat else _summary(plot, title),
    )  # fmt: skip


def _shared(plot: Plot) -> dict[str, Any]:
    return {
        "unit": safe(plot.unit),
        "by": safe(plot.by),
        "stacked": plot.stacked,
        "series": [
            {
                "label": safe(one.label), "colour": _colour(one, place), "before": one.before,
                "values": _rounded(one),
            }
            for place, one in enumerate(plot.series)
        ],
    }  # fmt: skip


def _colour(series: Series, place: int) -> str:
    """The variable of the style sheet that has the colour of a series."""
    return _VARIABLES[colour(series, place)]


def _rounded(series: Series) -> list[float | None]:
    return [None if value is None else round(value, _DIGITS) for value in series.values]


def _json(data: Any) -> str:
    return msgspec.json.encode(data).decode("utf-8")


def _summary(plot: Plot, title: str) -> str:
    def of(one: Series) -> str:
        known = [value for value in one.values if value is not None]
        if not known:
            return f"{safe(one.label)} is unknown"
        least, mean, most = (
            number_text(value, max(known)) for value in (min(known), sum(known) / len(known), max(known))
        )
        return f"{safe(one.label)} from {least} to {most}, {mean} on average"

    return f"{title}. {'; '.join(map(of, plot.series))} ({safe(plot.unit)}). The table below has every value."


def _summary_of_heat(plot: Plot, title: str) -> str:
    values = [cell for row in plot.series for cell in row.values if cell is not None]
    mean = f"{sum(values) / len(values):.0f} % on average" if values else "all unknown"
    return f"{title}: {len(plot.series)} rows, {mean}. The table below has every value."


def _amounts(plot: Plot, stacks: list[list[int]]) -> list[str]:
    """The amounts of each name, in the order of its bars."""
    by_stack = [amounts_of(plot, stack) for stack in stacks]
    largest = max(highest_of(plot), -lowest_of(plot))
    texts = iter(amount_texts([amount for of_stack in by_stack for amount in of_stack], largest, plot.decimals))
    return [" / ".join(of_name) for of_name in zip(*([next(texts) for _ in plot.x] for _ in stacks), strict=True)]


def _over_names(plot: Plot, title: str, unit: str) -> Chart:
    plot = named_first(plot)
    stacks = stacks_of(plot)
    data = {
        "kind": "names",
        "names": [safe(str(name)) for name in plot.x],
        "stacks": stacks,
        "amounts": _amounts(plot, stacks),
        **_shared(plot),
    }
    of = f" of {len(plot.x) + plot.left_out}" if plot.left_out else ""
    return Chart(
        kind="names", title=title, unit=unit, data=_json(data), left_out=plot.left_out,
        summary=f"{title}: {len(plot.x)}{of} bars. The table below has every value.",
    )  # fmt: skip
