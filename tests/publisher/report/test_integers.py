"""Sums of columns of integers are exact, and distinct rows are those that numpy finds, whatever numbers there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from publisher.report.integers import ExactSums, distinct, sum_by

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


def test_sums_beyond_64_bits_are_added_up() -> None:
    """Also such that only their sum is, or that had to be carried before."""
    places = np.array([1, 0], np.int64)
    largest = (1 << 62) - 1
    for times in (1, 2, 3):
        whole, expected = ExactSums(2), [0, 0]
        for _ in range(times):
            part = ExactSums(2)
            for _ in range(times):
                part.add(places, np.array([largest, 5], np.int64), largest)
            whole.merge(part, places)
            expected = [expected[0] + largest * times, expected[1] + 5 * times]
        assert whole.slice(0, 2) == expected


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-(1 << 62), 1 << 62))))
def test_sums_by_group_are_exact(rows: list[tuple[int, int]]) -> None:
    expected = [sum(value for group, value in rows if group == which) for which in range(4)]
    groups, values = (np.array([row[place] for row in rows], np.int64) for place in (0, 1))
    assert sum_by(groups, values, 4) == expected
    beyond = [value << 64 for value in values.tolist()]
    assert sum_by(groups, beyond, 4) == [total << 64 for total in expected]


def test_exact_sums_grow_and_carry() -> None:
    sums = ExactSums(1)
    at = np.array([0], np.int64)
    for _ in range(5):
        sums.add(at, np.array([1 << 61], np.int64), 1 << 61)
    sums.grow(2)
    sums.add(at + 1, 3, 3)
    assert sums.slice(0, 2) == [5 << 61, 3]
