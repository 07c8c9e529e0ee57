"""How pictures look: colours that colour-blind people tell apart, line styles for those who print in grey, sizes.

The colours are those of Okabe and Ito, without black and with yellow last, which is weak on white. Nothing here changes
matplotlib's global settings for longer than a picture is drawn.
"""

from __future__ import annotations

from typing import Any, Final

from publisher.plain_text import safe
from publisher.report.result import is_others

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
"""A line may end behind one of them."""
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
    """The text of a legend. A hair space stands before an underscore, which matplotlib takes for "not to be shown"."""
    label = wrapped(text, LEGEND_LENGTH)
    return f"\N{HAIR SPACE}{label}" if label.startswith("_") else label
