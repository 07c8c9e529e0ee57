"""What a source of jobs is: the one seam between the accounting of batch systems and the store.

A source reads forward from a cursor of its own making and gives pages: runs, input that could not be read, and the
cursor to go on from. The caller stores a page and its cursor in one transaction, so what was read is never read over
and never skipped. A source never writes to what it reads. Every source fills its pages with a `PageBuilder`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from formats.job import Job
from publisher.config import schema
from publisher.encoded_run import EncodedRun, encode_run
from publisher.errors import ConfigError
from publisher.finding import Finding
from publisher.sources.limits import LimitError, bounded
from publisher.text import utf8

Cursor = Mapping[str, Any]
"""Where reading stopped, as plain JSON values; its meaning is the source's own. Empty: read from the beginning.

One key is for others: `waiting`, a list of texts, each of which says what was met and waits for what completes it.
"""


def text_of(cursor: Cursor) -> str:
    """A cursor as it is stored: JSON, which here has names of files that are not UTF-8 as well."""
    return json.dumps(cursor, separators=(",", ":"))


def cursor_of(text: str) -> Cursor:
    """The cursor of a stored one."""
    found: Cursor = json.loads(text)
    return found


Known = Callable[[Sequence[str]], Mapping[str, tuple[bytes, int]]]
"""Gives, for record ids, the marks of those of these runs that are stored as finished, and when they ended.

A mark is a digest of all that a source has of a run and of how it is read: if it is the same, so is the run.
"""

WAITING: Final = "waiting"

FUTURE_S: Final = 86_400
"""Ends of jobs that are later than now by more than this show that a clock is wrong."""

PAGE_RECORDS: Final = 2_000
"""What a page holds at least, unless it is the last: runs, unreadable input, and what is skipped."""

RAW_BYTES: Final = 65_536
"""Of an unreadable piece of input that are kept."""


class Unreadable(msgspec.Struct, frozen=True):
    """A piece of input that is not a record: kept with its place and reason, never dropped in silence.

    `raw` holds at most its first `RAW_BYTES`; `offset` is its byte offset in the file, its row id, or its
    number among the jobs of a document. `unread_from`: it is a file that disappeared before it was read to its end; the
    jobs in it that were not read ended then (epoch seconds) or later.
    """

    file: str
    line: int | None
    offset: int | None
    reason: str
    raw: bytes
    unread_from: int | None = None


class Recovered(msgspec.Struct, frozen=True):
    """A file that was given as `Unreadable`, since it disappeared before it was read to its end, and is found again."""

    file: str
    offset: int


class Recognised(msgspec.Struct, frozen=True):
    """What was found stored as it is by its mark, and not read further: `count` of it, `unchanged` in the window.

    `last_end`: the latest end of the latter, epoch seconds.
    """

    count: int = 0
    unchanged: int = 0
    last_end: int | None = None


NONE_RECOGNISED: Final = Recognised()


class Page(msgspec.Struct, frozen=True):
    """Some runs in the order of the source, and the cursor after them.

    `skipped` counts what was understood and is not a run to keep (never started, headers of other records). `read`
    counts everything looked at. `at_end` is True on the last page: the source was read to its present end. `marks`:
    those of the runs, one each, from a source that gives marks. `recovered`: what is no longer `unreadable`.
    """

    jobs: tuple[Job, ...]
    cursor: Cursor
    read: int
    skipped: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    at_end: bool = False
    marks: tuple[bytes | None, ...] = ()
    recognised: Recognised = NONE_RECOGNISED
    recovered: tuple[Recovered, ...] = ()


class Line(enum.Enum):
    """What a line is that gives no job by itself.

    `SKIPPED`: understood, and not a run to keep (never started, folded into another record); counted. `IGNORED`: not a
    record, such as a comment; not counted. `MORE`: kept by the parser until later lines complete it; not counted.
    """

    SKIPPED = enum.auto()
    IGNORED = enum.auto()
    MORE = enum.auto()


class UnreadableLine(msgspec.Struct, frozen=True):
    """A line that is not a record, and why: one sentence without the line's content.

    `raw` replaces the line where the parser gives up an earlier one, `back` lines before the present one. With `hint`,
    what to do, it is the head of a table that cannot be used: a file of which no line is understood for it is refused
    as a whole, once. `cut`: the line ends within a text that a user chose, so a line feed in it may have broken the
    record (`publisher.sources.logs.broken_record`).
    """

    reason: str
    raw: bytes | None = None
    hint: str = ""
    back: int = 0
    cut: bool = False

    def of_file(self, file: str, offset: int | None = None) -> Unreadable:
        """As unreadable input of a file, where the place in it is not known as a line."""
        return Unreadable(file, None, offset, self.reason, (self.raw or b"")[:RAW_BYTES])


Outcome = Job | Line | UnreadableLine
"""What a piece of the input is: a line, an element of a document, or a record of a program's output."""


class Window(msgspec.Struct, frozen=True):
    """End times to read again, epoch seconds UTC: `from_` inclusive, `until` exclusive; None is open."""

    from_: int | None = None
    until: int | None = None

    def holds(self, end: int | None) -> bool:
        """Whether what ended then, if it did, ended in the window."""
        if end is None:
            return False
        return (self.from_ is None or end >= self.from_) and (self.until is None or end < self.until)


