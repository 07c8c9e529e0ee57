"""Every column that the evidence has and that was sent is compared; sync counts too; several files are one evidence."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from formats.job import Job
from publisher.errors import UsageError
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.text import iso
from tests.publisher.reconcile.reconciled_site import (
    NOV,
    OCT,
    ams,
    confirmed,
    files,
    kinds,
    month,
    reconciled,
    resent,
    site_of,
)
from tests.publisher.site import NOVEMBER, Site, make_job, make_jobs

TABLES = {
    "jobs": (
        "Site", "SubmitHost", "MachineName", "Queue", "LocalJobId", "LocalUserId", "GlobalUserName", "FQAN", "VO",
        "VOGroup", "VORole", "WallDuration", "CpuDuration", "Processors", "NodeCount", "StartTime", "EndTime",
        "InfrastructureDescription", "InfrastructureType", "ServiceLevelType", "ServiceLevel",
    ),
    "summaries": (
        "Site", "Month", "Year", "GlobalUserName", "VO", "VOGroup", "VORole", "SubmitHost", "InfrastructureType",
        "ServiceLevelType", "ServiceLevel", "NodeCount", "Processors", "EarliestEndTime", "LatestEndTime",
        "WallDuration", "CpuDuration", "NumberOfJobs",
    ),
    "normalised": (
        "Site", "Month", "Year", "GlobalUserName", "VO", "VOGroup", "VORole", "SubmitHost", "Infrastructure",
        "ServiceLevelType", "NodeCount", "Processors", "EarliestEndTime", "LatestEndTime", "WallDuration",
        "CpuDuration", "NormalisedWallDuration", "NormalisedCpuDuration", "NumberOfJobs",
    ),
    "sync": ("Site", "SubmitHost", "NumberOfJobs", "Month", "Year"),
}  # fmt: skip
"""The columns of the views of APEL's server, as exported from MariaDB."""
INSTANTS = {"StartTime", "EndTime", "EarliestEndTime", "LatestEndTime"}

Row = dict[str, str]


def rows_of(simulator: Simulator, table: str) -> list[Row]:
    """A table of the server, as MariaDB exports its view."""
    held = getattr(simulator.apel.holdings(), table)
    return [{name: _exported(name, row.fields) for name in TABLES[table]} for row in held.values()]


def _exported(name: str, fields: Mapping[str, Any]) -> str:
    value = str(fields.get(name, "NULL"))
    if name in INSTANTS and value != "NULL":
        return (iso(int(value)) or "").replace("T", " ").replace("Z", "")
    return value


def export(folder: Path, table: str, rows: list[Row]) -> Path:
    file = folder / f"{table}.tsv"
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, ("UpdateTime", *TABLES[table]), delimiter="\t")
        writer.writeheader()
        writer.writerows({"UpdateTime": "2026-11-20 12:00:00"} | row for row in rows)
    return file


def of_several() -> list[Job]:
    return [
        *make_jobs(3),
        make_job(4, vo="cms", fqans=("/cms/Role=pilot",), user_dn="/DC=org/CN=Bo", cores=8),
        make_job(5, queue=None, nodes=None, memory_rss_kib=77),
        make_job(6, local_id="ID-6.Server "),
    ]


def changing(name: str, value: str) -> Callable[[list[Row]], None]:
    def change(rows: list[Row]) -> None:
        rows[0][name] = value

    return change


