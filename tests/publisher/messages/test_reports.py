"""Reports: one for each period, sent when the period is complete, and again when a late job changed it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats.calendar import Period, period_numbered, period_of, periods_between
from formats.job import Job
from formats.utilization.measure import KEYS, Bins, Ran, Tally
from formats.utilization.report import UtilizationReport, check_report, read_report
from publisher.config.schema import Selected
from publisher.reason import sentence
from publisher.sources.base import Window
from publisher.store.schema import State
from publisher.targets.base import Accepted, Message, Refused, Transient
from tests.publisher.receivers import RecordReceiver, always
from tests.publisher.site import NOVEMBER, NOW, OCTOBER, ListSource, Site, make_job

pytestmark = pytest.mark.either_store

DAY = 86_400
DECEMBER = NOVEMBER + 30 * DAY


class ReportPortal(RecordReceiver):
    """A service that keeps the last report of each interval."""

    def __init__(self, name: str = "portal") -> None:
        super().__init__(name, "directory")
        self.reports: dict[tuple[int, int], UtilizationReport] = {}

    def store(self, message: Message) -> Accepted:
        """See `RecordReceiver.store`."""
        assert message.format == "utilization"
        report = read_report(message.payload)
        assert check_report(report) == []
        self.reports[report.start, report.stop] = report
        return Accepted({"file": message.batch_id})

    def seconds(self) -> dict[int, float]:
        """Seconds that jobs ran, by the start of each period."""
        return {
            start: round(sum(one.queue * r.bin_s for one in r.bins), 6)
            for (start, _), r in sorted(self.reports.items())
        }


def ran(number: int, start: int, stop: int, **facts: Any) -> Job:
    """A run that ran from one instant to another."""
    facts.setdefault("end", stop)
    return make_job(number, start=start, submit=start, wall_s=max(0, stop - start), **facts)


def site_of(folder: Path, *jobs: Job, complete_since: int | None = 0, **settings: Any) -> tuple[Site, ReportPortal]:
    source = ListSource("ce1", complete_since=complete_since)
    source.add(*jobs)
    portal = ReportPortal()
    site = Site(folder, [source], [portal])
    site.configure("portal", records="utilization", **settings)
    site.collect()
    return site, portal


def test_a_month_that_is_over_is_sent_and_the_present_one_waits(tmp_path: Path) -> None:
    site, portal = site_of(
        tmp_path, ran(1, OCTOBER + 10, OCTOBER + 7210), ran(2, NOVEMBER + 10, NOVEMBER + 20, cores=4)
    )
    delivery = site.publish_to("portal")
    assert (delivery.sent.accepted, delivery.sent.groups) == (1, 1)
    assert portal.seconds() == {OCTOBER: 7200}
    (report,) = portal.reports.values()
    assert (report.stop, report.bin_s, len(report.bins)) == (NOVEMBER, 3600, 31 * 24)
    assert site.counted("portal") == {State.ACCEPTED: 1, State.WAITING: 1}
    found = site.publisher.status()
    assert (found.targets["portal"].waiting, found.targets["portal"].not_due, found.complete) == (1, 1, True)
    assert found.targets["portal"].groups == {"accepted": 1}
    site.now = DECEMBER + 60
    site.publish()
    assert list(portal.seconds()) == [OCTOBER], "the source was not read beyond the month's end"
    site.collect()
    site.publish()
    assert portal.seconds() == {OCTOBER: 7200, NOVEMBER: 10}
    assert site.counted("portal") == {State.ACCEPTED: 2}


def test_days_before_the_first_are_reported_once_something_ended_still_earlier(tmp_path: Path) -> None:
    """The usage of a run in days before the one in which it ended counts in these days, if they are after the first."""
    long, early = ran(1, OCTOBER + 20, OCTOBER + 3 * DAY + 40), ran(2, OCTOBER, OCTOBER + 60)
    site, portal = site_of(tmp_path, long, period="day", bin="1d")
    site.publish()
    assert portal.seconds() == {OCTOBER + 3 * DAY: 40}
    site.sources["ce1"].add(early)
    site.collect()
    site.publish()
    every = {OCTOBER: DAY - 20 + 60, OCTOBER + DAY: DAY, OCTOBER + 2 * DAY: DAY, OCTOBER + 3 * DAY: 40}
    assert portal.seconds() == pytest.approx(every, abs=1)
    posts = portal.posts
    site.sources["ce1"].add(ran(3, OCTOBER + 100, OCTOBER + 110))
    site.collect()
    site.publish()
    assert portal.posts == posts + 1


def test_days_before_the_first_end_are_empty_again_when_the_first_job_ended_later(tmp_path: Path) -> None:
    """The day in between is of the next month, which nothing else marks."""
    last = NOVEMBER - DAY
    site, portal = site_of(
        tmp_path, ran(1, last, last + 60), ran(2, last + 100, NOVEMBER + DAY + 40), period="day", bin="1d"
    )
    site.publish()
    assert portal.seconds() == {last: 60 + DAY - 100, NOVEMBER: DAY, NOVEMBER + DAY: 40}
    site.sources["ce1"].add(ran(1, last, NOVEMBER + DAY + 10))
    site.collect()
    site.publish()
    assert portal.seconds() == {last: 0, NOVEMBER: 0, NOVEMBER + DAY: 50}
    posts = portal.posts
    site.publish()
    assert portal.posts == posts


def test_an_unchanged_month_sends_nothing(tmp_path: Path) -> None:
    site, portal = site_of(tmp_path, ran(1, OCTOBER, OCTOBER + 60), ran(2, NOVEMBER - 5, NOVEMBER + 5))
    site.publish()
    site.publish()
    site.collect()
    site.publish()
    assert portal.posts == 1


def test_a_late_job_sends_its_month_again_and_the_others_not(tmp_path: Path) -> None:
    september = OCTOBER - 30 * DAY
    site, portal = site_of(tmp_path, ran(1, OCTOBER, OCTOBER + 60), ran(2, september, september + 60))
    site.publish()
    assert portal.posts == 2
    site.sources["ce1"].add(ran(3, OCTOBER + 100, OCTOBER + 200))
    site.collect()
    site.publish()
    assert portal.seconds() == {september: 60, OCTOBER: 160}
    assert portal.posts == 3
    assert site.counted("portal") == {State.ACCEPTED: 3}


def test_a_job_that_began_in_a_month_that_was_sent_changes_its_report_at_once(tmp_path: Path) -> None:
    site, portal = site_of(tmp_path, ran(1, OCTOBER, OCTOBER + 60), ran(2, NOVEMBER + 1, NOVEMBER + 2))
    site.publish()
    site.sources["ce1"].add(ran(3, NOVEMBER - 100, NOVEMBER + 300))
    site.now += DAY
    site.collect()
    site.publish()
    assert portal.seconds() == {OCTOBER: 160}
    assert site.counted("portal") == {State.ACCEPTED: 1, State.WAITING: 2}
    posts = portal.posts
    site.now += DAY
    site.sources["ce1"].add(ran(4, NOVEMBER + 1, NOVEMBER + 2))
    site.collect()
    site.publish()
    assert portal.posts == posts
    site.now = DECEMBER
    site.collect()
    site.publish()
    assert portal.seconds() == {OCTOBER: 160, NOVEMBER: 302}


def test_a_job_over_several_months_counts_in_each(tmp_path: Path) -> None:
    august, september = OCTOBER - 61 * DAY, OCTOBER - 30 * DAY
    site, portal = site_of(tmp_path, ran(1, august, august + 1), ran(2, OCTOBER - 40 * DAY, OCTOBER + DAY))
    site.publish()
    assert portal.seconds() == {august: 1 + 10 * DAY, september: 30 * DAY, OCTOBER: DAY}


def test_no_period_before_the_first_end_is_reported_for_a_job_with_an_absurd_start(tmp_path: Path) -> None:
    site, portal = site_of(tmp_path, ran(1, 0, OCTOBER + 60))
    site.publish()
    assert portal.seconds() == {OCTOBER: 60}


def test_a_run_that_changed_or_is_no_longer_selected_leaves_its_months(tmp_path: Path) -> None:
    september = OCTOBER - 30 * DAY
    site, portal = site_of(
        tmp_path,
        ran(1, september, OCTOBER + 60),
        ran(2, september, september + 5),
        ran(3, OCTOBER, OCTOBER + 7),
        statuses=["completed"],
    )
    site.publish()
    assert portal.seconds() == {september: 30 * DAY + 5, OCTOBER: 67}
    site.sources["ce1"].add(ran(1, OCTOBER + 50, OCTOBER + 60))
    site.collect()
    site.publish()
    assert portal.seconds() == {september: 5, OCTOBER: 17}
    site.sources["ce1"].add(ran(1, OCTOBER + 50, OCTOBER + 60, status="failed"))
    site.collect()
    site.publish()
    assert portal.seconds() == {september: 5, OCTOBER: 7}
    assert site.counted("portal") == {State.ACCEPTED: 2}
    site.assert_counters_right()


def test_days(tmp_path: Path) -> None:
    site, portal = site_of(
        tmp_path,
        ran(1, NOVEMBER - 10, NOVEMBER + DAY + 10),
        ran(2, NOVEMBER - 20, NOVEMBER - 19),
        period="day",
        bin="6h",
    )
    site.publish()
    assert portal.seconds() == {NOVEMBER - DAY: 11, NOVEMBER: DAY, NOVEMBER + DAY: 10}
    assert {len(report.bins) for report in portal.reports.values()} == {4}
    today = period_of("day", NOW).start
    site.sources["ce1"].add(ran(3, today, NOW - 60))
    site.collect()
    site.publish()
    assert portal.posts == 3
    assert site.counted("portal") == {State.ACCEPTED: 2, State.WAITING: 1}


def test_what_is_selected(tmp_path: Path) -> None:
    jobs = ran(1, OCTOBER, OCTOBER + 60, queue="long"), ran(2, OCTOBER, OCTOBER + 7, queue="short")
    site, portal = site_of(tmp_path, *jobs, select={"queue": "l*"}, measure="cpu")
    site.publish()
    assert portal.seconds() == {OCTOBER: 60}
    assert next(iter(portal.reports.values())).measure == "cpu"
    assert site.counted("portal") == {State.ACCEPTED: 2}, "the other is settled with the report of its period"


def test_local_jobs_and_every_end_count(tmp_path: Path) -> None:
    plain = {"user_dn": None, "vo": None, "endpoint_url": None}
    jobs = [ran(n, OCTOBER, OCTOBER + 10, status=status, **plain) for n, status in enumerate(("completed", "aborted"))]
    site, portal = site_of(tmp_path, *jobs)
    site.publish()
    assert portal.seconds() == {OCTOBER: 20}


def test_a_month_that_is_not_known_whole_is_held_and_released(tmp_path: Path) -> None:
    old, new = ran(1, OCTOBER, OCTOBER + 60), ran(2, NOVEMBER - 50, NOVEMBER + 60)
    site, portal = site_of(tmp_path, old, new, complete_since=OCTOBER + 7)
    site.now = DECEMBER
    site.collect()
    assert site.publish_to("portal").sent.held == 1
    assert "sources.ce1.complete_since" in (site.reasons("portal")[old.record_id] or "")
    assert portal.seconds() == {NOVEMBER: 60}
    site.table["sources"]["ce1"]["complete_since"] = "2026-10-01"
    site.reopen()
    site.publish()
    assert portal.seconds() == {OCTOBER: 110, NOVEMBER: 60}
    assert site.counted("portal") == {State.ACCEPTED: 2}


def test_a_report_too_large_for_a_message_is_cut_and_only_what_changed_is_sent_again(tmp_path: Path) -> None:
    jobs = ran(1, OCTOBER + 7, OCTOBER + 20 * DAY), ran(2, OCTOBER + 25 * DAY, OCTOBER + 25 * DAY + 90)
    site, portal = site_of(tmp_path, *jobs, bin="10m")
    portal._limit_bytes = 1_000_000
    site.publish()
    assert len(portal.reports) > 1
    assert max(len(message.payload) for message in portal.messages) <= 1_000_000
    edges = sorted(portal.reports)
    assert (edges[0][0], edges[-1][1]) == (OCTOBER, NOVEMBER)
    assert all(one[1] == other[0] for one, other in pairwise(edges))
    assert sum(portal.seconds().values()) == 20 * DAY - 7 + 90
    posts = portal.posts
    site.sources["ce1"].add(ran(3, NOVEMBER - 60, NOVEMBER - 30))
    site.collect()
    site.publish()
    assert portal.posts == posts + 1
    assert site.counted("portal") == {State.ACCEPTED: 3}
    portal._limit_bytes = None
    site.republish("portal", OCTOBER, NOVEMBER)
    assert (OCTOBER, NOVEMBER) in portal.reports
    assert site.rows("SELECT count(*) FROM groups WHERE kind = 'utilization'") == [(1,)]


def test_republish_sends_whole_periods_again(tmp_path: Path) -> None:
    site, portal = site_of(tmp_path, ran(1, OCTOBER, OCTOBER + 60), ran(2, OCTOBER - 60, OCTOBER - 30))
    site.publish()
    delivery = site.republish("portal", OCTOBER + DAY, OCTOBER + 2 * DAY)
    assert (delivery.sent.accepted, delivery.sent.groups, portal.posts) == (1, 1, 3)


def test_a_problem_makes_it_wait_and_a_refusal_rejects_only_its_report(tmp_path: Path) -> None:
    september = OCTOBER - 30 * DAY
    site, portal = site_of(tmp_path, ran(1, september, september + 60), ran(2, OCTOBER, OCTOBER + 60))
    portal.fault = always(Transient("HTTP 503"))
    assert site.publish_to("portal").sent.paused is not None
    assert site.counted("portal") == {State.WAITING: 2}
    portal.fault = lambda message: (
        Refused("HTTP 400", certain=True) if read_report(message.payload).start == OCTOBER else None
    )
    site.publish()
    assert portal.seconds() == {september: 60}
    assert site.in_state("portal", State.REJECTED) == {make_job(2).record_id}
    assert site.publisher.status().targets["portal"].groups == {"accepted": 1, "rejected": 1}
    portal.fault = lambda _message: None
    site.publisher.retry(State.REJECTED, "portal")
    site.publish()
    assert portal.seconds() == {september: 60, OCTOBER: 60}


@pytest.mark.parametrize("step", range(8))
def test_killed_at_any_event_the_next_run_ends_with_the_right_reports(tmp_path: Path, step: int) -> None:
    september = OCTOBER - 30 * DAY
    site, portal = site_of(tmp_path, ran(1, september, OCTOBER + 60), ran(2, september, september + 60))
    site.killed_at(step, site.publish)
    site.publish()
    assert portal.seconds() == {september: 30 * DAY + 60, OCTOBER: 60}
    assert site.counted("portal") == {State.ACCEPTED: 2}
    site.assert_counters_right()


def test_csv(tmp_path: Path) -> None:
    site, portal = site_of(tmp_path, ran(1, OCTOBER, OCTOBER + 60), version="csv")
    site.publish()
    assert portal.messages[0].content_type.startswith("text/csv")
    assert portal.seconds() == {OCTOBER: 60}


# --- the dry run


def test_render_shows_the_very_messages(tmp_path: Path) -> None:
    site, portal = site_of(tmp_path, ran(1, OCTOBER, OCTOBER + 60), ran(2, NOVEMBER + 1, NOVEMBER + 2))
    rendering = site.publisher.rendering("utilization", "portal", Window())
    shown = [message.payload for message in rendering.messages()]
    assert [held.record_id for held in rendering.held] == ["2026-11"]
    assert "not over" in sentence(rendering.held[0].reason)
    site.publish()
    assert [message.payload for message in portal.messages] == shown
    assert list(site.publisher.rendering("utilization", "portal", Window()).messages()) == []
    again = site.publisher.rendering("utilization", "portal", Window(OCTOBER + DAY, OCTOBER + 2 * DAY)).messages()
    assert [message.payload for message in again] == shown
    differences = list(site.publisher.comparison("utilization", "portal", Window(OCTOBER, NOVEMBER)).changes())
    assert [change.kind for change in differences] == ["unchanged"]
    site.sources["ce1"].add(ran(3, OCTOBER, OCTOBER + 36))
    site.collect()
    (change,) = site.publisher.comparison("utilization", "portal", Window()).changes()
    assert change.kind == "changed"
    assert {field.field for field in change.fields} >= {"2026-10-01T00:00:00Z queue", "2026-10-01T00:00:00Z jobs"}


# --- any history


@settings(max_examples=settings().max_examples // 10)
@given(st.data())
def test_however_jobs_turn_up_the_service_ends_with_the_reports_of_them_all(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Reports of days, over two weeks: jobs of any length, in any order, some in a later version, with runs in
    between."""
    site, portal = site_of(tmp_path_factory.mktemp("site"), period="day", bin="6h")
    site.now = NOVEMBER
    final: dict[int, tuple[int, int]] = {}
    for _ in range(data.draw(st.integers(1, 4))):
        site.now += data.draw(st.integers(0, 4)) * DAY + 1
        for number in data.draw(st.lists(st.integers(1, 6), max_size=4)):
            stop = data.draw(st.integers(NOVEMBER - 3 * DAY, site.now - 1))
            final[number] = (stop - data.draw(st.integers(0, 5 * DAY)), stop)
            site.sources["ce1"].add(ran(number, *final[number]))
        site.collect()
        site.publish()
    ends = [stop for _, stop in final.values()]
    expected: dict[int, float] = {}
    for period in periods_between("day", min(ends), site.now) if ends else ():
        tally = Tally(Bins(period.start, period.stop, 21_600))
        if period.stop <= site.now:
            for start, stop in final.values():
                tally.add(Ran(start, stop))
            if tally.jobs:
                expected[period.start] = sum(one.queue * 21_600 for one in tally.measured())
    assert {start: seconds for start, seconds in portal.seconds().items() if seconds} == pytest.approx(expected)
    assert State.REJECTED not in site.counted("portal")
    site.assert_counters_right()


def test_what_may_be_selected_is_what_reports_are_selected_by() -> None:
    assert set(Selected.model_fields) == set(KEYS)


@given(st.sampled_from(("day", "month")), st.integers(-(10**12), 10**12))
def test_periods_have_no_gaps_and_numbers_that_read_back(kind: Any, instant: int) -> None:
    period = period_of(kind, instant)
    assert period.start <= instant < period.stop
    assert period_of(kind, period.stop).start == period.stop
    assert period_numbered(kind, period.number) == period
    assert period_of(kind, period.stop).number > period.number


def test_how_periods_are_written() -> None:
    assert str(period_of("day", NOW)) == "2026-11-20"
    assert str(period_of("month", NOW)) == "2026-11"
    assert periods_between("month", OCTOBER, NOVEMBER) == [Period(OCTOBER, NOVEMBER, 202610)]
