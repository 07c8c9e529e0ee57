"""The marks of all files of a log, in memory that does not grow with their number: a folder may have a file for each
job of years.

A settled mark (`Mark.is_settled`) is a row of a temporary database of this process, which SQLite keeps on the disk,
until something is asked of it. The others, and those that were asked for, are objects, so that what is noted of one is
noted of it wherever it is held.
"""

from __future__ import annotations

import os
import sqlite3
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

import msgspec

from publisher.sources.base import MarkChange
from publisher.sources.logs.mark import Key, Mark, digest, lead_of

_TABLES: Final = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -1024;
CREATE TABLE settled (
    file TEXT PRIMARY KEY, stamp TEXT, path BLOB, grew INTEGER, lead TEXT, head_bytes INTEGER, head TEXT,
    changed INTEGER, mark TEXT
) WITHOUT ROWID;
CREATE INDEX changed ON settled (changed) WHERE changed;
CREATE TABLE met (file TEXT PRIMARY KEY, how INTEGER) WITHOUT ROWID;
"""
_BEGINNINGS: Final = "CREATE INDEX IF NOT EXISTS beginnings ON settled (lead, head_bytes, head)"
"""Made when a file was opened: mostly none is new, and to keep it while marks are added takes longest."""
_LENGTHS: Final = """
WITH RECURSIVE lengths (length) AS (
    SELECT min(head_bytes) FROM settled WHERE lead = :lead
    UNION ALL
    SELECT (SELECT min(head_bytes) FROM settled WHERE lead = :lead AND head_bytes > length) FROM lengths
    WHERE length IS NOT NULL
)
SELECT length FROM lengths WHERE length IS NOT NULL
"""
"""The different lengths of beginnings with a lead, each looked up in the index: there may be as many files as jobs."""
_INSERT: Final = "INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MEET: Final = "INSERT INTO met VALUES (?, ?) ON CONFLICT DO UPDATE SET how = how | excluded.how"
_FOUND_AT_ONCE: Final = 500


UNCHANGED: Final = 1
"""How a pass met a file: as it was when its end was reached, so it was not opened."""
OPENED: Final = 2
NEW: Final = 4
"""No earlier reading met it."""
LET_GO: Final = 8
"""It was not found, and its mark is one of those that are gone."""
FOUND: Final = UNCHANGED | OPENED
_Beginning = tuple[str, int, str]
"""The lead, the length, and the digest of the beginning of a file."""


class Marks:
    """The present mark of each file by device and inode, and how this pass met it.

    `stored`: the texts of marks that are stored one by one. One that is damaged is not there: its file is read anew.
    """

    def __init__(self, stored: Iterable[str] = ()) -> None:
        # Whichever thread collects garbage may close it.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        self._database.executescript(_TABLES)
        self._objects: dict[Key, Mark] = {}
        self._by_beginning: dict[_Beginning, dict[Key, Mark]] = {}
        """The objects by their beginnings: each file that is opened asks for those with its own."""
        self._lengths: defaultdict[str, set[int]] = defaultdict(set)
        """By lead, the lengths of the beginnings that objects have, or had."""
        self._stored_texts: dict[Key, str] = {}
        """The texts of those objects that are stored one by one."""
        self._removed: set[Key] = set()
        self._found: set[str] = set()
        """Files that were found unchanged and are not noted as met yet."""
        for text in stored:
            with suppress(ValueError, msgspec.ValidationError):
                mark = Mark.of(text)
                if mark.is_settled:
                    self._write(mark, text, changed=False)
                else:
                    self._keep(mark)
                    self._stored_texts[mark.key] = text

    def add(self, values: Iterable[Any]) -> None:
        """Add marks that are not stored one by one. Raises as `Mark.of`."""
        for mark in map(Mark.of, values):
            self.hold(mark.key)
            self.put(mark)
            self.settle(mark)

    def texts(self) -> list[str]:
        """The texts of all marks."""
        texts = [text for (text,) in self._database.execute("SELECT mark FROM settled")]
        return [*texts, *(mark.text for mark in self._objects.values())]

    def changes(self) -> tuple[MarkChange, ...]:
        """What must be stored one by one since the last call."""
        rows = self._database.execute("SELECT file, mark FROM settled WHERE changed").fetchall()
        texts = {key: mark.text for key, mark in self._objects.items()}
        changed = {key: text for key, text in texts.items() if text != self._stored_texts.get(key)}
        removed = (MarkChange(_file_of(key), None) for key in self._removed)
        changes = (*removed, *(MarkChange(*row) for row in rows))
        if rows:
            self._database.execute("UPDATE settled SET changed = 0 WHERE changed")
        self._removed.clear()
        self._stored_texts |= changed
        return *changes, *(MarkChange(_file_of(key), text) for key, text in changed.items())

    def paths(self) -> Iterator[tuple[str, bool]]:
        """The path of each file, and whether it was seen to grow."""
        for path, grew in self._database.execute("SELECT path, grew FROM settled"):
            yield os.fsdecode(path), bool(grew)
        yield from ((mark.path, mark.grew) for mark in self._objects.values())

    def hold_at(self, is_asked_for: Callable[[str], bool]) -> None:
        """Hold the marks of the files whose paths are asked for."""
        rows = self._database.execute("SELECT path, mark FROM settled")
        for key in [Mark.of(text).key for path, text in rows if is_asked_for(os.fsdecode(path))]:
            self.hold(key)

    def held(self) -> Collection[Mark]:
        """The marks that are objects: all that are not settled are among them."""
        return self._objects.values()

    def has(self, key: Key, path: str, size: int, mtime_ns: int) -> bool:
        """Whether a file has a mark that is no object, with this path, size, and time of last change."""
        query = "SELECT 1 FROM settled WHERE file = ? AND stamp = ? AND path = ?"
        row = _file_of(key), _stamp(size, mtime_ns), os.fsencode(path)
        return self._database.execute(query, row).fetchone() is not None

    def peek(self, key: Key) -> Mark | None:
        """The mark of a file, to be looked at only."""
        if (held := self._objects.get(key)) is not None:
            return held
        row = self._database.execute("SELECT mark FROM settled WHERE file = ?", (_file_of(key),)).fetchone()
        return None if row is None else Mark.of(row[0])

    def hold(self, key: Key) -> Mark | None:
        """The mark of a file, which is the same object from now on."""
        file = (_file_of(key),)
        row = self._database.execute("SELECT mark, changed FROM settled WHERE file = ?", file).fetchone()
        if row is not None:
            text, changed = row
            self._database.execute("DELETE FROM settled WHERE file = ?", file)
            self._keep(Mark.of(text))
            if not changed:
                self._stored_texts[key] = text
        return self._objects.get(key)

    def put(self, mark: Mark) -> None:
        """Put a mark in the place of that of its file, which is held, or there is none."""
        self._removed.discard(mark.key)
        self._keep(mark)

    def settle(self, mark: Mark) -> None:
        """Make a mark that nobody else has a row, if it is settled."""
        if mark.is_settled and self._objects.get(mark.key) is mark:
            self._drop(mark)
            text = mark.text
            self._write(mark, text, changed=self._stored_texts.pop(mark.key, None) != text)

    def remove(self, mark: Mark) -> bool:
        """Remove a mark that is an object, if it is the present one of its file."""
        is_present = self._objects.get(mark.key) is mark
        if is_present:
            self._drop(mark)
            self._stored_texts.pop(mark.key, None)
            self._removed.add(mark.key)
        return is_present

    def continued_by(self, head: bytes) -> list[Mark]:
        """The marks of files whose beginnings a file with this one has too, which are held from now on; the longest
        first."""
        self._database.execute(_BEGINNINGS)
        lengths = {
            (lead, length)
            for lead in {"", lead_of(head)}
            for length in (*self._lengths[lead], *(row[0] for row in self._database.execute(_LENGTHS, {"lead": lead})))
        }
        marks: list[Mark] = []
        for of_lead, length in sorted(lengths, reverse=True):
            if 0 < length <= len(head):
                beginning = of_lead, length, digest(head[:length])
                query = "SELECT mark FROM settled WHERE lead = ? AND head_bytes = ? AND head = ?"
                for (text,) in self._database.execute(query, beginning).fetchall():
                    self.hold(Mark.of(text).key)
                marks += self._by_beginning.get(beginning, {}).values()
        return marks

    def _keep(self, mark: Mark) -> None:
        if (earlier := self._objects.get(mark.key)) is not None:
            self._drop(earlier)
        self._objects[mark.key] = mark
        self._by_beginning.setdefault(_beginning_of(mark), {})[mark.key] = mark
        self._lengths[mark.lead].add(mark.head_bytes)

    def _drop(self, mark: Mark) -> None:
        del self._objects[mark.key]
        alike = self._by_beginning[_beginning_of(mark)]
        del alike[mark.key]
        if not alike:
            del self._by_beginning[_beginning_of(mark)]

    def _write(self, mark: Mark, text: str, *, changed: bool) -> None:
        stamp = _stamp(mark.size, mark.mtime_ns)
        row = _file_of(mark.key), stamp, os.fsencode(mark.path), int(mark.grew), *_beginning_of(mark)
        self._database.execute(_INSERT, (*row, int(changed), text))

    # --- how this pass met the files

    def meet(self, key: Key, how: int) -> None:
        """Note how a file was met, besides what is noted of it."""
        if how != UNCHANGED:
            self._database.execute(_MEET, (_file_of(key), how))
            return
        self._found.add(_file_of(key))
        if len(self._found) >= _FOUND_AT_ONCE:
            self._note_found()

    def _note_found(self) -> None:
        self._database.executemany(_MEET, [(file, UNCHANGED) for file in self._found])
        self._found.clear()

    def met(self, key: Key) -> int:
        """How a file was met; 0: it was not."""
        file = _file_of(key)
        row = self._database.execute("SELECT how FROM met WHERE file = ?", (file,)).fetchone()
        how = 0 if row is None else row[0]
        return how | UNCHANGED if file in self._found else how

    def not_found(self) -> list[Key]:
        """The files with a mark that this pass neither found unchanged nor opened."""
        self._note_found()
        query = "SELECT mark FROM settled WHERE file NOT IN (SELECT file FROM met WHERE how & ?)"
        rows = self._database.execute(query, (FOUND,))
        keys = [Mark.of(text).key for (text,) in rows]
        return [*keys, *(key for key in self._objects if not self.met(key) & FOUND)]


def _beginning_of(mark: Mark) -> _Beginning:
    return mark.lead, mark.head_bytes, mark.head


def _file_of(key: Key) -> str:
    """A file as it is stored: an inode may be larger than the integers of a database, and so may a time."""
    device, inode = key
    return f"{device}:{inode}"


def _stamp(size: int, mtime_ns: int) -> str:
    return f"{size}:{mtime_ns}"
