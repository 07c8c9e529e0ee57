"""Collecting: counts, one transaction a page, windows, what counts as delivered before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from formats.job import Job
from publisher.cli import exit_code
from publisher.collect.collect import Collected
from publisher.encoded_run import NOTE, UsageNote
from publisher.errors import StoreFullError, UsageError
from publisher.events import PageStored
from publisher.publish.decide import settle
from publisher.sources.base import Cursor, Page, Unreadable, Window
from publisher.status import check_host
from publisher.store import registry
from publisher.store.schema import State
from tests.publisher.collect.one_source_site import site_of
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


def test_new_changed_unchanged_running_and_unreadable_are_counted(tmp_path: Path) -> None:
    running = make_job(3, status="running", end=None, wall_ms=None, cpu_ms=None)
    bad = Unreadable("accounting", 7, 120, "no end time", b"x:y")
    site, _ = site_of(tmp_path, *make_jobs(2), running, bad)
    assert site.collect()["ce1"] == Collected(read=4, new=2, skipped=1, unreadable=1)
    site.sources["ce1"].add(make_job(1), make_job(2, wall_s=7), make_job(4), make_job(4))
    assert site.collect()["ce1"] == Collected(read=4, new=1, changed=1, unchanged=2)
    status = site.publisher.status().sources["ce1"]
    assert (status.jobs, status.unreadable, status.last_job_end) == (3, 1, make_job(4).end)
    assert site.publisher.unreadable()[0].reason == "no end time"


def test_unreadable_input_met_again_is_kept_once(tmp_path: Path) -> None:
    bad = Unreadable("accounting", None, None, "no end time", b"x:y")
    site, _ = site_of(tmp_path, bad, bad)
    site.collect()
    site.sources["ce1"].add(bad)
    site.collect()
    assert len(site.publisher.unreadable()) == 1
    assert site.publisher.status().sources["ce1"].unreadable == 1


def bad(line: int, file: str = "accounting") -> Unreadable:
    return Unreadable(file, line, line * 10, "no end time", b"x:%d" % line)


def counted_as_unreadable(site: Site) -> dict[str, int]:
    return {name: source.unreadable for name, source in site.publisher.status().sources.items()}


def test_of_each_file_so_many_pieces_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *(bad(line) for line in range(1, 2_501)), bad(1, "accounting.1"), make_job(1))
    assert site.collect()["ce1"].unreadable == 2_501
    assert counted_as_unreadable(site) == {"ce1": 2_501}
    assert site.publisher.count_unreadable(["ce1"]) == 2_501
    kept = [(row.file, row.line) for row in site.publisher.unreadable(limit=9_999)]
    assert sorted(kept) == [("accounting", line) for line in range(1, 1_001)] + [("accounting.1", 1)]
    site.sources["ce1"].add(*(bad(line) for line in range(2_400, 2_600)))
    site.collect()
    assert len(site.publisher.unreadable(limit=9_999)) == 1_001
    assert counted_as_unreadable(site) == {"ce1": 2_701}, "what is not kept cannot be known again"
    site.publisher.collect(window=Window(NOVEMBER))
    assert counted_as_unreadable(site) == {"ce1": 2_701}, "but a window counts nothing twice"
    site.publisher.settle_unreadable("a test")
    assert counted_as_unreadable(site) == {"ce1": 1_701}, "what is listed at a time"
    site.publisher.settle_unreadable("a test")
    assert counted_as_unreadable(site) == {"ce1": 0}, "with the last that is kept goes what was counted"


def test_settled_input_is_neither_counted_nor_listed_and_the_audit_says_what_it_was(tmp_path: Path) -> None:
    one, other = ListSource("ce1"), ListSource("ce2")
    one.add(*(bad(line) for line in range(1, 5)), bad(1, "accounting.0"), make_job(1))
    other.add(bad(1))
    site = Site(tmp_path, [one, other], [RecordReceiver("neic")])
    site.collect()
    assert counted_as_unreadable(site) == {"ce1": 5, "ce2": 1}
    listed = site.publisher.unreadable(sources=["ce1"])
    assert site.publisher.settle_unreadable("mended, read again", ["ce1"]) == listed
    assert counted_as_unreadable(site) == {"ce1": 0, "ce2": 1}
    assert [row.source for row in site.publisher.unreadable()] == ["ce2"]
    (entry,) = site.publisher.audit()
    assert (entry.at, entry.who, entry.action, entry.subject) == (site.now, registry.who(), "settle unreadable", "ce1")
    assert entry.detail == (
        "5 pieces of 2 files, accounting:1 (no end time), accounting:2 (no end time), accounting:3 (no end time), "
        "2 more: mended, read again"
    )
    assert len(site.publisher.settle_unreadable("a test")) == 1, "of all sources"
    assert counted_as_unreadable(site) == {"ce1": 0, "ce2": 0}
    assert site.publisher.audit()[0].detail == "1 piece of 1 file, accounting:1 (no end time): a test"
    assert site.publisher.settle_unreadable("again") == []
    assert len(site.publisher.audit()) == 2, "nothing was settled"


def test_settled_input_that_is_met_again_is_counted_and_listed_again(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, bad(1), bad(2))
    site.collect()
    site.publisher.settle_unreadable("mended")
    site.collect()
    assert counted_as_unreadable(site) == {"ce1": 0}, "nothing new was read"
    site.now += 60
    site.sources["ce1"].add(bad(2))
    site.collect()
    ((line, at),) = [(row.line, row.seen_at) for row in site.publisher.unreadable()]
    assert (line, at) == (2, site.now)
    assert counted_as_unreadable(site) == {"ce1": 1}


def test_only_what_is_listed_is_settled(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *(bad(line) for line in range(1, 6)))
    site.collect()
    with site.publisher.store.write() as connection:
        settled = settle(connection, (), "too many", site.now, limit=2)
    assert [row.line for row in settled] == [5, 4]
    assert [row.line for row in site.publisher.unreadable()] == [3, 2, 1]
    assert counted_as_unreadable(site) == {"ce1": 3}


@pytest.mark.parametrize(("reason", "sources"), [("", []), (" \n", ["ce1"]), ("mended", ["nosuch"])])
def test_nothing_is_settled_without_a_reason_or_of_an_unknown_source(
    tmp_path: Path, reason: str, sources: list[str]
) -> None:
    site, _ = site_of(tmp_path, bad(1))
    site.collect()
    with pytest.raises(UsageError, match=r"needs a reason|unknown source 'nosuch'"):
        site.publisher.settle_unreadable(reason, sources)
    assert counted_as_unreadable(site) == {"ce1": 1}
    assert len(site.publisher.unreadable()) == 1
    assert site.publisher.audit() == []


def test_input_of_a_source_that_is_no_longer_configured_can_be_settled(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, bad(1))
    site.collect()
    site.table["sources"] = {"new": {"type": "arc", "path": "x"}}
    site.reopen()
    assert len(site.publisher.unreadable(sources=["ce1"])) == 1
    assert len(site.publisher.settle_unreadable("the host is gone", ["ce1"])) == 1
    assert site.publisher.unreadable() == []


def test_a_running_job_is_never_published_and_counts_as_new_when_it_has_finished(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, make_job(1, status="running", end=None, wall_ms=None))
    assert site.collect()["ce1"].new == 0
    site.publish()
    assert service.posts == 0
    assert site.states("neic") == {}
    site.sources["ce1"].add(make_job(1))
    assert site.collect()["ce1"].new == 1
    site.publish()
    assert set(service.held) == {make_job(1).record_id}


def test_a_finished_run_that_a_source_calls_running_again_stays_finished(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, make_job(1), make_job(1, status="running", end=None))
    site.collect()
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: 1}


def test_a_run_is_found_by_the_ids_that_it_has_now(tmp_path: Path) -> None:
    """A database may have the batch system's id of a job only when the job has ended."""
    site, _ = site_of(tmp_path, make_job(1, local_id=None, status="running", end=None), make_job(2, local_id="17"))
    site.collect()
    site.sources["ce1"].add(make_job(1, local_id="4711"), make_job(2, local_id="18", global_id="ce1/18"))
    site.collect()
    by_name = {name: [known.run.record_id for known in site.publisher.job(name)] for name in ("4711", "18", "ce1/18")}
    assert by_name == {
        "4711": [make_job(1).record_id],
        "18": [make_job(2).record_id],
        "ce1/18": [make_job(2).record_id],
    }
    assert site.publisher.job("17") == []


