"""Distinct rows are those that numpy finds, whatever numbers there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from publisher.report.selection import distinct

NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 40]))


@given(
    st.integers(1, 4).flatmap(lambda width: st.lists(st.lists(NUMBERS, min_size=width, max_size=width), max_size=30))
)
def test_as_numpy_has_them(rows: list[list[int]]) -> None:
    table = np.array(rows, np.int64).reshape(len(rows), -1 if rows else 1)
    found, number = distinct(list(table.T))
    expected, inverse = np.unique(table, axis=0, return_inverse=True)
    assert found.tolist() == expected.tolist()
    assert number.tolist() == inverse.reshape(-1).tolist()
