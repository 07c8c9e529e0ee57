"""purge: it removes whole months, nothing undelivered, and because of it nothing comes back or is sent in part."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.calendar import Month
from formats.job import Job
from publisher.api import Publisher
from publisher.errors import StoreFullError, UsageError
from publisher.sources.base import Window
from publisher.store.schema import State
from publisher.targets.base import Transient
from tests.publisher.collect.test_grid_join import GridCluster
from tests.publisher.receivers import RecordReceiver, SummaryReceiver, always, script
from tests.publisher.site import NOVEMBER, OCTOBER, ListSource, Site, make_job, make_jobs
from tests.publisher.torque_cluster import torque_line

pytestmark = pytest.mark.either_store

SEPTEMBER = OCTOBER - 30 * 86_400
"""2026-09-01T00:00:00Z."""
THIS, LAST = Month(2026, 11), Month(2026, 10)


def october(count: int, first: int = 100) -> list[Job]:
    """Jobs that ended in October."""
    return [make_job(number, end=OCTOBER + 3600 + number) for number in range(first, first + count)]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site whose services have the jobs of October and November."""
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), SummaryReceiver("sums")])
    site.sources["ce1"].add(*october(5), *make_jobs(4))
    site.collect()
    site.publish()
    return site


def purge(site: Site, before: Month | None = THIS) -> int:
    """`store purge --yes`; how many runs went."""
    return site.publisher.maintenance.purge(before).runs


def test_a_delivered_month_is_removed_with_all_that_refers_to_it(site: Site) -> None:
    assert purge(site) == 5
    assert site.rows("SELECT count(*) FROM runs") == [(4,)]
    assert site.rows("SELECT count(*) FROM deliveries") == [(8,)]
    assert [str(month) for month in site.publisher.maintenance.purged_months()] == ["2026-10"]
    assert [entry.action for entry in site.publisher.audit()] == ["purge"]
    assert all(found.level == "green" for found in site.publisher.maintenance.check())


def test_status_is_the_same_before_and_after(site: Site) -> None:
    before = site.publisher.status()
    purge(site)
    assert site.publisher.status() == before


def test_the_last_sent_end_time_stays_even_where_no_message_is_kept(site: Site) -> None:
    site.table["store"] |= {"keep_jobs": "1 month", "keep_messages": "1 month", "keep_receipts": "1 month"}
    site.reopen()
    site.now += 100 * 86_400  # by then November is to go as well
    before = site.publisher.status().targets
    done = site.publisher.maintenance.purge()
    assert done.runs == 9
    assert done.receipts
    assert site.rows("SELECT count(*) FROM batches WHERE receipt IS NOT NULL OR answer IS NOT NULL") == [(0,)]
    after = site.publisher.status().targets
    for name in ("sgas", "sums"):
        assert after[name].last_sent_end_time == before[name].last_sent_end_time is not None
        assert after[name].accepted == before[name].accepted == 9


def test_what_is_read_again_is_not_new(site: Site) -> None:
    purge(site)
    found = site.collect(window=Window(None, None))["ce1"]
    assert (found.new, found.changed, found.unchanged) == (0, 0, 9)
    posts = site.receivers["sgas"].posts
    site.publish()
    assert site.receivers["sgas"].posts == posts
    assert site.rows("SELECT count(*) FROM runs") == [(4,)]
    assert site.publisher.status().sources["ce1"].jobs == 9


def test_a_late_job_of_a_purged_month_is_held_with_the_reason(site: Site) -> None:
    purge(site)
    late = october(1, first=300)[0]
    site.sources["ce1"].add(late)
    site.collect()
    site.publish()
    for name in ("sgas", "sums"):
        assert site.in_state(name, State.HELD) == {late.record_id}
        assert "purged" in (site.reasons(name)[late.record_id] or "")
    # other filters do not release it, a person does
    site.configure("sgas", vo=["atlas"])
    site.configure("sums", vo=["atlas"])
    site.publish()
    assert site.in_state("sgas", State.HELD) == {late.record_id}
    site.publisher.retry(State.HELD, "sgas")
    site.publish()
    assert site.in_state("sgas", State.ACCEPTED) >= {late.record_id}


def test_a_new_target_holds_what_is_left_of_a_purged_month(site: Site) -> None:
    purge(site)
    late = october(1, first=300)[0]
    site.sources["ce1"].add(late)
    site.collect()
    site.receivers["other"] = RecordReceiver("other")
    site.table["targets"]["other"] = site.table["targets"]["sgas"]
    site.reopen()
    site.publish()
    assert site.in_state("other", State.HELD) == {late.record_id}
    assert len(site.in_state("other", State.ACCEPTED)) == 4


