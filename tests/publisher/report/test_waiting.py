"""Waiting, scarce resources and paths, on four jobs that are reckoned by hand: see `torque_site`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.api import Publisher
from publisher.report.waiting import percentile
from tests.publisher.report.torque_site import HOUR, table, torque_site, view


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Publisher:
    return torque_site(tmp_path_factory.mktemp("waiting"))


def test_waits_of_all_and_by_user(site: Publisher) -> None:
    """Waits: ada 60 and 120 s, bob two hours and 30 s (a job that still runs). Eligible ten seconds after each."""
    columns = ("jobs", "mean_s", "median_s", "p90_s", "p99_s", "longest_s", "eligible_mean_s")
    assert table(view(site, "waiting"), *columns) == [(4, 1852.5, 60, 7200, 7200, 7200, 1842.5)]
    assert table(view(site, "waiting", by=("owner",)), "owner", *columns) == [
        ("ada", 2, 90.0, 60, 120, 120, 120, 80.0),
        ("bob", 2, 3615.0, 30, 7200, 7200, 7200, 3605.0),
    ]


def test_by_day_and_size(site: Publisher) -> None:
    found = table(view(site, "waiting", by=("day", "size")), "day", "size", "jobs", "median_s")
    assert found == [
        ("2026-03-01", "2 to 4 slots", 1, 60),
        ("2026-03-02", "2 to 4 slots", 2, 120),
        ("2026-03-03", "1 slot", 1, 30),
    ]
    (plot,) = view(site, "waiting", by=("day",)).plots
    assert (plot.title, plot.unit) == ("Wait by day", "h")  # two hours are the longest
    assert plot.series[0].values == (60 / 3600, 120 / 3600, 30 / 3600)


def test_a_job_counts_where_it_started(site: Publisher) -> None:
    found = view(site, "waiting", filters={"owner": "nobody"})
    assert found.nothing == "none of the 4 runs in the interval matches; there are: owner ada, bob"


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 99))
def test_a_percentile_is_the_shortest_wait_that_so_many_do_not_exceed(waits: list[int], percent: int) -> None:
    found = percentile(np.array(sorted(waits), np.int64), percent)
    assert found in waits
    assert 100 * sum(wait <= found for wait in waits) >= percent * len(waits)
    assert 100 * sum(wait < found for wait in waits) < percent * len(waits)


def test_scarce_is_what_was_taken_and_waited_for(site: Publisher) -> None:
    """From 18:00 on 2 March until 06:00 job 3 held all of n2 (small), and waited two hours."""
    start = 1_772_474_400
    found = view(site, "scarce", start=start, stop=start + 12 * HOUR)
    rows = table(found, "type", "resource", "occupation", "jobs", "p90_wait_s", "scarce")
    assert [row for row in rows if row[1] == "cores"] == [
        ("compute", "cores", 0.25, 1, 7200, ""),  # job 3 has several hosts and counts under its first
        ("small", "cores", 1.0, 0, None, ""),
    ]
    assert found.notes[0].startswith("Scarce: taken for 80% or more")


def test_scarce_of_one_type(tmp_path: Path) -> None:
    """On nodes of 1 and 2 cores of one type, job 3 holds everything and waited two hours: scarce."""
    nodes = '[[nodes]]\nname = "n1"\ncores = 1\n[[nodes]]\nname = "n2"\ncores = 2\n'
    site = torque_site(tmp_path, nodes=nodes)
    found = view(site, "scarce", start=1_772_474_400, stop=1_772_474_400 + 12 * HOUR)
    (row,) = [row for row in table(found, "resource", "occupation", "p90_wait_s", "scarce") if row[0] == "cores"]
    assert row == ("cores", 1.0, 7200, "scarce")
    site.close()


def test_paths(site: Publisher) -> None:
    assert table(view(site, "paths"), "path", "jobs", "share", "example") == [
        ("Q S E", 2, 0.5, "1"),
        ("Q S", 1, 0.25, "4"),
        ("Q S+ E", 1, 0.25, "3"),
    ]
    assert view(site, "paths").notes[0] == "Events: Q queued, S started, E ended; + again at once."
    events = table(view(site, "paths", filters={"job": "3"}), "job", "event", "meaning")
    assert events == [("3", "Q", "queued"), ("3", "S", "started"), ("3", "S", "started"), ("3", "E", "ended")]
