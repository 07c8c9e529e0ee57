"""Keep what another publisher sent, record by record, in a temporary database.

A record is found by its record id or, if the publishers use different ids, by the global id, or by local id and end.
The publishers may spell local ids differently: `1042.lrms.example.org` and `1042`, `schedd#7.0#1790816340` and `7.0`,
`1053` and `1053.2` for an array task. Such a record is recognised by what both spellings have in common
(`publisher.job_ids`) and by its end. It is never sent with their spelling.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

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
from formats.xml.read import FORMAT_OF_NAMESPACE, NotAMessageError, begins_as_xml
from formats.xml.read import parse as parse_xml
from publisher.errors import StoreFullError
from publisher.inspect import unwrap as inspection_keys
from publisher.inspect.inspect import contents
from publisher.inspect.unwrap import unwrap
from publisher.job_ids import LocalId, local_id
from publisher.migrate.export import Export, read_instant
from publisher.migrate.job_counts import JobCounts, SiteMonth, jobs_of, place_of
from publisher.migrate.slurm_steps import SlurmSteps
from publisher.migrate.wrong_zone import ZONE_STEP_S, ZONES_DIFFER_S, OtherEnds
from publisher.sqlite_file import TemporaryDatabase
from publisher.targets.message_files import is_of_queue

_MOST_NOTES: Final = 100
_MONTHS: Final = 12
_ROUNDING_S: Final = 1
"""The APEL client rounds ends in milliseconds; here they are truncated."""
_SET_BACK_S: Final = 3600
"""A clock that is set back shows an hour twice: a log in local time does not say which of the two it means, and the
APEL client and we may decide otherwise."""
_ALIKE: Final = 50
"""Records of one number that are compared: an array may have many."""
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
    """A record of ours. `digest`: of the version that is compared; `held`: why it would be held, if it would;
    `source`: the name of its source."""

    run_id: int
    digest: bytes
    name: str
    local: str | None
    fields: Fields
    held: str | None = None
    source: str = ""


_OLD_RECORDS: Final = """
CREATE TABLE old (
    name TEXT PRIMARY KEY, job TEXT, pair TEXT, end INTEGER, number TEXT, site TEXT, fields BLOB, is_export INTEGER,
    matched_by TEXT, is_exact INTEGER DEFAULT 0
);
CREATE INDEX jobs ON old (job);
CREATE INDEX pairs ON old (pair);
CREATE INDEX numbers ON old (number, end);
CREATE TABLE ours (run_id INTEGER, digest BLOB, name TEXT, local TEXT, fields BLOB, held TEXT, source TEXT);
CREATE TABLE delivered (run_id INTEGER PRIMARY KEY, digest BLOB)
"""
_OLD: Final = "SELECT name, end, fields, is_export, matched_by FROM old "


class OldRecords(TemporaryDatabase):
    """The records of one format. Raises `StoreFullError` if there is no room for them.

    `notes`: what could not be read, and messages of other formats. `again`: number of records that were sent more than
    once; the first counts if the service keeps it, else the last.
    """

    def __init__(self, format_name: str, *, keeps_first: bool, only_slurm: bool = False) -> None:
        """`only_slurm`: all jobs are from Slurm, so that the APEL client may have sent steps as jobs."""
        super().__init__(_OLD_RECORDS, "the other publisher's records", StoreFullError)
        self._format = format_name
        self._keeps_first = keeps_first
        self.steps = SlurmSteps(only_slurm=only_slurm)
        self.job_counts = JobCounts()
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
            else:
                self._read_export(export)
        for label, content in contents(messages):
            if is_of_queue(label):
                continue
            if isinstance(content, str):
                self._note(f"{label}: {content}")
                continue
            for inner in unwrap(label, content, inspection_keys.DecryptionKeys(), now):
                if inner.payload is None:
                    self._note(f"{inner.label}: {'; '.join(violation.rule for violation in inner.violations)}")
                else:
                    self._take(inner.label, inner.payload)

    def _read_export(self, export: Export) -> None:
        if export.shape == FORMATS[self._format].shape:
            self.job_counts.begin_file()
            for fields in export.rows():
                self._put(fields, is_export=True)
        elif export.shape == "record":  # beside summaries: how many of their jobs are steps
            self.steps.count(export.rows())
        else:
            self.job_counts.expect(export.rows())

    def _take(self, label: str, payload: bytes) -> None:
        try:
            format_name = _format_of(payload)
            if format_name != self._format:
                self._note(f"{label}: {format_name or 'an unknown format'}; only {self._format} is compared")
                return
            for fields in each_fields_of(format_name, payload):
                self._put(fields)
        except (NotAMessageError, NotApelTextError, UnicodeDecodeError) as error:
            self._note(f"{label}: {error}")

    def _note(self, text: str) -> None:
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)

    def _put(self, fields: Fields, *, is_export: bool = False) -> None:
        keys = keys_of(self._format, fields)
        site = key_of(self._format, fields).get("Site")
        if is_export:
            jobs = jobs_of(fields) if FORMATS[self._format].shape == "totals" else 1
            self.job_counts.add(site, keys.end, jobs)
        if self.row("SELECT 1 FROM old WHERE name = ?", keys.name):
            self.again += 1
            if self._keeps_first:
                return
        self.change(
            "INSERT OR REPLACE INTO old (name, job, pair, end, number, site, fields, is_export) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    keys.name, keys.job, keys.pair, keys.end,
                    None if self.steps.is_step(fields) else _number_of(keys.local),
                    site, msgspec.json.encode(fields), int(is_export),
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

    def listed(self) -> Counter[SiteMonth]:
        """Number of jobs by month and site."""
        counts, of_groups = Counter[SiteMonth](), FORMATS[self._format].shape == "totals"
        for site, end, fields in self.each("SELECT site, end, fields FROM old WHERE end IS NOT NULL"):
            counts[place_of(site, end)] += jobs_of(_fields.decode(fields)) if of_groups else 1
        return counts

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
        old_record = _record(row)
        self.change("UPDATE old SET matched_by = ?, is_exact = 1 WHERE name = ?", [(ours, old_record.name)])
        return old_record

    def keep_for_later(self, ours: KeptRecord) -> None:
        """Keep a record of ours for `match_the_rest`."""
        fields = msgspec.json.encode(ours.fields)
        row = (ours.run_id, ours.digest, ours.name, ours.local, fields, ours.held, ours.source)
        self.change("INSERT INTO ours VALUES (?, ?, ?, ?, ?, ?, ?)", [row])

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
        then with a rounded one, then with the same start and an end in the other of the two hours that a clock that is
        set back shows.

        Several of ours with the same end may match one of theirs: all but the first get it with `matched_by`.
        """
        for tolerance_s in (0, _ROUNDING_S, _SET_BACK_S):
            query = (
                "SELECT rowid, run_id, digest, name, local, fields, held, source FROM ours WHERE rowid > ? "
                "ORDER BY rowid LIMIT ?"
            )
            for page in self.pages(query, after=0):
                for number, run_id, digest, name, local, stored, held, source in page:
                    ours = KeptRecord(run_id, digest, name, local, _fields.decode(stored), held, source)
                    other = self._spelled_otherwise(ours.fields, local, tolerance_s)
                    if other is not None:
                        self.mark_matched(other.name, name)
                        self.change("DELETE FROM ours WHERE rowid = ?", [(number,)])
                    if other is not None or tolerance_s == _SET_BACK_S:
                        yield ours, other

    def _spelled_otherwise(self, fields: Fields, local: str | None, tolerance_s: int) -> OldRecord | None:
        """Find their record whose local id, part of the service's key, is spelled differently. Unmatched ones go first;
        with a tolerance, matched ones are left out."""
        end = keys_of(self._format, fields).end
        if local is None or end is None or FORMATS[self._format].key != "local id":
            return None
        own = local_id(local)
        query = _OLD + "WHERE number = ? AND end BETWEEN ? AND ? AND is_exact = 0 ORDER BY matched_by IS NOT NULL"
        rows = self.rows(query, own.key, end - tolerance_s, end + tolerance_s)
        for old_record in map(_record, rows):
            if (tolerance_s and old_record.matched_by is not None) or not self._may_be(own, fields, old_record):
                continue
            if tolerance_s < _SET_BACK_S or _is_other_hour(fields, old_record.fields):
                return old_record
        return None

    def other_ends(self) -> Iterator[OtherEnds]:
        """The records of `keep_for_later` that are left and have the job id of some of theirs that are left; only ends
        that a wrong time zone may cause. Call it after `match_the_rest`."""
        query = "SELECT rowid, source, local, fields FROM ours WHERE rowid > ? ORDER BY rowid LIMIT ?"
        for page in self.pages(query, after=0):
            for _, source, local, stored in page:
                fields = _fields.decode(stored)
                end = keys_of(self._format, fields).end
                if local is None or end is None:
                    continue
                own, window = local_id(local), (end - ZONES_DIFFER_S, end + ZONES_DIFFER_S)
                where = "WHERE matched_by IS NULL AND number = ? AND end BETWEEN ? AND ? LIMIT ?"
                alike = map(_record, self.rows(_OLD + where, own.key, *window, _ALIKE))
                theirs = tuple(
                    old.end
                    for old in alike
                    if old.end is not None and self._may_be(own, fields, old) and _may_last_as_long(fields, old.fields)
                )
                if theirs:
                    yield OtherEnds(source, end, theirs)

    def _may_be(self, own: LocalId, fields: Fields, old: OldRecord) -> bool:
        theirs = keys_of(self._format, old.fields).local
        site, there = (key_of(self._format, each).get("Site") for each in (fields, old.fields))
        same_site = site is None or there is None or compared(site) == compared(there)
        return theirs is not None and own.may_be(local_id(theirs)) and same_site

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


