"""history: each run of the program is recorded when it needs the store, and at its end with what it did."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from publisher.store import history
from publisher.store.database import open_store
from tests.publisher.cli.program import Program


def runs_of(site: Program) -> list[dict[str, Any]]:
    """The runs, newest first."""
    found = site("history", "--all", "--json").ok().object
    assert found["total"] == found["shown"] == len(found["records"])
    records: list[dict[str, Any]] = found["records"]
    return records


@pytest.mark.inside
def test_what_happened_last_night_is_one_command(fresh: Program) -> None:
    assert "does not exist" in fresh("history").ok().err
    fresh("run").ok()
    (run,) = runs_of(fresh)
    assert (run["id"], run["command"], run["exit_code"], run["error"]) == (1, "run", 0, None)
    assert run["began"] <= run["ended"]
    assert run["sources"]["ce1"] == {"new": 39, "changed": 0, "unreadable": 0, "error": None}
    files = run["targets"]["files"]
    assert (files["sent"], files["confirmed"], files["rejected"], files["held"]) == (37, 37, 0, 0)
    shown = fresh("history").ok().out
    assert "run" in shown
    assert "done" in shown
    assert "exit code" not in shown
    assert "37" in fresh("history", "1").ok().out


@pytest.mark.inside
def test_every_command_that_changes_what_is_delivered_is_recorded(fresh: Program) -> None:
    fresh("collect").ok()
    fresh("publish").ok()
    fresh("republish", "files", "--since", "2026-01-01", "--until", "2026-12-31", "--yes")
    fresh("reconcile", "files")
    assert [run["command"] for run in runs_of(fresh)] == ["reconcile", "republish", "publish", "collect"]
    assert runs_of(fresh)[2]["targets"]["files"]["sent"] == 37
    for words in (("status",), ("jobs",), ("publish", "--dry-run"), ("render", "ogf-ur"), ("collect", "--unreadable")):
        fresh(*words)
    assert len(runs_of(fresh)) == 4


@pytest.mark.inside
def test_an_error_is_in_the_run_with_its_exit_code(fresh: Program) -> None:
    (fresh.folder / "accounting.db").write_text("not a database")
    assert fresh("run").code == 1
    (run,) = runs_of(fresh)
    assert run["exit_code"] == 1
    assert "accounting.db" in run["sources"]["ce1"]["error"]
    assert "accounting.db" in fresh("history", "1").ok().out
    wrong = fresh("history", "7")
    assert wrong.code == 2
    assert "run 7 is not in the history" in wrong.err


@pytest.mark.inside
def test_what_the_services_lack_and_what_is_damaged_is_in_the_run(fresh: Program) -> None:
    fresh("run").ok()
    next(iter((fresh.folder / "files").iterdir())).unlink()
    assert fresh("reconcile", "files", "--since", "2026-09", "--until", "2026-12").code == 1
    (found,) = runs_of(fresh)[0]["findings"]
    assert found.startswith("files: ")
    assert found.endswith("to what the service has: usage-publisher reconcile files")
    assert found in fresh("history", "2").out
    text = fresh.config.read_text() + '\n[targets.api]\ntype = "https"\nurl = "http://127.0.0.1:9"\nattempts = 1\n'
    fresh.configure(text.replace('records = "ogf-ur"', 'records = "ogf-ur"\nevidence = ["https://localhost:9/x"]'))
    fresh.change_store("UPDATE reconciliations SET due_at = 0")
    fresh("run")
    newest = runs_of(fresh)[0]
    (found,) = (each for each in newest["findings"] if "no evidence" in each)
    assert found.startswith("files: no evidence of what the service has: ")
    assert found in fresh("history", str(newest["id"])).out
    fresh.change_store("UPDATE runs SET wall_ms = wall_ms + 1 WHERE id = 1")
    fresh("run")
    newest = runs_of(fresh)[0]
    assert newest["exit_code"] == 5
    assert any("damaged" in each for each in newest["findings"]), newest["findings"]


@pytest.mark.inside
@pytest.mark.parametrize("command", ["run", "collect", "publish"])
def test_a_spooling_context_that_cannot_be_written_is_in_the_run(fresh: Program, command: str) -> None:
    fresh.configure(fresh.config.read_text() + '\n[spool.billing]\nformat = "delimited"\npath = "billing"\n')
    (fresh.folder / "billing").write_text("a file where the folder should be")
    assert fresh(command).code == 1
    (found,) = runs_of(fresh)[0]["findings"]
    assert found.startswith("spool.billing: ")
    assert found in fresh("history", "1").out


@pytest.mark.inside
def test_runs_are_kept_as_long_as_is_configured(fresh: Program) -> None:
    fresh("run").ok()
    fresh("run").ok()
    month_s = 31 * 86_400
    fresh.change_store("UPDATE program_runs SET began_at = began_at - ? WHERE id = 1", 4 * month_s)
    fresh("run").ok()
    assert [run["id"] for run in runs_of(fresh)] == [3, 2, 1]
    fresh.configure(fresh.config.read_text().replace("[store]\n", '[store]\nkeep_history = "3 months"\n'))
    fresh("run").ok()
    assert [run["id"] for run in runs_of(fresh)] == [4, 3, 2]


@pytest.mark.inside
def test_a_run_of_any_number_is_looked_for(fresh: Program) -> None:
    fresh("collect").ok()
    assert "run 9999999999999999999 is not in the history" in fresh("history", "9999999999999999999").err


def test_status_begins_with_the_last_run(fresh: Program) -> None:
    assert fresh("status", "--json").object["last_run"] is None
    fresh("run").ok()
    assert fresh("status", "--json").ok().object["last_run"]["id"] == 1
    assert fresh("status").ok().out.startswith("Last run: run, ")


@pytest.mark.inside
def test_a_killed_run_has_no_end(fresh: Program) -> None:
    fresh("run").ok()
    store = open_store(f"sqlite:///{fresh.folder / 'store.db'}")
    try:
        with store.write() as connection:
            history.begin(connection, "run", "host", int(time.time()), 13)
    finally:
        store.close()
    killed, before = runs_of(fresh)
    assert (killed["ended"], killed["exit_code"], before["exit_code"]) == (None, None, 0)
    line = next(line for line in fresh("history").ok().out.splitlines() if "at work, or killed" in line)
    assert "0" not in line.split("run")[1].split("at work")[0], "what it sent is not known"
    assert "at work, or killed" in fresh("status").ok().out.splitlines()[0]


@pytest.mark.inside
@pytest.mark.parametrize(
    "done",
    [
        "{",
        '{"sources":5}',
        '{"sources":{"ce1":5}}',
        '{"targets":[1]}',
        '{"reconciled":7}',
        '{"reconciled":{"out":[1]}}',
    ],
)
def test_a_run_that_cannot_be_read_is_shown_as_such_beside_the_others(fresh: Program, done: str) -> None:
    fresh("collect").ok()
    fresh("publish").ok()
    fresh.change_store("UPDATE program_runs SET done = ? WHERE id = 2", done)
    damaged, other = runs_of(fresh)
    assert (damaged["readable"], damaged["exit_code"], damaged["sources"], damaged["targets"]) == (False, 0, {}, {})
    assert "cannot be read" in damaged["error"]
    assert (other["readable"], other["error"], other["sources"]["ce1"]["new"]) == (True, None, 39)
    assert "39" in fresh("history").ok().out
    for words in (("history",), ("history", "2"), ("status",)):
        assert "cannot be read" in re.sub(r"[\s│]+", " ", fresh(*words).ok().out)
    assert "of run 2 in the history cannot be read" in re.sub(r"[\s│]+", " ", fresh("store", "check").out)
