"""Sending: bisecting in few posts, and distinguishing a failing service from a bad record."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from publisher.security.http import Reply
from publisher.store.schema import State
from publisher.targets.base import Message, Outcome, Oversized, Refused, Transient
from publisher.targets.sgas import outcome_of_reply
from tests.extent import every, short_or_whole
from tests.publisher.publish.waiting_site import DOWN, record_id, site_of
from tests.publisher.receivers import RecordReceiver, always, script
from tests.publisher.site import ListSource, Site, make_job

pytestmark = pytest.mark.either_store


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
    bad = short_or_whole(100, 300)
    site, service = site_of(tmp_path, 2 * bad)
    service.poison = {record_id(number) for number in range(1, 2 * bad + 1, 2)}
    delivery = site.publish_to("neic")
    assert site.in_state("neic", State.REJECTED) == service.poison
    assert (delivery.sent.accepted, delivery.sent.rejected, delivery.sent.paused) == (bad, bad, None)
    assert service.posts <= 8 * bad, "as many as it takes to find one, and one to try it again"


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


@pytest.mark.parametrize("well_for", every(3, range(1, 12)))
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


@pytest.mark.parametrize("stride", [2, 3, 5])
def test_a_flapping_service_gets_everything_in_the_end(tmp_path: Path, stride: int) -> None:
    site, service = site_of(tmp_path, 400)
    service.fault = lambda _message: Transient("503") if service.posts % stride == 0 else None
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


# --- refused by the names of machines (SGAS' 406)

_MACHINE = re.compile(r"<MachineName>([^<]*)</MachineName>")
HOME, ELSEWHERE = "ce1.example.org", "ce1.elsewhere.no"


def checks_machines(message: Message) -> Outcome | None:
    """LUTS names all machines of a message, in any order, if the sender may not register one of them."""
    machines = set(_MACHINE.findall(message.payload.decode()))
    if machines <= {HOME, "ce2.example.org"}:
        return None
    text = f"Subject /DC=org/CN=ce1 is not allowed to perform insertion for machines: {','.join(machines)}"
    return outcome_of_reply(Reply(406, {}, text.encode()), message, 0.0)


def mixed_site(folder: Path, machines: Sequence[str], **settings: object) -> tuple[Site, RecordReceiver]:
    source = ListSource("ce1")
    source.add(*(make_job(number, endpoint_url=f"https://{name}:443/") for number, name in enumerate(machines, 1)))
    receiver = RecordReceiver("neic")
    receiver.fault = checks_machines
    site = Site(folder, [source], [receiver])
    if settings:
        site.configure("neic", **settings)
    site.collect()
    return site, receiver


def test_records_of_a_machine_that_is_not_allowed_are_separated_in_one_step(tmp_path: Path) -> None:
    machines = [ELSEWHERE if number % 3 == 0 else HOME for number in range(399)]
    site, service = mixed_site(tmp_path, machines)
    delivery = site.publish_to("neic")
    bad = {record_id(number) for number, name in enumerate(machines, 1) if name == ELSEWHERE}
    assert site.in_state("neic", State.REJECTED) == bad
    assert (delivery.sent.accepted, delivery.sent.rejected, delivery.sent.paused) == (266, 133, None)
    assert set(service.held).isdisjoint(bad)
    assert service.posts <= 3 * 4 + 10, "each batch, its two parts, and what shows that the service is well"
    assert {ELSEWHERE in (site.reasons("neic")[each] or "") for each in bad} == {True}


def test_each_machine_is_parted_from_the_others(tmp_path: Path) -> None:
    names = [HOME, ELSEWHERE, "ce2.example.org", "x.elsewhere.se"]
    site, service = mixed_site(tmp_path, [names[number % 4] for number in range(100)])
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 50, State.REJECTED: 50}
    assert service.posts <= 1 + 4 + 5


def test_more_than_are_kept_in_mind_at_the_very_first_contact_wait_for_the_proof(tmp_path: Path) -> None:
    site, service = mixed_site(tmp_path, [ELSEWHERE] * 400 + [HOME] * 400, batch_records=250)
    random.seed(3)
    delivery = site.publish_to("neic")
    assert delivery.sent.paused is None
    assert site.counted("neic") == {State.ACCEPTED: 400, State.REJECTED: 400}
    first_taken = next(index for index, m in enumerate(service.messages) if checks_machines(m) is None)
    assert first_taken <= 6, "a probe from anywhere in the queue"


def test_where_every_machine_is_refused_everything_waits(tmp_path: Path) -> None:
    site, service = mixed_site(tmp_path, [ELSEWHERE, "x.elsewhere.se"] * 300)
    delivery = site.publish_to("neic")
    assert delivery.sent.paused is not None
    assert "accepted no record in this run" in delivery.sent.paused
    assert site.counted("neic") == {State.WAITING: 600}
    assert service.posts <= 30


def test_no_record_of_a_forbidden_machine_is_rejected_while_the_service_fails(tmp_path: Path) -> None:
    site, service = mixed_site(tmp_path, [ELSEWHERE if number % 2 else HOME for number in range(60)])
    service.fault = lambda message: checks_machines(message) or (DOWN if service.posts > 3 else None)
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 30, State.WAITING: 30}
