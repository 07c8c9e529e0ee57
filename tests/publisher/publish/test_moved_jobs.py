"""Accepted jobs of summaries that are in another group, or in none, after a change of the configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.job import Job
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import DUE, Section
from publisher.store import in_flight
from publisher.store.schema import State
from tests.publisher.receivers import SummaryReceiver, refuses
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job


def site_with_other_benchmarks(folder: Path, *jobs: Job) -> tuple[Site, SummaryReceiver]:
    """These jobs of ce1, and one of ce2, are delivered; then the benchmark of ce1 becomes another, and a job is new."""
    sources = [ListSource("ce1"), ListSource("ce2")]
    sources[0].add(*jobs)
    sources[1].add(make_job(90, benchmarks=()))
    service = SummaryReceiver("apel")
    site = Site(folder, sources, [service])
    site.configure("apel", batch_records=1)
    for number, name in enumerate(site.sources):
        site.table["sources"][name]["benchmark"] = {"type": "HEPscore23", "value": 10.0 + number}
    site.collect()
    site.publish()
    site.table["sources"]["ce1"]["benchmark"]["value"] = 20.0
    site.reopen()
    sources[0].add(make_job(3, benchmarks=()))
    site.collect()
    return site, service


@pytest.mark.parametrize("again", [True, False], ids=["refused again", "taken"])
def test_accepted_jobs_that_left_their_group_are_settled_with_the_group_that_has_them_now(
    tmp_path: Path, again: bool
) -> None:
    """The old group is accepted without them, so that the service has them only in the new one."""
    site, service = site_with_other_benchmarks(tmp_path, make_job(1, benchmarks=()))
    service.fault = refuses(b"ServiceLevel: 20")
    site.publish()
    assert service.total()[0] == 1
    assert site.counted("apel") == {State.ACCEPTED: 1, State.REJECTED: 2}
    if not again:
        service.fault = lambda _message: None
    site.sources["ce2"].add(make_job(91, benchmarks=()))
    site.collect()
    site.publish()
    assert service.total()[0] == (2 if again else 4)
    assert site.counted("apel") == ({State.ACCEPTED: 2, State.REJECTED: 2} if again else {State.ACCEPTED: 4})
    site.assert_counters_right()


@pytest.mark.parametrize("step", range(18))
def test_killed_while_accepted_jobs_are_sent_in_another_group_the_next_run_settles_them(
    tmp_path: Path, step: int
) -> None:
    site, service = site_with_other_benchmarks(tmp_path, make_job(1, benchmarks=()))
    service.fault = refuses(b"ServiceLevel: 20")
    was_killed = site.killed_at(step, site.publish)
    assert was_killed == (step < 16), "every event is tried"
    site.sources["ce2"].add(make_job(91, benchmarks=()))
    site.collect()
    site.publish()
    assert service.total()[0] == 2
    assert site.counted("apel") == {State.ACCEPTED: 2, State.REJECTED: 2}
    site.assert_counters_right()


def test_accepted_jobs_are_sent_in_another_group_only_once(tmp_path: Path) -> None:
    site, service = site_with_other_benchmarks(tmp_path, make_job(1, benchmarks=()))
    site.publish()
    assert (service.total()[0], site.counted("apel")) == (3, {State.ACCEPTED: 3})
    site.now += 100
    site.sources["ce1"].add(make_job(4, benchmarks=()))
    site.collect()
    site.publish()
    changed = site.rows("SELECT count(*) FROM deliveries WHERE changed_at = ?", site.now)
    assert changed == [(1,)], "the new job only"


def test_an_accepted_job_that_changes_while_it_is_sent_in_another_group_is_not_settled_with_it(tmp_path: Path) -> None:
    """The group was made of the earlier version."""
    site, _service = site_with_other_benchmarks(tmp_path, make_job(1, benchmarks=()))
    store, recipient = site.publisher.store, Recipient(site.publisher.store, site.config, "apel")
    sections = [step for step in items(recipient, DUE, now=site.now) if isinstance(step, Section)]
    made = [item for section in sections for page in section.pages for item in page.items if b"Level: 20" in item.body]
    assert [len(item.members) for item in made] == [2]
    site.sources["ce1"].add(make_job(1, benchmarks=(), wall_s=7))
    site.collect()
    assert recipient.target_id is not None
    with store.read() as connection:
        waiting = in_flight.unchanged(connection, recipient.target_id, dict(made[0].members))
    assert waiting == {3}, "the new job"


def without_benchmark(site: Site) -> None:
    del site.table["sources"]["ce1"]["benchmark"]
    site.reopen()


def test_accepted_jobs_that_are_in_no_group_any_more_are_held_when_the_others_are_sent(tmp_path: Path) -> None:
    """The service replaces the month by one without them."""
    site, service = site_with_other_benchmarks(tmp_path, make_job(1, benchmarks=()))
    without_benchmark(site)
    site.sources["ce2"].add(make_job(91, benchmarks=()))
    site.collect()
    site.publish()
    assert service.total()[0] == 2
    assert site.counted("apel") == {State.ACCEPTED: 2, State.HELD: 2}
    site.assert_counters_right()
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 20.0}
    site.reopen()
    site.collect()
    site.publish()
    assert service.total()[0] == 4
    assert site.counted("apel") == {State.ACCEPTED: 4}
    site.assert_counters_right()


def test_jobs_that_an_earlier_publisher_delivered_stay_accepted_when_they_are_in_no_group(tmp_path: Path) -> None:
    """What the service has of them is not known from here."""
    sources = [ListSource("ce1"), ListSource("ce2")]
    sources[0].add(make_job(1, benchmarks=()))
    site = Site(tmp_path, sources, [SummaryReceiver("apel")])
    site.configure("apel", delivered_until="2026-11-01T02:00:00Z")
    site.table["sources"]["ce2"]["benchmark"] = {"type": "HEPscore23", "value": 11.0}
    site.collect()
    assert site.counted("apel") == {State.ACCEPTED: 1}
    sources[1].add(make_job(90, benchmarks=(), end=NOVEMBER + 7201))
    site.collect()
    site.publish()
    assert site.counted("apel") == {State.ACCEPTED: 2}
    assert site.rows("SELECT count(*) FROM deliveries WHERE batch_id IS NOT NULL") == [(1,)], (
        "only the new job was sent"
    )
    site.assert_counters_right()