class PageBuilder:
    """Fills the pages of a source, in the order of the source, and counts what is looked at.

    A run with a text that is too long is cut or unreadable (`publisher.sources.limits`). With a window, runs that did
    not end in it are skipped; `keep_running`: except those in progress, which have no end.
    """

    def __init__(self, window: Window | None = None, *, keep_running: bool = False) -> None:
        self._window = window
        self._keep_running = keep_running
        self._clear()

    def _clear(self) -> None:
        self.jobs: list[Job] = []
        """What `add` was given, and runs whose texts need no look: those are appended here."""
        self.marks: list[bytes | None] = []
        """Those of the runs, one each, from a source that gives marks."""
        self.unreadable: list[Unreadable] = []
        self.skipped = 0

    @property
    def read(self) -> int:
        """How much was looked at."""
        return len(self.jobs) + len(self.unreadable) + self.skipped

    def add(self, outcome: Outcome, place: Callable[[UnreadableLine], Unreadable]) -> None:
        """Add what a piece of the input is; `place` says where it is if it is unreadable."""
        if isinstance(outcome, Job):
            try:
                self.jobs.append(bounded(outcome))
            except LimitError as error:
                self.unreadable.append(place(UnreadableLine(str(error))))
        elif isinstance(outcome, UnreadableLine):
            self.unreadable.append(place(outcome))
        elif outcome is Line.SKIPPED:
            self.skipped += 1

    def extend(self, part: PageBuilder) -> None:
        """Add all that was added to another one."""
        self.jobs += part.jobs
        self.marks += part.marks
        self.unreadable += part.unreadable
        self.skipped += part.skipped

    def page(
        self,
        cursor: Cursor,
        *,
        at_end: bool = False,
        recognised: Recognised = NONE_RECOGNISED,
        recovered: tuple[Recovered, ...] = (),
    ) -> Page:
        """The page of what was added since the last one."""
        read, jobs, marks = self.read + recognised.unchanged, self.jobs, self.marks
        if self._window is not None:
            inside = [self._is_inside(job.end) for job in jobs]
            self.skipped += inside.count(False)
            jobs, marks = list(compress(jobs, inside)), list(compress(marks, inside))
        page = Page(
            jobs=tuple(jobs),
            cursor=cursor,
            read=read,
            skipped=self.skipped,
            unreadable=tuple(self.unreadable),
            at_end=at_end,
            marks=tuple(marks),
            recognised=recognised,
            recovered=recovered,
        )
        self._clear()
        return page

    def _is_inside(self, end: int | None) -> bool:
        if end is None and self._keep_running:
            return True
        return self._window is None or self._window.holds(end)


class EncodedPage(msgspec.Struct, frozen=True):
    """A page whose runs are in the form in which they are stored."""

    runs: tuple[EncodedRun, ...]
    cursor: Cursor
    read: int
    skipped: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    at_end: bool = False
    recognised: Recognised = NONE_RECOGNISED
    recovered: tuple[Recovered, ...] = ()


def encode_page(page: Page | EncodedPage, *, classed: bool) -> EncodedPage:
    """A page with its runs encoded; `classed`: with the keys of their classes."""
    if isinstance(page, EncodedPage):
        return page
    marks = page.marks or (None,) * len(page.jobs)
    unreadable = tuple([msgspec.structs.replace(each, file=utf8(each.file)) for each in page.unreadable])
    runs = tuple([encode_run(job, classed=classed, mark=mark) for job, mark in zip(page.jobs, marks, strict=True)])
    return EncodedPage(
        runs, page.cursor, page.read, page.skipped, unreadable, page.at_end, page.recognised, page.recovered
    )


def waiting_in(cursor: Cursor) -> tuple[str, ...]:
    """What a cursor says to be waiting for what completes it: sentences for people."""
    found = cursor.get(WAITING)
    return tuple([text for text in found if isinstance(text, str)]) if isinstance(found, list) else ()


def required_path(name: str, settings: schema.SourceSettings, what: str, example: str) -> Path:
    """The path of a source that cannot do without: of what, and for instance. Raises `ConfigError`."""
    if settings.path is None:
        raise ConfigError(
            f"a source of type {settings.type} needs the path of {what}",
            key=f"sources.{name}.path",
            hint=f'For instance path = "{example}"',
        )
    return settings.path


class Reader(Protocol):
    """What collecting needs of a source, here or in a worker process."""

    name: str
    kind: str

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page | EncodedPage]:
        """See `Source.pages`."""
        ...

    def complete_since(self) -> int | None:
        """See `Source.complete_since`."""
        ...


@runtime_checkable
class Recognising(Protocol):
    """What a source of this program has besides that recognises by its mark what is stored, without reading it."""

    def window_pages(self, cursor: Cursor, window: Window, known: Known) -> Iterator[Page | EncodedPage]:
        """The pages of a window as `Source.pages` gives them, without the runs that `known` knows with their marks.

        A page is looked up when it is asked for: what came before it must be stored by then.
        """
        ...


class Source(Reader, Protocol):
    """A source of jobs under its name in the configuration."""

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """Read from the cursor to the present end; the last page has `at_end`. Memory does not grow with the input.

        With a window, runs whose end lies in it are read again, wherever the cursor is, and the cursors of the
        pages are the one that was given.

        Raises `SourceError` and its kinds.
        """
        ...

    def complete_since(self) -> int | None:
        """From which end time on (epoch seconds) this source knows every run; None where it does not know."""
        ...

    def check(self) -> list[Finding]:
        """What an administrator should know: readable, understood, first and last run seen."""
        ...
