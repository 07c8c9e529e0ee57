"""Reading growing log files: each byte once, whatever happens to the names and places of the files.

No line of a growing, rotated, copied, truncated, or compressed log is missed, only regular files are read, and memory
does not grow with the size of a file or a line. Nothing is opened for writing.

A file is identified by its mark (`publisher.sources.logs.mark`). A file under another name, inode, or compression whose
content is the same up to the place where reading stopped is continued there; a file with other content is read from its
beginning, which changes nothing for jobs that were read before, since the record id is that of the run.

A file that may have grown after it was read and is no longer in its place is searched by its inode and content under
any name (`publisher.sources.logs.moved`). If it is not found, its unread rest is reported once, and it is searched in
every later reading.

`LogReader(path).read(cursor)` gives a `Reading`; it is iterated for `LineBlock`s of complete lines, and its `cursor()`
is, at any time, the one after the last block.

An incomplete last line waits for its end. In a compressed file, which does not grow, it is reported as unreadable;
so is a line longer than 1 MiB.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.errors import SourceError, SourceFormatError
from publisher.sources.base import FILE_MARKS, RAW_BYTES, Cursor, MarkChange, Recovered, Unreadable
from publisher.sources.logs.compression import DamagedError
from publisher.sources.logs.mark import HEAD_BYTES, TAIL_BYTES, Key, Mark, digest, has_record, lead_of
from publisher.sources.logs.marks import FOUND, LET_GO, NEW, OPENED, UNCHANGED, Marks
from publisher.sources.logs.moved import NO_COPIES, Copies, copies_of, not_read
from publisher.sources.logs.open_log import OpenLog, open_log
from publisher.sources.logs.rotation import LogFiles

MAX_LINE_BYTES: Final = 1 << 20

NEIGHBOUR_BYTES: Final = 1 << 16
"""How far before a line that ends a record without its beginning runs are suspect: a record with a user's text is
seldom longer, and more lines would hold more jobs of others."""
_BLOCK_BYTES: Final = 1 << 18
_WAITING_NAMED: Final = 10
# The cursor has them, and is written with each page: without a limit, each rotation would make it longer.
_GONE_KEPT: Final = 64
"""How many files that are gone are remembered, the latest ones, since a copy may appear after its original went."""
_MISSING_KEPT: Final = 16
"""How many files that were reported as not read to their end are still searched, the latest ones."""


class LineBlock(msgspec.Struct, frozen=True):
    """Complete lines of one file, without their line feeds. `offset` (plain bytes) and `line` (from 1) are the first's.

    `set_aside` has input that is not parsed: lines that are too long, or the cut-off end of a compressed file.
    `before`: the end of what an earlier reading gave, if these lines are the first after it; that those before them are
    suspect may show only when the file is closed. `too_long`: the first and the last bytes of a line that is too long;
    the block has no other.
    """

    file: str
    lines: list[bytes]
    offset: int
    line: int
    set_aside: tuple[Unreadable, ...] = ()
    before: bytes = b""
    too_long: tuple[bytes, bytes] | None = None
    offsets: list[int] = []
    """Those of the lines, once one was asked for."""

    def earlier(self, most_bytes: int) -> list[bytes]:
        """The whole lines that an earlier reading gave, within so many bytes before these; the last one is first."""
        text = self.before[-most_bytes - 1 :]
        lines = text.split(b"\n")[:-1]  # the last one ends with a line feed
        return lines[::-1] if len(text) == self.offset else lines[:0:-1]

    def unreadable(self, index: int, reason: str) -> Unreadable:
        """The line at `index`, unreadable for a reason."""
        if not self.offsets:  # once: a user can write a file of lines that are all unreadable
            self.offsets.extend(accumulate((len(line) + 1 for line in self.lines), initial=self.offset))
        return Unreadable(self.file, self.line + index, self.offsets[index], reason, self.lines[index][:RAW_BYTES])


class LogReader:
    """Reads the log at a path: a file with its rotated copies, a folder, or a pattern. Arguments: see `LogFiles`."""

    def __init__(
        self, path: Path, names: re.Pattern[str] | None = None, rotated_to: Collection[Path] = (), expected: str = ""
    ) -> None:
        self.log = LogFiles(path, names, rotated_to, expected)

    def files(self) -> list[str]:
        """The paths of the present files of the log, in the order of their writing. Raises `SourceError`s."""
        return self.log.present()

    def read(self, cursor: Cursor) -> Reading:
        """Continue from a cursor of an earlier reading; from an empty one, read everything. Raises `SourceError`s.

        A cursor that cannot be understood counts as empty: reading again is harmless.
        """
        return Reading(self.files(), cursor, self.log)


def _size_bytes(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - of each file of the log
    except OSError:
        return 0  # reported when it is read


class Reading:
    """One pass over the files of a log. `problems` has afterwards the errors of files that were not read to their end.

    `log`: where files that are no longer in their place are searched; None: they are not searched.
    """

    def __init__(
        self, files: Sequence[str], cursor: Cursor, log: LogFiles | None = None, block_bytes: int = _BLOCK_BYTES
    ) -> None:
        self._files = files
        self._sizes = array("q", map(_size_bytes, files))
        self._whole_bytes = sum(self._sizes)
        self._passed_bytes = 0
        self._present_bytes = 0
        """The size of the file that is read now, of those of the log."""
        self._present: Mark | None = None
        self._log = log
        self._block_bytes = block_bytes
        self._marks_apart = FILE_MARKS in cursor
        self._marks, self._gone, self._missing = _stored_marks(cursor)
        self._past: dict[str, list[Mark]] = {}
        """By lead, marks that are not the present ones of their files: another file may have the content of theirs."""
        self._continued: set[Mark] = set()
        self._copied: dict[Mark, list[Mark]] = {}
        self._recovered: list[Recovered] = []
        self._refused = False
        self.problems: list[SourceError] = []
        self._has_live_name = log.live_names() if log is not None else lambda _path: False
        self._open: set[Mark] = set()
        """The files that may have unread content: they may have grown, or were not read to their end. A file from which
        nothing was read, since it was refused, is not among them."""
        self._before: dict[str, list[Mark]] = {}
        """By path, the open files, those with the name of a log, and those that disappeared before the last reading."""
        for mark in (*self._gone, *self._missing):
            self._remember(mark)
        if log is not None:
            self._hold_open(log)

    def cursor(self) -> dict[str, Any]:
        """The cursor after the last chunk, as plain JSON values; without the marks of the files if the caller stores
        those one by one."""
        return {
            **({} if self._marks_apart else {"files": self._marks.texts()}),
            "gone": msgspec.to_builtins(self._gone[-_GONE_KEPT:]),
            "missing": msgspec.to_builtins(self._missing[-_MISSING_KEPT:]),
        }

    def mark_changes(self) -> tuple[MarkChange, ...]:
        """The marks that the caller must store with the cursor of now: those that changed since the last call."""
        return self._marks.changes() if self._marks_apart else ()

    def share(self) -> float | None:
        """About how much of the bytes of all files is read, 0 to 1: a compressed file counts by its plain bytes."""
        if not self._whole_bytes:
            return None
        present = self._present
        here = 0 if present is None else min(max(present.size, present.offset), self._present_bytes)
        return (self._passed_bytes + here) / self._whole_bytes

    def recovered(self) -> tuple[Recovered, ...]:
        """The files that were reported as not read to their end and found since the last call."""
        recovered, self._recovered = tuple(self._recovered), []
        return recovered

    def waiting(self) -> list[str]:
        """The files whose last line waits for its end; the first of them by name."""
        unfinished = [mark for mark in self._marks.held() if mark.unfinished]
        texts = [
            f"{mark.path}: the last line is incomplete ({mark.unfinished} bytes); it is read when it is complete"
            for mark in unfinished[:_WAITING_NAMED]
        ]
        more = len(unfinished) - len(texts)
        return [*texts, f"and the last lines of {more} more files"] if more else texts

    def refuse(self, reason: str, hint: str = "") -> None:
        """Take the last chunk back and leave its file unread: it is not what it should be."""
        self._refused = True
        self.problems.append(SourceFormatError(reason, hint=hint))

    def __iter__(self) -> Iterator[LineBlock]:
        """Chunks of all files from the place of the cursor to their present ends."""
        reported = list(self._missing)
        for path in self._moved_files():
            yield from self._try(path, moved=True)
        for path, size in zip(self._files, self._sizes, strict=True):
            for mark in self._before_at(path):
                if not mark.is_at(path):
                    yield from self._find(mark)  # first: it was written before the file in its place
            self._present_bytes = size
            yield from self._try(path)
            if self._present is not None:
                self._marks.settle(self._present)
                self._present = None
            self._passed_bytes += size
        for key in self._marks.not_found():
            if (left := self._marks.hold(key)) is not None:
                yield from self._left(left)
        for mark in list(self._missing):
            yield from self._find_missing(mark, search=mark in reported)
        del self._gone[:-_GONE_KEPT], self._missing[:-_MISSING_KEPT]

    def _was_met(self, key: Key) -> bool:
        """Whether a file was found in this pass."""
        return bool(self._marks.met(key) & FOUND)

    def _try(self, path: str, *, moved: bool = False) -> Iterator[LineBlock]:
        """The new part of a file, as far as it can be read."""
        try:
            yield from self._file(path, moved=moved)
        except SourceError as error:
            self.problems.append(error)
        except OSError as error:
            self.problems.append(SourceError(f"{path}: {error.strerror or error}"))

    def _file(self, path: str, *, moved: bool) -> Iterator[LineBlock]:
        if self._is_unchanged(path, moved=moved):
            return
        with open_log(Path(path)) as log:
            key = log.device, log.inode
            if self._was_met(key):
                return  # a second name of a file that was read in this pass
            before = self._marks.hold(key)
            self._marks.meet(key, OPENED if before is not None else OPENED | NEW)
            if before is not None:
                self._remember(before)
            at = 0
            try:
                head = log.read(HEAD_BYTES).rstrip(b"\0")  # NULs at the end are a hole, which may still be filled
                mark = self._mark(path, log, head, before)
                mark.moved = moved
                self._marks.put(mark)
                if not moved:
                    self._present = mark
                if before is not None and before not in self._continued:
                    yield from self._replaced(before, mark)
                for chunk in self._lines(log, mark):
                    yield chunk
                    at = mark.offset
            except DamagedError as error:
                raise SourceFormatError(
                    f"{path}: the compressed file is cut short or damaged after byte {at} of its content ({error})",
                    hint="All before it was read. Put a complete copy in its place, or move it away and settle what "
                    "is then reported as not read",
                ) from error

    def _is_unchanged(self, path: str, *, moved: bool) -> bool:
        """Whether a file is as it was when its end was reached. It is not opened: a folder may have a file for each job
        of years, and each run of the publisher looks at all of them."""
        try:
            file_status = os.stat(path)  # noqa: PTH116 - of each file of the log
        except OSError:
            return False  # opening it says why
        key = file_status.st_dev, file_status.st_ino
        if self._was_met(key):
            return False
        if not moved and self._marks.has(key, path, file_status.st_size, file_status.st_mtime_ns):
            self._marks.meet(key, UNCHANGED)
            return True
        mark = self._marks.peek(key)
        if mark is None or (mark.size, mark.mtime_ns) != (file_status.st_size, file_status.st_mtime_ns):
            return False
        self._marks.meet(key, UNCHANGED)
        if (mark.path, mark.moved) != (path, moved) and (held := self._marks.hold(key)) is not None:
            held.path, held.moved = path, moved
        return True

    def _mark(self, path: str, log: OpenLog, head: bytes, before: Mark | None) -> Mark:
        """Where to continue in a file. The log is positioned there afterwards."""
        lead = lead_of(head)
        new = Mark(path, log.device, log.inode, lead=lead, head_bytes=len(head), head=digest(head))
        new.has_record = has_record(head)
        if before is not None and before.is_empty and before.path == new.path:
            self._continued.add(before)
        for known in self._candidates(path, head, before):
            if not known.is_continued_by(head, log):
                continue
            is_same = known.key == new.key or known.is_certain
            if known.key == new.key or (is_same and known.path == new.path) or known.has_mtime(log.mtime_ns):
                self._continued.add(known)
            else:
                self._copied.setdefault(known, []).append(new)
            if is_same:  # else it is read from its beginning: another file may begin with the same bytes of a line
                new.offset, new.line, new.tail_bytes, new.tail = known.offset, known.line, known.tail_bytes, known.tail
                new.grew = known.grew or (known is before and known.size >= 0 and known.offset > 0)
                return new
        log.seek(0)
        return new

    # --- files that are no longer in their place

    def _remember(self, mark: Mark) -> None:
        self._past.setdefault(mark.lead, []).append(mark)

    def _hold_open(self, log: LogFiles) -> None:
        """Hold the marks of files that may be continued in another place."""
        growing = log.growing(self._marks.paths())
        self._marks.hold_at(lambda path: path in growing or self._has_live_name(path))
        for mark in self._marks.held():
            if mark.size >= 0 and mark.path not in growing and not self._may_be_live(mark):
                continue
            self._before.setdefault(mark.path, []).append(mark)
            if not mark.was_refused and (mark.size < 0 or mark.path in growing):
                self._open.add(mark)
        for mark in self._gone:
            if mark.vanished:
                self._before.setdefault(mark.path, []).append(mark)

    def _before_at(self, path: str) -> list[Mark]:
        """The files that were at a path at which another one is now, and may have unread content.

        Any file with the name of a log may, also one that was never seen to grow. One that disappeared earlier is a
        file that somebody removed, or a log that was rotated: the file that is there now shows that.
        """
        return [mark for mark in self._before.get(path, ()) if mark in self._open or self._may_be_live(mark)]

    def _may_be_live(self, mark: Mark) -> bool:
        """Whether a file was read and has the name of a log, not of a rotated copy."""
        return not mark.was_refused and self._has_live_name(mark.path)

    def _moved_files(self) -> list[str]:
        """Files that were found under a name that does not belong to the log, and still exist: they may grow."""
        paths = {mark.path: mark for mark in self._marks.held() if mark.moved}
        return [path for path, mark in paths.items() if path not in self._files and mark.is_at(path)]

    def _replaced(self, before: Mark, now: Mark) -> Iterator[LineBlock]:
        """Note that a file has other content than before: it was truncated, or its inode is used again."""
        self._gone.append(before)
        was_cut = before.path == now.path and before.offset > 0
        if was_cut or before in self._open:
            yield from self._find(before, was_cut=was_cut)
        elif self._may_be_live(before):
            yield from self._find(before, is_reported=False)

    def _left(self, mark: Mark) -> Iterator[LineBlock]:
        """Handle a file that was not found in this pass: it cannot be read, was moved, or is gone."""
        if mark.is_at(mark.path):
            return
        if mark in self._open:
            yield from self._find(mark)
        elif self._may_be_live(mark):
            yield from self._find(mark, is_reported=False)
        else:
            self._let_go(mark)

    def _let_go(self, mark: Mark) -> None:
        """Keep the mark of a file that is gone: a copy may appear."""
        if self._marks.remove(mark):
            self._gone.append(mark)
            self._remember(mark)
            self._marks.meet(mark.key, LET_GO)

    def _is_continued(self, mark: Mark) -> bool:
        """Whether all of a file was read in this pass under its own or another name: see `Copies` for the
        conditions.
        """
        copies = self._copied.get(mark, ()) if mark.is_certain else ()
        is_unchanged = self._marks.peek(mark.key) is mark and bool(self._marks.met(mark.key) & UNCHANGED)
        return is_unchanged or mark in self._continued or any(copy.end > mark.end for copy in copies)

    def _find(self, mark: Mark, *, was_cut: bool = False, is_reported: bool = True) -> Iterator[LineBlock]:
        """Continue a file that is no longer in its place; report it if it is not found complete. `is_reported` False:
        only when another file is in its place, in a later reading.

        If the file itself exists with other content, it was copied and truncated: a copy with a name of the log counts
        as complete, since such a rotation cannot be distinguished from an earlier one. If too little was read of it to
        know its copies, none counts.
        """
        was_emptied = self._was_met(mark.key) and (mark.is_certain or mark.is_empty)
        is_continued = self._is_continued(mark) or (was_emptied and mark in self._copied)
        if (is_continued and self._was_met(mark.key)) or mark in self._missing:
            return
        copies = self._copies_of(mark, is_continued=is_continued)
        if copies is None:
            return
        self._let_go(mark)
        mark.vanished = False
        yield from self._read_copies(copies.paths)
        is_rotated = was_emptied and any(str(path) in self._files for path in copies.paths)
        if is_continued or copies.is_whole or is_rotated:
            return
        if not is_reported:
            mark.vanished = True
            return
        self._missing.append(mark)
        report = not_read(mark, self._log, copies.paths, was_cut=was_cut)
        yield LineBlock(mark.path, [], mark.offset, mark.line + 1, (report,))

    def _find_missing(self, mark: Mark, *, search: bool) -> Iterator[LineBlock]:
        """Read the rest of a file that was reported as not read to its end, if it is found now. `search`: also among
        the rotated files."""
        is_continued = mark.is_certain and self._is_continued(mark)
        # A file that was empty has no copies that could be known: a later rotation would settle it.
        only_itself = is_continued or mark.is_empty
        copies = (self._copies_of(mark, is_continued=only_itself) if search else None) or NO_COPIES
        if copies.is_whole or is_continued:
            self._missing.remove(mark)
            self._gone.append(mark)
            place = Recovered(mark.path, mark.offset)
            if all(Recovered(other.path, other.offset) != place for other in self._missing):
                self._recovered.append(place)
            yield from self._read_copies(copies.paths)

    def _copies_of(self, mark: Mark, *, is_continued: bool) -> Copies | None:
        """See `copies_of`; None: the file itself is found and cannot be read."""
        try:
            if self._log is None:
                return NO_COPIES
            return copies_of(mark, self._log, is_continued=is_continued, was_read=self._was_read)
        except SourceError as error:
            self.problems.append(error)
            return None

    def _was_read(self, key: Key) -> bool:
        """Whether an earlier reading met a file."""
        how = self._marks.met(key)
        return bool(how & LET_GO) or (not how & NEW and self._marks.peek(key) is not None)

    def _read_copies(self, paths: list[Path]) -> Iterator[LineBlock]:
        for path in map(str, paths):
            if path not in self._files:  # else it is read in its turn
                yield from self._try(path, moved=True)

    def _candidates(self, path: str, head: bytes, before: Mark | None) -> list[Mark]:
        """Marks whose content a file with this beginning may have, the likeliest first; before it has its own."""
        present = self._marks.continued_by(head)
        known = dict.fromkeys([*present, *self._past.get("", ()), *self._past.get(lead_of(head), ())])
        return sorted(known, key=lambda mark: (mark is not before, mark.path != path, -mark.offset))

    def _lines(self, log: OpenLog, mark: Mark) -> Iterator[LineBlock]:
        rest = tail = b""
        given = log.before(mark.offset, NEIGHBOUR_BYTES + 1)
        unreadable: tuple[Unreadable, ...] = ()
        while block := log.read(self._block_bytes):
            data = rest + block
            used = data.rfind(b"\n") + 1
            first_bytes = data.find(b"\n") if used else len(data)
            if used == 0 and first_bytes <= MAX_LINE_BYTES:
                rest = data
                continue
            offset = mark.offset
            before_line = mark.line
            too_long: tuple[bytes, bytes] | None = None
            if first_bytes > MAX_LINE_BYTES:
                unreadable = (*unreadable, _too_long(mark, data[:first_bytes]))
                (used, rest, end), lines, tail = _to_line_end(log, data), [], b""
                if rest:
                    break
                too_long = data[:RAW_BYTES], end
                mark.line += 1
            else:
                lines = data[: used - 1].split(b"\n")
                rest, tail = data[used:], (tail + data[max(0, used - TAIL_BYTES) : used])[-TAIL_BYTES:]
                mark.line += len(lines)
            before = mark.offset, before_line, mark.tail_bytes, mark.tail
            mark.offset += used
            mark.tail_bytes, mark.tail = len(tail), digest(tail)
            yield LineBlock(mark.path, lines, offset, before_line + 1, unreadable, given, too_long)
            unreadable, given = (), b""
            if self._refused:
                self._refused = False
                mark.offset, mark.line, mark.tail_bytes, mark.tail = before
                return
        if rest and not rest.strip(b"\0"):
            self.problems.append(_only_nuls(mark))
            return  # it is read again in every reading, since its end was not reached
        if log.compressed and rest:
            reason = "the compressed file ends in the middle of this line"
            unreadable = (*unreadable, Unreadable(mark.path, mark.line + 1, mark.offset, reason, rest[:RAW_BYTES]))
            mark.offset += len(rest)
            mark.tail_bytes, mark.tail = len(rest[-TAIL_BYTES:]), digest(rest[-TAIL_BYTES:])
        mark.size, mark.mtime_ns = log.size, log.mtime_ns
        mark.unfinished = 0 if log.compressed else len(rest)
        if unreadable:
            yield LineBlock(mark.path, [], mark.offset, mark.line + 1, unreadable)


def _stored_marks(cursor: Cursor) -> tuple[Marks, list[Mark], list[Mark]]:
    """The marks of the files, of those that are gone, and of those that are missing; none of a cursor that cannot be
    understood. A cursor of an earlier release has the marks of the files too."""
    stored = cursor.get(FILE_MARKS, tuple)
    try:
        files, gone, missing = (msgspec.convert(cursor.get(key, []), list[Any]) for key in ("files", "gone", "missing"))
        marks = Marks(stored())
        marks.add(files)
        return marks, list(map(Mark.of, gone)), list(map(Mark.of, missing))
    except (ValueError, msgspec.ValidationError):
        return Marks(), [], []


def _to_line_end(log: OpenLog, data: bytes) -> tuple[int, bytes, bytes]:
    """Skip the rest of a line with this beginning. Gives its length with the line feed, a NUL if there is nothing else
    up to the end of the file, and its last bytes.
    """
    length, nuls, last = 0, True, b""
    while data:
        end = data.find(b"\n") + 1
        if end:
            log.unread(data[end:])
            return length + end, b"", (last + data[: end - 1])[-RAW_BYTES:]
        length += len(data)
        nuls = nuls and not data.strip(b"\0")
        last = (last + data)[-RAW_BYTES:]
        data = log.read(_BLOCK_BYTES)
    return length, b"\0" if nuls else b"", last


def _only_nuls(mark: Mark) -> SourceFormatError:
    return SourceFormatError(
        f"{mark.path}: nothing but NUL bytes from byte {mark.offset} to the end of the file, as a power failure or a "
        "full disk leaves it",
        hint="Put a complete copy in its place, or let the batch system begin a new file",
    )


def _too_long(mark: Mark, data: bytes) -> Unreadable:
    reason = f"the line is longer than {MAX_LINE_BYTES} bytes"
    return Unreadable(mark.path, mark.line + 1, mark.offset, reason, data[:RAW_BYTES])
