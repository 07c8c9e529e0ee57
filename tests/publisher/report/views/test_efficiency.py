"""`efficiency`: unknown is empty, more than all is shown, and the jobs that waste most come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.job import Host, Job
from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.report.columns import batch_of, slim_of
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make

SINCE, UNTIL = 0, 1_796_083_200


def view(site: Publisher, name: str = "efficiency", **asked: object) -> Report:
    request = ReportRequest(**{"start": SINCE, "stop": UNTIL, **asked})  # type: ignore[arg-type]
    return make(name, ReportContext(site.store, site.config, UNTIL), request)


def by_key(report: Report) -> dict[str, dict[str, object]]:
    names = [column.name for column in report.columns]
    return {str(row[0]): dict(zip(names, row, strict=True)) for row in report.rows}


def test_what_jobs_held_is_that_of_totals(every_source: Publisher, tmp_path: Path) -> None:
    every_source.archive(tmp_path / "archive")
    totals = by_key(view(every_source, "totals", by=("user",)))
    for archive in (None, tmp_path / "archive"):
        found = by_key(view(every_source, by=("user",), archive=archive))
        assert {name: (row["jobs"], row["core_h"]) for name, row in found.items()} == {
            name: (row["jobs"], row["core_h"]) for name, row in totals.items()
        }


def test_unknown_is_empty_and_more_than_all_is_shown(every_source: Publisher) -> None:
    hosts = by_key(view(every_source, by=("host",)))
    assert (hosts[""]["cpu_efficiency"], hosts[""]["cpu_h"], hosts[""]["cpu_known"]) == (None, None, 0.0)
    (plot,) = view(every_source, by=("host",)).plots
    assert [one.values[plot.x.index("(unknown)")] for one in plot.series] == [None, None]
    dora = by_key(view(every_source, by=("user",)))["dora"]
    assert dora["cpu_efficiency"] == pytest.approx(20 / 3)
    assert dora["gpu_h"] == 0.05


def test_the_jobs_that_waste_most(every_source: Publisher) -> None:
    found = view(every_source, by=("job", "user"), top=3)
    assert [row[:2] for row in found.rows] == [("105", "alice"), ("114", "alice"), ("6", "alice")]
    unused = [row[6] for row in found.rows]
    assert unused == sorted(unused, reverse=True)  # type: ignore[type-var]
    assert found.total == 112
    assert found.notes[0].startswith("3 of 112 jobs are shown")


def test_memory_that_was_used_and_asked_for(every_source: Publisher) -> None:
    """Weighted by wall time, of jobs for which both are known."""
    sql = "SELECT cluster, memory_max_kib, memory_asked_kib, wall_s FROM runs WHERE source = 'slurm'"
    rows = view(every_source, "sql", statement=sql).rows
    assert {row[2] for row in rows} == {100 * 1024}
    known = [row for row in rows if row[1] is not None]
    expected = sum(row[1] * row[3] for row in known) / sum(row[2] * row[3] for row in known)  # type: ignore[operator, misc]
    whole = view(every_source, filters={"cluster": str(rows[0][0])})
    found = dict(zip([column.name for column in whole.columns], whole.rows[0], strict=True))
    assert found["memory_efficiency"] == pytest.approx(expected)
    assert found["memory_known"] == len(known) / len(rows)
    by_source = "SELECT source, count(memory_asked_kib) FROM runs GROUP BY source HAVING count(memory_asked_kib) > 0"
    assert "gridengine" not in dict(view(every_source, "sql", statement=by_source).rows)


@pytest.mark.parametrize(
    ("extras", "slots", "hosts", "asked_kib"),
    [
        ({"ReqTRES": "billing=1,cpu=1,mem=1.5G,node=1", "ReqMem": "9Gn"}, 4, 2, 1536 * 1024),
        ({"ReqMem": "4Gc"}, 4, 2, 16 << 20),
        ({"ReqMem": "4Gn"}, 4, 2, 8 << 20),
        ({"ReqMem": "4000M"}, 4, 2, 4000 * 1024),
        ({"ReqMem": "0n"}, 4, 2, None),
        ({"ReqMem": "?"}, 4, 2, None),
        ({"Resource_List.mem": "4gb"}, 4, 2, 4 << 20),
        ({"Resource_List.mem": "much"}, 4, 2, None),
        ({"RequestMemory": 2048}, 4, 2, 2 << 20),
        ({"RequestMemory": "2 * 1024"}, 4, 2, None),
        ({"RequestMemory": "9" * 30}, 4, 2, None),
        ({"category": "-l h_vmem=4G"}, 4, 2, None),
    ],
)
def test_the_memory_that_each_source_says_was_asked_for(
    extras: dict[str, int | float | str], slots: int, hosts: int, asked_kib: int | None
) -> None:
    job = Job("r", "any", "completed", slots=slots, hosts=(Host("n"),) * hosts, start=0, end=9, extras=extras)
    (found,) = batch_of([slim_of(job)], [(1, 1)]).column("memory_asked_kib").to_pylist()
    assert found == asked_kib


def test_nothing_matches(every_source: Publisher) -> None:
    found = view(every_source, filters={"user": "q"})
    assert found.nothing == (
        "none of the 123 jobs in the interval matches; existing values: user alice, bob, carol, dora, eve, grace"
    )
    assert found.facts["all"]["cpu_efficiency"] is None


def test_the_sql_of_the_view(every_source: Publisher) -> None:
    made = view(every_source, by=("user",), filters={"job": "1*", "host": "*"}).sql
    assert made.startswith("CREATE TEMP VIEW inside AS SELECT * FROM entries WHERE")
    assert "-- asked_job: the jobs that match 1*;" in made
    assert made.rstrip().endswith("GROUP BY key0 ORDER BY key0;")


SORTS = (
    "core_h", "+core_h", "gpu_h", "+cpu_h", "+unused_core_h", "cpu_efficiency", "+cpu_efficiency", "+cpu_known",
    "+memory_efficiency", "memory_known", "+memory_known", "waiting_over_running", "+waiting_known", "job", "-user",
)  # fmt: skip


@pytest.mark.parametrize("sort", SORTS)
def test_jobs_are_selected_by_the_column_that_is_named(every_source: Publisher, sort: str) -> None:
    one_cluster = {"cluster": "default"}  # two have jobs of one number
    whole = view(every_source, by=("job", "user"), top=1000, sort=sort, filters=one_cluster)
    found = view(every_source, by=("job", "user"), top=7, sort=sort, filters=one_cluster)
    place = [column.name for column in whole.columns].index(sort.lstrip("+-"))
    assert [row[place] for row in found.rows] == [row[place] for row in whole.rows[:7]]
    assert set(found.rows) <= set(whole.rows)
    assert found.total == whole.total == len(whole.rows)
    first = "first" if sort == "job" else "last" if sort == "-user" else "smallest" if sort[0] == "+" else "largest"
    assert (
        found.notes[0]
        == f"7 of {found.total} jobs are shown, the {first} by {sort.lstrip('+-')}: choose how many with --top."
    )


def test_an_unknown_column_is_refused_where_only_some_jobs_are_shown(every_source: Publisher) -> None:
    for asked in ({"by": ("job",)}, {"by": ("job",), "filters": {"user": "nobody"}}, {"filters": {"user": "nobody"}}):
        with pytest.raises(UsageError, match="efficiency has no column 'nonsense'"):
            view(every_source, sort="nonsense", **asked)
    with pytest.raises(UsageError, match="totals has no column 'nonsense'"):
        view(every_source, "totals", sort="nonsense", filters={"user": "nobody"})
