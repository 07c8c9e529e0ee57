"""Moving over from the APEL client: with what it sent and what we send, APEL has every job once, per batch system."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from publisher.store.schema import State
from tests.publisher.migrate.apel_client import SYSTEMS, Apel, ClientSite, end_of, fixture_jobs, job_name, jobs_of

OCTOBER, NOVEMBER = "10", "11"
CE = "ce1.example.org:9619/ce1.example.org-condor"
COUNTS_CORES_OTHERWISE = {"pbs", "lsf"}
"""Batch systems of which the client counts one core for an entry of several."""

systems = pytest.mark.parametrize("system", SYSTEMS)
with_local_jobs = pytest.mark.parametrize("local", [True, False], ids=["local jobs", "grid"])


def truth(*, local: bool) -> dict[tuple[str, str], int]:
    """Jobs by month and SubmitHost, as the logs have them."""
    found = {(OCTOBER, CE): 8, (OCTOBER, "None"): 7, (NOVEMBER, CE): 1}
    return {key: jobs for key, jobs in found.items() if local or key[1] != "None"}


def after_the_client(site: ClientSite, summaries: str = "summaries.tsv") -> Apel:
    apel = Apel().take_client("summaries", site.client_rows(summaries))
    return apel.take_client("sync", site.client_rows("sync.tsv")).take(site.ours)


@systems
def test_the_fixtures_are_what_the_client_sent(fixtures: Path, tmp_path: Path, system: str) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system)
    (log,) = (site.logs / "batch").iterdir()
    line, _, name = fixture_jobs().SYSTEMS[system]
    assert log.name == name
    assert log.read_text().splitlines() == [line(job) for job in sorted(jobs_of(), key=end_of)], "run the client again"
    apel = Apel().take_client("summaries", site.client_rows("summaries.tsv"))
    assert apel.summarised == apel.take_client("sync", site.client_rows("sync.tsv")).synced
    assert sum(apel.summarised.values()) == len(site.client_rows("records.tsv"))


# --- summaries


@with_local_jobs
@pytest.mark.parametrize("system", sorted(SYSTEMS.keys() - COUNTS_CORES_OTHERWISE))
def test_summaries_replace_those_of_the_client(fixtures: Path, tmp_path: Path, system: str, *, local: bool) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system, local=local)
    site.go()
    apel = after_the_client(site)
    assert apel.summarised == apel.synced == truth(local=local)


def test_without_the_clients_spelling_they_would_count_twice(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "torque")
    site.set(vo_spelling=None, submit_host=None)
    site.go()
    assert sum(after_the_client(site).summarised.values()) > 16


def test_a_client_without_cores(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "torque", parallel=False)
    site.go()
    assert after_the_client(site, "summaries-parallel-false.tsv").summarised == truth(local=True)
    site.set(summary_counts=None, vo_spelling=None, submit_host=None)
    site("run").ok()
    assert sum(after_the_client(site, "summaries-parallel-false.tsv").summarised.values()) == 16, (
        "and its spelling ends"
    )


@with_local_jobs
@systems
def test_summaries_taken_over_in_any_spelling(fixtures: Path, tmp_path: Path, system: str, *, local: bool) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system, local=local)
    site.set(vo_spelling=None, submit_host=None, summary_counts=None)
    site("run").ok()
    export = site.export("summaries.tsv")
    found = site.shadow("--against", export)
    assert found.code == 3
    assert found.object["would_count_twice"] == found.object["other_key"] > 0
    site.take_over(export)
    assert site.ours == []
    site.go()
    apel = after_the_client(site)
    assert apel.summarised == apel.synced
    assert sum(apel.summarised.values()) == sum(truth(local=local).values())


@pytest.mark.parametrize("system", sorted(COUNTS_CORES_OTHERWISE))
def test_cores_that_the_client_counts_otherwise_are_shown(fixtures: Path, tmp_path: Path, system: str) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system)
    site("run").ok()
    export = site.export("summaries.tsv")
    found = site.shadow("--against", export)
    assert found.code == 3
    parts = {part["field"] for each in found.object["records"] for part in each.get("key", ())}
    assert "Processors" in parts <= {"NodeCount", "Processors"}
    site.take_over(export)
    site.go()
    apel = after_the_client(site)
    assert apel.summarised == apel.synced == truth(local=True)


@systems
def test_a_cut_over_at_the_start_of_a_month(fixtures: Path, tmp_path: Path, system: str) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system)
    site.set(since='"2026-11-01"')
    site.go()
    apel = after_the_client(site)
    october = {(OCTOBER, CE): 8, (OCTOBER, "None"): sum(job.fqan is None for job in jobs_of())}
    october[OCTOBER, "None"] -= {"slurm": 1, "gridengine": 1, "lsf": 1}.get(system, 0)  # what the client loses
    assert apel.summarised == apel.synced == {**october, (NOVEMBER, CE): 1}


def test_what_was_taken_over_is_replaced_once(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "lsf")
    site("run").ok()
    site.take_over(site.export("summaries.tsv"))
    site.go()
    sent = site.ours
    assert sent
    site("run").ok()
    assert site.ours == sent
    audit = site("store", "audit").ok().out
    assert "8 summaries count as delivered by an earlier publisher" in audit


def test_months_of_which_the_client_sent_more_are_not_taken_over(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "torque")
    site.set(local_jobs='"skip"')
    site("run").ok()
    done = site.shadow("--against", site.export("summaries.tsv"), "--take-over")
    assert done.code == 2
    assert "sent 15 jobs of 2026-10, and apel would be sent 8" in done.err
    assert site.rows("SELECT count(*) FROM groups") == [(0,)]


@pytest.mark.parametrize(("records", "table"), [("apel-summary", "summaries.tsv"), ("apel-job", "records.tsv")])
def test_nothing_of_another_site_is_taken_over(fixtures: Path, tmp_path: Path, records: str, table: str) -> None:
    """Groups of another site would be sent with no jobs, and jobs of it hide ours of the same number and end."""
    site = ClientSite(fixtures, tmp_path / "site", "torque", records=records)
    site("run").ok()
    export = site.export(table)
    head, first, *_ = export.read_text().splitlines()
    column = head.split("\t").index("Site")
    cells = first.split("\t")
    with export.open("a") as file:
        file.write("\t".join([*cells[:column], "OTHER-SITE", *cells[column + 1 :]]) + "\n")
    done = site.shadow("--against", export, "--take-over")
    assert done.code == 2
    assert "sent records of OTHER-SITE" in done.err
    assert site.rows("SELECT count(*) FROM groups") == [(0,)]
    assert site.rows(f"SELECT count(*) FROM deliveries WHERE state = {int(State.ACCEPTED)}") == [(0,)]


# --- job records


@pytest.mark.parametrize(("records", "local"), [("apel-job", True), ("apel-job", False), ("emi-car", True)], ids=str)
@systems
def test_job_records(fixtures: Path, tmp_path: Path, system: str, records: str, *, local: bool) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system, records=records, local=local)
    site("run").ok()
    export = site.export("records.tsv")
    found = site.shadow("--against", export)
    assert found.object["only_there"] == 0
    assert found.code == (3 if found.object["would_count_twice"] else 0)
    site.take_over(export)
    again = site.shadow("--against", export).ok().object
    assert again["would_count_twice"] == 0
    site.go()
    client = Apel().take_client("jobs", site.client_rows("records.tsv"))
    assert client.take(site.ours).jobs == expected(system, local=local)


def expected(system: str, *, local: bool) -> Counter[tuple[str, int]]:
    """Each job once. Of two tasks that end in one second, Grid Engine's and LSF's have one record of the client's."""
    found = Counter((job_name(job), end_of(job)) for job in jobs_of() if local or job.fqan is not None)
    if system in {"gridengine", "lsf"}:
        found = Counter(dict.fromkeys(found, 1))
    return found


