"""One way to write a value for people, in tables and on the page."""

from __future__ import annotations

from decimal import Decimal

import pytest

from publisher.text import cell_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (8076, "8,076"),
        (0.1234, "0.123"),
        (999.94, "999.9"),
        (1234567.891, "1,234,568"),
        (Decimal("1234.50"), "1,234.50"),
        ("atlas", "atlas"),
        ("8076", "8076"),
        (True, "True"),
        ("a\x1b[2Jb\n", "a\\x1b[2Jb\\x0a"),
    ],
)
def test_a_value_as_people_read_it(value: object, text: str) -> None:
    assert cell_text(value) == text
