"""Evidence of what a service has, and the result of comparing it with the ledger.

Records, differences, and what is to be sent again are in a temporary database, since a month may have a million
records. Groups of jobs have sums and the fields that the evidence has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, Literal, TypeAlias

import msgspec

from formats.calendar import Month, month_numbered
from formats.columns import MISSING, RECORD_COLUMNS, RecordColumns, TotalColumns, Value
from publisher.errors import StoreFullError
from publisher.job_ids import local_id
from publisher.reconcile.result import Difference
from publisher.sqlite_file import TemporaryDatabase
from publisher.store.schema import State

_TABLES: Final = """
CREATE TABLE records (
    target TEXT, key TEXT, end_time INTEGER, wall_s REAL, cpu_s REAL, columns TEXT, local_id TEXT, as_sent INTEGER,
    number TEXT, matched INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (target, key)
) WITHOUT ROWID;
CREATE TABLE sent_bodies (
    target TEXT, key TEXT, digest BLOB, end_time INTEGER, wall_s INTEGER, cpu_s INTEGER, PRIMARY KEY (target, key)
) WITHOUT ROWID;
CREATE INDEX records_by_number ON records (target, number, end_time) WHERE number IS NOT NULL;
CREATE TABLE differences (id INTEGER PRIMARY KEY, target TEXT, month INTEGER, kind TEXT, record TEXT, detail TEXT);
CREATE INDEX differences_of ON differences (target, id);
CREATE TABLE again (target TEXT, run_id INTEGER, state INTEGER, PRIMARY KEY (target, run_id)) WITHOUT ROWID;
CREATE TABLE delivered (target TEXT, run_id INTEGER, digest BLOB, PRIMARY KEY (target, run_id)) WITHOUT ROWID;
CREATE TABLE again_groups (
    target TEXT, kind TEXT, month INTEGER, key TEXT, PRIMARY KEY (target, kind, month, key)
) WITHOUT ROWID;
"""


class EvidenceRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that a service has. `end` in epoch seconds, times in seconds; None where unknown.

    `key`: the record id or, with a `local_id`, that of a job record at APEL (`formats.columns.local_key`). `columns`:
    the others that the evidence has, among `formats.columns.RECORD_COLUMNS`.
    """

    key: str
    end: int | None = None
    wall_s: float | None = None
    cpu_s: float | None = None
    columns: dict[str, Value] = {}
    local_id: str | None = None
    as_sent: bool = False
    """Whether its bytes are those that were sent; then other columns are not read."""

    @staticmethod
    def of_columns(record: RecordColumns) -> EvidenceRecord:
        """Make one of a record of a message; it has its record id as key, if it has one."""
        wall_s = None if record.wall_ms is None else record.wall_ms / 1000
        cpu_s = None if record.cpu_ms is None else record.cpu_ms / 1000
        key = record.record_id or record.local_key
        return EvidenceRecord(
            key, record.end, wall_s, cpu_s, record.columns, None if record.record_id else record.local_id
        )


class RecordsContent(msgspec.Struct, frozen=True):
    """What records have. `named`: for people and `--json`; `has_columns`: other columns than end, wall, and CPU time;
    `has_local_keys`, `has_record_ids`: their keys."""

    named: tuple[str, ...]
    has_columns: bool
    has_local_keys: bool
    has_record_ids: bool


class SentBody(msgspec.Struct, frozen=True, gc=False):
    """A record as it was sent: its key, the digest of its bytes, its end (epoch seconds), and its times in seconds."""

    key: str
    digest: bytes
    end: int
    wall_s: int
    cpu_s: int


_CONTRADICTS: Final = "(kind <> 'outdated')"
"""The condition of what is wrong."""
_RECORD: Final = "key, end_time, wall_s, cpu_s, columns, local_id, as_sent"
_encode: Final = msgspec.json.Encoder().encode
_columns: Final = msgspec.json.Decoder(dict[str, Value]).decode


def _record(row: Sequence[Any]) -> EvidenceRecord:
    key, end, wall_s, cpu_s, columns, name, as_sent = row
    return EvidenceRecord(key, end, wall_s, cpu_s, {} if columns is None else _columns(columns), name, bool(as_sent))


def _named(**amounts: object) -> tuple[str, ...]:
    return tuple(name for name, is_known in amounts.items() if is_known)