def test_the_same_record_from_two_sources_counts_once(tmp_path: Path) -> None:
    one, other = ListSource("ce1"), ListSource("ce2")
    one.add(*make_jobs(3))
    other.add(*make_jobs(3))
    service = RecordReceiver("neic")
    site = Site(tmp_path, [one, other], [service])
    found = site.collect()
    assert (found["ce1"].new, found["ce2"].new, found["ce2"].unchanged) == (3, 0, 3)
    site.publish()
    assert len(service.posted()) == 3


def test_jobs_that_turn_up_late_with_old_end_times_are_sent(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, *make_jobs(5, 100))
    site.collect()
    site.publish()
    site.sources["ce1"].add(make_job(1, end=NOVEMBER - 40 * 86400))
    assert site.collect()["ce1"].new == 1
    site.publish()
    assert len(service.held) == 6


# --- one transaction a page


@pytest.mark.parametrize(
    ("statement", "table", "when"),
    [("INSERT", "unreadable", "1 = 1"), ("UPDATE", "sources", "NEW.cursor LIKE '%151%'")],
)
def test_a_fault_in_the_middle_of_a_page_stores_nothing_of_it(
    tmp_path: Path, statement: Literal["INSERT", "UPDATE"], table: str, when: str
) -> None:
    site, _ = site_of(tmp_path, *make_jobs(150), Unreadable("x", 151, None, "no end time", b"x"))
    with site.full_at(statement, table, when), pytest.raises(StoreFullError):
        site.collect()
    assert site.rows("SELECT count(*) FROM runs") == [(100,)]
    assert site.rows("SELECT cursor FROM sources") == [('{"at":100}',)]
    site.assert_counters_right()
    assert site.counted("neic") == {State.WAITING: 100}
    assert site.collect()["ce1"].new == 50
    assert site.counted("neic") == {State.WAITING: 150}


