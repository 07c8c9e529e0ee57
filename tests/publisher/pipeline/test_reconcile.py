"""reconcile over real sockets and files: what is lost is found, sent again and confirmed; what is foreign is told.

Services are the simulators, with TLS; the store and the pipeline are the real ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from formats.job import Job
from formats.month import Month
from publisher.errors import StoppedError, UsageError
from publisher.pipeline import reconcile
from publisher.pipeline.reconcile import Reconciliation
from publisher.pipeline.reconciling.found import Difference, Found, MonthFound
from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki, make_pki
from publisher.store.states import State
from publisher.store.tables import purged_months
from publisher.targets.sgas import SgasTarget
from tests.publisher.simulator.records import Client, message, record
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

NOV = Month(2026, 11)
OCT = Month(2026, 10)
DAY = 86400


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return make_pki(tmp_path_factory.mktemp("pki"), client_key="ec")


@pytest.fixture
def simulator(pki: Pki) -> Iterator[Simulator]:
    with Simulator(pki) as running:
        yield running


def site_of(folder: Path, pki: Pki | None, jobs: Sequence[Job], **targets: dict[str, Any]) -> Site:
    """A site with real targets."""
    source = ListSource("ce1", page=1000)
    source.add(*jobs)
    site = Site(folder, [source], [])
    site.table["targets"] = targets
    if pki is not None:
        site.table["credentials"] = {
            "certificate": str(pki.client.certificate),
            "key": str(pki.client.key),
            "ca_directory": str(pki.ca_directory),
        }
    site.reopen()
    site.collect()
    site.publisher.publish()
    return site


def sgas(simulator: Simulator, **settings: Any) -> dict[str, Any]:
    return {"type": "sgas", "url": simulator.sgas_url, "attempts": 1, **settings}


def files(**settings: Any) -> dict[str, Any]:
    return {"type": "directory", "path": "out", "layout": "files", "records": "ogf-ur", **settings}


def reconciled(site: Site, *months: Month, file: Path | None = None) -> tuple[Found, list[Difference]]:
    """What is found of the only target."""
    with site.publisher.reconcile((), months or (NOV,), file) as found:
        (name,) = found.targets
        return found.targets[name], list(found.differences(name))


def resent(site: Site, *months: Month, file: Path | None = None) -> int:
    """Send again what is missing; gives how many jobs were accepted."""
    with site.publisher.reconcile((), months or None, file) as found:
        return sum(item.sent.accepted for item in site.publisher.send_missing(found).values())


def month(found: Found, which: Month = NOV) -> MonthFound:
    return next(one for one in found.months if one.month == which)


def kinds(differences: Sequence[Difference]) -> dict[str, set[str]]:
    told: dict[str, set[str]] = {}
    for one in differences:
        told.setdefault(one.kind, set()).add(one.record)
    return told


def confirmed(site: Site) -> int:
    site.assert_counters_right()
    (target,) = site.publisher.status().targets.values()
    return target.confirmed


# --- SGAS


def test_sgas_that_has_everything_confirms_everything(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = [
        *make_jobs(5),
        make_job(6, cores=8, cpu_ms=None, cpu_user_ms=1400, cpu_system_ms=1400),
        make_job(7, vo="cms", user_dn="/DC=org/CN=Bo"),
        make_job(8, vo=None, user_dn=None, local_user="cy"),
        make_job(9, end=NOVEMBER + 3 * DAY, endpoint_url="https://ce2.example.org/arex"),
        make_job(10, end=NOVEMBER - 5, wall_s=4),
    ]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    found, differences = reconciled(site, OCT, NOV)
    assert (found.evidence, found.untold, found.agrees, differences) == ("query", None, True, [])
    november = month(found)
    assert (november.sent, november.told_jobs, november.confirmed, month(found, OCT).told_jobs) == (9, 9, 9, 1)
    assert november.told_wall_s == pytest.approx(november.sent_wall_s)
    assert (november.without_receipt, november.assumed) == (0, 0)
    assert set(found.registered) == {"ce1.example.org", "ce2.example.org"}
    assert confirmed(site) == 10
    assert reconciled(site, OCT, NOV)[0].agrees, "and again"
    assert confirmed(site) == 10


def test_a_record_that_sgas_lost_is_found_sent_again_and_confirmed(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    jobs = [*make_jobs(4), make_job(5, user_dn="/CN=Bo"), make_job(6, end=NOVEMBER + 2 * DAY), make_job(7, vo="cms")]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    reconciled(site)
    assert confirmed(site) == 7
    lost = {jobs[1].record_id, jobs[4].record_id}
    simulator.sgas.forget(lost)

    found, differences = reconciled(site)

    assert not found.agrees
    assert month(found).missing == 2
    told = kinds(differences)
    assert told["missing"] == {jobs[4].record_id}, "the only job of its user: it is surely this one"
    assert told["suspect"] == {job.record_id for job in jobs[:4]}, "one of the four"
    assert "1 of the 4 jobs of 2026-11-01 ce1.example.org /DC=org/CN=Ada atlas are missing" in {
        one.detail for one in differences
    }
    assert confirmed(site) == 2, "what may be lost is no longer confirmed; what surely is there still is"
    assert (found.again_jobs, found.again_groups) == (5, 0)

    before = simulator.sgas.holdings()
    assert resent(site) == 5
    held = simulator.sgas.holdings()
    assert held.keys() == {job.record_id for job in jobs}
    assert {name for name in held if name not in before} == lost
    assert reconciled(site)[0].agrees
    assert confirmed(site) == 7
    audited = site.publisher.audit()[0]
    assert (audited.action, audited.subject) == ("reconcile --resend", "neic")
    assert "5 jobs" in audited.detail


def test_records_of_others_are_foreign(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    asked(simulator, pki, "POST", "/sgas/ur", message(record(1)))  # ends on 2026-11-01, on the same machine
    found, differences = reconciled(site)
    assert (month(found).foreign, month(found).missing, month(found).confirmed) == (1, 0, 3)
    assert kinds(differences) == {"foreign": {"2026-11-01 ce1.example.org /DC=org/CN=Jane atlas"}}
    assert not found.agrees
    assert (found.again_jobs, resent(site)) == (0, 0), "nothing of ours can mend that"


def asked(simulator: Simulator, pki: Pki, method: str, path: str, body: bytes | None = None) -> bytes:
    """What the simulator answers to somebody else."""
    client = Client(simulator, pki.client)
    try:
        answer = client(method, path, body)
    finally:
        client.close()
    assert answer.status == 200
    return answer.body


def test_a_lost_and_a_foreign_record_do_not_make_up_for_each_other(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    jobs = make_jobs(3, user_dn="/DC=org/CN=Jane")
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    asked(simulator, pki, "POST", "/sgas/ur", message(record(1)))
    simulator.sgas.forget([jobs[0].record_id])
    found, differences = reconciled(site)
    assert month(found).differing == 3
    assert "3 jobs; wall" in differences[0].detail
    assert confirmed(site) == 0
    assert resent(site) == 3
    found, _ = reconciled(site)
    assert (month(found).foreign, month(found).missing) == (1, 0)


def test_a_service_that_cannot_answer_queries_leaves_the_receipts(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    simulator.faults.replace([Fault("status", code=500, service="query")])
    found, differences = reconciled(site, OCT, NOV)
    assert found.evidence == "receipts"
    assert "LUTS 3.8.1" in (found.untold or "")
    one = month(found)
    assert (one.sent, one.without_receipt, one.told_jobs, one.confirmed) == (3, 0, None, 0)
    assert found.agrees
    assert differences == []


def test_without_the_right_to_query_that_is_said(pki: Pki, tmp_path: Path) -> None:
    with Simulator(pki, rights={pki.client.dn: ["jobinsert"]}) as running:
        site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(running))
        found, _ = reconciled(site)
    assert found.unauthorised
    assert "query:all" in (found.untold or "")
    assert month(found).sent == 2


def test_credentials_that_cannot_be_used_leave_the_receipts(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    site.table["credentials"]["ca_directory"] = str(tmp_path / "nothing")
    site.reopen()
    found, _ = reconciled(site)
    assert found.unauthorised
    assert (found.evidence, month(found).sent, month(found).without_receipt) == ("receipts", 2, 0)


def test_what_changed_after_delivery_is_compared_as_it_was_sent(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(3)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    reconciled(site)
    site.sources["ce1"].add(make_job(2, wall_s=5000, cores=4))
    site.collect()
    assert confirmed(site) == 2, "a change takes the confirmation back"
    found, differences = reconciled(site)
    assert found.agrees
    assert month(found).states[State.SUPERSEDED] == 1
    assert kinds(differences) == {"superseded": {jobs[1].record_id}}
    assert confirmed(site) == 2

    simulator.sgas.forget([jobs[1].record_id])  # by its administrator, whom we asked
    assert site.publisher.retry(State.SUPERSEDED, "neic", [jobs[1].record_id]) == 1
    site.publisher.publish()
    found, differences = reconciled(site)
    assert (found.agrees, differences) == (True, [])
    assert confirmed(site) == 3
    assert {one.wall for one in simulator.sgas.records()} == {"PT100S", "PT5000S"}


def test_retrying_what_is_superseded_needs_names(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(1), neic=sgas(simulator))
    with pytest.raises(UsageError, match="by name"):
        site.publisher.retry(State.SUPERSEDED, "neic")


def test_republishing_takes_confirmations_back_until_they_are_seen_again(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    from publisher.sources.base import Window

    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    reconciled(site)
    site.publisher.republish("neic", Window(NOVEMBER, NOVEMBER + DAY))
    assert confirmed(site) == 0
    reconciled(site)
    assert confirmed(site) == 3


def test_jobs_that_may_or_may_not_be_there_prove_nothing(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    from publisher.sources.base import Window

    simulator.faults.replace([Fault("close", service="sgas", stored=True)])
    site.publisher.republish("neic", Window(NOVEMBER, NOVEMBER + DAY))
    found, differences = reconciled(site)
    one = month(found)
    assert (one.states[State.WAITING], one.told_jobs, one.missing, one.foreign, one.confirmed) == (3, 3, 0, 0, 0)
    assert (differences, found.again_jobs) == ([], 0)


def test_a_service_that_does_not_remember_our_last_batch_was_perhaps_restored(
    simulator: Simulator, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    assert reconciled(site)[0].notes == []
    monkeypatch.setattr(SgasTarget, "last_registration_s", lambda _self, _machine: 7200.0)
    assert "restored from an earlier state" in reconciled(site)[0].notes[0]
    simulator.sgas.forget([make_job(1).record_id])
    assert "some 20 s later" in reconciled(site)[0].notes[0], "it was sent just now"
    site.now += 600
    assert "some 20 s later" not in reconciled(site)[0].notes[0]


def test_told_to_stop_it_leaves_with_what_it_has_seen(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = [make_job(1, end=OCTOBER + 9), make_job(2)]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    site.stop_when = lambda: bool(site.rows("SELECT 1 FROM deliveries WHERE confirmed_at IS NOT NULL"))
    with pytest.raises(StoppedError, match="told to stop"):
        reconciled(site, OCT, NOV)
    assert confirmed(site) == 1


def test_of_a_purged_month_nothing_is_said(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    with site.publisher.store.write() as connection:
        connection.execute(insert(purged_months).values(month=202611, runs=2, purged_at=site.now))
    found, differences = reconciled(site)
    assert month(found).purged
    assert (month(found).sent, month(found).told_jobs, differences) == (0, None, [])


@pytest.mark.parametrize("step", range(6))
def test_killed_while_it_sends_again_the_next_run_goes_on(
    simulator: Simulator, pki: Pki, tmp_path: Path, step: int
) -> None:
    jobs = make_jobs(6)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator, batch_records=2))
    simulator.sgas.forget(job.record_id for job in jobs[:4])
    killed = site.killed_at(step, lambda: resent(site, NOV))
    site.publisher.publish()
    held = simulator.sgas.holdings()
    assert held.keys() == {job.record_id for job in jobs}
    assert killed
    assert reconciled(site)[0].agrees
    assert confirmed(site) == 6


def test_what_changed_between_looking_and_sending_is_left_alone(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(2)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    simulator.sgas.forget([jobs[0].record_id])
    with site.publisher.reconcile((), (NOV,)) as found:
        site.sources["ce1"].add(make_job(1, wall_s=9))
        site.collect()
        site.publisher.send_missing(found)
    assert site.in_state("neic", State.SUPERSEDED) == {jobs[0].record_id}
    assert simulator.sgas.holdings().keys() == {jobs[1].record_id}
    site.assert_counters_right()


def test_a_run_at_work_is_not_disturbed(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(1), neic=sgas(simulator))
    with site.publisher.store.lock("target-neic"), site.publisher.reconcile() as result:
        found = result.targets["neic"]
        assert not result.agrees
    assert found.busy
    simulator.sgas.forget([make_job(1).record_id])
    lock = site.publisher.store.lock("target-neic")
    with site.publisher.reconcile() as result, lock, pytest.raises(UsageError, match="another run is at work"):
        site.publisher.send_missing(result)


# --- records in a file that somebody gave


def test_an_administrators_list_of_records_tells_each_one(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = make_jobs(5)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    lines = ["Record ID;Wall (s);CPU seconds;end time"]
    lines += [f"{job.record_id};100;50;{job.end}" for job in jobs[:3]]
    lines += [f"{jobs[3].record_id};90;50;{jobs[3].end}", "ur-other-1;1;1;2026-11-05T00:00:00Z", "ur-other-2;1;1;"]
    file = tmp_path / "held.csv"
    file.write_text("\n".join(lines) + "\n")
    found, differences = reconciled(site, file=file)
    one = month(found)
    assert (one.sent, one.told_jobs, one.confirmed) == (5, 5, 3)
    assert (one.missing, one.differing, one.foreign, found.foreign) == (1, 1, 1, 1)
    assert kinds(differences) == {
        "missing": {jobs[4].record_id},
        "differs": {jobs[3].record_id},
        "foreign": {"ur-other-1", "ur-other-2"},
    }
    assert {item.detail for item in differences if item.kind == "differs"} == {"wall 90 s, sent 100 s"}
    assert found.again_jobs == 2


def test_records_of_other_months_and_of_jobs_that_are_not_wanted_are_told_apart(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    early, unwanted = make_job(1, end=OCTOBER + 5), make_job(2, vo="alice")
    site = site_of(tmp_path, pki, [early, unwanted, make_job(3)], neic=sgas(simulator, vo=["atlas"]))
    file = tmp_path / "held.json"
    file.write_text(json.dumps([{"record_id": job.record_id} for job in (early, unwanted, make_job(3))]))
    found, differences = reconciled(site, file=file)
    assert kinds(differences) == {"foreign": {unwanted.record_id}}
    assert differences[0].detail == "known here, and this target does not want it"
    assert (month(found).confirmed, found.foreign) == (1, 1)


def test_a_superseded_record_that_is_gone_may_go_again(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
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


def test_one_that_is_gone_and_no_longer_wanted_does_not_go(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
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


# --- a directory


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
    assert (one.taken, one.missing, one.told_jobs, one.confirmed) == (2, 0, 2, 2)
    assert (differences, found.again_jobs) == ([], 0)
    assert any("another program takes messages" in note for note in found.notes) or any(
        "taken out of this directory" in note for note in found.notes
    )


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
    assert (found.evidence, month(found).sent, found.agrees) == ("receipts", 2, True)
    assert "readable" in (found.untold or "")


def test_a_format_that_cannot_be_read_back_leaves_the_receipts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = site_of(tmp_path, None, make_jobs(2), spool=files())
    monkeypatch.setattr(reconcile, "READABLE", frozenset())
    found, differences = reconciled(site)
    assert (found.evidence, found.untold, differences) == ("receipts", "ogf-ur cannot be read back", [])


def summaries(**settings: Any) -> dict[str, Any]:
    return files(records="apel-summary", **settings)


def of_two_users() -> list[Job]:
    return [*make_jobs(3), *make_jobs(2, 4, user_dn="/DC=org/CN=Bo"), make_job(9, end=OCTOBER + 7)]


def test_summaries_are_confirmed_by_group_and_missing_ones_written_again(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries(batch_records=1))
    found, differences = reconciled(site, OCT, NOV)
    assert (found.agrees, differences) == (True, [])
    assert (month(found).told_jobs, month(found).confirmed) == (5, 5)
    assert confirmed(site) == 6
    groups = site.publisher.status().targets["apel"].groups
    assert groups == {"accepted": 3, "confirmed": 3}

    bo = next(path for path in (tmp_path / "out").iterdir() if b"CN=Bo" in path.read_bytes())
    bo.unlink()
    found, differences = reconciled(site, OCT, NOV)
    assert (month(found).missing, month(found, OCT).missing) == (1, 0)
    assert [one.kind for one in differences] == ["missing"]
    assert "user /dc=org/cn=bo" in differences[0].record
    assert differences[0].detail.startswith("0 jobs, sent 2")
    assert (found.again_jobs, found.again_groups) == (0, 1)
    assert confirmed(site) == 4
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 2}
    resent(site, OCT, NOV)
    assert any(b"CN=Bo" in path.read_bytes() for path in (tmp_path / "out").iterdir())
    assert reconciled(site, OCT, NOV)[0].agrees
    assert confirmed(site) == 6
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 3}


def test_a_change_takes_back_the_confirmation_of_its_group(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    reconciled(site, OCT, NOV)
    site.sources["ce1"].add(make_job(1, wall_s=500))
    site.collect()
    assert confirmed(site) == 5
    site.publisher.publish()
    assert site.publisher.status().targets["apel"].groups == {"accepted": 3, "confirmed": 2}
    found, _ = reconciled(site, OCT, NOV)
    assert found.agrees, "the last message of a group is the one that counts"
    assert confirmed(site) == 6


def test_the_summary_of_somebody_who_was_forgotten_is_never_sent_under_the_pseudonym(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    site.publisher.keeper.forget("/DC=org/CN=Bo")
    found, differences = reconciled(site, OCT, NOV)
    assert kinds(differences).keys() == {"foreign"}, "the service knows the name"
    assert (month(found).unsettled, found.again_groups) == (1, 0)
    file = tmp_path / "portal.csv"
    file.write_text("month,jobs\n2026-10,1\n2026-11,5\n")
    assert reconciled(site, OCT, NOV, file=file)[0].agrees
    file.write_text("month,jobs\n2026-10,1\n2026-11,3\n")
    assert reconciled(site, OCT, NOV, file=file)[0].again_groups == 0


def test_a_sync_count_that_is_lost_is_written_again(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, of_two_users(), apel=summaries())
    sync = next(path for path in (tmp_path / "out").iterdir() if b"APEL-sync" in path.read_bytes())
    sync.unlink()
    found, differences = reconciled(site, OCT, NOV)
    assert {one.record.partition(":")[0] for one in differences} == {"sync"}
    assert found.again_groups == len(differences) > 0
    resent(site, OCT, NOV)
    assert reconciled(site, OCT, NOV)[0].agrees


# --- APEL, by a file


def ams(simulator: Simulator, records: str, **settings: Any) -> dict[str, Any]:
    return {
        "type": "ams",
        "url": simulator.ams_url,
        "auth_url": simulator.token_url,
        "records": records,
        "attempts": 1,
        **settings,
    }


@pytest.mark.parametrize("records", ["apel-summary", "apel-normalised-summary", "apel-job", "emi-car"])
def test_what_the_simulator_holds_agrees_with_what_was_sent(
    simulator: Simulator, pki: Pki, tmp_path: Path, records: str
) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, records))
    found, _ = reconciled(site, OCT, NOV)
    assert (found.evidence, found.agrees) == ("receipts", True)
    assert "--file" in (found.untold or "")
    assert (month(found).sent, month(found).without_receipt) == (5, 0)
    file = tmp_path / "holdings.json"
    file.write_bytes(asked(simulator, pki, "GET", "/_simulator/holdings"))
    found, differences = reconciled(site, OCT, NOV, file=file)
    assert differences == []
    assert (found.evidence, found.agrees) == ("file", True)
    assert confirmed(site) == 6


PORTAL = """\
# from the accounting portal
Site,Submit Host,Month,Year,VO,Number of jobs,Wall hours,CpuDuration,Efficiency
EXAMPLE-SITE,ARCREST:https://ce1.example.org:443/arex,11,2026,atlas,{jobs},{wall},250,50%
EXAMPLE-SITE,arcrest:https://ce1.example.org:443/arex,October,2026,atlas,1,0.03,50,50%
OTHER-SITE,https://elsewhere,11,2026,atlas,7,1,1,1%
"""


@pytest.mark.parametrize("records", ["apel-summary", "emi-car"])
def test_a_portals_numbers_agree_or_differ_and_sending_again_mends_them(
    simulator: Simulator, pki: Pki, tmp_path: Path, records: str
) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, records))
    file = tmp_path / "portal.csv"
    file.write_text(PORTAL.format(jobs=5, wall="0.14"))
    found, differences = reconciled(site, OCT, NOV, file=file)
    assert (found.agrees, differences) == (True, [])
    assert found.notes == ["columns that are not known and not used: Efficiency", "1 rows are of other sites"]
    assert confirmed(site) == 6

    file.write_text(PORTAL.format(jobs=4, wall="0.11"))
    with site.publisher.reconcile(("apel",), None, file) as result:  # the months are those of the file
        found, differences = result.targets["apel"], list(result.differences("apel"))
        assert [one.month for one in found.months] == [OCT, NOV]
        assert [one.kind for one in differences] == ["differs"]
        assert differences[0].detail.startswith("4 jobs, sent 5")
        assert "submit_host arcrest:https://ce1.example.org:443/arex" in differences[0].record
        assert confirmed(site) == 1
        before = len(simulator.ams.messages())
        site.publisher.send_missing(result)
    assert len(simulator.ams.messages()) > before
    file.write_text(PORTAL.format(jobs=5, wall="0.14"))
    assert reconciled(site, OCT, NOV, file=file)[0].agrees
    assert confirmed(site) == 6


def test_a_sync_test_is_compared_with_what_was_sent(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, "apel-summary"))
    file = tmp_path / "sync.csv"
    host = "arcrest:https://ce1.example.org:443/arex"
    file.write_text(f"month\tsubmit_host\tjobs\tsync_jobs\n2026-11\t{host}\t5\t4\n2026-11\thttps://new\t2\t2\n")
    found, differences = reconciled(site, file=file)
    assert [(one.kind, one.record, one.detail) for one in differences] == [
        ("foreign", "jobs: submit_host https://new", "2 jobs, sent 0"),
        ("differs", f"sync: submit_host {host}", "4 jobs, sent 5"),
        ("foreign", "sync: submit_host https://new", "2 jobs, sent 0"),
    ]
    assert (month(found).confirmed, found.again_groups) == (5, 1)


def test_a_month_that_the_file_leaves_out_is_missing(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, of_two_users(), apel=ams(simulator, "emi-car", sync=False))
    file = tmp_path / "portal.json"
    file.write_text(json.dumps({"rows": [{"month": "2026-11", "jobs": 5, "wall_s": 500}]}))
    found, differences = reconciled(site, OCT, NOV, file=file)
    assert [(one.month, one.kind, one.record) for one in differences] == [(OCT, "missing", "jobs of the month")]
    assert (found.again_jobs, resent(site, OCT, NOV, file=file)) == (1, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "tells nothing"),
        ("a,b\n1,2\n", "are no month"),
        ("month,vo\n2026-11,x\n", "neither a record id nor a number of jobs"),
        ("month,jobs\n2026-13,1\n", "row 1: month '2026-13'"),
        ("month,jobs\n2026-11,many\n", "row 1, jobs: 'many' is no number"),
        ("month,jobs\n2026-11,1.5\n", "no whole number"),
        ("month,jobs\n2026-11,-1\n", "no number"),
        ("month,jobs,wall\n2026-11,1,nan\n", "wall: 'nan' is no number"),
        ('month,jobs\n2026-11,"1\n', "cannot be read as CSV"),
        ("record_id,end\nx,yesterday\n", "end: 'yesterday' is no time"),
        ("{", "cannot be read as JSON"),
        ("[1]", "row 1: no JSON object"),
        ('{"a": 1}', "holds no list of rows"),
        ("site,month,jobs\nELSEWHERE,2026-11,1\n", "tells nothing of this site"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_row_and_column(tmp_path: Path, text: str, said: str) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files())
    file = tmp_path / "told"
    file.write_text(text)
    with pytest.raises(UsageError, match=said):
        reconciled(site, file=file)


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files(), apel=summaries(path="sums"))
    with pytest.raises(UsageError, match="one target"):
        site.publisher.reconcile((), None, tmp_path / "x")
    with pytest.raises(UsageError, match="cannot be read"):
        site.publisher.reconcile(["spool"], None, tmp_path / "x")
    (tmp_path / "x").write_bytes(b"month\xff,jobs\n")
    with pytest.raises(UsageError, match="UTF-8"):
        site.publisher.reconcile(["spool"], None, tmp_path / "x")
    (tmp_path / "x").write_text("record_id\nx\n")
    with pytest.raises(UsageError, match="is sent summaries"):
        site.publisher.reconcile(["apel"], None, tmp_path / "x")
    with pytest.raises(UsageError, match="there are: spool, apel"):
        site.publisher.reconcile(["nowhere"])


def test_the_usual_months_are_this_one_and_the_one_before(tmp_path: Path) -> None:
    site = site_of(tmp_path, None, make_jobs(1), spool=files())
    with site.publisher.reconcile() as found:
        assert [one.month for one in found.targets["spool"].months] == [OCT, NOV]
        assert isinstance(found, Reconciliation)
        assert found.agrees
