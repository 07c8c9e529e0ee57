"""Summaries that are refused: whose fault it is shows only when the service takes another group after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.store.schema import State
from publisher.targets.base import Message, Outcome, Oversized, Refused
from tests.publisher.receivers import SummaryReceiver, always
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job

REFUSED = Refused("HTTP 400", certain=True)


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


# --- the parts of a refused message


def test_what_changes_while_its_group_is_refused_is_known_by_the_version_that_was_sent(tmp_path: Path) -> None:
    """The bodies of the halves are those of the whole message, so that the digests in the ledger are too."""
    site, service = site_of(tmp_path)
    before = dict(site.rows("SELECT record_id, digest FROM runs"))

    def refuses_once_and_a_job_changes(_message: Message) -> Outcome | None:
        if service.posts > 1:
            return None
        site.sources["ce1"].add(make_job(2, user_dn="/DC=org/CN=User 2", wall_s=77))
        site.another_publisher().collect()
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
