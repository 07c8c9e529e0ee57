"""held and rejected: list, show, retry, waive; unreadable: settle. Every decision is recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.simulator.faults import Fault
from publisher.simulator.pki import Pki
from publisher.simulator.simulator import Simulator
from tests.publisher.cli.program import BASE, FILES, SOURCE, Program

pytestmark = pytest.mark.inside

BAD = "ur-ce1.example.org-rLvfjWSagc1E00000039"
SECOND = """
[targets.others]
type = "directory"
path = "others"
records = "apel-summary"
"""
OTHER = "ur-ce1.example.org-avAbsO63BBh600000001"


@pytest.fixture(scope="module")
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


@pytest.fixture
def rejecting(collected: Program, simulator: Simulator) -> Program:
    """A site one of whose records is refused by its SGAS."""
    simulator.sgas.reset()
    simulator.faults.replace([Fault("status", texts=(BAD,))])
    client = simulator.pki.client
    collected.configure(
        f'{BASE}{SOURCE}[targets.sgas]\ntype = "sgas"\nurl = "{simulator.sgas_url}"\nattempts = 1\nbatch_records = 10\n'
        f'[credentials]\ncertificate = "{client.certificate}"\nkey = "{client.key}"\n'
        f'ca_file = "{simulator.pki.ca_file}"\n'
    )
    assert collected("publish", "-q").code == 3
    return collected


def audited(site: Program) -> list[tuple[str, str, str]]:
    entries = site("store", "audit", "--json").ok().object["records"]
    newest = site("store", "audit", "--limit", "1", "--json").ok().object
    assert (newest["total"], newest["shown"], newest["records"]) == (len(entries), min(1, len(entries)), entries[:1])
    assert (
        len(entries) < 2
        or f"the newest 1 of {len(entries)} are shown" in site("store", "audit", "--limit", "1").ok().err
    )
    return [(entry["action"], entry["subject"], entry["detail"]) for entry in entries]


def test_a_rejected_record_is_listed_shown_and_retried(rejecting: Program, simulator: Simulator) -> None:
    (listed,) = rejecting("records", "list", "--state", "rejected", "--json").ok().object["records"]
    assert (listed["target"], listed["record_id"]) == ("sgas", BAD)
    assert "500" in listed["reason"]
    assert listed["end_time"].endswith("Z")
    shown = rejecting("records", "show", BAD, "--state", "rejected").ok().out
    assert "-> sgas: rejected since" in shown
    assert f'recordId="{BAD}"' in shown
    assert BAD in rejecting("records", "list", "--state", "rejected").ok().out
    (reported,) = rejecting("records", "show", BAD, "--state", "rejected", "--json").ok().object["records"]
    assert (reported["record_id"], reported["targets"]["sgas"]["state"]) == (BAD, "rejected")
    assert f'recordId="{BAD}"' in reported["messages"]["sgas"]

    simulator.faults.replace([])
    assert rejecting("records", "retry", "--state", "rejected", "--target", "sgas", "--json").ok().object == {
        "target": "sgas", "state": "rejected", "waiting_again": 1,
    }  # fmt: skip
    assert rejecting("publish").code == 0
    assert len(simulator.sgas.holdings()) == 37
    assert audited(rejecting) == [("retry rejected", "sgas", "all 1")]


def test_a_record_of_several_targets_is_decided_for_one(collected: Program) -> None:
    text = collected.config.read_text() + SECOND
    collected.configure(text.replace('complete_since = "2026-09-01"', 'complete_since = "2026-10-01"'))
    assert collected("publish", "-q").code == 3
    done = collected("records", "waive", OTHER, "--reason", "x")
    assert done.code == 2
    assert f"record {OTHER} is held for others, held for summaries. Choose one with --target and --state" in done.err
    waived = collected("records", "waive", OTHER, "--reason", "x", "--target", "others", "--json").ok().object
    assert waived == {"target": "others", "state": "held", "waived": 1}
    assert collected("records", "retry", OTHER, "--json").ok().object["target"] == "summaries"
    assert collected("records", "retry", OTHER, "--json").code == 2, "it waits"


def test_a_rejected_record_is_waived(rejecting: Program) -> None:
    assert rejecting("records", "waive", BAD, "--reason", "a test job").code == 0
    target = rejecting("status", "--json").ok().object["targets"]["sgas"]
    assert (target["rejected"], target["waived"], target["accepted"]) == (0, 1, 36)
    assert audited(rejecting) == [("waive rejected", "sgas", f"{BAD}: a test job")]
    assert rejecting("records", "list", "--state", "rejected").ok().err == "no record is rejected\n"


def test_only_what_is_rejected_can_be_retried(rejecting: Program) -> None:
    done = rejecting("records", "retry", BAD, OTHER)
    assert done.code == 2
    assert f"record {OTHER} is not rejected for target sgas" in done.err
    assert len(rejecting("records", "list", "--state", "rejected", "--json").object["records"]) == 1, "all or nothing"
    assert audited(rejecting) == []


def test_unreadable_input_is_settled_with_a_reason(fresh: Program) -> None:
    log = fresh.folder / "accounting"
    log.write_bytes(b"no record\nnor this\n")
    fresh.configure(f'{BASE}[sources.ge]\ntype = "gridengine"\npath = "{log}"\ncluster = "c"\n{FILES}')
    done = fresh("collect", "--json")
    assert done.object["sources"]["ge"]["unreadable"] == 2
    assert "ge: 2 pieces of input could not be read; `usage-publisher collect --unreadable` lists them" in done.err
    settling = ("collect", "ge", "--unreadable", "--settle")
    for wrong, said in (
        (settling, "settling needs a reason"),
        (("collect", "--settle", "--reason", "x"), "--settle needs --unreadable"),
        (
            ("collect", "--unreadable", "--reason", "x"),
            "--reason, --piece, --user, and --lines need --settle or --accept",
        ),
        ((*settling, "--lines", "9-3", "--reason", "x"), "--lines 9-3 is not a range of lines"),
        (("collect", "nosuch", "--unreadable"), "unknown source 'nosuch'"),
    ):
        done = fresh(*wrong)
        assert done.code == 2
        assert said in done.err
    assert "Unreadable input:" in fresh("status").out
    assert "the newest 1 of 2 are shown" in fresh("collect", "--unreadable", "--limit", "1").ok().err
    part = fresh("collect", "--unreadable", "--limit", "1", "--json").ok().object
    assert (part["total"], part["shown"], part["records"]) == (2, 1, part["records"])
    assert fresh("collect", "--unreadable", "--all", "--json").ok().object["shown"] == 2
    assert fresh("collect", "--limit", "1").code == 2
    listed = fresh("collect", "--unreadable").ok().out
    done = fresh(*settling, "--reason", "a test").ok()
    assert done.out == listed, "what is settled is shown"
    assert "ge: 2 settled" in done.err
    assert "Unreadable input:" not in fresh("status").out
    assert fresh("collect", "--unreadable").ok().err == "no input is unreadable\n"
    assert fresh(*settling, "--reason", "a test", "--json").ok().object["records"] == []
    ((action, subject, detail),) = audited(fresh)
    assert (action, subject) == ("settle unreadable", "ge")
    assert detail.startswith(f"2 pieces of 1 file, {log}:1 (")
    assert detail.endswith("): a test")


def test_a_log_that_was_rotated_out_of_sight_is_an_error_until_it_is_found_or_settled(
    fresh: Program, fixtures: Path
) -> None:
    """Tested from the log of Grid Engine to the exit codes."""
    lines = (fixtures / "gridengine" / "accounting-8.1.9").read_bytes().splitlines(keepends=True)
    log = fresh.folder / "accounting"
    old = fresh.folder / "old"
    old.mkdir()
    source = f'{BASE}[sources.ge]\ntype = "gridengine"\npath = "{log}"\ncluster = "c"\n'
    fresh.configure(source + FILES)
    log.write_bytes(b"".join(lines[:20]))
    fresh("collect").ok()
    for number, name in enumerate(("one", "two"), 1):
        with log.open("ab") as file:
            file.writelines(lines[20:])
        log.rename(old / name)
        log.write_bytes(lines[-number])
        fresh("collect")
        (row,) = fresh("collect", "--unreadable", "--json").ok().object["records"]
        assert (row["file"], row["line"], row["raw"]) == (str(log), None, "")
        done = fresh("run")
        assert done.code == 1
        assert str(log) in done.err
        status = fresh("status", "--json").ok().object
        assert status["complete"] is False
        assert status["sources"]["ge"]["unread_files"] == 1
        assert str(log) in status["sources"]["ge"]["error"]
        assert fresh("check").code == 1
        if name == "one":
            fresh("collect", "--unreadable", "--settle", "--reason", "it is lost").ok()
        else:
            fresh.configure(source + f'rotated_to = "{old}"\n' + FILES)
            assert fresh("collect", "--json").ok().object["sources"]["ge"]["new"] > 0
        source_status = fresh("status", "--json").ok().object["sources"]["ge"]
        assert (source_status["unread_files"], source_status["error"]) == (0, None)
    ((action, subject, detail),) = audited(fresh)
    assert (action, subject) == ("settle unreadable", "ge")
    assert detail.endswith("it is lost")


def test_a_document_of_nothing_but_beginnings_is_counted_and_not_kept(fresh: Program) -> None:
    """Once 50 MB of it made 2.4 million entries."""
    history = fresh.folder / "history.xml"
    history.write_bytes(b'<?xml version="1.0"?>\n' * 20_000)
    fresh.configure(f'{BASE}[sources.condor]\ntype = "htcondor"\npath = "{history}"\n{FILES}')
    collected = fresh("collect", "--json")
    assert collected.object["sources"]["condor"]["unreadable"] == 20_000
    assert fresh("status", "--json").object["sources"]["condor"]["unreadable"] == 20_000
    listed = fresh("collect", "--unreadable", "--json").ok().object
    assert (len(listed["records"]), listed["total"]) == (1_000, 20_000)
    assert "at most 1,000 pieces of a file are kept" in fresh("collect", "--unreadable").ok().err


def test_held_records_are_released_by_what_they_lack(collected: Program) -> None:
    whole = collected.config.read_text()
    collected.configure(whole.replace('complete_since = "2026-09-01"', 'complete_since = "2026-10-01"'))
    assert collected("publish", "-q").code == 3
    records = collected("records", "list", "--state", "held", "--target", "summaries", "--json").ok().object["records"]
    assert OTHER in {record["record_id"] for record in records}
    assert {record["target"] for record in records} == {"summaries"}
    assert all("complete_since" in record["reason"] for record in records)
    assert "-> summaries: held since" in collected("records", "show", OTHER, "--state", "held").ok().out
    assert collected("records", "waive", OTHER, "--target", "summaries", "--reason", "counted by hand").code == 0
    assert audited(collected) == [("waive held", "summaries", f"{OTHER}: counted by hand")]
    collected.configure(whole)
    assert collected("publish", "--json").object["targets"]["summaries"]["held"] == 0


def test_equal_reasons_are_reported_once_and_each_record_where_asked_for(collected: Program) -> None:
    text = collected.config.read_text()
    collected.configure(text.replace('complete_since = "2026-09-01"', 'complete_since = "2026-10-01"'))
    assert collected("publish", "-q").code == 3
    records = collected("records", "list", "--state", "held", "--json").ok().object["records"]
    assert len(records) > 3
    said = collected("publish", "--dry-run").ok().err
    assert f"summaries: {len(records)} records held already: `run` tries them again" in said.replace("\n", " ")
    reported = collected("records", "list", "--state", "held").ok().out
    assert reported.count("does not show that it has every job") == 1
    assert records[0]["record_id"] in reported
    assert f"and {len(records) - 1} more" in reported
    each = collected("records", "list", "--state", "held", "--each").ok().out
    assert all(record["record_id"] in each for record in records)
    some = collected("records", "list", "--state", "held", "--each", "--limit", "2").ok()
    assert re.search(
        r"^summaries, held: the oldest 2 of \d+ are shown; --limit N or --all shows more$", some.err, re.MULTILINE
    )
    reported = collected("records", "list", "--state", "held", "--limit", "2", "--json").ok().object
    whole = collected("records", "list", "--state", "held", "--all", "--json").ok().object
    assert (reported["total"], reported["shown"]) == (whole["total"], len(reported["records"]))
    assert whole["total"] == whole["shown"] == len(whole["records"]) > reported["shown"]
    assert collected("records", "list", "--state", "held", "--all", "--limit", "2").code == 2
    assert "are shown" not in collected("records", "list", "--state", "held", "--all").ok().err