@pytest.mark.parametrize("records", ["apel-job", "emi-car"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("VO", "other", "VO other, sent atlas"),
        ("GlobalUserName", "/CN=Eve", "user /CN=Eve, sent /DC=org/CN=Ada"),
        ("Processors", "64", "processors 64, sent 1"),
        ("NodeCount", "2", "nodes 2, sent 1"),
        ("ServiceLevelType", "Si2k", "benchmark Si2k, sent HEPscore23"),
        ("ServiceLevel", "99.5", "score 99.5, sent 14.2"),
        ("SubmitHost", "elsewhere", "submit host elsewhere, sent arcrest:https://ce1.example.org:443/arex"),
        ("MachineName", "elsewhere", "machine elsewhere, sent ce1.example.org"),
        ("InfrastructureType", "local", "infrastructure local, sent grid"),
        ("StartTime", "2026-11-01 00:00:00", "start 2026-11-01T00:00:00Z, sent 2026-11-01T00:58:21Z"),
        ("CpuDuration", "7", "CPU 7 s, sent 50 s"),
    ],
)
def test_an_altered_row_of_job_records_differs(
    simulator: Simulator, pki: Pki, tmp_path: Path, records: str, name: str, value: str, said: str
) -> None:
    site = site_of(tmp_path, pki, of_several(), apel=ams(simulator, records))
    rows = rows_of(simulator, "jobs")
    found, differences = reconciled(site, file=export(tmp_path, "jobs", rows))
    assert (differences, found.agrees, confirmed(site)) == ([], True, 6)
    changing(name, value)(rows)
    found, differences = reconciled(site, file=export(tmp_path, "jobs", rows))
    assert [(one.kind, one.record) for one in differences] == [("differs", make_job(1).record_id)]
    expected = said.replace("arcrest:", "") if records == "emi-car" and "submit host" in said else said
    assert differences[0].detail in {said, expected}
    assert (found.agrees, confirmed(site), found.again_jobs) == (False, 5, 1)
    assert month(found).other_hours == (name == "CpuDuration")


def test_records_of_car_are_found_by_local_id_and_end(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, of_several(), apel=ams(simulator, "emi-car"))
    rows = rows_of(simulator, "jobs")
    lost = rows.pop(0)
    rows.append(lost | {"LocalJobId": "foreign"})
    file = export(tmp_path, "jobs", rows)
    found, differences = reconciled(site, file=file)
    assert kinds(differences)["missing"] == {make_job(1).record_id}
    assert (month(found).missing, month(found).foreign, month(found).confirmed) == (1, 1, 5)
    assert resent(site, NOV, file=file) == 1


