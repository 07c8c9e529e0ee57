"""Utilization: the manual's example, the manual's walk on any jobs and bins, and sums that add up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.utilization.measure import MOST_BINS, Bins, Ran, Tally
from tests.formats.utilization.dqs_walk import exactly, walk

EXAMPLE = {
    "A": Ran(8, 16),
    "B": Ran(17, 20, user_ms=1000),
    "C": Ran(22, 46, system_ms=19_000),
    "D": Ran(38, 45, system_ms=4_000),
    "E": Ran(30, 61, system_ms=29_000),
}
"""The manual's figure, with the user time of B and the system times of C, D and E that its text gives."""
INTERVAL = Bins(10, 57, 6)
"""IStart 10, IStop 56."""


def tally(jobs: list[Ran], bins: Bins) -> Tally:
    made = Tally(bins)
    for job in jobs:
        made.add(job)
    return made


def test_the_manuals_example_in_all_eight_bins() -> None:
    found = tally(list(EXAMPLE.values()), INTERVAL)
    bins = found.measured()
    assert [one.start for one in bins] == [10, 16, 22, 28, 34, 40, 46, 52]
    assert [used.seconds for used in found.sums()] == [6, 3, 6, 10, 14, 17, 6, 5]
    assert [f"{one.queue:.4f}" for one in bins] == [
        "1.0000", "0.5000", "1.0000", "1.6667", "2.3333", "2.8333", "1.0000", "0.8333",
    ]  # fmt: skip
    assert [f"{one.cpu_user:.4f}" for one in bins] == ["0.0000", "0.1667", *["0.0000"] * 6]
    assert [f"{one.cpu_system:.4f}" for one in bins] == [
        "0.0000", "0.0000", "0.7917", "1.4153", "1.9176", "2.2033", "0.9355", "0.7796",
    ]  # fmt: skip
    assert [one.jobs for one in bins] == [1, 1, 1, 2, 3, 3, 1, 1]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [
        ("A", [6, 0, 0, 0, 0, 0, 0, 0]),
        ("B", [0, 3, 0, 0, 0, 0, 0, 0]),
        ("C", [0, 0, 6, 6, 6, 6, 0, 0]),
        ("D", [0, 0, 0, 0, 2, 5, 0, 0]),
        ("E", [0, 0, 0, 4, 6, 6, 6, 5]),
    ],
)
def test_each_job_of_the_example(name: str, seconds: list[int]) -> None:
    assert [used.seconds for used in tally([EXAMPLE[name]], INTERVAL).sums()] == seconds


def test_the_last_bin_is_divided_by_its_whole_size_and_the_mean_by_what_lies_inside() -> None:
    last = tally([Ran(0, 100, user_ms=50_000, slots=4)], INTERVAL).measured()[-1]
    assert (last.inside_s, last.queue, last.queue_mean) == (5, 5 / 6, 1.0)
    assert (last.cpu_user, last.cpu_user_mean) == (5 * 0.5 / 6, 0.5)
    assert (last.slots, last.slots_mean) == (20 / 6, 4.0)


def test_the_last_second_counts() -> None:
    assert tally([Ran(56, 57)], INTERVAL).jobs == 1
    assert tally([Ran(57, 58)], INTERVAL).jobs == 0
    assert tally([Ran(9, 10)], INTERVAL).jobs == 0


def test_jobs_of_no_length_use_nothing_and_are_counted() -> None:
    found = tally([Ran(12, 12, user_ms=900), Ran(57, 57), Ran(30, 29)], INTERVAL)
    assert (found.jobs, found.zero_length) == (0, 1)
    assert not any(any(used) for used in found.sums())


@pytest.mark.parametrize(
    ("start", "stop", "number", "size", "count"),
    [(10, 57, 8, 6, 8), (0, 60, 6, 10, 6), (0, 10, 6, 2, 5), (0, 10, 10, 1, 10), (0, 10, 1, 10, 1), (-9, -2, 2, 4, 2)],
)
def test_bins_by_number(start: int, stop: int, number: int, size: int, count: int) -> None:
    bins = Bins.by_number(start, stop, number)
    assert (bins.size_s, bins.count) == (size, count)
    assert sum(inside for _, inside in bins.edges()) == stop - start


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Bins(10, 10, 6), "ends before or when it begins"),
        (lambda: Bins(10, 20, 0), "finer than a second"),
        (lambda: Bins(0, MOST_BINS + 1, 1), "too many"),
        (lambda: Bins.by_number(0, 10, 0), "at least one bin"),
        (lambda: Bins.by_number(0, 10, 11), "finer than a second"),
        (lambda: Bins.by_number(10, 0, 3), "ends before or when it begins"),
    ],
)
def test_bins_that_make_no_sense(make: object, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        make()  # type: ignore[operator]


instants = st.integers(-50, 150)
jobs = st.lists(
    st.builds(
        lambda start, length, user, system, slots: Ran(start, start + length, user, system, slots),
        instants, st.integers(-3, 120), st.integers(0, 10**7), st.integers(0, 10**7), st.integers(1, 64),
    ),
    max_size=12,
)  # fmt: skip
intervals = st.builds(lambda start, length, size: Bins(start, start + length, size),
                      instants, st.integers(1, 100), st.integers(1, 120))  # fmt: skip


@given(jobs, intervals)
def test_the_fast_path_is_the_manuals_walk(some: list[Ran], bins: Bins) -> None:
    assert list(tally(some, bins).sums()) == walk(some, bins)


@given(jobs, intervals)
def test_the_rounding_of_rates_is_finer_than_what_is_reported(some: list[Ran], bins: Bins) -> None:
    for one, exact in zip(tally(some, bins).measured(), exactly(some, bins), strict=True):
        assert (one.queue, one.cpu_user, one.cpu_system) == pytest.approx(tuple(map(float, exact)), rel=1e-15)


@given(jobs, jobs, intervals)
def test_sums_over_any_split_of_jobs_add_up(some: list[Ran], others: list[Ran], bins: Bins) -> None:
    apart = zip(tally(some, bins).sums(), tally(others, bins).sums(), strict=True)
    added = [tuple(a + b for a, b in zip(one, other, strict=True)) for one, other in apart]
    assert [tuple(used) for used in tally(some + others, bins).sums()] == added


@given(jobs, st.integers(1, 20), st.integers(1, 5), st.integers(1, 5), instants)
def test_sums_over_any_split_of_the_interval_add_up(some: list[Ran], size: int, a: int, b: int, start: int) -> None:
    whole = list(tally(some, Bins(start, start + (a + b) * size, size)).sums())
    first = list(tally(some, Bins(start, start + a * size, size)).sums())
    second = list(tally(some, Bins(start + a * size, start + (a + b) * size, size)).sums())
    assert whole == first + second
