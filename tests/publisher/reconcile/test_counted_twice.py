"""reconcile names what a service counts twice, or for this site from elsewhere, although the ledger agrees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.publisher.reconcile.reconciled_site import NOV, OCT, files, of_two_users, reconciled, site_of, summaries
from tests.publisher.site import ListSource, make_job, make_jobs

OURS = "arcrest:https://ce1.example.org:443/arex"


def evidence(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "evidence.json"
    file.write_text(json.dumps([{"month": "2026-11", "site": "EXAMPLE-SITE"} | row for row in rows]))
    return file


def notes(site: Any, *more: Any, **given: Any) -> list[str]:
    found, _ = reconciled(site, *more, **given)
    return [note for note in found.notes if "counted-once" in note]


def test_submit_hosts_that_are_not_ours(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    rows = [
        {"submit_host": OURS.upper(), "jobs": 5},
        {"submit_host": "None", "jobs": 2},
        {"submit_host": "", "jobs": 1},
    ]
    assert notes(site, file=evidence(tmp_path, *rows)) == []
    rows += [
        {"submit_host": "old-ce.example.org:8443/cream", "jobs": 1200},
        {"submit_host": "old-ce.example.org:8443/cream", "jobs": 34, "month": "2026-10"},
        {"submit_host": "none-left", "jobs": 0},
        {"submit_host": "elsewhere", "site": "ANOTHER-SITE", "jobs": 9},
    ]
    (note,) = notes(site, OCT, NOV, file=evidence(tmp_path, *rows))
    assert "that no source here has: old-ce.example.org:8443/cream: 1,234 jobs in 2026-10, 2026-11." in note
    (note,) = notes(site, file=evidence(tmp_path, *[{"submit_host": f"ce{n:02d}", "jobs": 1} for n in range(13)]))
    assert note.count("1 job in 2026-11") == 10
    assert "; and 3 others." in note


def test_submit_hosts_of_records(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(2), apel=files(records="apel-job"))
    row = {"LocalJobId": "1", "end": "2026-11-01T01:00:01Z", "SubmitHost": "another", "wall_s": 1}
    (note,) = notes(site, file=evidence(tmp_path, row, row | {"LocalJobId": "x", "SubmitHost": OURS}))
    assert "another: 1 job in 2026-11." in note


def test_a_host_that_a_rule_gives_is_ours(tmp_path: Path) -> None:
    jobs = make_jobs(2, endpoint_url=None, endpoint_type=None)
    site = site_of(tmp_path, None, jobs, apel=summaries())
    file = evidence(tmp_path, {"submit_host": "ce7.example.org:9619/ce7", "jobs": 2})
    assert len(notes(site, file=file)) == 1
    site.table["sources"]["ce1"]["submit_host"] = "ce7.example.org:9619/ce7"
    site.reopen()
    assert notes(site, file=file) == []


@pytest.mark.parametrize("second", ["apel-normalised-summary", "apel-job"])
def test_a_month_that_was_sent_as_two_kinds_of_record(tmp_path: Path, second: str) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    assert notes(site, OCT, NOV) == []
    site.configure("apel", records=second)
    site.publisher.publish()
    said = notes(site, OCT, NOV)
    kinds = ["apel-summary", "job records" if second == "apel-job" else second]
    assert [note.partition(". ")[0] for note in said] == [
        f"{month} was sent as {' and as '.join(sorted(kinds))}" for month in ("2026-10", "2026-11")
    ]


def test_two_targets_of_one_service(tmp_path: Path) -> None:
    other = files(records="apel-normalised-summary")
    site = site_of(tmp_path, None, make_jobs(3), apel=summaries())
    site.table["targets"] = {"apel": summaries(), "second": other}
    site.reopen()
    site.publisher.publish()
    with site.publisher.reconcile(("apel",), (NOV,), []) as found:
        assert any("apel-normalised-summary and as apel-summary" in note for note in found.targets["apel"].notes)


def test_jobs_that_two_sources_gave_in_a_month(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(6, local_user="atlas001"), apel=summaries())
    pool = ListSource("pool")
    facts = {"system": "slurm", "endpoint_url": None, "cluster": "c", "local_user": "pool001"}
    pool.add(*[make_job(number, record_id=f"ur-slurm/c/{number}", **facts) for number in range(1, 7)])
    site.sources["pool"] = pool
    site.table["sources"]["pool"] = {"type": "slurm", "path": "x"}
    site.reopen()
    site.collect()
    found, _ = reconciled(site, OCT, NOV)
    (sentence,) = found.counted_twice
    assert sentence.startswith("2026-11: 6 of the last 6 jobs of source ce1 are also jobs of source pool")
    assert found.agrees, "the service has what was sent"
    assert site.publisher.run().reconciled["apel"].counted_twice == (sentence,)
