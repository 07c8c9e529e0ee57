"""What another publisher sent, record by record, on disk: its messages may be more than memory holds.

A record is found by its record id; where two publishers have ids of their own by the global id, or by local id and end.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from formats.apel_rules import type_of
from formats.apel_summary import read_group
from formats.apel_text import NotApelTextError, TextRecord
from formats.apel_text import parse as parse_text
from formats.month import month_bounds
from formats.read_xml import FORMATS, NotAMessageError
from formats.read_xml import parse as parse_xml
from formats.record_fields import Fields, each_fields_of
from formats.xml_text import read_date_time
from publisher.inspection import keys as inspection_keys
from publisher.inspection.files import contents
from publisher.inspection.unwrap import unwrap

SUMMARIES: Final = frozenset({"apel-summary", "apel-normalised-summary"})
_BEFORE_XML: Final = b"\xef\xbb\xbf \t\r\n"
_MOST_NOTES: Final = 100
_MONTHS: Final = 12
_fields = msgspec.json.Decoder(dict[str, tuple[str, ...]])


class OldRecord(msgspec.Struct, frozen=True):
    """A record as it was sent: `end` in epoch seconds where it tells one, of a group the month's first second."""

    name: str
    end: int | None
    fields: Fields


class OldRecords:
    """The records of one format. Use it in a `with` statement; what it keeps is gone behind it.

    `notes`: what could not be read, and messages of other formats. `again`: records that were sent more than once, of
    which the first counts where the service keeps that, else the last.
    """

    def __init__(self, format_name: str, *, keeps_first: bool) -> None:
        self._format = format_name
        self._keeps_first = keeps_first
        self.notes: list[str] = []
        self.again = 0
        self._database = sqlite3.connect("", isolation_level=None)  # a file of SQLite's own, which nobody else sees
        self._database.execute(
            "CREATE TABLE old (name TEXT PRIMARY KEY, job TEXT, pair TEXT, end INTEGER, fields BLOB, "
            "seen INTEGER DEFAULT 0)"
        )
        self._database.execute("CREATE INDEX jobs ON old (job)")
        self._database.execute("CREATE INDEX pairs ON old (pair)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._database.close()

    def read(self, paths: Sequence[Path], now: int) -> None:
        """Take the messages of these files and folders, SSM's queues among them. Raises `UsageError`."""
        self._database.execute("BEGIN")
        for label, content in contents(paths):
            if label.endswith((".lck", ".tmp")):
                continue  # python-dirq's own
            if isinstance(content, str):
                self._note(f"{label}: {content}")
                continue
            for inner in unwrap(label, content, inspection_keys.Keys(), now):
                if inner.payload is None:
                    self._note(f"{inner.label}: {'; '.join(each.rule for each in inner.violations)}")
                else:
                    self._take(inner.label, inner.payload)
        self._database.execute("COMMIT")

    def _take(self, label: str, payload: bytes) -> None:
        try:
            found = _format_of(payload)
            if found != self._format:
                self._note(f"{label}: {found or 'no format that is known'}, and {self._format} is compared")
                return
            for fields in each_fields_of(found, payload):
                self._put(fields)
        except (NotAMessageError, NotApelTextError, UnicodeDecodeError) as error:
            self._note(f"{label}: {error}")

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def _put(self, fields: Fields) -> None:
        keys = keys_of(self._format, fields)
        if self._database.execute("SELECT 1 FROM old WHERE name = ?", (keys.name,)).fetchone():
            self.again += 1
            if self._keeps_first:
                return
        self._database.execute(
            "INSERT OR REPLACE INTO old (name, job, pair, end, fields) VALUES (?, ?, ?, ?, ?)",
            (*msgspec.structs.astuple(keys), msgspec.json.encode(fields)),
        )

    # --- what is in it

    @property
    def count(self) -> int:
        """How many there are, each once."""
        return int(self._database.execute("SELECT count(*) FROM old").fetchone()[0])

    def bounds(self) -> tuple[int, int] | None:
        """First and last end; None where no record tells one."""
        first, last = self._database.execute("SELECT min(end), max(end) FROM old").fetchone()
        return None if first is None else (first, last)

    def match(self, fields: Fields) -> OldRecord | None:
        """The record that tells of the same as ours, which is then no longer among the `unmatched`."""
        keys = keys_of(self._format, fields)
        query = "SELECT name, end, fields FROM old WHERE %s LIMIT 1"
        row = self._database.execute(query % "name = ?", (keys.name,)).fetchone()
        if row is None and keys.job is not None:
            row = self._database.execute(query % "job = ? AND seen = 0", (keys.job,)).fetchone()
        if row is None and keys.pair is not None:
            row = self._database.execute(query % "pair = ? AND seen = 0", (keys.pair,)).fetchone()
        if row is None:
            return None
        self.see(row[0])
        return OldRecord(row[0], row[1], _fields.decode(row[2]))

    def see(self, name: str) -> None:
        """Take a record out of the `unmatched`."""
        self._database.execute("UPDATE old SET seen = 1 WHERE name = ?", (name,))

    def unmatched(self) -> Iterator[OldRecord]:
        """The records that none of ours matched."""
        for name, end, fields in self._database.execute(
            "SELECT name, end, fields FROM old WHERE seen = 0 ORDER BY end"
        ):
            yield OldRecord(name, end, _fields.decode(fields))


class Keys(msgspec.Struct, frozen=True):
    """What a record is found by: its name, the global id of its job, local id and end as one text; and the end."""

    name: str
    job: str | None
    pair: str | None
    end: int | None


def keys_of(format_name: str, fields: Fields) -> Keys:
    """The keys of a record.

    Local ids are compared as APEL does: without case and trailing blanks (facts on receivers, 2).
    """
    if format_name in SUMMARIES:
        pairs = tuple((name, values[-1]) for name, values in fields.items())
        key = read_group(TextRecord(1, pairs)).key
        valid = 1 <= key.month <= _MONTHS and key.year
        return Keys(key.text, None, None, month_bounds(key.when)[0] if valid else None)
    local = _first(fields, "JobIdentity/LocalJobId", "LocalJobId")
    end: int | None = None
    with contextlib.suppress(ValueError):
        told = _first(fields, "EndTime")
        end = None if told is None else int(told) if told.isascii() and told.isdigit() else read_date_time(told)
    pair = None if local is None or end is None else f"{local.rstrip().lower()} {end}"
    job = _first(fields, "JobIdentity/GlobalJobId")
    name = _first(fields, "RecordIdentity@recordId") or pair or job
    return Keys(name or str(sorted(fields.items())), job, pair, end)


def _first(fields: Fields, *names: str) -> str | None:
    for name in names:
        if values := fields.get(name):
            return values[0]
    return None


def _format_of(payload: bytes) -> str:
    """Name of a message's format; empty for one that is not known. Raises as the parsers do."""
    if payload.lstrip(_BEFORE_XML).startswith(b"<"):
        root = parse_xml(payload)
        return FORMATS[str(root.tag).partition("}")[0].lstrip("{")]
    message = parse_text(payload.decode("ascii"))
    found = type_of(message.header, message.kind, message.version)
    return found.name if found is not None else ""
