"""Reading log files for ever: each byte once, whatever happens to the names and places of the files.

Promise kept here: no line of a growing, rotated, copied, truncated or compressed log is passed over, only regular files
are read, and memory does not grow with the size of a file or a line. Nothing is opened for writing.

A file is known by its device and inode and by digests of its plain content: of its first 4 KiB, and of the bytes before
the place where reading stopped. A file found under another name, inode or compression, whose content agrees up to that
place, goes on there; a file whose content does not agree is read from its beginning, which changes nothing where jobs
were read before, since the record id is that of the run.

`LogReader(path).read(cursor)` gives a `Reading`; it is iterated for `Chunk`s of whole lines, and its `cursor()` is, at
any time, the one behind the chunk given last.

An unfinished last line waits for its end. In a compressed file, which does not grow, it is set aside; so is a line that
is longer than 1 MiB.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.errors import SourceError, SourceFormatError
from publisher.sources.base import Cursor, Unreadable
from publisher.sources.compression import DamagedError
from publisher.sources.openlog import OpenLog, open_log
from publisher.sources.rotation import log_files

MAX_LINE_BYTES: Final = 1 << 20
RAW_BYTES: Final = 65_536
"""Of an unreadable piece that are kept."""

_BLOCK_BYTES: Final = 1 << 18
_LEAD_BYTES: Final = 256
_HEAD_BYTES: Final = 4096
_TAIL_BYTES: Final = 512
_WAITING_TOLD: Final = 10
_GONE_KEPT: Final = 64
"""Files that are gone are remembered, the latest ones, since a copy may appear after its original went."""


class Mark(msgspec.Struct, array_like=True):
    """How far a file was read: `offset` plain bytes and `line` whole lines.

    `size` and `mtime_ns` are those of the file when its present end was reached, -1 before. `lead`, `head` and `tail`
    are digests of the first 256 bytes, of the first `head_bytes` and of the last `tail_bytes` before the offset.
    `unfinished` bytes of a last line without an end stood behind the offset when the file was read.
    """

    path: str
    device: int
    inode: int
    size: int = -1
    mtime_ns: int = -1
    lead: str = ""
    head_bytes: int = 0
    head: str = ""
    offset: int = 0
    line: int = 0
    tail_bytes: int = 0
    tail: str = ""
    unfinished: int = 0


class Chunk(msgspec.Struct, frozen=True):
    """Whole lines of one file, without their line feeds. `offset` (plain bytes) and `line` (from 1) are the first's.

    `set_aside` holds what is no line to parse: too long, or the torn end of a compressed file.
    """

    file: str
    lines: list[bytes]
    offset: int
    line: int
    set_aside: tuple[Unreadable, ...] = ()

    def unreadable(self, index: int, reason: str) -> Unreadable:
        """The line at `index`, set aside for a reason."""
        offset = self.offset + sum(map(len, self.lines[:index])) + index
        return Unreadable(self.file, self.line + index, offset, reason, self.lines[index][:RAW_BYTES])


class LogReader:
    """Reads the log at a path: a file with its rotated copies, a folder, or a pattern. `names`: see `log_files`."""

    def __init__(self, path: Path, names: re.Pattern[str] | None = None) -> None:
        self.path = path
        self.names = names

    def files(self) -> list[Path]:
        """The files the log is made of at present, in the order of their writing. Raises `SourceError`s."""
        return log_files(self.path, self.names)

    def read(self, cursor: Cursor) -> Reading:
        """Read on from a cursor of an earlier reading; from an empty one, everything. Raises `SourceError`s.

        A cursor that cannot be understood is taken as empty: reading again is harmless.
        """
        return Reading(self.files(), cursor)


class Reading:
    """One pass over the files of a log. `problems` says afterwards what kept files from being read to their end."""

    def __init__(self, files: list[Path], cursor: Cursor, block_bytes: int = _BLOCK_BYTES) -> None:
        self._files = files
        self._block_bytes = block_bytes
        self._marks: dict[tuple[int, int], Mark] = {}
        self._gone: list[Mark] = []
        self._met: set[tuple[int, int]] = set()
        self._copied: set[int] = set()
        self._refused = False
        self.problems: list[SourceError] = []
        try:
            for mark in msgspec.convert(cursor.get("files", []), list[Mark]):
                self._marks[mark.device, mark.inode] = mark
            self._gone = msgspec.convert(cursor.get("gone", []), list[Mark])
        except msgspec.ValidationError:
            self._marks, self._gone = {}, []
        self._by_lead: dict[str, list[Mark]] = {}
        for mark in (*self._marks.values(), *self._gone):
            self._by_lead.setdefault(mark.lead, []).append(mark)

    def cursor(self) -> dict[str, Any]:
        """The cursor behind the chunk given last, as plain JSON values."""
        return {
            "files": msgspec.to_builtins(list(self._marks.values())),
            "gone": msgspec.to_builtins(self._gone[-_GONE_KEPT:]),
        }

    def waiting(self) -> list[str]:
        """Of which files the last line waits for its end, the first of them by name."""
        unfinished = [mark for mark in self._marks.values() if mark.unfinished]
        texts = [
            f"{mark.path}: the last line has no end yet ({mark.unfinished} bytes); it is read when it has"
            for mark in unfinished[:_WAITING_TOLD]
        ]
        more = len(unfinished) - len(texts)
        return [*texts, f"and the last lines of {more} more files"] if more else texts

    def refuse(self, reason: str, hint: str = "") -> None:
        """Take the chunk given last back and leave its file as it is: it is not what it should be."""
        self._refused = True
        self.problems.append(SourceFormatError(reason, hint=hint))

    def __iter__(self) -> Iterator[Chunk]:
        """Chunks of all files from where the cursor stood to their present ends."""
        for path in self._files:
            try:
                yield from self._file(path)
            except SourceError as error:
                self.problems.append(error)
            except OSError as error:
                self.problems.append(SourceError(f"{path}: {error.strerror or error}"))
        for key in [key for key in self._marks if key not in self._met]:
            self._gone.append(self._marks.pop(key))
        del self._gone[:-_GONE_KEPT]

    def _file(self, path: Path) -> Iterator[Chunk]:
        with open_log(path) as log:
            key = log.device, log.inode
            if key in self._met:
                return  # a second name of a file that was read in this pass
            self._met.add(key)
            before = self._marks.get(key)
            if before is not None and (before.size, before.mtime_ns) == (log.size, log.mtime_ns):
                before.path = str(path)
                return
            at = 0
            try:
                mark, aside = self._mark(path, log, log.read(_HEAD_BYTES), before)
                self._marks[key] = mark
                self._by_lead.setdefault(mark.lead, []).append(mark)
                for chunk in self._lines(log, mark, aside):
                    yield chunk
                    at = mark.offset
            except DamagedError as error:
                raise SourceFormatError(
                    f"{path}: the compressed file is cut short or damaged behind byte {at} of its content ({error})",
                    hint="What comes before was read. Put a whole copy in its place, or move it away",
                ) from error

    def _mark(self, path: Path, log: OpenLog, head: bytes, before: Mark | None) -> tuple[Mark, tuple[Unreadable, ...]]:
        """Where to go on in a file, and what to say of it. The log stands there afterwards."""
        lead = _lead(head)
        new = Mark(str(path), log.device, log.inode, lead=lead, head_bytes=len(head), head=_digest(head))
        for known in self._candidates(str(path), lead, before):
            same_head = 0 < known.head_bytes <= len(head) and _digest(head[: known.head_bytes]) == known.head
            if same_head and _stands_at(log, known):
                new.offset, new.line, new.tail_bytes, new.tail = known.offset, known.line, known.tail_bytes, known.tail
                self._copied.add(id(known))
                if before is not None and known is not before:
                    self._gone.append(before)
                return new, ()
        log.seek(0)
        if before is None:
            return new, ()
        self._gone.append(before)
        if before.path != str(path) or before.offset == 0 or id(before) in self._copied:
            return new, ()
        reason = (
            f"the file no longer holds what was read of it (up to byte {before.offset}; it has {log.size} bytes now) "
            "and no copy of that is at hand: it was cut or overwritten. It is read again from its beginning; lines "
            "written between the last reading and the cut are lost, if there were any"
        )
        return new, (Unreadable(str(path), None, before.offset, reason, b""),)

    def _candidates(self, path: str, lead: str, before: Mark | None) -> list[Mark]:
        known = [*([before] if before is not None else []), *self._by_lead.get("", []), *self._by_lead.get(lead, [])]
        return sorted(known, key=lambda mark: (mark is not before, mark.path != path, -mark.offset))

    def _lines(self, log: OpenLog, mark: Mark, aside: tuple[Unreadable, ...]) -> Iterator[Chunk]:
        rest = tail = b""
        while block := log.read(self._block_bytes):
            data = rest + block
            used = data.rfind(b"\n") + 1
            if used == 0 and len(data) <= MAX_LINE_BYTES:
                rest = data
                continue
            offset = mark.offset
            line = before_line = mark.line
            if used == 0:
                aside = (*aside, _too_long(mark, data))
                used, lines, rest, tail = _to_line_end(log, len(data)), [], b"", b""
                mark.line += 1
            else:
                lines = data[: used - 1].split(b"\n")
                rest, tail = data[used:], (tail + data[max(0, used - _TAIL_BYTES) : used])[-_TAIL_BYTES:]
                if len(lines[0]) > MAX_LINE_BYTES:
                    aside = (*aside, _too_long(mark, lines[0]))
                    offset, line, lines = offset + len(lines[0]) + 1, line + 1, lines[1:]
                mark.line = line + len(lines)
            before = mark.offset, before_line, mark.tail_bytes, mark.tail
            mark.offset += used
            mark.tail_bytes, mark.tail = len(tail), _digest(tail)
            yield Chunk(mark.path, lines, offset, line + 1, aside)
            aside = ()
            if self._refused:
                self._refused = False
                mark.offset, mark.line, mark.tail_bytes, mark.tail = before
                return
        if log.compressed and rest:
            reason = "the compressed file ends in the middle of this line"
            aside = (*aside, Unreadable(mark.path, mark.line + 1, mark.offset, reason, rest[:RAW_BYTES]))
            mark.offset += len(rest)
            mark.tail_bytes, mark.tail = len(rest[-_TAIL_BYTES:]), _digest(rest[-_TAIL_BYTES:])
        mark.size, mark.mtime_ns = log.size, log.mtime_ns
        mark.unfinished = 0 if log.compressed else len(rest)
        if aside:
            yield Chunk(mark.path, [], mark.offset, mark.line + 1, aside)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=12).hexdigest()


def _stands_at(log: OpenLog, mark: Mark) -> bool:
    """Whether the bytes before the mark are those that were read; if so, the log stands behind them."""
    if mark.tail_bytes > mark.offset or not log.seek(mark.offset - mark.tail_bytes):
        return False
    return _digest(log.read(mark.tail_bytes)) == mark.tail if mark.tail_bytes else True


def _lead(head: bytes) -> str:
    """Key of the contents to compare with; empty for a file that was too short for one."""
    return hashlib.blake2b(head[:_LEAD_BYTES], digest_size=6).hexdigest() if len(head) >= _LEAD_BYTES else ""


def _to_line_end(log: OpenLog, length: int) -> int:
    """Pass over the rest of a line of which `length` bytes were read; its whole length with the line feed."""
    while block := log.read(_BLOCK_BYTES):
        end = block.find(b"\n") + 1
        if end:
            log.unread(block[end:])
            return length + end
        length += len(block)
    return length


def _too_long(mark: Mark, data: bytes) -> Unreadable:
    reason = f"the line is longer than {MAX_LINE_BYTES} bytes"
    return Unreadable(mark.path, mark.line + 1, mark.offset, reason, data[:RAW_BYTES])
