"""A temporary database for what is too much for memory: what a service has, the differences, what is to go again.

It is a file without a name in the directory for temporary files (`TMPDIR`), private to this process and gone with it. A
month of a million records takes some 100 MiB there, and 8 MiB of memory.

What somebody tells of what a service has: groups of jobs with their sums, by the fields that he tells them by.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec

from formats.apel.fold import Group, SyncCount
from formats.calendar import Month, month_numbered
from formats.text import duration_seconds
from publisher.errors import StoreFullError
from publisher.reconcile.result import Difference
from publisher.store import groups
from publisher.store.schema import State

_TABLES: Final = """
CREATE TABLE told (
    target TEXT, key TEXT, end_time INTEGER, wall_s REAL, cpu_s REAL, seen INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (target, key)
) WITHOUT ROWID;
CREATE TABLE differences (id INTEGER PRIMARY KEY, target TEXT, month INTEGER, kind TEXT, record TEXT, detail TEXT);
CREATE INDEX differences_of ON differences (target, id);
CREATE TABLE again (target TEXT, run_id INTEGER, state INTEGER, PRIMARY KEY (target, run_id)) WITHOUT ROWID;
CREATE TABLE again_groups (
    target TEXT, kind TEXT, month INTEGER, key TEXT, PRIMARY KEY (target, kind, month, key)
) WITHOUT ROWID;
"""
_AT_ONCE: Final = 500


class Told(msgspec.Struct, frozen=True, gc=False):
    """A record that a service has. `end`: epoch seconds; sums in seconds; None where it does not tell."""

    key: str
    end: int | None = None
    wall_s: float | None = None
    cpu_s: float | None = None


class EvidenceDatabase:
    """The temporary database. Close it, or use it in a `with` statement."""

    def __init__(self) -> None:
        """Raises `StoreFullError` where there is no room for it."""
        with _room():
            self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._connection.executescript("PRAGMA cache_size = -8192; PRAGMA journal_mode = OFF;" + _TABLES)
            self._connection.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Forget everything."""
        self._connection.close()

    # --- what a service has

    def tell(self, target: str, told: Iterable[Told]) -> None:
        """Put down records that a service has; the last of those with the same key counts."""
        rows = ((target, one.key, one.end, one.wall_s, one.cpu_s) for one in told)
        self._many("INSERT OR REPLACE INTO told (target, key, end_time, wall_s, cpu_s) VALUES (?, ?, ?, ?, ?)", rows)

    def told(self, target: str, keys: Sequence[str]) -> dict[str, Told]:
        """Those of these records that the service has; they are remembered as seen."""
        found: dict[str, Told] = {}
        for start in range(0, len(keys), _AT_ONCE):
            part = keys[start : start + _AT_ONCE]
            marks = ",".join("?" * len(part))
            query = f"SELECT key, end_time, wall_s, cpu_s FROM told WHERE target = ? AND key IN ({marks})"  # noqa: S608 - question marks
            found.update((row[0], Told(*row)) for row in self._rows(query, target, *part))
        self._many("UPDATE told SET seen = 1 WHERE target = ? AND key = ?", ((target, key) for key in found))
        return found

    def unseen(self, target: str) -> Iterator[list[Told]]:
        """The records that the service has and nobody asked for, in pages."""
        after = ""
        while page := self._rows(
            "SELECT key, end_time, wall_s, cpu_s FROM told WHERE target = ? AND seen = 0 AND key > ? "
            "ORDER BY key LIMIT ?",
            target, after, _AT_ONCE,
        ):  # fmt: skip
            yield [Told(*row) for row in page]
            after = page[-1][0]

    # --- what was found

    def differ(self, target: str, found: Iterable[Difference]) -> None:
        """Put down differences."""
        rows = (
            (target, None if one.month is None else one.month.number, one.kind, one.record, one.detail) for one in found
        )
        self._many("INSERT INTO differences (target, month, kind, record, detail) VALUES (?, ?, ?, ?, ?)", rows)

    def count_differences(self, target: str) -> int:
        """How many differences of a target there are."""
        ((number,),) = self._rows("SELECT COUNT(*) FROM differences WHERE target = ?", target)
        return int(number)

    def differences(self, target: str, limit: int | None = None) -> Iterator[Difference]:
        """The differences of a target as they were found; at most so many."""
        after, left = 0, limit
        while left is None or left > 0:
            page = self._rows(
                "SELECT id, month, kind, record, detail FROM differences WHERE target = ? AND id > ? "
                "ORDER BY id LIMIT ?",
                target, after, _AT_ONCE if left is None else min(left, _AT_ONCE),
            )  # fmt: skip
            if not page:
                return
            for _, month, kind, record, detail in page:
                yield Difference(None if month is None else month_numbered(month), kind, record, detail)
            after = page[-1][0]
            left = None if left is None else left - len(page)

    def send_again(self, target: str, runs: Iterable[tuple[int, State]]) -> int:
        """Put down runs to be sent again, with the states of their deliveries; gives how many were new."""
        before = self._connection.total_changes
        self._many("INSERT OR IGNORE INTO again VALUES (?, ?, ?)", ((target, run, int(state)) for run, state in runs))
        return self._connection.total_changes - before

    def to_send(self, target: str) -> Iterator[list[tuple[int, State]]]:
        """The runs to be sent again, in pages."""
        after = -1
        while page := self._rows(
            "SELECT run_id, state FROM again WHERE target = ? AND run_id > ? ORDER BY run_id LIMIT ?",
            target, after, _AT_ONCE,
        ):  # fmt: skip
            yield [(run_id, State(state)) for run_id, state in page]
            after = page[-1][0]

    def send_group_again(self, target: str, groups: Iterable[tuple[str, int, str]]) -> int:
        """Put down groups to be sent again: (kind, month's number, key); gives how many were new."""
        before = self._connection.total_changes
        self._many("INSERT OR IGNORE INTO again_groups VALUES (?, ?, ?, ?)", ((target, *group) for group in groups))
        return self._connection.total_changes - before

    def groups_to_send(self, target: str) -> list[tuple[str, int, str]]:
        """The groups to be sent again."""
        rows = self._rows("SELECT kind, month, key FROM again_groups WHERE target = ?", target)
        return [(kind, month, key) for kind, month, key in rows]

    def _many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with _room():
            self._connection.executemany(statement, rows)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with _room():
            return self._connection.execute(query, values).fetchall()


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StoreFullError(
            f"the temporary file of reconcile cannot be used: {error}",
            hint="Make room in the directory for temporary files, or let TMPDIR name another one",
        ) from error


