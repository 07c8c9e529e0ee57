"""Grid logs: the BLAH lines of BLAH, ARC, and HTCondor-CE, which give the grid user of each local job (facts on
sources, 8).

    "timestamp=2026-11-20 10:00:00" "userDN=/DC=org/CN=Ada" "userFQAN=/atlas/Role=NULL/Capability=NULL" "ceID=..."
    "jobID=..." "lrmsID=4711.server" "localUser=10001"

An entry is one line. ARC escapes quotes and backslashes in a value, the others do not; both are understood.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Collection, Iterator
from pathlib import Path
from time import strptime
from typing import Any, Final

import msgspec

from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.grid_identity import GridLogEntry
from publisher.sources.base import Cursor, Line, Outcome, Recovered, Unreadable
from publisher.sources.fields import CutError, LineError, decoded
from publisher.sources.htcondor.lines import GridEntryParser
from publisher.sources.logs.broken_record import RecordJoiner
from publisher.sources.logs.lines import LineSource
from publisher.sources.logs.reader import LogReader
from publisher.sources.logs.sniff import KINDS

MAX_LINE_BYTES: Final = 65_536
_HELD: Final = "held"
_AD: Final = "ad"
_BETWEEN: Final = re.compile(r'"[ \t]+"(?=[A-Za-z]+=)')
_ESCAPED: Final = re.compile(r'\\(["\\])')


class GridPage(msgspec.Struct, frozen=True):
    """Some entries, unreadable input, the cursor after them, and files that are no longer unreadable."""

    entries: tuple[GridLogEntry, ...]
    unreadable: tuple[Unreadable, ...]
    cursor: Cursor
    recovered: tuple[Recovered, ...] = ()


def entry(line: bytes) -> GridLogEntry | None:
    """The entry of a line; None: it names no user, or is empty. Raises `LineError`."""
    if len(line) > MAX_LINE_BYTES:
        raise LineError(f"is longer than {MAX_LINE_BYTES} bytes")
    text = decoded(line).strip()
    if not text:
        return None
    if len(text) < 2 or text[0] != '"':
        raise LineError('is not a BLAH line: those are pairs "key=value"')
    if text[-1] != '"':
        # Read as it is, its last value would be a part of a name, perhaps another user's.
        raise CutError("its last quote is missing: the line is cut off, or a name contains a line feed")
    single: dict[str, str] = {}
    fqans: dict[str, None] = {}
    for pair in _BETWEEN.split(text[1:-1]):
        key, equals, value = pair.partition("=")
        if not equals:
            raise LineError('is not a BLAH line: those are pairs "key=value"')
        value = _ESCAPED.sub(r"\1", value)
        if key == "userFQAN":
            if value.startswith("/"):
                fqans[value] = None
        # Two values of one key: one of them may be a user's text, and the job would be another user's.
        elif single.setdefault(key, value) != value:
            raise LineError(f"has {key} twice: a value with quotes that are not escaped")
    lrms_id, dn = single.get("lrmsID"), single.get("userDN")
    if not lrms_id:
        raise LineError("has no lrmsID")
    at = _instant(single.get("timestamp", ""))
    if not dn and not fqans:
        return None
    return GridLogEntry(at, lrms_id, dn or None, tuple(fqans), single.get("ceID") or None)


def _instant(text: str) -> int:
    try:
        return timegm(strptime(text, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        raise LineError("has no timestamp such as 2026-11-20 10:00:00") from None


class _GridParser:
    """A `LineParser` of grid logs and of the ads of a history, in any mixture. It gives entries, not runs."""

    reads = frozenset(KINDS)
    """A line that is not understood is unreadable by itself, whatever the rest of the file is."""
    has_header = False

    def __init__(self) -> None:
        self._ads = GridEntryParser()
        self._entries: list[GridLogEntry] = []
        self._joiner = RecordJoiner(self.parse, _completes)
        self.release = self._joiner.release

    def parse(self, line: bytes) -> Outcome | list[Outcome]:
        """See `lines.LineParser`. A line of an ad has an equals sign between blanks, or stars."""
        if self._joiner.holds:
            return self._joiner.take(line)
        if (b" = " in line and not line.startswith(b'"')) or line.startswith(b"***") or not line.strip():
            return self._ads.parse(line)
        try:
            grid_entry = entry(line)
        except LineError as error:
            return self._joiner.refused(line, str(error), cut=isinstance(error, CutError))
        if grid_entry is not None:
            self._entries.append(grid_entry)
        return Line.SKIPPED

    def file_begins(self, file: str) -> None:
        """A file with one job is one ad."""
        self._ads.file_begins(file)

    def finish(self) -> list[Outcome]:
        """The ads of files with one job each, and an ad that is incomplete so far."""
        return self._ads.finish()

    def waiting(self) -> str | None:
        """What is incomplete, for people; None: no ad is."""
        return self._ads.waiting()

    def taken(self) -> tuple[GridLogEntry, ...]:
        """The entries found since the last call."""
        entries = (*self._entries, *self._ads.entries)
        self._entries, self._ads.entries = [], []
        return entries

    def state(self) -> Any:
        """The incomplete ad, and the lines of a broken record."""
        ad, held = self._ads.state(), self._joiner.state()
        return ad if held is None else {_HELD: held, _AD: ad}

    def resume(self, state: Any) -> None:
        """Continue from `state()`; anything else counts as empty."""
        held = isinstance(state, dict) and state.keys() == {_HELD, _AD}
        self._joiner.resume(state[_HELD] if held else None)
        self._ads.resume(state[_AD] if held else state)


def _completes(first: bytes, line: bytes) -> bool:
    """Whether a line ends the record that begins with the first: it is not a record, and both together are one."""
    bare = line.strip()
    if bare.startswith(b'"') and bare != b'"' and not bare.startswith(b'" "'):
        return False
    try:
        return entry(first + line) is not None
    except LineError:
        return False


def pages(path: Path, cursor: Cursor, rotated_to: Collection[Path] = ()) -> Iterator[GridPage]:
    """Read from a cursor to the present end. Raises `SourceError`, after the last page, for unreadable files."""
    parser, log = _log(path, rotated_to)
    for page in log.pages(cursor):
        if page.cursor != cursor or page.recovered:
            yield GridPage(parser.taken(), page.unreadable, page.cursor, page.recovered)


def _log(path: Path, rotated_to: Collection[Path] = ()) -> tuple[_GridParser, LineSource]:
    parser = _GridParser()
    return parser, LineSource("grid log", "blah", LogReader(path, None, rotated_to), lambda: parser)


def check(source: str, path: Path) -> Finding:
    """Check that the beginning of the log can be read and understood."""
    subject = f"{source}: grid log"
    parser, log = _log(path)
    try:
        page = next(log.pages({}))
    except SourceError as error:
        return Finding(subject, "red", error.message, error.hint)
    if parser.taken():
        return Finding(subject, "green", f"{path}: understood")
    if not page.read:
        return Finding(subject, "yellow", f"{path}: it has no complete line yet")
    said = f"; the first unreadable line {page.unreadable[0].reason}" if page.unreadable else ""
    return Finding(subject, "red", f"{path}: its beginning has no entry{said}", "Correct grid_log.path")
