"""Keep what another publisher sent, record by record, in a temporary database.

A record is found by its record id or, if the publishers use different ids, by the global id, or by local id and end.
The publishers may spell local ids differently: `1042.lrms.example.org` and `1042`, `schedd#7.0#1790816340` and `7.0`,
`1053` and `1053.2` for an array task. Such a record is recognised by what both spellings have in common
(`publisher.job_ids`) and by its end. It is never sent with their spelling.
"""

from __future__ import annotations

import contextlib
import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from formats.apel.fold import Group
from formats.apel.summary import read_group
from formats.apel.text import NotApelTextError, TextRecord
from formats.apel.text import parse as parse_text
from formats.base import ReceiverKey
from formats.calendar import month_bounds
from formats.check.fields import Fields, each_fields_of
from formats.registry import FORMATS
from formats.rules import compared, type_of
from formats.text import read_date_time
from formats.xml.read import FORMAT_OF_NAMESPACE, NotAMessageError, begins_as_xml
from formats.xml.read import parse as parse_xml
from publisher.errors import StoreFullError, UsageError
from publisher.inspect import unwrap as inspection_keys
from publisher.inspect.inspect import contents
from publisher.inspect.unwrap import unwrap
from publisher.job_ids import local_id
from publisher.sqlite_file import TemporaryDatabase
from publisher.targets.message_files import is_of_queue

_MOST_NOTES: Final = 100
_MONTHS: Final = 12
_LONGEST_LINE: Final = 65_536
_ROUNDING_S: Final = 1
"""The APEL client rounds ends in milliseconds; here they are truncated."""
_fields = msgspec.json.Decoder(dict[str, tuple[str, ...]])

_GROUP: Final = (
    "Site", "Year", "Month", "GlobalUserName", "VO", "VOGroup", "VORole", "SubmitHost", "InfrastructureType",
    "ServiceLevelType", "ServiceLevel", "NodeCount", "Processors",
)  # fmt: skip
_KEYS: Final[Mapping[ReceiverKey, Mapping[str, tuple[str, ...]]]] = {
    "record id": {"RecordIdentity@recordId": ("RecordIdentity@recordId",)},
    "local id": {
        "Site": ("Site[gocdb]", "Site"),
        "LocalJobId": ("JobIdentity/LocalJobId", "LocalJobId"),
        "EndTime": ("EndTime",),
    },
}
"""The parts of a receiver's key and their fields, by the `key` of a format. `read_group` reads those of groups."""


class OldRecord(msgspec.Struct, frozen=True):
    """A record as it was sent. `end` in epoch seconds, if it has one; for a group the first second of the month.

    `is_export`: it is from a database, and has only some of the fields. `matched_by`: the record of ours that matched
    it before.
    """

    name: str
    end: int | None
    fields: Fields
    is_export: bool = False
    matched_by: str | None = None


class KeptRecord(msgspec.Struct, frozen=True):
    """A record of ours. `digest`: of the version that is compared; `held`: why it would be held, if it would."""

    run_id: int
    digest: bytes
    name: str
    local: str | None
    fields: Fields
    held: str | None = None


_OLD_RECORDS: Final = """
CREATE TABLE old (
    name TEXT PRIMARY KEY, job TEXT, pair TEXT, end INTEGER, number TEXT, site TEXT, fields BLOB, is_export INTEGER,
    matched_by TEXT, is_exact INTEGER DEFAULT 0
);
CREATE INDEX jobs ON old (job);
CREATE INDEX pairs ON old (pair);
CREATE INDEX numbers ON old (number, end);
CREATE TABLE ours (run_id INTEGER, digest BLOB, name TEXT, local TEXT, fields BLOB, held TEXT);
CREATE TABLE delivered (run_id INTEGER PRIMARY KEY, digest BLOB)
"""
_OLD: Final = "SELECT name, end, fields, is_export, matched_by FROM old "


