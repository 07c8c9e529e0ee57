"""From a parser of lines to a source: the common part of all logs with one record for each line.

The state of a `LineParser` between lines (the slave records of a parallel job whose master comes later, a record of
several lines) is plain JSON in the cursor, so that a page has everything that the next one needs.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.sources.base import (
    FUTURE_S,
    PAGE_RECORDS,
    RAW_BYTES,
    WAITING,
    Cursor,
    Line,
    MarkChange,
    Outcome,
    Page,
    PageBuilder,
    Unreadable,
    UnreadableLine,
    Window,
)
from publisher.sources.limits import SHORT_BYTES
from publisher.sources.logs.broken_record import SUSPECT
from publisher.sources.logs.line_parser import (
    CompletingParser,
    EndingParser,
    LineParser,
    MergingParser,
    Roles,
    RunParser,
    roles_of,
)
from publisher.sources.logs.reader import NEIGHBOUR_BYTES, LineBlock, LogReader, Reading
from publisher.sources.logs.sniff import KINDS, looks_like

_SAMPLE_BYTES: Final = 1 << 16
_SAMPLE_LINES: Final = 50

_JOINED_FROM: Final = 100
"""So many lines that are not records, one after the other, are one piece: a user can write any number of them."""


class StatelessParser:
    """Base of parsers that understand each line by itself."""

    def file_begins(self, file: str) -> None:
        """Nothing depends on the file."""

    def state(self) -> Any:
        """There is no state."""
        return None

    def resume(self, state: Any) -> None:
        """There is no state."""

    def waiting(self) -> str | None:
        """Nothing waits."""
        return None


class LineSource:
    """A `Source` of a log with a parser of its lines; kinds of log derive from it or hold one.

    `make_parser` is called for each pass. `clock` gives epoch seconds and is used for findings only.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        reader: LogReader,
        make_parser: Callable[[], LineParser],
        *,
        complete_since: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.kind = kind
        self.reader = reader
        self._make_parser = make_parser
        self._complete_since = complete_since
        self._clock = clock

    def complete_since(self) -> int | None:
        """The configured time: a log does not show what was rotated away before it."""
        return self._complete_since

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """Pages from the cursor to the present end, as `Source.pages` describes; with a window, of all files again.

        Everything readable is given first; then files that could not be read to their end raise `SourceError`.
        """
        try:
            yield from self._pages(cursor, window)
        except sqlite3.Error as error:
            raise SourceError(
                f"how far each log file was read cannot be kept in a temporary file: {error}",
                hint="Free space in the folder of temporary files: SQLITE_TMPDIR, or /var/tmp",
            ) from error

    def _pages(self, cursor: Cursor, window: Window | None) -> Iterator[Page]:
        parser = self._make_parser()
        if window is None:
            parser.resume(cursor.get("parser"))
        reading = self.reader.read(cursor if window is None else {})
        page = PageBuilder(window)
        last: LogPart | None = None  # not in the page yet: the next lines may make its runs suspect
        here: Cursor | None = None
        changes: tuple[MarkChange, ...] = ()
        share: float | None = None
        for part in _parts(reading, parser):
            if last is not None:
                page.extend(last)
            if here is not None:
                yield page.page(here, recovered=reading.recovered(), share=share, file_marks=changes)
                changes = ()
            last, here = part, None
            if page.read + part.read >= PAGE_RECORDS:
                here, share = cursor if window else _cursor(reading, parser), reading.share()
                changes = reading.mark_changes()
        if last is not None:
            page.extend(last)
        if isinstance(parser, EndingParser):
            for outcome in parser.finish():
                page.add(outcome, partial(_at_end, last.chunk if last else None))
        recovered = reading.recovered()
        if isinstance(parser, CompletingParser):
            recovered += tuple(parser.completed())
        here = cursor if window else _cursor(reading, parser)
        changes += reading.mark_changes()
        yield page.page(here, at_end=not reading.problems, recovered=recovered, file_marks=changes)
        _raise(reading.problems)

    def check(self) -> list[Finding]:
        """Findings: the files, whether each can be opened and understood, and the first and last end found."""
        try:
            files = self.reader.files()
        except SourceError as error:
            return [Finding(self.name, "red", error.message, error.hint)]
        findings: list[Finding] = []
        ends: list[int] = []
        for file in files:
            sample = Reading([file], {}, block_bytes=_SAMPLE_BYTES)
            parser = self._make_parser()
            chunk = next(iter(sample), None)
            if chunk is not None:
                part = LogPart(chunk, roles_of(parser))
                part.parse(parser)
                part.extend(_released(part))
                ends += [job.end for job in part.jobs if job.end is not None]
                if not part.understood and not _is_refused(chunk, part, parser, sample) and part.unreadable:
                    reason = part.unreadable[0].reason
                    findings.append(Finding(self.name, "red", f"{file}: no line is understood; the first: {reason}"))
            elif not sample.problems:
                findings.append(Finding(self.name, "yellow", f"{file}: the file has no complete line"))
            findings += [Finding(self.name, "red", problem.message, problem.hint) for problem in sample.problems]
        for folder in self.reader.log.rotated_to:
            if not folder.is_dir():
                findings.append(
                    Finding(self.name, "yellow", f"{folder}: the folder does not exist", "Correct rotated_to")
                )
        return [*findings, *self._ends(len(files), ends)]

    def _ends(self, files: int, ends: list[int]) -> list[Finding]:
        count = f"{files} file{'' if files == 1 else 's'}"
        if not ends:
            return [Finding(self.name, "yellow", f"{count}; the beginnings of the files have no finished job")]
        seen = f"{count}; of the jobs at the beginning of each file, the first ended {_utc(min(ends))}"
        if max(ends) > self._clock() + FUTURE_S:
            hint = "Check the clock of this host and of the batch system's host"
            return [Finding(self.name, "yellow", f"{seen}, the last in the future: {_utc(max(ends))}", hint)]
        return [Finding(self.name, "green", f"{seen}, the last {_utc(max(ends))}")]


