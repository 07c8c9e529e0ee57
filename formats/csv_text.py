"""CSV as RFC 4180 has it, with LF at line ends: the same bytes in every version of Python."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_QUOTED: Final = re.compile('[",\x00-\x1f\x7f-\x9f\u2028\u2029]')
"""What a cell is quoted for: a carriage return, too, or a reader would see two rows."""


def csv_line(cells: Iterable[object]) -> str:
    """A row, with its line end; what is not text is written as Python spells it, None as an empty cell."""
    return ",".join(_cell(cell) for cell in cells) + "\n"


def _cell(value: object) -> str:
    if value is None:
        return ""
    text = repr(value) if isinstance(value, float) else str(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
