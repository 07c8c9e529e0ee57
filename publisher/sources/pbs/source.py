"""The accounting folder of TORQUE and PBS Pro: `server_priv/accounting/YYYYMMDD`, one file for each local day.

Source `pbs` reads PBS Pro and OpenPBS, source `torque` reads TORQUE. Nothing is lost between readings: state that a
line leaves for later ones (a job that waits or runs, the path of its events) is in the cursor, with the place where
reading stopped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec

from formats.job import Job
from publisher.config.sources import SourceSettings
from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.sources.base import Cursor, Line, Outcome, Page, UnreadableLine, Window, required_path
from publisher.sources.fields import CutError, LineError, instant
from publisher.sources.logs.broken_record import MAX_HELD_BYTES, SUSPECT, RecordJoiner
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.reader import LogReader, Reading
from publisher.sources.pbs.attributes import attributes
from publisher.sources.pbs.history import USUAL_LIMITS, HistoryLimits, JobPaths
from publisher.sources.pbs.jobs import PBS, TORQUE, Dialect
from publisher.sources.pbs.lines import LocalClock, PbsLogEntry, RestOfRecord, frame, is_rest

_DAY: Final = re.compile(r"(\d{4})(\d\d)(\d\d)(?:[._-][\w.-]*)?", re.ASCII)
_EXPECTED: Final = "accounting file, which the server names by its day, such as 20261101"
_ZONE_SLACK_S: Final = 900
_BLANK: Final = "a blank line, which the server does not write: it is probably the end of a user's text"
_SAMPLE_LINES: Final = 2_000
_EARLIER: Final = f"its time is long before that of the lines before it: {SUSPECT}"
_STEPS_BACK_S: Final = 7_200
"""An hour that comes twice, and as much again for clocks that are set."""


class PbsParser:
    """A `LineParser` of accounting lines in one of the two dialects."""

    reads = frozenset({"torque"})
    joins_lines = False
    has_header = False

    def __init__(self, dialect: Dialect, zone: str, cluster: str | None, limits: HistoryLimits = USUAL_LIMITS) -> None:
        self._make: Callable[[str], JobPaths] = partial(JobPaths, dialect, zone, cluster, limits)
        self._paths = self._make("")
        self._clock = LocalClock(zone)
        self._stamps = "", ""
        """Of the last two lines."""
        self._earlier_bytes = 0
        """Of the lines whose runs are held for their earlier time, one after the other."""
        rest = RestOfRecord(self._clock, has_owner=dialect.has_owner)
        self._joiner = RecordJoiner(
            self.parse, rest, run_of=self.alone, ends_any=is_rest, may_end=rest.may_end, is_open=rest.is_open
        )
        self.release = self._joiner.release

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `publisher.sources.logs.line_parser.LineParser`."""
        if self._joiner.holds:
            return self._joiner.take(line)
        if not line.strip():  # the end of a text that is the last in its record
            return UnreadableLine(_BLANK, is_rest=True)
        entry: PbsLogEntry | None = None
        try:
            entry = frame(line)
            jobs = self._paths.take(entry)
        except LineError as error:
            return self._refused(line, error, has_form=entry is not None)
        if jobs is None:
            self._stamps = self._stamps[1], entry.stamp
            return Line.MORE
        outcomes: Sequence[Outcome] = jobs
        if jobs and entry.stamp < self._stamps[0] and entry.stamp < self._stamps[1]:
            outcomes = self._if_in_order(entry.stamp, jobs, len(line))
        else:
            self._stamps = self._stamps[1], entry.stamp
            self._earlier_bytes = 0
        if len(outcomes) == 1:
            return outcomes[0]
        return list(outcomes) if outcomes else Line.SKIPPED

    def _refused(self, line: bytes, error: LineError, *, has_form: bool) -> Outcome:
        """A user may have written all of a line that has not the form of a record but its end, also a stamp; but no
        NUL: a line with one is damaged."""
        if has_form or isinstance(error, CutError):
            return self._joiner.refused(line, str(error), cut=isinstance(error, CutError))
        return UnreadableLine(str(error), is_rest=b"\0" not in line)

    def _if_in_order(self, stamp: str, jobs: Sequence[Job], line_bytes: int) -> list[Outcome]:
        """Hold runs of a line that was written long before both previous ones, by its stamp: the server writes lines in
        the order of their times, and a user does not know when a job will start.

        One previous line would not do: a user's text with a late stamp would hold the next line of another job. More
        lines than a text has are those of another log, which somebody appended.
        """
        before = [self._clock.instant(each, after=0) for each in self._stamps]
        if self._clock.instant(stamp, after=0) >= min(before) - _STEPS_BACK_S:  # also those of a clock that was set
            return [*jobs]
        self._earlier_bytes += line_bytes + 1
        if self._earlier_bytes > MAX_HELD_BYTES:
            self._stamps = stamp, stamp
            return [*jobs]
        return [UnreadableLine(_EARLIER, suspect=job) if job.finished else job for job in jobs]

    def alone(self, line: bytes) -> Job | None:
        """See `publisher.sources.logs.line_parser.RunParser`: without its path."""
        try:
            jobs = self._make("").take(frame(line))
        except LineError:
            return None
        return next((job for job in jobs or () if job.finished), None)

    def after_too_long(self, first: bytes, last: bytes) -> list[Outcome]:  # noqa: ARG002
        """See `publisher.sources.logs.line_parser.RunParser`: any line may be the rest."""
        return self._joiner.give_up()

    def finish(self) -> list[Outcome]:
        """Runs in progress that were not given before."""
        return [*self._paths.running()]

    def file_begins(self, file: str) -> None:  # noqa: ARG002
        """Jobs span days; the order of lines is that of one file."""
        self._stamps = "", ""

    def state(self) -> str | dict[str, Any]:
        """Open jobs, as JSON in a text; with the lines of a broken record, if there is one."""
        held = self._joiner.state()
        return self._paths.dump() if held is None else {"jobs": self._paths.dump(), "held": held}

    def waiting(self) -> str | None:
        """Nothing waits: open jobs are known as waiting or running."""
        return None

    def resume(self, state: Any) -> None:
        """Continue with the open jobs of an earlier pass."""
        self._joiner.resume(state.get("held") if isinstance(state, dict) else None)
        state = state.get("jobs") if isinstance(state, dict) else state
        try:
            self._paths = self._make(state if isinstance(state, str) else "")
        except msgspec.DecodeError:
            self._paths = self._make("")


