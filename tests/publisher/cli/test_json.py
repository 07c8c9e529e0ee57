"""What programs can rely on: one object on standard output, the promised keys, whatever the exit code."""

from __future__ import annotations

from datetime import datetime, timedelta
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.publisher.cli.program import Program

STATUS_SOURCE = {"jobs", "unreadable", "last_collected", "last_job_end"}
STATUS_TARGET = {
    "accepted", "confirmed", "waiting", "in_flight", "rejected", "held", "waived", "superseded", "last_sent_end_time",
    "complete_until", "oldest_waiting_end_time", "last_success", "last_error", "certificate_expires",
}  # fmt: skip
COLLECTED = {"read", "jobs", "new", "changed", "unchanged", "merged", "skipped", "unreadable"}
DELIVERED = {"accepted", "rejected", "held", "waiting", "in_flight", "batches", "bytes"}
RENDERED = {"records", "held", "rejected", "files", "bytes"}


def test_collect(fresh: Program) -> None:
    first = fresh("collect", "--json").ok().object["sources"]["ce1"]
    assert first.keys() >= COLLECTED
    assert (first["read"], first["new"], first["unchanged"]) == (40, 39, 0)
    again = fresh("collect", "--json", "--since", "2026-09").ok().object["sources"]["ce1"]
    assert (again["new"], again["changed"], again["unchanged"]) == (0, 0, 39)


def test_status_before_anything(fresh: Program) -> None:
    found = fresh("status", "--json").ok().object
    assert (found["complete"], found["delivered"]) == (False, False)
    assert found["sources"]["ce1"].keys() >= STATUS_SOURCE
    assert {name: target.keys() >= STATUS_TARGET for name, target in found["targets"].items()} == {
        "files": True,
        "summaries": True,
    }
    assert not (fresh.folder / "store.db").exists()


def test_status_when_all_is_delivered(published: Program) -> None:
    found = published("status", "--json").ok().object
    assert (found["site"], found["version"]) == ("EXAMPLE-SITE", version("usage-publisher"))
    assert datetime.fromisoformat(found["now"]).utcoffset() == timedelta(0)
    assert (found["complete"], found["delivered"]) == (True, True)
    assert (found["sources"]["ce1"]["jobs"], found["sources"]["ce1"]["last_job_end"]) == (39, "2026-11-19T03:13:18Z")
    for target in found["targets"].values():
        assert target.keys() >= STATUS_TARGET
        assert (target["accepted"], target["waiting"], target["oldest_waiting_end_time"]) == (37, 0, None)
        assert target["last_sent_end_time"] == "2026-11-19T03:13:18Z"
        assert target["last_success"].endswith("Z")
    assert found["targets"]["summaries"]["groups"]["accepted"] > 0
    assert "groups" not in found["targets"]["files"]


def test_status_while_something_waits(collected: Program) -> None:
    target = collected("status", "--json").ok().object["targets"]["files"]
    assert (target["waiting"], target["oldest_waiting_end_time"]) == (37, "2026-09-03T02:23:43Z")


def test_publish_and_nothing_more_to_publish(collected: Program) -> None:
    first = collected("publish", "--json").ok().object["targets"]
    assert {name: target.keys() >= DELIVERED for name, target in first.items()} == {"files": True, "summaries": True}
    written = sum(path.stat().st_size for path in (collected.folder / "files").iterdir())
    assert (first["files"]["accepted"], first["files"]["bytes"]) == (37, written)
    again = collected("publish", "--json").ok().object["targets"]
    assert [(again[name]["accepted"], again[name]["batches"]) for name in again] == [(0, 0), (0, 0)]


def test_publish_to_one_lists_all(collected: Program) -> None:
    found = collected("publish", "files", "--json").object["targets"]
    assert (found["files"]["waiting"], found["summaries"]["waiting"]) == (0, 37)


def test_run(fresh: Program) -> None:
    found = fresh("run", "--json").ok().object
    assert found["sources"]["ce1"].keys() >= COLLECTED
    assert found["targets"]["summaries"].keys() >= DELIVERED
    assert found["targets"]["files"]["accepted"] == found["targets"]["summaries"]["accepted"] == 37


def test_republish(published: Program) -> None:
    window = ("republish", "files", "--since", "2026-10", "--until", "2026-11", "--json")
    plan = published(*window, "--dry-run").ok().object["plan"]
    assert plan["new"] == plan["changed"] == 0
    assert plan["unchanged"] == plan["to_send"] > 0
    sent = published(*window, "--yes").ok().object
    assert sent["plan"] == plan
    assert sent["targets"].keys() == {"files", "summaries"}
    assert sent["targets"]["files"].keys() >= DELIVERED
    assert sent["targets"]["files"]["accepted"] == plan["to_send"]


def test_render(collected: Program) -> None:
    found = collected("render", "ogf-ur", "--json").ok().object
    assert found.keys() >= RENDERED
    assert (found["records"], found["held"], found["rejected"]) == (37, 0, 0)


