"""Summaries and sync counts: of whole months, sent when they changed, each replacing the previous one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from formats.job import Job
from publisher.store.schema import State
from publisher.targets.base import Outcome, Refused, Transient, Unauthorised
from tests.publisher.receivers import SummaryReceiver, always
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

pytestmark = pytest.mark.either_store

DECEMBER = NOVEMBER + 30 * 86400


def user_job(number: int, user: str, **facts: Any) -> Job:
    return make_job(number, user_dn=f"/DC=org/CN={user}", **facts)


def site_of(folder: Path, *jobs: Job, complete_since: int | None = 0) -> tuple[Site, SummaryReceiver]:
    source = ListSource("ce1", complete_since=complete_since)
    source.add(*jobs)
    service = SummaryReceiver("apel")
    site = Site(folder, [source], [service])
    site.collect()
    return site, service


def by_user(service: SummaryReceiver) -> dict[str, int]:
    return {user.rsplit("cn=")[-1]: jobs for user, jobs in service.users().items()}


def test_a_month_is_sent_whole_and_its_runs_are_accepted_with_it(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Ada"), user_job(3, "Bo", wall_s=7))
    delivery = site.publish_to("apel")
    assert (delivery.sent.accepted, delivery.sent.groups) == (3, 2)
    assert by_user(service) == {"ada": 2, "bo": 1}
    assert service.total() == (3, 207, 104)
    assert service.sync == {("arcrest:https://ce1.example.org:443/arex", 202611): 3}
    assert site.counted("apel") == {State.ACCEPTED: 3}
    assert service.messages[-1].format == "apel-sync"


def test_an_unchanged_month_sends_nothing(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"))
    site.publish()
    before = service.posts
    site.collect()
    site.publish()
    assert service.posts == before


def test_a_late_job_sends_only_its_group_again_and_the_sync_count(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Bo"))
    site.publish()
    site.sources["ce1"].add(user_job(3, "Bo", end=NOVEMBER + 5))
    site.collect()
    site.publish()
    assert by_user(service) == {"ada": 1, "bo": 2}
    assert sorted(service.times_sent.values()) == [1, 2]
    assert list(service.sync.values()) == [3]


def test_a_group_that_vanished_is_sent_with_no_jobs(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Bo"))
    site.publish()
    site.sources["ce1"].add(user_job(2, "Ada"))
    site.collect()
    site.publish()
    assert by_user(service) == {"ada": 2, "bo": 0}
    site.publish()
    assert sorted(service.times_sent.values()) == [2, 2]


def test_a_run_that_is_no_longer_selected_leaves_its_month(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Bo"))
    site.publish()
    site.sources["ce1"].add(user_job(2, "Bo", status="aborted"))
    site.collect()
    site.publish()
    assert by_user(service) == {"ada": 1, "bo": 0}
    assert list(service.sync.values()) == [1]
    assert site.counted("apel") == {State.ACCEPTED: 1}
    site.assert_counters_right()


def test_a_run_that_moves_to_another_month_leaves_the_first(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada", end=NOVEMBER - 10), user_job(2, "Ada", end=NOVEMBER - 20))
    site.publish()
    site.sources["ce1"].add(user_job(1, "Ada", end=NOVEMBER + 10))
    site.collect()
    site.publish()
    assert service.total()[0] == 2
    assert sorted(service.sync.values()) == [1, 1]


def test_a_run_waived_while_it_is_held_is_no_longer_due(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Ada", benchmarks=()))
    site.publish()
    assert list(service.sync.values()) == [2]
    site.publisher.waive(State.HELD, "apel", [make_job(2).record_id], "a test job")
    site.publish()
    assert list(service.sync.values()) == [1]
    assert service.total()[0] == 1


# --- months that are not known to be complete


def test_a_month_that_is_not_known_whole_is_held_with_the_reason_and_released_by_complete_since(tmp_path: Path) -> None:
    old, new = user_job(1, "Ada", end=OCTOBER + 5), user_job(2, "Ada", end=DECEMBER + 5)
    site, service = site_of(tmp_path, old, new, complete_since=NOVEMBER + 7)
    delivery = site.publish_to("apel")
    assert delivery.sent.held == 1
    assert site.states("apel") == {old.record_id: State.HELD, new.record_id: State.ACCEPTED}
    assert "sources.ce1.complete_since" in (site.reasons("apel")[old.record_id] or "")
    assert service.total()[0] == 1
    site.table["sources"]["ce1"]["complete_since"] = "2026-10-01"
    site.reopen()
    site.publish()
    assert service.total()[0] == 2
    assert site.counted("apel") == {State.ACCEPTED: 2}


def test_a_source_that_does_not_know_its_first_day_holds_every_month(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), complete_since=None)
    site.publish()
    assert service.posts == 0
    assert site.counted("apel") == {State.HELD: 1}


def test_a_source_not_read_to_its_end_holds_and_releases_by_itself(tmp_path: Path) -> None:
    source = ListSource("ce1", page=1)
    source.add(user_job(1, "Ada"), user_job(2, "Ada"))
    source.fails = "locked"
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.collect()
    site.publish()
    assert site.counted("apel") == {State.HELD: 1}
    assert "not yet read to its end" in str(site.reasons("apel"))
    source.fails = None
    site.collect()
    site.publish()
    assert service.total()[0] == 2


def test_a_run_without_a_benchmark_is_held_alone_and_released_when_one_is_configured(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Ada", benchmarks=()))
    delivery = site.publish_to("apel")
    assert (delivery.sent.accepted, delivery.sent.held) == (1, 1)
    assert "benchmark" in (site.reasons("apel")[make_job(2).record_id] or "").lower()
    assert list(service.sync.values()) == [2]
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 14.2}
    site.reopen()
    site.publish()
    assert service.total()[0] == 2
    assert site.counted("apel") == {State.ACCEPTED: 2}


# --- republish, order, errors


def test_republish_sends_whole_months_again(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada", end=OCTOBER + 9), user_job(2, "Ada"), user_job(3, "Bo"))
    site.publish()
    before = dict(service.times_sent)
    delivery = site.republish("apel", NOVEMBER + 86400, NOVEMBER + 2 * 86400)
    assert delivery.sent.accepted == 2
    again = {key: times - before[key] for key, times in service.times_sent.items()}
    assert sorted(again.values()) == [0, 1, 1]
    assert service.total()[0] == 3
    assert site.publisher.audit()[0].action == "republish"


def test_the_order_in_which_jobs_turn_up_makes_no_difference(tmp_path: Path) -> None:
    jobs = [user_job(number, ("Ada", "ada", "Bo")[number % 3], wall_s=number) for number in range(1, 20)]
    sums = []
    for seed in range(3):
        folder = tmp_path / str(seed)
        folder.mkdir()
        shuffled = random.Random(seed).sample(jobs, len(jobs))
        site, service = site_of(folder, *shuffled[:5])
        for job in shuffled[5:]:
            site.sources["ce1"].add(job)
        site.publish()
        site.collect()
        site.publish()
        sums.append((service.sums, service.sync, max(m.payload for m in service.messages)))
    assert sums[0] == sums[1] == sums[2]


@pytest.mark.parametrize("outcome", [Transient("HTTP 503"), Unauthorised("HTTP 403")])
def test_a_problem_makes_the_month_wait(tmp_path: Path, outcome: Outcome) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Bo"))
    service.fault = always(outcome)
    delivery = site.publish_to("apel")
    assert delivery.sent.paused is not None
    assert delivery.sent.unauthorised == isinstance(outcome, Unauthorised)
    assert site.counted("apel") == {State.WAITING: 2}
    service.fault = lambda _message: None
    site.publish()
    assert by_user(service) == {"ada": 1, "bo": 1}


def test_a_refused_group_is_rejected_alone(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Bo"), user_job(3, "Cy"))
    service.fault = lambda message: Refused("HTTP 400", certain=True) if b"CN=Bo" in message.payload else None
    site.publish()
    assert by_user(service) == {"ada": 1, "cy": 1}
    assert site.in_state("apel", State.REJECTED) == {make_job(2).record_id}


@pytest.mark.parametrize("step", range(9))
def test_killed_at_any_event_the_next_run_ends_with_the_right_sums(tmp_path: Path, step: int) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Bo"), user_job(3, "Bo", end=OCTOBER + 5))
    site.killed_at(step, site.publish)
    site.publish()
    assert service.total()[0] == 3
    assert sum(service.sync.values()) == 3
    assert site.counted("apel") == {State.ACCEPTED: 3}
    site.assert_counters_right()


@pytest.mark.parametrize("step", range(9))
def test_killed_while_accepted_runs_are_held_the_next_run_takes_their_group_back(tmp_path: Path, step: int) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada", benchmarks=()), user_job(2, "Bo", benchmarks=()))
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 14.2}
    site.reopen()
    site.publish()
    assert by_user(service) == {"ada": 1, "bo": 1}
    del site.table["sources"]["ce1"]["benchmark"]
    site.sources["ce1"].add(user_job(3, "Cy", benchmarks=()))
    site.reopen()
    site.collect()
    site.killed_at(step, site.publish)
    site.publish()
    site.publish()
    assert sum(by_user(service).values()) == 0
    assert site.counted("apel") == {State.HELD: 3}
    assert site.rows("SELECT * FROM due_months WHERE purpose = 'fold'") == []
    site.assert_counters_right()


def test_a_run_that_changes_while_its_summary_is_made_is_in_the_next(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, user_job(1, "Ada"), user_job(2, "Ada"))
    changed = user_job(2, "Ada", wall_s=7)
    done = False

    def change(_event: object) -> None:
        nonlocal done
        if not done:
            done = True
            site.sources["ce1"].add(changed)
            other = Site(tmp_path, list(site.sources.values()), [service])
            other.table = site.table
            other.collect()
            other.reopen()

    site.watch = change
    site.publish()
    assert done
    site.publish()
    assert service.total() == (2, 107, 54)
    assert site.counted("apel") == {State.ACCEPTED: 2}


def test_what_an_earlier_publisher_delivered_without_a_group_makes_no_month_due_for_ever(tmp_path: Path) -> None:
    source = ListSource("ce1", complete_since=0)
    source.add(user_job(1, "Ada", benchmarks=()), user_job(2, "Ada", end=NOVEMBER + 9000))
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.configure("apel", delivered_until="2026-11-01T02:00:00Z")
    site.collect()
    site.publish()
    source.add(user_job(3, "Ada", end=NOVEMBER + 9001))
    for _ in range(3):
        site.collect()
        site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 3}
    assert site.rows("SELECT * FROM due_months WHERE purpose = 'fold'") == []
