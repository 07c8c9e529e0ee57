"""Several messages on their way at a time: the same promises as with one."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from publisher.observe.events import BatchAnswered, BatchInFlight, Event
from publisher.store.states import State
from publisher.targets.base import Message, Outcome, Transient, Unknown
from tests.publisher.receivers import Receiver, always
from tests.publisher.site import ListSource, Site, make_job, make_jobs

WORKERS = 3
pytestmark = pytest.mark.either_store


class Busy(Receiver):
    """A service that counts how many messages it holds at once, and answers none before `together` are there."""

    def __init__(self, together: int = 1) -> None:
        super().__init__("neic")
        self.most = 0
        self._now = 0
        self._lock = threading.RLock()
        self._gate = threading.Barrier(together) if together > 1 else None

    def post(self, message: Message) -> Outcome:
        """Count, meet the others, store."""
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            if self._gate is not None:
                self._gate.wait(60)
            with self._lock:
                return super().post(message)
        finally:
            with self._lock:
                self._now -= 1


def site_of(folder: Path, count: int, service: Receiver) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(count))
    site = Site(folder, [source], [service])
    site.configure("neic", workers=WORKERS, batch_records=10)
    site.collect()
    return site


def test_as_many_messages_as_workers_are_on_their_way_at_a_time(tmp_path: Path) -> None:
    service = Busy(together=WORKERS)
    site = site_of(tmp_path, 90, service)
    assert site.publish_to("neic").sent.batches == 9
    assert service.most == WORKERS
    assert sorted(service.posted()) == sorted({job.record_id for job in make_jobs(90)})
    assert site.counted("neic") == {State.ACCEPTED: 90}
    site.assert_counters_right()
    assert site.rows("SELECT count(*) FROM batches WHERE receipt IS NULL") == [(0,)]


def test_what_became_of_messages_is_put_down_in_the_order_in_which_they_left(tmp_path: Path) -> None:
    site = site_of(tmp_path, 120, Busy(together=WORKERS))
    site.publish()
    left = [event.batch_id for event in site.events if isinstance(event, BatchInFlight)]
    answered = [event.batch_id for event in site.events if isinstance(event, BatchAnswered)]
    assert left == answered == sorted(left)


def test_bad_records_are_found_among_messages_side_by_side(tmp_path: Path) -> None:
    service = Busy()
    service.poison = {make_job(number).record_id for number in (7, 8, 55, 101)}
    site = site_of(tmp_path, 120, service)
    site.publish()
    assert site.in_state("neic", State.REJECTED) == service.poison
    assert site.counted("neic") == {State.ACCEPTED: 116, State.REJECTED: 4}
    assert len(service.held) == 116
    site.assert_counters_right()


def test_when_the_service_goes_down_what_it_took_meanwhile_is_put_down(tmp_path: Path) -> None:
    service = Busy()
    site = site_of(tmp_path, 120, service)
    first = make_job(31).record_id
    service.fault = lambda message: Transient("HTTP 503") if first in message.record_ids else None
    delivery = site.publish_to("neic")
    assert delivery.sent.paused == "HTTP 503"
    accepted = site.in_state("neic", State.ACCEPTED)
    assert accepted == set(service.held)
    assert site.counted("neic") == {State.ACCEPTED: len(accepted), State.WAITING: 120 - len(accepted)}
    assert site.rows("SELECT count(*) FROM deliveries WHERE state = 1 AND sent_digest IS NOT NULL") == [(0,)]
    site.assert_counters_right()
    service.fault = lambda _message: None
    site.publish()
    assert len(service.posted()) == 120 + 10  # the batch that failed came twice, no other
    assert site.counted("neic") == {State.ACCEPTED: 120}


def test_lost_answers_cost_at_most_one_message_a_worker(tmp_path: Path) -> None:
    service = Busy()
    service.answer = lambda _message, _accepted: Unknown("the connection was cut")
    site = site_of(tmp_path, 120, service)
    site.publish()
    assert len(service.held) <= WORKERS * 10
    service.answer = lambda _message, accepted: accepted
    site.publish()
    assert len(service.posted()) - 120 <= WORKERS * 10
    assert len(service.held) == 120


@pytest.mark.parametrize("step", [1, 4, 7, 10, 13, 19])
def test_killed_at_an_event_at_most_one_message_a_worker_is_sent_twice(tmp_path: Path, step: int) -> None:
    service = Busy()
    site = site_of(tmp_path, 90, service)
    assert site.killed_at(step, site.publish)
    site.publish()
    assert len(service.held) == 90
    assert len(service.posted()) - 90 <= WORKERS * 10
    assert site.counted("neic") == {State.ACCEPTED: 90}
    site.assert_counters_right()


def test_told_to_stop_no_further_message_leaves(tmp_path: Path) -> None:
    service = Busy()
    site = site_of(tmp_path, 120, service)
    told = threading.Event()

    def stop(event: Event) -> None:
        if isinstance(event, BatchAnswered):
            told.set()

    site.watch = stop
    site.publisher.tools = msgspec.structs.replace(site.publisher.tools, stopping=told.is_set)
    site.publish()
    assert site.counted("neic")[State.ACCEPTED] == len(service.held) <= WORKERS * 10
    site.assert_counters_right()


def test_with_one_worker_each_message_waits_for_the_answer_to_the_last(tmp_path: Path) -> None:
    service = Busy()
    site = site_of(tmp_path, 50, service)
    site.configure("neic", workers=1, batch_records=10)
    service.fault = always(Transient("HTTP 503"))
    assert site.publish_to("neic").sent.batches == 1
