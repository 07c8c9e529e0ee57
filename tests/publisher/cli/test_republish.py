"""republish: the window as a month or by its ends, and the plan in sentences."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from formats.registry import names_of
from publisher.config.target_registry import TARGET_KINDS
from tests.docs.json_schema import violations
from tests.publisher.cli.program import BASE, FILES, SOURCE, SUMMARIES, Program

pytestmark = pytest.mark.inside


def test_a_month_is_the_window_between_its_ends(published: Program) -> None:
    by_month = published("republish", "files", "--month", "2026-10", "--dry-run", "--json").ok().object
    by_ends = published("republish", "files", "--since", "2026-10", "--until", "2026-11", "--dry-run", "--json").ok()
    assert by_month == by_ends.object
    assert by_month["plan"]["to_send"] > 0


def test_the_reasons_to_hold_are_sentences_for_people_and_codes_for_programs(published: Program) -> None:
    published.configure(BASE + SOURCE + FILES + 'unknown_vo = "hold"\n')
    window = ("republish", "files", "--since", "2026-09", "--until", "2026-12", "--dry-run")
    held = published(*window, "--json").ok().object["plan"]["to_hold"]
    assert list(held) == ["no-vo"]
    shown = published(*window).ok().err
    assert f"    {held['no-vo']}, for example: " in shown
    assert "unknown, and this target needs it. Add a rule [[sources.ce1.map]]" in shown
    assert "no-vo" not in shown


_ADDRESS: Final = {
    "sgas": 'url = "https://localhost:1/sgas"',
    "ams": 'url = "https://localhost:1"\nproject = "accounting"\ntopic = "gLite-APEL"\nlocal_jobs = "send"',
    "https": 'url = "https://localhost:1"',
    "directory": 'path = "out"',
    "auditor": 'url = "https://localhost:1"',
    "waldur": f'url = "https://localhost:1"\noffering = "{"0" * 32}"\nby = "vo"',
}
_TARGETS: Final = [
    (kind, name)
    for kind in TARGET_KINDS
    for name in (names_of("record", "totals", "report") if kind == "directory" else ("", "emi-car", "apel-summary"))
    if (kind, name) not in {("sgas", "emi-car"), ("sgas", "apel-summary"), ("https", "")}
    and not (kind in {"auditor", "waldur"} and name)
]


@pytest.mark.parametrize(("kind", "name"), _TARGETS)
def test_the_plan_follows_its_schema_with_every_kind_of_target(
    collected: Program, root: Path, kind: str, name: str
) -> None:
    records = f'records = "{name}"\n' if name else ""
    target = f'\n[targets.new]\ntype = "{kind}"\n{_ADDRESS[kind]}\n{records}'
    window = ("--json", "republish", "new", "--since", "2026-09", "--until", "2026-12", "--dry-run")
    schema = json.loads((root / "docs" / "reference" / "schemas" / "republish.json").read_text(encoding="utf-8"))
    for more in ("", 'unknown_vo = "hold"\n'):
        collected.configure(BASE + SOURCE + target + more)
        plan = collected(*window).ok().object
        assert violations(schema, plan) == []
        assert plan["plan"]["to_send"] + sum(plan["plan"]["to_hold"].values()) > 0


def test_a_change_of_the_benchmark_is_announced_as_what_it_sends(published: Program) -> None:
    other = SOURCE.replace("14.2", "15.5")
    assert other != SOURCE
    published.configure(BASE + other + SUMMARIES)
    shown = published("republish", "summaries", "--month", "2026-10", "--dry-run").ok().err
    assert "replaced by the same" not in shown
    done = published("--json", "republish", "summaries", "--month", "2026-10", "--yes").ok().object
    groups = done["plan"]["to_send_groups"]
    assert groups["new"] == groups["emptied"] > 0
    assert groups["changed"] == 0
    total = sum(groups.values())
    assert f"{total:,} summaries will be sent: {groups['new']:,} new, 0 changed, {groups['emptied']:,} emptied" in shown
    assert done["targets"]["summaries"]["groups"] == total
