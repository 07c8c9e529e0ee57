"""Sending: each outcome, bisecting in few posts, a service that is down told from a record that is bad."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from publisher.errors import CredentialError
from publisher.observe.events import BatchAnswered, BatchInFlight, Event, RetryPlanned
from publisher.store.states import State
from publisher.targets.base import (
    Accepted,
    Message,
    Outcome,
    Oversized,
    Refused,
    Throttled,
    Transient,
    Unauthorised,
    Unknown,
)
from tests.publisher.receivers import Fault, Receiver, always, once, script
from tests.publisher.site import Killed, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

DOWN = Refused("HTTP 500: Processing Failed", certain=False)


def site_of(folder: Path, count: int, receiver: Receiver | None = None, **settings: object) -> tuple[Site, Receiver]:
    """A site whose jobs are collected and wait for one service."""
    source = ListSource("ce1")
    source.add(*make_jobs(count))
    receiver = receiver or Receiver("neic")
    site = Site(folder, [source], [receiver])
    if settings:
        site.configure(receiver.name, **settings)
    site.collect()
    return site, receiver


def record_id(number: int) -> str:
    return make_job(number).record_id


def test_all_that_waits_is_sent_in_batches_oldest_first(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 250)
    delivery = site.publish_to("neic")
    assert (delivery.sent.accepted, delivery.sent.batches, delivery.error) == (250, 3, None)
    assert [len(message.record_ids) for message in service.messages] == [100, 100, 50]
    assert service.posted() == [record_id(number) for number in range(1, 251)]
    assert site.counted("neic") == {State.ACCEPTED: 250}
    assert delivery.sent.bytes == sum(len(message.payload) for message in service.messages)


def test_a_second_run_sends_nothing(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 50)
    site.publish()
    before = service.posts
    site.collect()
    assert site.publish_to("neic").sent.batches == 0
    assert service.posts == before


def test_a_batch_is_in_the_ledger_as_in_flight_before_it_is_posted(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3)
    seen: list[set[State]] = []

    def look(_message: Message) -> None:
        seen.append(set(site.states("neic").values()))

    service.fault = look
    site.publish()
    assert seen == [{State.IN_FLIGHT}]


def test_the_receipt_is_kept_with_the_batch(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, 2)
    site.publish()
    place = site.publisher.job(record_id(2))[0].whereabouts[0]
    assert place.state is State.ACCEPTED
    assert place.batch is not None
    assert place.batch.receipt == {record_id(1): "0", record_id(2): "1"}


# --- bad records


@pytest.mark.parametrize("place", [1, 37, 50, 51, 99, 100])
def test_one_bad_record_in_a_hundred_is_alone_rejected_within_sixteen_posts(tmp_path: Path, place: int) -> None:
    site, service = site_of(tmp_path, 100)
    service.poison = {record_id(place)}
    delivery = site.publish_to("neic")
    assert site.in_state("neic", State.REJECTED) == service.poison
    assert (delivery.sent.accepted, delivery.sent.rejected) == (99, 1)
    assert set(service.held) == {record_id(number) for number in range(1, 101)} - service.poison
    assert service.posts <= 16
    assert "Processing Failed" in (site.reasons("neic")[record_id(place)] or "")


def test_a_rejected_record_was_refused_alone_and_another_was_taken_after_it(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 100)
    service.poison = {record_id(100)}
    site.publish()
    alone = [index for index, message in enumerate(service.messages) if message.record_ids == (record_id(100),)]
    taken = [index for index, m in enumerate(service.messages) if not service.poison.intersection(m.record_ids)]
    assert alone
    assert max(taken) > max(alone)


def test_five_bad_records_in_a_thousand_cost_few_posts(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 1000)
    service.poison = {record_id(number) for number in (3, 4, 333, 777, 1000)}
    site.publish()
    assert site.in_state("neic", State.REJECTED) == service.poison
    assert len(service.held) == 995
    assert service.posts <= 10 + 5 * 15


def test_poison_in_the_very_first_batch_at_first_contact(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 300)
    service.poison = {record_id(number) for number in range(1, 101)}
    random.seed(7)
    site.publish()
    assert site.in_state("neic", State.REJECTED) == service.poison
    assert len(service.held) == 200


def test_everything_bad_but_one_record_in_another_batch(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 30, batch_records=10)
    service.poison = {record_id(number) for number in range(1, 30)}
    random.seed(1)
    for _ in range(8):  # in a run without a good one everything waits, which is right: it cannot know
        site.publish()
    assert set(service.held) == {record_id(30)}
    refused_before = site.in_state("neic", State.REJECTED)
    assert refused_before, "those refused before the good one was taken"
    assert refused_before < service.poison, "nothing tells of those refused after it"
    for number in range(31, 37):
        site.sources["ce1"].add(make_job(number))
        site.collect()
        site.publish()
    assert site.in_state("neic", State.REJECTED) == service.poison


def test_when_every_second_record_is_bad_one_run_does_for_all(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 600)
    service.poison = {record_id(number) for number in range(1, 601, 2)}
    delivery = site.publish_to("neic")
    assert site.in_state("neic", State.REJECTED) == service.poison
    assert (delivery.sent.accepted, delivery.sent.rejected, delivery.sent.paused) == (300, 300, None)
    assert service.posts <= 8 * 300, "as many as it takes to find one, and one to try it again"


def test_one_bad_record_alone_waits_until_the_service_takes_another(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 1)
    service.poison = {record_id(1)}
    delivery = site.publish_to("neic")
    assert delivery.sent.paused is not None
    assert site.counted("neic") == {State.WAITING: 1}
    site.sources["ce1"].add(make_job(2))
    site.collect()
    site.publish()
    assert site.counted("neic") == {State.REJECTED: 1, State.ACCEPTED: 1}


def test_a_service_that_answers_500_to_everything_rejects_nothing_in_few_posts(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 1000)
    service.fault = always(DOWN)
    delivery = site.publish_to("neic")
    assert delivery.sent.rejected == 0
    assert delivery.sent.paused is not None
    assert site.counted("neic") == {State.WAITING: 1000}
    assert service.posts <= 40
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 1000}
    assert len(service.held) == 1000


@pytest.mark.parametrize("well_for", range(1, 12))
def test_a_service_that_falls_ill_during_the_run_rejects_nothing(tmp_path: Path, well_for: int) -> None:
    site, service = site_of(tmp_path, 1000)
    service.fault = lambda _message: DOWN if service.posts > well_for else None
    site.publish()
    assert site.in_state("neic", State.REJECTED) == set()
    assert service.posts <= well_for + 40
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 1000}


@pytest.mark.parametrize("well_for", [0, 100, 300, 900])
def test_a_service_that_stores_nothing_new_but_ignores_what_it_has_rejects_nothing(
    tmp_path: Path, well_for: int
) -> None:
    """SGAS with a full disk: a record that it has is answered 200, any other 500."""
    site, service = site_of(tmp_path, 1000)

    def full(message: Message) -> Outcome | None:
        return DOWN if len(service.held) >= well_for and not set(message.record_ids) <= set(service.held) else None

    service.fault = full
    delivery = site.publish_to("neic")
    assert delivery.sent.paused is not None
    assert site.in_state("neic", State.REJECTED) == set()
    assert service.posts <= well_for // 100 + 60
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 1000}


@pytest.mark.parametrize("every", [2, 3, 5])
def test_a_flapping_service_gets_everything_in_the_end(tmp_path: Path, every: int) -> None:
    site, service = site_of(tmp_path, 400)
    service.fault = lambda _message: Transient("503") if service.posts % every == 0 else None
    for _ in range(30):
        site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 400}
    assert site.in_state("neic", State.REJECTED) == set()


def test_a_blip_of_500_in_a_healthy_run_costs_nothing(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 300)
    service.fault = script(None, DOWN)
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 300}


def test_what_is_surely_the_datas_fault_gets_no_second_try(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 4)
    service.fault = lambda m: Refused("HTTP 406", certain=True) if record_id(2) in m.record_ids else None
    site.publish()
    assert site.in_state("neic", State.REJECTED) == {record_id(2)}
    assert len(service.held) == 3
    assert [message.record_ids for message in service.messages].count((record_id(2),)) == 1
    assert service.messages[-1].record_ids[0] in service.held  # the service took a record after it


@pytest.mark.parametrize(
    "outcome",
    [Refused("HTTP 406: not allowed for machines: ce1", certain=True), Oversized("HTTP 413")],
    ids=["certain", "oversized"],
)
@pytest.mark.parametrize("count", [1, 3, 300])
def test_a_service_that_takes_no_record_at_all_rejects_none(
    tmp_path: Path, outcome: Refused | Oversized, count: int
) -> None:
    """A certificate of the wrong domain, a limit set too low: every record is refused, and none of them is bad."""
    site, service = site_of(tmp_path, count)
    service.fault = always(outcome)
    delivery = site.publish_to("neic")
    assert delivery.sent.rejected == 0
    assert outcome.answer in (delivery.sent.paused or "")
    assert site.counted("neic") == {State.WAITING: count}
    assert service.posts <= 100
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: count}


def test_rejected_records_can_wait_again_or_be_waived(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 10)
    service.poison = {record_id(3), record_id(4)}
    site.publish()
    assert site.publisher.retry(State.REJECTED, "neic", [record_id(3)]) == 1
    assert site.publisher.waive(State.REJECTED, "neic", [record_id(4)], "a test job") == 1
    service.poison = set()
    site.publish()
    assert site.states("neic")[record_id(3)] is State.ACCEPTED
    assert site.states("neic")[record_id(4)] is State.WAIVED
    assert {entry.action for entry in site.publisher.audit()} == {"retry rejected", "waive rejected"}
    site.assert_counters_right()


# --- other outcomes


@pytest.mark.parametrize(
    "outcome", [Transient("HTTP 503"), Throttled("HTTP 429", 3600.0), Unknown("cut"), Unauthorised("HTTP 403")]
)
def test_trouble_of_the_service_makes_everything_wait_and_ends_the_run_for_it(tmp_path: Path, outcome: Outcome) -> None:
    site, service = site_of(tmp_path, 300)
    service.fault = always(outcome)
    delivery = site.publish_to("neic")
    assert delivery.sent.paused is not None
    assert delivery.sent.unauthorised == isinstance(outcome, Unauthorised)
    assert service.posts == 1
    assert site.counted("neic") == {State.WAITING: 300}
    assert site.publisher.status().targets["neic"].last_error
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 300}
    assert site.publisher.status().targets["neic"].last_error is None


def test_unauthorised_pauses_only_its_target(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(5))
    one, other = Receiver("one"), Receiver("other")
    site = Site(tmp_path, [source], [one, other])
    one.fault = always(Unauthorised("HTTP 403: no insert rights"))
    site.collect()
    done = site.publish()
    assert done["one"].sent.unauthorised
    assert not done["other"].sent.unauthorised
    assert site.counted("one") == {State.WAITING: 5}
    assert site.counted("other") == {State.ACCEPTED: 5}


def test_credentials_that_cannot_be_used_send_nothing_and_stop_only_their_target(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(5))
    one, other = Receiver("one"), Receiver("other")
    site = Site(tmp_path, [source], [one, other])

    def expired(_message: Message) -> Outcome:
        raise CredentialError("the certificate has expired")

    one.fault = expired
    site.collect()
    done = site.publish()
    assert isinstance(done["one"].error, CredentialError)
    assert site.counted("one") == {State.WAITING: 5}
    assert site.counted("other") == {State.ACCEPTED: 5}
    assert site.rows("SELECT count(*) FROM batches WHERE state = 1") == [(0,)]


def test_an_oversized_message_is_split_until_it_fits(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 100)
    service.fault = lambda m: Oversized("HTTP 413") if len(m.record_ids) > 30 else None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 100}
    assert service.posts == 1 + 2 + 4
    taken = [message for message in service.messages if len(message.record_ids) <= 30]
    assert sorted(record for message in taken for record in message.record_ids) == sorted(service.held)


def test_a_record_too_large_by_itself_is_rejected(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3)
    service.fault = lambda m: Oversized("HTTP 413") if record_id(2) in m.record_ids else None
    site.publish()
    assert site.in_state("neic", State.REJECTED) == {record_id(2)}


def test_batches_are_cut_by_the_bytes_of_the_finished_message(tmp_path: Path) -> None:
    receiver = Receiver("neic", limit_bytes=12_000)
    site, service = site_of(tmp_path, 100, receiver)
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 100}
    assert max(len(message.payload) for message in service.messages) <= 12_000
    assert service.posts < 20


def test_records_that_the_answer_does_not_name_are_sent_again(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 5)

    def forget(message: Message, accepted: Accepted) -> Outcome:
        named = {key: value for key, value in accepted.receipt.items() if key != record_id(2)}
        return Accepted(named, missing=(record_id(2),) if record_id(2) in message.record_ids else ())

    service.answer = forget
    delivery = site.publish_to("neic")
    assert delivery.sent.accepted == 4
    assert site.in_state("neic", State.WAITING) == {record_id(2)}
    assert "did not name" in (site.reasons("neic")[record_id(2)] or "")
    service.answer = lambda _message, accepted: accepted
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 5}
    assert service.messages[-1].record_ids == (record_id(2),)


def test_a_record_id_that_the_service_rewrote_counts_as_accepted_and_is_noted(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 2)
    service.answer = lambda _m, accepted: Accepted(accepted.receipt, rewritten={record_id(1): "gsiftp://x"})
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 2}
    assert "gsiftp://x" in (site.reasons("neic")[record_id(1)] or "")
    assert site.reasons("neic")[record_id(2)] is None


# --- trying again within a run


def test_transient_trouble_is_tried_again_within_the_run_under_the_same_id(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3, attempts=3)
    service.fault = script(Transient("HTTP 503"), Unknown("cut"))
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 3}
    assert len({message.batch_id for message in service.messages}) == 1
    assert len(site.slept_s) == 2
    assert 1.0 <= site.slept_s[0] <= 1.25
    assert 2.0 <= site.slept_s[1] <= 2.5


def test_retry_after_is_obeyed_and_counted_against_the_budget_of_the_run(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3, attempts=9, retry_budget=100)
    service.fault = script(Throttled("429", 40.0), Throttled("429", 40.0), Throttled("429", 40.0))
    delivery = site.publish_to("neic")
    assert site.slept_s == [40.0, 40.0]
    assert service.posts == 3
    assert delivery.sent.paused == "429"
    assert sum(isinstance(event, RetryPlanned) for event in site.events) == 2


def test_a_retry_after_beyond_the_budget_is_not_waited_for_nor_announced(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3, attempts=9)
    service.fault = always(Throttled("429", 3600.0))
    site.publish()
    assert site.slept_s == []
    assert not any(isinstance(event, RetryPlanned) for event in site.events)
    assert service.posts == 1


def test_told_to_stop_while_trying_again_it_does_not_try_on(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3, attempts=9)
    service.fault = always(Transient("HTTP 503"))
    site.stop_when = lambda: service.posts >= 2
    site.publish()
    assert service.posts == 2
    assert site.counted("neic") == {State.WAITING: 3}


def test_told_to_stop_it_finishes_the_batch_and_leaves(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 300)
    site.stop_when = lambda: service.posts >= 1
    delivery = site.publish_to("neic")
    assert delivery.sent.paused == "told to stop"
    assert site.counted("neic") == {State.ACCEPTED: 100, State.WAITING: 200}
    assert service.posts == 1


# --- batches and crashes


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
def test_what_was_in_flight_when_the_power_went_is_sent_again_under_the_same_id(tmp_path: Path, stored: bool) -> None:
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


# --- changes while the run is under way


@pytest.mark.parametrize("kind", ["sgas", "ams"])
@pytest.mark.parametrize("when", ["before the batch leaves", "in flight"])
def test_a_run_that_changes_while_it_is_being_sent_is_not_lost(tmp_path: Path, kind: str, when: str) -> None:
    site, service = site_of(tmp_path, 5, Receiver("neic", kind))
    changed = make_job(3, wall_s=7)

    def change() -> None:
        site.sources["ce1"].add(changed)
        other = Site(tmp_path, list(site.sources.values()), list(site.receivers.values()))
        other.table = site.table
        other.collect()
        other.reopen()

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


@pytest.mark.parametrize("ending", ["accepted", "refused", "transient", "killed"])
def test_a_run_that_is_no_longer_wanted_while_it_is_in_flight_is_superseded(tmp_path: Path, ending: str) -> None:
    site, service = site_of(tmp_path, 4)
    gone = make_job(2, status="aborted")

    def change() -> None:
        site.sources["ce1"].add(gone)
        other = Site(tmp_path, list(site.sources.values()), list(site.receivers.values()))
        other.table = site.table
        other.collect()
        other.reopen()

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
    assert "no longer wanted" in (site.reasons("neic")[gone.record_id] or "")
    assert site.counted("neic") == {State.ACCEPTED: 3, State.SUPERSEDED: 1}
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
    """Do something when the first batch is rendered and about to take off: it asks for the time first."""
    done = False
    now = site.now

    def clock() -> int:
        nonlocal done
        if not done and sys._getframe(1).f_code.co_name == "_leave":
            done = True
            action()
        return now

    site.publisher.tools = msgspec.structs.replace(site.publisher.tools, clock=clock)


@pytest.mark.parametrize(("misdirected", "code"), [(True, 1), (False, 4)])
def test_a_wrong_place_is_not_told_as_refused_credentials(tmp_path: Path, misdirected: bool, code: int) -> None:
    from publisher.cli import exit_code

    site, service = site_of(tmp_path, 3)
    service.fault = always(Unauthorised("HTTP 404", misdirected=misdirected))
    delivered = site.publish()
    assert site.counted("neic") == {State.WAITING: 3}
    assert exit_code.of_run((), delivered, site.publisher.status()) == code
