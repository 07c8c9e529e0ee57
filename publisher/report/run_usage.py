"""What each run of a month is charged for, in DuckDB: as of now, and as the closed month has it; and the differences.

Runs are known by the key that they have in every store, so that a closed month survives purges, exports, and columns
that are made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select

from publisher.report.integers import Ints
from publisher.report.matching import Matching
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.statements.closed import PriceList
from publisher.report.statements.items import Used
from publisher.report.tables import EACH_JOB_MB, EntryReading, fill
from publisher.report.views.charging import charge_runs, charged_columns
from publisher.store import closed_months, paging
from publisher.store.admin import engine, erase
from publisher.store.closed_months import Closing, RunUsage
from publisher.store.schema import purged_runs, runs

_AT_ONCE: Final = 50_000
_DAY_S: Final = 86_400
_DIFFERING: Final = """
CREATE TABLE erased_alike AS SELECT run FROM (
    SELECT run, resource, sum(now) AS now, sum(was) AS was FROM (
        SELECT run, resource, usage AS now, 0::HUGEINT AS was FROM present JOIN lines USING (line) WHERE erased
        UNION ALL SELECT run, resource, 0, usage FROM charged JOIN lines USING (line)
        WHERE run IN (SELECT run FROM present WHERE erased)
    ) GROUP BY run, resource
) GROUP BY run HAVING bool_and(now = was);
CREATE TABLE differing AS SELECT run,
    CASE WHEN run NOT IN (SELECT run FROM charged) THEN 'late'
         WHEN run NOT IN (SELECT run FROM present) THEN 'vanished' ELSE 'changed' END AS kind
FROM (
    SELECT DISTINCT run FROM present FULL JOIN charged USING (run, line)
    WHERE present.usage IS DISTINCT FROM charged.usage
) WHERE run NOT IN (SELECT run FROM erased_alike);
"""
"""An erased person's runs are charged as they were: rules that go by the name do not apply to a pseudonym."""


class LineChange(msgspec.Struct, frozen=True):
    """A line of which runs differ: its usage that was charged, that of now, and how many runs differ, by kind."""

    line: int
    before: int
    after: int
    late: int
    changed: int
    vanished: int


