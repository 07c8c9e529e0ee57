"""Every stored job is shown by `status`, for each target: also what is waived, not selected, or of a removed source."""

from __future__ import annotations

from typing import Any

import pytest

from tests.publisher.cli.program import BASE, FILES, SOURCE, WHOLE, Program

pytestmark = pytest.mark.inside

STATES = ("accepted", "waiting", "in_flight", "rejected", "held", "waived", "superseded", "not_selected")


def state_of(site: Program) -> dict[str, Any]:
    return site("status", "--json").ok().object


def require_every_job(found: dict[str, Any]) -> None:
    """The states are disjoint, and there is no other place for a job."""
    shown = (*found["sources"].values(), *found["removed_sources"].values())
    jobs = sum(source["jobs"] for source in shown)
    assert {name: sum(target[state] for state in STATES) for name, target in found["targets"].items()} == dict.fromkeys(
        found["targets"], jobs
    )


def test_jobs_that_are_not_to_be_sent_are_shown(published: Program) -> None:
    """39 jobs and 37 accepted looked like two that were lost: they failed before they ran."""
    found = state_of(published)
    require_every_job(found)
    assert found["targets"]["files"]["not_selected"] == 2
    table = published("status").ok().out
    header = next(line for line in table.splitlines() if "superseded" in line)
    assert "not selected" in header
    assert "waived" not in header


def test_what_is_waived_is_shown(collected: Program) -> None:
    collected.configure(BASE + SOURCE.replace("benchmark =", "#") + FILES.replace("ogf-ur", "apel-job"))
    assert collected("publish").code == 3
    held = collected("records", "list", "--state", "held", "--json").ok().object["records"]
    (record, *others) = [each["record_id"] for each in held]
    waived = ("--state", "held", "--target", "files", "--reason", "a test job")
    collected("records", "waive", record, *waived).ok()
    found = state_of(collected)
    require_every_job(found)
    assert (found["targets"]["files"]["waived"], found["targets"]["files"]["held"]) == (1, len(others))
    assert "waived" in collected("status").ok().out


def test_a_source_that_left_the_configuration_is_shown(published: Program) -> None:
    published.configure(WHOLE.replace("[sources.ce1]", "[sources.ce2]"))
    found = state_of(published)
    require_every_job(found)
    assert found["removed_sources"] == {"ce1": {"jobs": 39, "last_job_end": "2026-11-19T03:13:18Z"}}
    assert "not in the configuration any more" in published("status").ok().out


def test_a_target_that_left_the_configuration_is_shown_with_what_waits_for_it(collected: Program) -> None:
    collected.configure(BASE + SOURCE)
    found = state_of(collected)
    removed = found["removed_targets"]["files"]
    assert (removed["waiting"], removed["accepted"]) == (37, 0)
    assert found["removed_targets"].keys() == {"files", "summaries"}
    shown = collected("status").ok().out
    assert "37 jobs are not delivered to files; add [targets.files] again to send them" in shown


def test_a_target_without_a_plan_has_no_count(published: Program) -> None:
    published.configure(WHOLE + FILES.replace("targets.files", "targets.more").replace('path = "files"', 'path = "x"'))
    assert state_of(published)["targets"]["more"]["not_selected"] is None


def test_a_backup_counts_as_status_does(published: Program) -> None:
    """After a purge too: its jobs were delivered, and are counted."""
    before = state_of(published)
    for number in range(2):
        done = published("store", "backup", f"backup{number}.db", "--json").ok().object
        counted = sum(target[state] for target in before["targets"].values() for state in STATES[:-1])
        assert (done["jobs"], done["deliveries"]) == (before["sources"]["ce1"]["jobs"], counted)
        purged = published("store", "purge", "--before", "2026-10", "--yes", "--json").ok().object
        assert bool(purged["plan"]["runs"]) == (not number)
        assert state_of(published)["sources"] == before["sources"]
    assert "39 jobs, 74 deliveries" in published("store", "backup", "last.db").ok().err