def test_a_source_that_fails_keeps_what_was_read_and_is_not_complete(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *make_jobs(150))
    source = site.sources["ce1"]
    source.fails = "the file is locked"
    found = site.collect()["ce1"]
    assert (found.new, found.error) == (100, "the file is locked")
    site.publish()
    status = site.publisher.status()
    assert not status.complete
    assert status.sources["ce1"].error == "the file is locked"
    assert status.targets["neic"].complete_until is None
    source.fails = None
    assert site.collect()["ce1"].new == 50
    site.publish()
    assert site.publisher.status().complete


def test_one_bad_source_stops_only_itself(tmp_path: Path) -> None:
    bad, good = ListSource("ce1"), ListSource("ce2")
    bad.fails = "gone"
    good.add(*make_jobs(2))
    site = Site(tmp_path, [bad, good], [RecordReceiver("neic")])
    found = site.collect()
    assert found["ce1"].error == "gone"
    assert found["ce2"].new == 2


def test_a_window_read_again_finds_what_was_missed_and_moves_no_cursor(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, *make_jobs(3))
    site.collect()
    before = site.rows("SELECT cursor, at_end, last_collected FROM sources")
    site.now += 500
    source = site.sources["ce1"]
    source.log.insert(0, make_job(9, end=NOVEMBER + 5))  # after the cursor
    assert site.collect()["ce1"].new == 0
    before = site.rows("SELECT cursor, at_end, last_collected FROM sources")
    site.now += 500
    found = site.collect(window=Window(NOVEMBER, NOVEMBER + 10))["ce1"]
    assert (found.read, found.new) == (1, 1)
    assert site.rows("SELECT cursor, at_end, last_collected FROM sources") == before
    site.publish()
    assert len(service.held) == 4


def test_a_window_read_before_anything_else_does_not_make_a_source_known(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *make_jobs(3))
    site.collect(window=Window(NOVEMBER, NOVEMBER + 1))
    assert site.rows("SELECT at_end, first_read_done FROM sources") == [(0, 0)]
    assert not site.publisher.status().complete


# --- delivered before us