class PbsSource:
    """Runs of an accounting folder (or of a file, or of a pattern) in a dialect."""

    def __init__(self, name: str, settings: SourceSettings, dialect: Dialect) -> None:
        self.name = name
        self.kind: str = dialect.system
        self._dialect = dialect
        self._settings = settings
        path = required_path(name, settings, "the accounting folder", "/var/spool/torque/server_priv/accounting")
        self._reader = LogReader(path, _DAY, settings.rotated_to, _EXPECTED)
        self._since: int | None = None

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `Source.pages`; the last page also gives the runs in progress, each once.

        A window reads all files again, since the path of a job may begin long before its end.
        """
        parser = self._parser()
        known = [since for since in (instant(str(cursor.get("since", ""))), self._first_day()) if since is not None]
        self._since = min(known, default=None)
        for page in self._lines(parser).pages(cursor, window):
            if window is None:
                page = msgspec.structs.replace(page, cursor={**page.cursor, "since": self._since})  # noqa: PLW2901
            yield page

    def complete_since(self) -> int | None:
        """The configured time, else the midnight before the first file ever read: a day's file is never rotated."""
        configured = self._settings.complete_since
        return self._since if configured is None else configured

    def check(self) -> list[Finding]:
        """Check the log, and whether the time zone is that of the server."""
        return [*self._lines(self._parser()).check(), *self._check_zone()]

    def _parser(self) -> PbsParser:
        return PbsParser(self._dialect, self._settings.timezone, self._settings.cluster)

    def _lines(self, parser: PbsParser) -> LineSource:
        return LineSource(self.name, self.kind, self._reader, lambda: parser, complete_since=self.complete_since())

    def _first_day(self) -> int | None:
        """Midnight of the first day with a file, in the server's time."""
        days: list[date] = []
        for file in self._reader.files():
            match = _DAY.fullmatch(os.path.basename(file))  # noqa: PTH119 - of each file of the log
            if match is None:
                return None
            try:
                days.append(date(int(match[1]), int(match[2]), int(match[3])))
            except ValueError:
                return None
        if not days:
            return None
        return int(datetime.combine(min(days), time.min, ZoneInfo(self._settings.timezone)).timestamp())

    def _check_zone(self) -> list[Finding]:
        """Compare the local stamps of the newest file with the instants in its records."""
        try:
            reading = Reading(self._reader.files()[-1:], {})
        except SourceError:
            return []  # reported by the check of the log itself
        chunk = next(iter(reading), None)
        clock = LocalClock(self._settings.timezone)
        sample = chunk.lines[:_SAMPLE_LINES] if chunk is not None else []
        offsets_s = sorted(each for each in (_offset_s(raw, clock) for raw in sample) if each is not None)
        if not offsets_s or abs(median_s := offsets_s[len(offsets_s) // 2]) <= _ZONE_SLACK_S:
            return []
        return [
            Finding(
                self.name,
                "yellow",
                f"the times of the lines are {median_s / 3600:+.1f} h from the ends of the jobs in them",
                f"Set `timezone` to that of the server; it is {self._settings.timezone} now",
            )
        ]


def _offset_s(raw: bytes, clock: LocalClock) -> int | None:
    try:
        entry = frame(raw)
        if entry.kind != "E":
            return None
        end = instant(attributes(entry.text, quoted=True).get("end"))
        return None if end is None else clock.instant(entry.stamp, after=0, near=str(end)) - end
    except LineError:
        return None


class PbsProSource(PbsSource):
    """The accounting folder of a PBS Pro or OpenPBS server."""

    def __init__(self, name: str, settings: SourceSettings) -> None:
        super().__init__(name, settings, PBS)


class TorqueSource(PbsSource):
    """The accounting folder of a TORQUE server."""

    def __init__(self, name: str, settings: SourceSettings) -> None:
        super().__init__(name, settings, TORQUE)
