"""From a parser of lines to a source: what every log of one line a record has in common.

A `LineParser` is pure: bytes of a line in, outcome out. What it must remember from line to line (the slave records of a
parallel job whose master comes later, a record of several lines) it gives as plain JSON values, which travel in the
cursor, so that a page is complete with whatever the next one needs.

Slave records of parallel jobs, kept until their master's comes: in the same page, a later one, or another file.

Memory is bounded: the oldest groups are given up first, and are then reported, not forgotten.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

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
    Outcome,
    Page,
    PageBuilder,
    Unreadable,
    UnreadableLine,
    Window,
)
from publisher.sources.limits import SHORT_BYTES
from publisher.sources.logs.reader import LineBlock, LogReader, Reading
from publisher.sources.logs.sniff import KINDS, looks_like

_SAMPLE_BYTES: Final = 1 << 16


class LineParser(Protocol):
    """Understands the lines of one kind of log. One parser serves one pass over the log's files."""

    reads: frozenset[str]
    """The kinds of log, as `recognise.looks_like` names them, that this parser understands.

    A parser with an attribute `joins_lines` that is False makes a run of one line, which bounds the run's texts.
    """

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """What a line is. Never raises, whatever the bytes; takes time and memory in proportion to their number."""
        ...

    def file_begins(self, file: str) -> None:
        """The next line is of another file than the one before."""
        ...

    def state(self) -> Any:
        """What is remembered, as plain JSON values of bounded size; None if there is nothing."""
        ...

    def resume(self, state: Any) -> None:
        """Remember what `state()` gave. Anything else is taken as nothing."""
        ...

    def waiting(self) -> str | None:
        """What of it waits for later lines, though it should not for long: a sentence for people."""
        ...


@runtime_checkable
class LineHolder(Protocol):
    """What a parser has besides that holds lines until a later line of the same file shows what they are."""

    def release(self) -> list[Outcome]:
        """What is held, decided without a later line: no more of them stand in the file at present."""
        ...


@runtime_checkable
class EndingParser(LineParser, Protocol):
    """What a parser has besides that keeps runs until the end of all that there is."""

    def finish(self) -> list[Outcome]:
        """What was kept and can be given now, and what is cut off so far; each once."""
        ...


class StatelessParser:
    """Base of parsers that understand each line by itself."""

    def file_begins(self, file: str) -> None:
        """Nothing depends on the file."""

    def state(self) -> Any:
        """Nothing is remembered."""
        return None

    def resume(self, state: Any) -> None:
        """Nothing is remembered."""

    def waiting(self) -> str | None:
        """Nothing is remembered."""
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
        """As configured: a log does not show what was rotated away before it."""
        return self._complete_since

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """Pages from the cursor to the present end, as `Source.pages` says; with a window, of all files anew.

        What can be read is given first; then files that could not be read to their end raise `SourceError`.
        """
        parser = self._make_parser()
        if window is None:
            parser.resume(cursor.get("parser"))
        reading = self.reader.read(cursor if window is None else {})
        page = PageBuilder(window)
        last: LineBlock | None = None
        for chunk in reading:
            if chunk.lines or not chunk.set_aside:  # what is only set aside may be of a file that is gone
                if last is None or chunk.file != last.file:
                    page.extend(_released(last, parser))
                    parser.file_begins(chunk.file)
                last = chunk
            before = parser.state() if chunk.line == 1 else None
            part = _Part()
            part.parse(chunk, parser)
            if chunk.line == 1 and not part.understood and _is_refused(chunk, part, parser, reading):
                parser.resume(before)
                continue
            page.extend(part)
            if page.read >= PAGE_RECORDS:
                yield page.page(cursor if window else _cursor(reading, parser), recovered=reading.recovered())
        page.extend(_released(last, parser))
        if isinstance(parser, EndingParser):
            for outcome in parser.finish():
                page.add(outcome, lambda refused: refused.of_file(last.file if last else ""))
        here = cursor if window else _cursor(reading, parser)
        yield page.page(here, at_end=not reading.problems, recovered=reading.recovered())
        _raise(reading.problems)

    def check(self) -> list[Finding]:
        """Which files there are, whether each can be opened and understood, and the first and last end seen."""
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
                part = _Part()
                part.parse(chunk, parser)
                ends += [job.end for job in part.jobs if job.end is not None]
                if not part.understood and not _is_refused(chunk, part, parser, sample) and part.unreadable:
                    reason = part.unreadable[0].reason
                    findings.append(Finding(self.name, "red", f"{file}: no line is understood; the first: {reason}"))
            elif not sample.problems:
                findings.append(Finding(self.name, "yellow", f"{file}: the file holds no whole line"))
            findings += [Finding(self.name, "red", problem.message, problem.hint) for problem in sample.problems]
        for folder in self.reader.log.rotated_to:
            if not folder.is_dir():
                findings.append(
                    Finding(self.name, "yellow", f"{folder}: there is no such folder", "Look at rotated_to")
                )
        return [*findings, *self._ends(len(files), ends)]

    def _ends(self, files: int, ends: list[int]) -> list[Finding]:
        count = f"{files} file{'' if files == 1 else 's'}"
        if not ends:
            return [Finding(self.name, "yellow", f"{count}; no finished run at the beginning of any")]
        seen = f"{count}; the earliest end at the beginning of a file is {_utc(min(ends))}"
        if max(ends) > self._clock() + FUTURE_S:
            hint = "The clock of the batch system's host was wrong, or ours is"
            return [Finding(self.name, "yellow", f"{seen}, the latest lies in the future: {_utc(max(ends))}", hint)]
        return [Finding(self.name, "green", f"{seen}, the latest {_utc(max(ends))}")]


