"""Logs that grow, turn and are compressed: every line once."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import SourceFormatError
from publisher.sources.logs.reader import MAX_LINE_BYTES, LogReader
from tests.publisher.sources.logs.growing_log import COMPRESS, TIME, GrowingLog, log

__all__ = ["log"]


def test_growing(log: GrowingLog) -> None:
    log.write(3)
    assert len(log.read()) == 3
    assert log.read() == []
    log.write(2)
    assert log.read() == log.expected()[3:]


def test_an_unfinished_line_waits(log: GrowingLog) -> None:
    log.file.write_bytes(b"one\ntw")
    assert log.read() == [b"one"]
    assert log.read() == []
    with log.file.open("ab") as file:
        file.write(b"o\n")
    assert log.read() == [b"two"]


def test_the_first_files_that_wait_are_named(tmp_path: Path) -> None:
    for number in range(13):
        (tmp_path / f"acct.{number:02}").write_bytes(b"%d\ntw" % number)
    reading = LogReader(tmp_path).read({})
    assert sum(len(chunk.lines) for chunk in reading) == 13
    *named, rest = reading.waiting()
    assert (len(named), rest) == (10, "and the last lines of 3 more files")
    assert "acct.12: the last line is incomplete (2 bytes)" in named[0]


@pytest.mark.parametrize("suffix", COMPRESS)
@pytest.mark.parametrize("how", ["rename", "copy_truncate"])
def test_what_was_read_before_a_rotation_is_not_read_after_it(log: GrowingLog, how: str, suffix: str) -> None:
    log.write(1000)
    log.read()
    log.write(10)
    getattr(log, how)()
    log.compress(suffix)
    log.write(5)
    assert log.read() == log.expected()[1000:]
    assert log.aside == []


def test_the_same_header_in_every_file(log: GrowingLog) -> None:
    header = b"# Version: 8.1.9\n# \n# DO NOT MODIFY THIS FILE MANUALLY!\n# \n"
    log.file.write_bytes(header)
    log.read()
    log.file.unlink()
    log.file.write_bytes(header + b"first\n")
    log.read()
    log.rename()
    log.file.write_bytes(header + b"second, and longer than the first\n")
    assert log.read()[-1] == b"second, and longer than the first"


@given(
    steps=st.lists(st.sampled_from(["write", "write", "torn", "read", "rename", "copy", ".gz", ".bz2", ".xz", ".zst"]))
)
def test_any_split_gives_every_line(tmp_path_factory: pytest.TempPathFactory, steps: list[str]) -> None:
    log = GrowingLog(tmp_path_factory.mktemp("log"))
    log.write(1, "x" * 50)
    for step in steps:
        if step == "write":
            log.write(7, "x" * 50)
        elif step == "torn":
            if not log.file.stat().st_size:
                log.write(1, "x" * 50)  # a file that has only a part of a line cannot be distinguished from others
            with log.file.open("ab") as file:
                file.write(f"record {log.written} {TIME} ".encode())
            log.read()
            with log.file.open("ab") as file:
                file.write(b"x" * 50 + b"\n")
            log.written += 1
        elif step == "read":
            log.read()
        elif step == "rename":
            log.rename()
        elif step == "copy":
            log.copy_truncate()
        else:
            log.compress(step)
    log.read()
    assert set(log.lines) == set(log.expected("x" * 50))
    assert [each.reason for each in log.aside] == []
    assert log.read() == []


def test_a_cut_of_which_no_copy_was_kept_is_reported(log: GrowingLog) -> None:
    log.write(100)
    log.read()
    os.truncate(log.file, 20)
    log.read()
    (reported,) = log.aside
    assert "was cut or overwritten" in reported.reason
    assert reported.file == str(log.file)


def test_a_file_that_shrinks_while_it_is_read(log: GrowingLog) -> None:
    log.write(50_000)
    reading = log.reader.read({})
    chunks = iter(reading)
    first = next(chunks)
    os.truncate(log.file, first.offset + 10 * len(log.expected()[0] + b"\n"))
    rest = [line for chunk in chunks for line in chunk.lines]
    assert rest == []
    log.cursor = reading.cursor()
    log.write(1)
    assert log.read()[-1] == log.expected()[50000]
    assert "was cut" in log.aside[0].reason


def test_a_line_without_end(log: GrowingLog) -> None:
    log.file.write_bytes(b"a\n" + b"x" * (3 * MAX_LINE_BYTES) + b"\nb\n" + b"y" * (MAX_LINE_BYTES + 5) + b"\nc\n")
    assert log.read() == [b"a", b"b", b"c"]
    assert [(each.line, each.offset) for each in log.aside] == [(2, 2), (4, 3 * MAX_LINE_BYTES + 5)]
    assert all(len(each.raw) == 65_536 for each in log.aside)
    log.file.write_bytes(b"z" * (2 * MAX_LINE_BYTES))
    assert log.read() == []
    assert len(log.aside) >= 3


@pytest.mark.parametrize("suffix", COMPRESS)
def test_damaged_copies_are_read_up_to_the_damage(log: GrowingLog, suffix: str) -> None:
    log.write(200_000)
    whole = COMPRESS[suffix](log.file.read_bytes())
    log.file.unlink()
    copy = log.file.with_name("acct.1" + suffix)
    copy.write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(SourceFormatError, match="cut short or damaged"):
        log.read()
    before = log.cursor["files"][0]
    copy.write_bytes(whole)
    rest = log.read()
    assert rest == log.expected()[200_000 - len(rest) :]
    assert before
    assert log.read() == []


def test_a_compressed_file_ends_in_the_middle_of_a_line(log: GrowingLog) -> None:
    log.file.with_name("acct.1.gz").write_bytes(gzip.compress(b"whole\ntorn"))
    assert log.read() == [b"whole"]
    (torn,) = log.aside
    assert (torn.line, torn.offset, torn.raw) == (2, 6, b"torn")
    assert log.read() == []
    assert len(log.aside) == 1


def test_a_second_name_of_the_same_file(log: GrowingLog) -> None:
    log.write(3)
    os.link(log.file, log.file.with_name("acct.1"))
    log.file.with_name("acct.2").symlink_to(log.file)
    assert len(log.read()) == 3


def test_a_cursor_of_something_else_reads_anew(log: GrowingLog) -> None:
    log.write(3)
    log.cursor = {"files": [["?"]], "gone": 7}
    assert len(log.read()) == 3


def test_nothing_changes_on_disk(log: GrowingLog) -> None:
    log.write(3)
    log.file.chmod(0o400)
    before = log.file.stat()
    log.read()
    after = log.file.stat()
    assert (before.st_mtime_ns, before.st_size, before.st_ino) == (after.st_mtime_ns, after.st_size, after.st_ino)
    assert [file.name for file in log.file.parent.iterdir()] == ["acct"]


@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_memory_does_not_grow_with_the_file(log: GrowingLog, suffix: str) -> None:
    content = b"".join(b"record %d %0200d\n" % (number, number) for number in range(10_000)) * 15
    file = log.file.with_name("acct.1" + suffix) if suffix else log.file
    file.write_bytes(COMPRESS[suffix](content) if suffix else content)
    size = len(content)
    del content
    tracemalloc.start()
    try:
        count = sum(len(chunk.lines) for chunk in log.reader.read({}))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert count == 150_000
    assert peak < 12 << 20 < size
