"""Lines of Slurm's accounting as runs: tables of sacct, and the job completion log.

The last allocation waits for steps that may follow. At the end of the log it is given anyway, and again if steps follow
later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.sources.base import RAW_BYTES, Line, Outcome, Recovered, UnreadableLine
from publisher.sources.fields import LineError, decoded
from publisher.sources.logs.broken_record import AFTER_CUT
from publisher.sources.slurm import jobcomp
from publisher.sources.slurm.known_columns import WITHOUT_HEADER, without_header
from publisher.sources.slurm.refusals import (
    BY_OTHER_HEADER,
    CUT_OFF,
    IN_LOG,
    NO_FIELDS,
    NO_HEADER,
    OTHER_HEADER,
    WRITTEN_BY,
    lacking,
    why,
)
from publisher.sources.slurm.run import AllocationSteps, ParserState
from publisher.sources.slurm.table import MOST_EXCESS, Layout, ShiftedError
from publisher.sources.slurm.values import Clock

MOST_BYTES: Final = 131_072
"""The most bytes of the lines that one record is put together from."""

_MOST_LOG_BYTES: Final = 16_384
"""The same in a job completion log, if there are records between: slurmctld takes 1,024 bytes of a name and 4,096 of a
folder, so a broken record is not longer, and no more jobs of others are held.
"""
_MOST_TRIED: Final = 64
"""The number of lines before the end of a record among which its beginning is searched, or after which its end is."""
_MOST_FILES: Final = 16

_ASSUMED: Final = frozenset(layout.header for layout in WITHOUT_HEADER)


class SlurmParser:
    """A `LineParser` of sacct's tables with a header and of job completion logs; each file is one of them.

    `cluster` is used if the table has no such column. `file` is the one that is being read.

    Both contain texts of users unchanged, so a record may have many lines, and one of them may look like a record or a
    header. After the beginning of a record that is cut in a text, such a line waits for the next line: if that one ends
    the record, the line belonged to its text. (What users can still forge is in docs/reference/sources/slurm.md.)
    """

    reads: frozenset[str] = frozenset({"slurm", "slurm-jobcomp"})
    gives_late = True

    def __init__(self, cluster: str | None, zone: str) -> None:
        self._runs = AllocationSteps(Clock(zone), cluster or "")
        self._layout: Layout | None = None
        self._unusable: Layout | None = None
        self._layouts: dict[str, Layout] = {}
        self._begun: list[bytes] = []
        self._begun_bytes = 0
        self._begun_delimiters = 0
        self._holds_others = False
        """After the beginning of a record there are records or headers, unless they belong to its text."""
        self._tried = 0
        """How many later lines may have been the end of the record of a log that was begun, and were not."""
        self._is_reported = False
        self._completion: list[str] = []
        """Files that are job completion logs of a version that ends each record with the exit code."""
        self._log: str | None = None
        """The file, if it is a job completion log."""
        self._later: dict[str, Layout] = {}
        """By file, a header that came after rows of another one: it is used only for lines that do not fit the first,
        and until one fits that again, since a user's text may contain a header.
        """
        self._after_header = 0
        """How many lines were read after the last such header."""
        self._completed: list[Recovered] = []
        self.file = ""

    def file_begins(self, file: str) -> None:
        """Continue with the header of that file, or with the previous one until a header comes.

        Columns that were assumed because there was no header apply to their file only: the next may have others.
        """
        self.file = file
        before = self._layout if self._layout is not None and self._layout.header not in _ASSUMED else None
        self._take(self._layouts.get(file, before))

    def state(self) -> Any:
        """The headers of the files, the allocation that waits for steps, and the lines of an incomplete record."""
        headers = {file: layout.header for file, layout in self._layouts.items()}
        begun = [line.decode("latin-1") for line in self._begun]
        later = {file: layout.header for file, layout in self._later.items()}
        if not headers and self._runs.run is None and not begun and not self._completion:
            return None
        kept = ParserState(headers, self._runs.run, begun, self._is_reported, self._completion, later)
        return msgspec.to_builtins(kept)

    def waiting(self) -> str | None:
        """What is incomplete, for people; None: no record of several lines is."""
        return f"{self.file}: the last record is incomplete; it is read when it is complete" if self._begun else None

    def resume(self, state: Any) -> None:
        """Continue from the state of another parser."""
        try:
            found = ParserState() if state is None else msgspec.convert(state, ParserState)
            begun = [line.encode("latin-1") for line in found.begun]
        except (msgspec.ValidationError, UnicodeEncodeError):
            found, begun = ParserState(), []
        self._runs.run, self._is_reported = found.run, found.is_reported
        self._completion = found.completion
        later = {file: Layout.of(header) for file, header in found.later.items()}
        self._later = {file: layout for file, layout in later.items() if layout is not None}
        self._layouts = {}
        self._take(None)
        for file, header in found.headers.items():
            layout = Layout.of(header)
            if layout is not None:
                self._layouts[file] = layout
                self._take(layout)
        self._begin(begun)

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineParser`."""
        layout = self._layout
        if layout is not None and not self._begun:
            try:
                parts = decoded(line).split(layout.delimiter)
                if len(parts) == layout.columns:
                    if not layout.is_row(line, parts):
                        layout.check(parts)
                    if self._later and self.file in self._later:
                        return [*self._refuse_later(), *_all(self._runs.add(layout, parts))]
                    return self._runs.add(layout, parts)
            except LineError as error:
                if Layout.of(line.decode(errors="replace")) is None:
                    return self._refuse(layout, line, error)
        self._after_header += 1
        return self._slow(line)

    def finish(self) -> list[Outcome]:
        """At the end of the input: give the allocation that waits, and report a record that is incomplete."""
        outcomes: list[Outcome] = []
        while self._begun and self._holds_others:
            outcomes += [each for each in self._give_up(CUT_OFF) if not isinstance(each, Line)]
        outcomes += self._runs.waiting()
        if self._begun and not self._is_reported:
            self._is_reported = True
            reason = why(self._layout, self._begun, self._refusal() or "the last record is not complete so far")
            outcomes.append(UnreadableLine(reason, raw=b"\n".join(self._begun), back=len(self._begun)))
        return outcomes

    def completed(self) -> list[Recovered]:
        """See `publisher.sources.logs.line_parser.CompletingParser`."""
        completed, self._completed = self._completed, []
        return completed

    def _slow(self, line: bytes) -> Outcome | list[Outcome]:
        """Parse a line that is not a complete row."""
        if self._begun:
            if self._is_reported:
                self._completed.append(Recovered(self.file, -1, b"\n".join(self._begun)[:RAW_BYTES]))
            self._is_reported = False
            if self._is_log:
                return self._in_log(line)
            if self._by_later(line) is not None:
                return [*self._give_up(CUT_OFF), *_all(self._slow(line))]
            return self._in_table(self._layout, line) if self._layout is not None else self._give_up(NO_HEADER)
        if jobcomp.begins(line) and self.file not in self._layouts:
            return self._log_record(line)
        return self._table_line(line) if line.strip() else Line.IGNORED

    def _table_line(self, line: bytes) -> Outcome | list[Outcome]:
        """Parse a line that is not a complete row, after a complete record."""
        if self.file in {self._log, *self._completion}:  # else rows in a user's text would make a table of the log
            return [*self._runs.waiting(), UnreadableLine(IN_LOG, is_rest=True)]
        header = Layout.of(line.decode("ascii", "replace").rstrip("\r"))
        if header is not None:
            return self._header(header)
        if self._unusable is not None:
            return UnreadableLine(lacking(self._unusable))
        fields = self._by_later(line)
        return self._begins(line) if fields is None else self._runs.add(self._later[self.file], fields)

    def _by_later(self, line: bytes) -> list[str] | None:
        """The fields of a line by the later header of the file; None: there is none, or the line does not fit it."""
        later = self._later.get(self.file)
        if later is None or self._layout is None or self._fields(self._layout, line) is not None:
            return None
        fields = self._fields(later, line)
        return fields if fields is not None and len(fields) == later.columns else None

    def _refuse_later(self) -> list[Outcome]:
        """A line fits the first header again: the later one is a text, and so are the rows that only fitted that."""
        header = self._later.pop(self.file).header
        waiting = self._runs.waiting()
        self._runs.refuse()
        refused = UnreadableLine(OTHER_HEADER, raw=header.encode(), back=self._after_header + 1)
        if not waiting:
            return [refused]
        return [refused, *waiting, UnreadableLine(BY_OTHER_HEADER, is_rest=True)]

    def _header(self, header: Layout) -> Outcome | list[Outcome]:
        """Take a line as a header. After another one, it counts for lines that do not fit that: a user's text may have
        a header too.
        """
        before = self._layouts.get(self.file)
        if before is not None and not before.missing:
            self._later.pop(self.file, None)
            if before.names == header.names:
                return Line.IGNORED
            waiting = self._runs.waiting()
            if header.missing:
                return [*waiting, UnreadableLine(OTHER_HEADER)]
            self._later[self.file], self._after_header = header, 0
            while len(self._later) > _MOST_FILES:
                del self._later[next(iter(self._later))]
            return list[Outcome](waiting) or Line.IGNORED
        self._use(header)
        if self._unusable is not None:
            return UnreadableLine(lacking(self._unusable), hint=WRITTEN_BY)
        return Line.IGNORED

    @property
    def _is_log(self) -> bool:
        """Whether the record that was begun belongs to a job completion log."""
        return self.file not in self._layouts and jobcomp.begins(self._begun[0])

    def _begins(self, line: bytes) -> Outcome | list[Outcome]:
        """Parse a line that is not a complete row, after a complete record."""
        layout = self._layout or without_header(line)
        if layout is None:
            return UnreadableLine(NO_HEADER)
        if self._layout is None:
            self._use(layout)
        return self._first(layout, line)

    def _first(self, layout: Layout, line: bytes) -> Outcome | list[Outcome]:
        """Parse a line with another number of fields than the header, after a complete record."""
        try:
            text = decoded(line)
            if text.count(layout.delimiter) + 1 >= layout.columns:
                return self._runs.add(layout, layout.fields(text.split(layout.delimiter)))
        except LineError as error:
            return self._refuse(layout, line, error)
        self._begin([line])
        return Line.MORE

    def _refuse(self, layout: Layout, line: bytes, error: LineError) -> Outcome | list[Outcome]:
        """Refuse a line with enough fields. It is the beginning of a record if it begins as one, and does not end so,
        or a text shifted its columns: that has delimiters and a line feed, and may have the records that follow. One
        with more delimiters than any row has is only a name, or all later jobs would be held for it.
        """
        is_shifted = isinstance(error, ShiftedError)
        may_be_two = is_shifted and line.count(layout.delimiter.encode()) < layout.columns + MOST_EXCESS
        if layout.begins(line) and (may_be_two or not layout.ends(line)):
            self._begin([line])
            return Line.MORE
        is_rest = is_shifted and layout.is_rest(line)
        before = self._runs.waiting() if is_rest else []
        self._runs.refuse()
        refused = UnreadableLine(str(error), is_rest=is_rest)
        return [*before, refused] if before else refused

    def _use(self, layout: Layout) -> None:
        self._layouts.pop(self.file, None)
        self._layouts[self.file] = layout
        self._take(layout)
        while len(self._layouts) > _MOST_FILES:
            del self._layouts[next(iter(self._layouts))]

    def _take(self, layout: Layout | None) -> None:
        """Read lines as this header says. After a header that lacks required columns, do not read lines by the previous
        one.
        """
        usable = layout is None or not layout.missing
        self._layout, self._unusable = (layout, None) if usable else (None, layout)

    def _begin(self, lines: list[bytes]) -> None:
        """Keep lines as the beginning of a record."""
        self._begun, self._tried = lines, 0
        self._begun_bytes = sum(map(len, lines)) + len(lines)
        by = self._layout.delimiter.encode() if self._layout is not None else b"|"
        self._begun_delimiters = sum(line.count(by) for line in lines)
        self._holds_others = any(self._is_by_itself(line) for line in lines[1:])

    def _go_on(self, line: bytes) -> Outcome | list[Outcome]:
        """Keep a line after the beginning of a record."""
        self._begun.append(line)
        self._begun_bytes += len(line) + 1
        if self._layout is not None:
            self._begun_delimiters += line.count(self._layout.delimiter.encode())
        most = _MOST_LOG_BYTES if self._holds_others and self._is_log else MOST_BYTES
        return self._give_up("never ends", present=1) if self._begun_bytes > most else Line.MORE

    def _is_by_itself(self, line: bytes) -> bool:
        """Whether a line would be a record or a header if it did not follow the beginning of a record."""
        if self._is_log:
            return jobcomp.begins(line)
        if Layout.of(line.decode("ascii", "replace").rstrip("\r")) is not None:
            return True
        return self._layout is not None and self._fields(self._layout, line) is not None

    def _in_table(self, layout: Layout, line: bytes) -> Outcome | list[Outcome]:
        """Parse a line that follows the beginning of a record of a table."""
        in_text = layout.begins(self._begun[0])
        if self._is_by_itself(line):
            if not in_text:
                return [*self._give_up(CUT_OFF), *_all(self.parse(line))]
            self._holds_others = True
            return self._go_on(line)
        if layout.begins(line) and not in_text:
            return [*self._give_up(CUT_OFF), *_all(self._begins(line))]
        fields = self._begun_delimiters + line.count(layout.delimiter.encode()) + 1
        if fields >= layout.columns and (layout.ends(line) or self._fits(layout, [*self._begun, line], fields)):
            lines, self._begun = [*self._begun, line], []
            return self._whole(layout, lines) if in_text else self._fewest(layout, lines)
        gone = self._go_on(line)
        if self._begun and not in_text and fields >= layout.columns:
            return self._give_up(NO_FIELDS, present=1)
        return gone

    def _fits(self, layout: Layout, lines: list[bytes], fields: int) -> bool:
        """Whether these lines make a record of a table whose last column is a text, so that no line shows the end."""
        if not layout.free_last or fields > layout.columns + MOST_EXCESS:
            return False
        return self._fields(layout, b"\n".join(lines)) is not None

    def _whole(self, layout: Layout, lines: list[bytes]) -> list[Outcome]:
        """The record that begins in a text with the first of these lines and ends with the last.

        Runs of the lines between are suspect: the first may also have been cut off, and the last be of another record.
        """
        raw = b"\n".join(lines)
        inner = [self._suspect(line, back=at) for at, line in enumerate(lines[-2:0:-1], 1)]
        suspects = [each for each in reversed(inner) if each is not None]
        try:
            fields = layout.fields(decoded(raw).split(layout.delimiter))
        except LineError as error:
            self._runs.refuse()
            begin = self._last_record(layout, lines)[0]
            last = self._suspect(b"\n".join(lines[begin:]), back=len(lines) - 1 - begin)
            suspects += [last] if last is not None else []
            return [UnreadableLine(str(error), raw=raw, back=len(lines) - 1), *suspects]
        return [*self._put_together(layout, fields, lines), *suspects]

    def _suspect(self, line: bytes, back: int) -> UnreadableLine | None:
        """The finished run of a line by itself, held as suspect. `back`: the line is so many before the present one."""
        job = self.alone(line)
        return None if job is None else UnreadableLine(AFTER_CUT, line, back=back, suspect=job)

    def alone(self, line: bytes) -> Job | None:
        """See `publisher.sources.logs.line_parser.RunParser`: without steps."""
        try:
            if self.file not in self._layouts and jobcomp.begins(line):
                layout, fields = jobcomp.LAYOUT, jobcomp.fields(decoded(line))
            else:
                known = None if self._layout is None else self._fields(self._layout, line)
                if known is None or self._layout is None or "." in self._layout.job_id(known):
                    return None
                layout, fields = self._layout, known
            job = self._runs.alone(layout, fields)
        except LineError:
            return None
        return job if job is not None and job.finished else None

    def after_too_long(self, first: bytes, last: bytes) -> list[Outcome]:  # noqa: ARG002
        """See `publisher.sources.logs.line_parser.RunParser`: any line may be the rest."""
        return self._give_up(CUT_OFF) or [*self._runs.waiting()]

    def _fewest(self, layout: Layout, lines: list[bytes]) -> list[Outcome]:
        """The record of the fewest lines that ends with the last of these; the lines before are not a record."""
        begin, fields = self._last_record(layout, lines)
        if fields is not None:
            others = self._other_lines(layout, lines[:begin], len(lines) - 1)
            return [*others, *self._put_together(layout, fields, lines[begin:])]
        self._runs.refuse()
        reason = "these lines together are not a record"
        return [UnreadableLine(reason, raw=b"\n".join(lines), back=len(lines) - 1, is_rest=not layout.free_last)]

    def _last_record(self, layout: Layout, lines: Sequence[bytes]) -> tuple[int, list[str] | None]:
        """Where the record of the fewest lines begins that ends with the last of these, and its fields, if any."""
        for begin in range(len(lines) - 1, max(-1, len(lines) - 1 - _MOST_TRIED), -1):
            fields = self._fields(layout, b"\n".join(lines[begin:]))
            if fields is not None:
                return begin, fields
        return 0, None

    def _put_together(self, layout: Layout, fields: list[str], lines: Sequence[bytes]) -> list[Outcome]:
        """A record of several lines."""
        try:
            layout.check(fields)
            return _all(self._runs.add(layout, fields))
        except LineError as error:
            self._runs.refuse()
            return [UnreadableLine(str(error), raw=b"\n".join(lines), back=len(lines) - 1)]

    def _fields(self, layout: Layout, joined: bytes) -> list[str] | None:
        """The fields of lines that make a record; None: they do not."""
        if joined.count(layout.delimiter.encode()) + 1 < layout.columns:
            return None
        try:
            fields = layout.fields(decoded(joined).split(layout.delimiter))
        except LineError:
            return None
        return fields if layout.fits(fields) else None

    def _in_log(self, line: bytes) -> Outcome | list[Outcome]:
        """Parse a line that follows the beginning of a record of a job completion log."""
        is_end = jobcomp.ends(line, modern=self._is_modern)
        if jobcomp.begins(line):
            if not jobcomp.is_in_text(self._begun) or (self._holds_others and not is_end):
                return [*self._give_up(CUT_OFF), *_all(self._log_record(line))]
            self._holds_others = self._holds_others or is_end
            return self._go_on(line)
        if is_end and self._tried < _MOST_TRIED:
            lines = [*self._begun, line]
            outcome = self._whole_log_record(b"\n".join(lines))
            if outcome is not None:
                suspects = [self._suspect(inner, back=at) for at, inner in enumerate(lines[-2:0:-1], 1)]
                self._begun = []
                return [*_all(outcome), *(suspect for suspect in reversed(suspects) if suspect is not None)]
            self._tried += 1
        return self._go_on(line)

    def _log_record(self, raw: bytes) -> Outcome | list[Outcome]:
        """Parse a line that begins a record of a job completion log."""
        self._log = self.file
        outcome = self._whole_log_record(raw) if jobcomp.ends(raw, modern=self._is_modern) else None
        if outcome is None:
            self._begin([raw])
            return Line.MORE
        return outcome

    def _whole_log_record(self, raw: bytes) -> Outcome | list[Outcome] | None:
        """None: it is refused for a text of a user. Its end may be a part of that text too, and the next lines."""
        try:
            outcome = self._runs.add(jobcomp.LAYOUT, jobcomp.fields(decoded(raw)))
        except jobcomp.TextError:
            return None
        except LineError as error:
            return UnreadableLine(str(error), raw=raw if b"\n" in raw else None, back=raw.count(b"\n"))
        if not self._is_modern and jobcomp.ends(raw, modern=True):
            self._completion = [*self._completion[1 - _MOST_FILES :], self.file]
        return outcome

    def _refusal(self) -> str | None:
        """Why the record that was begun is refused though it ends as one; None: it does not."""
        try:
            if self._is_log and jobcomp.ends(self._begun[0], modern=self._is_modern):
                jobcomp.fields(decoded(self._begun[0]))
        except LineError as error:
            return str(error)
        return None

    @property
    def _is_modern(self) -> bool:
        return self.file in self._completion

    def _give_up(self, reason: str, present: int = 0) -> list[Outcome]:
        """Report lines that are not a record, with the runs of those after the first, which are suspect where the first
        is cut off in a user's text: its rest may be in any of them.

        `present`: 1 if the last of them is the present line, 0 if it is the previous one.
        """
        begun, layout = self._begun, self._layout
        reason = self._refusal() or reason if begun else reason
        suspects = [self._suspect(line, back=len(begun) - present - at) for at, line in enumerate(begun) if at]
        in_table = layout is not None and not self._is_log if begun else False
        is_text = in_table and layout is not None and not layout.free_last and not layout.begins(begun[0])
        if not begun:
            return []
        self._begun, back = [], len(begun) - present
        waiting = list[Outcome](self._runs.waiting())
        self._runs.refuse()
        if not self._holds_others:
            raw = b"\n".join(begun)
            return [*waiting, UnreadableLine(why(layout, begun, reason), raw=raw, back=back, is_rest=is_text)]
        outcomes = [*waiting, UnreadableLine(why(layout, begun[:1], reason), raw=begun[0], back=back)]
        for at, (line, suspect) in enumerate(zip(begun[1:], suspects, strict=True), 1):
            follows = why(layout, [line], "follows a record that is cut off")
            outcomes.append(suspect or UnreadableLine(follows, raw=line, back=back - at))
        return outcomes

    def _other_lines(self, layout: Layout, lines: Sequence[bytes], back: int) -> list[Outcome]:
        """Report lines that belong to no record. `back`: the first is so many before the present one."""
        return [
            UnreadableLine(why(layout, [line], NO_FIELDS), raw=line, back=back - at, is_rest=not layout.free_last)
            for at, line in enumerate(lines)
        ]


def _all(outcome: Outcome | list[Outcome]) -> list[Outcome]:
    return outcome if isinstance(outcome, list) else [outcome]
