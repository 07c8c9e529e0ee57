"""The colours of pictures, for files, terminals, and the page.

Series have the colours of Okabe and Ito, which colour-blind people can distinguish, without black, and with yellow last
because it is weak on white. Heat maps go from dark blue to yellow (cividis): the same order in grey.
"""

from __future__ import annotations

from typing import Final

from publisher.report.report import Series, is_others

COLOURS: Final = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442")
COLOURS_DARK: Final = ("#3a9bd8", *COLOURS[1:])
"""On a dark page."""
OTHERS: Final = "#8c8c8c"
"""The sum of other series."""
UNKNOWN: Final = "#dedede"
UNKNOWN_DARK: Final = "#55575f"
"""Cells of a heat map without a value."""
SHADES: Final = (
    "#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838",
)  # fmt: skip
"""The shades of a heat map from 0 % to 100 %, at equal distances."""
INK: Final = "#222222"
FAINT: Final = "#d5d5d5"
NOTE: Final = "#555555"
INCOMPLETE: Final = "#f1f1f1"
"""Behind bins that are incomplete."""


def colour(series: Series, place: int) -> str:
    """The colour of a series; that of the period before is grey, and hatched where there is room."""
    return OTHERS if series.before or is_others(series.label) else COLOURS[place % len(COLOURS)]