class OldRecords(TemporaryDatabase):
    """The records of one format. Raises `StoreFullError` if there is no room for them.

    `notes`: what could not be read, and messages of other formats. `again`: number of records that were sent more than
    once; the first counts if the service keeps it, else the last.
    """

    def __init__(self, format_name: str, *, keeps_first: bool) -> None:
        super().__init__(_OLD_RECORDS, "the other publisher's records", StoreFullError)
        self._format = format_name
        self._keeps_first = keeps_first
        self.notes: list[str] = []
        self.again = 0

    def read(self, paths: Sequence[Path], now: int) -> None:
        """Read messages from files, folders, and SSM's queues, and exports of the APEL client's database.

        Raises `UsageError`.
        """
        messages = []
        for path in paths:
            if (export := Export.of(path)) is None:
                messages.append(path)
            elif export.shape == FORMATS[self._format].shape:
                for fields in export.rows():
                    self._put(fields, is_export=True)
            else:
                self._note(f"{path}: an export of {export.content}; only {self._format} is compared")
        for label, content in contents(messages):
            if is_of_queue(label):
                continue
            if isinstance(content, str):
                self._note(f"{label}: {content}")
                continue
            for inner in unwrap(label, content, inspection_keys.DecryptionKeys(), now):
                if inner.payload is None:
                    self._note(f"{inner.label}: {'; '.join(each.rule for each in inner.violations)}")
                else:
                    self._take(inner.label, inner.payload)

    def _take(self, label: str, payload: bytes) -> None:
        try:
            found = _format_of(payload)
            if found != self._format:
                self._note(f"{label}: {found or 'an unknown format'}; only {self._format} is compared")
                return
            for fields in each_fields_of(found, payload):
                self._put(fields)
        except (NotAMessageError, NotApelTextError, UnicodeDecodeError) as error:
            self._note(f"{label}: {error}")

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def _put(self, fields: Fields, *, is_export: bool = False) -> None:
        keys = keys_of(self._format, fields)
        if self.row("SELECT 1 FROM old WHERE name = ?", keys.name):
            self.again += 1
            if self._keeps_first:
                return
        self.change(
            "INSERT OR REPLACE INTO old (name, job, pair, end, number, site, fields, is_export) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    keys.name, keys.job, keys.pair, keys.end, _number_of(keys.local),
                    key_of(self._format, fields).get("Site"), msgspec.json.encode(fields), int(is_export),
                )
            ],
        )  # fmt: skip

    # --- what is in it

    @property
    def count(self) -> int:
        """Number of records, each counted once."""
        ((number,),) = self.rows("SELECT count(*) FROM old")
        return int(number)

    def bounds(self) -> tuple[int, int] | None:
        """First and last end; None if no record has one."""
        ((first, last),) = self.rows("SELECT min(end), max(end) FROM old")
        return None if first is None else (first, last)

    def sites(self) -> list[str]:
        """The sites of the records, if the site is part of the service's key."""
        return [name for (name,) in self.rows("SELECT DISTINCT site FROM old WHERE site IS NOT NULL ORDER BY site")]

    def match(self, fields: Fields, ours: str) -> OldRecord | None:
        """Return their record with the same ids as ours, named `ours`, and remove it from the `unmatched`.

        If there is none, pass ours to `keep_for_later`: records with a different spelling are matched at the end, among
        those that are left.
        """
        keys = keys_of(self._format, fields)
        row = self.row(_OLD + "WHERE name = ?", keys.name)
        if row is None and keys.job is not None:
            row = self.row(_OLD + "WHERE job = ? AND matched_by IS NULL LIMIT 1", keys.job)
        if row is None and keys.pair is not None:
            rows = self.rows(_OLD + "WHERE pair = ? AND matched_by IS NULL", keys.pair)
            row = next(
                (one for one in rows if _may_be_one_task(keys, keys_of(self._format, _record(one).fields))), None
            )
        if row is None:
            return None
        found = _record(row)
        self.change("UPDATE old SET matched_by = ?, is_exact = 1 WHERE name = ?", [(ours, found.name)])
        return found

    def keep_for_later(self, ours: KeptRecord) -> None:
        """Keep a record of ours for `match_the_rest`."""
        row = (ours.run_id, ours.digest, ours.name, ours.local, msgspec.json.encode(ours.fields), ours.held)
        self.change("INSERT INTO ours VALUES (?, ?, ?, ?, ?, ?)", [row])

    def keep_delivered(self, run_id: int, digest: bytes) -> None:
        """Keep a run that the earlier publisher delivered, and the digest of the version that was compared."""
        self.change("INSERT OR REPLACE INTO delivered VALUES (?, ?)", [(run_id, digest)])

    def delivered(self) -> Iterator[tuple[int, bytes]]:
        """The runs of `keep_delivered`."""
        for page in self.pages(
            "SELECT run_id, digest FROM delivered WHERE run_id > ? ORDER BY run_id LIMIT ?", after=-1
        ):
            yield from ((run_id, digest) for run_id, digest in page)

    def match_the_rest(self) -> Iterator[tuple[KeptRecord, OldRecord | None]]:
        """Match the kept records with those that are left: the same job in another spelling, first with the same end,
        then with a rounded one.

        Several of ours with the same end may match one of theirs: all but the first get it with `matched_by`.
        """
        for tolerance_s in (0, _ROUNDING_S):
            query = (
                "SELECT rowid, run_id, digest, name, local, fields, held FROM ours WHERE rowid > ? "
                "ORDER BY rowid LIMIT ?"
            )
            for page in self.pages(query, after=0):
                for number, run_id, digest, name, local, stored, held in page:
                    ours = KeptRecord(run_id, digest, name, local, _fields.decode(stored), held)
                    found = self._spelled_otherwise(ours.fields, local, tolerance_s)
                    if found is not None:
                        self.mark_matched(found.name, name)
                        self.change("DELETE FROM ours WHERE rowid = ?", [(number,)])
                    if found is not None or tolerance_s:
                        yield ours, found

    def _spelled_otherwise(self, fields: Fields, local: str | None, tolerance_s: int) -> OldRecord | None:
        """Find their record whose local id, part of the service's key, is spelled differently. Unmatched ones go first;
        with a tolerance, matched ones are left out."""
        end = keys_of(self._format, fields).end
        if local is None or end is None or FORMATS[self._format].key != "local id":
            return None
        own, site = local_id(local), key_of(self._format, fields).get("Site")
        query = _OLD + "WHERE number = ? AND end BETWEEN ? AND ? AND is_exact = 0 ORDER BY matched_by IS NOT NULL"
        rows = self.rows(query, own.key, end - tolerance_s, end + tolerance_s)
        for found in map(_record, rows):
            theirs = keys_of(self._format, found.fields).local
            there = key_of(self._format, found.fields).get("Site")
            if tolerance_s and found.matched_by is not None:
                return None
            same_site = site is None or there is None or compared(site) == compared(there)
            if theirs is not None and own.may_be(local_id(theirs)) and same_site:
                return found
        return None

    def mark_matched(self, name: str, ours: str) -> None:
        """Remove a record from the `unmatched`."""
        self.change("UPDATE old SET matched_by = ? WHERE name = ?", [(ours, name)])

    def unmatched(self) -> Iterator[OldRecord]:
        """The records that matched none of ours."""
        yield from map(_record, self.each(_OLD + "WHERE matched_by IS NULL ORDER BY end"))

    def all(self) -> Iterator[OldRecord]:
        """All records, by end."""
        yield from map(_record, self.each(_OLD + "ORDER BY end"))


