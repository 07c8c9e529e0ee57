"""Files of a log that disappeared before they were read to their end: an error until they are found, or settled."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from publisher.collect.collect import Collected
from publisher.config.operation import Notices
from publisher.observe.mail import problems
from publisher.sources.base import Cursor, Page, Recovered, Unreadable, Window
from publisher.status.check_host import collected
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, NOW, OCTOBER, ListSource, Site, make_job

pytestmark = pytest.mark.either_store

LOG = "/var/accounting"


def gone(offset: int = 100, unread_from: int = NOW - 86_400) -> Unreadable:
    return Unreadable(LOG, None, offset, "the file was moved", b"", unread_from=unread_from)


class FindingSource(ListSource):
    """A source that finds files again."""

    found: tuple[Recovered, ...] = ()

    def pages(self, cursor: Cursor, window: Window | None = None) -> list[Page]:  # type: ignore[override]
        return [page if not self.found else _with(page, self.found) for page in super().pages(cursor, window)]


def _with(page: Page, found: tuple[Recovered, ...]) -> Page:
    return Page(page.jobs, page.cursor, page.read, unreadable=page.unreadable, at_end=page.at_end, recovered=found)


def site_of(folder: Path, *items: Unreadable) -> tuple[Site, FindingSource, SummaryReceiver]:
    source, service = FindingSource("ce1"), SummaryReceiver("apel")
    source.add(make_job(1), make_job(2, end=OCTOBER + 3600), *items)
    return Site(folder, [source], [service, RecordReceiver("neic")]), source, service


def test_it_is_an_error_of_every_collect_until_it_is_settled(tmp_path: Path) -> None:
    site, _, _ = site_of(tmp_path, gone(), Unreadable("other", 1, 1, "no end time", b"x"))
    for _ in range(2):
        error = site.collect()["ce1"].error
        assert error is not None
        assert LOG in error
        status = site.publisher.status()
        source = status.sources["ce1"]
        assert (source.error, source.unread_files, source.unreadable) == (error, 1, 2)
        assert (source.read_to_end, status.complete) == (False, False)
        (finding,) = collected(site.config, site.publisher.store, NOW)
        assert (finding.level, finding.hint) == ("red", "usage-publisher collect --unreadable")
        (problem,) = problems(status, Notices(), NOW)
        assert problem.key == "source ce1: failing"
    assert [row.unread_from for row in site.publisher.unreadable()] == [NOW - 86_400, None]
    site.publisher.settle_unreadable("nothing was in it", ["ce1"])
    assert site.publisher.status().sources["ce1"].error is None
    assert site.collect()["ce1"] == Collected()
    (entry,) = site.publisher.audit()
    assert LOG in entry.detail
    assert entry.detail.endswith("nothing was in it")


def test_what_is_found_again_is_not_an_error_any_more(tmp_path: Path) -> None:
    site, source, _ = site_of(tmp_path, gone(), gone(200))
    assert site.collect()["ce1"].error is not None
    source.found = (Recovered(LOG, 100),)
    assert site.collect()["ce1"].error is not None
    source.found = (Recovered(LOG, 200), Recovered("never reported", 7))
    assert site.collect()["ce1"] == Collected()
    assert site.publisher.status().sources["ce1"].unreadable == 0


def test_two_files_of_one_place_are_two_reports(tmp_path: Path) -> None:
    first, second = (msgspec.structs.replace(gone(), identity=text) for text in ("1:2:x", "1:3:y"))
    site, source, _ = site_of(tmp_path, first, second)
    site.collect()
    assert len(site.publisher.unreadable()) == 2
    source.add(second)
    site.collect()
    assert site.publisher.status().sources["ce1"].unread_files == 2, "reported again, not once more"
    source.found = (Recovered(LOG, 100),)
    assert site.collect()["ce1"] == Collected()


def test_the_months_that_it_may_hold_jobs_of_are_not_whole(tmp_path: Path) -> None:
    site, _, service = site_of(tmp_path, gone(unread_from=NOVEMBER))
    site.collect()
    site.publish()
    assert service.total()[0] == 1, "October alone"
    assert site.in_state("apel", State.HELD) == {make_job(1).record_id}
    (reason,) = filter(None, site.reasons("apel").values())
    assert "the month may be incomplete" in reason
    assert LOG in reason
    assert len(site.in_state("neic", State.ACCEPTED)) == 2, "records of jobs go"
    site.publisher.settle_unreadable("it was empty")
    site.publish()
    assert service.total()[0] == 2


def test_a_month_that_was_sent_whole_is_not_replaced_by_a_part(tmp_path: Path) -> None:
    site, source, service = site_of(tmp_path)
    site.collect()
    site.publish()
    assert service.total()[0] == 2
    site.now += 86_400
    source.add(gone(unread_from=NOW), make_job(3))
    site.collect()
    site.publish()
    assert service.total()[0] == 2
    assert site.in_state("apel", State.HELD) == {make_job(3).record_id}


def test_a_month_after_it_is_whole(tmp_path: Path) -> None:
    site, source, service = site_of(tmp_path, gone())
    site.collect()
    site.now = NOVEMBER + 40 * 86_400
    source.add(make_job(3, end=site.now - 3600))
    site.collect()
    site.publish()
    assert service.total()[0] == 2, "October and December"
    source.add(gone(unread_from=NOW))
    site.collect()
    source.add(make_job(4, end=site.now - 3600))
    site.collect()
    site.publish()
    assert service.total()[0] == 2, "it was reported once more, and lasts until then"
