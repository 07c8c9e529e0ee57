"""An archive of an older version says in every view what that version said of it; what it lacks is empty, and not 0."""

from __future__ import annotations

import json
from typing import Any, Final

import duckdb
import pytest

from publisher.report.archive import COLUMNS, LATER, months_in
from publisher.report.view_kind import VIEW_KINDS
from tests.conftest import ROOT
from tests.publisher.cli.program import Program

OLDER: Final = ROOT / "fixtures" / "archives" / "1.0"
ANSWERS: Final = json.loads((OLDER / "answers.json").read_text(encoding="utf-8"))
INTERVAL: Final = ("--since", "2026-10-01", "--until", "2026-11-20")
"""That of `make_archive.py`, where the question has none."""
LACKS: Final = {"ending", "energy_mj", "memory_asked_kib", "metered_by", "metered_mj"}
NEWER: Final = {"eligible_mean_s"}
"""Of all jobs, of which older versions had it by group only."""
MORE: Final = """
[[allocations]]
name = "thesis"
account = "atlas"
amount = 1000
since = "2026-10-01"
until = "2026-11-20"
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Program:
    """A site that has nothing but the archive."""
    text = (OLDER / "publisher.toml").read_text(encoding="utf-8")
    return Program(tmp_path_factory.mktemp("older-archive"), text + MORE)


def answer(site: Program, *asked: str) -> dict[str, Any]:
    interval = () if asked[0] in {"sql", "allocations"} or "--month" in asked else INTERVAL
    return site("report", *asked, *interval, "--archive", OLDER / "archive", "--format", "json").ok().object


def test_it_lacks_columns() -> None:
    names = set()
    for file in months_in(OLDER / "archive").values():
        with duckdb.connect(":memory:") as connection:
            names |= {row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM '{file}'").fetchall()}
    assert {*COLUMNS} - names == LACKS
    assert LACKS < LATER


@pytest.mark.parametrize("number", range(len(ANSWERS)), ids=[" ".join(one["asked"])[:40] for one in ANSWERS])
def test_a_view_says_what_it_said(site: Program, number: int) -> None:
    older = ANSWERS[number]
    added = [one for one in added_to(older["answer"], answer(site, *older["asked"])) if one[0] not in NEWER]
    assert {value for name, value in added if not name.endswith("_known")} <= {None}, "what it lacks is empty"
    assert {value for name, value in added if name.endswith("_known")} <= {0.0, None}, "of no run is it known"


def added_to(before: Any, now: Any, name: str = "") -> list[tuple[str, Any]]:
    """The names and values that are new in an answer; all others must be as they were, but for sentences, and the time
    of `sql`."""
    if isinstance(before, dict) and isinstance(now, dict):
        assert before.keys() <= now.keys()
        found = [(key, now[key]) for key in now.keys() - before.keys()]
        same = before.keys() - {"notes", "until"}
        return found + [one for key in same for one in added_to(before[key], now[key], key)]
    if isinstance(before, list) and isinstance(now, list):
        assert len(before) == len(now), name
        return [one for pair in zip(before, now, strict=True) for one in added_to(*pair, name)]
    assert before == now, name
    return []


def test_every_view_of_runs_was_asked_for_or_is_newer() -> None:
    asked = {one["asked"][0] for one in ANSWERS}
    of_archives = {kind.name for kind in VIEW_KINDS.values() if "archive" in kind.options}
    assert asked | {"energy", "allocations"} == of_archives - {"load"}  # that reads files beside it


def test_a_newer_view_has_nothing_of_what_is_lacking(site: Program) -> None:
    energy = answer(site, "energy", "--by", "user")
    assert len(energy["rows"]) > 20
    for name in ("measured_kwh", "modelled_kwh", "with_pue_kwh", "co2e_kg", "measured_share"):
        assert {row[name] for row in energy["rows"]} == {None}
    assert {row["unknown_jobs"] - row["jobs"] for row in energy["rows"]} == {0}
    (thesis,) = answer(site, "allocations")["rows"]
    assert thesis["used_h"] > 0
    (counted,) = answer(site, "sql", "SELECT count(*), count(ending), count(memory_asked_kib) FROM runs")["rows"]
    assert [*counted.values()] == [139, 0, 0]
    (by_ending,) = answer(site, "totals", "--by", "ending")["totals"]
    assert by_ending["ending"] == ""
