"""Totals: what nobody knows is empty, and each run is in one row."""

from __future__ import annotations

from pathlib import Path

from publisher.api import Publisher
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make

SINCE, UNTIL = 0, 1_796_083_200
OF_GRID_ENGINE = ("memory_gb_s", "io_gb", "io_wait_s")


def totals(site: Publisher, archive: Path | None = None, **asked: object) -> Report:
    request = ReportRequest(start=SINCE, stop=UNTIL, archive=archive, **asked)  # type: ignore[arg-type]
    return make("totals", ReportContext(site.store, site.config, UNTIL), request)


def test_what_only_grid_engine_has_is_empty_elsewhere(every_source: Publisher, tmp_path: Path) -> None:
    """In the store and in an archive: 0.0 would say that the jobs of TORQUE read nothing."""
    every_source.archive(tmp_path / "archive")
    for archive in (None, tmp_path / "archive"):
        found = totals(every_source, archive, by=("cluster",))
        names = [column.name for column in found.columns]
        by_cluster = {row[0]: dict(zip(names, row, strict=True)) for row in found.rows}
        torque, both = by_cluster["batch.example.org"], by_cluster["default"]
        assert [torque[name] for name in OF_GRID_ENGINE] == [None, None, None]
        assert torque["io_unknown_jobs"] == torque["io_wait_unknown_jobs"] == torque["jobs"]
        assert all(both[name] is not None for name in OF_GRID_ENGINE)  # Grid Engine's jobs, and DQS' without
        assert 0 < both["memory_gb_s_unknown_jobs"] < both["jobs"]  # type: ignore[operator]


def test_a_run_counts_under_all_its_resources_together(every_source: Publisher) -> None:
    """By the first alone, the runs with s_rt would not be seen. The rows add up to all runs."""
    found = totals(every_source, by=("complex",))
    jobs = {row[0]: row[1] for row in found.rows}
    assert jobs["h_rt=60,s_rt=3"] == 1
    assert jobs["aix,memory=64"] == 9
    assert sum(jobs.values()) == found.facts["all"]["jobs"]  # type: ignore[arg-type]
    chosen = totals(every_source, filters={"complex": "s_rt=*"})
    assert chosen.facts["all"]["jobs"] == 1
