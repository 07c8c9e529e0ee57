"""Money is rounded once, half away from zero."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.report.held_amounts import plain, rounded


@pytest.mark.parametrize(
    ("amount", "decimals", "expected"),
    [
        (Fraction(1005, 1000), 2, "1.01"),
        (Fraction(-1005, 1000), 2, "-1.01"),
        (Decimal("1.004999999"), 2, "1.00"),
        (Fraction(1, 3), 4, "0.3333"),
        (Fraction(5, 2), 0, "3"),
        (Fraction(0), 2, "0.00"),
    ],
)
def test_rounding(amount: Fraction | Decimal, decimals: int, expected: str) -> None:
    assert str(rounded(amount, decimals)) == expected


@given(st.fractions(-(10**12), 10**12), st.integers(0, 6))
def test_never_off_by_more_than_half_a_unit(amount: Fraction, decimals: int) -> None:
    assert abs(Fraction(rounded(amount, decimals)) - amount) <= Fraction(1, 2 * 10**decimals)


def test_plain() -> None:
    assert [plain(Decimal(text)) for text in ("0.020", "1", "1E+2", "-0.50")] == ["0.02", "1", "100", "-0.5"]
