"""Waiting, scarce resources and paths, on four jobs that are reckoned by hand: see `torque_site`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.api import Publisher
from publisher.page.charts import chart_of
from publisher.report.plot.draw import draw
from publisher.report.plot.style import Look, unknown_text
from publisher.report.plot.terminal import TextPlot
from publisher.report.views.waiting import waits_of
from tests.publisher.cli.program import BASE
from tests.publisher.report.plot.test_draw import texts
from tests.publisher.report.torque_site import HOUR, at, table, torque_site, view


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    with torque_site(tmp_path_factory.mktemp("waiting")) as collected:
        yield collected


def test_waits_of_all_and_by_user(site: Publisher) -> None:
    """Waits: ada 60 and 120 s, bob two hours and 30 s (a job that still runs). Eligible ten seconds after each."""
    columns = ("jobs", "mean_s", "median_s", "p90_s", "p99_s", "longest_s", "eligible_mean_s")
    assert table(view(site, "waiting"), *columns) == [(4, 1852.5, 60, 7200, 7200, 7200, 1842.5)]
    assert table(view(site, "waiting", by=("user",)), "user", *columns) == [
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
    assert (plot.title, plot.unit) == ("Waiting time by day", "waiting time (h)")  # two hours are the longest
    assert plot.series[0].values == (60 / 3600, 120 / 3600, 30 / 3600)


def test_a_period_without_jobs_is_not_unknown(site: Publisher) -> None:
    """On 28 February nothing started: a gap, without a mark."""
    report = view(site, "waiting", by=("day",), start=at(1) - 24 * HOUR)
    (plot,) = report.plots
    assert (plot.series[0].values[0], plot.labels[0], plot.without_jobs) == (None, "2026-02-28", {0})
    assert unknown_text(plot) == ""
    assert json.loads(chart_of(plot, at(4)).data)["without_jobs"] == [0]
    for style in ("bar", "line"):
        look = Look(style=style)  # type: ignore[arg-type]
        assert "?" not in texts(draw(plot, at(4), look, "svg"))
        lines = TextPlot(80, unicode=False, coloured=False).lines(plot, at(1), at(4), look)
        assert not any("?" in line.plain for line in lines)


def test_a_period_whose_jobs_have_no_submission_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "20260301").write_text(
        "".join(
            f"03/0{day}/2026 13:00:00;E;{day}.srv;user=a queue=a {submitted}start={at(day, 12)} end={at(day, 13)} "
            "exec_host=n1/0 Exit_status=0 resources_used.walltime=01:00:00\n"
            for day, submitted in ((1, f"ctime={at(1, 11)} qtime={at(1, 11)} "), (3, ""))
        )
    )
    config = tmp_path / "publisher.toml"
    config.write_text(f'{BASE}[sources.torque]\ntype = "torque"\npath = "{tmp_path}/2026*"\n')
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        report = view(publisher, "waiting", by=("day",))
    (plot,) = report.plots
    assert report.notes[0] == "Jobs left out, because their submission is unknown or after their start: 1."
    assert (plot.series[0].values, plot.without_jobs) == ((60.0, None, None), {1})
    assert unknown_text(plot) == "? or a gap: unknown"
    assert texts(draw(plot, at(4), Look(style="bar"), "svg")).count("?") == 2, "of each series, on the 3rd"


def test_of_an_interval_to_come_nothing_is_drawn(site: Publisher) -> None:
    report = view(site, "utilization", start=at(20), stop=at(23))
    assert [plot.x for plot in report.plots] == [(), ()]
    assert report.notes == ("The interval begins after now: no job can have run yet.",)


def test_a_job_counts_where_it_started(site: Publisher) -> None:
    found = view(site, "waiting", filters={"user": "nobody"})
    assert found.nothing == "none of the 4 jobs in the interval matches; existing values: user ada, bob"


some_runs = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from("abc"), st.integers(0, 3), st.integers(-3, 40), st.none() | st.integers(0, 9)
    ),
    max_size=25,
)  # fmt: skip


@given(some_runs)
def test_sql_counts_the_first_start_of_each_job(rows: list[tuple[int, str, int, int, int | None]]) -> None:
    """Group, job, submission, start, eligible since: the first start of each job counts.

    Percentiles are those of the nearest rank, not between two jobs.
    """
    columns = '"group" BIGINT, job VARCHAR, submit BIGINT, "start" BIGINT, eligible BIGINT'
    with duckdb.connect(":memory:") as connection:
        connection.execute(f'CREATE TABLE runs ({columns}, "end" BIGINT, run BIGINT)')
        values = [str((*row, 0, 0)).replace("None", "NULL") for row in rows]
        if values:
            connection.execute(f"INSERT INTO runs VALUES {', '.join(values)}")
        asked = "(SELECT * FROM runs WHERE submit <= start)"
        found = waits_of(lambda statement: connection.execute(statement).fetchall(), asked, ['"group"'])
        alone = waits_of(lambda statement: connection.execute(statement).fetchall(), asked, [])
    unknown = 10**6  # sorts last
    first: dict[tuple[str, int], tuple[int, int, int]] = {}
    for group, job, submit, start, eligible in rows:
        if submit <= start:
            since = unknown if eligible is None or eligible > start else eligible
            run = (start - submit, group, since)
            first[job, submit] = min(first.get((job, submit), run), run)
    assert found.all == alone.all
    assert [waits.jobs for waits in alone.by_group.values()] == ([len(first)] if first else [])
    for (of_group,), waits in found.by_group.items():
        of_jobs = sorted(run for run in first.values() if run[1] == of_group)
        ordered = [waited for waited, _, _ in of_jobs]
        assert (waits.jobs, waits.total_s, waits.longest_s) == (len(ordered), sum(ordered), ordered[-1])
        ranks = [ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 90, 99)]
        assert [waits.median_s, waits.p90_s, waits.p99_s] == ranks
        assert waits.eligible_jobs == sum(since != unknown for _, _, since in of_jobs)
    assert sum(waits.jobs for waits in found.by_group.values()) == len(first)


def test_scarce_is_what_was_taken_and_waited_for(site: Publisher) -> None:
    """From 18:00 on 2 March until 06:00 job 3 held all of n2 (small), and waited two hours."""
    start = 1_772_474_400
    found = view(site, "scarce", start=start, stop=start + 12 * HOUR)
    rows = table(found, "type", "resource", "occupation", "jobs", "p90_wait_s", "scarce")
    assert [row for row in rows if row[1] == "cores"] == [
        ("compute", "cores", 0.25, 1, 7200, ""),  # job 3 has several hosts and counts under its first
        ("small", "cores", 1.0, 0, None, ""),
    ]
    assert found.notes[0].startswith("Scarce: occupation of 80 % or more")


def test_scarce_of_one_type(tmp_path: Path) -> None:
    """On nodes of 1 and 2 cores of one type, job 3 holds everything and waited two hours: scarce."""
    nodes = '[[nodes]]\nname = "n1"\ncores = 1\n[[nodes]]\nname = "n2"\ncores = 2\n'
    with torque_site(tmp_path, nodes=nodes) as site:
        found = view(site, "scarce", start=1_772_474_400, stop=1_772_474_400 + 12 * HOUR)
        (row,) = [row for row in table(found, "resource", "occupation", "p90_wait_s", "scarce") if row[0] == "cores"]
        assert row == ("cores", 1.0, 7200, "scarce")


def test_scarce_reads_runs_once_for_all_resources(site: Publisher) -> None:
    found = view(site, "scarce")
    assert {row[0] for row in table(found, "resource")} == {"cores", "memory"}
    assert "Unknown, and not in the sums: resident memory of 1 of 4 jobs." in found.notes
    assert found.sql.count("AS job FROM matching)") == 1


def test_paths(site: Publisher) -> None:
    assert table(view(site, "paths"), "path", "jobs", "share", "example") == [
        ("Q S E", 2, 0.5, "1"),
        ("Q S", 1, 0.25, "4"),
        ("Q S+ E", 1, 0.25, "3"),
    ]
    assert view(site, "paths").notes[0] == "Events: Q queued, S started, E ended; + repeated at once."
    events = table(view(site, "paths", filters={"job": "3"}), "job", "event", "meaning")
    assert events == [("3", "Q", "queued"), ("3", "S", "started"), ("3", "S", "started"), ("3", "E", "ended")]


def test_paths_with_several_ends(tmp_path: Path) -> None:
    """A build of TORQUE that keeps the usage of reruns writes an E for each run."""
    folder = tmp_path / "accounting"
    folder.mkdir()
    common = "1.srv;user=a queue=a ctime={0} qtime={0} start={1} exec_host=n1/0"
    ends = [at(1, 13), at(1, 15)]
    lines = ["03/01/2026 12:00:00;Q;1.srv;queue=a\n"]
    for end in ends:
        reported = common.format(at(1, 12), end - HOUR)
        hour = 12 + ends.index(end) * 2
        lines += [
            f"03/01/2026 {hour}:00:00;S;{reported}\n",
            f"03/01/2026 {hour + 1}:00:00;E;{reported} end={end} Exit_status=0 resources_used.walltime=01:00:00\n",
            f"03/01/2026 {hour + 1}:00:01;R;1.srv;\n",
        ]
    (folder / "20260301").write_text("".join(lines[:-1]))
    config = tmp_path / "publisher.toml"
    config.write_text(f'{BASE}[sources.torque]\ntype = "torque"\npath = "{folder}"\n')
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        assert table(view(publisher, "paths"), "path", "jobs", "example") == [("Q S E R S E", 1, "1")]
