"""Source `slurm`: finished jobs from sacct, which it runs itself, or from files that sacct or Slurm's plugins wrote.

Every run becomes one job, requeued ones too. No run is missed between two readings: each reading begins `overlap`
before the end of the last one, and a reading counts only if sacct printed everything.

The path is the program (`/usr/bin/sacct`; without a path, the one on PATH), or a saved file, folder, or pattern: tables
of `sacct --parsable2` (or `-p`, or with any delimiter) with their header line, documents of `sacct --json`, and logs of
jobcomp/filetxt.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from formats.job import Job
from publisher.config.sources import SourceSettings
from publisher.errors import ConfigError, SourceError
from publisher.finding import Finding
from publisher.sources.base import (
    PAGE_RECORDS,
    Cursor,
    Line,
    Outcome,
    Page,
    PageBuilder,
    Recovered,
    UnreadableLine,
    Window,
)
from publisher.sources.fields import LineError
from publisher.sources.logs.documents import SavedSource
from publisher.sources.logs.json_stream import Damaged, JsonElements
from publisher.sources.logs.open_log import OpenLog
from publisher.sources.program import SILENT_S
from publisher.sources.slurm import json, sacct, values
from publisher.sources.slurm.parser import SlurmParser
from publisher.sources.slurm.run import AllocationSteps
from publisher.sources.slurm.table import Layout
from publisher.sources.slurm.texts import JobTexts
from publisher.sources.slurm.values import Clock
from publisher.sources.tool import ToolSums, program
from publisher.text import past

_PROGRAMS: Final = (b"\x7fELF", b"#!")
_LAYOUT: Final = Layout((*sacct.NUMBERS, *sacct.FREE_TEXT), "\x1f")
_NO_TEXT: Final = ("",) * len(sacct.FREE_TEXT)
_IDS: Final = tuple(sacct.NUMBERS.index(name) for name in ("JobIDRaw", "Cluster", "Submit"))
_CONSTANT: Final = ("JobIDRaw", "JobID", "Cluster", "User", "Submit", "Start")
_LACKING: Final = "without_text"
# The cursor has them: on a cluster without any text it would be as long as the list of its jobs.
_MOST_LACKING: Final = 1_000
_WITHOUT_TEXT: Final = (
    "sacct printed no account and name for this job, or two different ones. It is asked again "
    "at each run of the publisher within `overlap`, and the job is stored when sacct prints them"
)


class SlurmSource:
    """Slurm's accounting, from sacct or from files. `clock` gives epoch seconds."""

    kind = "slurm"

    def __init__(
        self,
        name: str,
        settings: SourceSettings,
        clock: Callable[[], float] = time.time,
        environ: Mapping[str, str] = os.environ,
        silent_s: float = SILENT_S,
        new_delimiter: Callable[[], str] = sacct.new_delimiter,
    ) -> None:
        self.name = name
        path = settings.path
        if path is None:
            path_of_sacct = shutil.which("sacct", path=environ.get("PATH"))
            if path_of_sacct is None:
                raise ConfigError(
                    "the source has no path, and sacct is not on PATH",
                    key=f"sources.{name}.path",
                    hint="Give the program, e.g. /usr/bin/sacct, or a file that sacct wrote",
                )
            path = Path(path_of_sacct)
        self.path = path
        self._settings = settings
        self._clock = clock
        self._environ = environ
        self._silent_s = silent_s
        self._new_delimiter = new_delimiter
        self._since = settings.complete_since
        self._saved = SavedSource(
            name, self.kind, path, None, self._parser, frozenset({"slurm-json"}), self._document,
            complete_since=settings.complete_since, rotated_to=settings.rotated_to,
        )  # fmt: skip

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `Source.pages`."""
        return self._run(cursor, window) if is_program(self.path) else self._saved.pages(cursor, window)

    def complete_since(self) -> int | None:
        """The configured time; else, if sacct is run, the first reading: earlier runs may be purged in part."""
        return self._since

    def tool_sums(self, window: Window, clusters: Collection[str], /) -> ToolSums:
        """See `publisher.sources.tool.HasTool`: the sums of `sacct`, from the path or the search path."""
        asked = self.path if is_program(self.path) else program("sacct")
        return sacct.sacct_sums(asked, window, clusters, self._environ)

    def check(self) -> list[Finding]:
        """Check that sacct runs and lists jobs; files are checked as all logs and documents."""
        if not is_program(self.path):
            return self._saved.check()
        until = int(self._clock())
        try:
            page = _filled(self._window(until - 86_400, until, Window(), set()))
        except SourceError as error:
            return [Finding(self.name, "red", error.message, error.hint)]
        if page.unreadable:
            return [Finding(self.name, "red", f"{self.path}: {page.unreadable[0].reason}")]
        if not page.read:
            return [Finding(self.name, "yellow", f"{self.path}: no job in the last day")]
        return [Finding(self.name, "green", f"{self.path}: runs, and lists jobs of the last day")]

    def _parser(self) -> SlurmParser:
        return SlurmParser(self._settings.cluster, self._settings.timezone)

    def _document(self, log: OpenLog) -> Iterator[Outcome]:
        cluster = self._settings.cluster or ""
        for element in JsonElements(log.read, json.KEY):
            if isinstance(element, Damaged):
                yield UnreadableLine(element.reason, raw=element.begin.encode(errors="replace"))
            else:
                yield json.outcome(element, cluster)

    def _run(self, cursor: Cursor, window: Window | None) -> Iterator[Page]:
        """Ask sacct for one span of time after the other. The cursor moves when the whole span was read."""
        now = int(self._clock())
        begin, end = self._span(cursor, window, now)
        first = _noted(cursor, "since", now) or now
        if self._since is None:
            self._since = first
        here = cursor
        noted = cursor.get(_LACKING, [])
        lacking = {text for text in noted if isinstance(text, str)} if isinstance(noted, list) else set[str]()
        while True:
            until = min(end, begin + sacct.LONGEST_WINDOW_S) if begin else end
            last = until >= end
            selected = Window(begin or None, None if last and window is None else until)
            for page in self._window(begin, until, selected, lacking):
                if page.at_end and window is None:
                    here = {"until": until, "since": first}
                    if lacking:
                        here[_LACKING] = sorted(lacking)[-_MOST_LACKING:]
                yield msgspec.structs.replace(page, cursor=here, at_end=page.at_end and last)
            if last:
                return
            begin = until

    def _span(self, cursor: Cursor, window: Window | None, now: int) -> tuple[int, int]:
        """The time for which sacct is asked, epoch seconds.

        It begins with the end of the last reading, unless that is in the future because the clock was wrong. Then it
        begins with the first reading, before which everything was read.
        """
        if window is not None:
            return max(0, window.from_ or 0), now if window.until is None else min(now, window.until)
        known = _noted(cursor, "until", now) or _noted(cursor, "since", now)
        if known is not None:
            return max(0, known - int(self._settings.overlap)), now
        return max(0, self._settings.complete_since or 0), now

    def _window(self, begin: int, until: int, selected: Window, lacking: set[str]) -> Iterator[Page]:
        """Pages of sacct's answer for one span: runs that ended in `selected`, and running ones. The last page has
        `at_end`.

        The texts of users are asked for first; each run of the second answer, which has no text of a user, takes its
        own from them. So no text can add, change, or hide a run. `lacking`: the runs that were listed because sacct
        printed no text of them, as they are listed; it is brought up to date. Raises `SourceError`s.
        """
        recovered: list[Recovered] = []
        page = PageBuilder(selected, keep_running=True)
        allocations = AllocationSteps(Clock("UTC"), self._settings.cluster or "")
        with (
            closing(self._records(begin, until, sacct.TEXTS)) as written,
            JobTexts(written) as texts,
            closing(self._records(begin, until, sacct.NUMBERS)) as records,
        ):
            for fields in records:
                outcome = _outcome(fields, texts, allocations)
                for part in outcome if isinstance(outcome, list) else (outcome,):
                    self._add(page, part)
                if isinstance(outcome, UnreadableLine) and outcome.reason == _WITHOUT_TEXT:
                    lacking.add((outcome.raw or b"").decode())
                elif lacking and (shown := _shown(fields).decode()) in lacking:
                    lacking.remove(shown)
                    recovered.append(Recovered(str(self.path), -1, shown.encode()))
                if page.read >= PAGE_RECORDS:
                    yield page.page({})
        page.jobs += allocations.waiting()
        yield page.page({}, at_end=True, recovered=tuple(recovered))

    def _add(self, page: PageBuilder, outcome: Outcome) -> None:
        if isinstance(outcome, Job):
            # Without a limit on its texts: a user must not hide a run with a long one.
            page.jobs.append(outcome)
        else:
            page.add(outcome, lambda refused: refused.of_file(str(self.path)))

    def _records(self, begin: int, until: int, columns: Sequence[str]) -> Generator[list[str], None, None]:
        by = self._new_delimiter()
        command = sacct.arguments(self.path, begin, until, columns, by)
        return sacct.records(command, columns, by, sacct.environment(self._environ), self._silent_s)


def _noted(cursor: Cursor, key: str, now: int) -> int | None:
    """An instant of the cursor, epoch seconds, at most `now`; None: it is missing or in the future."""
    value = cursor.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        return None
    instant = past(value, now)
    return None if instant is None else min(instant, now)


def _outcome(numbers: list[str], texts: JobTexts, allocations: AllocationSteps) -> Outcome | list[Outcome]:
    """The outcome of a record of `NUMBERS`, with the texts of its job."""
    number, cluster, submit = (numbers[at] for at in _IDS)
    if "." in number:
        text: tuple[str, ...] | None = _NO_TEXT
    else:
        text = texts.of(number, cluster, submit)
    try:
        if text is not None:
            return allocations.add(_LAYOUT, [*numbers, *text])
        allocations.refuse()
        job = _LAYOUT.job([*numbers, *_NO_TEXT, ""], Clock("UTC"), cluster)
    except LineError as error:
        return UnreadableLine(str(error), raw=_shown(numbers))
    if job is None or job.end is None:
        return Line.SKIPPED  # it began between the two answers
    return UnreadableLine(_WITHOUT_TEXT, raw=_shown(numbers))


def _shown(numbers: list[str]) -> bytes:
    """A record of `NUMBERS` as it is listed: the same at each reading, so without values that still grow."""
    over = numbers[sacct.NUMBERS.index("End")] not in values.UNKNOWN
    kept = numbers if over else [numbers[sacct.NUMBERS.index(name)] for name in _CONSTANT]
    return "|".join(kept).encode()


def is_program(path: Path) -> bool:
    """Whether a path is a program rather than a saved file: it is executable and begins like a program."""
    try:
        if not path.is_file() or not os.access(path, os.X_OK):
            return False
        with path.open("rb") as file:
            return file.read(4).startswith(_PROGRAMS)
    except OSError:
        return path.name == "sacct"


def _filled(pages: Iterator[Page]) -> Page:
    """The first page that is not empty, else the last."""
    page = Page((), {}, 0)
    for page in pages:
        if page.read:
            break
    return page
