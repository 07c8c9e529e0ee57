"""Notes name what a report does not count: amounts that a source lacks, and months that were purged."""

from __future__ import annotations

import csv
import io
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.publisher.cli.program import BASE, Program
from tests.publisher.report.older_archive import make_older

MONTH = ("--since", "2026-11", "--until", "2026-12")
SOURCES = """
[sources.comp]
type = "slurm"
path = "{comp}"
cluster = "fixture"
timezone = "UTC"

[sources.ge]
type = "gridengine"
path = "{ge}"
cluster = "two"
"""


@pytest.fixture
def site(tmp_path: Path, fixtures: Path) -> Program:
    paths = {"comp": fixtures / "slurm" / "jobcomp.log", "ge": fixtures / "gridengine" / "real" / "accounting"}
    made = Program(tmp_path, BASE + SOURCES.format(**paths))
    made("collect").ok()
    return made


def totals(site: Program, *options: str | Path) -> dict[str, Any]:
    return site("report", "totals", *MONTH, *options, "--json").ok().object


def test_what_a_completion_log_does_not_have_is_unknown_and_not_zero(site: Program) -> None:
    found = totals(site, "--by", "cluster")
    of = {row["cluster"]: row for row in found["totals"]}
    comp, ge = of["fixture"], of["two"]
    assert comp["jobs"] == comp["cpu_unknown_jobs"] == comp["memory_unknown_jobs"] > 10
    for name in ("cpu_s", "cpu_user_s", "cpu_system_s", "memory_max_kib", "virtual_max_kib"):
        assert comp[name] is None, name
    assert comp["wall_s"] > 0
    assert (ge["cpu_unknown_jobs"], found["all"]["cpu_unknown_jobs"]) == (0, comp["jobs"])
    assert found["all"]["cpu_s"] == pytest.approx(ge["cpu_s"]) != 0
    note = f"CPU time of {comp['jobs']}"
    assert any("Unknown, and not in the sums" in said and note in said for said in found["notes"])

    shown = site("report", "totals", *MONTH, "--by", "cluster").ok()
    assert note in shown.err
    (row,) = (
        row
        for row in csv.DictReader(
            io.StringIO(site("report", "totals", *MONTH, "--by", "cluster", "--format", "csv").ok().out)
        )
        if row["cluster"] == "fixture"
    )
    assert (row["cpu_s"], row["memory_max_kib"]) == ("", "")
    cpu = site("report", "utilization", *MONTH, "--measure", "cpu", "--json").ok().object
    assert any(note in said for said in cpu["notes"])
    assert "notes" not in site("report", "utilization", *MONTH, "--measure", "queue", "--json").ok().object


def test_an_archive_has_it_too_and_one_of_an_older_program_does_not(site: Program) -> None:
    site("archive", "archive", *MONTH).ok()
    assert totals(site, "--by", "cluster", "--archive", "archive") == totals(site, "--by", "cluster")
    make_older(site.folder / "archive", "incomplete")
    found = totals(site, "--by", "cluster", "--archive", "archive")
    assert found["all"]["cpu_unknown_jobs"] == 0
    assert "notes" not in found


@pytest.mark.parametrize("view", ["utilization", "totals", "waiting", "paths"])
def test_purged_months_are_named_with_the_number_of_their_runs(site: Program, view: str) -> None:
    asked = ("report", view, "--since", "2026-09", "--until", "2026-12")
    assert "purged" not in site(*asked, "--json").ok().object
    with closing(sqlite3.connect(site.folder / "store.db", isolation_level=None)) as store:
        store.execute("INSERT INTO purged_months (month, runs, purged_at) VALUES (202610, 1234, 1), (202608, 7, 1)")
    found = site(*asked, "--json").ok().object
    assert found["purged"] == {"2026-10": 1234}
    assert "Not counted, because they were purged from the store: 2026-10 (1,234 jobs)" in found["notes"][-1]
    assert "2026-10 (1,234 jobs)" in site(*asked).ok().err
    assert "purged" not in site(*asked[:2], *MONTH, "--json").ok().object, "none in the interval"
