"""Source `arc`: finished jobs of an ARC compute element, from its accounting database.

No finished job is missed, however late and in whatever order jobs finish, and a job that changes afterwards is given
again. ARC inserts a row when it accepts a job (status in-progress, EndTime 0) and updates it at the end, so neither
RecordID nor EndTime is the order of finishing, and no column says when a row was changed. Therefore:

1. A new row has a higher RecordID than every earlier row (AUTOINCREMENT, one writer at a time): rows above the
   highest known RecordID are read in that order.
2. A known row was either given as a finished job, or is *pending*: the cursor has its RecordID. Each reading finds,
   by index, the jobs that are in progress now; a pending job that is not among them has ended and is read, whatever
   its EndTime and with or without events. A job in progress now is pending, even if it was given before.
3. ARC writes the end of a job in several transactions: the row, its environments, transfers, extra information, and
   its FINISHED event last. Side tables only grow: every known row with new side rows is read again. A job that
   ended within the last minute and has no FINISHED event waits for the next reading, since services keep the first
   version of a record.
4. Rows that changed after they were given, without new side rows, are found by digests of table AAR over slices of
   EndTime that reach `overlap` back from the newest end at the last reading: a slice that differs is read again.
   Marks and digests are taken before a reading begins, so the next reading finds changes during it.
5. A database in which the highest known RecordID has another JobID, or is missing, is another database or an older
   copy: it is read from its beginning. Reading twice is harmless, since the record id is that of the run.

Steps 2 to 4 cost time in proportion to what changed. Pages of rows that are read again carry the given cursor, so that
an interrupted reading repeats them.

`ArcCursor` is where reading stopped, in a compact form.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.config.sources import SourceSettings
from publisher.errors import PublisherError, SourceFormatError
from publisher.finding import Finding
from publisher.sources.arc.database import AAR_COLUMNS, DENSE, ArcDatabase, Row, Rows
from publisher.sources.arc.file import PERMISSION_HINT, VERSION_2, find_database
from publisher.sources.arc.jobs import RowReader, UnreadableRowError
from publisher.sources.arc.unchanged import ComparedRows, Marks, RowMarks, compare
from publisher.sources.base import Cursor, Known, Page, PageBuilder, Unreadable, UnreadableLine, Window, required_path
from publisher.sources.tool import ToolSums, run

Slice = tuple[int, int | None, str]
"""A span of AAR.EndTime (from, before; None is open) and the digest of the rows of table AAR in it."""


class ArcCursor(msgspec.Struct, frozen=True):
    """The state between two readings.

    `last` is the highest RecordID that was read and `anchor` its JobID; `pending` are the RecordIDs up to it that were
    not yet given as finished jobs, `reported` those of them that were reported as unreadable (both packed, see `pack`);
    `marks` is the highest rowid of each side table and `slices` the rows of the overlap, both as they were *before* the
    reading began.
    """

    last: int = 0
    anchor: str | None = None
    pending: str = ""
    reported: str = ""
    marks: dict[str, int] = {}
    slices: tuple[Slice, ...] = ()

    @classmethod
    def of(cls, cursor: Cursor) -> ArcCursor:
        """From the plain form. Any other form counts as the beginning: reading everything again changes nothing."""
        try:
            cursor_fields = msgspec.convert(dict(cursor), cls)
            unpack(cursor_fields.pending)
            unpack(cursor_fields.reported)
        except (msgspec.ValidationError, ValueError):
            return cls()
        return cursor_fields

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


def pack(ids: Iterable[int]) -> str:
    """Positive ids as text: steps from one run of ids to the next, `5`, or `5+3` if three more follow directly."""
    runs: list[list[int]] = []
    for number in sorted(ids):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    words: list[str] = []
    before = 0
    for first, last in runs:
        words.append(f"{first - before}+{last - first}" if last > first else str(first - before))
        before = last
    return ",".join(words)


def unpack(text: str) -> set[int]:
    """The ids of their packed form. Raises ValueError for other text."""
    ids: set[int] = set()
    end = 0
    for word in text.split(",") if text else ():
        step, _, more = word.partition("+")
        first = end + int(step)
        end = first + int(more or 0)
        ids.update(range(first, end + 1))
    return ids


PAGE_ROWS: Final = 2_000
SETTLE_S: Final = 60
"""A job that ended less than this ago, without its FINISHED event, may be incomplete."""

_HOUR_S: Final = 3_600
_SLICES: Final = 168
_DAY_S: Final = 86_400
_NOTHING_BEFORE: Final = ArcCursor()


class ArcSource:
    """Jobs of one accounting database; see the module for how it reads. `clock` gives epoch seconds."""

    kind = "arc"

    def __init__(
        self,
        name: str,
        settings: SourceSettings,
        *,
        clock: Callable[[], float] = time.time,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        self.name = name
        self._path = required_path(
            name, settings, "ARC's accounting.db", "/var/spool/arc/jobstatus/accounting/accounting.db"
        )
        self._settings = settings
        self._clock = clock
        self._page_rows = page_rows

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `publisher.sources.base.Source.pages`. Jobs in progress are given as running, and again when they end."""
        with closing(self._open()) as database:
            if window is None:
                yield from self._what_is_new(database, cursor)
            else:
                yield from self._of_window(database, cursor, window, None)

    def window_pages(self, cursor: Cursor, window: Window, known: Known) -> Iterator[Page]:
        """See `publisher.sources.base.Recognising`."""
        with closing(self._open()) as database:
            yield from self._of_window(database, cursor, window, known)

    def complete_since(self) -> int | None:
        """The configured time, else the first acceptance: a database knows every job accepted after it was made."""
        if self._settings.complete_since is not None:
            return self._settings.complete_since
        with closing(self._open()) as database:
            return database.first_submit()

    def tool_sums(self, window: Window, _clusters: Collection[str], /) -> ToolSums:
        """See `publisher.sources.tool.HasTool`: the sums of `arcctl` for the database of ARC's configuration.

        Its ends begin after the first instant and include the last.
        """
        ends: list[str] = []
        for option, at in (("-b", window.from_), ("-e", window.until)):
            if at is not None:
                ends += [option, datetime.fromtimestamp(at - 1, UTC).strftime("%Y-%m-%d %H:%M:%S")]
        figures = []
        for output in ("jobcount", "walltime", "cputime"):
            words = [line.strip() for line in run("arcctl", "accounting", "stats", *ends, "-o", output)]
            if len(words) != 1 or not words[0].isdecimal():
                raise SourceFormatError(f"arcctl printed a text that is not a number: {' '.join(words)[:200]}")
            figures.append(int(words[0]))
        jobs, wall_s, cpu_s = figures
        return ToolSums("arcctl", jobs=jobs, wall_ms=wall_s * 1000, cpu_ms=cpu_s * 1000)

    def check(self) -> list[Finding]:
        """Check that the database can be read, now and when its writer has stopped, and list its content."""
        subject = f"source {self.name}"
        try:
            with closing(self._open()) as database:
                counts = database.counts_by_status()
                first, newest = database.first_submit(), database.newest_end()
                version = database.schema_version()
                path = database.path
        except PublisherError as error:
            return [Finding(subject, "red", error.message, error.hint)]
        total = sum(counts.values())
        listed = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        findings = [
            Finding(
                subject,
                "green" if total else "yellow",
                f"{path}: schema version {version}, {total} jobs" + (f" ({listed})" if total else ""),
                "" if total else "ARC has not accepted a job yet; or this is not the database that A-REX writes",
            )
        ]
        if first is not None and newest:
            findings.append(
                Finding(subject, "green", f"first job accepted {_utc(first)}, last job ended {_utc(newest)}")
            )
        findings.append(self._check_files(subject, path))
        if path.name != VERSION_2 and path.with_name(VERSION_2).exists():
            findings.append(
                Finding(
                    subject,
                    "yellow",
                    f"{VERSION_2}, which ARC 7 writes, is in the same folder; this source does not read it",
                    "Add a source with its path, and keep this one until its last job was collected",
                )
            )
        return findings

    def _check_files(self, subject: str, path: Path) -> Finding:
        # The presence of SQLite's files shows nothing: a reader without write permission leaves those it had to create.
        if os.access(path.parent, os.W_OK):
            return Finding(subject, "green", f"{path} can be read, also while A-REX is stopped")
        return Finding(
            subject,
            "yellow",
            f"{path} can be read while A-REX runs, but not while it is stopped: this user may not write in "
            f"{path.parent}",
            PERMISSION_HINT,
        )

    def _open(self) -> ArcDatabase:
        return ArcDatabase(find_database(self._path), self._settings.busy_timeout)

    def _reading(
        self,
        database: ArcDatabase,
        before: ArcCursor = _NOTHING_BEFORE,
        in_progress: Iterable[int] = (),
        *,
        settle_after: float | None = None,
    ) -> _ArcReading:
        settings = (self._settings.start_time == "execution", self._settings.end_time == "lrms")
        has_groups = self._settings.token_groups
        reader = RowReader(
            database.names, start_from_execution=settings[0], end_from_lrms=settings[1], has_token_groups=has_groups
        )
        # Without this setting, marks are those of earlier versions: unchanged rows are not read again.
        marks = RowMarks(database.names, *settings, *([True] if has_groups else []))
        return _ArcReading(str(database.path), reader, marks, before, in_progress, settle_after)

    # --- what is new

    def _what_is_new(self, database: ArcDatabase, given: Cursor) -> Iterator[Page]:
        before = ArcCursor.of(given)
        if before.last and database.job_id(before.last) != before.anchor:
            before = ArcCursor()
        with database.snapshot():
            in_progress = database.in_progress(before.last)
            marks = database.side_marks()
            touched = database.touched(before.marks, marks, before.last) if before.last else set()
        slices = self._slices(database)
        changed = _changed(database, before.slices, slices) if before.last else []
        reading = self._reading(database, before, in_progress, settle_after=self._clock() - SETTLE_S)

        again = sorted((unpack(before.pending) - in_progress) | touched)
        for start in range(0, len(again), self._page_rows):
            ids = again[start : start + self._page_rows]
            yield reading.page(database.of_ids(ids), given)
        read_again = set(again)
        for since, until in changed:
            for rows in self._ended(database, since, until, database.extent(since, until)):
                left = _without(rows, read_again, before.last)
                if left.aar:  # rows after the last one follow
                    yield reading.page(left, given)

        last, anchor, at_end = before.last, before.anchor, False
        highest = database.last_record_id()

        def next_page() -> Page:  # a function, so that nothing keeps the rows and runs of a page while it is stored
            nonlocal last, anchor, at_end
            rows = database.after(last, self._page_rows)
            at_end = len(rows.aar) < self._page_rows
            page = reading.page(rows, {})
            if rows.aar:
                last = rows.aar[-1][0]
                anchor = database.job_id(last)
            cursor = ArcCursor(last, anchor, pack(reading.pending), pack(reading.reported), marks, slices)
            share = min(1.0, last / highest) if highest else None
            return msgspec.structs.replace(page, cursor=cursor.plain(), at_end=at_end, share=share)

        while not at_end:
            yield next_page()

    def _slices(self, database: ArcDatabase) -> tuple[Slice, ...]:
        newest = min(database.newest_end(), int(self._clock()))
        overlap = int(self._settings.overlap)
        if newest <= 0 or overlap == 0:
            return ()
        width = _HOUR_S * max(1, -(-overlap // (_HOUR_S * _SLICES)))
        starts = range((newest - overlap) // width * width, newest + 1, width)
        spans = [*((start, start + width) for start in starts), (starts[-1] + width, None)]
        slices = ((since, until, database.digest_of_ends(since, until)) for since, until in spans)
        return tuple((since, until, digest) for since, until, digest in slices if digest is not None)

    # --- a window

    def _of_window(self, database: ArcDatabase, given: Cursor, window: Window, known: Known | None) -> Iterator[Page]:
        since, until = window.from_ or 0, window.until
        if self._settings.end_time == "lrms":
            # LRMSEND is before EndTime, by the time of the stage-out; a worker node's clock may be ahead.
            since, until = max(0, since - _DAY_S), None
        reading = self._reading(database)
        extent = database.extent(since, until)
        done = 0
        for rows in self._ended(database, since, until, extent):
            done += len(rows.aar)
            share = min(1.0, done / max(extent[0], 1))
            yield msgspec.structs.replace(reading.page_of_window(rows, given, window, known), share=share)
        yield Page(jobs=(), cursor=given, read=0, at_end=True)

    def _ended(
        self, database: ArcDatabase, since: int, until: int | None, extent: tuple[int, int, int]
    ) -> Iterator[Rows]:
        """The rows that end in a span of this extent. Jobs end nearly in the order of their rows, in which they are
        read much faster.
        """
        count, low, high = extent
        if high - low >= DENSE * count:
            yield from self._by_end(database, since, until)
            return
        last = low - 1
        while True:
            rows = database.between(last, high, since, until, self._page_rows)
            if rows.aar:
                yield rows
            if len(rows.aar) < self._page_rows:
                return
            last = rows.aar[-1][0]

    def _by_end(self, database: ArcDatabase, since: int, until: int | None) -> Iterator[Rows]:
        after = (since - 1, 0)
        for _ in itertools.count():
            rows = database.by_end(since, until, after, self._page_rows)
            if rows.aar:
                yield rows
            if len(rows.aar) < self._page_rows:
                return
            after = (rows.aar[-1][AAR_COLUMNS.index("EndTime")], rows.aar[-1][0])


class _ArcReading:
    """One reading: makes pages of rows, and knows which rows were not yet given as finished jobs."""

    def __init__(
        self,
        file: str,
        reader: RowReader,
        marks: RowMarks,
        before: ArcCursor,
        in_progress: Iterable[int],
        settle_after: float | None,
    ) -> None:
        self.pending = unpack(before.pending) | set(in_progress)
        self.reported = unpack(before.reported)
        self._file = file
        self._reader = reader
        self._marks = marks
        self._settle_after = settle_after

    def page(self, rows: Rows, cursor: Cursor) -> Page:
        """The page of some rows."""
        page = PageBuilder()
        self._fill(page, rows, self._marks.of(rows))
        return page.page(cursor)

    def page_of_window(self, rows: Rows, cursor: Cursor, window: Window, known: Known | None) -> Page:
        """The page of the rows that ended in a window and are not known."""
        compared = ComparedRows(rows, self._marks.of(rows))
        if known is not None:
            compared = compare(rows, compared.marks, self._reader, known, window)
        page = PageBuilder(window)
        self._fill(page, compared.rows, compared.marks)
        page.skipped += compared.outside
        return page.page(cursor, recognised=compared.recognised)

    def _fill(self, page: PageBuilder, rows: Rows, row_marks: Marks) -> None:
        jobs, marks = page.jobs, page.marks
        for row, mark in zip(rows.aar, row_marks, strict=True):
            record_id = row[0]
            try:
                job = self._reader.job(row, rows.sides)
            except UnreadableRowError as error:
                self.pending.add(record_id)
                if record_id not in self.reported:
                    self.reported.add(record_id)
                    page.unreadable.append(self._unreadable(row, str(error)))
                else:
                    page.skipped += 1
                continue
            self.reported.discard(record_id)
            if not job.finished:
                self.pending.add(record_id)
            elif self._half_written(row, job):
                self.pending.add(record_id)
                page.skipped += 1
                continue
            else:
                self.pending.discard(record_id)
            jobs.append(job)
            marks.append(mark)

    def _half_written(self, row: Row, job: Job) -> bool:
        if self._settle_after is None or not 0 <= row[_END] - self._settle_after <= 2 * SETTLE_S:
            return False
        return job.events is None or "FINISHED" not in job.events.kinds.split(" ")

    def _unreadable(self, row: Row, reason: str) -> Unreadable:
        raw = msgspec.json.encode(dict(zip(AAR_COLUMNS, row, strict=True)))
        return UnreadableLine(reason, raw).of_file(self._file, row[0])


_END: Final = AAR_COLUMNS.index("EndTime")


def _changed(database: ArcDatabase, before: tuple[Slice, ...], now: tuple[Slice, ...]) -> list[tuple[int, int | None]]:
    """Spans whose rows differ from before. Spans that have left the overlap since then are checked a last time."""
    spans = {since for since, _, _ in now}
    changed = [(since, until) for since, until, _ in set(now) - set(before)]
    for since, until, digest in before:
        if since not in spans and until is not None and database.digest_of_ends(since, until) not in {digest, None}:
            changed.append((since, until))
    return sorted(changed, key=lambda span: span[0])


def _without(rows: Rows, ids: set[int], last: int) -> Rows:
    return Rows([row for row in rows.aar if row[0] <= last and row[0] not in ids], rows.sides)


def _utc(epoch_s: int) -> str:
    return datetime.fromtimestamp(epoch_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
