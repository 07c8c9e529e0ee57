"""Rows that may be too many for memory, returned in parts: all rows of one key are in one part.

A view that needs all runs of a job or of a node at once processes one part after the other. Few rows stay in memory;
more are written to unnamed temporary files (in `TMPDIR`), which end with the process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import IO, Final, Self

import numpy as np

from publisher.errors import OutputError
from publisher.report.column_tally import Ints

PARTS: Final = 64
"""A power of two."""
ROWS_IN_MEMORY: Final = 1 << 19
_ROWS_AT_ONCE: Final = 1 << 18
_MIX: Final = -0x61C8864680B583EB
"""An odd number: its product with a key distributes the bits of the key."""
_SHIFT: Final = np.uint64(64 - (PARTS - 1).bit_length())


def part_of(keys: Ints) -> Ints:
    """The number of the part of each key, 0 to `PARTS` - 1."""
    with np.errstate(over="ignore"):
        mixed = (keys * np.int64(_MIX)).view(np.uint64)
    return (mixed >> _SHIFT).astype(np.int64)


class _Files:
    """A temporary file for each part, opened when the first row is written."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._files: list[IO[bytes]] = []

    @property
    def used(self) -> bool:
        return bool(self._files)

    def open(self) -> Sequence[IO[bytes]]:
        """The files. Raises `OutputError`."""
        with explained():
            if not self._files:
                self._files = [self._stack.enter_context(tempfile.TemporaryFile()) for _ in range(PARTS)]  # noqa: SIM115
        return self._files

    def close(self) -> None:
        self._stack.close()


@contextmanager
def explained() -> Iterator[None]:
    """Raise errors of the temporary files as `OutputError`."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot use a temporary file for a report of very many runs: {error.strerror}",
            hint="Free space in the directory for temporary files, or set TMPDIR to one with free space",
        ) from error


class NumberPartitions:
    """Rows of whole numbers, the first of which is the key. Close it, or use it in a `with` statement."""

    def __init__(self, columns: int, rows_in_memory: int = ROWS_IN_MEMORY) -> None:
        self._columns = columns
        self._most = rows_in_memory
        self._kept: list[Ints] = []
        self._rows = 0
        self._files = _Files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the temporary files."""
        self._files.close()

    def add(self, *columns: Ints) -> None:
        """Add rows as columns, the key first. Raises `OutputError`."""
        if not len(columns[0]):
            return
        self._kept.append(np.stack(columns, axis=1))
        self._rows += len(columns[0])
        if self._rows > self._most:
            self._write()

    def _write(self) -> None:
        rows = np.concatenate(self._kept)
        self._kept, self._rows = [], 0
        part = part_of(rows[:, 0])
        order = np.argsort(part, kind="stable")
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        with explained():
            for file, some in zip(self._files.open(), np.split(rows[order], ends[:-1]), strict=True):
                file.write(some.tobytes())

    def parts(self) -> Iterator[Iterator[list[Ints]]]:
        """The columns of each part that has rows, some rows at a time. Raises `OutputError`."""
        if not self._files.used:
            if self._kept:
                yield iter([list(np.concatenate(self._kept).T)])
            return
        if self._kept:
            self._write()
        for file in self._files.open():
            with explained():
                length = file.seek(0, 2)
                file.seek(0)
            if length:
                yield self._chunks(file)

    def _chunks(self, file: IO[bytes]) -> Iterator[list[Ints]]:
        while True:
            with explained():
                read = file.read(_ROWS_AT_ONCE * self._columns * 8)
            if not read:
                return
            yield list(np.frombuffer(read, np.int64).reshape(-1, self._columns).T)


def whole(part: Iterator[list[Ints]]) -> list[Ints]:
    """All rows of a part at once, column by column."""
    return [np.concatenate(column) for column in zip(*part, strict=True)]
