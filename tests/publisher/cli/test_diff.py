"""render --diff: what would be sent compared with what was last delivered."""

from __future__ import annotations

import pytest

from tests.publisher.cli.program import Program

pytestmark = pytest.mark.inside

COUNTED = ("new", "changed", "unchanged", "gone", "unknown", "held")


def change_a_job(site: Program) -> None:
    """ARC corrects a job that was delivered."""
    site.change_database("UPDATE AAR SET UsedWalltime = UsedWalltime + 60, CPUCount = 8 WHERE RecordID = 3")
    site("collect", "--since", "2026-09").ok()


def counts(found: dict[str, object]) -> dict[str, object]:
    return {name: found[name] for name in COUNTED if found[name]}


def test_before_anything_was_sent_all_is_new(collected: Program) -> None:
    found = collected("render", "ogf-ur", "--diff", "--json").ok().object
    assert counts(found) == {"new": len(found["records"])}
    assert found["records"][0]["fields"] == []


def test_a_changed_job_is_shown_field_by_field(published: Program) -> None:
    change_a_job(published)
    before = published("status", "--json").object["targets"]
    found = published("render", "ogf-ur", "--target", "files", "--since", "2026-09", "--diff", "--json").ok().object
    (record,) = found["records"]
    assert counts(found)["changed"] == 1
    assert found["new"] == found["gone"] == found["unknown"] == 0
    assert found["unchanged"] > 30
    assert record["fields"] == [
        {"field": "WallDuration", "before": "PT15461S", "after": "PT15521S"},
        {"field": "Processors", "before": "1", "after": "8"},
    ]
    assert published("status", "--json").object["targets"] == before, "nothing was changed by looking"


def test_summaries_show_groups_that_are_new_and_gone(published: Program) -> None:
    change_a_job(published)
    done = published("render", "apel-summary", "--since", "2026-09", "--diff").ok()
    assert [line.partition(":")[0] for line in done.out.splitlines()] == ["new", "gone"], "processors are of the key"
    published.change_database("UPDATE AAR SET CPUCount = 1 WHERE RecordID = 3")
    published("collect", "--since", "2026-09").ok()
    found = published("render", "apel-summary", "--since", "2026-09", "--diff", "--json").ok().object
    (record,) = found["records"]
    assert record["kind"] == "changed"
    assert [field["field"] for field in record["fields"]] == ["WallDuration"]


def test_what_was_published_is_unchanged(published: Program) -> None:
    for name, target in (("ogf-ur", "files"), ("apel-summary", "summaries"), ("apel-sync", "summaries")):
        arguments = ("render", name, "--target", target, "--since", "2026-09", "--diff", "--json")
        found = published(*arguments).ok().object
        assert counts(found) == {"unchanged": found["unchanged"], **({"held": found["held"]} if found["held"] else {})}
        assert found["unchanged"] > 0


def test_a_comparison_needs_a_target(published: Program) -> None:
    done = published("render", "emi-car", "--diff")
    assert (done.code, "--target" in done.err) == (2, True)
