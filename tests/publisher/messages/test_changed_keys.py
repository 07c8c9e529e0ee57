"""A delivered run whose key at APEL changed is held before it is sent, and goes when somebody says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.events import RecordSettled
from publisher.messages.steps import BacklogLimits
from publisher.sources.base import Window
from publisher.store.schema import State
from publisher.targets.base import Accepted
from publisher.text import iso
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

CHANGES = [{"end": NOVEMBER + 90_000}, {"local_id": "other"}]


def delivered(folder: Path, service: RecordReceiver) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(5))
    site = Site(folder, [source], [service])
    site.collect()
    site.publish()
    return site


@pytest.mark.parametrize("change", CHANGES, ids=["end time", "local id"])
def test_a_changed_key_is_held_and_shown_before_anything_is_sent(tmp_path: Path, change: dict[str, object]) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    changed = make_job(2, **change)
    site.sources["ce1"].add(changed, make_job(3, wall_s=7))
    site.collect()
    site.events.clear()
    done = site.publish_to("apel")
    assert (done.sent.accepted, done.sent.held) == (1, 1), "other corrections go"
    assert site.in_state("apel", State.HELD) == {changed.record_id}
    assert "count twice" in (site.reasons("apel")[changed.record_id] or "")
    assert [e.state for e in site.events if isinstance(e, RecordSettled)] == ["held"]
    assert isinstance(site.events[1], RecordSettled), "before anything is sent"
    assert changed.record_id not in service.messages[-1].record_ids
    site.assert_counters_right()


def test_nothing_but_a_person_releases_it(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    changed = make_job(2, end=NOVEMBER + 90_000)
    site.sources["ce1"].add(changed)
    site.collect()
    site.publish()
    posts = service.posts
    site.configure("apel", vo=["atlas"])  # plans anew
    site.publish()
    site.publisher.retry(State.HELD, "apel")  # all that is held, whatever for
    site.publish()
    site.sources["ce1"].add(make_job(2, end=NOVEMBER + 95_000))
    site.collect()
    site.publish()
    assert service.posts == posts
    assert site.in_state("apel", State.HELD) == {changed.record_id}

    site.publisher.retry(State.HELD, "apel", [changed.record_id])
    assert site.publish_to("apel").sent.accepted == 1
    assert service.messages[-1].record_ids == (changed.record_id,)


def test_a_key_that_is_as_it_was_again_goes_by_itself(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    site.sources["ce1"].add(make_job(2, end=NOVEMBER + 90_000))
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(2, wall_s=9))
    site.collect()
    assert site.publish_to("apel").sent.accepted == 1
    assert service.held[make_job(2).record_id] == 9


def test_sent_again_on_request_it_is_still_held(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    site = delivered(tmp_path, service)
    site.sources["ce1"].add(make_job(2, end=NOVEMBER + 90_000))
    site.collect()
    site.publish()
    plan = site.publisher.plan_republish("apel", Window(NOVEMBER, NOVEMBER + 100_000))
    assert (plan.counts.new, plan.counts.unchanged, plan.counts.stays_held) == (0, 4, 1)
    assert (plan.to_send, plan.to_hold) == (4, {}), "said before anything is sent"
    site.republish("apel", NOVEMBER, NOVEMBER + 100_000)
    assert site.in_state("apel", State.HELD) == {make_job(2).record_id}
    assert len(site.in_state("apel", State.ACCEPTED)) == 4


@pytest.mark.parametrize(
    "service", [RecordReceiver("neic", "sgas"), SummaryReceiver("sums")], ids=["sgas", "summaries"]
)
def test_services_with_another_key_do_not_care(tmp_path: Path, service: RecordReceiver) -> None:
    site = delivered(tmp_path, service)
    site.sources["ce1"].add(make_job(2, end=NOVEMBER + 90_000))
    site.collect()
    site.publish()
    assert site.in_state(service.name, State.HELD) == set()
    if isinstance(service, SummaryReceiver):
        assert service.total()[0] == 5


@pytest.mark.parametrize("change", CHANGES, ids=["end time", "local id"])
def test_one_that_was_in_flight_at_a_power_failure_is_held_too(tmp_path: Path, change: dict[str, object]) -> None:
    service = RecordReceiver("apel", "ams")
    source = ListSource("ce1")
    source.add(*make_jobs(5))
    site = Site(tmp_path, [source], [service])
    site.collect()
    assert site.killed_at(2, site.publish)
    assert len(service.held) == 5, "taken, and the answer is lost"
    changed = make_job(2, **change)
    source.add(changed)
    site.collect()
    done = site.publish_to("apel")
    assert (done.sent.accepted, done.sent.held) == (4, 1)
    assert service.posted().count(changed.record_id) == 1
    assert "count twice" in (site.reasons("apel")[changed.record_id] or "")
    site.assert_counters_right()

    site.publisher.retry(State.HELD, "apel", [changed.record_id])
    assert site.publish_to("apel").sent.accepted == 1


def test_one_that_changes_on_its_way_is_held_in_the_same_run(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    source = ListSource("ce1")
    source.add(*make_jobs(1500))
    site = Site(tmp_path, [source], [service])
    site.backlog = BacklogLimits(loaded=100)  # so that the run comes by it again
    site.configure("apel", batch_records=50)
    site.collect()
    changed = make_job(2, end=NOVEMBER + 900_000)

    def change_once(_message: object, accepted: Accepted) -> Accepted:
        if service.posts == 1:
            source.add(changed)
            other = Site.beside(site)
            other.collect()
            other.reopen()
        return accepted

    service.answer = change_once
    done = site.publish_to("apel")
    assert (done.sent.accepted, done.sent.held) == (1500, 1)
    assert service.posted().count(changed.record_id) == 1
    assert site.in_state("apel", State.HELD) == {changed.record_id}
    site.assert_counters_right()


def test_one_that_was_delivered_before_us_is_held_too(tmp_path: Path) -> None:
    service = RecordReceiver("apel", "ams")
    source = ListSource("ce1")
    source.add(*make_jobs(5))
    site = Site(tmp_path, [source], [service])
    site.configure("apel", delivered_until=iso(NOVEMBER + 80_000))
    site.collect()
    changed = make_job(2, end=NOVEMBER + 90_000)
    source.add(changed, make_job(3, wall_s=7))
    site.collect()
    done = site.publish_to("apel")
    assert (done.sent.accepted, done.sent.held) == (1, 1), "one that keeps its key is corrected"
    assert service.posted() == [make_job(3).record_id]
    site.publisher.retry(State.HELD, "apel", [changed.record_id])
    assert site.publish_to("apel").sent.accepted == 1
    site.assert_counters_right()
