"""The protocol of a source of jobs, between the accounting of batch systems and the store.

A source reads forward from a cursor, whose content only the source knows, and gives pages: runs, input that could not
be read, and the next cursor. The caller stores a page and its cursor in one transaction, so nothing is read twice or
skipped. A source never writes to what it reads. Every source fills its pages with a `PageBuilder`.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

import msgspec

from formats.identity import encode
from formats.job import Job
from publisher.config.sources import SourceSettings
from publisher.encoded_run import EncodedRun, encode_run
from publisher.errors import ConfigError
from publisher.finding import Finding
from publisher.sources.limits import LimitError, bounded
from publisher.text import utf8

_json_of = json.JSONEncoder(separators=(",", ":")).encode
Cursor = Mapping[str, Any]
"""Where reading stopped, as plain JSON values; only the source knows their meaning. Empty: read from the beginning.

Others read only the key `waiting`: a list of texts, each of which describes incomplete input.
"""


FILE_MARKS: Final = "\0file marks"
"""The key of a cursor under which a caller that stores the marks of log files one by one gives them: a function that
gives their texts (`StoredMarks`). It is not a part of the cursor's stored form, so it begins as no key of an add-on's
cursor does."""
StoredMarks = Callable[[], Iterable[str]]


class MarkChange(msgspec.Struct, frozen=True, array_like=True):
    """The mark of a log file (`publisher.sources.logs.mark`) as it must be stored now; None: no more.

    `file`: its device and inode, as a text.
    """

    file: str
    mark: str | None


def text_of(cursor: Cursor) -> str:
    """The stored form of a cursor: JSON, which may contain file names that are not UTF-8."""
    values = (f"{_json_of(name)}:{_text_of_value(value)}" for name, value in cursor.items() if name != FILE_MARKS)
    return "{" + ",".join(values) + "}"


def _text_of_value(value: Any) -> str:
    """JSON of a value of a cursor. The items of a list are encoded one by one: the encoder makes a text of each part of
    its result, which takes 2 KiB a file of a log with thousands of files."""
    return "[" + ",".join(map(_json_of, value)) + "]" if isinstance(value, list) else _json_of(value)


def cursor_of(text: str) -> Cursor:
    """The cursor of a stored form. Raises `ValueError`."""
    # Not by msgspec: the name of a file that is not UTF-8 is in it as a lone surrogate, which msgspec refuses.
    cursor = json.loads(text)
    if not isinstance(cursor, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - what reading a damaged text raises
    return cursor


Known = Callable[[Sequence[str]], Mapping[str, tuple[bytes, int]]]
"""Gives, for record ids, the mark and the end of those runs that are stored as finished.

A mark is a digest of all that a source has of a run and of how it is read: the same mark means the same run.
"""

ONE_SOURCE: Final = "Read each job from one source, or set `sources` of the target (docs/reference/counted-once.md)"
"""What to do where two sources have the same jobs."""
WAITING: Final = "waiting"

FUTURE_S: Final = 86_400
"""A job that ended more than this after now shows that a clock is wrong."""

PAGE_RECORDS: Final = 2_000
"""The least number of runs, unreadable pieces of input, and skipped pieces in a page, unless it is the last."""

RAW_BYTES: Final = 65_536
"""The most bytes that are kept of an unreadable piece of input."""


class Unreadable(msgspec.Struct, frozen=True):
    """A piece of input that is not a record: kept with its place and reason.

    `raw` holds at most its first `RAW_BYTES`; `offset` is its byte offset in the file, its row id, or its number among
    the jobs of a document. `unread_from`: the file disappeared before it was read to its end; the jobs in it that were
    not read ended then (epoch seconds) or later. `identity` distinguishes such files: several may disappear from one
    place after the same number of bytes. `suspect`: the run that the piece gives if no user made it: it is held, and
    counted nowhere, until somebody accepts it. `given`: the same of a run that an earlier reading gave.
    """

    file: str
    line: int | None
    offset: int | None
    reason: str
    raw: bytes
    unread_from: int | None = None
    identity: str = ""
    suspect: Job | None = None
    given: Job | None = None


class Recovered(msgspec.Struct, frozen=True):
    """What was given as `Unreadable` and is not any more: the files at a place that disappeared before they were read
    to their end, if all were found again; with `raw`, a piece with this text that is complete now.
    """

    file: str
    offset: int
    raw: bytes | None = None


class Recognised(msgspec.Struct, frozen=True):
    """Runs that were found unchanged in the store by their marks and not read further: `count` in all, `unchanged` in
    the window.

    `last_end`: the latest end of those in the window, epoch seconds.
    """

    count: int = 0
    unchanged: int = 0
    last_end: int | None = None


NONE_RECOGNISED: Final = Recognised()


class Page(msgspec.Struct, frozen=True):
    """Some runs in the order of the source, and the cursor after them.

    `skipped` counts input that was understood and is not a run to keep (never started, headers). `read` counts all
    input. `at_end` is True on the last page: the source was read to its present end. `marks`: one for each run, from a
    source that gives marks. `recovered`: files that are no longer `unreadable`.
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
    merged: int = 0
    """Input that was understood and is a part of a run that has another record."""
    share: float | None = None
    """About how much of the source is read, 0 to 1; None: unknown."""
    file_marks: tuple[MarkChange, ...] = ()
    """For a caller that stores them one by one: those that changed since the page before; of several of a file, the
    last one."""


