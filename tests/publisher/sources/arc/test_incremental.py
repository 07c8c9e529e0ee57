"""No finished job is missed: reading in steps against a model of what ARC does to its database meanwhile."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from formats.job import Job
from publisher.sources.base import Cursor, Window
from tests.extent import short_or_whole
from tests.generators.arc_database import ArcWriter, create, jobs_of
from tests.generators.arc_jobs import ArcJob
from tests.publisher.sources.arc.arc_reading import NOW, Read, source

HOUR = 3_600
LONG_AGO = NOW - 400 * 24 * HOUR


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[ArcWriter]:
    with ArcWriter(tmp_path / "accounting.db", new=True) as opened:
        yield opened


def jobs(count: int, seed: int = 5) -> list[ArcJob]:
    return [job for job in jobs_of(count + count // 50 + 1, seed) if job.status != "in-progress"][:count]


def names(read: Read) -> list[str]:
    return sorted(str(job.global_id) for job in read.given)


@pytest.mark.parametrize("events", [True, False])
@pytest.mark.parametrize("end", [NOW - 30 * HOUR, LONG_AGO])
def test_a_job_that_finishes_late_is_found(writer: ArcWriter, events: bool, end: int) -> None:
    late, early = jobs(2)
    record_id = writer.accept(late)
    writer.add(early)
    first = Read(source(writer.path))
    assert [job.status for job in first.given] == ["running", early.status]
    writer.finish(record_id, replace(late, end=end), events=events)
    second = Read(source(writer.path), first.cursor)
    assert [(job.global_id, job.status, job.end) for job in second.given] == [(late.job_id, late.status, end)]
    assert Read(source(writer.path), second.cursor).given == []


def test_nothing_new_gives_one_empty_page(writer: ArcWriter) -> None:
    for job in jobs(7):
        writer.add(job)
    first = Read(source(writer.path, page_rows=3))
    assert [len(page.jobs) for page in first.pages] == [3, 3, 1]
    assert [page.at_end for page in first.pages] == [False, False, True]
    again = Read(source(writer.path, page_rows=3), first.cursor)
    assert [(page.read, page.at_end, page.cursor) for page in again.pages] == [(0, True, first.cursor)]


def test_hours_in_which_only_new_jobs_ended_give_no_page(writer: ArcWriter) -> None:
    old, *new = (replace(job, end=NOW - hours * HOUR) for job, hours in zip(jobs(4), (30, 20, 9, 1), strict=True))
    writer.add(old)
    first = Read(source(writer.path))
    for job in new:
        writer.add(job)
    again = Read(source(writer.path), first.cursor)
    assert [len(page.jobs) for page in again.pages] == [3]


def test_a_job_in_progress_is_given_when_first_seen_and_when_more_is_known(writer: ArcWriter) -> None:
    (job,) = jobs(1)
    record_id = writer.accept(job)
    first = Read(source(writer.path))
    assert [one.execution_start for one in first.given] == [None]
    assert Read(source(writer.path), first.cursor).given == []
    writer.event(record_id, "LRMSSTART", NOW - HOUR)
    second = Read(source(writer.path), first.cursor)
    assert [(one.status, one.execution_start) for one in second.given] == [("running", NOW - HOUR)]


def test_a_job_changed_within_the_overlap_is_given_again(writer: ArcWriter) -> None:
    job = replace(jobs(1)[0], end=NOW - 6 * 24 * HOUR)
    other = replace(jobs(2)[1], end=NOW - HOUR)
    record_id = writer.add(job)
    writer.add(other)
    first = Read(source(writer.path))
    writer.update(record_id, replace(job, wall=job.wall + 1))
    second = Read(source(writer.path), first.cursor)
    assert [(one.global_id, one.wall_ms) for one in second.given] == [(job.job_id, (job.wall + 1) * 1000)]


def test_a_change_is_found_though_much_newer_jobs_came_with_it(writer: ArcWriter) -> None:
    job = replace(jobs(1)[0], end=NOW - 50 * 24 * HOUR)
    record_id = writer.add(job)
    first = Read(source(writer.path))
    writer.update(record_id, replace(job, wall=5))
    new = replace(jobs(2)[1], end=NOW - HOUR)
    writer.add(new)
    second = Read(source(writer.path), first.cursor)
    assert names(second) == sorted([str(job.job_id), str(new.job_id)])
    assert Read(source(writer.path), second.cursor).given == []


def test_extra_information_that_comes_late_is_found_with_any_overlap(writer: ArcWriter) -> None:
    job = replace(jobs(1)[0], end=LONG_AGO)
    record_id = writer.add(job)
    first = Read(source(writer.path, overlap=0))
    writer.extra(record_id, "wninstance", "late")
    second = Read(source(writer.path, overlap=0), first.cursor)
    assert [one.service_class for one in second.given] == ["late"]


def test_a_job_that_may_be_half_written_waits_for_its_finished_event(writer: ArcWriter) -> None:
    job = replace(jobs(1)[0], end=NOW - 10)
    record_id = writer.accept(job)
    writer.update(record_id, job)
    first = Read(source(writer.path))
    assert (first.given, first.pages[-1].skipped) == ([], 1)
    writer.event(record_id, "FINISHED", NOW - 10)
    assert names(Read(source(writer.path), first.cursor)) == [job.job_id]


def test_a_job_without_events_waits_a_minute_only(writer: ArcWriter) -> None:
    job = replace(jobs(1)[0], end=NOW - 10, events=[])
    writer.add(job)
    first = Read(source(writer.path))
    assert first.given == []
    assert names(Read(source(writer.path, now=NOW + 60), first.cursor)) == [job.job_id]


def test_a_clock_in_the_future_does_not_blind_the_overlap(writer: ArcWriter) -> None:
    ahead = replace(jobs(1)[0], end=NOW + 10**9)
    job = replace(jobs(2)[1], end=NOW - HOUR)
    writer.add(ahead)
    record_id = writer.add(job)
    first = Read(source(writer.path))
    assert len(first.given) == 2
    writer.update(record_id, replace(job, wall=5))
    assert [one.wall_ms for one in Read(source(writer.path), first.cursor).given] == [5000]


def test_an_unreadable_row_is_reported_once_and_read_when_it_is_fixed(writer: ArcWriter) -> None:
    job = replace(jobs(1)[0], end=LONG_AGO)
    record_id = writer.add(replace(job, wall=-1))
    first = Read(source(writer.path))
    assert len(first.unreadable) == 1
    second = Read(source(writer.path), first.cursor)
    assert (second.given, second.unreadable) == ([], [])
    writer.update(record_id, job)
    assert names(Read(source(writer.path), second.cursor)) == [job.job_id]


def test_another_database_in_its_place_is_read_from_its_beginning(tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    create(path, 20, seed=1)
    first = Read(source(path))
    create(path, 30, seed=2)
    second = Read(source(path), first.cursor)
    assert len(second.jobs) == 30
    assert not second.jobs.keys() & first.jobs.keys()
    create(path, 5, seed=2)
    assert len(Read(source(path), second.cursor).jobs) == 5


def test_a_window_is_read_again_with_any_cursor(tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    create(path, 300)
    everything = Read(source(path))
    ends = sorted(job.end for job in everything.given if job.end is not None)
    window = Window(ends[50], ends[200])
    again = Read(source(path, page_rows=40), everything.cursor, window)
    assert sorted(job.end or 0 for job in again.given) == [end for end in ends if ends[50] <= end < ends[200]]
    assert {repr(page.cursor) for page in again.pages} == {repr(everything.cursor)}
    assert again.pages[-1].at_end
    assert len(Read(source(path), everything.cursor, Window()).given) == len(ends)


def test_a_window_is_the_same_for_adjacent_and_for_distant_rows(tmp_path: Path) -> None:
    """Rows that lie together are read in their order, others by the index of ends."""
    create(tmp_path / "accounting.db", 300)
    ends = sorted(job.end for job in Read(source(tmp_path / "accounting.db")).given if job.end is not None)
    window = Window(ends[50], ends[200])
    together = Read(source(tmp_path / "accounting.db", page_rows=40), {}, window)
    with contextlib.closing(sqlite3.connect(tmp_path / "accounting.db")) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            if "RecordID" in [column[1] for column in connection.execute(f"PRAGMA table_info({table})")]:
                connection.execute(f"UPDATE {table} SET RecordID = -10 * RecordID")
                connection.execute(f"UPDATE {table} SET RecordID = -RecordID")
        connection.commit()
    apart = Read(source(tmp_path / "accounting.db", page_rows=40), {}, window)
    assert len(together.jobs) == 150
    assert together.jobs == apart.jobs
    assert [job.end for job in apart.given] == sorted(job.end or 0 for job in together.given)
    assert [job.end for job in together.given] != [job.end for job in apart.given]


def test_a_window_is_of_the_end_that_is_accounted(tmp_path: Path) -> None:
    with ArcWriter(tmp_path / "accounting.db", new=True) as writer:
        job = jobs(1)[0]
        writer.add(job)
    (found,) = Read(source(tmp_path / "accounting.db", end_time="lrms")).given
    assert found.end is not None
    assert found.end < job.end
    window = Window(found.end, found.end + 1)
    assert Read(source(tmp_path / "accounting.db", end_time="lrms"), {}, window).given == [found]
    assert Read(source(tmp_path / "accounting.db"), {}, window).given == []


class ArcLife(RuleBasedStateMachine):
    """ARC writes, in any order, while a reader reads, sometimes broken off: what is finished must have been given."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.path = Path(self.folder.name) / "accounting.db"
        self.number = 0
        self.cursor: Cursor = {}
        self.given: dict[str, Job] = {}
        self.overlap = 7 * 24 * HOUR
        self._start()

    def _start(self) -> None:
        self.writer = ArcWriter(self.path, new=True)
        self.in_progress: dict[int, ArcJob] = {}
        self.finished: dict[int, ArcJob] = {}

    def teardown(self) -> None:
        """Let go of the files."""
        self.writer.close()
        self.folder.cleanup()

    @rule(count=st.integers(1, 4))
    def accept(self, count: int) -> None:
        """Some jobs are accepted."""
        for _ in range(count):
            self.number += 1
            job = replace(jobs(1, seed=self.number % 7)[0], job_id=f"job{self.number}")
            self.in_progress[self.writer.accept(job)] = job

    @rule(data=st.data(), ago=st.integers(2, 10**6), traces=st.sampled_from(["all", "no events", "none"]))
    def finish(self, data: st.DataObject, ago: int, traces: str) -> None:
        """End one of them, with an end time that may be far in the past, with or without a trace outside table AAR."""
        if self.in_progress:
            record_id = data.draw(st.sampled_from(sorted(self.in_progress)))
            job = replace(self.in_progress.pop(record_id), end=NOW - ago * 60)
            if traces == "none":
                self.writer.update(record_id, job)
            else:
                self.writer.finish(record_id, job, events=traces == "all")
            self.finished[record_id] = job

    @rule(data=st.data(), wall=st.integers(0, 10**5))
    def change(self, data: st.DataObject, wall: int) -> None:
        """A job that ended within the overlap is changed without a trace elsewhere."""
        newest = max((job.end for job in self.finished.values()), default=0)
        recent = sorted(number for number, job in self.finished.items() if job.end > newest - self.overlap)
        if recent:
            record_id = data.draw(st.sampled_from(recent))
            self.finished[record_id] = replace(self.finished[record_id], wall=wall)
            self.writer.update(record_id, self.finished[record_id])

    @rule(data=st.data(), value=st.integers(0, 3))
    def add_information(self, data: st.DataObject, value: int) -> None:
        """Something is added to a job, however old."""
        known = sorted([*self.finished, *self.in_progress])
        if known:
            self.writer.extra(data.draw(st.sampled_from(known)), "systemsoftware", f"v{value}")

    @rule()
    def replace_database(self) -> None:
        """An administrator puts a new database in its place."""
        self.writer.close()
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{self.path}{suffix}")  # noqa: PTH108
        # What had ended and was not read yet went with the old file.
        self._start()

    @rule(page_rows=st.integers(1, 5), pages=st.integers(0, 3))
    def read_broken_off(self, page_rows: int, pages: int) -> None:
        """A read that stops after some pages: what was stored, and its cursor, stay."""
        reader = source(self.path, page_rows=page_rows, overlap=self.overlap).pages(self.cursor)
        with contextlib.closing(reader):  # type: ignore[type-var]
            for _, page in zip(range(pages), reader, strict=False):
                self._store(page.jobs, page.cursor)

    @rule(page_rows=st.integers(1, 5))
    def read(self, page_rows: int) -> None:
        """A complete read: after it, every finished job was given in its present version."""
        for page in source(self.path, page_rows=page_rows, overlap=self.overlap).pages(self.cursor):
            self._store(page.jobs, page.cursor)
            at_end = page.at_end
        assert at_end
        now = Read(source(self.path)).jobs
        assert {record_id: self.given.get(record_id) for record_id in now} == now
        assert sum(job.finished for job in now.values()) == len(self.finished)

    def _store(self, found: tuple[Job, ...], cursor: Cursor) -> None:
        self.given.update((job.record_id, job) for job in found)
        self.cursor = cursor

    @invariant()
    def counts_agree(self) -> None:
        """The model is about the database that is there."""
        assert self.writer.connection.execute("SELECT count(*) FROM AAR").fetchone()[0] == len(self.finished) + len(
            self.in_progress
        )


ArcLife.TestCase.settings = settings(max_examples=short_or_whole(15, 40), stateful_step_count=25, deadline=None)


class TestArcLife(ArcLife.TestCase):  # type: ignore[misc, valid-type]
    """Quick form."""


class LongArcLife(ArcLife):
    """The same, for the exhaustive form."""


LongArcLife.TestCase.settings = settings(max_examples=2_000, stateful_step_count=50, deadline=None)


@pytest.mark.long
class TestArcLifeLong(LongArcLife.TestCase):  # type: ignore[misc, valid-type]
    """Exhaustive form."""
