"""Rows: utilization reports, from the store and from an archive, compared with the manual's algorithm on the same
jobs; columns made and brought up to date; lists of jobs."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
from sqlalchemy import select

from formats.calendar import Month
from formats.utilization.measure import Bins, Ran, measured
from publisher.api import Publisher
from publisher.report.archive import COLUMNS, NUMBERS, TEXT_COLUMNS
from publisher.report.archive_export import write_month
from publisher.report.columns import SlimDecoder
from publisher.report.tables import EntryReading, bring_up_to_date, tables_of_archive, tables_of_store
from publisher.store import changes, schema
from publisher.store.database import open_store
from publisher.store.report_queries import stored_runs
from tests.bench.inputs import FIRST, MONTH_S, SEED, kept
from tests.bench.measure import COMMAND, Bench
from tests.bench.rows import Sizes, row
from tests.bench.site import HEAD, make_site, prepare
from tests.bench.storing import collect_new
from tests.formats.utilization.dqs_walk import walk

BINS = 1_000
SIZES: Final = Sizes(5_000, 100_000, 3_000_000)
_RUNS: Final = 3
_NEW: Final = Sizes(5_000, 100_000, 300_000)
_CHANGED: Final = 1_000
_NOTED: Final = 500
"""Runs that are noted at a time: a page of a source."""
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
        Publisher.from_file(collected_site(bench)) as publisher,
        tables_of_store(publisher.store, publisher.config, EntryReading(_RAN)) as tables,
    ):
        _walked(tables, bench, "store")


def walk_archive(bench: Bench) -> None:
    """The manual's algorithm over the jobs of the archive."""
    with tables_of_archive(archive_of(bench), EntryReading(_RAN)) as tables:
        _walked(tables, bench, "archive")


def collected_site(bench: Bench) -> Path:
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
    config = collected_site(bench)
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
        Publisher.from_file(collected_site(bench), read_only=True) as publisher,
        publisher.store.read() as connection,
        bench.timed(bench.size),
    ):
        for page in stored_runs(connection, 4_000):
            decoder.learn(connection, page)
            decoder.decoded(page)


@row("columns of new jobs", _NEW, beside=("decoding the same jobs", decoding), unit="jobs")
def columns_of_new(bench: Bench) -> None:
    """Make the columns of a store from nothing, as the first report does."""
    config = collected_site(bench)
    with Publisher.from_file(config, read_only=True) as publisher:
        shutil.rmtree(config.parent / "store.db.columns", ignore_errors=True)
        with bench.timed(bench.size):
            bring_up_to_date(publisher.store, publisher.config)


@row("columns of 1 000 changed runs", SIZES, unit="jobs")
def columns_of_changed(bench: Bench) -> None:
    """Bring the columns up to date after 1,000 runs were changed, which are anywhere in the store. Nothing of them
    differs, which the columns cannot know: the seconds are those of any change."""
    config = collected_site(bench)
    bench.cost_of(bench.size, *COMMAND, "--config", config, "report", "totals")
    shutil.copytree(config.parent, bench.folder / "site")
    rng = random.Random(SEED)
    with Publisher.from_file(bench.folder / "site" / "publisher.toml") as publisher:
        for _ in range(_RUNS):
            with publisher.store.write() as connection:
                changes.note_runs(connection, rng.sample(range(1, bench.size), _CHANGED))
            with bench.timed(_CHANGED):
                bring_up_to_date(publisher.store, publisher.config)


@row("noting changes for columns", _NEW, beside=("collect arc, all new", collect_new), unit="jobs")
def noted_changes(bench: Bench) -> None:
    """What `collect` does for the columns: note the runs of each transaction, and append a row before its commit.
    `publish` changes no run, and appends none."""
    with (
        Publisher.from_file(collected_site(bench), read_only=True) as publisher,
        publisher.store.read() as connection,
    ):
        rows = [bytes(packed) for (packed,) in connection.execute(select(schema.changes.c.runs))]
    transactions = [[id_ for first, stop in changes.unpack(packed) for id_ in range(first, stop)] for packed in rows]
    store = open_store(f"sqlite:///{bench.folder}/other.db")
    try:
        with store.write() as connection, bench.timed(sum(map(len, transactions))):
            for run_ids in transactions:
                changed = changes.collect_on(connection)
                for begin in range(0, len(run_ids), _NOTED):
                    changes.note_runs(connection, run_ids[begin : begin + _NOTED])
                changes.append(connection, changed)
            changes.collect_on(connection)
    finally:
        store.close()


@row("jobs of a user, newest 100 and their number", SIZES, unit="jobs")
def jobs_of_user(bench: Bench) -> None:
    """`jobs --user`, whose pattern matches the local users of a source that knows grid identities too."""
    bench.command(bench.size, "--config", collected_site(bench), "jobs", "--user", "a*")


@row("jobs of a queue, newest 100 and their number", SIZES, unit="jobs")
def jobs_of_queue(bench: Bench) -> None:
    """`jobs --queue`, which the class of a run decides."""
    bench.command(bench.size, "--config", collected_site(bench), "jobs", "--queue", "m*")