_NO_PLACES: Final[list[int]] = []


class LogPart(PageBuilder):
    """The outcomes of the lines of one chunk, which are added to a page unless the file is refused."""

    def __init__(self, chunk: LineBlock, roles: Roles, before: LogPart | None = None) -> None:
        super().__init__()
        self.chunk = chunk
        self.roles = roles
        self._before = before
        """The part of the same file before this one."""
        self.doubted_to = 0
        """The index after the last line that was doubted, or is no longer near a later one."""
        self._has_record = False
        self._several: dict[int, list[int]] = {}
        """By the index of each line that did not simply give its run: the indices of the lines of the runs it gave; -1:
        before these."""
        self._places: list[int] | None = None
        """The index of the line of each run, once that was asked for."""
        self._gives_late = False
        self._run_began = -1
        """The index of the line of the run that such a parser gives next."""
        self._rests: list[int] = []
        """The indices of the lines that end a record without its beginning."""
        self.head: UnreadableLine | None = None
        """The header of a table that cannot be used."""

    @property
    def understood(self) -> bool:
        """Whether any line is part of a record."""
        return self._has_record or bool(self.jobs)

    def parse(self, parser: LineParser) -> None:
        """Add the outcome of each line of the chunk."""
        self.unreadable += self.chunk.set_aside
        jobs = self.jobs
        parse = parser.parse
        self._gives_late = getattr(parser, "gives_late", False)
        shortest = -1 if getattr(parser, "joins_lines", True) else SHORT_BYTES
        if self.chunk.too_long is not None and self.roles.of_runs is not None:
            self._take_too_long(self.roles.of_runs.after_too_long(*self.chunk.too_long))
        for index, line in enumerate(self.chunk.lines):
            outcome = parse(line)
            if type(outcome) is Job and len(line) <= shortest:
                jobs.append(outcome)
            elif outcome is Line.MORE:
                self._has_record = True
                self._run_began = index
                self._several[index] = _NO_PLACES
            elif outcome is not Line.MERGED or not self._gives_late:
                self.take(outcome, index)
            else:
                self._has_record = True
                self.merged += 1
                self._several[index] = _NO_PLACES
        self.unreadable[:] = joined_lines(self.unreadable)

    def take(self, outcome: Outcome | list[Outcome], index: int) -> None:
        """Add the outcome of one line of the chunk."""
        place, places = self._run_began if self._gives_late else index, list[int]()
        jobs = len(self.jobs)
        for single in outcome if isinstance(outcome, list) else (outcome,):
            self.add(single, partial(_with_place, self.chunk, index))
            places += [place] * (len(self.jobs) - jobs - len(places))
            if isinstance(single, UnreadableLine) and single.is_rest:
                # A run that is given before it in the same outcome was before it in the file.
                places = [min(index - single.back - 1, at) for at in places]
            if isinstance(single, UnreadableLine):
                self.head = single if single.hint else self.head
                self._has_record = self._has_record or single.suspect is not None
                if single.is_rest:
                    self._rests.append(index - single.back)
                    if self.roles.merging is not None:
                        self._doubt_before(index - single.back, self.roles.merging)
            else:
                self._has_record = self._has_record or single in (Line.SKIPPED, Line.MERGED, Line.MORE)
        self._run_began = index
        self._several[index] = places or _NO_PLACES

    def _take_too_long(self, held: list[Outcome] | None) -> None:
        """Take a line that is too long for the rest of a broken record, with what was held before it."""
        if held is None:
            return
        for outcome in held:
            self.add(outcome, partial(_with_place, self.chunk, 0))
        self._places = [-1] * len(self.jobs)
        self._rests.append(0)
        if self.roles.merging is not None:
            self._doubt_before(0, self.roles.merging)

    def suspect_before_rests(self) -> None:
        """Hold the runs of the lines before each line that ends a record without its beginning.

        A user's text with line feeds makes such a line, and may have made the records before it; which of them cannot
        be known.
        """
        before, self._before = self._before, None  # memory must not grow with the file
        if not self._rests:
            return
        rest, left = len(self.chunk.lines), 0
        if self.chunk.too_long is not None:
            rest, left = self.chunk.line, NEIGHBOUR_BYTES
        for part in (self, before) if before is not None else (self,):
            near: dict[int, int] = {}
            rests = {*self._rests} if part is self else set()
            for index in range(len(part.chunk.lines) - 1, -1, -1):
                if left > 0:
                    near[index] = rest
                    left -= len(part.chunk.lines[index]) + 1
                if index in rests:
                    rest, left = part.chunk.line + index, NEIGHBOUR_BYTES
            if left > 0:
                near[-1] = rest  # given with the first line, of the one before
            part.hold_lines(near)
        part = self if before is None else before
        if left > 0 and self.roles.of_runs is not None and part.chunk.before:
            self.unreadable += _given_before(part.chunk, rest, left, self.roles.of_runs)

    def suspect_before(self, released: LogPart) -> None:
        """The same for lines of this chunk that the parser held."""
        self._rests = released._rests
        self.suspect_before_rests()

    def _doubt_before(self, rest: int, parser: MergingParser) -> None:
        """Let the parser doubt the lines before a rest, each once, before later lines complete what they add to."""
        left = NEIGHBOUR_BYTES
        for part, last in ((self, rest), *([(self._before, len(self._before.chunk.lines))] if self._before else [])):
            lines = part.chunk.lines
            for index in range(min(last, len(lines)) - 1, part.doubted_to - 1, -1):
                left -= len(lines[index]) + 1
                if left < 0:
                    break
                if (doubted := parser.doubt(lines[index])) is not None:
                    part.unreadable.append(_with_place(part.chunk, index, doubted))
            first_time = part.doubted_to == 0
            part.doubted_to = max(part.doubted_to, min(last, len(lines)), 1)
        if left > 0 and first_time:
            for number, line in enumerate(part.chunk.earlier(left), 1):
                if (doubted := parser.doubt(line)) is not None:
                    part.unreadable.append(_with_place(part.chunk, -number, doubted, line))

    def hold_lines(self, rests: Mapping[int, int]) -> None:
        """Hold the finished runs of some lines as suspect. `rests`: by the index of the line, the number of the line
        that makes it suspect.
        """
        if self._places is None:
            lines = range(len(self.chunk.lines))
            self._places = [place for index in lines for place in self._several.get(index, [index])]
        kept = [not (job.finished and place in rests) for job, place in zip(self.jobs, self._places, strict=True)]
        for job, place, keep in zip(self.jobs, self._places, kept, strict=True):
            if not keep:
                why = f"line {rests[place]} ends a record that does not begin there: {SUSPECT}"
                piece = _with_place(self.chunk, place, UnreadableLine(why, suspect=job))
                self.unreadable.append(piece)
        self.jobs[:] = compress(self.jobs, kept)
        self._places = list(compress(self._places, kept))