@pytest.mark.parametrize("command", ["held", "rejected"])
def test_lists_of_nothing(published: Program, command: str) -> None:
    assert published("records", "list", "--state", command, "--json").ok().object == {
        "total": 0,
        "shown": 0,
        "records": [],
    }


def test_check(published: Program) -> None:
    findings = published("check", "--json").ok().object["findings"]
    assert {frozenset(finding) for finding in findings} == {frozenset({"subject", "level", "message", "hint"})}
    assert "red" not in {finding["level"] for finding in findings}


def test_audit(published: Program) -> None:
    published("republish", "files", "--since", "2026-10", "--until", "2026-11", "--yes").ok()
    (entry,) = published("store", "audit", "--json").ok().object["records"]
    assert entry.keys() == {"at", "who", "action", "subject", "detail"}
    assert (entry["action"], entry["subject"]) == ("republish", "files")


def test_unreadable_input(collected: Program) -> None:
    assert collected("collect", "--unreadable", "--json").ok().object == {
        "total": 0, "shown": 0, "records": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    "arguments", [("--json", "status"), ("status", "--json"), ("--quiet", "status", "--json", "-v")]
)
def test_json_may_be_anywhere(collected: Program, arguments: tuple[str, ...]) -> None:
    assert "targets" in collected(*arguments).ok().object


def test_json_after_a_double_dash_is_not_an_option(collected: Program) -> None:
    done = collected("jobs", "--", "--json")
    assert (done.code, done.out) == (2, "")
    assert "job --json not found" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("nosuch",),
        ("status", "--nosuch"),
        ("render",),
        ("publish", "nosuch"),
        ("jobs", "nosuch"),
        ("records", "nosuch"),
    ],
)
def test_the_object_is_there_when_the_command_line_is_wrong(collected: Program, arguments: tuple[str, ...]) -> None:
    done = collected(*arguments, "--json")
    assert done.code == 2
    assert done.object["exit_code"] == 2
    assert done.object["error"]
    assert done.err


def test_the_object_is_there_when_there_is_no_configuration(tmp_path: Path) -> None:
    done = Program(tmp_path)("--config", "elsewhere.toml", "status", "--json")
    assert done.code == done.object["exit_code"] == 2
    assert "elsewhere.toml: there is no configuration file" in done.object["error"]


def test_a_dry_run_of_publish_sends_what_it_said(collected: Program) -> None:
    announced = collected("publish", "--dry-run", "--json").ok().object["targets"]
    assert (announced["files"]["records"], announced["files"]["held"]) == (37, 0)
    assert collected("status", "--json").object["targets"]["files"]["waiting"] == 37
    assert not (collected.folder / "files").exists()
    collected("publish").ok()
    files = sorted((collected.folder / "files").iterdir())
    assert (announced["files"]["messages"], announced["files"]["bytes"]) == (
        len(files),
        sum(file.stat().st_size for file in files),
    )
    query = "SELECT COUNT(*), SUM(bytes) FROM batches JOIN targets ON targets.id = target_id WHERE name = 'summaries'"
    summaries_and_sync = announced["summaries"]["messages"], announced["summaries"]["bytes"]
    assert [summaries_and_sync] == collected.rows(query)
    assert collected("publish", "--dry-run", "nosuch").code == 2
    assert "Nothing was sent" in collected("publish", "--dry-run", "files").ok().err


def test_republish_of_an_empty_window_sends_nothing(collected: Program) -> None:
    done = collected("republish", "files", "--since", "2020-01", "--until", "2020-02", "--json").ok()
    assert (done.object["plan"]["to_send"], done.object["targets"]["files"]["waiting"]) == (0, 37)
    assert "nothing to send again in this window" in done.err
    assert not (collected.folder / "files").exists()


def test_republish_counts_what_waits_outside_its_window(collected: Program) -> None:
    window = ("republish", "files", "--since", "2026-10", "--until", "2026-11")
    plan = collected(*window, "--dry-run", "--json").ok().object["plan"]
    assert plan["to_send"] + plan["waiting_elsewhere"] == 37
    assert f"{plan['waiting_elsewhere']} more wait that ended outside" in collected(*window, "--dry-run").ok().err
    done = collected(*window, "--yes", "--json").ok().object["targets"]["files"]
    assert (done["accepted"], done["waiting"]) == (plan["to_send"], plan["waiting_elsewhere"])


def test_json_wins_over_format_and_the_ending_of_output_implies_one(published: Program) -> None:
    asked = ("report", "totals", "--by", "vo", "--since", "2026-09", "--until", "2026-12")
    whole = published(*asked, "--json").ok().object
    assert whole.keys() >= {"view", "since", "until", "totals"}
    assert published(*asked, "--json", "--format", "csv").ok().object == whole
    published(*asked, "--output", "totals.svg").ok()
    assert (published.folder / "totals.svg").read_bytes().startswith(b"<?xml")
    assert published(*asked, "--json", "--output", "totals.csv").ok().object == whole
    assert (published.folder / "totals.csv").read_text().startswith("vo,")