class Line(enum.Enum):
    """The meaning of a line that gives no job by itself.

    `SKIPPED`: understood, but not a run to keep, such as a job that never started; counted. `MERGED`: a part of a run
    that has another record, such as a slave or a step; counted. `IGNORED`: not a record, such as a comment; not
    counted. `MORE`: kept by the parser until later lines complete it; not counted.
    """

    SKIPPED = enum.auto()
    MERGED = enum.auto()
    IGNORED = enum.auto()
    MORE = enum.auto()


class UnreadableLine(msgspec.Struct, frozen=True):
    """A line that is not a record, and why: one sentence without the content of the line.

    `raw` replaces the line if the parser refuses an earlier one, `back` lines before the present one. With `hint` (what
    to do), the line is the header of a table that cannot be used: a file of which no line is understood for that reason
    is refused as a whole, once. `cut`: the line ends within a text that a user chose, so a line feed in it may have
    broken the record (`publisher.sources.logs.broken_record`).

    `is_rest`: the line ends a record that does not begin in it, so the lines before it may be text of a user.
    `suspect`: see `Unreadable`.
    """

    reason: str
    raw: bytes | None = None
    hint: str = ""
    back: int = 0
    cut: bool = False
    is_rest: bool = False
    suspect: Job | None = None

    def of_file(self, file: str, offset: int | None = None) -> Unreadable:
        """The line as unreadable input of a file, if its line number is unknown."""
        return Unreadable(file, None, offset, self.reason, (self.raw or b"")[:RAW_BYTES], suspect=self.suspect)


Outcome = Job | Line | UnreadableLine
"""The result of parsing a piece of the input: a line, an element of a document, or a record of a program's output."""


class Window(msgspec.Struct, frozen=True):
    """End times to read again, epoch seconds UTC: `from_` inclusive, `until` exclusive; None is open."""

    from_: int | None = None
    until: int | None = None

    def holds(self, end: int | None) -> bool:
        """Whether an end, if there is one, is in the window."""
        if end is None:
            return False
        return (self.from_ is None or end >= self.from_) and (self.until is None or end < self.until)


class PageBuilder:
    """Fills the pages of a source, in the order of the source, and counts the input.

    A run with a text that is too long is cut or unreadable (`publisher.sources.limits`). With a window, runs that did
    not end in it are skipped; `keep_running`: except running ones, which have no end.
    """

    def __init__(self, window: Window | None = None, *, keep_running: bool = False) -> None:
        self._window = window
        self._keep_running = keep_running
        self._clear()

    def _clear(self) -> None:
        self.jobs: list[Job] = []
        """What `add` was given, and runs whose texts need no check: those are appended here."""
        self.marks: list[bytes | None] = []
        """One for each run, from a source that gives marks."""
        self.unreadable: list[Unreadable] = []
        self.skipped = 0
        self.merged = 0

    @property
    def read(self) -> int:
        """How many pieces of input were read."""
        return len(self.jobs) + len(self.unreadable) + self.skipped + self.merged

    def add(self, outcome: Outcome, place: Callable[[UnreadableLine], Unreadable]) -> None:
        """Add the outcome of a piece of input; `place` gives its place if it is unreadable."""
        if isinstance(outcome, Job):
            try:
                self.jobs.append(bounded(outcome))
            except LimitError as error:
                self.unreadable.append(place(UnreadableLine(str(error))))
        elif isinstance(outcome, UnreadableLine):
            self.unreadable.append(place(outcome))
        elif outcome is Line.SKIPPED:
            self.skipped += 1
        elif outcome is Line.MERGED:
            self.merged += 1

    def extend(self, part: PageBuilder) -> None:
        """Add the content of another builder."""
        self.jobs += part.jobs
        self.marks += part.marks
        self.unreadable += part.unreadable
        self.skipped += part.skipped
        self.merged += part.merged

    def page(
        self,
        cursor: Cursor,
        *,
        at_end: bool = False,
        recognised: Recognised = NONE_RECOGNISED,
        recovered: tuple[Recovered, ...] = (),
        share: float | None = None,
        file_marks: tuple[MarkChange, ...] = (),
    ) -> Page:
        """The page of everything added since the last one."""
        read, jobs, marks = self.read + recognised.unchanged, self.jobs, self.marks
        if self._window is not None:
            self.unreadable = [
                piece for piece in self.unreadable if piece.suspect is None or self._is_inside(piece.suspect.end)
            ]
            inside = [self._is_inside(job.end) for job in jobs]
            self.skipped += inside.count(False)
            jobs, marks = list(compress(jobs, inside)), list(compress(marks, inside))
        if suspects := {encode(piece.suspect) for piece in self.unreadable if piece.suspect is not None}:
            # A user's text may occur in two records, of the start and of the end, and give the same run there. Only
            # equal runs are taken for it: a forged record may have the id and times of a true one.
            trusted = [encode(job) not in suspects for job in jobs]
            jobs, marks = list(compress(jobs, trusted)), list(compress(marks, trusted))
        page = Page(
            jobs=tuple(jobs),
            cursor=cursor,
            read=read,
            skipped=self.skipped,
            merged=self.merged,
            unreadable=tuple(self.unreadable),
            at_end=at_end,
            marks=tuple(marks),
            recognised=recognised,
            recovered=recovered,
            share=share,
            file_marks=file_marks,
        )
        self._clear()
        return page

    def _is_inside(self, end: int | None) -> bool:
        if end is None and self._keep_running:
            return True
        return self._window is None or self._window.holds(end)


