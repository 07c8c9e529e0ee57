"""Sending: the same batch under the same id, power that goes, runs that change while they are sent."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from formats.job import Job
from publisher.events import BatchAnswered, BatchInFlight, Event, RecordSettled
from publisher.store.schema import State
from publisher.targets.base import Accepted, Message, Outcome, Refused, Transient, Unauthorised, Unknown
from tests.publisher.publish.waiting_site import DOWN, record_id, site_of
from tests.publisher.receivers import Fault, RecordReceiver, once, records_of
from tests.publisher.site import Killed, Site, make_job

pytestmark = pytest.mark.either_store


def test_the_same_batch_sent_again_has_the_same_id(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 5)
    service.fault = once(Unknown("the connection was cut"))
    site.publish()
    site.publish()
    first, second = service.messages
    assert first.batch_id == second.batch_id
    assert first.payload == second.payload


def test_other_contents_have_another_id(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 5)
    service.fault = once(Transient("HTTP 503"))
    site.publish()
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    first, second = service.messages
    assert first.batch_id != second.batch_id


@pytest.mark.parametrize("stored", [True, False], ids=["after the service stored it", "before it reached the service"])
def test_what_was_in_flight_at_a_power_failure_is_sent_again_under_the_same_id(tmp_path: Path, stored: bool) -> None:
    site, service = site_of(tmp_path, 250)
    kind = BatchAnswered if stored else BatchInFlight
    second_of_kind = 1

    def count(event: Event) -> bool:
        nonlocal second_of_kind
        if isinstance(event, kind):
            second_of_kind -= 1
        return second_of_kind < 0

    step = _step_at(site, tmp_path / "copy", count)
    second_of_kind = 1
    service.messages.clear()
    service.held.clear()
    assert site.killed_at(step, site.publish)
    flying = site.in_state("neic", State.IN_FLIGHT)
    assert len(flying) == 100
    before = service.posts
    site.publish()
    again = service.messages[before]
    assert set(again.record_ids) == flying
    if stored:
        assert again.batch_id == service.messages[before - 1].batch_id
    assert site.counted("neic") == {State.ACCEPTED: 250}
    assert len(service.held) == 250
    twice = len(service.posted()) - 250
    assert twice == (100 if stored else 0)


def test_a_run_that_changed_while_it_was_in_flight_is_sent_again_under_another_id(tmp_path: Path) -> None:
    """Under the same id a service may take it for what it has (Idempotency-Key)."""
    site, service = site_of(tmp_path, 5, RecordReceiver("neic", "ams"))
    assert site.killed_at(
        _step_at(site, tmp_path / "copy", lambda event: isinstance(event, BatchAnswered)), site.publish
    )
    service.messages.clear()
    site.sources["ce1"].add(make_job(3, wall_s=7))
    site.collect()
    before = site.rows("SELECT uid FROM batches")
    site.publish()
    assert [message.batch_id for message in service.messages] != [row[0] for row in before]
    assert site.counted("neic") == {State.ACCEPTED: 5}


def _then(*outcomes: Outcome) -> Callable[[Message, Accepted], Outcome]:
    """Answers after a message was stored: the first is that no answer came."""
    left = list(outcomes)
    return lambda _message, accepted: left.pop(0) if left else accepted


@pytest.mark.parametrize(
    "second", [Unauthorised("HTTP 403"), DOWN, Refused("HTTP 406", certain=True)], ids=["unauthorised", "down", "406"]
)
def test_what_may_have_been_taken_stays_so_whatever_is_answered_to_a_second_try(
    tmp_path: Path, second: Outcome
) -> None:
    """SGAS keeps the first version that it gets, also where its answer to that did not come."""
    site, service = site_of(tmp_path, 1, attempts=2)
    service.answer = _then(Unknown("the connection was cut"), second, *[second] * 20)
    site.publish()
    assert site.counted("neic") == {State.WAITING: 1}
    service.answer = lambda _message, accepted: accepted
    site.sources["ce1"].add(make_job(1, wall_s=7))
    site.collect()
    site.publish()
    assert service.held[record_id(1)] != 7
    assert site.counted("neic") == {State.SUPERSEDED: 1}


def _step_at(site: Site, image: Path, reached: Callable[[Event], bool]) -> int:
    """The number of the event at which this is true, found in a trial run whose store is thrown away."""
    site.snapshot(image)
    site.events.clear()
    site.publish()
    step = next(index for index, event in enumerate(site.events) if reached(event))
    site.restore(image)
    return step


def test_an_interrupted_run_leaves_everything_waiting(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, 150)

    def interrupt(event: Event) -> None:
        if isinstance(event, BatchInFlight):
            raise Killed

    site.watch = interrupt
    with pytest.raises(Killed):
        site.publish()
    assert site.counted("neic") == {State.WAITING: 150}
    assert site.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]
    site.watch = lambda _event: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 150}


def test_last_sent_end_time_is_that_of_what_was_accepted(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 10)
    service.poison = {record_id(10)}
    site.publish()
    status = site.publisher.status()
    assert status.targets["neic"].last_sent_end_time == make_job(9).end
    assert status.targets["neic"].complete_until == make_job(10).end
    assert status.complete


def _collected_meanwhile(site: Site, job: Job) -> None:
    """Another process collects a job of the site's source."""
    site.sources["ce1"].add(job)
    other = Site(site.folder, list(site.sources.values()), list(site.receivers.values()))
    other.table = site.table
    other.collect()
    other.reopen()


