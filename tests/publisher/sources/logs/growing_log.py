"""A log in a folder that grows, turns, is moved, and is compressed, and its reader."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from publisher.sources.base import Unreadable
from publisher.sources.logs.reader import LogReader

TIME = 1795000000
"""A time in each line, as records have."""
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


class GrowingLog:
    """A log, its reader, and what was read of it."""

    def __init__(self, folder: Path, name: str = "acct") -> None:
        self.file = folder / name
        self.reader = LogReader(self.file)
        self.cursor: dict[str, Any] = {}
        self.lines: list[bytes] = []
        self.aside: list[Unreadable] = []
        self.written = 0
        self.copies = 0

    def write(self, count: int, text: str = "") -> None:
        with self.file.open("ab") as file:
            for _ in range(count):
                file.write(f"record {self.written} {TIME} {text}\n".encode())
                self.written += 1

    def read(self) -> list[bytes]:
        """New lines, from a cursor that was stored as JSON."""
        reading = self.reader.read(json.loads(json.dumps(self.cursor)))
        new: list[bytes] = []
        for chunk in reading:
            new += chunk.lines
            self.aside += chunk.set_aside
        self.cursor = reading.cursor()
        if reading.problems:
            raise reading.problems[0]
        self.lines += new
        return new

    def rotated(self) -> Path:
        self.copies += 1
        return self.file.with_name(f"{self.file.name}-202611{self.copies:02}")

    def rename(self) -> None:
        self.file.rename(self.rotated())
        self.file.touch()

    def copy_truncate(self) -> None:
        shutil.copy2(self.file, self.rotated())
        os.truncate(self.file, 0)

    def compress(self, suffix: str) -> None:
        """Compress it, and keep the time of last change, as the commands do."""
        for file in self.file.parent.glob("acct-*"):
            if not file.suffix:
                compressed = file.with_name(file.name + suffix)
                compressed.write_bytes(COMPRESS[suffix](file.read_bytes()))
                shutil.copystat(file, compressed)
                file.unlink()

    def expected(self, text: str = "") -> list[bytes]:
        return [f"record {number} {TIME} {text}".encode() for number in range(self.written)]


@pytest.fixture
def log(tmp_path: Path) -> GrowingLog:
    return GrowingLog(tmp_path)
