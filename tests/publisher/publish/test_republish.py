"""Sending again goes on where it was cut off, and begins anew where it was finished."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from formats.rule_codes import RuleCode
from publisher.errors import TargetBusyError
from publisher.messages import erased_groups
from publisher.publish.republish import GroupCounts
from publisher.reason import ReasonCode, sentence
from publisher.sources.base import Window
from publisher.store.admin import purge
from publisher.store.schema import State
from publisher.targets.base import Refused, Transient
from tests.publisher.receivers import AnyReceiver, RecordReceiver, SummaryReceiver, always
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

JOBS = 40
WINDOW = Window(NOVEMBER, NOVEMBER + 30 * 86_400)


def delivered(folder: Path, service: RecordReceiver) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(JOBS))
    site = Site(folder, [source], [service])
    site.configure(service.name, batch_records=10)
    site.collect()
    site.publish()
    return site


def again(site: Site, name: str = "apel", *, only_missing: bool = False) -> None:
    site.republish(name, NOVEMBER, NOVEMBER + 30 * 86_400, only_missing=only_missing)


@pytest.mark.parametrize("step", [1, 5, 8])
def test_after_a_kill_a_repeated_request_sends_what_is_left(tmp_path: Path, step: int) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    assert site.killed_at(step, lambda: again(site))
    left = len(site.in_state("apel", State.WAITING) | site.in_state("apel", State.IN_FLIGHT))
    plan = site.publisher.plan_republish("apel", WINDOW)
    assert plan.resumes == site.now
    assert (plan.counts.new, plan.counts.changed, plan.counts.unchanged, plan.to_send) == (left, 0, 0, left)
    again(site)
    assert site.counted("apel") == {State.ACCEPTED: JOBS}
    came = Counter(service.posted())
    assert set(came.values()) <= {2, 3}
    assert sum(times == 3 for times in came.values()) <= 10, "only what was in flight came once more"
    assert [entry.action for entry in site.publisher.audit()].count("republish") == 1


def test_finished_it_begins_anew(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    again(site)
    plan = site.publisher.plan_republish("apel", WINDOW)
    assert (plan.resumes, plan.counts.unchanged) == (None, JOBS)
    again(site)
    assert set(Counter(service.posted()).values()) == {3}


def test_what_another_run_finished_is_not_left_half_done(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    service.fault = always(Transient("HTTP 503"))
    again(site)
    service.fault = lambda _message: None
    assert site.publisher.plan_republish("apel", WINDOW).resumes is not None
    site.publish()  # the timer's
    site.sources["ce1"].add(make_job(99))
    site.collect()
    plan = site.publisher.plan_republish("apel", WINDOW)
    assert (plan.resumes, plan.counts.new, plan.counts.unchanged) == (None, 1, JOBS)


@pytest.mark.parametrize("kind", ["ams", "sgas"])
def test_a_window_that_is_refused_leaves_in_the_ledger_what_the_service_has(tmp_path: Path, kind: str) -> None:
    service = RecordReceiver("apel", kind)
    site = delivered(tmp_path, service)
    digests = "SELECT sent_digest FROM deliveries ORDER BY run_id"
    before = site.rows(digests)
    assert (None,) not in before
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    service.fault = always(Refused("HTTP 500", certain=False))
    again(site)
    assert site.counted("apel")[State.WAITING] >= JOBS - 1
    assert site.rows(digests) == before
    site.sources["ce1"].add(make_job(2, status="aborted"))
    site.collect()
    assert site.states("apel")[make_job(2).record_id] is State.SUPERSEDED, "the service has it"
    service.fault = lambda _message: None
    site.publish()
    assert set(site.counted("apel")) <= {State.ACCEPTED, State.SUPERSEDED}
    site.assert_counters_right()


def test_another_window_is_another_request(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    service.fault = always(Transient("HTTP 503"))
    again(site)
    assert site.publisher.plan_republish("apel", Window(NOVEMBER, NOVEMBER + 3610)).resumes is None
    assert site.publisher.plan_republish("apel", WINDOW, only_missing=True).resumes is None


def test_what_is_held_is_counted_by_itself(tmp_path: Path) -> None:
    """Whether it can be sent shows only when it is tried."""
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    site.sources["ce1"].add(*make_jobs(3, first=50, benchmarks=()), make_job(60))
    site.collect()
    site.publish()
    held = site.in_state("apel", State.HELD)
    assert len(held) == 3
    plan = site.publisher.plan_republish("apel", WINDOW)
    counts = plan.counts
    assert (counts.new, counts.unchanged, counts.held, counts.stays_held) == (0, JOBS + 1, 3, 0)
    assert (plan.to_send, plan.to_hold, plan.held_again) == (JOBS + 1, {RuleCode.NO_BENCHMARK: 3}, 3)
    done = site.publisher.plan_republish("apel", WINDOW, only_missing=True)
    assert (done.counts.held, done.to_send) == (3, 0)
    again(site)
    assert len(service.posted()) - JOBS - 1 == plan.to_send
    assert site.in_state("apel", State.HELD) == held
    detail = site.publisher.audit()[0].detail
    assert detail.startswith("jobs that ended from 20")
    assert "sent again: 3 held, 41 accepted" in detail


def test_what_will_be_held_before_it_leaves_is_not_counted_as_sent(tmp_path: Path) -> None:
    """It waits, and its key at the service is not the one under which it was delivered."""
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    site.sources["ce1"].add(make_job(2, end=NOVEMBER + 90_000), make_job(3, wall_s=7), make_job(60))
    site.collect()
    plan = site.publisher.plan_republish("apel", WINDOW)
    assert (plan.counts.new, plan.counts.unchanged, plan.counts.held) == (3, JOBS - 2, 0)
    assert (plan.to_send, plan.to_hold, plan.held_again) == (JOBS, {ReasonCode.KEY_CHANGED: 1}, 0)
    before = len(service.posted())
    again(site)
    assert len(service.posted()) - before == plan.to_send
    assert site.in_state("apel", State.HELD) == {make_job(2).record_id}


def test_what_a_person_alone_releases_stays_held(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    site.sources["ce1"].add(make_job(60, benchmarks=()))
    site.collect()
    site.publish()
    with site.publisher.store.write() as connection:
        connection.execute(
            text("UPDATE deliveries SET reason = :why, reason_parameters = NULL WHERE reason IS NOT NULL"),
            {"why": purge.LATE.code},
        )
    plan = site.publisher.plan_republish("apel", WINDOW)
    assert (plan.counts.held, plan.counts.stays_held, plan.to_send) == (0, 1, JOBS)
    again(site)
    assert site.in_state("apel", State.HELD) == {make_job(60).record_id}
    assert site.reasons("apel")[make_job(60).record_id] == sentence(purge.LATE)


@pytest.mark.parametrize("shared", [False, True])
def test_while_another_run_is_at_work_it_says_so(tmp_path: Path, shared: bool) -> None:
    """Alone, or one of several that share the target: each of them holds the target's own lock, so or so."""
    site = delivered(tmp_path, RecordReceiver("apel", "ams"))
    other = Site.beside(site)
    with other.publisher.store.lock("target-apel", shared=shared) as held:
        assert held
        assert site.publisher.plan_republish("apel", WINDOW).busy
        with pytest.raises(TargetBusyError, match="target apel"):
            again(site)
    assert site.counted("apel") == {State.ACCEPTED: JOBS}
    assert not site.publisher.plan_republish("apel", WINDOW).busy
    other.reopen()


