"""Jobs that an earlier publisher delivered: distinguished from those that we delivered, counted, and no other jobs
count as such."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.publish.decide import DeliveredBefore
from publisher.sources.base import Window
from publisher.store.schema import State
from publisher.text import iso
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

LIMIT = NOVEMBER + 3600 + 5


def moved(folder: Path, receiver: RecordReceiver, *sources: ListSource) -> Site:
    """A site that moved over: jobs 1 to 5 were delivered before."""
    site = Site(folder, sources or [ListSource("ce1")], [receiver])
    site.configure(receiver.name, delivered_until=iso(LIMIT))
    return site


def test_they_are_distinguished(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = moved(tmp_path, service)
    site.sources["ce1"].add(*make_jobs(8))
    site.collect()
    site.publish()
    assert len(service.held) == 3
    target = site.publisher.status().targets["neic"]
    assert (target.accepted, target.assumed, target.waiting) == (8, 5, 0)
    quick = site.publisher.status(assumed=False).targets["neic"]
    assert (quick.accepted, quick.assumed) == (8, None)  # counting them takes the longer the more there are
    places = {run.run.record_id: run.whereabouts[0].assumed for run in site.publisher.jobs(Window())}
    assert [places[make_job(number).record_id] for number in range(1, 9)] == [True] * 5 + [False] * 3
    (entry,) = site.publisher.audit()
    assert (entry.action, entry.subject) == ("delivered_until", "neic")
    assert "ce1" in entry.detail
    site.assert_counters_right()


def test_a_late_job_with_an_older_end_is_sent(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = moved(tmp_path, service)
    site.sources["ce1"].add(*make_jobs(3))
    site.collect()
    site.sources["ce1"].add(make_job(4))
    site.collect()
    site.publish()
    assert set(service.held) == {make_job(4).record_id}


def test_a_source_that_comes_later_was_not_delivered_before(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = moved(tmp_path, service, ListSource("ce1"), ListSource("ce2"))
    del site.table["sources"]["ce2"]
    site.reopen()
    site.sources["ce1"].add(make_job(1))
    site.collect("ce1")
    site.table["sources"]["ce2"] = dict(site.table["sources"]["ce1"])
    site.reopen()
    site.sources["ce2"].add(make_job(2))
    site.collect()
    site.publish()
    assert set(service.held) == {make_job(2).record_id}


def test_a_first_reading_in_several_goes_is_one(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = moved(tmp_path, service, ListSource("ce1", page=2))
    site.sources["ce1"].add(*make_jobs(5))
    site.sources["ce1"].fails = "no"
    site.collect()
    site.sources["ce1"].fails = None
    site.collect()
    assert site.publisher.status().targets["neic"].assumed == 5


def test_jobs_selected_later_do_not_count_as_delivered(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = moved(tmp_path, service)
    site.configure("neic", vo=["atlas"])
    site.sources["ce1"].add(make_job(1), make_job(2, vo="cms"))
    site.collect()
    site.configure("neic", vo=["atlas", "cms"])
    site.publish()
    assert set(service.held) == {make_job(2).record_id}


def test_changing_the_setting_later_changes_nothing_and_is_recorded(tmp_path: Path) -> None:
    site = moved(tmp_path, RecordReceiver("neic"))
    site.sources["ce1"].add(*make_jobs(8))
    site.collect()
    site.configure("neic", delivered_until=iso(NOVEMBER + 86400))
    site.collect()
    assert site.counted("neic") == {State.ACCEPTED: 5, State.WAITING: 3}
    assert "stored jobs do not change" in site.publisher.audit()[0].detail


def test_only_missing_sends_them_and_then_they_are_ours(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = moved(tmp_path, service)
    site.sources["ce1"].add(*make_jobs(5))
    site.collect()
    window = Window(NOVEMBER, NOVEMBER + 86400)
    plan = site.publisher.plan_republish("neic", window, only_missing=True)
    assert (plan.counts.assumed, plan.to_send) == (5, 5)
    site.republish("neic", NOVEMBER, NOVEMBER + 86400, only_missing=True)
    assert len(service.held) == 5
    assert site.publisher.status().targets["neic"].assumed == 0
    assert site.publisher.plan_republish("neic", window, only_missing=True).to_send == 0


@pytest.mark.parametrize(("kind", "state"), [("sgas", State.SUPERSEDED), ("ams", State.ACCEPTED)])
def test_one_that_changes_afterwards_is_treated_as_all(tmp_path: Path, kind: str, state: State) -> None:
    service = RecordReceiver("one", kind)
    site = moved(tmp_path, service)
    site.sources["ce1"].add(make_job(1))
    site.collect()
    site.sources["ce1"].add(make_job(1, wall_s=200))
    site.collect()
    site.publish()
    assert site.states("one") == {make_job(1).record_id: state}
    assert site.publisher.status().targets["one"].assumed == 0
    assert len(service.held) == (0 if kind == "sgas" else 1)


def test_of_summaries_the_month_in_part_is_sent_whole(tmp_path: Path) -> None:
    service = SummaryReceiver("apel")
    site = moved(tmp_path, service)
    site.sources["ce1"].add(*make_jobs(3, end=OCTOBER + 60), *make_jobs(8, first=4, end=None) or [])
    site.sources["ce1"].log = [
        *(make_job(number, end=OCTOBER + number) for number in range(1, 4)),
        *(make_job(number, end=LIMIT - 10 + number) for number in range(4, 16)),
    ]
    site.collect()
    assert site.publisher.status().targets["apel"].assumed == 10
    site.publish()
    assert service.total()[0] == 12, "November whole, with what counts as delivered; October not at all"
    site.sources["ce1"].add(make_job(99, end=OCTOBER + 99))
    site.collect()
    site.publish()
    assert service.total()[0] == 16, "a late job brings the whole of October"


def test_of_summaries_a_month_that_is_not_known_whole_is_held(tmp_path: Path) -> None:
    service = SummaryReceiver("apel")
    site = moved(tmp_path, service, ListSource("ce1", complete_since=NOVEMBER + 60))
    site.sources["ce1"].add(*make_jobs(8))
    site.collect()
    site.publish()
    assert service.messages == []
    assert site.counted("apel") == {State.ACCEPTED: 5, State.HELD: 3}


def test_taking_over_moves_only_what_was_never_sent(tmp_path: Path) -> None:
    service = RecordReceiver("neic")
    site = Site(tmp_path, [ListSource("ce1")], [service])
    site.sources["ce1"].add(*make_jobs(4), make_job(5, vo=None))
    site.configure("neic", unknown_vo="hold", vo=["atlas"])
    service.poison = {make_job(2).record_id}
    site.collect()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 3, State.REJECTED: 1, State.HELD: 1}
    site.sources["ce1"].add(*make_jobs(4, first=6))
    site.collect()
    assert site.publisher.take_over_until("neic", make_job(7).end or 0) == 3, "the held one, and two that wait"
    ids = {name: run for name, *run in site.rows("SELECT record_id, id, digest FROM runs")}
    chosen = [(run_id, bytes(digest)) for run_id, digest in (ids[make_job(number).record_id] for number in (1, 2, 8))]
    assert site.publisher.take_over("neic", DeliveredBefore(chosen), "a list") == 1
    assert site.counted("neic") == {State.ACCEPTED: 7, State.REJECTED: 1, State.WAITING: 1}
    assert site.publisher.status().targets["neic"].assumed == 4
    assert [entry.action for entry in site.publisher.audit()][:2] == ["take over", "take over"]
    site.assert_counters_right()