def test_what_an_earlier_publisher_sent_is_known_in_its_spelling(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    """Sent again under our LocalJobId, it would count twice."""
    site = site_of(tmp_path, pki, of_several(), apel=ams(simulator, "apel-job", shadow=True))
    site.publisher.take_over_until("apel", NOVEMBER + 10_000_000)
    (tmp_path / "there").mkdir()
    there = site_of(tmp_path / "there", pki, of_several(), apel=ams(simulator, "apel-job"))
    assert there.publisher.status().targets["apel"].accepted == 6
    rows = rows_of(simulator, "jobs")
    for row in rows:
        row["LocalJobId"] += "" if row["LocalJobId"].startswith("ID") else ".lrms.example.org"
        row["VO"] = "spelled otherwise"
    rows[0]["WallDuration"] = "7"
    found, differences = reconciled(site, file=export(tmp_path, "jobs", rows))
    assert [one.detail for one in differences] == [
        "wall 7 s, here 100 s; not sent again: an earlier publisher sent it as 1.lrms.example.org"
    ]
    assert (month(found).confirmed, month(found).missing, found.again_jobs) == (5, 0, 0)
    assert found.agrees, "nothing here can change it"


@pytest.mark.parametrize(
    ("records", "table", "name", "value", "said"),
    [
        ("apel-summary", "summaries", "ServiceLevel", "99.5", None),
        ("apel-summary", "summaries", "ServiceLevelType", "Si2k", None),
        ("apel-summary", "summaries", "VOGroup", "/other", None),
        ("apel-summary", "summaries", "LatestEndTime", "2026-11-01 00:00:00", "latest end 2026-11-01T00:00:00Z"),
        ("apel-normalised-summary", "normalised", "NormalisedWallDuration", "9", "normalised wall 9 s, sent 5680 s"),
        ("apel-normalised-summary", "normalised", "NormalisedCpuDuration", "9", "normalised CPU 9 s, sent 2840 s"),
        ("apel-normalised-summary", "normalised", "ServiceLevelType", "Si2k", None),
    ],
)
def test_an_altered_summary_differs(
    simulator: Simulator,
    pki: Pki,
    tmp_path: Path,
    records: str,
    table: str,
    name: str,
    value: str,
    said: str | None,
) -> None:
    site = site_of(tmp_path, pki, of_several(), apel=ams(simulator, records))
    rows = rows_of(simulator, table)
    found, differences = reconciled(site, file=export(tmp_path, table, rows))
    assert (differences, found.agrees, confirmed(site)) == ([], True, 6)
    changed = next(row for row in rows if row["NumberOfJobs"] == "4")
    changed[name] = value
    found, differences = reconciled(site, file=export(tmp_path, table, rows))
    assert not found.agrees
    if said is None:  # part of the key
        assert {one.kind for one in differences} == {"missing", "foreign"}
    else:
        assert [said in one.detail for one in differences] == [True]
    assert found.again_groups == 1


def test_sums_of_records_are_compared_with_scores_and_normalised_sums(tmp_path: Path) -> None:
    """As from the server's own summaries of job records."""
    site = site_of(tmp_path, None, [*make_jobs(3), make_job(4, wall_s=7)], spool=files(records="apel-job"))
    file = tmp_path / "summaries.csv"
    text = "month,benchmark,score,jobs,WallDuration,CpuDuration,NormalisedWallDuration,EarliestEndTime\n"
    first = iso(NOVEMBER + 3601)
    file.write_text(f"{text}2026-11,hepscore23,14.200,4,307,154,4359,{first}\n")
    assert reconciled(site, file=file)[1] == []
    assert confirmed(site) == 4
    file.write_text(f"{text}2026-11,hepscore23,14.200,4,307,154,4459,{first}\n")
    found, differences = reconciled(site, file=file)
    assert [one.detail for one in differences] == ["4 jobs, sent 4; normalised wall 4459 s, sent 4359 s"]
    assert found.again_jobs == 4
    file.write_text(f"{text}2026-11,hepscore23,11.000,4,307,154,4359,{first}\n")
    assert {one.kind for one in reconciled(site, file=file)[1]} == {"missing", "foreign"}


# --- sync counts


@pytest.mark.parametrize("records", ["apel-job", "emi-car", "apel-summary"])
def test_the_table_of_sync_counts_confirms_no_job(simulator: Simulator, pki: Pki, tmp_path: Path, records: str) -> None:
    site = site_of(tmp_path, pki, of_several(), apel=ams(simulator, records))
    found, differences = reconciled(site, file=export(tmp_path, "sync", rows_of(simulator, "sync")))
    assert (differences, found.agrees, confirmed(site)) == ([], True, 0)
    assert found.compared == ("sync",)
    assert "VSyncRecords" in found.notes[0]
    assert confirmed_sync(site) == 1


@pytest.mark.parametrize("records", ["apel-job", "emi-car", "apel-summary"])
@pytest.mark.parametrize("count", [None, "2"])
def test_a_lost_sync_message_is_found_and_sent_again(
    simulator: Simulator, pki: Pki, tmp_path: Path, records: str, count: str | None
) -> None:
    """The broker accepted the last message, and dropped it: the server keeps the count before, or has none."""
    site = site_of(tmp_path, pki, of_several(), apel=ams(simulator, records))
    table = "summaries" if records == "apel-summary" else "jobs"
    jobs = export(tmp_path, table, rows_of(simulator, table))
    (row,) = rows_of(simulator, "sync")
    other = row | {"SubmitHost": "of another publisher", "NumberOfJobs": "1"}
    evidence = [jobs, export(tmp_path, "sync", [other] if count is None else [row | {"NumberOfJobs": count}])]
    found, differences = reconciled(site, file=evidence)
    assert confirmed(site) == 6, "the jobs are there"
    assert [one.kind for one in differences if "another" not in one.record] == [
        "missing" if count is None else "differs"
    ]
    assert (found.agrees, found.again_jobs, found.again_groups) == (False, 0, 1)
    before = simulator.apel.holdings().messages
    assert resent(site, NOV, file=evidence) == 0
    assert simulator.apel.holdings().messages == before + 1
    evidence[1] = export(tmp_path, "sync", rows_of(simulator, "sync"))
    found, differences = reconciled(site, file=evidence)
    assert (found.agrees, differences, confirmed_sync(site)) == (True, [], 1)


def confirmed_sync(site: Site) -> int:
    ((number,),) = site.rows("SELECT count(*) FROM groups WHERE kind = 'sync' AND confirmed_at IS NOT NULL")
    return int(number)


# --- several files


def test_files_of_months_are_compared_together_also_as_configured(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of(tmp_path, pki, [*make_jobs(2), make_job(9, end=NOVEMBER - 5)], apel=ams(simulator, "apel-summary"))
    october, november = tmp_path / "october.csv", tmp_path / "november.csv"
    october.write_text("month,jobs,wall_s\n2026-10,1,100\n")
    november.write_text("month,jobs,wall_s\n2026-11,2,200\n")
    assert reconciled(site, OCT, NOV, file=[october, november])[1] == []
    assert confirmed(site) == 3
    site.table["targets"]["apel"]["evidence"] = [str(october), str(november)]
    site.reopen()
    assert reconciled(site, OCT, NOV)[0].agrees
    with pytest.raises(UsageError, match=r"november.csv have the same group of 2026-11: its jobs would count twice"):
        reconciled(site, file=[november, november])
    october.write_text("month,vo,jobs\n2026-10,atlas,1\n")
    with pytest.raises(UsageError, match="different columns"):
        reconciled(site, file=[october, november])
    october.write_text("record_id\nx\n")
    with pytest.raises(UsageError, match="both records and groups"):
        reconciled(site, file=[october, november])


def test_records_with_keys_of_two_kinds_are_refused(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files(records="emi-car"))
    one, other = tmp_path / "ids.csv", tmp_path / "jobs.csv"
    one.write_text("record_id\nx\n")
    other.write_text("LocalJobId,EndTime\n1,2026-11-01\n")
    with pytest.raises(UsageError, match="records of one kind"):
        reconciled(site, file=[one, other])


@pytest.mark.parametrize("records", ["ogf-ur", "emi-car", "apel-job"])
def test_an_altered_file_of_a_directory_differs(tmp_path: Path, records: str) -> None:
    site = site_of(tmp_path, None, make_jobs(2), spool=files(records=records, batch_records=1))
    assert reconciled(site)[0].agrees
    path = next(path for path in (tmp_path / "out").iterdir() if b"atlas" in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"atlas", b"other"))
    _, differences = reconciled(site)
    assert [one.detail for one in differences] == ["VO other, sent atlas"]


def test_a_file_of_sgas_records_is_compared_in_all_its_columns(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(2), spool=files())
    file = tmp_path / "usagerecords.csv"
    lines = [f"{job.record_id},{job.user_dn},{job.vo},1,ce1.example.org" for job in make_jobs(2)]
    header = "record_id,global_user_name,vo_name,processors,machine_name\n"
    file.write_text(header + "\n".join(lines))
    assert reconciled(site, file=file)[0].agrees
    file.write_text(header + "\n".join(lines).replace("atlas,1", "cms,4", 1))
    found, differences = reconciled(site, file=file)
    assert [one.detail for one in differences] == ["VO cms, sent atlas; processors 4, sent 1"]
    assert found.compared == ("jobs", "machine", "user", "vo", "processors")