def joined_lines(pieces: Sequence[Unreadable]) -> Iterator[Unreadable]:
    """Many lines that are not records, one after the other, as one piece for each `RAW_BYTES` of their text.

    Nothing of the text is lost; the number and offset of each line follow from those of the first.
    """
    lines: list[Unreadable] = []
    size = 0
    for piece in pieces:
        if lines and not (_follows(lines[-1], piece) and size + len(piece.raw) < RAW_BYTES):
            yield from _as_one(lines)
            lines, size = [], 0
        lines.append(piece)
        size += len(piece.raw) + 1
    yield from _as_one(lines)


def _follows(piece: Unreadable, later: Unreadable) -> bool:
    """Whether two pieces are whole lines, one after the other, without a run."""
    if piece.line is None or piece.offset is None or any(each.suspect or each.given for each in (piece, later)):
        return False
    next_place = piece.file, piece.line + 1, piece.offset + len(piece.raw) + 1
    return (later.file, later.line, later.offset) == next_place


def _as_one(lines: list[Unreadable]) -> Sequence[Unreadable]:
    if len(lines) < _JOINED_FROM:
        return lines
    first = lines[0]
    why = f"lines {first.line} to {lines[-1].line} ({len(lines):,}) are not records; the first: {first.reason}"
    raw = b"\n".join([line.raw for line in lines])
    return [msgspec.structs.replace(first, reason=why, raw=raw)]


