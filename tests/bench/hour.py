"""Rows: an hour's work. A site has many jobs of two years, all of them delivered; then a thousand more have ended, and
one run delivers those, as a timer has it do each hour. Beside it ARC's own publisher, or the APEL client.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from tests.bench import apel_own, arc_own, delivering, inputs
from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row
from tests.bench.services import BenchServices, services
from tests.bench.site import make_site_of_two_years, make_torque_site, prepare
from tests.generators.arc_database import ArcWriter, jobs_of

SIZES: Final = Sizes(10_000, 100_000, 1_000_000)
JOBS: Final = 1_000
HOURS: Final = 3
"""As many are measured. They are days apart: a job ends up to 24 hours after it began."""


def add_hour(database: Path, hour: int) -> int:
    """Add the jobs of an hour to ARC's database; return the time after which they ended, and no others."""
    first = inputs.TWO_YEARS[1] + hour * inputs.DAY_S
    with ArcWriter(database) as writer:
        for job in jobs_of(JOBS, seed=hour + 100, first=first, last=first + 3_000):
            writer.add(job)
    return first


def require_hour(running: BenchServices, kind: str, before: int, hour: int) -> None:
    """Require that something arrived in each hour, and of records every job that ran. Raises `RuntimeError`."""
    arrived = arrived_of(running, kind) - before
    ran = sum(job.status in {"completed", "failed"} for job in jobs_of(JOBS, seed=hour + 100))
    if not arrived or (kind == "sgas" and arrived != ran):
        raise RuntimeError(f"{arrived} arrived of {ran} jobs that ran")


def arrived_of(running: BenchServices, kind: str) -> int:
    """Records at SGAS, or messages at AMS."""
    return int(running.stats()[kind]["records" if kind == "sgas" else "messages"])


def ours(bench: Bench, kind: str, **settings: object) -> None:
    """`run` of each hour, after one that delivers what the database has from the beginning."""
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        config = make_site_of_two_years(bench, running.target(kind, **settings))
        prepare(bench, "run")
        for hour in range(HOURS):
            before = arrived_of(running, kind)
            add_hour(bench.folder / "accounting.db", hour)
            bench.command(JOBS, "--config", config, "run")
            require_hour(running, kind, before, hour)


def arcs(bench: Bench, target: str, messages: str, records: int) -> None:
    """The same by ARC's publisher. Its regular run sends the summaries of the month before, too."""
    database = arc_own.database(bench, inputs.arc_database_of_two_years(bench))
    kind = "ams" if target == "apel" else target
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        for hour in range(HOURS):
            before = arrived_of(running, kind)
            since = add_hour(database, hour)
            since = inputs.FIRST if messages == "summaries" else since
            arc_own.run(bench, JOBS, running, target, messages, records, since=since)
            require_hour(running, kind, before, hour)


def arc_sgas(bench: Bench) -> None:
    """ARC's publisher to SGAS."""
    arcs(bench, "sgas", "", delivering.ARC_RECORDS)


def arc_car(bench: Bench) -> None:
    """ARC's publisher to AMS, compute records."""
    arcs(bench, "apel", "urs", delivering.CAR_RECORDS)


def arc_summaries(bench: Bench) -> None:
    """ARC's publisher to AMS, summaries."""
    arcs(bench, "apel", "summaries", delivering.CAR_RECORDS)


@row("an hour's work to SGAS", SIZES, beside=("ARC 6.17's", arc_sgas), unless=arc_own.missing)
def hour_to_sgas(bench: Bench) -> None:
    """1,000 more jobs, as usage records, in messages of ARC's size."""
    ours(bench, "sgas", batch_records=delivering.ARC_RECORDS)


@row("an hour's work to AMS, CAR", SIZES, beside=("ARC 6.17's", arc_car), unless=arc_own.missing)
def hour_to_ams(bench: Bench) -> None:
    """The same as signed compute records."""
    ours(bench, "ams", records="emi-car", batch_records=delivering.CAR_RECORDS, batch_bytes=10_000_000)


@row("an hour's work to AMS, summaries", SIZES, beside=("ARC 6.17's", arc_summaries), unless=arc_own.missing)
def hour_of_summaries(bench: Bench) -> None:
    """The same as monthly summaries."""
    ours(bench, "ams", records="apel-summary")


def add_day(logs: Path, hour: int) -> Path:
    """Add the jobs of an hour to TORQUE's logs; return their file."""
    first = inputs.TWO_YEARS[1] + hour * inputs.DAY_S
    jobs = inputs.torque_jobs(JOBS, seed=hour + 1000, first=first, number=10_000_000 + hour * JOBS)
    return inputs.torque_file(logs, first, jobs)


def ours_from_torque(bench: Bench, records: str) -> None:
    """`run` of each hour over TORQUE's logs, to AMS."""
    with tempfile.TemporaryDirectory() as folder, services(Path(folder)) as running:
        config = make_torque_site(bench, running.target("ams", records=records, local_jobs="send"))
        prepare(bench, "run")
        for hour in range(HOURS):
            before = arrived_of(running, "ams")
            add_day(bench.folder / "logs", hour)
            bench.command(JOBS, "--config", config, "run")
            require_hour(running, "ams", before, hour)


def apels(bench: Bench, *, summaries: bool) -> None:
    """The same by the APEL client, whose messages are not sent. It knows the jobs of before, and unloaded them."""
    logs = inputs.torque_days(bench)

    def make(path: Path) -> None:
        client = apel_own.MeasuredApelClient(bench, logs, summaries=False)
        with client.serving():
            client.run(bench.size)
        client.taken()
        client.tables.rename(path)

    shutil.copytree(inputs.kept(bench, "apel-client-tables", make), bench.folder / "tables")
    (bench.folder / "logs").mkdir()
    for log in logs.iterdir():
        (bench.folder / "logs" / log.name).symlink_to(log.absolute())
    client = apel_own.MeasuredApelClient(bench, bench.folder / "logs", summaries=summaries)
    with client.serving():
        for hour in range(HOURS):
            add_day(bench.folder / "logs", hour)
            bench.runs.append(client.run(JOBS))
            if not client.taken():
                raise RuntimeError("the APEL client unloaded nothing")


def apel_summaries(bench: Bench) -> None:
    """The APEL client, summaries."""
    apels(bench, summaries=True)


def apel_jobs(bench: Bench) -> None:
    """The APEL client, job records."""
    apels(bench, summaries=False)


@row("an hour's work of TORQUE, summaries", SIZES, beside=("APEL client", apel_summaries), unless=apel_own.missing)
def hour_of_torque_summaries(bench: Bench) -> None:
    """1,000 more jobs of a batch system, as monthly summaries, signed and sent; the APEL client only writes them."""
    ours_from_torque(bench, "apel-summary")


@row("an hour's work of TORQUE, job records", SIZES, beside=("APEL client", apel_jobs), unless=apel_own.missing)
def hour_of_torque_jobs(bench: Bench) -> None:
    """The same as job records."""
    ours_from_torque(bench, "apel-job")
