"""Rows: utilization reports, from the store and from an archive, compared with the manual's algorithm on the same
jobs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa

from formats.calendar import Month
from formats.utilization.measure import Bins, Ran, measured
from publisher.api import Publisher
from publisher.report.archive import COLUMNS, NUMBERS, TEXT_COLUMNS
from publisher.report.archive_export import write_month
from publisher.report.columns import SlimDecoder
from publisher.report.tables import bring_up_to_date, tables_of_archive, tables_of_store
from publisher.store.report_queries import stored_runs
from tests.bench.inputs import FIRST, MONTH_S, SEED, kept
from tests.bench.measure import COMMAND, Bench, Measured
from tests.bench.rows import Sizes, row
from tests.bench.site import HEAD, make_site, prepare
from tests.formats.utilization.dqs_walk import walk

BINS = 1_000
_FRAME = 100_000
_START, _STOP = FIRST, FIRST + MONTH_S


def archive_of(bench: Bench) -> Path:
    """An archive of one month: jobs of minutes to days on 500 hosts, of 200 users."""
    return kept(bench, "archive", lambda path: _write_archive(path, bench.size))


def _write_archive(path: Path, size: int) -> None:
    write_month(invented(size), Month(2026, 10), path)


def invented(size: int) -> Iterator[Any]:
    """Record batches of an archive's month."""
    random = np.random.default_rng(SEED)
    words = {name: pa.array([f"{name}{number}" for number in range(200)]) for name in TEXT_COLUMNS if name != "placed"}
    hosts = pa.array([f'[{{"name":"n{number:03}","slots":1}}]' for number in range(500)])
    for begin in range(0, size, _FRAME):
        rows = min(_FRAME, size - begin)
        stop = np.sort(random.integers(_START, _STOP, rows))
        length = random.lognormal(8.5, 1.5, rows).astype(np.int64)
        slots = random.choice(np.array([1, 1, 1, 8, 32], np.int64), rows)
        user_ms = (length * slots * random.random(rows) * 1000).astype(np.int64)
        columns: dict[str, Any] = {name: np.zeros(rows, np.int64) for name in NUMBERS}
        columns |= {
            "start": stop - length, "stop": stop, "end": stop, "slots": slots, "user_ms": user_ms,
            "system_ms": user_ms // 20, "submit": stop - length - 60, "eligible": pa.nulls(rows, pa.int64()),
        }  # fmt: skip
        columns |= {name: some.take(pa.array(random.integers(0, 200, rows))) for name, some in words.items()}
        columns["placed"] = hosts.take(pa.array(random.integers(0, 500, rows)))
        columns["local_id"] = [str(begin + place) for place in range(rows)]
        arrays = [columns.get(name, pa.nulls(rows, pa.string())) for name in COLUMNS]
        yield from pa.table(arrays, COLUMNS).combine_chunks().to_batches()


_RAN: Final = ("start", "stop", "user_ms", "system_ms", "slots")


def _walked(tables: duckdb.DuckDBPyConnection, bench: Bench, kind: str) -> None:
    """The manual's algorithm over the jobs, which lie in memory already; the numbers must be those of the report."""
    rows = tables.execute('SELECT "start", "stop", user_ms, system_ms, slots FROM entries').fetchall()
    jobs = [Ran(*facts) for facts in rows]
    bins = Bins.by_number(_START, _STOP, BINS)
    with bench.timed(len(jobs)):
        found = measured(bins, iter(walk(jobs, bins)))
    (bench.inputs / f"walked-{kind}-{bench.size}.json").write_text(json.dumps([one.queue for one in found]))


def walk_store(bench: Bench) -> None:
    """The manual's algorithm over the jobs of the store."""
    with (
        Publisher.from_file(_site(bench)) as publisher,
        tables_of_store(publisher.store, publisher.config, columns=_RAN) as tables,
    ):
        _walked(tables, bench, "store")


def walk_archive(bench: Bench) -> None:
    """The manual's algorithm over the jobs of the archive."""
    with tables_of_archive(archive_of(bench), columns=_RAN) as tables:
        _walked(tables, bench, "archive")


def _site(bench: Bench) -> Path:
    """A site that has collected, kept between runs."""

    def make(folder: Path) -> None:
        made = Bench(bench.inputs, bench.folder / "made", bench.size)
        made.folder.mkdir()
        make_site(made, "")
        prepare(made, "collect")
        (made.folder / "accounting.db").unlink()
        shutil.move(made.folder, folder)

    return kept(bench, "collected", make) / "publisher.toml"


def _same(bench: Bench, kind: str, report: Path) -> None:
    walked = bench.inputs / f"walked-{kind}-{bench.size}.json"
    found = [one["queue"] for one in json.loads(report.read_text())["bins"]]
    if walked.exists() and json.loads(walked.read_text()) != found:
        raise RuntimeError("the report and the manual's walk give different numbers")


@row(
    "report 1000 bins, from the store",
    Sizes(5_000, 100_000, 1_000_000),
    beside=("the manual's walk, jobs in memory", walk_store),
    unit="jobs",
)
def report_store(bench: Bench) -> None:
    """Queue and CPU utilization of a month of ARC jobs, as a command: start-up and reading included."""
    config = _site(bench)
    for _ in range(3):
        bench.command(
            bench.size, "--config", config, "report", "utilization", "--since", f"@{_START}", "--until",
            f"@{_STOP}", "--bins", str(BINS), "--format", "json", "--output", "report.json",
        )  # fmt: skip
    _same(bench, "store", bench.folder / "report.json")