Value: TypeAlias = str | int
Cell: TypeAlias = tuple[Value, ...]

DIMENSIONS: Final = (
    "site", "submit_host", "vo", "vo_group", "vo_role", "user", "infrastructure", "nodes", "processors", "benchmark",
    "score_milli",
)  # fmt: skip
"""What a group may be told by: the fields of a summary's key, month apart."""

SCORES: Final = frozenset({"benchmark", "score_milli"})
"""Those that may differ among the runs of a class, because benchmarks may go by the end of a run."""


class EvidenceGroup(msgspec.Struct, frozen=True):
    """A group of jobs as it is told. `kind`: a summary, or a sync count. `fields` are among `DIMENSIONS`, compared as
    the server compares them. Sums in seconds, None where they are not told, right within so many seconds.
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
        """A summary, by its whole key."""
        fields = {name: folded(getattr(group.key, name)) for name in DIMENSIONS}
        wall_s, cpu_s = duration_seconds(group.wall_ms), duration_seconds(group.cpu_ms)
        return EvidenceGroup(groups.SUMMARY, group.key.when, fields, group.jobs, wall_s, cpu_s)

    @staticmethod
    def of_sync(count: SyncCount) -> EvidenceGroup:
        """A sync count."""
        fields: dict[str, Value] = {"site": folded(count.key.site), "submit_host": folded(count.key.submit_host)}
        return EvidenceGroup(groups.SYNC, count.key.when, fields, count.jobs)

    def cell(self, dimensions: tuple[str, ...]) -> Cell:
        """The group by these fields."""
        return tuple(self.fields.get(name, "none") for name in dimensions)


def folded(value: Value) -> Value:
    """A value as the server's database compares it: without case and trailing blanks."""
    return value.rstrip(" ").lower() if isinstance(value, str) else value