def _record(row: Sequence[Any]) -> OldRecord:
    return OldRecord(row[0], row[1], _fields.decode(row[2]), bool(row[3]), row[4])


def _may_be_one_task(one: MatchKeys, other: MatchKeys) -> bool:
    """Whether two ids of a job may be the same task of an array."""
    first, second = (None if keys.local is None else local_id(keys.local).part for keys in (one, other))
    return first is None or second is None or first == second


def _number_of(local: str | None) -> str | None:
    return None if local is None else local_id(local).key


class MatchKeys(msgspec.Struct, frozen=True):
    """The keys of a record: its name, the global id of its job, local id with end as one text, local id, and end."""

    name: str
    job: str | None
    pair: str | None
    local: str | None
    end: int | None


def keys_of(format_name: str, fields: Fields) -> MatchKeys:
    """Return the keys of a record.

    Local ids and sites are compared as APEL does: without case and trailing blanks (facts on receivers, 2). The site is
    part of APEL's key, since two sites may have jobs with the same local id and end. Local ids of usage records are
    compared within one machine, and without the server's name that BaRT appends.
    """
    if FORMATS[format_name].shape == "summary":
        key = group_of(fields).key
        valid = 1 <= key.month <= _MONTHS and key.year
        return MatchKeys(key.text, None, None, None, month_bounds(key.when)[0] if valid else None)
    local = _first(fields, "JobIdentity/LocalJobId", "LocalJobId")
    end: int | None = None
    with contextlib.suppress(ValueError):
        text = _first(fields, "EndTime")
        end = None if text is None else _instant(text)
    spelled = "" if local is None else local.rstrip().lower()
    if FORMATS[format_name].key == "record id" and (machine := _first(fields, "MachineName")) is not None:
        spelled = f"{spelled.partition('.')[0]} {machine.lower()}"
    elif FORMATS[format_name].key == "local id":
        spelled = f"{spelled} {compared(key_of(format_name, fields).get('Site', ''))}"
    pair = None if local is None or end is None else f"{spelled} {end}"
    job = _first(fields, "JobIdentity/GlobalJobId")
    name = _first(fields, "RecordIdentity@recordId") or pair or job
    return MatchKeys(name or str(sorted(fields.items())), job, pair, local, end)


