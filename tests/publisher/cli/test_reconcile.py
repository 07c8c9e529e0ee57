"""The command reconcile, as people and programs meet it: text, JSON, exit codes, and what it asks before it sends."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

import msgspec
import pytest

from publisher.simulator import Fault
from publisher.simulator.pki import Pki
from publisher.simulator.simulator import Simulator
from publisher.store.database import open_store
from tests.publisher.cli.program import BASE, FILES, SOURCE, Program
from tests.publisher.cli.test_exit_codes import sgas

pytestmark = pytest.mark.inside

MONTHS = ("--since", "2026-01", "--until", "2027-01")


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def test_what_agrees_is_reported_in_one_line_a_month(published: Program) -> None:
    done = published("reconcile", "files", *MONTHS).ok()
    assert "files: by the files in the folder" in done.out
    assert "agrees" in done.out
    assert "differs" not in done.out
    answer = published("reconcile", "summaries", *MONTHS, "--json").ok().object["targets"]["summaries"]
    assert (answer["evidence"], answer["agrees"], answer["differences"]) == ("files", True, [])
    assert answer["notes"] == [], "SSM took nothing of this queue"
    status = published("status", "--json").object["targets"]
    assert all(target["confirmed"] == target["accepted"] > 0 for target in status.values())
    assert status["summaries"]["groups"]["confirmed"] == status["summaries"]["groups"]["accepted"]
    ((name,), *_) = published.rows("SELECT record_id FROM deliveries JOIN runs ON runs.id = run_id")
    assert ", confirmed 20" in published("jobs", name).ok().out


def test_a_queue_that_was_emptied_is_compared_with_nothing_and_says_so(published: Program) -> None:
    for message in (published.folder / "summaries").rglob("*"):
        if message.is_file():
            message.unlink()
    named = published("reconcile", "summaries", *MONTHS)
    assert named.code == 2
    assert "nothing was compared" in named.err
    assert "--file" in named.err
    others = published("reconcile", *MONTHS).ok()
    assert "nothing was compared" in others.err


def test_from_lost_to_found(collected: Program, simulator: Simulator) -> None:
    collected.configure(BASE + SOURCE + sgas(simulator))
    collected("publish").ok()
    lost = sorted(simulator.sgas.holdings())[:2]
    simulator.sgas.forget(lost)

    reported = collected("reconcile", *MONTHS, "--json")
    assert reported.code == 1
    target = reported.object["targets"]["sgas"]
    assert sum(month["missing"] for month in target["months"].values()) == 2
    assert {item["record"] for item in target["differences"]} >= set(lost)
    assert {item["kind"] for item in target["differences"]} <= {"missing", "suspect"}
    assert target["to_resend"]["jobs"] == len(target["differences"])

    some = collected("reconcile", *MONTHS, "--limit", "1", "--json").object["targets"]["sgas"]
    total = len(target["differences"])
    assert (some["differences_total"], some["differences_shown"], len(some["differences"])) == (total, 1, 1)
    assert f"sgas: the first 1 of {total} are shown" in collected("reconcile", *MONTHS, "--limit", "1").err
    assert "are shown" not in collected("reconcile", *MONTHS, "--all").err

    unasked = collected("reconcile", *MONTHS, "--resend")
    assert unasked.code == 2
    assert "differs" in unasked.out
    assert "--yes" in unasked.err
    assert len(simulator.sgas.holdings()) == 35

    sent = collected("reconcile", *MONTHS, "--resend", "--yes", "--json").ok().object
    assert sent["resent"]["sgas"]["accepted"] == target["to_resend"]["jobs"]
    assert collected("reconcile", *MONTHS, "--json").ok().object["agrees"]
    assert len(simulator.sgas.holdings()) == 37
    assert collected.rows("SELECT action FROM audit") == [("reconcile --resend",)]
    assert collected.rows("SELECT COUNT(*) FROM deliveries WHERE confirmed_at IS NOT NULL") == [(37,)]


def test_what_was_never_sent_from_here_and_is_there_counts_as_delivered_only_if_asked(collected: Program) -> None:
    query = (
        "SELECT record_id, wall_ms / 1000, cpu_ms / 1000 FROM deliveries JOIN runs ON runs.id = run_id "
        "JOIN targets ON targets.id = target_id WHERE targets.name = 'files' AND state = 1 ORDER BY record_id"
    )
    there = collected.rows(query)[:5]
    (other, wall_s, cpu_s), *same = there
    lines = [f"{record},{wall},{cpu}" for record, wall, cpu in [(other, wall_s + 60, cpu_s), *same]]
    file = collected.folder / "held.csv"
    file.write_text("\n".join(["record_id,wall_s,cpu_s", *lines]) + "\n")
    waiting = len(collected.rows(query))

    collected("reconcile", "files", "--file", file, *MONTHS)
    assert len(collected.rows(query)) == waiting
    done = collected("reconcile", "files", "--file", file, "--take-over", *MONTHS)
    assert "files: 4 jobs recorded as delivered" in done.err
    assert len(collected.rows(query)) == waiting - 4
    assert collected.rows("SELECT action, detail FROM audit") == [
        ("take over", f"4 jobs count as delivered by an earlier publisher: they are in {file}")
    ]
    again = collected("reconcile", "files", "--file", file, "--take-over", *MONTHS, "--json").object
    assert again["taken_over"] == {}
    collected("publish").ok()
    sent = "".join(each.read_text() for each in (collected.folder / "files").iterdir())
    assert not [record for record, *_ in same if record in sent]
    assert other in sent, "it is there with other hours"


def test_several_months_may_be_named(published: Program) -> None:
    reported = published(
        "reconcile", "files", "--month", "2026-11", "--month", "2026-10", "--month", "2026-11", "--json"
    )
    assert list(reported.object["targets"]["files"]["months"]) == ["2026-10", "2026-11"]


def test_jobs_and_hours_that_differ_are_listed_separately(collected: Program, simulator: Simulator) -> None:
    collected.configure(BASE + SOURCE + sgas(simulator))
    collected("publish").ok()
    row = next(iter(simulator.sgas._rows.values()))
    row.record = msgspec.structs.replace(row.record, wall="P99D")
    reported = collected("reconcile", *MONTHS, "--json").object["targets"]["sgas"]
    (difference,) = reported["differences"]
    assert difference["kind"] == "hours"
    (month,) = (month for month in reported["months"].values() if month["differing"])
    assert (month["missing"], month["foreign"], month["other_hours"]) == (0, 0, month["differing"])
    done = collected("reconcile", *MONTHS)
    assert all(name in done.out for name in ("missing", "foreign", "other values", "other hours"))
    assert "`--resend`" not in done.err, "SGAS ignores a record that it has"
    assert "remove the records that are wrong" in done.err
    again = collected("reconcile", *MONTHS, "--resend", "--yes", "--json")
    assert again.code == 1, "not to be taken for closed"


def test_what_differs_at_a_service_that_replaces_may_be_sent_again(published: Program) -> None:
    file = published.folder / "portal.csv"
    file.write_text("month,jobs\n2026-11,1\n")
    done = published("reconcile", "summaries", "--file", file)
    assert done.code == 1
    assert "`--resend` replaces what differs" in done.err
    assert "sends again what is missing" not in done.err


@pytest.mark.parametrize(
    ("target", "lines", "compared"),
    [
        ("summaries", ("month,jobs", "2026-11,1"), ["jobs"]),
        ("summaries", ("month,jobs,wall_s", "2026-11,1,7"), ["jobs", "wall"]),
        ("files", ("record_id,end", "other,2026-11-02"), ["jobs", "end"]),
        ("files", ("record_id,wall_s,cpu_s", "other,1,1"), ["jobs", "wall", "cpu"]),
    ],
)
def test_what_a_confirmation_rests_on_is_said(
    published: Program, target: str, lines: tuple[str, ...], compared: list[str]
) -> None:
    file = published.folder / "portal.csv"
    file.write_text("\n".join(lines) + "\n")
    arguments = ("reconcile", target, "--file", file, "--month", "2026-11")
    assert published(*arguments, "--json").object["targets"][target]["compared"] == compared
    said = "confirmed by numbers of jobs alone: the evidence has no wall or CPU time"
    assert (said in published(*arguments).err) == (not {"wall", "cpu"} & set(compared))


def test_a_service_that_does_not_answer_leaves_the_receipts(collected: Program, simulator: Simulator) -> None:
    collected.configure(BASE + SOURCE + sgas(simulator))
    collected("publish").ok()
    simulator.faults.replace([Fault("status", code=500, service="query")])
    done = collected("reconcile", *MONTHS).ok()
    assert collected("reconcile", *MONTHS, "--json").object["targets"]["sgas"]["compared"] == []
    assert "by receipts only" in done.out
    assert "nothing was confirmed" in done.err
    cells = [cell.strip() for cell in next(row for row in done.out.splitlines() if "2026-11 " in row).split("│")[1:-1]]
    assert cells[7:] == ["", "0", "", "", "", "receipts only"]  # receipts confirm nothing
    simulator.faults.replace([Fault("status", code=403, service="query")])
    assert collected("reconcile", *MONTHS).code == 4


def test_a_list_of_records_names_foreign_ones_and_what_to_do(published: Program) -> None:
    file = published.folder / "held.csv"
    file.write_text("record_id,end\nur-\x1b[31mother,2026-11-02T00:00:00Z\n")
    done = published("reconcile", "files", "--file", file, "--month", "2026-11")
    assert done.code == 1
    assert "\x1b" not in done.out
    assert "ur-\\x1b[31mother" in done.out
    assert "foreign records were not sent from this store" in done.err


def test_superseded_records_come_with_the_commands_for_them(collected: Program, simulator: Simulator) -> None:
    collected.configure(BASE + SOURCE + sgas(simulator))
    collected("publish").ok()
    last = "SELECT RecordID FROM AAR WHERE StatusID = 1 ORDER BY EndTime DESC LIMIT 1"
    collected.change_database(f"UPDATE AAR SET UsedWalltime = UsedWalltime + 60 WHERE RecordID = ({last})")
    collected("collect").ok()
    (record,) = (
        item["record_id"]
        for item in collected("records", "list", "--state", "superseded", "--json").ok().object["records"]
    )
    done = collected("reconcile", *MONTHS).ok()
    assert record in done.out
    for command in ("records waive RECORD --state superseded --target sgas", "records retry RECORD", "jobs RECORD"):
        assert f"usage-publisher {command}" in done.err
    assert collected("records", "retry", "--state", "superseded", "--target", "sgas").code == 2
    assert "add --state superseded" in collected("records", "retry", record).err
    collected("records", "waive", record, "--reason", "a minute").ok()
    again = collected("reconcile", *MONTHS, "--json").ok().object["targets"]["sgas"]
    assert again["differences"] == []
    assert sum(month["superseded"] for month in again["months"].values()) == 0
    assert sum(month["confirmed"] for month in again["months"].values()) == 36, "all but the one that was let be"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--month", "2026-11", "--since", "2026-10"), "cannot be combined"),
        (("--until", "2026-11"), "--until needs --since"),
        (("--month", "soon"), "is not a month"),
        (("nowhere",), "unknown target"),
        (("--file", "x.csv"), "one target"),
    ],
)
def test_wrong_questions_are_answered_by_what_would_be_right(
    published: Program, arguments: tuple[str, ...], said: str
) -> None:
    done = published("reconcile", *arguments)
    assert done.code == 2
    assert said in done.err


def test_another_run_at_work_is_not_a_difference(published: Program) -> None:
    with open_store(f"sqlite:///{published.folder / 'store.db'}").lock("target-files"):
        done = published("reconcile", "files").ok()
        reported = published("reconcile", "files", "--json").ok().object
    assert "another run is sending" in done.err
    assert (reported["agrees"], reported["targets"]["files"]["busy"]) == (False, True)


def test_before_anything_was_collected_it_says_so(fresh: Program) -> None:
    assert fresh("reconcile").code == 2
    assert FILES in fresh.config.read_text(), "with a target to reconcile"


def test_sums_of_the_source_beside_those_of_the_service(published: Program) -> None:
    done = published("reconcile", "--source", *MONTHS).ok()
    assert "files: sums of source, store, and service" in done.out
    assert "not selected" in done.out
    assert "not read" not in done.out, "a column that is 0 throughout is left out"
    answer = published("reconcile", "--source", "--by", "vo", *MONTHS, "--json").ok().object["sums"]
    assert (answer["by"], answer["agrees"], answer["sources"]["ce1"]["error"]) == ("vo", True, None)
    for rows in answer["targets"].values():
        *_, total = rows
        assert (total["month"], total["of"]) == (None, None)
        of_months = [row for row in rows if row["of"] is None and row["month"] is not None]
        of_vos = [row for row in rows if row["of"] is not None]
        for column in ("source", "store", "sent"):
            for measure in ("jobs", "core_ms", "cpu_ms"):
                sums = {sum(row[column][measure] for row in some) for some in (of_months, of_vos)}
                assert sums == {total[column][measure]}
        assert total["service"]["jobs"] == total["sent"]["jobs"] > 0


def test_sums_as_csv(published: Program) -> None:
    done = published("reconcile", "files", "--source", "--by", "user", "--format", "csv", *MONTHS).ok()
    rows = list(csv.DictReader(io.StringIO(done.out)))
    assert {row["target"] for row in rows} == {"files"}
    assert {row["measure"] for row in rows} == {"jobs", "core_ms", "cpu_ms"}
    assert rows[-1]["explained"] == "true"
    assert int(rows[-1]["source"]) > 0


def test_what_was_not_read_is_a_difference(published: Program) -> None:
    published.change_database("UPDATE AAR SET UsedWalltime = UsedWalltime + 3600 WHERE RecordID = 1")
    done = published("reconcile", "files", "--source", *MONTHS)
    assert done.code == 1
    assert "changed" in done.out
    assert "differs" in done.out
    assert published("reconcile", "files", *MONTHS).code == 0, "the service has what was sent"


def test_options_of_sums_are_for_sums(published: Program) -> None:
    for arguments in (("--by", "vo"), ("--format", "csv")):
        done = published("reconcile", *arguments)
        assert done.code == 2
        assert "--format" in done.err


def test_json_wins_over_the_format(published: Program) -> None:
    assert "sums" in published("reconcile", "files", "--source", *MONTHS, "--format", "csv", "--json").ok().object


def test_beside_the_program_of_the_batch_system(published: Program, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("bin")
    none = published("reconcile", "files", "--source", "--with-tool", *MONTHS, PATH=str(folder))
    assert none.code == 0
    assert "ce1: arcctl is not installed here" in none.err
    (folder / "arcctl").write_text("#!/bin/sh\necho 1\n")
    (folder / "arcctl").chmod(0o755)
    done = published("reconcile", "files", "--source", "--with-tool", *MONTHS, PATH=str(folder))
    assert done.code == 1
    assert "Beside the program of the batch system" in done.out
    answer = published("reconcile", "files", "--source", "--with-tool", *MONTHS, "--json", PATH=str(folder)).object
    source = answer["sums"]["sources"]["ce1"]
    assert (source["tool"]["jobs"], source["tool"]["core_ms"], source["tool_error"]) == (1, None, None)
    assert source["own"]["jobs"] == source["runs"] > 1