def test_a_purged_job_that_changed_is_held_wherever_its_end_is_now(site: Site) -> None:
    purge(site)
    same, moved = make_job(100, end=OCTOBER + 3700, wall_s=7), make_job(101, end=NOVEMBER + 5)
    site.sources["ce1"].add(same, moved)
    found = site.collect()["ce1"]
    assert (found.new, found.changed) == (0, 2)
    assert site.in_state("sgas", State.HELD) == {same.record_id, moved.record_id}
    assert site.publisher.status().sources["ce1"].jobs == 9
    site.collect(window=Window(None, None))
    assert site.in_state("sgas", State.HELD) == {same.record_id, moved.record_id}


def test_a_purged_month_is_never_summarised_in_part(site: Site) -> None:
    sums = site.receivers["sums"]
    assert isinstance(sums, SummaryReceiver)
    purge(site)
    before = dict(sums.sums)
    site.sources["ce1"].add(*october(2, first=300))
    site.collect()
    site.publish()
    site.publisher.retry(State.HELD, "sums")
    site.publish()
    assert sums.sums == before
    assert set(site.reasons("sums")) & site.in_state("sums", State.HELD) == site.in_state("sums", State.HELD)
    assert len(site.in_state("sums", State.HELD)) == 2
    with pytest.raises(UsageError, match="purged"):
        site.republish("sums", OCTOBER, NOVEMBER)
    with pytest.raises(UsageError, match="purged"):
        site.republish("sgas", OCTOBER + 86_400, NOVEMBER + 86_400)
    site.republish("sums", NOVEMBER, NOVEMBER + 30 * 86_400)
    assert sums.sums == before


def test_sync_counts_of_a_purged_month_are_what_was_sent_and_what_came_later(tmp_path: Path) -> None:
    service = SummaryReceiver("apel")
    site = Site(tmp_path, [ListSource("ce1")], [service])
    site.table["targets"]["apel"] |= {"records": "apel-job", "sync": True}
    site.sources["ce1"].add(*october(5))
    site.collect()
    site.publish()
    assert list(service.sync.values()) == [5]
    purge(site)
    site.sources["ce1"].add(*october(1, first=300))
    site.collect()
    site.publisher.retry(State.HELD, "apel")
    site.publish()
    assert list(service.sync.values()) == [6]
    assert purge(site) == 1
    site.sources["ce1"].add(*october(1, first=301))
    site.collect()
    site.publisher.retry(State.HELD, "apel")
    site.publish()
    assert list(service.sync.values()) == [7]
    assert site.publisher.status().targets["apel"].accepted == 7


def test_nothing_undelivered_is_purged_and_its_month_stays_whole(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), RecordReceiver("ams", "ams")])
    site.sources["ce1"].add(*october(3), make_job(50, end=SEPTEMBER), *make_jobs(2))
    site.collect()
    site.publish("sgas")
    site.receivers["ams"].fault = always(Transient("the service is down"))
    site.publish("ams")
    plan = site.publisher.maintenance.plan_purge(THIS)
    assert {str(each.month): each.kept for each in plan.months} == {
        "2026-09": "target ams: 1 waiting", "2026-10": "target ams: 3 waiting",
    }  # fmt: skip
    assert purge(site) == 0
    assert len(site.states("ams")) == 6
    site.receivers["ams"].fault = script()
    site.publish()
    assert purge(site) == 4