def group_of(fields: Fields) -> Group:
    """Make a group of the fields of a summary."""
    return read_group(TextRecord(1, tuple((name, values[-1]) for name, values in fields.items())))


def key_of(format_name: str, fields: Fields) -> dict[str, str]:
    """Return the parts of a record's key at the receiver, as sent; ends in epoch seconds."""
    kind = FORMATS[format_name].key
    if kind == "group":
        found = msgspec.structs.astuple(group_of(fields).spelling)
        level = found[-3]
        return dict(zip(_GROUP, map(str, (*found[:-3], level / 1000, *found[-2:])), strict=True))
    parts = {name: _first(fields, *names) for name, names in _KEYS.get(kind, {}).items()}
    if (end := parts.get("EndTime")) is not None:
        with contextlib.suppress(ValueError):
            parts["EndTime"] = str(_instant(end))
    return {name: value for name, value in parts.items() if value is not None}


def _instant(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else read_date_time(text)


def _first(fields: Fields, *names: str) -> str | None:
    for name in names:
        if values := fields.get(name):
            return values[0]
    return None


def _format_of(payload: bytes) -> str:
    """Return the name of a message's format, empty if unknown. Raises as the parsers do."""
    if begins_as_xml(payload):
        root = parse_xml(payload)
        return FORMAT_OF_NAMESPACE[str(root.tag).partition("}")[0].lstrip("{")]
    message = parse_text(payload.decode("ascii"))
    found = type_of(message.header, message.kind, message.version)
    return found.name if found is not None else ""


_INSTANTS: Final = frozenset({"StartTime", "EndTime", "EarliestEndTime", "LatestEndTime"})
_NOT_SENT: Final = frozenset({"UpdateTime"})
_ESCAPED: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0"}


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
    shape: Literal["record", "summary"]
    columns: tuple[str, ...]
    delimiter: str

    @property
    def content(self) -> str:
        """The kind of its rows, for people."""
        return "summaries" if self.shape == "summary" else "job records"

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
            return Export(path, "summary", columns, delimiter)
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
            raise UsageError(f"{self.path} cannot be read: {error}", hint="Export the table again") from error

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
                    value = str(_instant(value.replace(" ", "T")))
                except ValueError as error:
                    raise UsageError(
                        f"{self.path} line {line}: {name} {value!r} is not a time", hint="Export the table again"
                    ) from error
            fields[name] = (value,)
        return fields


def _unescaped(found: re.Match[str]) -> str:
    return _ESCAPES.get(found[1], found[1])
