"""Accounting databases as ARC writes them, of any size, the same for the same seed.

    python -m tests.generators.arc_database PATH --jobs 10000 --seed 1 [--varied | --hostile]

`create` makes a complete database; `ArcWriter` writes to one as ARC does, statement by statement, for tests with a live
writer: jobs accepted, events, jobs finished late, with or without events, and changed.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

from tests.generators.arc_jobs import ArcJob, instant, plain_job, spoil, unfinished, vary
from tests.generators.arc_schema import INDEXES, TABLES

Kind = Literal["clean", "varied", "hostile"]
FIRST: Final = int(datetime(2026, 9, 1, tzinfo=UTC).timestamp())
LAST: Final = int(datetime(2026, 11, 19, tzinfo=UTC).timestamp())
_AAR: Final = f"INSERT INTO AAR VALUES ({', '.join('?' * 21)})"
_SIDES: Final = {
    "AuthTokenAttributes": 3,
    "JobEvents": 3,
    "RunTimeEnvironments": 2,
    "DataTransfers": 6,
    "JobExtraInfo": 3,
}
_CHUNK: Final = 5_000


def jobs_of(count: int, seed: int, kind: Kind = "clean", first: int = FIRST, last: int = LAST) -> Iterator[ArcJob]:
    """The jobs of a database: one in a hundred still in progress; varied ones every fourth, broken ones every ninth."""
    rng = random.Random(seed)
    odd = itertools.count()
    bad = itertools.count()
    for number in range(1, count + 1):
        accepted = first + (last - first) * number // count
        job = plain_job(rng, number, accepted, accepted + 300)
        if kind == "hostile" and number % 9 == 0:
            job = spoil(rng, job, next(bad))
        elif kind != "clean" and number % 2 == 0:
            job = vary(rng, job, next(odd))
        if number % 100 == 37:
            job = unfinished(job)
        yield job


class ArcWriter:
    """A database open for writing, as ARC's job manager holds it: WAL, one transaction a statement."""

    def __init__(self, path: Path, *, new: bool = False, indexes: bool = True) -> None:
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        self._ids: dict[tuple[str, ...], int] = {}
        if new:
            self.connection.execute("PRAGMA journal_mode = WAL")
            for statement in [*TABLES, *(INDEXES if indexes else [])]:
                self.connection.execute(statement)
            self.connection.execute("INSERT INTO DBConfig VALUES ('DBSCHEMA_VERSION', '1')")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """As ARC's end: the last to close puts the WAL into the database."""
        self.connection.close()

    def id_of(self, table: str, *values: str) -> int:
        """The row of a name in a side table, made where it is missing."""
        key = (table, *values)
        if key not in self._ids:
            names = ("Interface", "URL") if table == "Endpoints" else ("Name",)
            where = " AND ".join(f"{name} = ?" for name in names)
            found = self.connection.execute(f"SELECT ID FROM {table} WHERE {where}", values).fetchone()
            if found is None:
                marks = ", ".join("?" * len(values))
                sql = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({marks})"
                self._ids[key] = int(self.connection.execute(sql, values).lastrowid or 0)
            else:
                self._ids[key] = found[0]
        return self._ids[key]

    def row(self, record_id: int | None, job: ArcJob) -> tuple[Any, ...]:
        """The job's row of table AAR."""
        ids = (
            self.id_of("Endpoints", *job.endpoint),
            self.id_of("Queues", job.queue),
            self.id_of("Users", job.user),
            self.id_of("WLCGVOs", job.vo),
            self.id_of("Status", job.status),
        )
        used = (job.memory, job.virtual, job.wall, job.cpu_user, job.cpu_kernel, job.scratch)
        counts = (job.exit_code, job.submit, job.end, job.nodes, job.cores)
        return (record_id, job.job_id, job.local_id, *ids, *counts, *used, job.volume_in, job.volume_out)

    def add(self, job: ArcJob) -> int:
        """Write a complete job; return its RecordID."""
        record_id = int(self.connection.execute(_AAR, self.row(None, job)).lastrowid or 0)
        for table, rows in _side_rows(record_id, job).items():
            self._insert(table, rows)
        return record_id

    def accept(self, job: ArcJob) -> int:
        """Write the job as ARC does when it is accepted: in progress. `job` is left as it is."""
        begun = unfinished(ArcJob(**{name: getattr(job, name) for name in ArcJob.__slots__}))
        begun.events = begun.events[:1]
        return self.add(begun)

    def event(self, record_id: int, key: str, at: int) -> None:
        """Write one change of state."""
        self._insert("JobEvents", [(record_id, key, instant(at))])

    def finish(self, record_id: int, job: ArcJob, *, events: bool = True) -> None:
        """Write the end of an accepted job; without `events`, only the rows that are not events."""
        self.update(record_id, job)
        sides = _side_rows(record_id, job)
        for table in ("RunTimeEnvironments", "DataTransfers"):
            self._insert(table, sides[table])
        known = {"clienthost", "jobname", "lrms"}
        self._insert("JobExtraInfo", [row for row in sides["JobExtraInfo"] if row[1] not in known])
        if events:
            self._insert("JobEvents", sides["JobEvents"][1:])

    def update(self, record_id: int, job: ArcJob) -> None:
        """Write only the job's row of table AAR again."""
        names = [row[1] for row in self.connection.execute("PRAGMA table_info(AAR)")]
        sets = ", ".join(f"{name} = ?" for name in names[1:])
        self.connection.execute(f"UPDATE AAR SET {sets} WHERE RecordID = ?", (*self.row(None, job)[1:], record_id))

    def extra(self, record_id: int, key: str, value: str) -> None:
        """Write one more row of JobExtraInfo."""
        self._insert("JobExtraInfo", [(record_id, key, value)])

    def _insert(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            self.connection.execute("BEGIN")
            self.connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * _SIDES[table])})", rows)
            self.connection.execute("COMMIT")


