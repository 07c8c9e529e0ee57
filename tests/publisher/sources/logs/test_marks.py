"""The marks of a log with a file for each day of many years."""

import json
import shutil
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import pytest

from publisher.sources.base import MarkChange
from publisher.sources.logs.mark import Mark, digest, lead_of
from publisher.sources.logs.marks import Marks
from publisher.sources.logs.reader import LogReader
from tests.conftest import ROOT
from tests.publisher.sources.logs.growing_log import TIME

DAYS = 300
LINE = f"record {{}} {TIME} {'x' * 300}\n"
MOST_BYTES = 5
"""For each file: they are in a temporary database. As an object with its values it takes 1,100."""


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """A folder with a log of each day, and one that is no UTF-8."""
    folder = tmp_path / "days"
    folder.mkdir()
    for day in range(DAYS):
        (folder / f"2026{day // 28 + 1:02}{day % 28 + 1:02}").write_text(LINE.format(day), encoding="ascii")
    (folder / "day\udcff.1").write_text(LINE.format("other"), encoding="ascii")
    return folder


def settled(day: int) -> Mark:
    return Mark(f"/logs/{day}", 65_000, day, 10, 10, "ab" * 6, 10, "ab" * 12, 10, 1, 10, "cd" * 12)


def read(reader: LogReader, cursor: str) -> tuple[list[bytes], str]:
    reading = reader.read(json.loads(cursor))
    lines = [line for block in reading for line in block.lines]
    assert not reading.problems
    return lines, json.dumps(reading.cursor())


def test_nothing_is_read_twice_where_an_earlier_release_stored_the_marks(days: Path) -> None:
    """It stored the values of each, not their text."""
    first, cursor = read(LogReader(days), "{}")
    assert len(first) == DAYS + 1
    stored = json.loads(cursor)
    stored["files"] = [json.loads(text) for text in stored["files"]]
    lines, again = read(LogReader(days), json.dumps(stored))
    assert lines == []
    assert sorted(json.loads(again)["files"]) == sorted(json.loads(cursor)["files"])


@pytest.mark.parametrize("keeps_time", [True, False])
def test_files_that_were_copied_to_another_disk_are_the_same(days: Path, tmp_path: Path, keeps_time: bool) -> None:
    _, cursor = read(LogReader(days), "{}")
    new = tmp_path / "new"
    shutil.copytree(days, new, copy_function=shutil.copy2 if keeps_time else shutil.copyfile)
    shutil.rmtree(days)
    new.rename(days)
    assert read(LogReader(days), cursor)[0] == []


def test_a_day_that_grows_is_continued_and_a_changed_one_read(days: Path) -> None:
    _, cursor = read(LogReader(days), "{}")
    with (days / "20260203").open("a", encoding="ascii") as late:
        late.write(LINE.format("late"))
    (days / "20260204").write_text(LINE.format("changed"), encoding="ascii")
    lines, cursor = read(LogReader(days), cursor)
    assert [line.split()[1] for line in lines] == [b"late", b"changed"]
    assert read(LogReader(days), cursor)[0] == []


def test_marks_of_settled_files_take_little_memory() -> None:
    marks = [
        Mark(f"/logs/{day}", 65_000, day, 10, 10, "ab" * 6, 10, "ab" * 12, 10, 1, 10, "cd" * 12) for day in range(4_000)
    ]
    tracemalloc.start()
    try:
        held = Marks(mark.text for mark in marks)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(held.texts()) == len(marks)
    assert not held.held()
    assert taken < MOST_BYTES * len(marks)


def test_marks_that_another_thread_collects_as_garbage_leave_no_message() -> None:
    """Which thread that is, nobody chooses: an error of closing their database there is a message on standard error."""
    script = f"""if True:
        import threading
        from publisher.sources.logs.marks import Marks
        last = [Marks([{settled(1).text!r}])]
        thread = threading.Thread(target=last.clear)
        thread.start()
        thread.join()
        print(last)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_mark_is_held_once_it_was_asked_for() -> None:
    mark = settled(1)
    marks = Marks([mark.text])
    assert marks.peek(mark.key) is not marks.peek(mark.key)
    held = marks.hold(mark.key)
    assert held is not None
    assert marks.peek(mark.key) is held
    held.path = "/logs/moved"
    assert marks.texts() == [held.text]
    assert marks.changes() == (MarkChange("65000:1", held.text),)
    assert marks.remove(held)
    assert not marks.remove(held)
    assert (marks.texts(), marks.hold(mark.key)) == ([], None)
    assert marks.changes() == (MarkChange("65000:1", None),)
    assert marks.changes() == ()


def test_only_marks_that_changed_must_be_stored() -> None:
    marks = Marks(settled(day).text for day in range(3))
    assert marks.changes() == ()
    for day in (0, 1, 2):
        held = marks.hold((65_000, day))
        assert held is not None
        held.offset += day % 2
        marks.settle(held)
    marks.put(settled(3))
    texts = {text for _, text in map(msgspec.structs.astuple, marks.changes())}
    held.line = 7
    marks.settle(held)
    assert texts == {msgspec.structs.replace(settled(1), offset=11).text, settled(3).text}
    assert marks.changes() == ()


def test_files_that_begin_alike_are_candidates_whatever_is_known_of_them() -> None:
    head = b"record 1 1795000000\n" * 20
    short, long = (
        Mark("/logs/a", 1, number, 10, 10, lead_of(head[:length]), length, digest(head[:length]))
        for number, length in enumerate((30, 300))
    )
    other = Mark("/logs/b", 1, 7, 10, 10, "", 30, digest(b"another beginning of thirty by"))
    marks = Marks(mark.text for mark in (short, long, other))
    assert [mark.text for mark in marks.continued_by(head)] == [long.text, short.text]
    assert marks.continued_by(head[:20]) == []


def test_a_full_disk_is_an_error_of_the_source(tmp_path: Path) -> None:
    """The temporary file cannot grow."""
    (tmp_path / "accounting").touch()
    script = f"""if True:
        import resource
        from pathlib import Path
        from publisher.config.sources import SourceSettings
        from publisher.errors import SourceError
        from publisher.sources import make_source
        from publisher.sources.base import FILE_MARKS
        from tests.publisher.sources.logs.test_marks import settled
        source = make_source("ge", SourceSettings(type="gridengine", path=Path({str(tmp_path)!r}), cluster="c"))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
        try:
            list(source.pages({{FILE_MARKS: lambda: (settled(day).text for day in range(20_000))}}))
        except SourceError as error:
            print(error)
    """
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert "cannot be kept in a temporary file" in done.stdout