class _Part(PageBuilder):
    """What the lines of one chunk gave, which is added to a page unless the file is refused."""

    def __init__(self) -> None:
        super().__init__()
        self._has_record = False
        self.head: UnreadableLine | None = None
        """A head of a table that cannot be used."""

    @property
    def understood(self) -> bool:
        """Whether any line is part of a record."""
        return self._has_record or bool(self.jobs)

    def parse(self, chunk: LineBlock, parser: LineParser) -> None:
        """Add what each line of a chunk gives."""
        self.unreadable += chunk.set_aside
        jobs = self.jobs
        parse = parser.parse
        shortest = -1 if getattr(parser, "joins_lines", True) else SHORT_BYTES
        for index, line in enumerate(chunk.lines):
            outcome = parse(line)
            if type(outcome) is Job and len(line) <= shortest:
                jobs.append(outcome)
            elif outcome is Line.MORE:
                self._has_record = True
            else:
                self.take(outcome, chunk, index)

    def take(self, outcome: Outcome | list[Outcome], chunk: LineBlock, index: int) -> None:
        """Add what the line at an index of the chunk gave."""
        for each in outcome if isinstance(outcome, list) else (outcome,):
            self.add(each, partial(_with_place, chunk, index))
            if isinstance(each, UnreadableLine):
                self.head = each if each.hint else self.head
            else:
                self._has_record = self._has_record or each in (Line.SKIPPED, Line.MORE)


def _with_place(chunk: LineBlock, index: int, refused: UnreadableLine) -> Unreadable:
    """A line that is not a record, with its place; without its offset where it is in an earlier chunk."""
    at = index - refused.back
    if 0 <= at < len(chunk.lines):
        place = chunk.unreadable(at, refused.reason)
    else:
        place = Unreadable(chunk.file, chunk.line + at, None, refused.reason, b"")
    return place if refused.raw is None else msgspec.structs.replace(place, raw=refused.raw[:RAW_BYTES])


def _released(chunk: LineBlock | None, parser: LineParser) -> _Part:
    """What a parser held of the file of which the chunk is the last so far."""
    part = _Part()
    if chunk is not None and isinstance(parser, LineHolder):
        part.take(parser.release(), chunk, len(chunk.lines))
    return part


def _is_refused(chunk: LineBlock, part: _Part, parser: LineParser, reading: Reading) -> bool:
    """Whether the beginning of a file, not understood, shows that all of it cannot be used; it is then refused.

    It is of something else, or a table whose head lacks what is needed.
    """
    if part.head is not None:
        reading.refuse(f"{chunk.file}: {part.head.reason}", part.head.hint)
        return True
    kind = looks_like(chunk.lines[:50])
    if kind is None or kind in parser.reads:
        return False
    reading.refuse(
        f"{chunk.file}: this looks like {KINDS[kind]}, and no line of it is understood", "Look at path and type"
    )
    return True


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


MOST_GROUPS: Final = 1_000
MOST_SLAVES: Final = 20_000

SlaveT = TypeVar("SlaveT", bound=msgspec.Struct)


class PendingSlaves(Generic[SlaveT]):
    """Slave records by job, in the order in which the jobs' first slaves came."""

    def __init__(self, slave_type: type[SlaveT]) -> None:
        self._type = slave_type
        self.groups: dict[str, list[SlaveT]] = {}
        self._slaves = 0

    def add(self, job: str, slave: SlaveT) -> list[tuple[str, list[SlaveT]]]:
        """Keep a slave record of a job. The groups that were given up for it, oldest first."""
        self.groups.setdefault(job, []).append(slave)
        self._slaves += 1
        given_up: list[tuple[str, list[SlaveT]]] = []
        while len(self.groups) > MOST_GROUPS or self._slaves > MOST_SLAVES:
            oldest = next(iter(self.groups))
            given_up.append((oldest, self.take(oldest)))
        return given_up

    def take(self, job: str) -> list[SlaveT]:
        """The slave records of a job, which are no longer kept; empty if there are none."""
        slaves = self.groups.pop(job, [])
        self._slaves -= len(slaves)
        return slaves

    def waiting(self) -> str | None:
        """How many are kept, for people."""
        if not self.groups:
            return None
        jobs = len(self.groups)
        return (
            f"{self._slaves} slave record{'' if self._slaves == 1 else 's'} of {jobs} parallel "
            f"job{'' if jobs == 1 else 's'}: the master's record has not come"
        )

    def state(self) -> Any:
        """What is kept, as plain JSON values; None if nothing is."""
        return msgspec.to_builtins(self.groups) if self.groups else None

    def resume(self, state: Any) -> None:
        """Keep what `state()` gave; anything else is taken as nothing."""
        try:
            self.groups = {} if state is None else msgspec.convert(state, dict[str, list[self._type]])  # type: ignore[name-defined]
        except msgspec.ValidationError:
            self.groups = {}
        self._slaves = sum(map(len, self.groups.values()))
