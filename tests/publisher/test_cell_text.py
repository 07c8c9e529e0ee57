"""One way to write a value for people, in tables, on the page, and in pictures."""

from __future__ import annotations

from decimal import Decimal

import pytest

from publisher.text import cell_text


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "", ""),
        (8076, "", "8,076"),
        (8076, "count", "8,076"),
        (8076, "text", "8076"),
        (0.1234, "number", "0.1234"),
        (999.9, "number", "999.9000"),
        (1234567.891, "number", "1,234,567.9"),
        (Decimal("1234.50"), "money", "1,234.50"),
        (0.4567, "ratio", "45.7"),
        (1, "ratio", "100.0"),
        (Decimal("0.5"), "ratio", "50.0"),
        (1_793_491_200, "instant", "2026-11-01T00:00:00Z"),
        ("atlas", "text", "atlas"),
        ("a\x1b[2Jb\n", "text", "a\\x1b[2Jb\\x0a"),
    ],
)
def test_a_value_as_people_read_it(value: object, kind: str, text: str) -> None:
    assert cell_text(value, kind) == text