def test_jobs_up_to_delivered_until_count_as_delivered_at_the_first_collect_only(tmp_path: Path) -> None:
    site, service = site_of(tmp_path, *make_jobs(10), page=3)
    limit = make_job(5).end
    assert limit is not None
    site.configure("neic", delivered_until=_text(limit))
    site.collect()
    assert site.counted("neic") == {State.ACCEPTED: 5, State.WAITING: 5}
    site.sources["ce1"].add(make_job(20, end=limit - 1000))
    site.collect()
    site.publish()
    assert make_job(20).record_id in service.held
    assert len(service.held) == 6


def test_a_first_collect_that_was_cut_short_is_still_the_first(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, *make_jobs(10), page=3)
    site.configure("neic", delivered_until="2027-01-01")
    source = site.sources["ce1"]
    source.fails = "locked"
    site.collect()
    source.fails = None
    site.collect()
    assert site.counted("neic") == {State.ACCEPTED: 10}


def _text(instant: int) -> str:
    from publisher.text import iso

    return iso(instant) or ""


# --- changes


def test_a_second_collector_leaves_at_once(tmp_path: Path) -> None:
    site, _ = site_of(tmp_path, make_job(1))
    site.collect()
    with site.publisher.store.lock("collect") as held:
        assert held
        other = Site(tmp_path, [_Endless("ce1")], list(site.receivers.values()))
        other.table = site.table
        assert other.publisher.collect() is None


class _Endless(ListSource):
    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        raise AssertionError("read although another process is collecting")


def test_interrupted_it_ends_after_a_page_and_the_next_continues_there(tmp_path: Path) -> None:
    source = ListSource("ce1", page=3)
    source.add(*make_jobs(8))
    site = Site(tmp_path, [source], [RecordReceiver("neic")])
    site.stop_when = lambda: any(isinstance(event, PageStored) for event in site.events)
    first = site.collect()["ce1"]
    assert (first.new, first.error, first.interrupted) == (3, None, True)
    assert not site.publisher.status().complete
    assert not site.publisher.status().sources["ce1"].read_to_end
    (finding,) = check_host.collected(site.config, site.publisher.store, site.now)
    assert (finding.level, "not read to its end" in finding.message) == ("yellow", True)
    site.stop_when = lambda: False
    second = site.collect()["ce1"]
    assert (second.new, second.interrupted) == (5, False)
    assert site.publisher.status().sources["ce1"].read_to_end


def test_interrupted_after_the_last_page_it_is_complete(tmp_path: Path) -> None:
    """And the next source is not begun."""
    sources = [ListSource("ce1"), ListSource("ce2")]
    for source, number in zip(sources, (1, 2), strict=True):
        source.add(make_job(number))
    site = Site(tmp_path, sources, [RecordReceiver("neic")])
    site.stop_when = lambda: any(isinstance(event, PageStored) for event in site.events)
    found = site.collect()
    assert (found["ce1"].new, found["ce1"].interrupted) == (1, False)
    assert found["ce2"] == Collected(interrupted=True)
    assert exit_code.of_run(found.values(), {}, None) == 130


def test_runs_with_a_note_about_their_usage_are_counted(tmp_path: Path) -> None:
    """Once each, by what is stored of them now."""

    def noted(number: int, note: UsageNote | None, cpu_ms: int = 1000) -> Job:
        return make_job(number, cpu_ms=cpu_ms, extras={} if note is None else {NOTE: note.word})

    sampled, doubtful = UsageNote.CPU_SAMPLED, UsageNote.CPU_DOUBTFUL
    site, _ = site_of(tmp_path, noted(1, sampled), noted(2, doubtful), noted(3, doubtful), noted(4, None))
    source = site.sources["ce1"]

    def counts() -> tuple[int, int]:
        status = site.publisher.status().sources["ce1"]
        return status.cpu_sampled, status.cpu_doubtful

    first = site.collect()["ce1"]
    assert (first.cpu_sampled, first.cpu_doubtful) == counts() == (1, 2)
    source.add(noted(1, sampled), noted(2, sampled, 5000), noted(3, None, 7000), noted(4, None))
    second = site.collect()["ce1"]
    assert (second.cpu_sampled, second.cpu_doubtful) == (1, 0)
    assert counts() == (2, 0)
    site.publish()
    assert [found.message for found in site.publisher.maintenance.check() if found.level == "red"] == []
