"""Evidence of what a service has, and the result of comparing it with the ledger.

Records, differences, and what is to be sent again are in a temporary database, since a month may have a million
records. Groups of jobs have sums and the fields that the evidence has.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgspec

from formats.apel.fold import Group, SyncCount
from formats.calendar import Month, month_numbered
from formats.text import duration_seconds
from publisher.errors import StoreFullError
from publisher.reconcile.result import ALL_MEASURES, Difference, Measure
from publisher.sqlite_file import TemporaryDatabase
from publisher.store import groups
from publisher.store.schema import State

_TABLES: Final = """
CREATE TABLE records (
    target TEXT, key TEXT, end_time INTEGER, wall_s REAL, cpu_s REAL, matched INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (target, key)
) WITHOUT ROWID;
CREATE TABLE differences (id INTEGER PRIMARY KEY, target TEXT, month INTEGER, kind TEXT, record TEXT, detail TEXT);
CREATE INDEX differences_of ON differences (target, id);
CREATE TABLE again (target TEXT, run_id INTEGER, state INTEGER, PRIMARY KEY (target, run_id)) WITHOUT ROWID;
CREATE TABLE delivered (target TEXT, run_id INTEGER, digest BLOB, PRIMARY KEY (target, run_id)) WITHOUT ROWID;
CREATE TABLE again_groups (
    target TEXT, kind TEXT, month INTEGER, key TEXT, PRIMARY KEY (target, kind, month, key)
) WITHOUT ROWID;
"""


class EvidenceRecord(msgspec.Struct, frozen=True, gc=False):
    """A record that a service has. `end` in epoch seconds, times in seconds; None where unknown."""

    key: str
    end: int | None = None
    wall_s: float | None = None
    cpu_s: float | None = None


def measures(*, has_wall: bool, has_cpu: bool) -> tuple[Measure, ...]:
    """Numbers of jobs, and these times."""
    known = {"jobs": True, "wall": has_wall, "cpu": has_cpu}
    return tuple(measure for measure in ALL_MEASURES if known[measure])


class EvidenceDatabase(TemporaryDatabase):
    """The temporary database of one reconciliation. Raises `StoreFullError` where there is no room for it."""

    def __init__(self) -> None:
        super().__init__(_TABLES, "reconcile", StoreFullError)

    # --- what a service has

    def add_records(self, target: str, found: Iterable[EvidenceRecord]) -> None:
        """Add records; of several with one key the last counts."""
        rows = ((target, one.key, one.end, one.wall_s, one.cpu_s) for one in found)
        self.change(
            "INSERT OR REPLACE INTO records (target, key, end_time, wall_s, cpu_s) VALUES (?, ?, ?, ?, ?)", rows
        )

    def measures(self, target: str) -> tuple[Measure, ...]:
        """What any of the records has."""
        ((walls, cpus),) = self.rows("SELECT COUNT(wall_s), COUNT(cpu_s) FROM records WHERE target = ?", target)
        return measures(has_wall=bool(walls), has_cpu=bool(cpus))

    def match(self, target: str, keys: Sequence[str]) -> dict[str, EvidenceRecord]:
        """Return the records with these keys, and remove them from the `unmatched`."""
        rows = self.rows(
            "SELECT key, end_time, wall_s, cpu_s FROM records "
            "WHERE target = ? AND key IN (SELECT value FROM json_each(?))",
            target, json.dumps(keys),
        )  # fmt: skip
        found = {row[0]: EvidenceRecord(*row) for row in rows}
        self.change("UPDATE records SET matched = 1 WHERE target = ? AND key = ?", ((target, key) for key in found))
        return found

    def unmatched(self, target: str) -> Iterator[list[EvidenceRecord]]:
        """The records that `match` did not return, in pages."""
        query = (
            "SELECT key, end_time, wall_s, cpu_s FROM records WHERE target = ? AND matched = 0 AND key > ? "
            "ORDER BY key LIMIT ?"
        )
        for page in self.pages(query, target, after=""):
            yield [EvidenceRecord(*row) for row in page]

    # --- what was found

    def add_differences(self, target: str, found: Iterable[Difference]) -> None:
        """Add differences, in the order in which they were found."""
        rows = (
            (target, None if one.month is None else one.month.number, one.kind, one.record, one.detail) for one in found
        )
        self.change("INSERT INTO differences (target, month, kind, record, detail) VALUES (?, ?, ?, ?, ?)", rows)

    def count_differences(self, target: str, months: Iterable[Month] | None = None) -> int:
        """Number of differences of a target: all, or those of these months and of no known month."""
        query, values = "SELECT COUNT(*) FROM differences WHERE target = ?", [target]
        if months is not None:
            query += " AND (month IS NULL OR month IN (SELECT value FROM json_each(?)))"
            values.append(json.dumps([month.number for month in months]))
        ((number,),) = self.rows(query, *values)
        return int(number)

    def differences(self, target: str, limit: int | None = None) -> Iterator[Difference]:
        """The differences of a target, in the order found; at most `limit`."""
        query = (
            "SELECT id, month, kind, record, detail FROM differences WHERE target = ? AND id > ? ORDER BY id LIMIT ?"
        )
        for page in self.pages(query, target, after=0, limit=limit):
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


Value: TypeAlias = str | int
DimensionValues: TypeAlias = tuple[Value, ...]

DIMENSIONS: Final = (
    "site", "submit_host", "vo", "vo_group", "vo_role", "user", "infrastructure", "nodes", "processors", "benchmark",
    "score_milli",
)  # fmt: skip
"""The fields that a group may have: those of a summary's key, without the month."""

SCORES: Final = frozenset({"benchmark", "score_milli"})
"""Fields that may differ among the runs of a class, because the benchmark may depend on the end of a run."""


class EvidenceGroup(msgspec.Struct, frozen=True):
    """A group of jobs as the service has it. `kind`: a summary, or a sync count. `fields` are among `DIMENSIONS`,
    compared as the server compares them. Sums in seconds, None where they are not known, right within so many seconds.
    """

    kind: str
    month: Month
    fields: dict[str, Value]
    jobs: int
    wall_s: float | None = None
    cpu_s: float | None = None
    within_s: float = 1.0

    @staticmethod
    def of_summary(group: Group) -> EvidenceGroup:
        """Make one of a summary, with all fields of its key."""
        fields = {name: folded(getattr(group.key, name)) for name in DIMENSIONS}
        wall_s, cpu_s = duration_seconds(group.wall_ms), duration_seconds(group.cpu_ms)
        return EvidenceGroup(groups.SUMMARY, group.key.when, fields, group.jobs, wall_s, cpu_s)

    @staticmethod
    def of_sync(count: SyncCount) -> EvidenceGroup:
        """Make one of a sync count."""
        fields: dict[str, Value] = {"site": folded(count.key.site), "submit_host": folded(count.key.submit_host)}
        return EvidenceGroup(groups.SYNC, count.key.when, fields, count.jobs)

    def cell(self, dimensions: tuple[str, ...]) -> DimensionValues:
        """The values of these fields."""
        return tuple(self.fields.get(name, "none") for name in dimensions)


def folded(value: Value) -> Value:
    """A value as the server's database compares it: case and trailing blanks do not count."""
    return value.rstrip(" ").lower() if isinstance(value, str) else value
