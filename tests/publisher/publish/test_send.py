"""Sending: batches, each outcome, retries, interruption."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import update

from publisher.errors import CredentialError, StoreNewerError
from publisher.events import RetryPlanned
from publisher.store.schema import State, classes
from publisher.targets.base import Accepted, Message, Outcome, Oversized, Throttled, Transient, Unauthorised, Unknown
from tests.publisher.publish.waiting_site import record_id, site_of
from tests.publisher.receivers import Fault, RecordReceiver, SummaryReceiver, always, script
from tests.publisher.site import ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


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


@pytest.mark.parametrize(
    "outcome", [Transient("HTTP 503"), Throttled("HTTP 429", 3600.0), Unknown("cut"), Unauthorised("HTTP 403")]
)
def test_a_problem_of_the_service_makes_everything_wait_and_ends_the_run_for_it(
    tmp_path: Path, outcome: Outcome
) -> None:
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
    one, other = RecordReceiver("one"), RecordReceiver("other")
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
    one, other = RecordReceiver("one"), RecordReceiver("other")
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


def test_a_record_too_large_by_itself_is_rejected_with_the_remedy(tmp_path: Path) -> None:
    source, service = ListSource("ce1"), RecordReceiver("neic")
    source.add(make_job(1), make_job(2, name="x" * 1000), make_job(3))
    site = Site(tmp_path, [source], [service])
    site.collect()
    service.fault = lambda m: Oversized("HTTP 413") if b"x" * 1000 in m.payload else None
    site.publish()
    assert site.in_state("neic", State.REJECTED) == {record_id(2)}
    reason = site.reasons("neic")[record_id(2)] or ""
    assert "HTTP 413" in reason
    assert "client_max_body_size" in reason
    assert "records retry" in reason


def test_the_remedy_is_named_too_where_nothing_else_waits(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 1)
    service.fault = always(Oversized("HTTP 413"))
    assert "client_max_body_size" in (site.publish_to("neic").sent.paused or "")
    assert site.counted("neic") == {State.WAITING: 1}


@pytest.mark.parametrize("lasts", [False, True])
def test_a_message_too_large_although_a_larger_one_was_accepted_is_a_passing_fault(tmp_path: Path, lasts: bool) -> None:
    """A proxy that fails: splitting would end in the rejection of good records."""
    source, service = ListSource("ce1"), RecordReceiver("neic")
    source.add(make_job(1, name="x" * 1000), *make_jobs(119, first=2))
    site = Site(tmp_path, [source], [service])
    site.configure("neic", batch_records=50, attempts=2, workers=1)
    site.collect()
    service.fault = lambda _m: Oversized("HTTP 413") if service.posts == 2 or (lasts and service.posts > 2) else None
    delivery = site.publish_to("neic")
    assert delivery.sent.rejected == 0
    assert [len(message.record_ids) for message in service.messages] == ([50, 50, 50] if lasts else [50, 50, 50, 20])
    assert site.counted("neic") == ({State.ACCEPTED: 50, State.WAITING: 70} if lasts else {State.ACCEPTED: 120})
    assert not lasts or "was accepted in this run" in (delivery.sent.paused or "")


def test_a_message_that_we_measured_is_too_large_whatever_was_accepted(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3, batch_records=1)
    service.fault = lambda m: Oversized("9 bytes", measured=True) if record_id(2) in m.record_ids else None
    site.publish()
    assert site.in_state("neic", State.REJECTED) == {record_id(2)}


def too_slow_above(most: int) -> Fault:
    return lambda message: Unknown("HTTP 504", timed_out=True) if len(message.record_ids) > most else None


def test_a_message_that_times_out_repeatedly_is_halved_and_later_ones_are_as_small(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 150, batch_records=100, attempts=2, workers=1)
    service.fault = too_slow_above(30)
    delivery = site.publish_to("neic")
    assert (delivery.sent.paused, delivery.sent.rejected) == (None, 0)
    assert site.counted("neic") == {State.ACCEPTED: 150}
    sizes = [len(message.record_ids) for message in service.messages]
    assert sizes == [100, 100, 50, *[25] * 6]


def test_a_service_that_answers_nothing_in_time_gets_ever_smaller_messages_once_each(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 8, attempts=3, workers=1)
    service.fault = too_slow_above(0)
    assert site.publish_to("neic").sent.paused == "HTTP 504"
    assert [len(message.record_ids) for message in service.messages] == [8, 8, 8, 4, 2, 1]
    assert site.counted("neic") == {State.WAITING: 8}


@pytest.mark.parametrize("other", [Transient("HTTP 503"), Unknown("cut")])
def test_only_repeated_time_outs_halve_a_message(tmp_path: Path, other: Outcome) -> None:
    site, service = site_of(tmp_path, 4, attempts=2, workers=1)
    service.fault = script(Unknown("HTTP 504", timed_out=True), other)
    assert site.publish_to("neic").sent.paused is not None
    assert service.posts == 2


def test_summaries_that_time_out_repeatedly_are_halved_too(tmp_path: Path) -> None:
    source, service = ListSource("ce1"), SummaryReceiver("apel")
    source.add(*(make_job(number, user_dn=f"/CN=User {number}") for number in range(1, 5)))
    site = Site(tmp_path, [source], [service])
    site.configure("apel", attempts=2)
    service.fault = script(*[Transient("slow", timed_out=True)] * 2)
    site.collect()
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 4}
    assert [message.payload.count(b"Month:") for message in service.messages if message.format != "apel-sync"] == [
        4,
        4,
        2,
        2,
    ]
    assert service.total()[0] == 4


def test_batches_are_cut_by_the_bytes_of_the_finished_message(tmp_path: Path) -> None:
    receiver = RecordReceiver("neic", limit_bytes=12_000)
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


def test_a_transient_problem_is_tried_again_within_the_run_under_the_same_id(tmp_path: Path) -> None:
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


def test_interrupted_while_trying_again_it_does_not_try_on(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3, attempts=9)
    service.fault = always(Transient("HTTP 503"))
    site.stop_when = lambda: service.posts >= 2
    site.publish()
    assert service.posts == 2
    assert site.counted("neic") == {State.WAITING: 3}


def test_interrupted_it_finishes_the_batch_and_ends(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 300)
    site.stop_when = lambda: service.posts >= 1
    delivery = site.publish_to("neic")
    assert delivery.sent.paused == "interrupted"
    assert site.counted("neic") == {State.ACCEPTED: 100, State.WAITING: 200}
    assert service.posts == 1


@pytest.mark.parametrize(("misdirected", "code"), [(True, 1), (False, 4)])
def test_a_wrong_place_is_not_reported_as_refused_credentials(tmp_path: Path, misdirected: bool, code: int) -> None:
    from publisher.cli import exit_code

    site, service = site_of(tmp_path, 3)
    service.fault = always(Unauthorised("HTTP 404", misdirected=misdirected))
    delivered = site.publish()
    assert site.counted("neic") == {State.WAITING: 3}
    assert exit_code.of_run((), delivered, site.publisher.status()) == code


def test_facts_of_a_class_that_a_later_program_wrote_stop_sending(tmp_path: Path) -> None:
    """Even if the record could be rendered without them: they might contain values from a grid log."""
    site, service = site_of(tmp_path, 3)
    with site.publisher.store.write() as connection:
        connection.execute(update(classes).values(facts=b"\x02\x80"))
    with pytest.raises(StoreNewerError):
        site.publish()
    assert service.posts == 0
    assert site.counted("neic") == {State.WAITING: 3}


def test_runs_of_a_class_that_cannot_be_read_are_held(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3)
    with site.publisher.store.write() as connection:
        connection.execute(update(classes).values(facts=b"\x01\xc1"))
    site.publish()
    assert service.posts == 0
    assert site.counted("neic") == {State.HELD: 3}
