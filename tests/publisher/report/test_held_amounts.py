"""Occupation over periods of any lengths: the same as second by second; and the most that was held at once."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.report.held_amounts import MostAtOnce, Occupation
from publisher.report.matching import RowTable

held = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-10, 60), st.integers(-2, 60), st.integers(0, 9)), max_size=12
)  # fmt: skip
cuts = st.lists(st.integers(0, 50), min_size=2, max_size=8, unique=True).map(sorted)


def columns(rows: list[tuple[int, int, int, int]]) -> list[np.ndarray]:  # type: ignore[type-arg]
    table = [(node, start, start + length, amount) for node, start, length, amount in rows]
    return [np.array([row[place] for row in table], np.int64) for place in range(4)]


@given(held, cuts)
def test_second_by_second(rows: list[tuple[int, int, int, int]], cut: list[int]) -> None:
    made = Occupation(np.array(cut, np.int64))
    half = len(rows) // 2
    made.add(*columns(rows[:half]))
    made.add(*columns(rows[half:]))
    for node in range(4):
        expected = [
            sum(
                amount
                for which, start, length, amount in rows
                for second in range(start, start + length)
                if which == node and begin <= second < end
            )
            for begin, end in itertools.pairwise(cut)
        ]
        assert made.of(node) == expected


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connected:
        yield connected


@given(held, st.integers(1, 12), st.integers(1, 80))
def test_most_at_once(
    connection: duckdb.DuckDBPyConnection, rows: list[tuple[int, int, int, int]], changes: int, slices: int
) -> None:
    """What was held before and after the interval does not count; the slices in which it is read do not matter."""
    made = MostAtOnce(partial(RowTable, connection, "held"), -5, 70, slices=slices, at_once=changes)
    made.add(*columns(rows[::2]))
    made.add(*columns(rows[1::2]))
    found = made.by_node()
    connection.execute("DROP TABLE held")
    for node in range(3):
        expected = max(
            sum(amount for which, start, length, amount in rows if which == node and start <= second < start + length)
            for second in range(-5, 70)
        )
        assert found.get(node, 0) == expected


def test_most_at_once_of_many_runs_in_little_memory() -> None:
    """DuckDB failed to sort their changes within this limit."""
    random = np.random.default_rng(1)
    starts = random.integers(0, 1 << 20, 300_000)
    with duckdb.connect(":memory:", config={"memory_limit": "10MB", "threads": 1}) as connected:
        made = MostAtOnce(partial(RowTable, connected, "held"), 0, 1 << 20)
        made.add(starts % 7, starts, starts + 10, np.ones(len(starts), np.int64))
        found = made.by_node()
    for node in range(7):
        own = np.sort(starts[starts % 7 == node])
        assert found[node] == max(np.searchsorted(own, own, "right") - np.searchsorted(own, own - 10, "right"))
