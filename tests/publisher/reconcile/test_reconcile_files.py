"""reconcile with a list of records, or with the messages in a directory: record by record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from publisher import plugins
from publisher.simulator import Simulator
from publisher.simulator.pki import Pki
from publisher.store.schema import State
from tests.publisher.add_on import JOB_NAMES, install
from tests.publisher.reconcile.reconciled_site import (
    NOV,
    OCT,
    ams,
    asked,
    confirmed,
    files,
    kinds,
    month,
    reconciled,
    resent,
    sgas,
    site_of,
)
from tests.publisher.simulator.records import message, record
from tests.publisher.site import OCTOBER, make_job, make_jobs

pytestmark = pytest.mark.either_store


def test_an_administrators_list_of_records_names_each_one(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(5)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    lines = ["Record ID;Wall (s);CPU seconds;end time"]
    lines += [f"{job.record_id};100;50;{job.end}" for job in jobs[:3]]
    lines += [f"{jobs[3].record_id};90;50;{jobs[3].end}", "ur-other-1;1;1;2026-11-05T00:00:00Z", "ur-other-2;1;1;"]
    file = tmp_path / "held.csv"
    file.write_text("\n".join(lines) + "\n")
    found, differences = reconciled(site, file=file)
    one = month(found)
    assert (one.sent.jobs, one.service_jobs, one.confirmed) == (5, 5, 3)
    assert (one.missing, one.differing, one.foreign, found.foreign) == (1, 1, 1, 1)
    assert kinds(differences) == {
        "missing": {jobs[4].record_id},
        "differs": {jobs[3].record_id},
        "foreign": {"ur-other-1", "ur-other-2"},
    }
    assert {item.detail for item in differences if item.kind == "differs"} == {"wall 90 s, sent 100 s"}
    assert found.again_jobs == 1, "SGAS would ignore the one that it has with other values"


def test_records_of_other_months_and_of_unselected_jobs_are_distinguished(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    early, deselected = make_job(1, end=OCTOBER + 5), make_job(2, vo="alice")
    site = site_of(tmp_path, pki, [early, deselected, make_job(3)], neic=sgas(simulator, vo=["atlas"]))
    file = tmp_path / "held.json"
    file.write_text(json.dumps([{"record_id": job.record_id} for job in (early, deselected, make_job(3))]))
    found, differences = reconciled(site, file=file)
    assert kinds(differences) == {"foreign": {deselected.record_id}}
    assert differences[0].detail == "known here, and this target does not select it"
    assert (month(found).confirmed, found.foreign) == (1, 1)


def test_job_records_of_other_sites_are_left_out(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    (job,) = make_jobs(1)
    site = site_of(tmp_path, pki, [job], apel=ams(simulator, "apel-job"))
    lines = [
        "Executing Site,LocalJobId,EndTime,WallDuration",
        *(f"{name},{job.local_id},{job.end},100" for name in (site.publisher.config.site.name, "OTHER-SITE")),
    ]
    file = tmp_path / "jobs.csv"
    file.write_text("\n".join(lines))
    found, differences = reconciled(site, file=file)
    assert (differences, found.notes, month(found).confirmed) == ([], ["1 rows are of other sites"], 1)


def test_a_superseded_record_that_is_gone_may_be_sent_again(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(2)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    simulator.sgas.forget([jobs[0].record_id])
    file = tmp_path / "holdings.json"
    file.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    found, differences = reconciled(site, file=file)
    assert [(one.kind, one.detail) for one in differences] == [
        ("superseded", "the service no longer has its first version")
    ]
    assert found.again_jobs == 1
    assert resent(site, NOV, file=file) == 1
    assert {one.wall for one in simulator.sgas.records()} == {"PT100S", "PT7S"}
    assert site.counted("neic") == {State.ACCEPTED: 2}


def test_one_that_was_sent_again_by_another_run_meanwhile_is_left_alone(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    """As while the command asks whether to send: the version that the service has stays known."""
    jobs = make_jobs(2)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    simulator.sgas.forget([jobs[0].record_id])
    file = tmp_path / "holdings.json"
    file.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    with site.publisher.reconcile((), [NOV], [file]) as found:
        assert found.targets["neic"].again_jobs == 1
        site.publisher.retry(State.SUPERSEDED, "neic", [jobs[0].record_id])
        site.publish()
        site.publisher.send_missing(found)
    assert site.counted("neic") == {State.ACCEPTED: 2}
    assert site.rows("SELECT count(*) FROM deliveries WHERE sent_digest IS NULL") == [(0,)]


def test_one_that_is_gone_and_no_longer_selected_is_not_sent(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(2)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    site.sources["ce1"].add(make_job(1, status="aborted"))
    site.collect()
    simulator.sgas.forget([jobs[0].record_id])
    file = tmp_path / "holdings.json"
    file.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    assert resent(site, NOV, file=file) == 0
    assert len(simulator.sgas.records()) == 1
    assert site.counted("neic") == {State.ACCEPTED: 1, State.SUPERSEDED: 1}


def test_a_file_that_was_removed_is_missing_and_written_again(tmp_path: Path) -> None:
    jobs = [*make_jobs(5), make_job(9, end=OCTOBER + 5)]
    site = site_of(tmp_path, None, jobs, spool=files(batch_records=2))
    found, differences = reconciled(site, OCT, NOV)
    assert (found.evidence, found.agrees, differences, found.notes) == ("files", True, [], [])
    assert confirmed(site) == 6
    written = sorted((tmp_path / "out").iterdir())
    gone = written[0].read_text()
    written[0].unlink()
    found, differences = reconciled(site, OCT, NOV)
    lost = {job.record_id for job in jobs if f'"{job.record_id}"' in gone}
    assert kinds(differences) == {"missing": lost}
    assert found.again_jobs == len(lost) == 2
    assert resent(site, OCT, NOV) == 2
    assert reconciled(site, OCT, NOV)[0].agrees
    assert confirmed(site) == 6


@pytest.mark.parametrize("records", ["emi-car", "apel-job"])
def test_every_kind_of_record_is_read_back_signed_or_not(pki: Pki, tmp_path: Path, records: str) -> None:
    jobs = [*make_jobs(3), make_job(4, local_id=None)]
    settings = files(records=records, sign=True, batch_records=3)
    site = site_of(tmp_path, pki, jobs, spool=settings)
    found, differences = reconciled(site)
    assert (found.agrees, differences, found.notes) == (True, [], [])
    assert confirmed(site) == 4
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    found, _ = reconciled(site)
    assert found.again_jobs == 4
    assert resent(site, NOV) == 4
    assert reconciled(site)[0].agrees


def test_what_an_ssm_took_out_of_its_queue_is_neither_missing_nor_seen(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(4), spool=files(layout="dirq", batch_records=2))
    first = min((tmp_path / "out").glob("*/*"))
    first.unlink()
    found, differences = reconciled(site)
    one = month(found)
    assert (one.taken, one.missing, one.service_jobs, one.confirmed) == (2, 0, 2, 2)
    assert (differences, found.again_jobs) == ([], 0)
    assert any("are no longer in this directory, and were not compared" in note for note in found.notes)


def test_files_of_others_are_foreign_or_named(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(2), spool=files())
    out = tmp_path / "out"
    (out / "other.xml").write_bytes(message(record(1)))
    (out / "junk.txt").write_bytes(b"\xff\xfe")
    (out / "note.txt").write_bytes(b"APEL-unknown-message: v1\nA: b\n")
    (out / "bad.xml").write_bytes(b"<x")
    found, differences = reconciled(site)
    assert kinds(differences) == {"foreign": {"ur-1"}}
    assert month(found).foreign == 1
    assert sorted(note.partition(":")[0] for note in found.notes) == ["bad.xml", "junk.txt", "note.txt"]


def test_a_record_that_was_tampered_with_differs(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(2), spool=files(batch_records=1))
    path = next(path for path in (tmp_path / "out").iterdir() if b"0002" in path.read_bytes())
    path.write_bytes(path.read_bytes().replace(b"PT100S", b"PT999S"))
    _, differences = reconciled(site)
    assert [(one.kind, one.record, one.detail) for one in differences] == [
        ("differs", make_job(2).record_id, "wall 999 s, sent 100 s")
    ]
    assert resent(site, NOV) == 1
    assert reconciled(site)[0].agrees


def test_a_directory_that_cannot_be_read_leaves_the_receipts(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(2), spool=files())
    for path in (tmp_path / "out").iterdir():
        path.unlink()
    (tmp_path / "out").rmdir()
    (tmp_path / "out").write_text("")
    found, _ = reconciled(site)
    assert (found.evidence, month(found).sent.jobs, found.agrees) == ("receipts", 2, True)
    assert "readable" in (found.unavailable or "")


def test_a_format_that_cannot_be_read_back_leaves_the_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch, plugins.FORMATS, mine=JOB_NAMES)
    site = site_of(tmp_path, None, make_jobs(2), spool=files(records="mine"))
    found, differences = reconciled(site)
    assert (found.evidence, found.unavailable, differences) == ("receipts", "mine cannot be read back", [])
