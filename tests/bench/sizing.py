"""Rows: a store at size: made by collecting, and then every command over it that a site waits for, each a process of
its own as a user runs it. What they cost, and what a job takes on the disk, are figures of the row.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
from sqlalchemy import Connection, text

from publisher.store.database import open_store
from tests.bench import inputs
from tests.bench.measure import COMMAND, Bench, Measured
from tests.bench.rows import Sizes, row
from tests.publisher.store.server import PostgresqlServer, serving

SITE = """\
[site]
name = "EXAMPLE-SITE"
[store]
url = "{url}"
[sources.ce1]
type = "arc"
path = "{database}"
complete_since = "2024-11-01"
benchmark = {{ type = "HEPscore23", value = 14.2 }}
[targets.first]
type = "directory"
path = "files"
layout = "files"
records = "apel-job"
batch_records = 1000
"""
SECOND = """
[targets.second]
type = "directory"
path = "none"
layout = "files"
records = "apel-job"
delivered_until = "2100-01-01"
"""
"""All that it wants was delivered before us: it is planned, and nothing is sent."""
HALF = "2025-11"
"""The month in the middle of the input's."""
SIZES = Sizes(5_000, 100_000, 3_000_000)
TABLES = ("runs", "classes", "deliveries", "batches", "purged_runs")
DEFAULTS = {"fsync": "on", "full_page_writes": "on", "shared_buffers": "128MB", "autovacuum": "on"}
"""Settings of PostgreSQL as it comes, which tests go without."""


@row("store at size, SQLite", SIZES)
def on_sqlite(bench: Bench) -> None:
    """A database of two years collected into a new store; below the table, what is done with the store."""
    _Sized(bench, f"sqlite:///{bench.folder}/store.db", lambda: 0.0).measure()


@row("store at size, PostgreSQL", Sizes(None, 100_000, 3_000_000))
def on_postgresql(bench: Bench) -> None:
    """The same on PostgreSQL with its own settings; the CPU time of its server is a separate figure."""
    with serving(**DEFAULTS) as server:
        _Sized(bench, server.url(server.new_database()), server.cpu_s, server).measure()


class _Sized:
    """A store that is measured: its figures, by their names."""

    def __init__(
        self, bench: Bench, url: str, server_cpu_s: Callable[[], float], server: PostgresqlServer | None = None
    ) -> None:
        self.bench = bench
        self.url = url
        self.server_cpu_s = server_cpu_s
        self.is_on_server = server is not None
        self.config = bench.folder / "publisher.toml"
        self.figures: dict[str, float] = {}

    def measure(self) -> None:
        """Make the store, and go through what is done with it; the making is the run that is measured."""
        database = inputs.arc_database_of_two_years(self.bench)
        self.config.write_text(SITE.format(url=self.url, database=database), encoding="utf-8")
        made = self.command("insert", "collect")
        jobs = int(self.ask("SELECT COUNT(*) FROM runs"))
        self.command("publish", "publish")
        shutil.rmtree(self.bench.folder / "files")
        first = self.sizes("delivered, ", jobs)
        self.command("status", "status")
        middle = self.ask(f"SELECT record_id FROM runs WHERE id >= {jobs // 2} ORDER BY id LIMIT 1")
        self.command("jobs ID", "jobs", str(middle))
        self.command("first reconciliation", "run")
        self.command("nothing to do", "run")
        with self.config.open("a", encoding="utf-8") as file:
            file.write(SECOND)
        self.command("plan another target", "publish", "second")
        planned = self.sizes("two targets, ", jobs, ("deliveries",))
        self.figures["another target B/job"] = planned["deliveries"] - first["deliveries"]
        self.command("status, two targets", "status")
        self.command("purge of half", "store", "purge", "--before", HALF, "--yes")
        gone = jobs - int(self.ask("SELECT COUNT(*) FROM runs"))
        self.figures["purged jobs"] = gone
        self.sizes("purged, ", jobs)
        self.command("vacuum", "store", "purge", "--before", HALF, "--yes", "--vacuum")
        left = self.sizes("vacuumed, ", jobs)
        self.command("check of what is left", "store", "check")
        if self.is_on_server:
            with psycopg.connect(self.url, autocommit=True) as session:
                session.execute("VACUUM FULL")
            left = self.sizes("after VACUUM FULL, ", jobs)
        self.figures["that it was here B/purged_job"] = left["purged_runs"] * jobs / gone
        self.bench.runs.append(replace(made, note=f"{jobs} jobs stored", figures=self.figures))

    def command(self, name: str, *arguments: str) -> Measured:
        """Record the cost of a command: `usage-publisher` with these arguments."""
        server_s = self.server_cpu_s()
        cost = self.bench.cost_of(self.bench.size, *COMMAND, "--config", self.config, "--quiet", *arguments)
        self.figures[f"{name} s"] = cost.wall_s
        self.figures[f"{name}, CPU s"] = cost.cpu_s
        if self.is_on_server:
            self.figures[f"{name}, server's CPU s"] = self.server_cpu_s() - server_s
        self.figures[f"{name}, peak MiB"] = cost.peak_mib
        return cost

    def sizes(self, when: str, jobs: int, tables: Sequence[str] = TABLES) -> dict[str, float]:
        """Record the size of the store, and of tables with their indexes; return bytes for each job."""
        with self.connected() as connection:
            if self.is_on_server:
                whole, each = "SELECT pg_database_size(current_database())", "SELECT pg_total_relation_size(:name)"
            else:
                whole = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
                # `pageno` is the number of pages there; `pgsize` has 32 bits.
                each = """SELECT SUM(pageno) * (SELECT page_size FROM pragma_page_size) FROM sqlite_schema AS named
                    CROSS JOIN dbstat('main', TRUE) AS trees ON trees.name = named.name WHERE tbl_name = :name"""
            sizes = {"all": connection.execute(text(whole)).scalar_one()}
            sizes |= {name: connection.execute(text(each), {"name": name}).scalar_one() for name in tables}
        found = {name: float(size) / jobs for name, size in sizes.items()}
        self.figures |= {f"{when}{name} B/job": size for name, size in found.items()}
        return found

    def ask(self, query: str) -> Any:
        """The one value of a query."""
        with self.connected() as connection:
            return connection.execute(text(query)).scalar_one()

    @contextmanager
    def connected(self) -> Iterator[Connection]:
        """The store, read."""
        store = open_store(self.url, read_only=True)
        try:
            with store.read() as connection:
                yield connection
        finally:
            store.close()
