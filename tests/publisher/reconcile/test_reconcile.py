"""reconcile with SGAS over real sockets: what is lost is found, sent again, and confirmed; what is foreign is reported.

Services are the simulators, with TLS; the store and the pipeline are the real ones.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import insert

from publisher.errors import StoppedError, TargetBusyError, UsageError
from publisher.simulator import Fault, Simulator
from publisher.simulator.pki import Pki
from publisher.store.schema import State, purged_months
from publisher.targets.base import EvidenceUnavailable, PeriodSum
from publisher.targets.sgas import SgasTarget
from tests.publisher.reconcile.reconciled_site import (
    DAY,
    NOV,
    OCT,
    asked,
    confirmed,
    kinds,
    month,
    reconciled,
    resent,
    sent_missing,
    sgas,
    site_of,
)
from tests.publisher.simulator.records import message, record
from tests.publisher.site import NOVEMBER, OCTOBER, make_job, make_jobs

pytestmark = pytest.mark.either_store


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
    assert (found.evidence, found.unavailable, found.agrees, differences) == ("query", None, True, [])
    november = month(found)
    assert (november.sent.jobs, november.service_jobs, november.confirmed, month(found, OCT).service_jobs) == (
        9,
        9,
        9,
        1,
    )
    assert november.service_wall_s == pytest.approx(november.sent.wall_s, abs=9 * 18)
    assert (november.sent.without_receipt, november.sent.assumed) == (0, 0)
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
    reported = kinds(differences)
    assert reported["missing"] == {jobs[4].record_id}, "the only job of its user: it is surely this one"
    assert reported["suspect"] == {job.record_id for job in jobs[:4]}, "one of the four"
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


def test_hours_that_sgas_rounds_are_not_a_difference(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    users = [f"/DC=org/CN=User {number % 7}" for number in range(60)]
    jobs = [
        make_job(number, wall_s=17 + number % 3, cores=1 + number % 4, user_dn=users[number]) for number in range(60)
    ]
    simulator.sgas.custom_query_defined = False
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    found, differences = reconciled(site)
    assert abs((month(found).service_wall_s or 0) - month(found).sent.wall_s) > 60, "the sums are far from equal"
    assert (found.agrees, differences, found.again_jobs, confirmed(site)) == (True, [], 0, 60)
    assert resent(site, NOV) == 0

    simulator.sgas.forget([jobs[3].record_id])
    site.now += 1000
    found, differences = reconciled(site)
    assert (month(found).missing, month(found).differing) == (1, 0)
    same_user = {job.record_id for job in jobs if job.user_dn == jobs[3].user_dn}
    assert kinds(differences) == {"suspect": same_user}
    assert resent(site, NOV) == len(same_user)
    assert reconciled(site)[0].agrees


@pytest.mark.parametrize("answered", [0, 1])
def test_all_months_have_the_same_measure_where_the_service_stops_answering(
    simulator: Simulator, pki: Pki, tmp_path: Path, answered: int
) -> None:
    site = site_of(
        tmp_path, pki, [make_job(1, end=OCTOBER + 5, cores=8), make_job(2, cores=8), make_job(3)], neic=sgas(simulator)
    )
    asked_for = []

    class StopsAnswering(SgasTarget):
        def usage(self, machine: str, first_day: int, behind_day: int) -> list[PeriodSum] | EvidenceUnavailable:
            asked_for.append(machine)
            if len(asked_for) > answered:
                return EvidenceUnavailable("no more")
            return super().usage(machine, first_day, behind_day)

    site.make_target = StopsAnswering
    found, _ = reconciled(site, OCT, NOV)
    assert [one.per_core for one in found.months] == [True, True]
    assert [one.sent.wall_s for one in found.months] == [800, 900], "core seconds"
    site.table["credentials"]["ca_directory"] = str(tmp_path / "nothing")
    site.reopen()
    found, _ = reconciled(site, OCT, NOV)
    assert [one.sent.wall_s for one in found.months] == [800, 900], "nor where it cannot be asked at all"


def test_records_of_others_are_foreign(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(3), neic=sgas(simulator))
    asked(simulator, pki, "POST", "/sgas/ur", message(record(1)))  # ends on 2026-11-01, on the same machine
    found, differences = reconciled(site)
    assert (month(found).foreign, month(found).missing, month(found).confirmed) == (1, 0, 3)
    assert kinds(differences) == {"foreign": {"2026-11-01 ce1.example.org /DC=org/CN=Jane atlas"}}
    assert not found.agrees
    assert (found.again_jobs, resent(site)) == (0, 0), "nothing of ours can mend that"


def test_names_that_were_not_sent_as_they_are_hide_and_invent_nothing(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    """A DN of more than 1,000 characters is omitted in the record: beside foreign data it was missing."""
    long = "/DC=org/CN=" + "x" * 1_100
    jobs = [*make_jobs(2, user_dn=long), *make_jobs(2, 3), make_job(5, user_dn="/CN=B\x07o")]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    asked(simulator, pki, "POST", "/sgas/ur", message(record(1)))
    found, differences = reconciled(site)
    assert (month(found).missing, month(found).foreign, month(found).confirmed) == (0, 1, 5)
    assert [one.kind for one in differences] == ["foreign"]


def test_only_what_can_be_missing_is_sent_again(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = [
        make_job(number, wall_s=1000 + number**3 * 7_919 % 50_021, cpu_ms=number**2 * 104_729 % 9_973 * 1000)
        for number in range(1, 26)
    ]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    lost = {jobs[place].record_id for place in (2, 6, 10, 19, 23)}
    simulator.sgas.forget(lost)
    found, differences = reconciled(site)
    assert kinds(differences) == {"missing": lost}
    assert (month(found).missing, month(found).confirmed, found.again_jobs) == (5, 20, 5)
    assert resent(site) == 5
    assert reconciled(site)[0].agrees
    simulator.sgas.forget([jobs[7].record_id])
    assert kinds(reconciled(site)[1]) == {"missing": {jobs[7].record_id}}


def test_a_lost_and_a_foreign_record_do_not_make_up_for_each_other(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    jobs = make_jobs(3, user_dn="/DC=org/CN=Jane")
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    asked(simulator, pki, "POST", "/sgas/ur", message(record(1)))
    simulator.sgas.forget([jobs[0].record_id])
    found, differences = reconciled(site)
    assert (month(found).differing, month(found).other_hours, month(found).missing) == (3, 3, 0)
    assert [one.kind for one in differences] == ["hours"]
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
    assert "LUTS answers 500" in (found.unavailable or "")
    one = month(found)
    assert (one.sent.jobs, one.sent.without_receipt, one.service_jobs, one.confirmed) == (3, 0, None, 0)
    assert found.agrees
    assert differences == []


def test_without_the_right_to_query_that_is_said(pki: Pki, tmp_path: Path) -> None:
    with Simulator(pki, rights={pki.client.dn: ["jobinsert"]}) as running:
        site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(running))
        found, _ = reconciled(site)
    assert found.unauthorised
    assert "query:all" in (found.unavailable or "")
    assert month(found).sent.jobs == 2


def test_credentials_that_cannot_be_used_leave_the_receipts(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    site.table["credentials"]["ca_directory"] = str(tmp_path / "nothing")
    site.reopen()
    found, _ = reconciled(site)
    assert found.unauthorised
    assert (found.evidence, month(found).sent.jobs, month(found).sent.without_receipt) == ("receipts", 2, 0)


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
    with pytest.raises(UsageError, match="must be named"):
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
    assert (one.states[State.WAITING], one.service_jobs, one.missing, one.foreign, one.confirmed) == (3, 3, 0, 0, 0)
    assert (differences, found.again_jobs) == ([], 0)


@pytest.mark.parametrize("stored", [True, False])
def test_a_version_that_may_have_ended_in_another_month_is_looked_for_in_both(
    simulator: Simulator, pki: Pki, tmp_path: Path, stored: bool
) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    site.sources["ce1"].add(make_job(3))
    simulator.faults.replace([Fault("close", service="sgas", stored=stored)])
    site.collect()
    site.publish()
    simulator.faults.replace([])
    site.sources["ce1"].add(make_job(3, end=OCTOBER + 5, user_dn="/DC=org/CN=Bo"))
    site.collect()
    site.publish()
    assert site.rows("SELECT record_id FROM deliveries JOIN runs ON id = run_id WHERE may_be_one_of_several = 1")
    found, differences = reconciled(site, OCT, NOV)
    assert (found.agrees, kinds(differences).keys()) == (True, {"superseded"}), "SGAS has one of the two versions"
    simulator.sgas.forget([make_job(1).record_id])
    site.now += DAY
    _, differences = reconciled(site, OCT, NOV)
    # if SGAS has the first version, the one that is missing may be the run that moved
    missing = set() if stored else {make_job(1).record_id, make_job(2).record_id}
    assert kinds(differences).get("suspect", set()) == missing


@pytest.mark.parametrize("stored", [True, False])
def test_a_job_given_up_with_an_unknown_outcome_makes_no_other_missing(
    simulator: Simulator, pki: Pki, tmp_path: Path, stored: bool
) -> None:
    site = site_of(tmp_path, pki, make_jobs(1), neic=sgas(simulator, vo=["atlas"]))
    site.sources["ce1"].add(make_job(2))
    simulator.faults.replace([Fault("close", service="sgas", stored=stored)])
    site.collect()
    site.publish()
    simulator.faults.replace([])
    site.sources["ce1"].add(make_job(2, vo="cms"))
    site.collect()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 1, State.SUPERSEDED: 1}
    site.now += DAY
    found, differences = reconciled(site)
    assert (month(found).service_jobs, month(found).missing) == (1 + stored, 0)
    assert kinds(differences).keys() == {"superseded"}
    simulator.sgas.forget([make_job(1).record_id])
    _, differences = reconciled(site)
    assert "missing" not in kinds(differences) or not stored


def test_a_service_that_does_not_remember_our_last_batch_was_perhaps_restored(
    simulator: Simulator, pki: Pki, tmp_path: Path
) -> None:
    class Restored(SgasTarget):
        def last_registration_s(self, _machine: str) -> float:
            return 7200.0

    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    assert reconciled(site)[0].notes == []
    site.make_target = Restored
    assert "restored from an earlier state" in reconciled(site)[0].notes[0]
    simulator.sgas.forget([make_job(1).record_id])
    assert month(reconciled(site)[0]).missing == 1, "the custom query has no lag"


def test_interrupted_it_ends_with_what_it_has_seen(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    jobs = [make_job(1, end=OCTOBER + 9), make_job(2)]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    site.stop_when = lambda: bool(site.rows("SELECT 1 FROM deliveries WHERE confirmed_at IS NOT NULL"))
    with pytest.raises(StoppedError, match="interrupted"):
        reconciled(site, OCT, NOV)
    assert confirmed(site) == 1


def test_of_a_purged_month_nothing_is_said(simulator: Simulator, pki: Pki, tmp_path: Path) -> None:
    site = site_of(tmp_path, pki, make_jobs(2), neic=sgas(simulator))
    with site.publisher.store.write() as connection:
        connection.execute(insert(purged_months).values(month=202611, runs=2, purged_at=site.now))
    found, differences = reconciled(site)
    assert month(found).purged
    assert (month(found).sent.jobs, month(found).service_jobs, differences) == (0, None, [])


@pytest.mark.parametrize("step", range(6))
def test_killed_while_it_sends_again_the_next_run_continues(
    simulator: Simulator, pki: Pki, tmp_path: Path, step: int
) -> None:
    jobs = make_jobs(6)
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator, batch_records=2))
    simulator.sgas.forget(job.record_id for job in jobs[:4])
    with site.publisher.reconcile((), (NOV,)) as found:
        killed = site.killed_at(step, lambda: sent_missing(site, found))
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
    with site.publisher.reconcile() as result, lock, pytest.raises(TargetBusyError, match="another run is sending"):
        site.publisher.send_missing(result)


@pytest.mark.parametrize("longest", [40, 120])
def test_records_that_sgas_renames_for_their_local_ids_are_delivered(
    simulator: Simulator, pki: Pki, tmp_path: Path, longest: int
) -> None:
    """LUTS 3.8.1 as released keeps these under their GlobalJobIds, its master under their own ids."""
    simulator.sgas.longest_local_id = longest
    host = "pbs01.cluster.physics.university.example.org"
    jobs = [make_job(n, local_id=f"{n}.{host}", global_id=f"gsiftp://ce1.example.org/jobs/{n}") for n in range(1, 4)]
    site = site_of(tmp_path, pki, jobs, neic=sgas(simulator))
    names = {job.global_id if longest == 40 else job.record_id for job in jobs}
    assert simulator.sgas.holdings().keys() == names
    site.sources["ce1"].add(make_job(4))
    (sent,) = site.publisher.run().targets.values()
    assert (sent.sent.accepted, simulator.sgas.stats()["received"]) == (1, 4)
    found, differences = reconciled(site)
    assert (found.agrees, differences, confirmed(site)) == (True, [], 4)