class EncodedPage(msgspec.Struct, frozen=True):
    """A page whose runs are encoded as they are stored, and its cursor, of which a window has none."""

    runs: tuple[EncodedRun, ...]
    cursor: str
    read: int
    skipped: int = 0
    unreadable: tuple[Unreadable, ...] = ()
    at_end: bool = False
    recognised: Recognised = NONE_RECOGNISED
    recovered: tuple[Recovered, ...] = ()
    merged: int = 0
    share: float | None = None
    file_marks: tuple[MarkChange, ...] = ()


def encode_page(page: Page | EncodedPage, *, again: bool) -> EncodedPage:
    """Encode the runs of a page with the keys of their classes; `again`: of a window, without them."""
    if isinstance(page, EncodedPage):
        return page
    marks = page.marks or (None,) * len(page.jobs)
    unreadable = tuple([msgspec.structs.replace(each, file=utf8(each.file)) for each in page.unreadable])
    runs = tuple([encode_run(job, classed=not again, mark=mark) for job, mark in zip(page.jobs, marks, strict=True)])
    return EncodedPage(
        runs=runs,
        cursor="" if again else text_of(page.cursor),
        read=page.read,
        skipped=page.skipped,
        unreadable=unreadable,
        at_end=page.at_end,
        recognised=page.recognised,
        recovered=page.recovered,
        merged=page.merged,
        share=page.share,
        file_marks=page.file_marks,
    )


def waiting_in(cursor: Cursor) -> tuple[str, ...]:
    """The incomplete input in a cursor: sentences for people."""
    return _texts(cursor.get(WAITING))


def waiting_of(text: str) -> tuple[str, ...]:
    """The incomplete input in the stored form of a cursor. Raises `ValueError`."""
    return waiting_in(cursor_of(text))


def _texts(found: Any) -> tuple[str, ...]:
    return tuple([text for text in found if isinstance(text, str)]) if isinstance(found, list) else ()


def required_path(name: str, settings: SourceSettings, what: str, example: str) -> Path:
    """The path of a source that needs one; `what` it is, and an `example`. Raises `ConfigError`."""
    if settings.path is None:
        raise ConfigError(
            f"a source of type {settings.type} needs the path of {what}",
            key=f"sources.{name}.path",
            hint=f'For instance path = "{example}"',
        )
    return settings.path


class Reader(Protocol):
    """The part of a source that collecting uses, in this process or in a worker."""

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
    """A source of this program that recognises by its mark a run that is stored, without reading it."""

    def window_pages(self, cursor: Cursor, window: Window, known: Known) -> Iterator[Page | EncodedPage]:
        """The pages of a window as `Source.pages` gives them, without the runs that `known` knows with their marks.

        A page is looked up when it is asked for: earlier pages must be stored by then.
        """
        ...


class Source(Reader, Protocol):
    """A source of jobs under its name in the configuration."""

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """Read from the cursor to the present end; the last page has `at_end`. Memory does not grow with the input.

        With a window, runs whose end is in it are read again, independently of the cursor, and the pages carry the
        given cursor.

        Raises `SourceError` and its kinds.
        """
        ...

    def complete_since(self) -> int | None:
        """The end time (epoch seconds) from which this source knows every run; None: unknown."""
        ...

    def check(self) -> list[Finding]:
        """Findings for an administrator: whether the source can be read and understood, the first and last run."""
        ...
