"""Numbers and sizes for people: few digits, thousands separators, and units."""

from __future__ import annotations

import pytest

from publisher.text import amount_texts, number_text, size_text


@pytest.mark.parametrize(
    ("value", "largest", "text"),
    [
        (0.0, None, "0"), (1234567.8, None, "1,234,568"), (123.45, None, "123.5"), (12.0, None, "12"),
        (1.234, None, "1.23"), (0.01234, None, "0.0123"), (0.25, 1_000_000.0, "<1"), (0.25, 40.0, "0.2"),
        (0.04, 40.0, "<0.1"), (40.0, 40.0, "40.0"), (-3.14159, None, "-3.14"), (-0.001, 50.0, ">-0.1"),
        (1e-12, None, "<0.0000000001"),
    ],
)  # fmt: skip
def test_numbers(value: float, largest: float | None, text: str) -> None:
    assert number_text(value, largest) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (1023, "1,023 B"), (1024, "1.0 KiB"), (1.2 * 2**40, "1.2 TiB"), (114 * 2**30, "114 GiB"),
     (2**70, "1,024 EiB")],
)  # fmt: skip
def test_sizes(size_bytes: float, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([25.0, 3.0], ["25", "3"]),
        ([12345.0, None], ["12,345", "unknown"]),
        ([208.0, 6.94], ["208.0", "6.9"]),
        ([2000.5, 0.5], ["2,000", "<1"]),
        ([], []),
    ],
)
def test_counts_beside_bars_have_no_decimals(values: list[float | None], texts: list[str]) -> None:
    assert amount_texts(values, max((value or 0.0 for value in values), default=0.0)) == texts


def test_money_beside_bars_has_its_decimals() -> None:
    assert amount_texts([14.0, 0.05, -2.5, None], 14.0, 2) == ["14.00", "0.05", "-2.50", "unknown"]
