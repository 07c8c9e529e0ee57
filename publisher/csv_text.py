"""CSV that people open in spreadsheets: text that users of the batch systems wrote does nothing there.

Control characters and direction marks are escaped as on a terminal (`publisher.text.safe`), so that no cell breaks its
line. A text that a spreadsheet would calculate has an apostrophe before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from formats.csv_text import csv_line
from publisher.text import safe

_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?|-Infinity", re.ASCII)
_WIDE: Final = "\ufe62\ufe63\ufe66\ufe6b\uff0b\uff0d\uff1d\uff20"
"""Small and full-width forms of the signs with which a formula begins."""
_FORMULA: Final = re.compile(f"(^|;)((?:[^!-~\\w{_WIDE}]|[\u115f\u1160\u3164\uffa0])*)(?=[=+\\-@{_WIDE}])")
"""Where a formula begins, also after a semicolon: in many countries it separates cells. Spreadsheets remove blanks and
invisible characters before it, so all that is neither ASCII nor a letter or digit may be there; the four code points
are fillers, letters that show nothing.
"""


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """The rows, of which the first has the names of the columns. An empty cell: None."""
    return "".join(csv_line(_harmless(cell) for cell in row) for row in rows)


def _harmless(cell: object) -> object:
    if not isinstance(cell, str) or _NUMBER.fullmatch(cell):
        return cell
    return _FORMULA.sub(r"\1\2'", safe(cell))
