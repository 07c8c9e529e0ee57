"""Marks of rows of ARC's database: a run that is stored is recognised by the mark of its row, which need not be read.

A mark is a digest of everything that decides which run is made of a row: the row, its side rows, the names to which it
points, the settings, and `RUN_VERSION`. A mark costs a tenth of making the run. It is a SHA-256, which takes a third of
BLAKE2's time on processors with instructions for it, and no more on others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Final

import msgspec

from publisher.sources.arc.database import AAR_COLUMNS, NAME_TABLES, SIDE_COLUMNS, Row, Rows
from publisher.sources.arc.jobs import RUN_VERSION, RowReader
from publisher.sources.base import NONE_RECOGNISED, Known, Recognised, Window

_encode: Final = msgspec.msgpack.Encoder().encode
_MARK_BYTES: Final = 8
_FIRST_NAME: Final = AAR_COLUMNS.index("EndpointID")
_NAMES: Final = slice(_FIRST_NAME, _FIRST_NAME + len(NAME_TABLES))
_CACHED: Final = 20_000

Marks = list[bytes | None]


class RowMarks:
    """Gives the marks of rows. `names` as for `RowReader`; `settings`: the settings that decide how rows are read."""

    def __init__(self, names: Mapping[str, Mapping[int, Row]], *settings: bool, version: int = RUN_VERSION) -> None:
        self._names = [names[table] for table in NAME_TABLES]
        self._way = _digest((version, settings))
        self._named: dict[Row, bytes] = {}

    def of(self, rows: Rows) -> Marks:
        """The mark of each row; None: it points to a missing name."""
        tokens, events, environments, transfers, info = (rows.sides[table].get for table in SIDE_COLUMNS)
        named, way, marks = self._named, self._way, Marks()
        for row in rows.aar:
            names = named.get(row[_NAMES]) or self._digest_of_names(row[_NAMES])
            if names is None:
                marks.append(None)
                continue
            key = row[0]
            content = (way, row, names, tokens(key), events(key), environments(key), transfers(key), info(key))
            marks.append(_digest(content))
        return marks

    def _digest_of_names(self, numbers: Row) -> bytes | None:
        names = [rows.get(number) for rows, number in zip(self._names, numbers, strict=True)]
        if None in names:
            return None
        if len(self._named) >= _CACHED:
            self._named.clear()
        digest = self._named[numbers] = _digest(names)
        return digest


class ComparedRows(msgspec.Struct, frozen=True):
    """The rows that were not recognised, with their marks, and the counts of the others; `outside`: outside of the
    window.
    """

    rows: Rows
    marks: Marks
    recognised: Recognised = NONE_RECOGNISED
    outside: int = 0


def compare(rows: Rows, marks: Marks, reader: RowReader, known: Known, window: Window) -> ComparedRows:
    """Omit the rows whose runs are stored unchanged.

    If two rows are of one run, which ARC does not write, the last one counts, and both are read.
    """
    ids = [reader.record_id(row) for row in rows.aar]
    stored = known([record_id for record_id in ids if record_id is not None])
    twice = _twice(ids) if len(set(ids)) < len(ids) else frozenset()
    left: list[Row] = []
    left_marks: Marks = []
    ends: list[int] = []
    for row, mark, record_id in zip(rows.aar, marks, ids, strict=True):
        stored_mark = stored.get(record_id) if record_id is not None else None
        if stored_mark is None or stored_mark[0] != mark or record_id in twice:
            left.append(row)
            left_marks.append(mark)
        else:
            ends.append(stored_mark[1])
    inside = [end for end in ends if window.holds(end)]
    recognised = Recognised(len(ends), len(inside), max(inside, default=None))
    return ComparedRows(Rows(left, rows.sides), left_marks, recognised, len(ends) - len(inside))


def _twice(ids: Iterable[str | None]) -> frozenset[str | None]:
    return frozenset(record_id for record_id, times in Counter(ids).items() if times > 1)


def _digest(content: object) -> bytes:
    return sha256(_encode(content)).digest()[:_MARK_BYTES]
