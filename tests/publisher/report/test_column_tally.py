"""The tally over columns: the manual's walk and the tally of single runs, to the last digit."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from formats.utilization.measure import Bins, Ran, Tally
from publisher.report.column_tally import ColumnTally
from tests.formats.utilization.dqs_walk import walk

instants = st.integers(-50, 150) | st.sampled_from([-(10**11), 10**11])
amounts = st.integers(0, 10**7) | st.sampled_from([1 << 40, 1 << 62])
runs = st.lists(
    st.builds(
        lambda start, length, user, system, slots: Ran(start, start + length, user, system, slots),
        instants, st.integers(-3, 120) | st.sampled_from([10**6, 1 << 37]), amounts, amounts,
        st.integers(1, 64) | st.just(1 << 40),
    ),
    max_size=12,
)  # fmt: skip
intervals = st.builds(
    lambda start, length, size: Bins(start, start + length, size),
    st.integers(-50, 150), st.integers(1, 100), st.integers(1, 120) | st.just(1 << 40),
)  # fmt: skip


def columns(some: list[Ran], bins: Bins, groups: list[int] | None = None) -> ColumnTally:
    made = ColumnTally(bins)
    table = [np.array([run[place] for run in some], np.int64) for place in range(5)]
    made.add(*table, None if groups is None else np.array(groups, np.int64))
    return made


@given(runs, intervals)
def test_columns_are_the_manuals_walk(some: list[Ran], bins: Bins) -> None:
    found = columns(some, bins)
    assert found.sums() == walk(some, bins)
    alone = Tally(bins)
    for run in some:
        alone.add(run)
    assert (found.jobs, found.zero_length) == (alone.jobs, alone.zero_length)


@given(st.lists(st.tuples(runs, runs), max_size=3), intervals)
def test_groups_are_tallied_each_by_itself_and_in_any_number_of_pieces(
    pieces: list[tuple[list[Ran], list[Ran]]], bins: Bins
) -> None:
    made = ColumnTally(bins)
    for first, second in pieces:
        some = first + second
        table = [np.array([run[place] for run in some], np.int64) for place in range(5)]
        made.add(*table, np.array([0] * len(first) + [3] * len(second), np.int64))
    made.reserve(4)
    assert made.sums(0) == walk([run for first, _ in pieces for run in first], bins)
    assert made.sums(3) == walk([run for _, second in pieces for run in second], bins)


@given(st.lists(st.tuples(runs, runs), max_size=4), intervals)
def test_what_was_tallied_separately_is_added_up_to_the_same(
    pieces: list[tuple[list[Ran], list[Ran]]], bins: Bins
) -> None:
    """Each piece has two groups, which are 2 and 0 of the whole."""
    whole = ColumnTally(bins)
    for first, second in pieces:
        piece = columns(first + second, bins, [0] * len(first) + [1] * len(second))
        piece.reserve(2)
        whole.merge(piece, [2, 0])
    whole.reserve(3)
    firsts, seconds = ([run for piece in pieces for run in piece[place]] for place in (0, 1))
    assert whole.sums(2) == walk(firsts, bins)
    assert whole.sums(0) == walk(seconds, bins)
    together = columns(firsts + seconds, bins)
    assert (whole.jobs, whole.zero_length) == (together.jobs, together.zero_length)


def test_many_runs_of_years_do_not_overflow() -> None:
    """A hundred thousand runs of 30 years with 16 000 cores each, in a bin of 30 years: far beyond 64 bits."""
    year = 365 * 86_400
    bins = Bins(0, 30 * year, 30 * year)
    run = Ran(0, 30 * year, 16_000_000 * 30 * year, 7, 1 << 20)
    count = 100_000
    made = ColumnTally(bins)
    made.add(*(np.full(count, value, np.int64) for value in run))
    (one,) = walk([run], bins)
    assert made.sums() == [tuple(count * amount for amount in one)]


@given(runs, runs, intervals)
def test_sums_over_any_split_of_runs_add_up(some: list[Ran], others: list[Ran], bins: Bins) -> None:
    apart = zip(columns(some, bins).sums(), columns(others, bins).sums(), strict=True)
    assert columns(some + others, bins).sums() == [tuple(map(sum, zip(*pair, strict=True))) for pair in apart]


@given(runs, st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), st.integers(-50, 150))
def test_sums_over_any_split_of_the_interval_add_up(some: list[Ran], size: int, a: int, b: int, start: int) -> None:
    whole = columns(some, Bins(start, start + (a + b) * size, size)).sums()
    first = columns(some, Bins(start, start + a * size, size)).sums()
    second = columns(some, Bins(start + a * size, start + (a + b) * size, size)).sums()
    assert whole == first + second
