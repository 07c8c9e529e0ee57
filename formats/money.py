"""Amounts of money: exact until the one rounding, half away from zero, to the decimals of the currency. Pure."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction


def rounded(amount: Fraction | Decimal, decimals: int) -> Decimal:
    """An exact amount rounded to so many decimals; halves away from zero."""
    exact = Fraction(amount)
    scaled = abs(exact) * 10**decimals
    units = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return Decimal(units if exact >= 0 else -units).scaleb(-decimals)


def plain(amount: Decimal) -> str:
    """A decimal as people write it: no exponent, no zeros that say nothing."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
