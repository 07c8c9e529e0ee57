"""What commands print and exit with when the store is damaged."""

from __future__ import annotations

import pytest

from tests.publisher.cli.program import Program

pytestmark = pytest.mark.inside


def test_damage_that_a_run_finds_is_shown_by_it_and_by_status(published: Program) -> None:
    published.change_store("UPDATE runs SET job = x'01ff00' WHERE id = 3")
    found = published("run", "--json")
    assert found.code == 5
    checked = found.object["checked"]
    assert (len(checked["damage"]), checked["damaged_jobs"], checked["error"]) == (1, 1, None)
    assert "found by this run" in found.err
    assert "store check" in found.err
    later = published("run", "--json").ok()
    assert (later.object["checked"]["damage"], later.object["checked"]["damaged_jobs"]) == ([], 1)
    assert "the store has 1 damaged run" in later.err
    status = published("status", "--json").object
    assert (status["damaged_jobs"], status["delivered"]) == (1, False)
    assert "Damaged:            1 stored job" in published("status").out


@pytest.mark.parametrize(
    "command",
    [("run",), ("publish",), ("republish", "files", "--since", "2026-01-01", "--until", "2027-01-01", "--yes")],
)
def test_what_was_sent_is_shown_though_the_store_cannot_be_read_afterwards(
    collected: Program, command: tuple[str, ...]
) -> None:
    collected.change_store("DROP TABLE check_progress")
    done = collected(*command, "--json")
    assert done.code == 5
    assert done.object["targets"]["files"]["accepted"] == 37
    assert "waiting" not in done.object["targets"]["files"]
    assert "check_progress" in done.object["error"]
    assert done.object["exit_code"] == 5
    assert "check_progress" in done.err
    shown = collected(*command)
    assert shown.code == 5
    assert "files" in shown.out
