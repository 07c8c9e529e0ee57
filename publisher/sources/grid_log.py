"""Grid logs: the BLAH lines of BLAH, ARC and HTCondor-CE, which tell whose each local job is (facts on sources, 8).

    "timestamp=2026-11-20 10:00:00" "userDN=/DC=org/CN=Ada" "userFQAN=/atlas/Role=NULL/Capability=NULL" "ceID=..."
    "jobID=..." "lrmsID=4711.server" "localUser=10001"

All on one line. Quotes and backslashes in a value are escaped by ARC and not by the others; both are understood.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Collection, Iterator
from pathlib import Path
from time import strptime
from typing import Final

import msgspec

from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.grid_identity import Entry
from publisher.sources.base import Cursor, Recovered, Unreadable
from publisher.sources.fields import LineError, decoded
from publisher.sources.htcondor_lines import GridEntryParser
from publisher.sources.lines import Refused
from publisher.sources.logfile import RAW_BYTES, Chunk, LogReader, Reading

MAX_LINE_BYTES: Final = 65_536
_BETWEEN: Final = re.compile(r'"[ \t]+"(?=[A-Za-z]+=)')
_ESCAPED: Final = re.compile(r'\\(["\\])')


class GridPage(msgspec.Struct, frozen=True):
    """Some entries, what could not be read, the cursor behind them, and what is no longer unreadable."""

    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...]
    cursor: Cursor
    recovered: tuple[Recovered, ...] = ()


def entry(line: bytes) -> Entry | None:
    """The entry of a line; None for one that names nobody, and for an empty line. Raises `LineError`."""
    if len(line) > MAX_LINE_BYTES:
        raise LineError(f"is longer than {MAX_LINE_BYTES} bytes")
    text = decoded(line).strip()
    if not text:
        return None
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        raise LineError('is no BLAH line: those are pairs "key=value"')
    single: dict[str, str] = {}
    fqans: dict[str, None] = {}
    for pair in _BETWEEN.split(text[1:-1]):
        key, equals, value = pair.partition("=")
        if not equals:
            raise LineError('is no BLAH line: those are pairs "key=value"')
        value = _ESCAPED.sub(r"\1", value)
        if key == "userFQAN":
            if value.startswith("/"):
                fqans[value] = None
        else:
            single.setdefault(key, value)
    lrms_id, dn = single.get("lrmsID"), single.get("userDN")
    if not lrms_id:
        raise LineError("has no lrmsID")
    at = _instant(single.get("timestamp", ""))
    if not dn and not fqans:
        return None
    return Entry(at, lrms_id, dn or None, tuple(fqans), single.get("ceID") or None)


def _instant(text: str) -> int:
    try:
        return timegm(strptime(text, "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        raise LineError("has no timestamp such as 2026-11-20 10:00:00") from None


def pages(path: Path, cursor: Cursor, rotated_to: Collection[Path] = ()) -> Iterator[GridPage]:
    """Read on from a cursor to the present end. Raises `SourceError`, behind the last page, for what cannot be read."""
    reading = LogReader(path, None, rotated_to).read(cursor)
    ads = GridEntryParser()
    ads.resume(cursor.get("parser"))
    for chunk in reading:
        if chunk.file != ads.file and (chunk.lines or not chunk.set_aside):
            ads.file_begins(chunk.file)
        yield _page(chunk, reading, ads)
    cut = [each for each in ads.finish() if isinstance(each, Refused)]
    if cut or ads.entries:
        unreadable = [Unreadable(ads.file, None, None, each.reason, (each.raw or b"")[:RAW_BYTES]) for each in cut]
        yield GridPage(_taken(ads), tuple(unreadable), _cursor(reading, ads))
    if recovered := reading.recovered():
        yield GridPage((), (), _cursor(reading, ads), recovered)
    for problem in reading.problems:
        raise problem


def _page(chunk: Chunk, reading: Reading, ads: GridEntryParser) -> GridPage:
    """What the lines of a chunk tell. A line of an ad is known by its equals sign between blanks, or its stars."""
    entries: list[Entry] = []
    unreadable = list(chunk.set_aside)
    for index, line in enumerate(chunk.lines):
        if (b" = " in line and not line.startswith(b'"')) or line.startswith(b"***") or not line.strip():
            outcome = ads.parse(line)
            for each in outcome if isinstance(outcome, list) else (outcome,):
                if isinstance(each, Refused):
                    place = chunk.unreadable(index, each.reason)
                    unreadable.append(place if each.raw is None else msgspec.structs.replace(place, raw=each.raw))
            continue
        try:
            found = entry(line)
        except LineError as error:
            unreadable.append(chunk.unreadable(index, str(error)))
            continue
        if found is not None:
            entries.append(found)
    return GridPage((*entries, *_taken(ads)), tuple(unreadable), _cursor(reading, ads))


def _taken(ads: GridEntryParser) -> tuple[Entry, ...]:
    entries, ads.entries = tuple(ads.entries), []
    return entries


def _cursor(reading: Reading, ads: GridEntryParser) -> Cursor:
    state = ads.state()
    return reading.cursor() if state is None else {**reading.cursor(), "parser": state}


def check(source: str, path: Path) -> Finding:
    """Whether the beginning of the log can be read and understood."""
    subject = f"{source}: grid log"
    try:
        first = next(pages(path, {}), None)
    except SourceError as error:
        return Finding(subject, "red", error.message, error.hint)
    if first is None:
        return Finding(subject, "yellow", f"{path}: no whole line in it yet")
    if not first.entries:
        said = f"; the first that is none {first.unreadable[0].reason}" if first.unreadable else ""
        return Finding(subject, "red", f"{path}: no entry at its beginning{said}", "Look at grid_log.path")
    return Finding(subject, "green", f"{path}: understood")