@pytest.mark.parametrize("system", ["torque", "htcondor", "pbs"])
def test_without_taking_over_job_records_would_count_twice(fixtures: Path, tmp_path: Path, system: str) -> None:
    site = ClientSite(fixtures, tmp_path / "site", system, records="apel-job")
    site.go()
    client = Apel().take_client("jobs", site.client_rows("records.tsv"))
    assert client.take(site.ours).jobs == Counter(
        {job: 2 * times for job, times in expected(system, local=True).items()}
    )


def test_what_the_client_had_not_sent_yet_is_sent(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    site("run").ok()
    rows = [row for row in site.client_rows("records.tsv") if row["EndTime"] < "2026-10-01 06"]
    export = site.folder / "sent.csv"
    export.write_text("Site,LocalJobId,EndTime\n" + "".join(",".join([*row.values()][:3]) + "\n" for row in rows))
    site.take_over(export)
    site.go()
    assert Apel().take_client("jobs", rows).take(site.ours).jobs == expected("torque", local=True)
    assert 0 < len(rows) < 16


def test_messages_of_job_records_do_as_well(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    site("run").ok()
    text = site("render", "apel-job", "--target", "apel").ok().out
    copies = site.folder / "copies"
    copies.mkdir()
    copy = re.sub(r"^(LocalJobId: \S+)$", r"\1.lrms.example.org", text, flags=re.MULTILINE)
    (copies / "message").write_text(copy)
    found = site.shadow("--against", copies)
    assert (found.code, found.object["other_key"], found.object["differs"]) == (3, 16, 0)
    assert found.object["records"][0]["key"] == [
        {"field": "LocalJobId", "theirs": "1042.lrms.example.org", "ours": "1042", "reason": ""}
    ]
    site.take_over(copies)
    assert site.rows("SELECT count(*) FROM deliveries WHERE reason = 'assumed'") == [(16,)]


@pytest.mark.parametrize("own_site", [False, True], ids=["the site", "a source of another site"])
def test_what_would_be_held_was_sent_by_the_client_all_the_same(
    fixtures: Path, tmp_path: Path, *, own_site: bool
) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    if own_site:
        text = site.config.read_text()
        name = site.client_rows("records.tsv")[0]["Site"]
        assert f'name = "{name}"' in text
        text = text.replace(f'name = "{name}"', 'name = "FIRST-SITE"')
        site.configure(re.sub(r"^(\[sources\.lrms\])$", rf'\1\nsite = "{name}"', text, flags=re.MULTILINE))
    score = 'benchmark = { type = "HEPscore23", value = 14.2 }\n'
    site.configure(site.config.read_text().replace(score, ""))
    assert site("run").code in {0, 3}
    export = site.export("records.tsv")
    assert site.shadow("--against", export).object["other_key"] == 16
    site.take_over(export)
    site.configure(site.config.read_text().replace("[targets.apel]", score + "\n[targets.apel]", 1))
    site.go()
    assert site.ours == []


def test_two_tasks_that_are_one_record_there_are_named(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "gridengine", records="apel-job")
    site("run").ok()
    export = site.export("records.tsv")
    found = site.shadow("--against", export).object
    (ambiguous,) = [each for each in found["records"] if each.get("same_as")]
    assert {ambiguous["record"].split("/")[-2], ambiguous["same_as"].split("/")[-2]} == {"1053.2", "1053.3"}
    site.take_over(export)
    states = site.rows("SELECT count(*) FROM deliveries WHERE reason = 'assumed'")
    assert states == [(16,)]


def test_a_record_of_the_client_delivers_one_of_two_runs_with_its_key(fixtures: Path, tmp_path: Path) -> None:
    """Two batch systems use the same numbers: only a person knows whether they are one job, and which was sent."""
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    text = site.config.read_text()
    (source,) = re.findall(r"^\[sources\.lrms\]\n(?:.+\n)+", text, flags=re.MULTILINE)
    other = re.sub("grid_log.*\n", "", source).replace("sources.lrms", "sources.other").replace("/batch", "/other")
    site.configure(text.replace(source, f"{source}\n{other}\n"))
    shutil.copytree(site.folder / "batch", site.folder / "other")
    for log in (site.folder / "other").iterdir():
        log.write_text(log.read_text().replace(".lrms.example.org", ".other.example.org"))
    site("run")
    copies = site.folder / "copies"
    copies.mkdir()
    (copies / "message").write_text(site("render", "apel-job", "--target", "apel").out)
    found = site.shadow("--against", copies, "--take-over").object
    shared = [each for each in found["records"] if each.get("same_as")]
    assert len(shared) == 16
    by_state = "SELECT state, count(*) FROM deliveries GROUP BY state ORDER BY state"
    assert dict(site.rows(by_state)) == {int(State.ACCEPTED): 16, int(State.WAITING): 16}
    site.set(shadow=None)
    site("run")
    assert dict(site.rows(by_state)) == {int(State.ACCEPTED): 16, int(State.HELD): 16}
    assert [message for message in site.ours if not message.startswith(b"APEL-sync-message")] == []
