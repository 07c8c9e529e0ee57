"""Rows: the main job from end to end, from an ARC database to simulated services in another process."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path

from tests.bench import inputs, plain
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row
from tests.bench.services import BenchServices, counting, services
from tests.bench.site import make_site
from tests.bench.storing import plain_fold

SIZES = Sizes(10_000, 100_000, 1_000_000)
FEW_PLAIN, MOST_PLAIN = 1_000, 10_000
"""Jobs for the plain publisher: its start is not measured, so more jobs would give the same speed."""
MOST_LOOKED_UP = 100_000
"""Of more, what APEL has is more than a benchmark's process should hold."""
SGAS_RECORDS, ARC_RECORDS, CAR_RECORDS = 100, 50, 500


Serving = Callable[[Path], AbstractContextManager[BenchServices]]


def deliver(bench: Bench, kind: str, serving: Serving = services, **settings: object) -> None:
    """`run` on a fresh site: collect, store, ledger, render, sign, send, receipts."""
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as running:
        config = make_site(bench, running.target(kind, **settings))
        bench.command(bench.size, "--config", config, "run", codes=(0, 3))
        require_arrival(running, bench)


def require_arrival(running: BenchServices, bench: Bench, *, messages_alone: bool = False) -> None:
    """Require that every job that ran arrived once; with very many jobs to AMS, that every message arrived."""
    counted = running.stats()
    ran = jobs_that_ran(inputs.arc_database(bench))
    sgas, ams = counted["sgas"], counted["ams"]
    if sgas["posts"]:
        arrived = sgas["records"] == sgas["received"] == ran
    else:
        messages_alone = messages_alone or bench.size > MOST_LOOKED_UP
        arrived = 0 < ams["posts"] == ams["messages"] and (messages_alone or at_apel(running) == ran)
    if not arrived:
        raise RuntimeError(f"not all arrived of {ran} jobs that ran: {counted}")


def at_apel(running: BenchServices) -> int:
    """How many jobs APEL's server has, each by its record or counted in a summary; none where it rejected something."""
    found = running.apel()
    summed = sum(int(row["fields"]["NumberOfJobs"]) for row in found["summaries"])
    return 0 if found["rejected"] else len(found["record_ids"]) + summed


def jobs_that_ran(database: Path) -> int:
    """Jobs of ARC's database that are to be delivered."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        query = "SELECT COUNT(*) FROM AAR JOIN Status ON StatusID = Status.ID WHERE Name IN ('completed', 'failed')"
        return int(connection.execute(query).fetchone()[0])


def fewer(bench: Bench) -> Bench:
    """The same bench with as many jobs as the plain publisher is given."""
    return Bench(bench.inputs, bench.folder, MOST_PLAIN if bench.size > MOST_PLAIN else FEW_PLAIN, bench.runs)


def plain_sgas(bench: Bench, serving: Serving = services) -> None:
    """The plain publisher to SGAS."""
    bench = fewer(bench)
    database = inputs.arc_database(bench)
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as running:
        connection = running.connection("sgas_url")
        with bench.timed(bench.size):
            plain.publish_to_sgas(database, connection, SGAS_RECORDS)


def plain_sgas_that_counts(bench: Bench) -> None:
    """The plain publisher to an SGAS that checks nothing."""
    plain_sgas(bench, counting)


def plain_car(bench: Bench) -> None:
    """The plain publisher to AMS."""
    bench = fewer(bench)
    database = inputs.arc_database(bench)
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        signer = plain.PlainSigner(Path(running.ready["certificate"]), Path(running.ready["key"]))
        with bench.timed(bench.size):
            plain.publish_to_ams(database, running.connection("ams_url"), running.token(), signer, CAR_RECORDS)


@row("ARC database to SGAS", SIZES, beside=("plain publisher, no store", plain_sgas))
def to_sgas(bench: Bench) -> None:
    """Usage records, as many a message as without a setting, TLS with client certificate."""
    deliver(bench, "sgas", batch_records=SGAS_RECORDS)


@row("ARC database to an SGAS that only counts", SIZES, beside=("plain publisher, no store", plain_sgas_that_counts))
def to_sgas_that_counts(bench: Bench) -> None:
    """The same, to a service that checks nothing, so that the publisher has the cores."""
    deliver(bench, "sgas", counting, batch_records=SGAS_RECORDS)


@row("ARC database to SGAS, 50 a message", Sizes(None, 100_000, None))
def to_sgas_as_arc(bench: Bench) -> None:
    """The same in messages of ARC's size."""
    deliver(bench, "sgas", batch_records=ARC_RECORDS)


@row("ARC database to AMS, CAR", SIZES, beside=("plain publisher, no store", plain_car))
def to_ams_car(bench: Bench) -> None:
    """Signed compute records, 500 a message."""
    deliver(bench, "ams", records="emi-car", batch_records=CAR_RECORDS, batch_bytes=10_000_000)


@row("ARC database to AMS, summaries", SIZES, beside=("SQL GROUP BY, nothing sent", plain_fold))
def to_ams_summaries(bench: Bench) -> None:
    """Signed monthly summaries and sync counts."""
    deliver(bench, "ams", records="apel-summary")
