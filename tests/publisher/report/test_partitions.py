"""Rows put aside come back once, all rows of a key in one part, in the order in which they came."""

from __future__ import annotations

import resource

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import OutputError
from publisher.report.partitions import NumberPartitions, whole

numbers = st.integers(-(1 << 63), (1 << 63) - 1)
tables = st.lists(st.lists(st.tuples(st.integers(-4, 4) | numbers, numbers), max_size=6), max_size=6)
in_memory = st.sampled_from([1, 3, 1000])


@given(tables, in_memory)
def test_numbers(pages: list[list[tuple[int, int]]], rows_in_memory: int) -> None:
    with NumberPartitions(2, rows_in_memory) as made:
        for page in pages:
            made.add(*(np.array([row[place] for row in page], np.int64) for place in range(2)))
        parts = [list(zip(*(column.tolist() for column in whole(part)), strict=True)) for part in made.parts()]
    rows = [row for page in pages for row in page]
    assert sorted(row for part in parts for row in part) == sorted(rows)
    for key in {row[0] for row in rows}:
        (found,) = [some for part in parts if (some := [row for row in part if row[0] == key])]
        assert found == [row for row in rows if row[0] == key]


def test_files_that_cannot_grow() -> None:
    """As on a full disk: the error says where room is needed."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    rows = np.arange(100_000, dtype=np.int64)
    with NumberPartitions(2, 1) as made:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
        try:
            with pytest.raises(OutputError, match="TMPDIR"):
                made.add(rows, rows)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