class RunUsages:
    """The tables `present` and `charged` of a month, and its lines; those that are new come last."""

    def __init__(self, database: duckdb.DuckDBPyConnection, known: Sequence[Used], erased: frozenset[str]) -> None:
        self._database = database
        self.known = len(known)
        self._erased = erased
        self._lines: dict[Used, int] = {}
        for line, key in enumerate(known):
            self._lines.setdefault(key, line)
        self.lines = list(known)
        database.execute("CREATE TABLE placed (run_id BIGINT, line INTEGER, usage HUGEINT, erased BOOLEAN)")
        database.execute("CREATE TABLE keys (run_id BIGINT, run BLOB)")
        database.execute("CREATE TABLE charged (run BLOB, line INTEGER, usage HUGEINT)")

    def add(
        self, runs: Ints, usage: Ints | list[int], kinds: Ints, keys: Sequence[Used | None], users: Sequence[str]
    ) -> None:
        """Take the usage of runs: see `publisher.report.views.charging.RunSink`."""
        kind_lines = [
            (-1, False) if key is None else self._line_of(key, user) for key, user in zip(keys, users, strict=True)
        ]
        lines, erased = np.array([line for line, _ in kind_lines]), np.array([flag for _, flag in kind_lines], np.bool_)
        exact: Any = usage if not isinstance(usage, list) else pa.array(map(str, usage), pa.string())
        self._insert("placed", run_id=runs, line=lines[kinds], usage=exact, erased=erased[kinds])

    def _line_of(self, key: Used, user: str) -> tuple[int, bool]:
        """The number of a line, which may be new, and whether its payer or this user is an erased person."""
        if key not in self._lines:
            self._lines[key] = len(self.lines)
            self.lines.append(key)
        return self._lines[key], key.payer in self._erased or user in self._erased

    def _insert(self, table: str, **columns: Any) -> None:
        self._database.register("given", pa.table(columns))
        self._database.execute(f"INSERT INTO {table} SELECT * FROM given")  # noqa: S608 - a name of ours
        self._database.unregister("given")

    def read_keys(self, connection: Connection, start: int, stop: int) -> None:
        """Read the keys of the runs that ended in an interval."""
        query = select(runs.c.id, runs.c.record_key).where(runs.c.end_time >= start, runs.c.end_time < stop)
        for some in paging.chunks(engine.rows(connection, query), _AT_ONCE):
            ids, keys = zip(*some, strict=True)
            self._insert("keys", run_id=pa.array(ids, pa.int64()), run=pa.array(map(bytes, keys), pa.binary()))

    def read_charged(self, rows: Iterable[RunUsage]) -> None:
        """Read what runs were charged for."""
        for some in paging.chunks(rows, _AT_ONCE):
            self._insert(
                "charged", run=pa.array([row.run for row in some], pa.binary()),
                line=pa.array([row.line for row in some], pa.int32()), usage=[str(row.usage) for row in some],
            )  # fmt: skip

    def compare(self, connection: Connection) -> None:
        """Find what differs. Runs that were purged have not vanished."""
        self._database.execute(
            "CREATE TABLE present AS SELECT run, line, sum(usage)::HUGEINT AS usage, bool_or(erased) AS erased "
            "FROM placed JOIN keys USING (run_id) WHERE line >= 0 GROUP BY run, line HAVING sum(usage) > 0"
        )
        gone = self._database.cursor().execute("SELECT DISTINCT run FROM charged ANTI JOIN present USING (run)")
        self._database.execute("CREATE TABLE purged (run BLOB)")
        while some := [bytes(row[0]) for row in gone.fetchmany(1000)]:
            query = select(purged_runs.c.run).distinct()
            purged = {bytes(row[0]) for row in paging.rows_in(connection, query, purged_runs.c.run, some)}
            # One that came back in another version is of the month in which it ends now.
            there = paging.rows_in(connection, select(runs.c.record_key), runs.c.record_key, purged)
            self._insert("purged", run=pa.array(sorted(purged - {bytes(row[0]) for row in there}), pa.binary()))
        self._database.execute(
            "INSERT INTO present SELECT run, line, usage, false FROM charged WHERE run IN (SELECT run FROM purged)"
        )
        lines = pa.array(range(len(self.lines)), pa.int32())
        resources = pa.array([key.resource for key in self.lines], pa.string())
        fill(self._database, "lines", pa.table({"line": lines, "resource": resources}))
        self._database.execute(_DIFFERING)

    def changes(self) -> list[LineChange]:
        """The lines of which runs differ."""
        rows = self._database.execute(
            "WITH touched AS (SELECT line, run, kind FROM differing JOIN (SELECT run, line FROM present UNION "
            "SELECT run, line FROM charged) USING (run)), "
            "before AS (SELECT line, sum(usage)::HUGEINT AS usage FROM charged GROUP BY line), "
            "gone AS (SELECT line, sum(usage)::HUGEINT AS usage FROM charged WHERE run IN (SELECT run FROM differing) "
            "GROUP BY line), "
            "new AS (SELECT line, sum(usage)::HUGEINT AS usage FROM present WHERE run IN (SELECT run FROM differing) "
            "GROUP BY line) "
            "SELECT line, coalesce(before.usage, 0), coalesce(before.usage, 0) - coalesce(gone.usage, 0) + "
            "coalesce(new.usage, 0), count(*) FILTER (kind = 'late'), count(*) FILTER (kind = 'changed'), "
            "count(*) FILTER (kind = 'vanished') FROM touched LEFT JOIN before USING (line) "
            "LEFT JOIN gone USING (line) LEFT JOIN new USING (line) GROUP BY ALL ORDER BY line"
        ).fetchall()
        return [LineChange(*row) for row in rows]

    def rows(self, *, differing: bool = False) -> Iterator[RunUsage]:
        """The usage of now by run and line; only of runs that differ: with zeros for lines that do not apply now."""
        query = "SELECT run, line, usage FROM present"
        if differing:
            query += (
                " WHERE run IN (SELECT run FROM differing) UNION ALL SELECT run, line, 0 FROM charged "
                "ANTI JOIN present USING (run, line) WHERE run IN (SELECT run FROM differing)"
            )
        rows = self._database.cursor().execute(f"{query} ORDER BY run, line")
        while some := rows.fetchmany(_AT_ONCE):
            yield from (RunUsage(bytes(run), line, usage) for run, line, usage in some)


@contextmanager
def run_usages(
    context: ReportContext, request: ReportRequest, price_list: PriceList, closing: Closing | None = None,
    known: Sequence[Used] = (),
) -> Iterator[RunUsages]:  # fmt: skip
    """The usage of the runs of an interval, compared with that of its closing, whose lines are `known`."""
    by = price_list.charges.by
    columns = charged_columns(price_list.charges, by) | {"end"}
    with context.store.read() as connection:
        erased = frozenset(row.pseudonym for row in erase.rows(connection))
    reading = EntryReading(columns, request.start, request.stop, buffers_mb=EACH_JOB_MB)
    with context.tables(request, reading) as database:
        usages = RunUsages(database.cursor(), known, erased)
        charge_runs(Matching(database, request, "ended"), price_list, by, usages.add)
        with context.store.read() as connection:
            usages.read_keys(connection, request.start - _DAY_S, request.stop + _DAY_S)
            if closing is not None:
                usages.read_charged(closed_months.charged(connection, closing.id))
            usages.compare(connection)
        yield usages
