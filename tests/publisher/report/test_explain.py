"""`--explain`: every view that reads runs prints the SQL that reads them, and says what is computed after it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from publisher.report.tables import tables_of_archive
from publisher.report.view_kind import VIEW_KINDS
from tests.publisher.cli.program import BASE, Inside
from tests.publisher.report.conftest import SOURCES

SETTINGS = """
[charges]
[[charges.prices]]
resource = "cores"
price = "0.02"
[[charges.prices]]
resource = "energy"
price = "0.02"
[[nodes]]
name = "node[1-9]"
cores = 4
watts_idle = 100
[[allocations]]
name = "all"
user = "ada"
amount = 1000
since = "2026-10-01"
until = "2026-12-01"
"""
VIEWS = [
    name
    for name, kind in VIEW_KINDS.items()
    if kind.in_sql and "job" not in kind.required and kind.options - {"statement", "archive"}
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Inside:
    made = Inside(tmp_path_factory.mktemp("explain"), BASE + SOURCES.replace("{0}", str(fixtures)) + SETTINGS)
    made("collect")
    made("archive", "archive").ok()
    return made


def test_every_view_of_runs_explains_itself() -> None:
    silent = {name for name, kind in VIEW_KINDS.items() if not kind.in_sql}
    assert silent == {"load", "late"}
    assert not any(VIEW_KINDS[name].of_runs for name in silent)


@pytest.mark.parametrize("name", VIEWS)
def test_the_sql_of_a_view_can_be_run(site: Inside, name: str) -> None:
    """Over `entries`, unless it reads tables that are made of the configuration."""
    kind = VIEW_KINDS[name]
    by = [["--by", kind.keys[0]], ["--by", kind.keys[-1]]] if kind.keys else []
    when = [] if kind.interval == "all" else ["--month", "2026-10"]
    run = 0
    for words in ([], *by):
        text = site("report", name, *when, "--archive", "archive", *words, "--explain").ok().out
        (after, *_) = re.findall(r"^-- Computed from these rows, not in SQL: (.*)\.$", text, re.MULTILINE) or [""]
        assert after == kind.after_sql
        assert "FROM entries" in text
        if re.search(r"^-- \w+: ", text, re.MULTILINE) is None:  # no table is made of the configuration
            with tables_of_archive(site.folder / "archive") as connection:
                assert connection.execute(text).description
            run += 1
    assert run or name in {"scarce", "energy", "charges", "allocations"}


@pytest.mark.parametrize("name", [*VIEWS, "late"])
def test_series_of_prometheus_differ(site: Inside, name: str) -> None:
    """Two samples of a metric with the same labels make Prometheus refuse the whole file."""
    kind = VIEW_KINDS[name]
    keys = [["--by", ",".join(kind.keys[place : place + kind.most_keys])] for place in range(len(kind.keys))]
    when = {"all": [], "month": ["--month", "2026-10"]}.get(kind.interval, ["--since", "2026-08-01"])
    for words in ([], *keys):
        text = site("report", name, *when, *words, "--format", "prom").ok().out
        for family in text_string_to_metric_families(text):
            labels = [tuple(sorted(sample.labels.items())) for sample in family.samples]
            assert len(set(labels)) == len(labels), (words, family.name)
