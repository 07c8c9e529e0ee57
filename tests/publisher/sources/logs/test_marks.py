"""The marks of a log with a file for each day of many years."""

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from publisher.sources.logs.mark import Mark
from publisher.sources.logs.marks import Marks
from publisher.sources.logs.reader import LogReader
from tests.publisher.sources.logs.growing_log import TIME

DAYS = 300
LINE = f"record {{}} {TIME} {'x' * 300}\n"
MOST_BYTES = 700
"""For each file: its text, its key, and its place in a table. As an object with its values it takes 1,100."""


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
    stored = json.dumps([mark.text for mark in marks])
    tracemalloc.start()
    try:
        held = Marks(json.loads(stored))
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(held.keys()) == len(marks)
    assert not held.held()
    assert taken < MOST_BYTES * len(marks)


def test_a_mark_is_held_once_it_was_asked_for() -> None:
    mark = settled(1)
    marks = Marks([mark.text])
    assert marks.peek(mark.key) is not marks.peek(mark.key)
    held = marks.hold(mark.key)
    assert held is not None
    assert marks.peek(mark.key) is held
    held.path = "/logs/moved"
    assert marks.stored() == [held.text]
    assert marks.beginning_with(mark.lead) == [held]
    assert marks.remove(held)
    assert not marks.remove(held)
    assert (marks.stored(), marks.hold(mark.key)) == ([], None)