@row(
    "report 1000 bins, from Parquet",
    Sizes(100_000, 1_000_000, 10_000_000),
    beside=("the manual's walk, jobs in memory", walk_archive),
    unit="jobs",
)
def report_archive(bench: Bench) -> None:
    """The same from an archive."""
    archive = archive_of(bench)
    config = bench.folder / "publisher.toml"
    config.write_text(HEAD, encoding="utf-8")
    for _ in range(3):
        bench.process(
            bench.size, *COMMAND, "--config", config, "report", "utilization", "--archive", archive.absolute(),
            "--since", f"@{_START}", "--until", f"@{_STOP}", "--bins", str(BINS),
            "--format", "json", "--output", "report.json",
        )  # fmt: skip
    _same(bench, "archive", bench.folder / "report.json")


def decoding(bench: Bench) -> None:
    """Read and decode the stored runs, as whole jobs."""
    decoder = SlimDecoder(with_slaves=False)
    with (
        Publisher.from_file(_site(bench), read_only=True) as publisher,
        publisher.store.read() as connection,
        bench.timed(bench.size),
    ):
        for page in stored_runs(connection, 4_000):
            decoder.learn(connection, decoder.unknown(page))
            decoder.decoded(page)


@row(
    "columns of new jobs",
    Sizes(5_000, 100_000, 300_000),
    beside=("decoding the same jobs", decoding),
    unit="jobs",
)
def columns_of_new(bench: Bench) -> None:
    """Make the columns of a store from nothing, as the first report does."""
    config = _site(bench)
    with Publisher.from_file(config, read_only=True) as publisher:
        shutil.rmtree(config.parent / "store.db.columns", ignore_errors=True)
        with bench.timed(bench.size):
            bring_up_to_date(publisher.store, publisher.config)


_TOTALS = 'SELECT "user", count(*), sum(wall_ms), sum(cpu_ms), sum(slots * wall_ms::HUGEINT) FROM {} GROUP BY "user"'


def bare(bench: Bench) -> None:
    """The sums by user with DuckDB alone, over an archive."""
    (file,) = archive_of(bench).glob("*/*.parquet")
    with duckdb.connect(":memory:") as connection, bench.timed(bench.size):
        connection.execute(_TOTALS.format(f"read_parquet('{file}')")).fetchall()


@row(
    "totals by user, columns up to date",
    Sizes(5_000, 300_000, 3_000_000),
    beside=("DuckDB alone, the same SQL", bare),
    unit="jobs",
)
def totals_of_columns(bench: Bench) -> None:
    """The same SQL over the columns of a store, as far as they are read: opened, compared with their check numbers."""
    config = _site(bench)
    with Publisher.from_file(config, read_only=True) as publisher:
        bring_up_to_date(publisher.store, publisher.config)
        columns = ("user", "wall_ms", "cpu_ms", "slots")
        with bench.timed(bench.size), tables_of_store(publisher.store, publisher.config, columns=columns) as tables:
            tables.execute(_TOTALS.format("entries")).fetchall()


_PRICES: Final = """
[charges]
timezone = "Europe/Oslo"
[[charges.prices]]
resource = "cores"
price = "0.03"
hours = "06-22"
[[charges.prices]]
resource = "cores"
price = "0.02"
[[charges.prices]]
resource = "memory"
price = "0.001"
"""
_VIEWS: Final[dict[str, tuple[str, ...]]] = {
    "totals": ("--by", "user"),
    "efficiency": ("--by", "job"),
    "utilization": ("--bins", str(BINS)),
    "occupation": ("--period", "day"),
    "waiting": ("--by", "day,user"),
    "scarce": (),
    "charges": (),
    "paths": (),
}


@row("views, columns up to date", Sizes(5_000, 100_000, 3_000_000), unit="jobs")
def views(bench: Bench) -> None:
    """Commands of views one after the other: the peak is that of the largest; CPU time and peak of each."""
    site = _site(bench)
    config = bench.folder / "publisher.toml"
    store = (site.parent / "store.db").absolute()
    config.write_text(site.read_text(encoding="utf-8").replace("store.db", str(store)) + _PRICES, encoding="utf-8")
    # In a process of its own: the peak of a process includes that of the one that started it.
    bench.cost_of(bench.size, *COMMAND, "--config", config, "report", "totals")
    figures: dict[str, float] = {}
    costs = []
    for name, options in _VIEWS.items():
        arguments = ["--config", config, "report", name, "--month", "2026-10", *options]
        cost = bench.cost_of(bench.size, *COMMAND, *arguments, "--format", "json", "--output", "report.json")
        figures |= {f"{name}, CPU s": cost.cpu_s, f"{name}, peak MiB": cost.peak_mib}
        costs.append(cost)
    wall_s, cpu_s = sum(cost.wall_s for cost in costs), sum(cost.cpu_s for cost in costs)
    peak_mib = max(cost.peak_mib for cost in costs)
    bench.runs.append(Measured(bench.size, wall_s, cpu_s, peak_mib, figures=figures))


@row("jobs of a user, newest 100 and their number", Sizes(5_000, 100_000, 3_000_000), unit="jobs")
def jobs_of_user(bench: Bench) -> None:
    """`jobs --user`, whose pattern matches the local users of a source that knows grid identities too."""
    bench.command(bench.size, "--config", _site(bench), "jobs", "--user", "a*")


@row("jobs of a queue, newest 100 and their number", Sizes(5_000, 100_000, 3_000_000), unit="jobs")
def jobs_of_queue(bench: Bench) -> None:
    """`jobs --queue`, which the class of a run decides."""
    bench.command(bench.size, "--config", _site(bench), "jobs", "--queue", "m*")