class EvidenceDatabase(TemporaryDatabase):
    """The temporary database of one reconciliation. Raises `StoreFullError` where there is no room for it."""

    def __init__(self) -> None:
        super().__init__(_TABLES, "reconcile", StoreFullError)

    # --- what a service has

    def add_records(self, target: str, found: Iterable[EvidenceRecord]) -> None:
        """Add records; of several with one key the last counts."""
        rows = (
            (
                target, one.key, one.end, one.wall_s, one.cpu_s,
                _encode(one.columns).decode() if one.columns else None, one.local_id, one.as_sent,
                None if one.local_id is None else local_id(one.local_id).key,
            )
            for one in found
        )  # fmt: skip
        self.change(
            "INSERT OR REPLACE INTO records (target, key, end_time, wall_s, cpu_s, columns, local_id, as_sent, number) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            rows,
        )

    def add_sent_bodies(self, target: str, bodies: Iterable[SentBody]) -> None:
        """Add the records as they were sent."""
        rows = ((target, *msgspec.structs.astuple(body)) for body in bodies)
        self.change("INSERT OR REPLACE INTO sent_bodies VALUES (?, ?, ?, ?, ?, ?)", rows)

    def sent_bodies(self, target: str, keys: Sequence[str]) -> dict[str, SentBody]:
        """The records as they were sent, of these keys."""
        rows = self.rows(
            "SELECT key, digest, end_time, wall_s, cpu_s FROM sent_bodies "
            "WHERE target = ? AND key IN (SELECT value FROM json_each(?))",
            target, json.dumps(keys),
        )  # fmt: skip
        return {row[0]: SentBody(*row) for row in rows}

    def content(self, target: str) -> RecordsContent:
        """What the records of a target have."""
        row = self.row(
            "SELECT COUNT(wall_s), COUNT(cpu_s), COUNT(end_time), COUNT(local_id), COUNT(*) - COUNT(local_id) "
            "FROM records WHERE target = ?",
            target,
        )
        assert row is not None  # sums always have a row
        walls, cpus, ends, local, others = row
        names = {
            name
            for (name,) in self.rows(
                "SELECT DISTINCT each.key FROM records, json_each(records.columns) AS each WHERE target = ?", target
            )
        }
        named = ("jobs", *_named(wall=walls, cpu=cpus, end=ends), *(name for name in RECORD_COLUMNS if name in names))
        return RecordsContent(named, bool(names), bool(local), bool(others))

    def submit_hosts(self, target: str) -> Iterator[tuple[Value, Month, int]]:
        """The submit hosts of the records of a target: host, month of the ends, number of records."""
        rows = self.rows(
            "SELECT json_extract(columns, '$.submit_host') AS host, strftime('%Y%m', end_time, 'unixepoch') AS month, "
            "COUNT(*) FROM records WHERE target = ? AND columns IS NOT NULL AND end_time IS NOT NULL "
            "GROUP BY host, month HAVING host IS NOT NULL ORDER BY host, month",
            target,
        )
        for host, month, number in rows:
            yield host, Month(int(month[:4]), int(month[4:])), number

    def match(self, target: str, keys: Sequence[str]) -> dict[str, EvidenceRecord]:
        """Return the records with these keys, and remove them from the `unmatched`."""
        rows = self.rows(
            f"SELECT {_RECORD} FROM records "  # noqa: S608 - names of columns
            "WHERE target = ? AND key IN (SELECT value FROM json_each(?))",
            target, json.dumps(keys),
        )  # fmt: skip
        records = {row[0]: _record(row) for row in rows}
        self.change("UPDATE records SET matched = 1 WHERE target = ? AND key = ?", ((target, key) for key in records))
        return records

    def match_spelling(self, target: str, name: str, end: int | None) -> EvidenceRecord | None:
        """The first unmatched record of a job with this local id in another spelling and this end; it is removed from
        the `unmatched`."""
        wanted = local_id(name)
        rows = self.rows(
            f"SELECT {_RECORD} FROM records "  # noqa: S608 - as above
            "WHERE target = ? AND number = ? AND end_time = ? AND matched = 0 ORDER BY key",
            target, wanted.key, end,
        )  # fmt: skip
        for record in map(_record, rows):
            if local_id(record.local_id or "").may_be(wanted):
                self.change("UPDATE records SET matched = 1 WHERE target = ? AND key = ?", [(target, record.key)])
                return record
        return None

    def unmatched(self, target: str) -> Iterator[list[EvidenceRecord]]:
        """The records that `match` did not return, in pages."""
        query = (
            f"SELECT {_RECORD} FROM records WHERE target = ? AND matched = 0 AND key > ? "  # noqa: S608 - as above
            "ORDER BY key LIMIT ?"
        )
        for page in self.pages(query, target, after=""):
            yield [_record(row) for row in page]

    # --- what was found

    def add_differences(self, target: str, found: Iterable[Difference]) -> None:
        """Add differences, in the order in which they were found."""
        rows = (
            (target, None if one.month is None else one.month.number, one.kind, one.record, one.detail) for one in found
        )
        self.change("INSERT INTO differences (target, month, kind, record, detail) VALUES (?, ?, ?, ?, ?)", rows)

    def count_differences(self, target: str) -> int:
        """Number of differences of a target."""
        return int(self.rows("SELECT COUNT(*) FROM differences WHERE target = ?", target)[0][0])

    def differences_by_month(self, target: str) -> dict[int, int]:
        """How many differences of a target there are, by the number of the month; 0: in no known month. Without those
        that are no contradiction."""
        query = f"SELECT COALESCE(month, 0), COUNT(*) FROM differences WHERE target = ? AND {_CONTRADICTS} GROUP BY 1"  # noqa: S608 - a constant
        return dict(self.rows(query, target))

    def differences(self, target: str, limit: int | None = None) -> Iterator[Difference]:
        """The differences of a target, in the order found, first those that contradict the ledger; at most
        `limit`."""
        shown = 0
        for condition in (_CONTRADICTS, f"NOT {_CONTRADICTS}"):
            query = (
                f"SELECT id, month, kind, record, detail FROM differences WHERE target = ? AND {condition} "  # noqa: S608
                "AND id > ? ORDER BY id LIMIT ?"
            )
            for page in self.pages(query, target, after=0, limit=None if limit is None else limit - shown):
                shown += len(page)
                for _, month, kind, record, detail in page:
                    yield Difference(None if month is None else month_numbered(month), kind, record, detail)

    def add_runs_to_send(self, target: str, found: Iterable[tuple[int, State]]) -> int:
        """Add runs to send again, with the states of their deliveries; return how many were new."""
        rows = ((target, run_id, int(state)) for run_id, state in found)
        return self.change("INSERT OR IGNORE INTO again VALUES (?, ?, ?)", rows)

    def runs_to_send(self, target: str) -> Iterator[list[tuple[int, State]]]:
        """The runs to send again, in pages."""
        query = "SELECT run_id, state FROM again WHERE target = ? AND run_id > ? ORDER BY run_id LIMIT ?"
        for page in self.pages(query, target, after=-1):
            yield [(run_id, State(state)) for run_id, state in page]

    def add_delivered_runs(self, target: str, found: Iterable[tuple[int, bytes]]) -> int:
        """Add runs that the service has and that were never sent from here, with the digest of the version that was
        compared; return how many were new."""
        rows = ((target, *run) for run in found)
        return self.change("INSERT OR IGNORE INTO delivered VALUES (?, ?, ?)", rows)

    def delivered_runs(self, target: str) -> Iterator[tuple[int, bytes]]:
        """The runs of `add_delivered_runs`."""
        query = "SELECT run_id, digest FROM delivered WHERE target = ? AND run_id > ? ORDER BY run_id LIMIT ?"
        for page in self.pages(query, target, after=-1):
            yield from ((run_id, digest) for run_id, digest in page)

    def add_groups_to_send(self, target: str, found: Iterable[tuple[str, int, str]]) -> int:
        """Add groups to send again: (kind, month's number, key); return how many were new."""
        rows: Iterable[tuple[Any, ...]] = ((target, *group) for group in found)
        return self.change("INSERT OR IGNORE INTO again_groups VALUES (?, ?, ?, ?)", rows)

    def groups_to_send(self, target: str) -> list[tuple[str, int, str]]:
        """The groups to send again."""
        rows = self.rows("SELECT kind, month, key FROM again_groups WHERE target = ?", target)
        return [(kind, month, key) for kind, month, key in rows]