@pytest.mark.parametrize("kind", ["sgas", "ams"])
@pytest.mark.parametrize("when", ["before the batch leaves", "in flight"])
def test_a_run_that_changes_while_it_is_being_sent_is_not_lost(tmp_path: Path, kind: str, when: str) -> None:
    site, service = site_of(tmp_path, 5, RecordReceiver("neic", kind))
    changed = make_job(3, wall_s=7)
    change = partial(_collected_meanwhile, site, changed)
    if when == "in flight":
        service.fault = _doing(change)
    else:
        _when_rendered(site, change)
    site.publish()
    site.assert_counters_right()
    service.fault = lambda _message: None
    site.publish()
    site.assert_counters_right()
    if kind == "ams" or when == "before the batch leaves":
        assert service.held[changed.record_id] == 7
        assert site.counted("neic") == {State.ACCEPTED: 5}
    else:
        assert service.held[changed.record_id] == 100
        assert site.in_state("neic", State.SUPERSEDED) == {changed.record_id}


def test_a_run_that_is_deselected_and_selected_again_before_its_batch_leaves_is_sent_as_it_is_now(
    tmp_path: Path,
) -> None:
    site, service = site_of(tmp_path, 5)
    changed = make_job(3, wall_s=7)

    def change() -> None:
        _collected_meanwhile(site, make_job(3, status="aborted"))
        _collected_meanwhile(site, changed)

    _when_rendered(site, change)
    site.publish()
    site.publish()
    assert service.held[changed.record_id] == 7
    assert site.counted("neic") == {State.ACCEPTED: 5}
    site.assert_counters_right()


@pytest.mark.parametrize("ending", ["accepted", "refused", "transient", "killed"])
def test_a_run_that_is_no_longer_selected_while_it_is_in_flight_is_superseded(tmp_path: Path, ending: str) -> None:
    site, service = site_of(tmp_path, 4)
    gone = make_job(2, status="aborted")
    change = partial(_collected_meanwhile, site, gone)
    endings: dict[str, Outcome] = {"refused": DOWN, "transient": Transient("503")}
    last = endings.get(ending)
    service.fault = _doing(change, last)
    if ending == "killed":
        assert site.killed_at(2, site.publish)
    else:
        site.publish()
    service.fault = lambda _message: None
    site.publish()
    assert site.states("neic")[gone.record_id] is State.SUPERSEDED
    assert "no longer selects it" in (site.reasons("neic")[gone.record_id] or "")
    assert site.counted("neic") == {State.ACCEPTED: 3, State.SUPERSEDED: 1}
    site.assert_counters_right()


def test_a_run_that_changes_while_its_earlier_version_is_refused_is_not_rejected(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 5)
    earlier, changed = make_job(2), make_job(2, wall_s=7)
    change = _doing(partial(_collected_meanwhile, site, changed))

    def refusing(message: Message) -> Outcome | None:
        change(message)
        return DOWN if records_of(message).get(earlier.record_id) == 100 else None

    service.fault = refusing
    delivery = site.publish_to("neic")
    assert (delivery.sent.accepted, delivery.sent.rejected) == (4, 0)
    assert not [event for event in site.events if isinstance(event, RecordSettled)]
    assert site.states("neic")[changed.record_id] is State.WAITING
    site.assert_counters_right()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 5}
    assert service.held[changed.record_id] == 7
    site.assert_counters_right()


@pytest.mark.parametrize("changes", [1, 3, 5])
def test_a_run_that_changes_before_it_leaves_with_other_batches_leaves_later(tmp_path: Path, changes: int) -> None:
    """All three leave with one commit; each run is alone in its batch or with one more."""
    site, service = site_of(tmp_path, 5, RecordReceiver("neic"))
    site.configure("neic", workers=3, batch_records=2)
    changed = make_job(changes, wall_s=7)
    _when_rendered(site, partial(_collected_meanwhile, site, changed))
    assert site.publish_to("neic").sent.accepted == 4
    assert site.states("neic")[changed.record_id] is State.WAITING
    site.assert_counters_right()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 5}
    assert service.held[changed.record_id] == 7
    assert sorted(service.posted()) == sorted(make_job(number).record_id for number in range(1, 6))
    site.assert_counters_right()


def _doing(action: Callable[[], None], outcome: Outcome | None = None) -> Fault:
    """Do something while the first message is with the service, which then answers this."""
    done = False

    def fault(_message: Message) -> Outcome | None:
        nonlocal done
        if done:
            return None
        done = True
        action()
        return outcome

    return fault


def _when_rendered(site: Site, action: Callable[[], None]) -> None:
    """Do something when the first batch is rendered and about to leave: the dispatcher asks for the time first."""
    done = False
    now = site.now

    def clock() -> int:
        nonlocal done
        if not done and sys._getframe(1).f_code.co_name == "send_now":
            done = True
            action()
        return now

    site.publisher.tools = msgspec.structs.replace(site.publisher.tools, clock=clock)