def _later_s(one: Fields, other: Fields) -> tuple[int, int] | None:
    """How much later the other job started and ended; None if some time is unknown."""
    try:
        times = [
            read_instant(_first(fields, name) or "") for name in ("StartTime", "EndTime") for fields in (one, other)
        ]
    except ValueError:
        return None
    return times[1] - times[0], times[3] - times[2]


def _is_other_hour(one: Fields, other: Fields) -> bool:
    """Whether two jobs have the same start, and ends in the two hours that a clock that is set back shows."""
    later = _later_s(one, other)
    return later is not None and later[0] == 0 and abs(later[1]) == _SET_BACK_S


def _may_last_as_long(one: Fields, other: Fields) -> bool:
    """Whether two jobs may be one in different time zones: then the times from start to end differ by zones only."""
    later = _later_s(one, other)
    return later is None or (later[1] - later[0] + _ROUNDING_S) % ZONE_STEP_S <= 2 * _ROUNDING_S


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
    if FORMATS[format_name].shape == "totals":
        key = group_of(fields).key
        valid = 1 <= key.month <= _MONTHS and key.year
        return MatchKeys(key.text, None, None, None, month_bounds(key.when)[0] if valid else None)
    local = _first(fields, "JobIdentity/LocalJobId", "LocalJobId")
    end: int | None = None
    with contextlib.suppress(ValueError):
        text = _first(fields, "EndTime")
        end = None if text is None else read_instant(text)
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
        spelling = msgspec.structs.astuple(group_of(fields).spelling)
        level = spelling[-3]
        return dict(zip(_GROUP, map(str, (*spelling[:-3], level / 1000, *spelling[-2:])), strict=True))
    parts = {name: _first(fields, *names) for name, names in _KEYS.get(kind, {}).items()}
    if (end := parts.get("EndTime")) is not None:
        with contextlib.suppress(ValueError):
            parts["EndTime"] = str(read_instant(end))
    return {name: value for name, value in parts.items() if value is not None}


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
    message_type = type_of(message.header, message.kind, message.version)
    return message_type.name if message_type is not None else ""