DimensionValues: TypeAlias = tuple[Value, ...]

SCORES: Final = frozenset({"benchmark", "score_milli"})
"""Fields that may differ among the runs of a class, because the benchmark may depend on the end of a run."""


class EvidenceSums(msgspec.Struct, frozen=True):
    """Sums of groups in seconds, None where they are not known; `earliest` and `latest`: of the ends, epoch seconds.

    `normalised_*`: times the score of the benchmark, as the service has them.
    """

    wall_s: float | None = None
    cpu_s: float | None = None
    normalised_wall_s: float | None = None
    normalised_cpu_s: float | None = None
    earliest: int | None = None
    latest: int | None = None

    def plus(self, other: EvidenceSums) -> EvidenceSums:
        """Those of both groups; unknown where one is unknown."""
        return EvidenceSums(
            _total(self.wall_s, other.wall_s),
            _total(self.cpu_s, other.cpu_s),
            _total(self.normalised_wall_s, other.normalised_wall_s),
            _total(self.normalised_cpu_s, other.normalised_cpu_s),
            None if self.earliest is None or other.earliest is None else min(self.earliest, other.earliest),
            None if self.latest is None or other.latest is None else max(self.latest, other.latest),
        )


DURATIONS: Final = ("wall_s", "cpu_s", "normalised_wall_s", "normalised_cpu_s")
ENDS: Final = ("earliest", "latest")


def _total(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


GroupKind: TypeAlias = Literal["jobs", "sync"]


class EvidenceGroup(msgspec.Struct, frozen=True):
    """A group of jobs, or a sync count, as the service has it. `fields`: of its key without the month, compared as the
    server compares them. Its sums are right within so many seconds; `amounts` are exact.
    """

    kind: GroupKind
    month: Month
    fields: dict[str, Value]
    jobs: int
    sums: EvidenceSums = EvidenceSums()
    within_s: float = 1.0
    amounts: dict[str, Decimal] = {}

    @staticmethod
    def of_columns(kind: GroupKind, total: TotalColumns) -> EvidenceGroup:
        """Make one of a total or a sync count."""
        sums = EvidenceSums(
            total.wall_s,
            total.cpu_s,
            total.normalised_wall_s,
            total.normalised_cpu_s,
            total.earliest,
            total.latest,
        )
        return EvidenceGroup(kind, total.month, total.fields, total.jobs, sums, amounts=total.amounts)

    def cell(self, dimensions: tuple[str, ...]) -> DimensionValues:
        """The values of these fields."""
        return tuple(self.fields.get(name, MISSING) for name in dimensions)
