"""Reports that are refused: whose fault it is shows only when the service takes another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from formats.utilization.report import read_report
from publisher.store.schema import State
from publisher.targets.base import Accepted, Message, Refused
from tests.extent import every
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

REFUSED = Refused("HTTP 400", certain=True)
DAY_S = 86_400
BAD = "/DC=org/CN=Bad"


class RefusingPortal(RecordReceiver):
    """A service that keeps the last report of each interval: its jobs' first second by its start."""

    def __init__(self) -> None:
        super().__init__("portal", "directory")
        self.starts: list[int] = []

    def store(self, message: Message) -> Accepted:
        """See `RecordReceiver.store`."""
        self.starts.append(read_report(message.payload).start)
        return Accepted({"file": message.batch_id})


class PortalOfSmallMessages(RefusingPortal):
    """A portal that accepts only messages of a few bins."""

    def payload_limit_bytes(self) -> int | None:
        """As configured."""
        return 3000


def site_with_a_bad_day(folder: Path) -> tuple[Site, RefusingPortal]:
    """The report of the first of three days is bad."""
    source = ListSource("ce1")
    source.add(*(make_job(number, end=NOVEMBER + number * DAY_S + 5000) for number in range(3)))
    portal = RefusingPortal()
    site = Site(folder, [source], [portal])
    site.configure("portal", records="utilization", period="day")
    site.collect()
    portal.fault = lambda message: REFUSED if read_report(message.payload).start == NOVEMBER else None
    return site, portal


def test_a_bad_report_of_the_oldest_period_is_rejected_and_later_ones_are_sent(tmp_path: Path) -> None:
    site, portal = site_with_a_bad_day(tmp_path)
    sent = site.publish_to("portal").sent
    assert (sent.paused, sent.accepted, sent.rejected) == (None, 2, 1)
    assert set(portal.starts) == {NOVEMBER + DAY_S, NOVEMBER + 2 * DAY_S}
    assert site.in_state("portal", State.REJECTED) == {make_job(0).record_id}
    posts = portal.posts
    site.publish()
    assert portal.posts == posts, "the day is not due any more"


def test_jobs_of_a_rejected_report_are_settled_with_the_parts_that_replace_it(tmp_path: Path) -> None:
    """The report was too large for the portal; since then the site sends smaller messages."""
    source = ListSource("ce1")
    source.add(*(make_job(number, end=NOVEMBER + number % 2 * DAY_S + number * 3600) for number in range(1, 21)))
    portal = RefusingPortal()
    site = Site(tmp_path, [source], [portal])
    site.configure("portal", records="utilization", period="day", bin="1h")
    site.collect()
    portal.fault = lambda message: REFUSED if _hours(message) == 24 and _start(message) == NOVEMBER else None
    assert site.publish_to("portal").sent.rejected > 0
    limited = PortalOfSmallMessages()
    site.receivers["portal"] = limited
    site.reopen()
    source.add(make_job(30, end=NOVEMBER + 5000))
    site.collect()
    assert site.publish_to("portal").sent.rejected == 0
    assert NOVEMBER in limited.starts
    site.publish()
    assert site.counted("portal") == {State.ACCEPTED: 21}
    site.assert_counters_right()


def _start(message: Message) -> int:
    return read_report(message.payload).start


def _hours(message: Message) -> int:
    return len(read_report(message.payload).bins)


@pytest.mark.parametrize("step", every(2, range(12)))
def test_killed_while_a_report_is_not_decided_on_the_next_run_rejects_it(tmp_path: Path, step: int) -> None:
    site, portal = site_with_a_bad_day(tmp_path)
    site.killed_at(step, site.publish)
    site.publish()
    assert site.counted("portal") == {State.ACCEPTED: 2, State.REJECTED: 1}
    assert set(portal.starts) == {NOVEMBER + DAY_S, NOVEMBER + 2 * DAY_S}
    site.assert_counters_right()
