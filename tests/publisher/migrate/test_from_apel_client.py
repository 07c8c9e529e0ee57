"""Moving over from the APEL client: with what it sent and what we send, APEL has every job once, per batch system."""

from __future__ import annotations

import csv
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from formats.text import read_date_time
from publisher.store.schema import State
from tests.publisher.migrate.apel_client import (
    SYSTEMS,
    Apel,
    ClientSite,
    end_of,
    fixture_jobs,
    job_name,
    jobs_of,
    number_of,
)

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
    site.take_over(export, site.export("sync.tsv"))
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
    assert site.shadow("--against", export, "--take-over").code == 2, "it is unknown whether this is all"
    counts = site.folder / "counts.csv"
    counts.write_text(f"Site,SubmitHost,NumberOfJobs,Month,Year\nEXAMPLE-SITE,None,{len(rows)},10,2026\n")
    site.take_over(export, counts)
    site.go()
    assert Apel().take_client("jobs", rows).take(site.ours).jobs == expected("torque", local=True)
    assert 0 < len(rows) < 16


def whole_table(site: ClientSite) -> Path:
    """An export of all columns that matter of the client's job records."""
    jobs = {(job_name(job), end_of(job), task): job for job in jobs_of() for task in {job.task, 0}}
    lines = ["Site\tLocalJobId\tStartTime\tEndTime\tWallDuration\tCpuDuration\tInfrastructureDescription\n"]
    for row in site.client_rows("records.tsv"):
        end = read_date_time(row["EndTime"].replace(" ", "T"))
        task = re.search(r"[\[_](\d)", row["LocalJobId"])
        job = jobs[number_of(row["LocalJobId"]), end, int(task[1]) if task else 0]
        amounts = f"{end - job.wall}\t{end}\t{job.wall - job.uncounted}\t{job.wall // 2}"
        lines.append(f"{row['Site']}\t{row['LocalJobId']}\t{amounts}\tAPEL-CREAM-{site.system.upper()}\n")
    path = site.folder / "table.tsv"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize("records", ["apel-job", "emi-car"])
def test_a_whole_table_is_compared_value_by_value(fixtures: Path, tmp_path: Path, records: str) -> None:
    """Of one job the client has the wall time of the batch system, which is less than from start to end."""
    site = ClientSite(fixtures, tmp_path / "site", "torque", records=records)
    site("run").ok()
    table = whole_table(site)
    fields = site.shadow("--against", table).object["fields"]
    assert {name: field["records"] for name, field in fields.items()} == {"WallDuration": 1}
    head, first, *rest = table.read_text().splitlines(keepends=True)
    cells = first.split("\t")
    table.write_text("".join([head, "\t".join([*cells[:4], "1", "2", *cells[6:]]), *rest]))
    fields = site.shadow("--against", table).object["fields"]
    assert fields["WallDuration"]["records"] == 2


def test_a_list_up_to_the_clients_mark_lacks_what_gap_sent(fixtures: Path, tmp_path: Path) -> None:
    """`interval = gap` does not set LastUpdated: the jobs after it would be sent again, with other keys."""
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    site("run").ok()
    table, counts = whole_table(site), site.export("sync.tsv")
    marked = site.folder / "marked.tsv"
    marked.write_text("".join(table.read_text().splitlines(keepends=True)[:9]))
    done = site.shadow("--against", marked, "--against", counts, "--take-over")
    assert done.code == 2
    assert "lacks jobs that its other tables count: 2026-10: 8 of 15, 2026-11: 0 of 1" in done.err
    assert "Export all rows of VJobRecords" in done.err
    alone = site.shadow("--against", marked, "--take-over")
    assert alone.code == 2
    assert "not in the earlier publisher's list, which may be incomplete" in alone.err
    assert "add --complete" in alone.err
    assert site.rows("SELECT count(*) FROM deliveries WHERE reason = 'assumed'") == [(0,)]
    site.take_over(table, counts)
    site.go()
    client = Apel().take_client("jobs", site.client_rows("records.tsv"))
    assert client.take(site.ours).jobs == expected("torque", local=True)


def test_months_that_are_not_sent_from_here_need_not_be_listed(fixtures: Path, tmp_path: Path) -> None:
    """The client's database may have lost old job records."""
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    site.set(since='"2026-11-01"')
    site("run").ok()
    november = site.folder / "november.tsv"
    head, *rows = whole_table(site).read_text().splitlines(keepends=True)
    november.write_text(head + rows[-1])
    site.take_over(november, site.export("sync.tsv"))
    site.go()
    assert not any(b"LocalJobId" in message for message in site.ours)


def test_an_empty_export_says_why(fixtures: Path, tmp_path: Path) -> None:
    """With `gap` alone the client has no mark, and a condition on it leaves nothing."""
    site = ClientSite(fixtures, tmp_path / "site", "torque", records="apel-job")
    site("run").ok()
    (site.folder / "empty.tsv").write_text("")
    done = site.shadow("--against", "empty.tsv", "--take-over")
    assert done.code == 2
    assert "`LastUpdated` of the APEL client does not show" in done.err


