"""Several messages on their way at a time: the same promises as with one."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec
import pytest

from publisher.errors import CredentialError
from publisher.events import BatchAnswered, BatchInFlight, Event, ignore
from publisher.publish.retry import RetryBudget, post
from publisher.store.schema import State
from publisher.targets.base import Message, Outcome, Refused, Throttled, Transient, Unknown
from tests.publisher.receivers import RecordReceiver, always
from tests.publisher.site import ListSource, Site, make_job, make_jobs

WORKERS = 3
pytestmark = pytest.mark.either_store


class Busy(RecordReceiver):
    """A service that counts how many messages it has at the same time, and answers none before `together` are there,
    except the last, after `rounds` rounds of them."""

    def __init__(self, together: int = 1, rounds: int = 3) -> None:
        super().__init__("neic")
        self.most = 0
        self._now = 0
        self._came = 0
        self._waiting_for_others = together * rounds
        self._lock = threading.RLock()
        self._gate = threading.Barrier(together) if together > 1 else None

    def post(self, message: Message) -> Outcome:
        """Count, meet the others, store."""
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
            self._came += 1
            waits = self._came <= self._waiting_for_others
        try:
            if self._gate is not None and waits:
                self._gate.wait(60)
            with self._lock:
                return super().post(message)
        finally:
            with self._lock:
                self._now -= 1


def site_of(folder: Path, count: int, service: RecordReceiver) -> Site:
    source = ListSource("ce1")
    source.add(*make_jobs(count))
    site = Site(folder, [source], [service])
    site.configure("neic", workers=WORKERS, batch_records=10)
    site.collect()
    return site


def test_as_many_messages_as_workers_are_on_their_way_at_a_time(tmp_path: Path) -> None:
    service = Busy(together=WORKERS)
    site = site_of(tmp_path, 100, service)
    assert site.publish_to("neic").sent.batches == 10
    assert service.most == WORKERS
    assert sorted(service.posted()) == sorted({job.record_id for job in make_jobs(100)})
    assert site.counted("neic") == {State.ACCEPTED: 100}
    site.assert_counters_right()
    assert site.rows("SELECT count(*) FROM batches WHERE receipt IS NULL") == [(0,)]


def test_messages_for_workers_that_are_free_leave_with_one_commit(tmp_path: Path) -> None:
    counted: list[int] = []

    def count(_message: Message) -> None:
        counted.append(site.rows("SELECT messages FROM sent_mark")[0][0])

    service = Busy()
    service.fault = count
    site = site_of(tmp_path, 100, service)
    site.publish()
    assert min(counted) == WORKERS
    assert max(counted) == 10
    assert site.counted("neic") == {State.ACCEPTED: 100}


def test_the_last_message_leaves_when_it_is_known_what_became_of_the_others(tmp_path: Path) -> None:
    """What is taken last shows how the service was after all that it refused."""
    service = Busy(together=WORKERS)
    service.poison = {make_job(30).record_id}
    site = site_of(tmp_path, 100, service)
    assert site.publish_to("neic").sent.paused is None
    assert site.in_state("neic", State.REJECTED) == service.poison
    last = next(
        place for place, message in enumerate(service.messages) if make_job(100).record_id in message.record_ids
    )
    refused = [place for place, message in enumerate(service.messages) if service.poison & set(message.record_ids)]
    assert max(refused[:-1]) < last, "the record is tried once more after it"


def test_what_became_of_messages_is_put_down_in_the_order_in_which_they_left(tmp_path: Path) -> None:
    site = site_of(tmp_path, 100, Busy(together=WORKERS))
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


def test_when_the_service_goes_down_what_it_took_meanwhile_is_recorded(tmp_path: Path) -> None:
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


def test_interrupted_no_further_message_leaves(tmp_path: Path) -> None:
    service = Busy()
    site = site_of(tmp_path, 120, service)
    reported = threading.Event()

    def stop(event: Event) -> None:
        if isinstance(event, BatchAnswered):
            reported.set()

    site.watch = stop
    site.publisher.tools = msgspec.structs.replace(site.publisher.tools, stopping=reported.is_set)
    site.publish()
    assert site.counted("neic")[State.ACCEPTED] == len(service.held) <= WORKERS * 10
    site.assert_counters_right()


def test_with_one_worker_each_message_waits_for_the_answer_to_the_last(tmp_path: Path) -> None:
    service = Busy()
    site = site_of(tmp_path, 50, service)
    site.configure("neic", workers=1, batch_records=10)
    service.fault = always(Transient("HTTP 503"))
    assert site.publish_to("neic").sent.batches == 1


class Filling(Busy):
    """SGAS whose disk is full once the messages of `last` came: what it has it ignores and answers well to.

    Those of `first` wait for that moment.
    """

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self._first, self._last = make_job(first).record_id, make_job(last).record_id
        self._full = threading.Event()

    def post(self, message: Message) -> Outcome:
        """Store, or refuse what is new."""
        if self._first in message.record_ids:
            assert self._full.wait(60)
        with self._lock:
            self.messages.append(message)
            if self._full.is_set() and set(message.record_ids) - self.held.keys():
                return Refused("HTTP 500: Processing Failed", certain=False)
            if self._last in message.record_ids:
                self._full.set()
            return self.answer(message, self.store(message))


def test_what_was_taken_beside_a_refused_message_does_not_show_that_the_service_is_well(tmp_path: Path) -> None:
    """It may have been accepted before the disk was full."""
    site = site_of(tmp_path, 200, Filling(1, 31))
    site.configure("neic", workers=2, batch_records=30)
    assert "accepts no new record any more" in str(site.publish_to("neic").sent.paused)
    assert site.counted("neic") == {State.ACCEPTED: 30, State.WAITING: 170}
    site.assert_counters_right()


def test_what_was_taken_that_it_may_have_had_does_not_show_that_the_service_is_well(tmp_path: Path) -> None:
    """The answers to the first two messages are lost, and the disk is full; it has the second."""
    service = Filling(1, 31)
    service.answer = lambda _message, _accepted: Unknown("the connection was cut")
    site = site_of(tmp_path, 200, service)
    site.configure("neic", workers=2, batch_records=30)
    site.publish()
    assert len(service.held) == 30
    service.answer = lambda _message, accepted: accepted
    for _ in range(2):
        site.publish()
        assert site.counted("neic") == {State.ACCEPTED: 30, State.WAITING: 170}
    site.assert_counters_right()


def test_a_message_lost_with_its_credentials_may_have_been_taken_at_an_earlier_try(tmp_path: Path) -> None:
    """The refusal of credentials is reported, whatever ended the run."""

    class Expiring(Busy):
        def __init__(self) -> None:
            super().__init__()
            self._both = threading.Barrier(2)

        def post(self, message: Message) -> Outcome:
            with self._lock:
                again = any(each.record_ids == message.record_ids for each in self.messages)
                self.messages.append(message)
                self.store(message)
            if not again:
                self._both.wait(60)
                return Unknown("the connection was cut")
            if make_job(1).record_id in message.record_ids:
                return Transient("HTTP 503")
            raise CredentialError("the certificate expired")

    site = site_of(tmp_path, 60, Expiring())
    site.configure("neic", workers=2, batch_records=10, attempts=2, retry_wait=0.001)
    assert isinstance(site.publish_to("neic").error, CredentialError)
    assert site.counted("neic") == {State.WAITING: 60}
    assert site.rows("SELECT count(*) FROM deliveries WHERE sent_digest IS NOT NULL") == [(20,)]
    assert site.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]
    site.assert_counters_right()


class Limited(Busy):
    """A service that asks the message with a certain record to wait when both of the first two are there; the other is
    answered when `asked` is set."""

    def __init__(self, asked: int, retry_after_s: float) -> None:
        super().__init__()
        self._asked = make_job(asked).record_id
        self._answer = Throttled("HTTP 429", retry_after_s)
        self._both = threading.Barrier(2)
        self._first = 2
        self.asked = threading.Event()
        self.pausing = False
        self.came_in_pause = 0

    def post(self, message: Message) -> Outcome:
        """Ask, or store."""
        with self._lock:
            self._first -= 1
            is_first = self._first >= 0
            self.came_in_pause += self.pausing
        if is_first:
            self._both.wait(60)
            if self._asked in message.record_ids:
                return self._answer
            assert self.asked.wait(60)
        return super().post(message)


def test_a_service_that_asks_to_wait_is_left_alone_by_all_workers(tmp_path: Path) -> None:
    service = Limited(11, 30.0)
    site = site_of(tmp_path, 60, service)
    site.configure("neic", workers=2, batch_records=10, attempts=2)
    left = threading.Event()

    def pause(_seconds: float) -> None:
        service.pausing = True
        service.asked.set()
        assert left.wait(60), "the next message is on its way to a worker while the other pauses"
        service.pausing = False

    def third(event: Event) -> None:
        if isinstance(event, BatchInFlight) and event.batch_id == 3:
            left.set()

    site.watch = third
    site.publisher.tools = msgspec.structs.replace(site.publisher.tools, sleep=pause)
    assert site.publish_to("neic").sent.paused is None
    assert service.came_in_pause == 0
    assert site.counted("neic") == {State.ACCEPTED: 60}


def test_a_service_that_asks_for_too_long_a_pause_gets_no_message_more(tmp_path: Path) -> None:
    service = Limited(1, 86_400.0)
    site = site_of(tmp_path, 60, service)
    site.configure("neic", workers=2, batch_records=10, attempts=2)

    def asked_to_wait(event: Event) -> None:
        if isinstance(event, BatchAnswered) and event.outcome == "Throttled":
            service.asked.set()

    site.watch = asked_to_wait
    assert site.publish_to("neic").sent.paused == "HTTP 429"
    assert site.counted("neic") == {State.ACCEPTED: 10, State.WAITING: 50}
    assert service.posts == 1, "beside the one that was asked to wait"
    site.assert_counters_right()


def test_after_such_an_answer_no_message_leaves_that_another_worker_has(tmp_path: Path) -> None:
    answer = Throttled("HTTP 429", 86_400.0)
    service = RecordReceiver("neic")
    service.fault = lambda _message: answer
    site = site_of(tmp_path, 1, service)
    budget = RetryBudget(site.config.targets["neic"])
    messages = [Message(uid, "ogf-ur", "text/xml", b"<x/>") for uid in ("first", "second")]
    given = [post(service, message, number, budget, ignore) for number, message in enumerate(messages)]
    assert given == [answer, answer]
    assert service.posts == 1