def test_rejected_and_held_jobs_keep_their_month_and_waived_ones_do_not(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    jobs = october(3)
    site.receivers["sgas"].poison = {jobs[0].record_id}
    site.sources["ce1"].add(*jobs)
    site.collect()
    site.publish()
    (month,) = site.publisher.maintenance.plan_purge(THIS).months
    assert month.kept == "target sgas: 1 rejected"
    site.publisher.waive(State.REJECTED, "sgas", [jobs[0].record_id], "a test")
    assert purge(site) == 3
    status = site.publisher.status().targets["sgas"]
    assert (status.accepted, status.waived) == (2, 1)


def test_what_is_due_to_a_target_that_is_no_longer_configured_stays(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(*october(3))
    site.collect()
    del site.table["targets"]["sgas"]
    site.reopen()
    (month,) = site.publisher.maintenance.plan_purge(THIS).months
    assert month.kept == "target sgas, which is not configured any more: 3 waiting"
    assert purge(site) == 0


def test_a_target_that_is_new_gets_its_jobs_first(site: Site) -> None:
    site.receivers["other"] = RecordReceiver("other")
    site.table["targets"]["other"] = site.table["targets"]["sgas"]
    site.reopen()
    assert purge(site) == 0
    site.publish()
    assert purge(site) == 5


def test_months_that_are_not_over_and_purges_of_nothing_are_refused(site: Site) -> None:
    with pytest.raises(UsageError, match="2026-12 has not begun"):
        purge(site, Month(2026, 12))
    with pytest.raises(UsageError, match="no months to purge are given"):
        purge(site, None)


def test_ages_are_those_of_whole_months(site: Site) -> None:
    site.table["store"]["keep_jobs"] = "2 months"
    site.reopen()
    assert purge(site, None) == 0  # in November, September goes
    site.now = NOVEMBER + 30 * 86_400 + 1  # December
    assert purge(site, None) == 0
    site.now += 31 * 86_400
    assert purge(site, None) == 5


@pytest.mark.parametrize("lock", ["collect", "target-sgas"])
def test_a_publisher_at_work_is_not_disturbed(site: Site, lock: str) -> None:
    with (
        Publisher(site.config, site.publisher.tools) as other,
        other.store.lock(lock),
        pytest.raises(UsageError, match="a publisher is"),
    ):
        purge(site)
    assert site.rows("SELECT count(*) FROM runs") == [(9,)]


def test_a_month_that_fails_half_way_stays_whole(site: Site) -> None:
    site.sources["ce1"].add(make_job(50, end=SEPTEMBER))
    site.collect()
    site.publish()
    before = site.publisher.status()
    with site.full_at("INSERT", "purged_months", f"NEW.month = {LAST.number}"), pytest.raises(StoreFullError):
        purge(site)
    assert site.rows("SELECT count(*) FROM runs") == [(9,)], "September went, October is whole"
    assert site.publisher.status() == before
    assert purge(site) == 5
    assert site.publisher.status() == before


def test_classes_that_no_run_has_any_more_are_removed(site: Site) -> None:
    site.sources["ce1"].add(make_job(400, end=OCTOBER, vo="cms"))
    site.collect()
    site.publish()
    assert site.rows("SELECT count(*) FROM classes") == [(2,)]
    purge(site)
    assert site.rows("SELECT count(*) FROM classes") == [(1,)]
    site.sources["ce1"].add(make_job(401, vo="cms"))
    site.collect()
    site.publish()
    assert site.in_state("sgas", State.WAITING) == set()


def test_reports_of_periods_that_purged_jobs_may_have_run_in_are_held(site: Site) -> None:
    from publisher.messages.completeness import why_not_known_from, why_not_whole

    purge(site)
    settings = site.config.targets["sums"]
    store, config = site.publisher.store, site.config
    for first, whole in ((SEPTEMBER, False), (OCTOBER, False), (NOVEMBER, True)):
        assert (why_not_known_from(store, config, settings, first, "it") is None) == whole
    for month, whole in ((Month(2026, 9), True), (LAST, False), (THIS, True)):
        assert (why_not_whole(store, config, settings, month) is None) == whole


def test_a_month_waits_for_its_grid_log_and_takes_its_entries_along(tmp_path: Path) -> None:
    cluster = GridCluster(tmp_path)
    cluster.log(torque_line(1, OCTOBER + 7200), torque_line(2, NOVEMBER + 7200))
    cluster.source["grid_log"]["require"] = True
    cluster.run()
    with cluster.publisher() as publisher:
        (month,) = publisher.maintenance.plan_purge(THIS).months
        assert month.kept is not None
        assert "1 wait for their grid log" in month.kept
    cluster.blah(1, at=OCTOBER + 3600)
    cluster.blah(2, at=NOVEMBER + 3600)
    cluster.run()
    with cluster.publisher() as publisher:
        assert publisher.maintenance.purge(THIS).runs == 1
        with publisher.store.read() as connection:
            assert connection.exec_driver_sql("SELECT lrms_id FROM grid_jobs").scalars().all() == ["2"]
            assert connection.exec_driver_sql("SELECT count(*) FROM grid_waits").scalar_one() == 0
        collected = publisher.collect(window=Window(None, None))
        assert collected is not None
        assert (collected["ce1"].new, collected["ce1"].changed) == (0, 0)