def _side_rows(record_id: int, job: ArcJob) -> dict[str, list[tuple[Any, ...]]]:
    return {
        "AuthTokenAttributes": [(record_id, *item) for item in job.attributes],
        "JobEvents": [(record_id, *item) for item in job.events],
        "RunTimeEnvironments": [(record_id, name) for name in job.environments],
        "DataTransfers": [(record_id, *item) for item in job.transfers],
        "JobExtraInfo": [(record_id, *item) for item in job.extra],
    }


def create(path: Path, jobs: int, seed: int = 1, kind: Kind = "clean", first: int = FIRST, last: int = LAST) -> None:
    """Make a database with this number of jobs, as `write` does."""
    write(path, jobs_of(jobs, seed, kind, first, last))


def write(path: Path, jobs: Iterable[ArcJob]) -> None:
    """Make a database of these jobs, in their order. It is in the state in which ARC leaves it when it stops: WAL mode,
    nothing in the WAL."""
    path.unlink(missing_ok=True)
    with ArcWriter(path, new=True, indexes=False) as writer:
        connection = writer.connection
        connection.execute("PRAGMA synchronous = OFF")
        source = enumerate(jobs, 1)
        while chunk := list(itertools.islice(source, _CHUNK)):
            connection.execute("BEGIN")
            connection.executemany(_AAR, [writer.row(number, job) for number, job in chunk])
            sides: dict[str, list[tuple[Any, ...]]] = {table: [] for table in _SIDES}
            for number, job in chunk:
                for table, rows in _side_rows(number, job).items():
                    sides[table].extend(rows)
            for table, rows in sides.items():
                connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * _SIDES[table])})", rows)
            connection.execute("COMMIT")
        for statement in INDEXES:
            connection.execute(statement)


def dump(path: Path) -> str:
    """The database as SQL text, for a fixture that people can read."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection, connection:
        return "\n".join(line for line in connection.iterdump() if "sqlite_sequence" not in line) + "\n"


def load(sql: Path, path: Path) -> Path:
    """A database from its SQL text."""
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.executescript(sql.read_text("utf-8"))
    connection.close()
    return path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.generators.arc_database", description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sql", type=Path, help="write the database as SQL text too")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--varied", dest="kind", action="store_const", const="varied", help="odd jobs among them")
    kinds.add_argument("--hostile", dest="kind", action="store_const", const="hostile", help="odd and broken ones")
    options = parser.parse_args()
    create(options.path, options.jobs, options.seed, options.kind or "clean")
    if options.sql:
        options.sql.write_text(dump(options.path), "utf-8")


if __name__ == "__main__":
    main()
