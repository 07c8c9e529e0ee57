"""The suite of a kind of source: every run once, wherever reading stops and whatever comes late."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from formats.identity import encode
from formats.job import Job
from publisher.config import schema
from publisher.sources import make_source
from publisher.sources.base import Cursor, Page, Source, Unreadable, Window, cursor_of, text_of
from publisher.testing.site import FolderSite
from publisher.testing.targets import NOT_APPLICABLE

Facts = dict[str, Any]
"""Of a run that is to be written: `number` from 1, `end` (epoch seconds), `wall_s`, `cpu_s`."""


class SourceSuite:
    """Subclass it as `TestMine` with the `type` of the source, and `write`."""

    type: ClassVar[str]
    """The type in the configuration."""
    settings: ClassVar[dict[str, Any]] = {}
    """Further settings of the source."""
    end: ClassVar[int] = 1_793_500_000
    """Runs end then and later, epoch seconds."""
    rewrites: ClassVar[bool] = False
    """Whether the batch system changes what it wrote of a run, so that a new version comes later."""

    def path(self, folder: Path) -> Path:
        """What the source is configured to read."""
        return folder / "jobs.log"

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        """Write these runs after those that are there, as the batch system does; with `rewrites`, a number that was
        written before is a new version."""
        raise NotImplementedError

    def garbage(self) -> bytes | None:
        """Input that is not a record, to be appended to the file; None: the source does not read a file of records."""
        return b"this is no record\n"

    def table(self, path: Path) -> dict[str, Any]:
        """The table `[sources.NAME]` of a source that reads `path`."""
        return {"type": self.type, "path": str(path), **self.settings}

    def move(self, path: Path) -> Path:
        """Move what was written to another place, and return what the source is then configured to read."""
        moved = path.parent / "moved"
        moved.mkdir()
        return path.rename(moved / path.name)

    # ---

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        """What the source reads."""
        return self.path(tmp_path)

    def _source(self, file: Path, name: str = "mine", **more: Any) -> Source:
        return make_source(name, schema.SourceSettings.model_validate(self.table(file) | more))

    def _runs(self, numbers: Sequence[int], **facts: Any) -> list[Facts]:
        return [{"number": number, "end": self.end + number, "wall_s": 100, "cpu_s": 50, **facts} for number in numbers]

    def _read(self, file: Path, cursor: Cursor, **more: Any) -> tuple[list[Job], list[Unreadable], Cursor]:
        """What a new process reads from a cursor on, and its cursor after that, as it is stored."""
        jobs: list[Job] = []
        unreadable: list[Unreadable] = []
        last: Page | None = None
        for page in self._source(file, **more).pages(cursor):
            jobs += page.jobs
            unreadable += page.unreadable
            last = page
        assert last is not None, "a source gives at least one page"
        assert last.at_end, "the last page says that it is the last"
        return jobs, unreadable, cursor_of(text_of(last.cursor))

    def test_each_run_is_read_once_wherever_reading_stops(self, log: Path) -> None:
        """A process that starts after each run that is written reads this one alone."""
        cursor: Cursor = {}
        read: list[Job] = []
        for number in range(1, 8):
            self.write(log, self._runs([number]))
            jobs, unreadable, cursor = self._read(log, cursor)
            assert not unreadable
            read += [job for job in jobs if job not in read]
            assert len(read) == number
        again, _, _ = self._read(log, {})
        assert sorted(map(encode, again)) == sorted(map(encode, read))

    def test_a_cursor_gives_the_same_twice(self, log: Path) -> None:
        """After a kill, a page is read again from the cursor before it: the same runs with the same ids."""
        self.write(log, self._runs(range(1, 4)))
        _, _, cursor = self._read(log, {})
        self.write(log, self._runs(range(4, 6)))
        (jobs, unreadable, _), second = self._read(log, cursor), self._read(log, cursor)
        assert (jobs, unreadable) == second[:2]

    def test_an_unfinished_record_waits(self, log: Path) -> None:
        """Wherever the batch system stops writing for a moment: each run is read once, and whole."""
        if self.garbage() is None or not self._is_file(log):
            pytest.skip(f"{NOT_APPLICABLE}: it does not read a file of records")
        whole = log.read_bytes()
        expected = sorted(map(encode, self._read(log, {})[0]))
        for size in range(0, len(whole), max(1, len(whole) // 40)):
            log.write_bytes(whole[:size])
            first, _, cursor = self._read(log, {})
            with log.open("ab") as file:
                file.write(whole[size:])
            second, unreadable, _ = self._read(log, cursor)
            assert sorted(map(encode, [*first, *second])) == expected, f"cut after {size} bytes"
            assert not unreadable

    def _is_file(self, file: Path) -> bool:
        self.write(file, self._runs(range(1, 6)))
        return file.is_file()

    def test_late_runs_are_read(self, log: Path) -> None:
        """A run that ended before those that were read is read when it turns up."""
        self.write(log, self._runs([5, 6]))
        _, _, cursor = self._read(log, {})
        self.write(log, self._runs([1], end=self.end - 3600))
        jobs, _, _ = self._read(log, cursor)
        assert self.end - 3600 in [job.end for job in jobs]

    def test_a_changed_run_keeps_its_id(self, log: Path) -> None:
        """A new version of a run has the record id of the first."""
        if not self.rewrites:
            pytest.skip(f"{NOT_APPLICABLE}: the batch system does not change records (rewrites)")
        self.write(log, self._runs([1, 2]))
        before, _, cursor = self._read(log, {})
        self.write(log, self._runs([1], cpu_s=99))
        after, _, _ = self._read(log, cursor)
        changed = [job for job in after if job not in before]
        assert [job.cpu_ms for job in changed] == [99_000]
        assert changed[0].record_id in {job.record_id for job in before}

    def test_record_ids_are_of_the_runs_alone(self, log: Path) -> None:
        """They are unique, and depend neither on the name of the source nor on where its input lies."""
        self.write(log, self._runs(range(1, 6)))
        here, _, _ = self._read(log, {})
        there, _, _ = self._read(self.move(log), {}, name="another")
        assert len({job.record_id for job in here}) == 5
        assert [job.record_id for job in there] == [job.record_id for job in here]

    def test_a_window_is_read_again(self, log: Path) -> None:
        """The runs that ended in a window, with the cursor that was given."""
        self.write(log, self._runs(range(1, 8)))
        _, _, cursor = self._read(log, {})
        pages = list(self._source(log).pages(cursor, Window(self.end + 3, self.end + 6)))
        assert sorted(job.end or 0 for page in pages for job in page.jobs) == [self.end + each for each in (3, 4, 5)]
        assert all(dict(page.cursor) == dict(cursor) for page in pages)

    def test_input_that_is_no_record_is_kept_and_the_rest_read(self, log: Path) -> None:
        """It has a place and a reason, and stops nothing. Runs beside it may be held: a user may have written it."""
        garbage = self.garbage()
        if garbage is None:
            pytest.skip(f"{NOT_APPLICABLE}: it does not read a file of records")
        self.write(log, self._runs([1]))
        with log.open("ab") as file:
            file.write(garbage)
        self.write(log, self._runs([2]))
        jobs, unreadable, _ = self._read(log, {})
        suspects = [piece for piece in unreadable if piece.suspect is not None]
        assert len(jobs) + len(suspects) == 2
        assert len(unreadable) > len(suspects)
        assert all(piece.file and piece.reason for piece in unreadable)

    def test_the_store_has_each_run_once(self, log: Path, tmp_path: Path) -> None:
        """Collected with kills at each event, into a real store."""
        for site in self._site(tmp_path, log):
            for step in range(4):
                self.write(log, self._runs(range(3 * step + 1, 3 * step + 4)))
                site.killed_at(step // 2, site.collect)
                site.collect()
                assert len(site.rows("SELECT record_id FROM runs")) == 3 * step + 3

    def _site(self, folder: Path, file: Path) -> Iterator[FolderSite]:
        site = FolderSite(folder, [])
        site.table["sources"]["mine"] = self.table(file)
        yield site
        site.reopen()
