"""Rotation beside a reader: a line that was written is read, or a file is reported as not read to its end.

A log is appended to (whole lines, and lines of which a part is written), renamed, copied and truncated, compressed,
replaced, moved, removed, and put back between readings. No reader can see, and the schedules leave out:

- a rotation to a name or folder that the reader does not look for, if it is not the first one since a reading;
- such a rotation of a file of which no complete record was read, unless it keeps its inode;
- such a rotation of a file of which nothing was read.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from publisher.sources.base import FILE_MARKS, MarkChange, Unreadable
from publisher.sources.logs.reader import LogReader

PACKERS: Final[dict[str, Callable[[bytes], bytes]]] = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}
HEADER: Final = b"# Version: 8.1.9\n#\n# DO NOT MODIFY THIS FILE MANUALLY!\n"
BEGIN: Final = 1_795_000_000


def record(number: int) -> bytes:
    end = BEGIN + number
    return b"all.q:node1:users:u%d:job:%d:sge:0:%d:%d:0:0:%s\n" % (number % 3, number, end - 60, end, b"0:" * 30)


class Schedule:
    """A log, its reader, and a random sequence of what happens to the log."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(seed)
        self.here, self.old, self.away = (folder / name for name in ("log", "old", "away"))
        for place in (self.here, self.old, self.away):
            place.mkdir(parents=True)
        self.live = self.here / "accounting"
        self.header = self.chance.choice((b"", b"", HEADER))
        self.live.write_bytes(self.header)
        path = self.chance.choice((self.live, self.live, self.here, self.here / "accounting*"))
        self.is_pattern = path.name == "accounting*"
        self.further = [self.old] if self.chance.random() < 0.5 else []
        self.reader = LogReader(path, None, self.further)
        self.cursor: dict[str, Any] = {}
        self.marks: dict[str, str] = {}
        """Stored one by one, or else in the cursor."""
        self.marks_apart = self.chance.random() < 0.7
        self.missing: set[Unreadable] = set()
        self.read: set[bytes] = set()
        self.written: set[bytes] = set()
        self.torn, self.whole = b"", b""
        self.lines, self.copies, self.now = 0, 0, BEGIN
        self.may_hide, self.is_certain = False, False
        self.keeps_inodes = False
        self.seen: set[Path] = set()
        self.done: list[str] = []

    def problem(self) -> str | None:
        """What is wrong after a reading; None: nothing."""
        lost = self.written - self.read
        foreign = self.read - self.written - set(HEADER.splitlines())
        if foreign:
            return f"{min(foreign)!r} was never written"
        return f"{len(lost)} lost, first {min(lost)!r}" if lost and not self.missing else None

    def run(self, steps: int) -> str | None:
        actions = (
            (self.append, 8), (self.tear, 3), (self.rename, 4), (self.copy_and_truncate, 3), (self.pack_later, 1),
            (self.replace, 1), (self.move, 1), (self.remove, 1), (self.collect, 6),
        )  # fmt: skip
        for _ in range(steps):
            (action,) = self.chance.choices([each for each, _ in actions], [weight for _, weight in actions])
            action()
            if action == self.collect and (problem := self.problem()):
                return problem
        self.append()
        self.collect()
        return self.problem()

    # --- the reader

    def collect(self) -> None:
        self.done.append("read")
        cursor = json.loads(json.dumps(self.cursor))
        if self.marks_apart:
            cursor[FILE_MARKS] = list(self.marks.values()).copy
        reading = self.reader.read(cursor)
        changes = list[MarkChange]()
        for block in reading:
            if self.chance.random() < 0.3:
                changes += reading.mark_changes()
            self.read.update(block.lines)
            self.missing |= {each for each in block.set_aside if each.unread_from is not None}
        found = {(place.file, place.offset) for place in reading.recovered()}
        self.missing = {each for each in self.missing if (each.file, each.offset) not in found}
        self.cursor = reading.cursor()
        for change in (*changes, *reading.mark_changes()):
            self.marks[change.file] = change.mark or ""
        self.marks = {file: mark for file, mark in self.marks.items() if mark}
        assert self.marks_apart != ("files" in self.cursor)
        assert not reading.problems, reading.problems
        self.seen = {file for file in self._rotated() if file.parent != self.away}
        content = self.live.read_bytes()
        self.may_hide, self.is_certain = bool(content), b"\n" in content[len(self.header) :]
        self.keeps_inodes = False

    # --- the log

    def append(self) -> None:
        self.done.append("append")
        self._write(self.chance.choice((1, 1, 2, 40)))

    def tear(self) -> None:
        """Write a part of a line; the rest is written with the next line, or never."""
        self._write(0)
        whole = record(self.lines)
        cut = self.chance.choice((3, 8, self.chance.randrange(1, len(whole))))
        self.done.append(f"tear after {cut}")
        self.lines += 1
        self._add(whole[:cut])
        self.torn, self.whole = whole[cut:], whole

    def _write(self, count: int) -> None:
        if self.torn:
            self._add(self.torn)
            self.written.add(self.whole.rstrip(b"\n"))
            self.torn = b""
        for _ in range(count):
            self._add(record(self.lines))
            self.written.add(record(self.lines).rstrip(b"\n"))
            self.lines += 1

    def _add(self, data: bytes) -> None:
        with self.live.open("ab") as file:
            file.write(data)
        self._touch(self.live)

    def _touch(self, file: Path) -> None:
        self.now += self.chance.choice((1, 5, 3_600))
        os.utime(file, (self.now, self.now))

    def _target(self, *, by_name: bool) -> Path | None:
        """A place for a rotated file; None: it would not be seen. `by_name`: the file keeps its inode."""
        self.copies += 1
        dated = f"accounting-{20_260_000 + self.copies}"
        name = self.chance.choice((f"accounting.{self.copies}", dated, f"saved_{self.copies}", "accounting.bak"))
        folder = self.chance.choices((self.here, self.old, self.away), (7, 2, 1))[0]
        is_seen = not name.startswith("saved") and (folder == self.here or folder in self.further)
        is_seen = is_seen and (self.is_pattern or name != "accounting.bak")
        if any(file.name.startswith(name) for file in self._rotated()):
            return None
        if not is_seen and not (self.may_hide if by_name else self.is_certain):
            return None
        self.keeps_inodes = self.keeps_inodes or not (is_seen or self.is_certain)
        self.may_hide = self.is_certain = False
        return folder / name

    def rename(self) -> None:
        if target := self._target(by_name=True):
            if self.chance.random() < 0.8:
                self._write(0)
            self.torn = b""
            self.done.append(f"rename {target.parent.name}/{target.name}")
            self.live.rename(target)
            self.live.write_bytes(self.header)
            self._pack_some(target)

    def copy_and_truncate(self) -> None:
        if target := self._target(by_name=False):
            self._write(0)
            self.done.append(f"copy {target.parent.name}/{target.name}")
            (shutil.copy2 if self.chance.random() < 0.3 else shutil.copyfile)(self.live, target)
            os.truncate(self.live, 0)
            self._touch(self.live)
            self._pack_some(target)

    def _pack_some(self, file: Path) -> None:
        if self.chance.random() < 0.4:
            self._pack(file)

    def _pack(self, file: Path) -> None:
        if self.keeps_inodes:
            return  # the next file could have its inode
        ending = self.chance.choice(sorted(PACKERS))
        self.done.append(f"pack {file.name}{ending}")
        packed = file.with_name(file.name + ending)
        packed.write_bytes(PACKERS[ending](file.read_bytes()))
        if self.chance.random() < 0.8:
            shutil.copystat(file, packed)
        file.unlink()

    def _rotated(self) -> list[Path]:
        files = (file for folder in (self.here, self.old, self.away) for file in folder.iterdir())
        return sorted(file for file in files if file != self.live)

    def pack_later(self) -> None:
        if plain := [file for file in self._rotated() if file.suffix not in PACKERS]:
            self._pack(self.chance.choice(plain))

    def replace(self) -> None:
        """Give the log another inode, as an editor does."""
        self.may_hide = self.may_hide and self.is_certain
        self.done.append("replace")
        copy = self.here / ".accounting"
        shutil.copy2(self.live, copy)
        copy.rename(self.live)

    def move(self) -> None:
        """Move a rotated file, perhaps to a place where it is found again."""
        if files := [file for file in self._rotated() if file in self.seen or file.parent == self.away]:
            file = self.chance.choice(files)
            target = self.chance.choice((self.here, self.old)) / file.name
            if not target.exists():
                self.done.append(f"move {file.name} to {target.parent.name}")
                file.rename(target)

    def remove(self) -> None:
        """Remove a rotated file that could be read."""
        if files := [file for file in self._rotated() if file in self.seen]:
            file = self.chance.choice(files)
            self.done.append(f"remove {file.name}")
            file.unlink()


def check(seeds: range, folder: Path) -> None:
    for seed in seeds:
        place = folder / str(seed)
        schedule = Schedule(seed, place)
        problem = schedule.run(steps=14)
        assert problem is None, (seed, problem, schedule.reader.log.path, " | ".join(schedule.done))
        shutil.rmtree(place)


def test_no_line_is_lost_in_silence(tmp_path: Path) -> None:
    check(range(60), tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("part", range(20))
def test_no_line_is_lost_in_silence_in_any_schedule(tmp_path: Path, part: int) -> None:
    check(range(1_000 * (part + 1), 1_000 * (part + 2)), tmp_path)