MONTHS = (OCTOBER, NOVEMBER)


def two_months(folder: Path, service: RecordReceiver, **settings: Any) -> Site:
    """Five jobs of October and five of November wait."""
    source = ListSource("ce1")
    for month in MONTHS:
        source.add(*(make_job(number + month % 7, end=month + 3600 + number) for number in range(0, 50, 10)))
    site = Site(folder, [source], [service])
    site.configure(service.name, **settings)
    site.collect()
    return site


@pytest.mark.parametrize("kind", ["ams", "sgas", "directory"])
def test_what_waits_outside_the_window_is_left_to_publish(tmp_path: Path, kind: str) -> None:
    service = SummaryReceiver("apel") if kind == "directory" else RecordReceiver("apel", kind)
    site = two_months(tmp_path, service, every="7d")
    plan = site.publisher.plan_republish("apel", Window(OCTOBER, OCTOBER + 86_400))
    assert (plan.to_send, plan.elsewhere) == (5, 5)
    assert site.republish("apel", OCTOBER, OCTOBER + 86_400).sent.accepted == 5
    assert site.counted("apel") == {State.ACCEPTED: 5, State.WAITING: 5}
    site.now += 60
    assert site.publisher.run().targets["apel"].sent.accepted == 5, "`every` is not counted from a republish"
    assert site.counted("apel") == {State.ACCEPTED: 10}


