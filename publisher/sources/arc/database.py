"""ARC's accounting database: opening and reading it, and the errors of a file that another program writes.

Nothing is ever written: the file is opened read-only, as SQLite allows it beside a live writer. A page is read in one
short transaction, so that all its rows are of one instant and the writer can checkpoint its WAL between two pages. Rows
are found by key; names and side tables are read by page, not by job.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from publisher.errors import SourceBusyError, SourceError, SourceFormatError
from publisher.sources.arc.file import explain_unopened, require_database_file
from publisher.sqlite_file import open_read_only

_VERSIONS: Final = ("1", "2")
"""Values of DBSCHEMA_VERSION: ARC 6 writes 1 to accounting.db, ARC 7 writes 2 to accounting_v2.db."""

AAR_COLUMNS: Final = (
    "RecordID",
    "JobID",
    "LocalJobID",
    "EndpointID",
    "QueueID",
    "UserID",
    "VOID",
    "StatusID",
    "ExitCode",
    "SubmitTime",
    "EndTime",
    "NodeCount",
    "CPUCount",
    "UsedMemory",
    "UsedVirtMem",
    "UsedWalltime",
    "UsedCPUUserTime",
    "UsedCPUKernelTime",
    "UsedScratch",
    "StageInVolume",
    "StageOutVolume",
)
SIDE_COLUMNS: Final = {
    "AuthTokenAttributes": (("AttrKey", "AttrValue"),),
    "JobEvents": (("EventKey",), ("EventTime",)),
    "RunTimeEnvironments": (("RTEName",),),
    "DataTransfers": (("TransferType", "URL", "FileSize", "TransferStart", "TransferEnd"),),
    "JobExtraInfo": (("InfoKey",), ("InfoValue",)),
}
"""The columns of each side table, in groups: the columns of a group are read as one text."""
NAME_TABLES: Final = {
    "Endpoints": "Interface, URL",
    "Queues": "Name",
    "Users": "Name",
    "WLCGVOs": "Name",
    "Status": "Name",
}
_MOVED: Final = {
    "FQANs": ("FQANID", "AuthTokenAttributes", "mainfqan"),
    "Benchmarks": ("BenchmarkID", "JobExtraInfo", "benchmark"),
}
"""What version 2 keeps in tables of names: the column of AAR, and the side table and key of version 1."""

_CACHE_KIB: Final = 2_000
DENSE: Final = 4
"""Rows whose ids span at most this many times their number are read by range, others by list."""

Row = tuple[Any, ...]
Sides = dict[str, dict[int, Row]]
"""Rows of the side tables by table and RecordID: RecordID, a text for each group of columns, number of rows. A text has
the values of all rows of a job, in the order they were written, joined by `SEPARATOR`; NULL is an empty text. Few texts
for each job are read and kept much faster than a tuple for each row, and jobs have few different lists of keys.
"""

SEPARATOR: Final = "\x1f"
"""Joins the values of side rows. In a value that contains it (no format could carry it) a blank replaces it."""


class Rows(msgspec.Struct, frozen=True):
    """Rows of table AAR and their side rows, of one instant."""

    aar: list[Row]
    sides: Sides


class ArcDatabase:
    """An accounting database open for reading. Every method raises `SourceError` or one of its kinds.

    `names` contains the rows of the tables of names read so far, by table and ID.
    """

    def __init__(self, path: Path, busy_timeout_s: float) -> None:
        require_database_file(path)
        self.path = path
        self.names: dict[str, dict[int, Row]] = {table: {} for table in (*NAME_TABLES, *_MOVED)}
        with self._explained():
            self._connection = open_read_only(path, busy_timeout_s)
        try:
            with self._explained():
                self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self) -> None:
        for pragma in ("query_only = ON", "trusted_schema = OFF", f"cache_size = -{_CACHE_KIB}"):
            self._connection.execute(f"PRAGMA {pragma}")
        tables = {
            str(name) for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if "AccountingTargets" in tables:
            raise SourceFormatError(
                f"{self.path} is ARC's publishing state, not its accounting database",
                hint="Give the path of accounting.db; publishing.db is for `import arc`",
            )
        missing = sorted({"AAR", "DBConfig", *SIDE_COLUMNS, *NAME_TABLES} - tables)
        if missing:
            raise SourceFormatError(
                f"{self.path} is a SQLite database without {', '.join(missing)}: not ARC's accounting database",
                hint="The database of ARC 6.4 and later is CONTROLDIR/accounting/accounting.db",
            )
        version = self.schema_version()
        if version not in _VERSIONS:
            version_name = "no DBSCHEMA_VERSION" if version is None else f"DBSCHEMA_VERSION {version}"
            raise SourceFormatError(
                f"{self.path} has {version_name}; this program reads versions {' and '.join(_VERSIONS)}",
                hint="Nothing was read and nothing is lost: update the publisher, then collect again",
            )
        self._has_moved = version == "2"
        columns = [*AAR_COLUMNS, *(column for column, _, _ in _MOVED.values())] if self._has_moved else AAR_COLUMNS
        self._select = f"SELECT {', '.join(columns)} FROM AAR"  # noqa: S608

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise _explain(self.path, error) from error

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """A transaction: all reads in it see one state of the database. Keep it short: the writer's WAL grows
        meanwhile.
        """
        with self._explained():
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")

    # --- small queries

    def _one(self, sql: str, *values: object) -> Any:
        with self._explained():
            row = self._connection.execute(sql, values).fetchone()
        return None if row is None else row[0]

    def schema_version(self) -> str | None:
        """The version of the tables, as DBConfig has it."""
        version = self._one("SELECT KeyValue FROM DBConfig WHERE KeyName = 'DBSCHEMA_VERSION'")
        return None if version is None else str(version)

    def job_id(self, record_id: int) -> str | None:
        """JobID of a row, as text that differs between versions of the schema; None: the row does not exist."""
        job_id = self._one("SELECT hex(JobID) FROM AAR WHERE RecordID = ?", record_id)
        return None if job_id is None else f"{job_id} (version 2)" if self._has_moved else str(job_id)

    def newest_end(self) -> int:
        """The latest EndTime; 0: no job has ended."""
        return int(self._one("SELECT EndTime FROM AAR WHERE EndTime < 9e18 ORDER BY EndTime DESC LIMIT 1") or 0)

    def first_submit(self) -> int | None:
        """The earliest SubmitTime; None: there is none."""
        submit = self._one(
            "SELECT SubmitTime FROM AAR WHERE SubmitTime > 0 AND SubmitTime < 9e18 ORDER BY SubmitTime LIMIT 1"
        )
        return None if submit is None else int(submit)

    def counts_by_status(self) -> dict[str, int]:
        """The number of rows of each status."""
        counts = "SELECT StatusID, count(*) AS n FROM AAR GROUP BY StatusID"
        sql = f"SELECT coalesce(Name, 'status ' || StatusID), n FROM ({counts}) LEFT JOIN Status ON ID = StatusID"  # noqa: S608
        with self._explained():
            return {str(name): int(number) for name, number in self._connection.execute(sql)}

    def in_progress(self, up_to: int) -> set[int]:
        """RecordIDs up to `up_to` of the jobs that are in progress now."""
        sql = (
            "SELECT RecordID FROM AAR WHERE StatusID = (SELECT ID FROM Status WHERE Name = 'in-progress') "
            "AND RecordID <= ?"
        )
        with self._explained():
            return {number for (number,) in self._connection.execute(sql, (up_to,))}

    def side_marks(self) -> dict[str, int]:
        """The highest rowid of each side table."""
        return {table: int(self._one(f"SELECT max(rowid) FROM {table}") or 0) for table in SIDE_COLUMNS}  # noqa: S608

    def touched(self, before: dict[str, int], now: dict[str, int], up_to: int) -> set[int]:
        """RecordIDs up to `up_to` to which side rows were added between two marks."""
        ids: set[int] = set()
        with self._explained():
            for table, mark in now.items():
                sql = f"SELECT RecordID FROM {table} WHERE rowid > ? AND rowid <= ? AND RecordID <= ?"  # noqa: S608
                rows = self._connection.execute(sql, (before.get(table, mark), mark, up_to))
                ids.update(number for (number,) in rows if isinstance(number, int))
        return ids

    def digest_of_ends(self, since: int, until: int | None) -> str | None:
        """Digest of the rows of table AAR (without side tables) that end in a span; None: there are none."""
        digest = hashlib.blake2b(digest_size=8)
        some = False
        with self._explained(), self._text_as(bytes):
            rows = self._connection.execute(f"{self._select} {_BY_END} ORDER BY EndTime, RecordID", _span(since, until))
            while chunk := rows.fetchmany(2_000):
                some = True
                digest.update(msgspec.msgpack.encode(chunk))
        return digest.hexdigest() if some else None

    # --- pages

    def after(self, record_id: int, limit: int) -> Rows:
        """The next rows by RecordID."""
        return self._page(
            f"{self._select} WHERE RecordID > ? ORDER BY RecordID LIMIT ?", (record_id, limit), dense=True
        )

    def of_ids(self, ids: Sequence[int]) -> Rows:
        """The rows of those of these RecordIDs that exist."""
        return self._page(f"{self._select} WHERE RecordID IN ({_list(ids)})", ())

    def last_record_id(self) -> int:
        """The highest RecordID; 0: there are no rows."""
        return int(self._one("SELECT max(RecordID) FROM AAR") or 0)

    def extent(self, since: int, until: int | None) -> tuple[int, int, int]:
        """The number of rows that end in a span, and their lowest and highest RecordID."""
        sql = f"SELECT count(*), min(RecordID), max(RecordID) FROM AAR {_BY_END}"  # noqa: S608
        with self._explained():
            count, low, high = self._connection.execute(sql, _span(since, until)).fetchone()
        return int(count), int(low or 0), int(high or 0)

    def between(self, after: int, last: int, since: int, until: int | None, limit: int) -> Rows:
        """The next rows by RecordID, after `after` and up to `last`, that end in a span."""
        where = f"WHERE RecordID > ? AND RecordID <= ? AND {_ENDING.format('+EndTime')}"  # +: not by the index of ends
        return self._page(
            f"{self._select} {where} ORDER BY RecordID LIMIT ?", (after, last, *_span(since, until), limit)
        )

    def by_end(self, since: int, until: int | None, after: tuple[int, int], limit: int) -> Rows:
        """The next rows by EndTime and RecordID, after `after`, that end in a span."""
        sql = f"{self._select} {_BY_END} AND (EndTime, RecordID) > (?, ?) ORDER BY EndTime, RecordID LIMIT ?"
        return self._page(sql, (*_span(since, until), *after, limit))

    def _page(self, sql: str, values: tuple[object, ...], *, dense: bool = False) -> Rows:
        with self.snapshot():
            try:
                return self._read(sql, values, dense=dense)
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            with self._text_as(_lenient):
                return self._read(sql, values, dense=dense)

    def _read(self, sql: str, values: tuple[object, ...], *, dense: bool) -> Rows:
        aar = self._connection.execute(sql, values).fetchall()
        sides: Sides = {table: {} for table in SIDE_COLUMNS}
        if aar:
            ids = [row[0] for row in aar]
            low, high = min(ids), max(ids)
            if dense or high - low < DENSE * len(ids):
                where = f"RecordID BETWEEN {low:d} AND {high:d}"
            else:
                where = f"RecordID IN ({_list(ids)})"
            sides = {table: self._read_side(table, where) for table in SIDE_COLUMNS}
            self._read_names(aar)
            if self._has_moved:
                aar = self._with_moved_back(aar, sides)
        return Rows(aar, sides)

    def _read_side(self, table: str, where: str) -> dict[int, Row]:
        # Version 2 has a second index that begins with RecordID, and gives the rows of a job in another order.
        source = f"{table} INDEXED BY {table}_RecordID_IDX" if self._has_moved else table
        rows = self._connection.execute(_side_select(source, where, table, "coalesce({}, '')")).fetchall()
        if _has_separators(table, rows):
            value = "replace(coalesce({}, ''), char(31), ' ')"
            rows = self._connection.execute(_side_select(source, where, table, value)).fetchall()
        return {row[0]: row for row in rows}

    def _with_moved_back(self, aar: list[Row], sides: Sides) -> list[Row]:
        """The rows as version 1 has them: main FQAN and benchmark of a job come before its other side rows.

        So a job is the same run before and after `arcctl accounting database migrate`.
        """
        for place, (table, (column, side, key)) in enumerate(_MOVED.items(), len(AAR_COLUMNS)):
            names, rows = self.names[table], sides[side]
            for row in aar:
                name = names.get(row[place])
                texts = (column, f"{row[place]} is not in table {table}") if name is None else (key, str(name[0] or ""))
                if texts[1]:
                    rows[row[0]] = _preceded(rows.get(row[0]), row[0], texts, len(SIDE_COLUMNS[side]))
        return [row[: len(AAR_COLUMNS)] for row in aar]

    def _read_names(self, aar: list[Row]) -> None:
        tables = [*NAME_TABLES.items(), *((table, "Name") for table in _MOVED if self._has_moved)]
        first = AAR_COLUMNS.index("EndpointID")
        places = [*range(first, first + len(NAME_TABLES)), len(AAR_COLUMNS), len(AAR_COLUMNS) + 1]
        for column, (table, columns) in zip(places, tables, strict=False):
            known = self.names[table]
            missing = {number for number in {row[column] for row in aar} - known.keys() if isinstance(number, int)}
            if missing:
                sql = f"SELECT ID, {columns} FROM {table} WHERE ID IN ({_list(missing)})"  # noqa: S608
                known.update((row[0], row[1:]) for row in self._connection.execute(sql))

    @contextmanager
    def _text_as(self, factory: Any) -> Iterator[None]:
        self._connection.text_factory = factory
        try:
            yield
        finally:
            self._connection.text_factory = str


_ENDING: Final = "{0} >= ? AND {0} < ?"
_BY_END: Final = f"WHERE {_ENDING.format('EndTime')}"


def _preceded(row: Row | None, record_id: int, texts: tuple[str, str], groups: int) -> Row:
    """A side row with one more key and value at its beginning; `groups`: the number of texts in which they are kept."""
    key, value = (text.replace(SEPARATOR, " ") for text in texts)
    first = (f"{key}{SEPARATOR}{value}",) if groups == 1 else (key, value)
    if row is None:
        return (record_id, *first, 1)
    return (record_id, *(SEPARATOR.join(pair) for pair in zip(first, row[1:-1], strict=True)), row[-1] + 1)


def _side_select(source: str, where: str, table: str, value: str) -> str:
    # The index on RecordID gives the rows of a job in the order of their rowid, which is that of their writing.
    # The separator is in the text of the query: char(31) would be evaluated for every row.
    joined = (f" || '{SEPARATOR}' || ".join(value.format(column) for column in group) for group in SIDE_COLUMNS[table])
    texts = ", ".join(f"group_concat({values}, '{SEPARATOR}')" for values in joined)
    return f"SELECT RecordID, {texts}, count(*) FROM {source} WHERE {where} GROUP BY RecordID ORDER BY RecordID"  # noqa: S608


def _has_separators(table: str, rows: list[Row]) -> bool:
    """Whether a value contains a separator.

    A job cannot have fewer separators than values less one, so the sum over all jobs shows it for each.
    """
    values = sum([row[-1] for row in rows])
    return any(
        "".join([row[place] for row in rows]).count(SEPARATOR) != len(group) * values - len(rows)
        for place, group in enumerate(SIDE_COLUMNS[table], 1)
    )


def _span(since: int, until: int | None) -> tuple[int, object]:
    # SQLite sorts any text after any number, so that an open span includes values that are not numbers.
    return max(since, 1), "\U0010ffff" if until is None else until


def _list(ids: Collection[int]) -> str:
    return ",".join(f"{number:d}" for number in ids)


def _lenient(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _explain(path: Path, error: sqlite3.Error) -> SourceError:
    code = (getattr(error, "sqlite_errorcode", None) or sqlite3.SQLITE_ERROR) & 0xFF
    if code in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
        return SourceBusyError(
            f"{path} is locked by another program",
            hint="The next run reads it; if that persists, raise busy_timeout, or find what holds it (fuser, lsof)",
        )
    if code in {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}:
        return SourceFormatError(
            f"{path} is damaged: {error}",
            hint="Check it with `sqlite3 FILE 'PRAGMA integrity_check'`; nothing read so far is lost",
        )
    if code in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}:
        return explain_unopened(path, str(error))
    if code == sqlite3.SQLITE_ERROR:
        return SourceFormatError(
            f"{path} is not the accounting database this program knows: {error}",
            hint="Nothing was read and nothing is lost: update the publisher, then collect again",
        )
    return SourceError(f"{path} could not be read: {error}", hint="See the system's log for the disk or file system")
