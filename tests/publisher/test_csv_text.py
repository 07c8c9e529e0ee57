"""CSV with text that users wrote: one row is one line, and no cell is a formula."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.csv_text import csv_text
from tests.conftest import ROOT

HOSTILE = {
    "=cmd|' /C calc'!A0": "'=cmd|' /C calc'!A0",
    "+1+1": "'+1+1",
    "-1-1": "'-1-1",
    "@SUM(A1)": "'@SUM(A1)",
    "  =1": "  '=1",
    "\uff1d1": "'\uff1d1",
    "\uff1d\uff1d1": "'\uff1d\uff1d1",
    "\ufe661": "'\ufe661",
    "\u200b=1": "\u200b'=1",
    "\ufeff@a": "\ufeff'@a",
    "a;\xad\ufe0f+1": "a;\xad\ufe0f'+1",
    "a;=1": "a;'=1",
    "\r=cmd": "\\x0d=cmd",
    "\n=cmd": "\\x0a=cmd",
    "\t=cmd": "\\x09=cmd",
    "\x00=cmd": "\\x00=cmd",
    "a\x85\x9bb\x1b[31m": "a\\x85\\x9bb\\x1b[31m",
    "a\u202eb": "a\\u202eb",
    'a,"b"': 'a,"b"',
    "-5": "-5",
    "-Infinity": "-Infinity",
    "-Infinity()": "'-Infinity()",
    "a-b@c": "a-b@c",
}


@pytest.mark.parametrize("text", HOSTILE)
def test_a_cell_is_harmless(text: str) -> None:
    written = csv_text([["user"], [text]])
    assert list(csv.reader(io.StringIO(written, newline=""))) == [["user"], [HOSTILE[text]]]


def test_what_is_not_text_stays_as_it_is() -> None:
    assert csv_text([[None, -5, -0.5, Decimal("-0.10"), True, "-0.10"]]) == ",-5,-0.5,-0.10,True,-0.10\n"


@given(st.lists(st.tuples(st.text(), st.text(alphabet="=+-@;,\"'\r\n\t\x00\x85 a1")), min_size=1))
def test_any_rows_are_as_many_lines(rows: list[tuple[str, str]]) -> None:
    written = csv_text(rows)
    assert written.isprintable() or not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", written)
    read = list(csv.reader(io.StringIO(written, newline="")))
    assert [len(row) for row in read] == [2] * len(rows)
    assert written.count("\n") == len(rows)
    assert not any(cell.lstrip()[:1] in {"=", "@"} for row in read for cell in row)


_BLANK = "\u115f\u1160\u2800\u3164\uffa0"
"""Letters and a symbol that show nothing."""
_INVISIBLE = st.characters(categories=("Zs", "Zl", "Zp", "Cc", "Cf", "Cn", "Mn", "Me")) | st.sampled_from(_BLANK)


@given(st.sampled_from(["", "a;", "é=1; "]), st.text(_INVISIBLE), st.sampled_from("=+-@\uff0b\uff0d\uff1d\uff20"))
def test_nothing_invisible_hides_a_formula(before: str, invisible: str, begin: str) -> None:
    (cell,) = next(csv.reader(io.StringIO(csv_text([[f"{before}{invisible}{begin}SUM(A1)"]]), newline="")))
    shown = "".join(
        char for char in cell.rpartition(";")[2] if unicodedata.category(char)[0] not in "ZCM" and char not in _BLANK
    )
    assert shown.startswith(("'", "\\"))


def test_there_is_one_writer() -> None:
    for package in ("publisher", "formats"):
        for file in sorted((ROOT / package).rglob("*.py")):
            assert not re.search(r"csv\.(writer|DictWriter)", file.read_text(encoding="utf-8")), file
