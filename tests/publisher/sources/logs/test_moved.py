"""Logs that were moved, renamed or copied: what was read of them is found again, and not read twice."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from publisher.sources.logs.reader import LogReader
from publisher.sources.logs.rotation import MOST_OPENED
from tests.publisher.sources.logs.growing_log import COMPRESS, GrowingLog, log

__all__ = ["log"]


def moved(log: GrowingLog, place: str) -> Path:
    """The path of a file that was rotated, relative to the folder of the log."""
    file = log.file.parent / place
    file.parent.mkdir(exist_ok=True)
    return file


UNEXPECTED = ["acct.bak", "ACCT before the update", "saved-by-root", "acct_2026w47", ".acct"]


@pytest.mark.parametrize("name", UNEXPECTED)
def test_a_file_with_any_name_is_found_by_its_inode(log: GrowingLog, name: str) -> None:
    log.write(100)
    log.read()
    log.write(49)
    log.file.rename(moved(log, name))
    log.write(5)
    assert log.read() == log.expected()[100:]
    assert log.aside == []
    log.write(1)
    assert log.read() == log.expected()[154:]


@pytest.mark.parametrize("suffix", ["", *COMPRESS])
@pytest.mark.parametrize("name", [name for name in UNEXPECTED if not name.startswith(".")])
def test_a_copy_with_any_name_is_found_by_its_content(log: GrowingLog, name: str, suffix: str) -> None:
    """As rotated by `copytruncate`, or compressed at once."""
    log.write(100)
    log.read()
    log.write(49)
    copy = moved(log, name + suffix)
    copy.write_bytes(COMPRESS.get(suffix, bytes)(log.file.read_bytes()))
    os.truncate(log.file, 0)
    log.write(5)
    assert log.read() == log.expected()[100:]
    assert log.aside == []
    assert log.read() == []


@pytest.mark.parametrize("compressed", [False, True])
def test_a_file_is_found_in_a_further_folder(tmp_path: Path, compressed: bool) -> None:
    place = tmp_path / "log"
    place.mkdir()
    log = GrowingLog(place)
    log.reader = LogReader(log.file, None, [tmp_path / "old"])
    log.write(100)
    log.read()
    log.write(49)
    copy = moved(log, "../old/kept.by.hand")
    log.file.rename(copy)
    if compressed:
        copy.with_suffix(".gz").write_bytes(gzip.compress(copy.read_bytes()))
        copy.unlink()
    log.write(5)
    assert log.read() == log.expected()[100:]
    assert log.aside == []


def test_a_file_that_was_moved_may_still_grow(log: GrowingLog) -> None:
    """Until its writer is asked to open the new one."""
    log.write(100)
    log.read()
    copy = moved(log, "acct.bak")
    log.file.rename(copy)
    log.file.touch()
    assert log.read() == []
    with copy.open("ab") as file:
        file.write(b"late\n")
    assert log.read() == [b"late"]
    copy.unlink()
    assert log.read() == []
    assert log.aside == []


def test_rotated_twice_between_two_readings(log: GrowingLog) -> None:
    """The file in between was never seen under its own name: it is known by the form of its name."""
    log.write(100)
    log.read()
    for week in (47, 48):
        log.write(10)
        log.file.rename(moved(log, f"acct_2026w{week}"))
        os.utime(moved(log, f"acct_2026w{week}"), (week, 1_795_000_000 + week))
    log.write(5)
    moved(log, "acct_2026w1").write_bytes(b"of another year\n")
    os.utime(moved(log, "acct_2026w1"), (1, 1))
    assert log.read() == log.expected()[100:]


def test_a_file_that_is_gone_is_reported_once_and_read_when_it_is_found(log: GrowingLog) -> None:
    log.write(100)
    log.read()
    os.utime(log.file, (1_795_000_000, 1_795_000_000))
    log.read()
    log.write(49)
    os.utime(log.file, (1_795_000_000, 1_795_000_001))
    away = log.file.parent.parent / "somewhere"
    log.file.rename(away)
    log.write(5)
    assert log.read() == log.expected()[149:]
    offset = sum(len(line) + 1 for line in log.expected()[:100])
    (reported,) = log.aside
    assert (reported.file, reported.offset, reported.raw) == (str(log.file), offset, b"")
    assert reported.unread_from == 1_795_000_000 - 86_400
    assert "was moved, removed or replaced" in reported.reason
    assert log.read() == []
    assert len(log.aside) == 1
    log.reader = LogReader(log.file, None, [away.parent])
    reading = log.reader.read(json.loads(json.dumps(log.cursor)))
    assert [line for chunk in reading for line in chunk.lines] == log.expected()[100:149]
    assert [(each.file, each.offset) for each in reading.recovered()] == [(str(log.file), offset)]
    assert reading.cursor()["missing"] == []
    away.unlink()


def test_a_file_that_was_empty_when_it_was_read(log: GrowingLog) -> None:
    log.file.touch()
    log.read()
    log.write(10)
    log.file.rename(moved(log, "acct.bak"))
    log.write(5)
    assert log.read() == log.expected()
    assert log.aside == []
    log.file.unlink()
    log.file.touch()
    log.read()
    (reported,) = log.aside
    assert reported.offset == 5 * len(log.expected()[10] + b"\n")


@pytest.mark.parametrize("more", [0, 5], ids=["the copy had been read", "the copy had grown"])
@pytest.mark.parametrize("is_gone", [False, True], ids=["moved", "removed"])
def test_an_older_copy_is_not_taken_for_a_log_that_was_empty(log: GrowingLog, more: int, *, is_gone: bool) -> None:
    """Its name is like that of a copy, but it is known to be another file."""
    log.write(5)
    log.read()
    log.write(more)
    log.rename()
    log.read()
    log.write(5)
    moved_to = moved(log, "saved-by-root")
    log.file.rename(moved_to)
    log.write(3)
    if is_gone:
        moved_to.unlink()
        assert log.read() == log.expected()[10 + more :]
        (reported,) = log.aside
        assert (reported.file, reported.offset) == (str(log.file), 0)
    else:
        assert log.read() == log.expected()[5 + more :]
        assert log.aside == []


def test_the_rest_of_a_copy_that_was_not_read_to_its_end_is_reported(log: GrowingLog) -> None:
    log.write(100)
    copy = log.file.with_name("acct.1")
    copy.write_bytes(log.file.read_bytes() * 40_000)
    log.file.write_bytes(b"new\n")
    reading = log.reader.read({})
    next(iter(reading))
    log.cursor = reading.cursor()
    copy.unlink()
    assert log.read() == [b"new"]
    (reported,) = log.aside
    assert (reported.file, reported.unread_from) == (str(copy), 0)


READ_AT = 1_795_000_000


def read_of(log: GrowingLog, lines: int = 100) -> None:
    """Write lines, at `READ_AT`, and read them."""
    log.write(lines)
    os.utime(log.file, (READ_AT, READ_AT))
    log.read()


def copied(log: GrowingLog, name: str, seconds: int) -> Path:
    """A plain copy of the log, made so long after it was read."""
    copy = log.file.with_name(name)
    shutil.copyfile(log.file, copy)
    os.utime(copy, (READ_AT + seconds, READ_AT + seconds))
    return copy


@pytest.mark.parametrize("lines", [3, 100])
@pytest.mark.parametrize("name", ["acct.bak", "acct.1"])
def test_a_copy_of_what_was_read_does_not_replace_what_was_added_later(log: GrowingLog, name: str, lines: int) -> None:
    read_of(log, lines)
    copied(log, name, 60)
    log.write(2)
    away = log.file.parent / "away"
    away.mkdir()
    log.file.rename(away / "acct-1")
    log.write(1)
    assert set(log.read()) - set(log.expected()[:lines]) == {log.expected()[-1]}
    (reported,) = log.aside
    assert (reported.file, reported.unread_from) == (str(log.file), READ_AT - 86_400)
    assert f"the copy {log.file.with_name(name)} has no more than these" in reported.reason
    assert log.read() == []
    assert len(log.aside) == 1
    assert len(log.cursor["missing"]) == 1
    shutil.copy2(away / "acct-1", log.file.with_name("acct.2"))
    assert log.expected()[lines : lines + 2] == [line for line in log.read() if line not in log.expected()[:lines]]
    assert log.cursor["missing"] == []


def test_of_several_copies_the_one_that_continues_is_read(log: GrowingLog) -> None:
    read_of(log)
    log.write(2)
    copied(log, "acct before", 60)
    content = log.file.read_bytes()
    os.truncate(log.file, len(b"".join(line + b"\n" for line in log.expected()[:100])))
    copied(log, "acct later", 120)
    copied(log, "acct kept", 0)
    assert log.file.with_name("acct before").read_bytes() == content
    log.file.rename(log.file.parent.parent / f"{log.file.parent.name}.away")
    log.write(1)
    assert log.read() == log.expected()[100:]
    assert log.aside == []


@pytest.mark.parametrize("name", ["acct.1", "acct.1.gz", "acct.bak", "acct.bak.gz"])
def test_a_copy_that_kept_its_time_is_whole(log: GrowingLog, name: str) -> None:
    """As `gzip` and `cp -p` leave it: nothing was added between the reading and the rotation."""
    read_of(log)
    copy = copied(log, name, 0)
    if copy.suffix == ".gz":
        copy.write_bytes(gzip.compress(copy.read_bytes()))
        os.utime(copy, (READ_AT, READ_AT))
    log.file.rename(log.file.parent.parent / f"{log.file.parent.name}.away")
    log.write(1)
    assert log.read() == log.expected()[100:]
    assert log.read() == []
    assert log.aside == []


@pytest.mark.parametrize(("mtime_ns", "kept"), [(7, True), (0, True), (8, False), (999_999_999, False)])
def test_a_kept_time_may_lack_its_fraction(log: GrowingLog, mtime_ns: int, kept: bool) -> None:
    log.write(100)
    second_ns = READ_AT * 1_000_000_000
    os.utime(log.file, ns=(second_ns, second_ns + 7))
    log.read()
    os.utime(copied(log, "acct.1", 0), ns=(second_ns, second_ns + mtime_ns))
    log.file.rename(log.file.parent.parent / f"{log.file.parent.name}.away")
    log.write(1)
    log.read()
    assert len(log.aside) == (0 if kept else 1)


def test_a_log_that_was_copied_and_emptied_without_a_new_line_is_whole(log: GrowingLog) -> None:
    """As `copytruncate` does, which does not keep the time."""
    read_of(log)
    copied(log, "acct.1", 60)
    os.truncate(log.file, 0)
    log.write(1)
    assert log.read() == log.expected()[100:]
    log.file.with_name("acct.1").rename(log.file.with_name("acct.2"))
    assert log.read() == []
    assert log.aside == []


def test_a_log_that_was_edited_is_reported_truthfully(log: GrowingLog) -> None:
    read_of(log)
    edited = log.file.with_name(".acct.new")
    edited.write_bytes(log.file.read_bytes().replace(log.expected()[5] + b"\n", b""))
    edited.rename(log.file)
    log.read()
    (reported,) = log.aside
    assert "no file that begins with these was found" in reported.reason


def test_copies_that_were_read_may_be_removed(log: GrowingLog) -> None:
    """As logrotate removes them; and a folder of days, or of a file a job, is tidied up."""
    log.write(10)
    log.rename()
    log.write(10)
    log.read()
    log.file.with_name("acct-20261101").unlink()
    log.read()
    assert log.aside == []


@pytest.mark.parametrize(
    ("files", "names", "left"),
    [
        (["20261101", "20261102", "20261103"], r"\d{8}", "20261103"),
        (["history.1.0", "history.2.0", "history.20261103.0"], None, "history.2.0"),
        (["accounting", "accounting.1", "accounting.2"], r"accounting(\.\d)?", "accounting"),
        (["october.txt", "november.txt"], None, "november.txt"),
    ],
)
def test_a_folder_may_be_tidied_up(tmp_path: Path, files: list[str], names: str | None, left: str) -> None:
    for file in files:
        (tmp_path / file).write_bytes(file.encode() * 100 + b"\n")
    reader = LogReader(tmp_path, re.compile(names) if names else None)
    before = reader.read({})
    assert sum(len(chunk.lines) for chunk in before) == len(files)
    for file in set(files) - {left}:
        (tmp_path / file).unlink()
    after = reader.read(before.cursor())
    assert [each for chunk in after for each in (*chunk.lines, *chunk.set_aside)] == []


def test_the_day_that_may_grow_is_looked_for(tmp_path: Path) -> None:
    folder, old = tmp_path / "accounting", tmp_path / "old"
    folder.mkdir()
    old.mkdir()
    reader = LogReader(folder, re.compile(r"\d{8}"), [old])
    for day in ("20261101", "20261102"):
        (folder / day).write_bytes(day.encode() * 100 + b"\n")
    reading = reader.read({})
    assert sum(len(chunk.lines) for chunk in reading) == 2
    with (folder / "20261102").open("ab") as file:
        file.write(b"the last job\n")
    (folder / "20261102").rename(old / "day two")
    (folder / "20261103").write_bytes(b"first\n")
    after = reader.read(reading.cursor())
    assert sorted(line for chunk in after for line in chunk.lines) == [b"first", b"the last job"]


def test_another_path_in_the_configuration_is_not_a_rotation(log: GrowingLog) -> None:
    log.write(10)
    log.read()
    log.file.unlink()
    log.reader = LogReader(log.file.with_name("other"))
    log.file.with_name("other").write_bytes(b"x\n")
    assert log.read() == [b"x"]
    assert log.aside == []


def test_a_file_that_was_replaced_by_a_copy_of_itself(log: GrowingLog) -> None:
    """As rsync does, again and again."""
    log.write(100)
    for _ in range(3):
        log.read()
        log.write(10)
        content = log.file.read_bytes()
        log.file.with_name(".acct.new").write_bytes(content)
        log.file.with_name(".acct.new").rename(log.file)
    log.read()
    assert log.lines == log.expected()
    assert log.aside == []


def test_nothing_is_looked_for_when_nothing_was_rotated(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.write(100)
    log.read()
    log.write(10)
    monkeypatch.setattr(os, "scandir", None)  # would raise
    monkeypatch.setattr(Path, "iterdir", lambda folder: iter([folder / "acct"]))
    assert len(log.read()) == 10


def test_the_search_opens_a_bounded_number_of_files(log: GrowingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2_000):
        (log.file.parent / f"x{number}").write_bytes(b"something else\n")
    log.write(100)
    log.read()
    log.file.unlink()
    log.write(1)
    opened: list[Any] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda *args: opened.append(args) or real(*args))
    assert len(log.read()) == 1
    assert len(log.aside) == 1
    assert MOST_OPENED <= len(opened) <= MOST_OPENED + 4


RECORD = b"all.q:node1:users:anna:job:%d:sge:0:1795000000:1795003600\n"


def test_the_half_of_a_line_does_not_identify_a_file(log: GrowingLog) -> None:
    """The next log begins as this one did when it was read, and this one is not found."""
    log.file.write_bytes(RECORD[:12])
    log.read()
    with log.file.open("ab") as file:
        file.write((RECORD % 1)[12:] + RECORD % 2)
    log.file.rename(log.file.parent.parent / f"{log.file.parent.name}.away")
    log.file.write_bytes(RECORD % 3)
    assert log.read() == [(RECORD % 3).rstrip()]
    (reported,) = log.aside
    assert (reported.file, reported.offset) == (str(log.file), 0)
    log.file.parent.with_name(f"{log.file.parent.name}.away").rename(log.file.with_name("acct.1"))
    assert log.read() == [(RECORD % number).rstrip() for number in (1, 2)]
    assert log.cursor["missing"] == []


def test_a_header_does_not_identify_a_file(log: GrowingLog) -> None:
    header = b"# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"
    log.file.write_bytes(header)
    log.read()
    log.file.rename(log.file.parent.parent / f"{log.file.parent.name}.away")
    log.file.write_bytes(header + RECORD % 3)
    log.read()
    assert [each.file for each in log.aside] == [str(log.file)]


def test_the_cut_end_of_a_compressed_log_is_not_the_beginning_of_the_next(log: GrowingLog) -> None:
    log.file.with_name("acct.1.gz").write_bytes(gzip.compress(RECORD[:12]))
    log.file.write_bytes(RECORD % 1)
    assert log.read() == [(RECORD % 1).rstrip()]


@pytest.mark.parametrize("readings", [0, 1], ids=["at once", "after a reading without the log"])
def test_a_log_of_a_pattern_that_never_grew_may_be_replaced(tmp_path: Path, *, readings: int) -> None:
    log = GrowingLog(tmp_path)
    log.reader = LogReader(tmp_path / "acct*")
    log.write(20)
    log.read()
    log.write(30)
    log.file.rename(tmp_path.parent / f"{tmp_path.name}.away")
    (tmp_path / "acct-other").write_bytes(b"")
    for _ in range(readings):
        assert log.read() == []
        assert log.aside == []
    log.write(1)
    assert log.read() == log.expected()[50:]
    (reported,) = log.aside
    assert reported.file == str(log.file)
    assert log.read() == []
    (tmp_path.parent / f"{tmp_path.name}.away").rename(tmp_path / "acct.1")
    assert log.read() == log.expected()[20:50]
    assert (len(log.aside), log.cursor["missing"]) == (1, [])


def test_a_file_of_a_pattern_that_never_grew_is_found_by_its_inode(tmp_path: Path) -> None:
    log = GrowingLog(tmp_path)
    log.reader = LogReader(tmp_path / "acct*")
    log.write(20)
    log.read()
    log.write(30)
    log.file.rename(tmp_path / "saved by root")
    (tmp_path / "acct-other").write_bytes(b"")
    assert log.read() == log.expected()[20:]
    assert log.aside == []


def test_two_files_that_are_gone_from_one_place_are_two_reports(log: GrowingLog) -> None:
    """As much of each was read, so path and offset are the same."""
    away = log.file.parent.parent / f"{log.file.parent.name}.away"
    away.mkdir()
    for number in (1, 2):
        log.file.write_bytes(RECORD % number)
        log.read()
        with log.file.open("ab") as file:
            file.write(RECORD % (number + 4))
        log.file.rename(away / f"acct.{number}")
    log.file.write_bytes(RECORD % 9)
    log.read()
    assert len({each.identity for each in log.aside}) == 2
    assert len({(each.file, each.offset) for each in log.aside}) == 1
    for number, left in ((2, 1), (1, 0)):
        (away / f"acct.{number}").rename(log.file.with_name(f"acct.{number}"))
        reading = log.reader.read(json.loads(json.dumps(log.cursor)))
        assert [line for block in reading for line in block.lines] == [(RECORD % (number + 4)).rstrip()]
        assert len(reading.recovered()) == 1 - left, "both reports end when both files are found"
        log.cursor = reading.cursor()
        assert len(log.cursor["missing"]) == left


def test_a_file_that_was_empty_is_not_settled_by_a_later_rotation(log: GrowingLog) -> None:
    log.file.touch()
    log.read()
    log.write(1)
    log.file.rename(log.file.parent.parent / f"{log.file.parent.name}.away")
    log.write(1)
    log.read()
    assert len(log.aside) == 1
    log.rename()
    log.write(1)
    log.read()
    assert len(log.cursor["missing"]) == 1