def _with_place(chunk: LineBlock, index: int, refused: UnreadableLine, line: bytes = b"") -> Unreadable:
    """A line that is not a record, with its place; without its offset if it is in an earlier chunk."""
    at = index - refused.back
    if 0 <= at < len(chunk.lines):
        place = chunk.unreadable(at, refused.reason)
    else:
        place = Unreadable(chunk.file, chunk.line + at, None, refused.reason, line)
    raw = place.raw if refused.raw is None else refused.raw[:RAW_BYTES]
    return msgspec.structs.replace(place, raw=raw, suspect=refused.suspect)


def _given_before(chunk: LineBlock, rest: int, most_bytes: int, parser: RunParser) -> Iterator[Unreadable]:
    """The runs that an earlier reading gave for the lines before a chunk, which the line with the number `rest` makes
    suspect: they are stored."""
    offset = chunk.offset
    for back, line in enumerate(chunk.earlier(most_bytes), 1):
        offset -= len(line) + 1
        job = parser.alone(line)
        if job is not None:
            why = f"line {rest}, read later, ends a record that does not begin there: this line may be text of a user"
            yield Unreadable(chunk.file, chunk.line - back, offset, why, line[:RAW_BYTES], given=job)


def _parts(reading: Reading, parser: LineParser) -> Iterator[LogPart]:
    """The outcomes of each chunk; each is final when the next one is given."""
    last: LogPart | None = None
    roles = roles_of(parser)
    for chunk in reading:
        if chunk.set_aside and not chunk.lines and chunk.too_long is None:  # of a file that may be gone
            part = LogPart(chunk, roles)
            part.unreadable += chunk.set_aside
            yield part
            continue
        if last is not None and chunk.file != last.chunk.file:
            yield _released(last)
            last = None
        if last is None:
            parser.file_begins(chunk.file)
        may_be_refused = chunk.line == 1 and (getattr(parser, "has_header", True) or _is_foreign(chunk, parser))
        # Only then: with a log of each day, or job, the state of all unfinished jobs would be copied for each.
        before = parser.state() if may_be_refused else None
        part = LogPart(chunk, roles, last)
        part.parse(parser)
        if may_be_refused and not part.understood and _is_refused(chunk, part, parser, reading):
            parser.resume(before)
            continue
        part.suspect_before_rests()
        last = part
        yield part
    if last is not None:
        yield _released(last)


def _at_end(chunk: LineBlock | None, refused: UnreadableLine) -> Unreadable:
    """What is incomplete after the last chunk, with its place if that is known."""
    if chunk is None or not refused.back:
        return refused.of_file(chunk.file if chunk is not None else "")
    return _with_place(chunk, len(chunk.lines), refused)


def _released(last: LogPart) -> LogPart:
    """What a parser held of the file to which the part belongs and which ends here.

    Where a line that was held ends a record without its beginning, runs of the part become suspect too.
    """
    part = LogPart(last.chunk, last.roles)
    if part.roles.holder is not None:
        part.take(part.roles.holder.release(), len(last.chunk.lines))
        last.suspect_before(part)
    return part


def _is_refused(chunk: LineBlock, part: LogPart, parser: LineParser, reading: Reading) -> bool:
    """Refuse a file if its beginning, which is not understood, shows that none of it can be used.

    It is then a file of something else, or a table whose header lacks required columns.
    """
    if part.head is not None:
        reading.refuse(f"{chunk.file}: {part.head.reason}", part.head.hint)
        return True
    kind = looks_like(chunk.lines[:_SAMPLE_LINES])
    if kind is None or kind in parser.reads:
        return False
    reading.refuse(
        f"{chunk.file}: this looks like {KINDS[kind]}, and no line of it is understood",
        "Correct `path` or `type`",
    )
    return True


def _is_foreign(chunk: LineBlock, parser: LineParser) -> bool:
    """Whether the beginning of a file looks like that of another kind of log."""
    kind = looks_like(chunk.lines[:_SAMPLE_LINES])
    return kind is not None and kind not in parser.reads


def _cursor(reading: Reading, parser: LineParser) -> Cursor:
    cursor, state, waiting = reading.cursor(), parser.state(), parser.waiting()
    if state is not None:
        cursor["parser"] = state
    if texts := [*reading.waiting(), *([waiting] if waiting else [])]:
        cursor[WAITING] = texts
    return cursor


def _raise(problems: list[SourceError]) -> None:
    if len(problems) == 1:
        raise problems[0]
    if problems:
        shown = "; ".join(problem.message for problem in problems[:5])
        raise SourceError(f"{len(problems)} files could not be read to their end: {shown}", hint=problems[0].hint)


def _utc(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at)) if abs(at) < 1 << 40 else str(at)