def test_sync_counts_of_the_window_alone_go_with_it(tmp_path: Path) -> None:
    service = AnyReceiver("apel")
    site = two_months(tmp_path, service, records="apel-job", sync=True)
    site.republish("apel", OCTOBER, OCTOBER + 86_400)
    assert [b"Month: 10" in message.payload for message in service.messages if message.format == "apel-sync"] == [True]
    site.publish()
    synced = [message.payload for message in service.messages if message.format == "apel-sync"]
    assert [b"Month: 11" in payload for payload in synced] == [False, True]


def test_only_missing_leaves_out_summaries_that_did_not_change(tmp_path: Path) -> None:
    service = SummaryReceiver("sums")
    site = delivered(tmp_path, service)
    bo = {"user_dn": "/DC=org/CN=Bo"}
    site.sources["ce1"].add(make_job(98, **bo))
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(99, **bo))
    site.collect()
    plan = site.publisher.plan_republish("sums", WINDOW, only_missing=True)
    assert (plan.counts.new, plan.counts.unchanged, plan.to_send) == (1, 0, 1)
    again(site, "sums", only_missing=True)
    assert sorted(service.times_sent.values()) == [1, 2]
    again(site, "sums")
    assert sorted(service.times_sent.values()) == [2, 3]


def test_only_missing_leaves_out_reports_that_did_not_change(tmp_path: Path) -> None:
    service = AnyReceiver("apel")
    site = two_months(tmp_path, service, records="utilization", period="day", bin="6h")
    site.publish()
    assert service.posts == 2
    site.republish("apel", OCTOBER, NOVEMBER + 86_400, only_missing=True)
    assert service.posts == 2
    site.republish("apel", OCTOBER, NOVEMBER + 86_400)
    assert service.posts == 4


def test_what_is_released_since_is_announced_where_a_request_continues(tmp_path: Path) -> None:
    """A new source had no jobs of October when the first run failed."""
    service = SummaryReceiver("apel")
    site = two_months(tmp_path, service)
    site.publish()
    site.sources["ce2"] = ListSource("ce2", complete_since=NOVEMBER)
    site.table["sources"]["ce2"] = site.table["sources"]["ce1"]
    site.reopen()
    site.collect()
    service.fault = always(Transient("HTTP 503"))
    site.republish("apel", OCTOBER, NOVEMBER + 86_400)
    assert site.counted("apel") == {State.HELD: 5, State.WAITING: 5}
    service.fault = lambda _message: None
    site.sources["ce2"] = ListSource("ce2")
    site.reopen()
    site.collect()
    plan = site.publisher.plan_republish("apel", Window(OCTOBER, NOVEMBER + 86_400))
    assert (plan.resumes is not None, plan.to_send, plan.to_hold) == (True, 10, {})
    assert site.republish("apel", OCTOBER, NOVEMBER + 86_400).sent.accepted == 10


