"""`efficiency`: unknown is empty, more than all is shown, and the jobs that waste most come first."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.api import Publisher
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


def test_nothing_matches(every_source: Publisher) -> None:
    found = view(every_source, filters={"user": "q"})
    assert found.nothing == (
        "none of the 123 runs in the interval matches; existing values: user alice, bob, carol, dora, eve, grace"
    )
    assert found.facts["all"]["cpu_efficiency"] is None


def test_the_sql_of_the_view(every_source: Publisher) -> None:
    made = view(every_source, by=("user",), filters={"job": "1*", "host": "*"}).sql
    assert made.startswith("CREATE TEMP VIEW inside AS SELECT * FROM entries WHERE")
    assert "-- asked_job: the jobs that match 1*;" in made
    assert made.rstrip().endswith("GROUP BY key0 ORDER BY key0;")
