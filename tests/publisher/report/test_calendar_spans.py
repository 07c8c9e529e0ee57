"""Units of lengths of time in pictures: easy to read, whatever the waits are."""

from __future__ import annotations

import pytest

from publisher.report.calendar import unit_for


@pytest.mark.parametrize(
    ("longest_s", "unit"),
    [(0, "s"), (1, "s"), (119, "s"), (120, "min"), (7199, "min"), (7200, "h"), (172_799, "h"), (172_800, "days"),
     (10**9, "days")],
)  # fmt: skip
def test_the_largest_unit_that_fits_twice(longest_s: int, unit: str) -> None:
    assert unit_for(longest_s).name == unit
