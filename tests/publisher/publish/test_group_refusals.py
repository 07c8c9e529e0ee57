"""Summaries that are refused: whose fault it is shows only when the service takes another group.

A group may be the only one of its month that is due: then a later month shows it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.config.operation import Notices
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import DUE, Section
from publisher.observe.mail import problems
from publisher.status import check_host
from publisher.store import in_flight
from publisher.store.schema import State
from publisher.targets.base import Message, Outcome, Oversized, Refused
from tests.extent import every
from tests.publisher.receivers import RecordReceiver, SummaryReceiver, always, refuses
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

REFUSED = Refused("HTTP 400", certain=True)
DAY_S = 86_400
BAD = "/DC=org/CN=Bad"


def site_of(folder: Path) -> tuple[Site, SummaryReceiver]:
    source = ListSource("ce1")
    source.add(*(make_job(number, user_dn=f"/DC=org/CN=User {number}") for number in range(1, 5)))
    service = SummaryReceiver("apel")
    site = Site(folder, [source], [service])
    site.collect()
    return site, service


@pytest.mark.parametrize("outcome", [REFUSED, Oversized("HTTP 413")], ids=["refused", "oversized"])
def test_a_service_that_takes_no_group_at_all_rejects_none(tmp_path: Path, outcome: Refused | Oversized) -> None:
    site, service = site_of(tmp_path)
    service.fault = always(outcome)
    delivery = site.publish_to("apel")
    assert delivery.sent.rejected == 0
    assert outcome.answer in (delivery.sent.paused or "")
    assert site.counted("apel") == {State.WAITING: 4}
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 4}
    assert service.total()[0] == 4


def test_a_service_that_falls_ill_during_the_run_rejects_none(tmp_path: Path) -> None:
    site, service = site_of(tmp_path)
    site.configure("apel", batch_records=1)

    def ill_after_two(_message: Message) -> Outcome | None:
        return REFUSED if service.posts > 2 else None

    service.fault = ill_after_two
    assert site.publish_to("apel").sent.rejected == 0
    assert site.counted("apel") == {State.ACCEPTED: 2, State.WAITING: 2}


def test_many_bad_groups_of_a_month_are_rejected_in_one_run_and_later_months_are_sent(tmp_path: Path) -> None:
    """More of them than refusals of records by which the service is doubted."""
    source = ListSource("ce1")
    october = [f"/DC=org/CN={'Bad' if number > 2 else 'Good'} {number:02d}" for number in range(1, 61)]
    source.add(*(make_job(number, user_dn=name, end=OCTOBER) for number, name in enumerate(october, 1)))
    source.add(*(make_job(number, user_dn=f"/DC=org/CN=Good {number}", end=NOVEMBER) for number in range(61, 64)))
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.configure("apel", batch_records=1)
    site.collect()
    service.fault = lambda message: REFUSED if b"CN=Bad" in message.payload else None
    assert site.publish_to("apel").sent.rejected == 58
    assert site.counted("apel") == {State.ACCEPTED: 5, State.REJECTED: 58}
    site.assert_counters_right()


def test_one_bad_group_is_rejected_after_another_was_taken(tmp_path: Path) -> None:
    site, service = site_of(tmp_path)
    service.fault = lambda message: REFUSED if b"CN=User 4" in message.payload else None
    assert site.publish_to("apel").sent.rejected == 1
    assert site.in_state("apel", State.REJECTED) == {make_job(4).record_id}
    assert service.total()[0] == 3
    site.assert_counters_right()


def test_a_total_of_which_no_run_waits_is_seen_when_it_is_refused(tmp_path: Path) -> None:
    """A job moved to another group, which the service takes; it refuses the one that has one job less."""
    site, service = site_of(tmp_path)
    site.sources["ce1"].add(make_job(9, user_dn="/DC=org/CN=User 1"))
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(9, user_dn="/DC=org/CN=User 2"))
    site.collect()
    service.fault = lambda message: REFUSED if b"CN=User 1" in message.payload else None
    assert site.publish_to("apel").sent.rejected == 1
    assert site.counted("apel") == {State.ACCEPTED: 5}, "no run is rejected"
    assert service.total()[0] == 6, "the service counts the job twice"
    status = site.publisher.status()
    assert (status.targets["apel"].totals_rejected, status.delivered) == (1, False)
    assert [each.key for each in problems(status, Notices(), site.now)] == ["target apel: totals rejected"]
    said = [each.message for each in check_host.targets(site.config, site.publisher.store, site.now)]
    (named,) = [each for each in said if each.startswith("rejected: 1 total, of which the service has other values: ")]
    assert "2026,11" in named
    assert "user 1" in named
    service.fault = lambda _message: None
    site.republish("apel", NOVEMBER, NOVEMBER + 30 * DAY_S)
    assert service.total()[0] == 5
    assert site.publisher.status().delivered


@pytest.mark.parametrize("again", [True, False], ids=["refused again", "taken"])
def test_jobs_of_a_rejected_group_are_settled_with_it_when_it_is_sent_again(tmp_path: Path, again: bool) -> None:
    """A later job of the month lets it be folded anew, and what was rejected go along."""
    site, service = site_of(tmp_path)
    service.fault = refuses(b"CN=User 4")
    site.publish()
    if not again:
        service.fault = lambda _message: None
    site.sources["ce1"].add(make_job(5, user_dn="/DC=org/CN=User 5"))
    site.collect()
    sent = site.publish_to("apel").sent
    assert sent.rejected == int(again)
    assert service.total()[0] == 5 - int(again), "what the ledger says is what the service has"
    assert site.counted("apel") == {State.ACCEPTED: 4, State.REJECTED: 1} if again else {State.ACCEPTED: 5}
    site.assert_counters_right()


def test_jobs_of_a_rejected_group_that_has_no_jobs_any_more_are_settled_with_the_group_that_has_them(
    tmp_path: Path,
) -> None:
    """The service refuses the old key with no jobs as well."""
    source = ListSource("ce1")
    source.add(make_job(1), make_job(2, user_dn="/DC=org/CN=User 2", benchmarks=()))
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 10.0}
    site.collect()
    service.fault = refuses(b"ServiceLevel: 10")
    site.publish()
    assert site.in_state("apel", State.REJECTED) == {make_job(2).record_id}
    site.table["sources"]["ce1"]["benchmark"]["value"] = 14.2
    site.reopen()
    source.add(make_job(3))
    site.collect()
    site.publish()
    assert service.total()[0] == 3
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 3}
    site.assert_counters_right()


def test_a_job_that_left_its_rejected_group_is_settled_with_the_group_that_has_it_now(tmp_path: Path) -> None:
    """The old group is accepted without it, and the new one is refused."""
    sources = [ListSource("ce1"), ListSource("ce2")]
    for number, source in enumerate(sources, 1):
        source.add(make_job(number, benchmarks=()))
    sources[0].add(make_job(3))
    service = SummaryReceiver("apel")
    site = Site(tmp_path, sources, [service])
    for name in site.sources:
        site.table["sources"][name]["benchmark"] = {"type": "HEPscore23", "value": 10.0}
    site.collect()
    service.fault = refuses(b"ServiceLevel: 10")
    site.publish()
    assert site.in_state("apel", State.REJECTED) == {make_job(1).record_id, make_job(2).record_id}
    site.table["sources"]["ce2"]["benchmark"]["value"] = 20.0
    site.reopen()
    sources[0].add(make_job(4))
    site.collect()
    service.fault = refuses(b"ServiceLevel: 20")
    site.publish()
    assert service.total()[0] == 3
    assert site.in_state("apel", State.REJECTED) == {make_job(2).record_id}
    site.assert_counters_right()


def test_a_rejected_job_that_changes_while_its_group_is_made_again_is_not_settled_with_it(tmp_path: Path) -> None:
    """The group was made of the earlier version."""
    site, service = site_of(tmp_path)
    service.fault = refuses(b"CN=User 4")
    site.publish()
    site.sources["ce1"].add(make_job(5, user_dn="/DC=org/CN=User 5"))
    site.collect()
    store, recipient = site.publisher.store, Recipient(site.publisher.store, site.config, "apel")
    sections = [step for step in items(recipient, DUE, now=site.now) if isinstance(step, Section)]
    made = [item for section in sections for page in section.pages for item in page.items if b"User 4" in item.body]
    assert [len(item.members) for item in made] == [1]
    site.sources["ce1"].add(make_job(4, user_dn="/DC=org/CN=User 4", wall_s=7))
    site.collect()
    assert recipient.target_id is not None
    with store.read() as connection:
        assert in_flight.unchanged(connection, recipient.target_id, dict(made[0].members)) == set()


def test_a_group_that_is_again_as_it_was_is_no_repeated_request(tmp_path: Path) -> None:
    """A service that answers repeated requests from memory would keep the version in between."""
    source = ListSource("ce1")
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    for wall_ms in (1000, 2000, 1000):
        source.add(make_job(1, wall_ms=wall_ms))
        site.collect()
        site.publish()
    first, between, last = [message for message in service.messages if message.format == "apel-summary"]
    assert first.payload == last.payload != between.payload
    assert first.batch_id == last.batch_id
    assert len({message.idempotency_key for message in (first, between, last)}) == 3


# --- a month with nothing else to send


def site_with_a_bad_month(folder: Path, good: int = 4) -> tuple[Site, SummaryReceiver]:
    """October has one bad group and nothing else to send, November good ones."""
    source = ListSource("ce1")
    source.add(make_job(1, user_dn=BAD, end=OCTOBER + 5))
    source.add(*(make_job(number, user_dn=f"/DC=org/CN=User {number}") for number in range(2, 2 + good)))
    service = SummaryReceiver("apel")
    site = Site(folder, [source], [service])
    site.collect()
    service.fault = refuses(b"CN=Bad")
    return site, service


def formats_of(messages: list[Message]) -> list[str]:
    return [message.format for message in messages]


def due_months(site: Site, purpose: str) -> list[int]:
    """The months, by number, that are marked for something."""
    return [month for (month,) in site.rows("SELECT month FROM due_months WHERE purpose = ? ORDER BY month", purpose)]


def test_a_bad_group_alone_in_the_oldest_month_is_rejected_and_later_months_are_sent(tmp_path: Path) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    sent = site.publish_to("apel").sent
    assert (sent.paused, sent.accepted, sent.rejected) == (None, 4, 1)
    assert site.counted("apel") == {State.ACCEPTED: 4, State.REJECTED: 1}
    assert site.in_state("apel", State.REJECTED) == {make_job(1).record_id}
    assert service.total()[0] == 4
    assert len(service.sync) == 2, "the counts of both months are sent"
    assert formats_of(service.messages)[-2:] == ["apel-sync"] * 2, "and last"
    assert due_months(site, "sync") == []
    site.assert_counters_right()
    posts = service.posts
    assert site.publish_to("apel").sent.paused is None
    assert service.posts == posts, "October is not due any more"


@pytest.mark.parametrize("step", every(3, range(22)))
def test_killed_while_a_group_is_not_decided_on_the_next_run_ends_as_one_that_was_not(
    tmp_path: Path, step: int
) -> None:
    """Or, where November had been settled before, the next one with something new to send: until then nothing shows
    whose fault it is."""
    site, service = site_with_a_bad_month(tmp_path)
    was_killed = site.killed_at(step, site.publish)
    assert was_killed == (step < 19), "every event is tried"
    site.publish()
    assert site.counted("apel") in (
        {State.ACCEPTED: 4, State.REJECTED: 1},
        {State.ACCEPTED: 4, State.WAITING: 1},
    )
    site.sources["ce1"].add(make_job(6, user_dn="/DC=org/CN=User 6"))
    site.collect()
    assert site.publish_to("apel").sent.paused is None
    assert site.counted("apel") == {State.ACCEPTED: 5, State.REJECTED: 1}
    assert service.total()[0] == 5
    assert sorted(service.sync.values()) == [1, 5]
    assert due_months(site, "sync") == []
    site.assert_counters_right()


def test_interrupted_while_a_group_is_not_decided_on_it_waits(tmp_path: Path) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    site.stop_when = lambda: service.posts > 0
    assert site.publish_to("apel").sent.paused == "interrupted"
    assert site.counted("apel") == {State.WAITING: 5}
    site.stop_when = lambda: False
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 4, State.REJECTED: 1}


def test_a_service_that_refuses_all_months_rejects_nothing(tmp_path: Path) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    service.fault = always(REFUSED)
    sent = site.publish_to("apel").sent
    assert (sent.accepted, sent.rejected) == (0, 0)
    assert "accepted no record in this run" in (sent.paused or "")
    assert site.counted("apel") == {State.WAITING: 5}
    assert "apel-sync" not in formats_of(service.messages), "its counts would go with nothing"


def test_a_service_that_is_ill_during_one_month_and_well_in_the_next_rejects_nothing(tmp_path: Path) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    service.fault = lambda _message: Refused("HTTP 400", certain=False) if service.posts < 2 else None
    sent = site.publish_to("apel").sent
    assert (sent.paused, sent.accepted, sent.rejected) == (None, 5, 0)
    assert service.total()[0] == 5


def test_a_service_that_falls_ill_after_a_month_that_it_took_rejects_nothing(tmp_path: Path) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    service.fault = lambda _message: None if service.posts == 2 else REFUSED
    assert site.publish_to("apel").sent.rejected == 0
    assert site.counted("apel") == {State.ACCEPTED: 4, State.WAITING: 1}


def refuses_sync_of_october(message: Message) -> Outcome | None:
    """A service that does."""
    return REFUSED if message.format == "apel-sync" and b"Month: 10" in message.payload else None


@pytest.mark.parametrize("step", every(3, range(22), 1))
def test_killed_while_a_sync_count_is_not_decided_on_it_is_sent_again(tmp_path: Path, step: int) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    service.fault = refuses_sync_of_october
    site.killed_at(step, site.publish)
    site.publish()
    site.sources["ce1"].add(make_job(6, user_dn="/DC=org/CN=User 6"))
    site.collect()
    assert site.publish_to("apel").sent.paused is None
    assert list(service.sync.values()) == [5]
    states = site.rows("SELECT month, state FROM groups WHERE kind = 'sync' ORDER BY month")
    assert states == [(202610, int(State.REJECTED)), (202611, int(State.ACCEPTED))]


def test_a_sync_count_that_is_refused_is_rejected_when_that_of_a_later_month_is_taken(tmp_path: Path) -> None:
    site, service = site_with_a_bad_month(tmp_path)
    service.fault = refuses_sync_of_october
    sent = site.publish_to("apel").sent
    assert (sent.paused, sent.accepted) == (None, 5)
    assert list(service.sync.values()) == [4]
    assert due_months(site, "sync") == []
    posts = service.posts
    site.publish()
    assert service.posts == posts


def test_few_messages_are_posted_to_a_service_that_refuses_everything_however_long_the_backlog(tmp_path: Path) -> None:
    """After a month in which it refused hundreds, a few of each later month are tried, and the rest of it waits."""
    source = ListSource("ce1", page=1000)
    months = [OCTOBER - number * 31 * DAY_S for number in range(4)]
    numbers = iter(range(1, 801))
    source.add(
        *(
            make_job(next(numbers), user_dn=f"/DC=org/CN=User {user}", end=end, submit=end - 200)
            for end in months
            for user in range(200)
        )
    )
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.configure("apel", batch_records=200)
    site.collect()
    service.fault = always(REFUSED)
    sent = site.publish_to("apel").sent
    assert "accepted no record in this run" in (sent.paused or "")
    later = [message for message in service.messages if b"Month: 6\n" not in message.payload]
    assert 0 < len(later) <= 3 * 5
    assert site.counted("apel") == {State.WAITING: 800}
    service.fault = refuses(b"CN=User 199\n")
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 796, State.REJECTED: 4}
    site.assert_counters_right()


def test_a_whole_month_of_bad_groups_does_not_keep_the_next_ones_waiting(tmp_path: Path) -> None:
    """As where a service takes no month that is so old."""
    source = ListSource("ce1", page=1000)
    source.add(*(make_job(number, user_dn=f"{BAD} {number}", end=OCTOBER + 5) for number in range(1, 151)))
    source.add(*(make_job(number, user_dn=f"/DC=org/CN=User {number}") for number in range(151, 201)))
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.collect()
    service.fault = refuses(b"CN=Bad")
    assert site.publish_to("apel").sent.paused is None
    assert site.counted("apel") == {State.ACCEPTED: 50, State.REJECTED: 150}


def test_a_count_of_which_nothing_shows_whether_it_is_bad_waits_also_with_several_workers(tmp_path: Path) -> None:
    """The first month's count is accepted when it is tried again: the service was failing, so one more refusal is
    needed."""
    source = ListSource("ce1")
    source.add(*(make_job(number, end=NOVEMBER - (3 - number) * 30 * DAY_S) for number in range(1, 4)))
    service = RecordReceiver("apel", "ams")
    site = Site(tmp_path, [source], [service])
    site.configure("apel", sync=True, workers=2)
    site.collect()
    answers = {b"Month: 9": iter([Refused("HTTP 400", certain=False)])}

    def ill_at_first(message: Message) -> Outcome | None:
        if message.format != "apel-sync":
            return None
        if b"Month: 10" in message.payload:
            return Refused("HTTP 400", certain=False)
        return next(answers[b"Month: 9"], None) if b"Month: 9" in message.payload else None

    service.fault = ill_at_first
    sent = site.publish_to("apel").sent
    assert (sent.accepted, sent.rejected) == (3, 0)
    assert "they wait" in (sent.paused or "")
    assert due_months(site, "sync") == [202609, 202610, 202611]


# --- the parts of a refused message


def test_what_changes_while_its_group_is_refused_is_known_by_the_version_that_was_sent(tmp_path: Path) -> None:
    """The bodies of the halves are those of the whole message, so that the digests in the ledger are too."""
    site, service = site_of(tmp_path)
    before = dict(site.rows("SELECT record_id, digest FROM runs"))

    def refuses_once_and_a_job_changes(_message: Message) -> Outcome | None:
        if service.posts > 1:
            return None
        site.sources["ce1"].add(make_job(2, user_dn="/DC=org/CN=User 2", wall_s=77))
        with site.another_publisher() as other:
            other.collect()
        return REFUSED

    service.fault = refuses_once_and_a_job_changes
    site.publish()
    now = site.rows("SELECT record_id, runs.digest, sent_digest, state FROM runs JOIN deliveries ON runs.id = run_id")
    changed = {record_id for record_id, digest, _, _ in now if digest != before[record_id]}
    assert changed == {make_job(2).record_id}
    assert {record_id: sent for record_id, _, sent, _ in now} == before
    assert site.in_state("apel", State.WAITING) == changed
    site.publish()
    assert service.total()[:2] == (4, 377)


def test_jobs_of_a_rejected_group_that_are_not_selected_any_more_are_not_sent(tmp_path: Path) -> None:
    """The administrator excludes the VO that the service refuses; other jobs of the month are sent later."""
    source = ListSource("ce1")
    source.add(make_job(1), make_job(2, user_dn="/DC=org/CN=User 2", vo="cms", fqans=("/cms",)))
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [source], [service])
    site.collect()
    service.fault = refuses(b"VO: cms")
    site.publish()
    assert site.in_state("apel", State.REJECTED) == {make_job(2).record_id}
    site.table["targets"]["apel"]["vo"] = ["atlas"]
    service.fault = lambda _message: None
    site.reopen()
    source.add(make_job(3))
    site.collect()
    site.publish()
    assert service.total()[0] == 2
    assert site.counted("apel") == {State.ACCEPTED: 2}
    del site.table["targets"]["apel"]["vo"]
    site.reopen()
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 3}, "selected again, it is due again"
    site.assert_counters_right()