def test_what_was_in_flight_is_settled_first_wherever_it_ended(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = two_months(tmp_path, service)
    assert site.killed_at(2, site.publish)
    plan = site.publisher.plan_republish("apel", Window(OCTOBER, OCTOBER + 86_400))
    assert (plan.to_send, plan.in_flight, plan.elsewhere) == (5, 5, 0)
    assert site.republish("apel", OCTOBER, OCTOBER + 86_400).sent.accepted == 10


def test_a_request_is_done_when_nothing_of_its_window_waits(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = two_months(tmp_path, service)
    window = Window(OCTOBER, NOVEMBER)
    site.republish("apel", OCTOBER, NOVEMBER)
    assert site.publisher.plan_republish("apel", window).resumes is None
    service.fault = always(Transient("HTTP 503"))
    site.republish("apel", OCTOBER, NOVEMBER)
    assert site.publisher.plan_republish("apel", window).resumes is not None


def test_reports_that_are_due_go_with_it(tmp_path: Path) -> None:
    """The report of a day counts runs that ended on others."""
    service = AnyReceiver("apel")
    site = two_months(tmp_path, service, records="utilization", period="day", bin="6h")
    plan = site.publisher.plan_republish("apel", Window(OCTOBER, OCTOBER + 86_400))
    assert (plan.to_send, plan.elsewhere, plan.sends_all_due) == (10, 5, True)
    assert site.republish("apel", OCTOBER, OCTOBER + 86_400).sent.accepted == 10


def test_of_two_runs_with_one_key_the_first_is_sent_though_it_was_rejected(tmp_path: Path) -> None:
    """Both wait again, so that the second is held again."""
    service = RecordReceiver("apel", "ams")
    sources = [ListSource("ce1"), ListSource("ce2")]
    sources[0].add(*make_jobs(5))
    sources[1].add(make_job(2, record_id="ur-ce2.example.org-0002", wall_s=50))
    site = Site(tmp_path, sources, [service])
    site.configure("apel", batch_records=1)
    service.poison = {make_job(2).record_id}
    site.collect()
    site.publish()
    assert (len(site.in_state("apel", State.REJECTED)), len(site.in_state("apel", State.HELD))) == (1, 1)
    service.poison = set()
    plan = site.publisher.plan_republish("apel", WINDOW)
    assert (plan.to_send, plan.to_hold, plan.held_again) == (5, {RuleCode.SAME_KEY: 1}, 1)
    sent = site.republish("apel", NOVEMBER, NOVEMBER + 30 * 86_400).sent
    assert (sent.accepted, sent.held) == (5, 1)


def test_the_summary_of_an_erased_person_is_not_counted_under_both_names(tmp_path: Path) -> None:
    service = SummaryReceiver("sums")
    site = delivered(tmp_path, service)
    before = service.total()
    site.now += 60
    site.publisher.maintenance.forget("/DC=org/CN=Ada", "/CN=erased 1")
    site.now += 60
    again(site, "sums")
    site.sources["ce1"].add(make_job(99))
    site.collect()
    again(site, "sums")
    assert service.total() == before
    assert set(site.reasons("sums").values()) == {sentence(erased_groups.HELD)}


def test_summaries_continue_as_well(tmp_path: Path) -> None:
    service = SummaryReceiver("sums")
    site = delivered(tmp_path, service)
    before = dict(service.times_sent)
    service.fault = always(Transient("HTTP 503"))
    again(site, "sums")
    service.fault = lambda _message: None
    assert site.publisher.plan_republish("sums", WINDOW).resumes is not None
    again(site, "sums")
    assert service.times_sent == {key: times + 1 for key, times in before.items()}
    assert site.publisher.plan_republish("sums", WINDOW).resumes is None


def foreseen(site: Site, name: str, *, only_missing: bool = False) -> tuple[GroupCounts, GroupCounts]:
    plan = site.publisher.plan_republish(name, Window(OCTOBER, NOVEMBER + 30 * 86_400), only_missing=only_missing)
    return plan.groups, plan.sync


@pytest.mark.parametrize("change", ["none", "benchmark", "late job", "no benchmark"])
@pytest.mark.parametrize("only_missing", [False, True])
def test_the_plan_announces_the_summaries_that_are_really_sent(tmp_path: Path, change: str, only_missing: bool) -> None:
    """After a change of the benchmark all keys are others: the earlier groups are emptied."""
    service = SummaryReceiver("sums")
    source = ListSource("ce1")
    for month in MONTHS:
        for number, dn in enumerate(("/CN=Ada", "/CN=Bo")):
            source.add(make_job(number + month % 7, end=month + 3600 + number, user_dn=dn, benchmarks=()))
    site = Site(tmp_path, [source], [service])
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 10.0}
    site.configure("sums", sync=True)
    site.collect()
    site.publish()
    assert len(service.sums) == 4
    before = set(service.sums)
    if change == "benchmark":
        site.table["sources"]["ce1"]["benchmark"]["value"] = 12.0
    elif change == "no benchmark":
        del site.table["sources"]["ce1"]["benchmark"]
    elif change == "late job":
        source.add(make_job(80, user_dn="/CN=Ada", benchmarks=()), make_job(81, user_dn="/CN=Cy", benchmarks=()))
    site.reopen()
    site.collect()
    summaries, sync = foreseen(site, "sums", only_missing=only_missing)
    service.times_sent.clear()
    service.messages.clear()
    site.republish("sums", OCTOBER, NOVEMBER + 30 * 86_400, only_missing=only_missing)
    sent = set(service.times_sent)
    emptied = {key for key in sent if not service.sums[key][0]}
    assert (summaries.total, summaries.new, summaries.emptied) == (len(sent), len(sent - before), len(emptied))
    assert sync.total == sum(
        message.payload.count(b"SubmitHost:") for message in service.messages if "sync" in message.format
    )
    expected = {
        ("none", False): GroupCounts(unchanged=4),
        ("benchmark", False): GroupCounts(new=4, emptied=4),
        ("late job", False): GroupCounts(new=1, changed=1, unchanged=3),
        ("late job", True): GroupCounts(new=1, changed=1),
        ("no benchmark", False): GroupCounts(emptied=4),
    }
    assert summaries == expected.get((change, only_missing), GroupCounts())


@pytest.mark.parametrize("only_missing", [False, True])
def test_the_plan_announces_the_reports_that_are_really_sent(tmp_path: Path, only_missing: bool) -> None:
    service = AnyReceiver("apel")
    site = two_months(tmp_path, service, records="utilization", period="day", bin="6h")
    site.publish()
    site.sources["ce1"].add(make_job(98, end=NOVEMBER + 3700), make_job(99, end=NOVEMBER + 90_000))
    site.collect()
    reports, _ = foreseen(site, "apel", only_missing=only_missing)
    before = service.posts
    site.republish("apel", OCTOBER, NOVEMBER + 30 * 86_400, only_missing=only_missing)
    assert reports.total == service.posts - before
    assert reports == GroupCounts(new=1, changed=1, unchanged=0 if only_missing else 1)


@pytest.mark.parametrize("only_missing", [False, True])
def test_the_plan_announces_the_sync_counts_that_go_with_job_records(tmp_path: Path, only_missing: bool) -> None:
    service = AnyReceiver("apel")
    site = two_months(tmp_path, service, records="emi-car", sync=True)
    site.publish()
    site.sources["ce1"].add(make_job(99, end=NOVEMBER + 90_000))
    site.collect()
    plan = site.publisher.plan_republish("apel", Window(OCTOBER, NOVEMBER + 30 * 86_400), only_missing=only_missing)
    service.messages.clear()
    site.republish("apel", OCTOBER, NOVEMBER + 30 * 86_400, only_missing=only_missing)
    sent = sum(message.payload.count(b"SubmitHost:") for message in service.messages if message.format == "apel-sync")
    assert plan.to_send == len(service.posted()) == (1 if only_missing else 11)
    assert plan.sync.total == sent
    assert plan.sync == GroupCounts(changed=1)
    assert plan.groups == GroupCounts()