@pytest.mark.parametrize("whole", [True, False], ids=["whole table", "keys"])
def test_a_wrong_time_zone_is_not_taken_over(fixtures: Path, tmp_path: Path, *, whole: bool) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "slurm", records="apel-job")
    site.configure(site.config.read_text().replace('timezone = "UTC"', 'timezone = "America/New_York"'))
    site("run").ok()
    export = whole_table(site) if whole else site.export("records.tsv")
    words = ("--against", export, "--against", site.export("sync.tsv"))
    compared = site("shadow", "apel", *words)
    assert compared.code == 3
    said = 'jobs of source lrms ended 4 h later here than the earlier publisher sent: timezone = "America/New_York" is'
    assert said in " ".join(compared.err.split())
    done = site("shadow", "apel", *words, "--take-over")
    assert done.code == 2
    assert said in " ".join(done.err.split())
    assert "These time zones fit: UTC, " in " ".join(done.err.split())
    assert site.rows("SELECT count(*) FROM deliveries WHERE reason = 'assumed'") == [(0,)]
    site.configure(site.config.read_text().replace("America/New_York", "UTC"))
    for file in site.folder.glob("store.db*"):
        file.unlink()
    site("run").ok()
    site.take_over(*words[1::2])


# --- steps of Slurm


def test_steps_of_slurm_are_no_jobs_in_job_records(fixtures: Path, tmp_path: Path) -> None:
    """The client loses a job that was cancelled, and sends its batch step: the job is sent from here."""
    site = ClientSite(fixtures, tmp_path / "site", "slurm", records="apel-job")
    site("run").ok()
    table = whole_table(site)
    cancelled = next(job for job in jobs_of() if job.cancelled)
    times = f"{end_of(cancelled) - cancelled.wall}\t{end_of(cancelled)}"
    step = f"EXAMPLE-SITE\t{job_name(cancelled)}.batch\t{times}\t50\t25\tAPEL-CREAM-SLURM\n"
    table.write_text(table.read_text() + step)
    done = site.shadow("--against", table, "--take-over", "--complete")
    assert done.code == 3
    alone = {each["kind"]: each["reason"] for each in done.object["records"]}
    assert alone["only there"] == "a step of a Slurm job, which the client sent as a job: only APEL can delete it"
    site.go()
    ids = [line for message in site.ours for line in message.splitlines() if line.startswith(b"LocalJobId")]
    assert ids == [f"LocalJobId: {job_name(cancelled)}".encode()]


def with_steps(site: ClientSite, *, jobs: int) -> Path:
    """The client's summaries, with a group of that many steps."""
    export = site.export("summaries.tsv")
    head, *rows = export.read_text().splitlines()
    names = head.split("\t")
    row = dict(zip(names, next(row for row in rows if "\tlocal\t" in row).split("\t"), strict=True))
    row |= dict.fromkeys(("GlobalUserName", "VO", "VOGroup", "VORole", "SubmitHost"), "None")
    row["NumberOfJobs"] = str(jobs)
    export.write_text("\n".join([head, *rows, "\t".join(row[name] for name in names)]) + "\n")
    return export


def test_summaries_of_steps_of_slurm_are_sent_with_no_jobs(fixtures: Path, tmp_path: Path) -> None:
    site = ClientSite(fixtures, tmp_path / "site", "slurm")
    site("run").ok()
    export = with_steps(site, jobs=158)
    found = site.shadow("--against", export)
    (steps,) = [each for each in found.object["records"] if each["kind"] == "only there"]
    assert "steps of Slurm jobs" in steps["reason"]
    site.take_over(export)
    site.go()
    with export.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    apel = Apel().take_client("summaries", rows).take(site.ours)
    assert apel.summarised == truth(local=True)


def test_job_records_say_which_summaries_are_of_steps(fixtures: Path, tmp_path: Path) -> None:
    """Where another batch system has jobs without a group too, the number of steps is known from job records alone."""
    site = ClientSite(fixtures, tmp_path / "site", "slurm")
    other = '\n[sources.other]\ntype = "htcondor"\npath = "none.log"\ncomplete_since = "2026-10-01"\n'
    site.configure(site.config.read_text() + other)
    (site.folder / "none.log").write_text("")
    site("run")
    export = with_steps(site, jobs=3)
    done = site.shadow("--against", export, "--take-over")
    assert done.code == 2
    assert "VJobRecords" in done.err
    step = "EXAMPLE-SITE\t{}.batch\t2026-10-01 01:30:00\tAPEL-CREAM-SLURM\n"
    table = site.folder / "table.tsv"
    head = "Site\tLocalJobId\tEndTime\tInfrastructureDescription\n"
    table.write_text(head + "".join(step.format(number) for number in (1042, 1043, 1044)))
    site.take_over(export, table)


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
