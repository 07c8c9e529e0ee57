"""Read exports of the APEL client's database, or of that of an APEL server: tables as text.

What the client sent cannot be seen in its database: `LastUpdated` is set by `interval = latest` alone, not by `gap` and
`all`. Hence whole tables are read, and the numbers of jobs in one table are compared with another (`job_counts`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from formats.check.fields import Fields
from formats.text import read_date_time
from publisher.errors import UsageError
from publisher.text import problem_text

_LONGEST_LINE: Final = 65_536
_INSTANTS: Final = frozenset({"StartTime", "EndTime", "EarliestEndTime", "LatestEndTime"})
_OF_SYNC: Final = frozenset({"Site", "SubmitHost", "Month", "Year", "NumberOfJobs", "UpdateTime"})
_NOT_SENT: Final = frozenset({"UpdateTime"})
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0"}


def read_instant(text: str) -> int:
    """Return epoch seconds of an instant in a message or export. Raises `ValueError`."""
    return int(text) if text.isascii() and text.isdigit() else read_date_time(text)


class _MariaDb(csv.Dialect):
    """What `mariadb --batch` writes."""

    delimiter = "\t"
    quoting = csv.QUOTE_NONE
    lineterminator = "\n"


class Export(msgspec.Struct, frozen=True):
    """A table of the APEL client's database as text: a line of names, then a line for each row, with tabs or commas.

    The columns have the names of the keys in messages. Instants are UTC, `2026-10-01 01:30:00`, as the client stores
    them.
    """

    path: Path
    shape: Literal["record", "totals", "sync"]
    columns: tuple[str, ...]
    delimiter: str

    @property
    def content(self) -> str:
        """The kind of its rows, for people."""
        return {"record": "job records", "totals": "summaries", "sync": "sync counts"}[self.shape]

    @staticmethod
    def of(path: Path) -> Export | None:
        """Return the export in a file; None if it is something else."""
        try:
            with path.open(encoding="utf-8") as file:
                first = file.readline(_LONGEST_LINE).rstrip("\n")
        except (OSError, UnicodeDecodeError):
            return None
        delimiter = "\t" if "\t" in first else ","
        columns = tuple(next(csv.reader([first], delimiter=delimiter), ()))
        if {"Site", "LocalJobId", "EndTime"} <= {*columns}:
            return Export(path, "record", columns, delimiter)
        if {"Site", "Month", "Year", "NumberOfJobs"} <= {*columns}:
            return Export(path, "sync" if {*columns} <= _OF_SYNC else "totals", columns, delimiter)
        return None

    def rows(self) -> Iterator[Fields]:
        """The fields of each row. Raises `UsageError` for a file or line that cannot be read."""
        try:
            with self.path.open(encoding="utf-8", newline="") as file:
                reader = csv.reader(file, "excel" if self.delimiter == "," else _MariaDb)
                next(reader)
                for cells in reader:
                    yield self._row(cells, reader.line_num)
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            problem = f"{self.path} cannot be read: {problem_text(error)}"
            raise UsageError(problem, hint="Export the table again") from error

    def _row(self, cells: Sequence[str], line: int) -> Fields:
        if len(cells) != len(self.columns):
            raise UsageError(
                f"{self.path} line {line} has {len(cells)} columns, its first line {len(self.columns)}",
                hint="Export the table again",
            )
        fields: Fields = {}
        for name, cell in zip(self.columns, cells, strict=True):
            if cell == "NULL" or name in _NOT_SENT:
                continue
            value = _ESCAPED.sub(_unescaped, cell) if self.delimiter == "\t" else cell
            if name in _INSTANTS:
                try:
                    value = str(read_instant(value.replace(" ", "T")))
                except ValueError as error:
                    raise UsageError(
                        f"{self.path} line {line}: {name} {value!r} is not a time", hint="Export the table again"
                    ) from error
            fields[name] = (value,)
        return fields


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])
