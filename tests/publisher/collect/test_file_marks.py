"""How far log files were read is stored a row a file, in the transaction of the runs for which it vouches."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from publisher.errors import StoreError
from tests.publisher.site import Site

FILES = 5


def _line(number: int) -> str:
    end = 1_793_500_000 + number
    return (
        f"q:n1:g:u1:job:{number}:sge:0:{end - 60}:{end - 50}:{end}:0:0:50:{'0:' * 17}NONE:d:NONE:1:0:1.5:0:0"
        f":-l x={'x' * 200}:0.0:NONE:3231744.0:0:0\n"
    )


class _LogSite:
    """A site with a log of several files, each with two jobs."""

    def __init__(self, folder: Path) -> None:
        self.site = Site(folder, [], [])
        self.log = folder / "log"
        self.log.mkdir()
        self.site.table["sources"]["ge"] = {"type": "gridengine", "path": str(self.log), "cluster": "c"}
        self.jobs = 0
        for number in range(FILES):
            self.add(f"accounting.{FILES - number}")

    def add(self, name: str) -> None:
        with (self.log / name).open("a", encoding="ascii") as file:
            file.write(_line(self.jobs) + _line(self.jobs + 1))
        self.jobs += 2

    def collected(self) -> int:
        """How many lines another process reads; then every job is stored once."""
        self.site.reopen()
        collected = self.site.collect()["ge"]
        assert collected.error is None
        assert self.site.rows("SELECT count(*) FROM runs") == [(self.jobs,)]
        assert '"files"' not in self.cursor
        return collected.read

    @property
    def cursor(self) -> str:
        return str(self.site.rows("SELECT cursor FROM sources")[0][0])

    def marks(self) -> dict[str, str]:
        return dict(self.site.rows("SELECT file, mark FROM file_marks"))


@pytest.fixture
def log(tmp_path: Path) -> _LogSite:
    return _LogSite(tmp_path)


@pytest.mark.either_store
def test_only_the_marks_of_files_that_changed_are_written(log: _LogSite) -> None:
    assert log.collected() == log.jobs
    marks = log.marks()
    assert len(marks) == FILES
    assert log.collected() == 0
    assert log.marks() == marks
    log.add("accounting.2")
    (log.log / "accounting.5").unlink()
    assert log.collected() == 2
    left = log.marks()
    assert (len(left), len(left.items() & marks.items())) == (FILES - 1, FILES - 2)


@pytest.mark.either_store
def test_marks_and_runs_are_one_transaction(log: _LogSite) -> None:
    log.site.publisher.status()
    with log.site.full_at("INSERT", "file_marks"), pytest.raises(StoreError):
        log.site.collect()
    assert log.site.rows("SELECT * FROM runs") == log.site.rows("SELECT * FROM file_marks") == []
    assert log.collected() == log.jobs


def _as_before(log: _LogSite) -> None:
    """Let the store have the marks as the version before had them: in the cursor."""
    log.site.reopen()
    cursor = {**json.loads(log.cursor), "files": list(log.marks().values())}
    with closing(sqlite3.connect(log.site.store_file)) as store, store:
        store.execute("UPDATE sources SET cursor = ?", (json.dumps(cursor),))
        store.execute("DELETE FROM file_marks")


def test_the_marks_in_a_cursor_become_rows_at_once(log: _LogSite) -> None:
    log.collected()
    marks = log.marks()
    _as_before(log)
    with log.site.full_at("INSERT", "file_marks"), pytest.raises(StoreError):
        log.site.collect()
    assert '"files"' in log.cursor
    assert log.collected() == 0
    assert log.marks() == marks


def test_a_file_whose_mark_is_damaged_is_read_anew(log: _LogSite) -> None:
    log.collected()
    log.site.reopen()
    damaged = min(log.marks())
    with closing(sqlite3.connect(log.site.store_file)) as store, store:
        store.execute("UPDATE file_marks SET mark = substr(mark, 3) WHERE file = ?", (damaged,))
    with log.site.publisher as publisher:
        assert any("file_marks.mark" in finding.message for finding in publisher.maintenance.check())
    assert log.collected() == 2
    assert log.collected() == 0
