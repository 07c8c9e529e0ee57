"""Grid logs: the BLAH lines of BLAH, ARC and HTCondor-CE, which tell whose each local job is (facts on sources, 8).

    "timestamp=2026-11-20 10:00:00" "userDN=/DC=org/CN=Ada" "userFQAN=/atlas/Role=NULL/Capability=NULL" "ceID=..."
    "jobID=..." "lrmsID=4711.server" "localUser=10001"

All on one line. Quotes and backslashes in a value are escaped by ARC and not by the others; both are understood.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterator
from pathlib import Path
from time import strptime
from typing import Final

import msgspec

from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.grid_identity import Entry
from publisher.sources.base import Cursor, Unreadable
from publisher.sources.fields import LineError, decoded
from publisher.sources.logfile import LogReader

MAX_LINE_BYTES: Final = 65_536
_BETWEEN: Final = re.compile(r'"[ \t]+"(?=[A-Za-z]+=)')
_ESCAPED: Final = re.compile(r'\\(["\\])')


class GridPage(msgspec.Struct, frozen=True):
    """Some entries, what could not be read, and the cursor behind them."""

    entries: tuple[Entry, ...]
    unreadable: tuple[Unreadable, ...]
    cursor: Cursor


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


def pages(path: Path, cursor: Cursor) -> Iterator[GridPage]:
    """Read on from a cursor to the present end. Raises `SourceError`, behind the last page, for what cannot be read."""
    reading = LogReader(path).read(cursor)
    for chunk in reading:
        entries: list[Entry] = []
        unreadable = list(chunk.set_aside)
        for index, line in enumerate(chunk.lines):
            try:
                found = entry(line)
            except LineError as error:
                unreadable.append(chunk.unreadable(index, str(error)))
                continue
            if found is not None:
                entries.append(found)
        yield GridPage(tuple(entries), tuple(unreadable), reading.cursor())
    for problem in reading.problems:
        raise problem


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
