"""A clock that was wrong once: stored times in the future count as unknown, which is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from publisher.cli import exit_code
from publisher.cli.status_cmd import show_status, status_json
from publisher.config.operation import Notices
from publisher.observe.mail import problems
from publisher.page.auth import Sessions
from publisher.store.schema import State
from publisher.text import CLOCK_SKEW_S, elapsed_s, past
from tests.publisher.messages.test_reports import DAY, ran, site_of
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job
from tests.publisher.torque_cluster import NOW, TorqueCluster, torque_line

pytestmark = pytest.mark.either_store

YEARS = 8 * 365 * DAY
SCORE = {"type": "HEPscore23", "value": 10}


def run_of(cluster: TorqueCluster) -> tuple[int, dict[str, Any]]:
    """`usage-publisher run`: its exit code and `status --json` after it."""
    with cluster.publisher() as publisher:
        done = publisher.run()
        status = publisher.status()
        return exit_code.of_run(done.sources.values(), done.targets, status), status_json(status)


def status_of(cluster: TorqueCluster) -> dict[str, Any]:
    with cluster.publisher() as publisher:
        return status_json(publisher.status())


@pytest.mark.parametrize("records", ["apel-job", "apel-summary", "ogf-ur"])
def test_after_a_run_years_ahead_everything_is_delivered_by_the_next(
    tmp_path: Path, records: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = TorqueCluster(tmp_path)
    cluster.source |= {"benchmark": SCORE, "expect_every": "2d"}
    cluster.target |= {"every": "6h", "records": records}
    cluster.log(torque_line(1, NOW - 900))
    cluster.now = NOW + YEARS
    assert run_of(cluster)[0] == 0
    cluster.now = NOW
    cluster.log(torque_line(2, NOW - 800))
    found = status_of(cluster)
    assert set(found["targets"]["spool"]["times_in_future"]) == {"last_attempt", "last_success"}
    assert found["targets"]["spool"]["times_in_future"]["last_success"] == "2034-11-18T18:40:00Z"
    assert found["targets"]["spool"]["last_success"] is None
    assert found["targets"]["spool"]["due_at"] is None
    assert found["targets"]["spool"]["complete_until"] is None
    assert set(found["sources"]["ce1"]["times_in_future"]) == {"last_collected"}
    with cluster.publisher() as publisher:
        show_status(publisher.status())
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "spool: last success was recorded as 2034-11-18T18:40:00Z, which is in the future: a clock was wrong" in shown
    )
    assert "ce1: last collected was recorded as 2034-11-18T18:40:00Z" in shown
    assert "all delivered" not in shown
    assert [each for each in cluster.check() if each.startswith("target spool: last success was recorded as 2034")]
    assert [each for each in cluster.check() if each.startswith("source ce1: last collected was recorded as 2034")]
    code, found = run_of(cluster)
    assert code == 0
    assert cluster.counts() == (2, 0, 0)
    assert found["complete"]
    assert found["targets"]["spool"]["times_in_future"] == found["sources"]["ce1"]["times_in_future"] == {}
    assert found["targets"]["spool"]["due_at"] == "2026-11-21T00:40:00Z"
    assert not [each for each in cluster.check() if "in the future" in each]


def test_a_shadow_is_rehearsed_again_as_well(tmp_path: Path) -> None:
    cluster = TorqueCluster(tmp_path)
    cluster.source["benchmark"] = SCORE
    cluster.target |= {"every": "6h", "shadow": True}
    cluster.log(torque_line(1, NOW - 900))
    cluster.now = NOW + YEARS
    run_of(cluster)
    cluster.now = NOW
    with cluster.publisher() as publisher:
        assert not publisher.run().targets["spool"].early


def test_a_source_read_by_a_wrong_clock_is_not_known_to_be_read_up_to_now(tmp_path: Path) -> None:
    """A report is of a whole day: it is not yet known whether more jobs ran in this one."""
    site, portal = site_of(tmp_path, ran(1, NOVEMBER, NOVEMBER + 60), period="day")
    site.now = NOVEMBER + YEARS
    site.collect()
    site.now = NOVEMBER + 2 * DAY
    site.publish()
    assert portal.posts == 0
    assert site.publisher.status().targets["portal"].complete_until is None
    site.collect()
    site.publish()
    assert portal.seconds() == {NOVEMBER: 60}


def test_what_ran_in_days_that_were_reported_before_is_looked_at(tmp_path: Path) -> None:
    today = NOW - NOW % DAY
    before = ran(1, today - DAY, today - DAY + 60)
    site, portal = site_of(tmp_path, before, ran(2, today, today + 9), period="day")
    site.publish()
    _look_ahead(site)
    site.sources["ce1"].add(ran(3, today - 50, today + 50))
    site.collect()
    site.publish()
    assert portal.seconds() == {today - DAY: 110}


def _look_ahead(site: Site) -> None:
    """A publish by a clock that is years ahead, while the source was last read by the right one."""
    site.now += YEARS
    site.publish()
    site.now -= YEARS


def test_a_summary_sent_by_a_wrong_clock_may_have_the_name_of_somebody_who_was_erased_since(tmp_path: Path) -> None:
    bob: dict[str, Any] = {"user_dn": "/DC=org/CN=Bob Builder"}
    site = Site(tmp_path, [ListSource("ce1")], [SummaryReceiver("sums")])
    site.sources["ce1"].add(make_job(1, **bob))
    site.now = NOVEMBER + YEARS
    site.collect()
    site.publish()
    site.now = NOVEMBER + DAY
    site.publisher.maintenance.forget(bob["user_dn"])
    site.sources["ce1"].add(make_job(2, **bob))
    site.collect()
    site.publish()
    assert site.counted("sums") == {State.ACCEPTED: 1, State.HELD: 1}


def test_a_source_whose_last_job_ended_in_the_future_may_be_silent(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.table["sources"]["ce1"]["expect_every"] = "1d"
    site.now = NOVEMBER + DAY
    site.sources["ce1"].add(make_job(1, end=site.now - 60), make_job(2, end=site.now + YEARS))
    site.collect()
    found = site.publisher.status().sources["ce1"]
    assert (found.silent, found.ends_in_future) == (False, True)
    site.now += 2 * DAY
    assert site.publisher.status().sources["ce1"].silent


def test_a_target_that_last_took_something_in_the_future_fails(tmp_path: Path) -> None:
    cluster = TorqueCluster(tmp_path)
    cluster.source["benchmark"] = SCORE
    cluster.log(torque_line(1, NOW - 900))
    cluster.now = NOW + YEARS
    cluster.run()
    cluster.now = NOW
    cluster.log(torque_line(2, NOW - 800))
    (tmp_path / "out").chmod(0o700)
    for file in (tmp_path / "out").iterdir():
        file.unlink()
    (tmp_path / "out").rmdir()
    (tmp_path / "out").write_text("no folder")
    assert run_of(cluster)[0] == 1
    with cluster.publisher() as publisher:
        found = problems(publisher.status(), Notices(), NOW)
    assert "target spool: failing" in [each.key for each in found]


def test_a_session_begun_by_a_wrong_clock_ends() -> None:
    now = [NOW + YEARS]
    kept = Sessions(60, lambda: now[0])
    cookie = kept.begin("digest")
    now[0] = NOW
    assert kept.token_digest(cookie) is None


def test_times_of_hosts_whose_clocks_differ_a_little_count() -> None:
    assert past(NOW + CLOCK_SKEW_S, NOW) == NOW + CLOCK_SKEW_S
    assert past(NOW + CLOCK_SKEW_S + 1, NOW) is None
    assert past(None, NOW) is None
    assert elapsed_s(NOW + 5, NOW) == 0
    assert elapsed_s(NOW - 5, NOW) == 5
    assert elapsed_s(NOW + YEARS, NOW) is None
