"""Which jobs may be missing, from the hours that a service lacks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from publisher.reconcile.lost_jobs import JobHours, may_be_tested, possibly_missing

JOBS = st.lists(st.builds(JobHours, st.integers(0, 20), st.integers(0, 5)), min_size=2, max_size=9)


@given(JOBS, st.data())
def test_what_is_missing_is_always_among_what_may_be(jobs: list[JobHours], data: st.DataObject) -> None:
    lost = data.draw(st.sets(st.integers(0, len(jobs) - 1), min_size=1, max_size=len(jobs) - 1))
    off = data.draw(st.floats(-1, 1))
    lacks = JobHours(sum(jobs[place].wall_s for place in lost) + off, sum(jobs[place].cpu_s for place in lost))
    assert lost <= possibly_missing(jobs, len(lost), lacks, JobHours(1.001, 1))


def test_hours_that_only_one_combination_has_name_the_jobs() -> None:
    jobs = [JobHours(1000 + 37 * number**2, number) for number in range(25)]
    lost = {3, 7, 11, 20, 24}
    lacks = JobHours(sum(jobs[place].wall_s for place in lost), sum(jobs[place].cpu_s for place in lost))
    assert lost <= possibly_missing(jobs, 5, lacks, JobHours(1, 25))
    assert possibly_missing(jobs[:10], 1, jobs[3], JobHours(1, 25)) == {3}


def test_hours_that_nothing_explains_and_equal_jobs_leave_all() -> None:
    jobs = [JobHours(100, 50)] * 4
    assert possibly_missing(jobs, 2, JobHours(200, 100), JobHours(1, 1)) == {0, 1, 2, 3}
    assert possibly_missing(jobs, 2, JobHours(999, 100), JobHours(1, 1)) == {0, 1, 2, 3}


def test_only_few_combinations_are_tested() -> None:
    assert may_be_tested(25, 5)
    assert not may_be_tested(100, 50)
    assert not may_be_tested(5, 0)
    assert not may_be_tested(1_001, 1)
