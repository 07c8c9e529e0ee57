"""The library: what the commands do, as methods, and its errors for names that do not exist."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs


def site_of(folder: Path, count: int = 3, kind: str = "sgas") -> tuple[Site, RecordReceiver]:
    source = ListSource("ce1")
    source.add(*make_jobs(count))
    service = RecordReceiver("neic", kind)
    return Site(folder, [source], [service]), service


def nothing_yet(folder: Path) -> Site:
    site, _ = site_of(folder)
    site.store_file.unlink()
    return site


@pytest.mark.parametrize(
    "ask",
    [
        lambda p: p.collect(["nowhere"]),
        lambda p: p.publish(["nowhere"]),
        lambda p: p.plan_republish("nowhere", Window(1, 2)),
        lambda p: p.rendering("ogf-ur", "nowhere", Window()),
        lambda p: p.listed(State.HELD, "nowhere"),
        lambda p: p.retry(State.HELD, "nowhere"),
        lambda p: p.waive(State.HELD, "nowhere", [], "why"),
    ],
)
@pytest.mark.either_store
def test_an_unknown_name_is_reported_with_those_there_are(tmp_path: Path, ask: Callable[[Publisher], object]) -> None:
    site, _ = site_of(tmp_path)
    with pytest.raises(UsageError, match=r"'nowhere'; known: (ce1|neic)") as caught:
        ask(site.publisher)
    assert caught.value.exit_code == 2


@pytest.mark.either_store
def test_without_sources_or_targets_it_says_what_to_add(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path)
    site.table["sources"] = {}
    site.table["targets"] = {}
    with pytest.raises(UsageError, match=r"\[sources.NAME\]"):
        site.publisher.collect()
    with pytest.raises(UsageError, match=r"\[targets.NAME\]"):
        site.publisher.publish()


def test_looking_makes_no_store(tmp_path: Path) -> None:
    site = nothing_yet(tmp_path)
    publisher = site.publisher
    status = publisher.status()
    assert not status.complete
    assert status.targets["neic"].waiting == 0
    assert publisher.job("x") == []
    assert list(publisher.jobs(Window())) == []
    assert publisher.listed(State.HELD) == []
    assert publisher.audit() == []
    assert publisher.unreadable() == []
    with pytest.raises(UsageError, match="nothing was collected yet"):
        publisher.rendering("ogf-ur", None, Window())
    assert not site.store_file.exists()


@pytest.mark.either_store
def test_jobs_are_found_by_any_of_their_ids_and_listed_by_window(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, 5)
    site.collect()
    job = make_job(2)
    for name in (job.record_id, job.local_id, job.global_id):
        assert [known.run.job for known in site.publisher.job(name or "")] == [job]
    first, third = make_job(1).end, make_job(3).end
    listed = [known.run.record_id for known in site.publisher.jobs(Window(first, third), page=1)]
    assert listed == [make_job(1).record_id, make_job(2).record_id]


@pytest.mark.either_store
def test_a_run_collects_and_publishes_what_is_due(tmp_path: Path) -> None:
    site, service = site_of(tmp_path)
    site.configure("neic", every="1h")
    site.collect()
    assert site.publisher.publish(only_due=True)["neic"].sent.accepted == 3
    site.sources["ce1"].add(make_job(9))
    site.collect()
    site.now += 3599
    assert site.publisher.publish(only_due=True)["neic"].early
    site.now += 1
    assert site.publisher.publish(only_due=True)["neic"].sent.accepted == 1
    assert len(service.held) == 4


@pytest.mark.either_store
def test_republish_says_first_what_it_means_and_keeps_the_ledger_right(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 6, kind="ams")
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(1, wall_s=7), make_job(7))
    site.collect()
    window = Window(NOVEMBER, NOVEMBER + 86400)
    plan = site.publisher.plan_republish("neic", window)
    assert (plan.counts.new, plan.counts.changed, plan.counts.unchanged, plan.to_send) == (2, 0, 5, 7)
    only_missing = site.publisher.plan_republish("neic", window, only_missing=True)
    assert only_missing.to_send == 2
    before = service.posts
    assert site.republish("neic", NOVEMBER, NOVEMBER + 86400).sent.accepted == 7
    assert service.posts == before + 1
    assert site.counted("neic") == {State.ACCEPTED: 7}


@pytest.mark.either_store
def test_republish_leaves_waived_records_and_other_targets_alone(tmp_path: Path) -> None:
    source = ListSource("ce1")
    source.add(*make_jobs(4))
    one, other = RecordReceiver("one"), RecordReceiver("other")
    site = Site(tmp_path, [source], [one, other])
    site.collect()
    one.poison = {make_job(2).record_id}
    site.publish()
    site.publisher.waive(State.REJECTED, "one", [make_job(2).record_id], "a test job")
    before = other.posts
    site.republish("one", NOVEMBER, NOVEMBER + 86400)
    assert site.counted("one") == {State.ACCEPTED: 3, State.WAIVED: 1}
    assert other.posts == before


@pytest.mark.either_store
def test_republish_only_missing_sends_what_was_delivered_before_us(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 3)
    site.configure("neic", delivered_until="2026-12-01")
    site.collect()
    site.publish()
    assert service.posts == 0
    site.republish("neic", NOVEMBER, NOVEMBER + 86400, only_missing=True)
    assert len(service.held) == 3


@pytest.mark.either_store
def test_a_republish_that_was_killed_is_finished_by_the_next_run(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 250)
    site.collect()
    site.publish()
    before = service.posts
    assert site.killed_at(2, lambda: site.republish("neic", NOVEMBER, NOVEMBER + 86400))
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 250}
    assert service.posts <= before + 4


@pytest.mark.either_store
def test_decisions_need_reasons_and_records_in_that_state(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path)
    site.collect()
    with pytest.raises(UsageError, match="needs a reason"):
        site.publisher.waive(State.REJECTED, "neic", [make_job(1).record_id], "  ")
    with pytest.raises(UsageError, match="is not rejected"):
        site.publisher.waive(State.REJECTED, "neic", [make_job(1).record_id], "why")
    with pytest.raises(UsageError, match="is not held"):
        site.publisher.retry(State.HELD, "neic", ["ur-unknown"])
    assert site.counted("neic") == {State.WAITING: 3}


@pytest.mark.either_store
def test_what_render_shows_is_what_publish_sends(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, 150)
    site.collect()
    before = site.rows("SELECT * FROM deliveries")
    shown = list(site.publisher.rendering("ogf-ur", "neic", Window()).messages())
    assert site.rows("SELECT * FROM deliveries") == before
    site.publish()
    assert [message.payload for message in shown] == [message.payload for message in service.messages]
    assert [message.uid for message in shown] == [message.batch_id for message in service.messages]


@pytest.mark.either_store
def test_an_observed_publisher_reports_its_events(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path)
    site.collect()
    reported: list[object] = []
    observed = site.publisher.observed_by(reported.append)
    observed.publish()
    observed.close()
    assert {type(event).__name__ for event in reported} >= {"BatchInFlight", "BatchAnswered", "BatchSettled"}
