"""Rows: what users and the order of jobs make of the cost of a job, beside the jobs of the other rows.

Facts that many jobs share are stored once, as their class; runs that ended together are near each other in the store.
Where each user, group, queue, and size is drawn alone, or jobs are read in any order, neither helps.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.bench import inputs
from tests.bench.measure import COMMAND, Bench
from tests.bench.rows import Sizes, row
from tests.bench.site import HEAD, SLURM, make_site_of

SIZES: Final = Sizes(10_000, 100_000, 300_000)
CAR: Final = """
[targets.car]
type = "directory"
path = "files"
layout = "files"
records = "emi-car"
batch_records = 500
"""
_COUNTED: Final = """
    SELECT (SELECT COUNT(*) FROM runs), (SELECT COUNT(*) FROM classes), page_count * page_size
    FROM pragma_page_count, pragma_page_size
"""


def delivered(bench: Bench, text: str, source: Path, name: str) -> None:
    """`collect`, then `publish` to a folder; bytes, and CPU time of a job in both."""
    config = make_site_of(bench, text + CAR, source, name)
    collect = bench.cost_of(bench.size, *COMMAND, "--config", config, "collect")
    publish = bench.cost_of(bench.size, *COMMAND, "--config", config, "publish", codes=(0, 3))
    with closing(sqlite3.connect(bench.folder / "store.db")) as connection:
        runs, classes, size = connection.execute(_COUNTED).fetchone()
    figures = {
        "classes": float(classes),
        "store B/job": size / runs,
        "collect, CPU µs/job": 1e6 * collect.cpu_s / runs,
        "publish, CPU µs/job": 1e6 * publish.cpu_s / runs,
        "collect, peak MiB": collect.peak_mib,
        "publish, peak MiB": publish.peak_mib,
    }
    both = replace(collect, wall_s=collect.wall_s + publish.wall_s, cpu_s=collect.cpu_s + publish.cpu_s)
    bench.runs.append(replace(both, peak_mib=max(collect.peak_mib, publish.peak_mib), figures=figures))


def arc(bench: Bench) -> None:
    """The jobs of the other rows."""
    delivered(bench, HEAD, inputs.arc_database(bench), "accounting.db")


def slurm(bench: Bench) -> None:
    """A cluster of 40 users with jobs of three sizes."""
    delivered(bench, SLURM, inputs.sacct_table(bench), "sacct")


@row("ARC, users without habits", SIZES, beside=("with habits", arc))
def independent(bench: Bench) -> None:
    """Collect and publish where user, FQAN, queue, and cores of each job are drawn alone."""
    delivered(bench, HEAD, inputs.arc_database_of_independent_jobs(bench), "accounting.db")


@row("ARC, jobs in any order", SIZES, beside=("in order of submission", arc))
def any_order(bench: Bench) -> None:
    """Collect and publish where the order of jobs has nothing to do with that of their ends."""
    delivered(bench, HEAD, inputs.arc_database_in_any_order(bench), "accounting.db")


@row("Slurm, 1 000 users", SIZES, beside=("40 users", slurm))
def many_users(bench: Bench) -> None:
    """Collect and publish jobs of 1,000 users, each with any number of cores."""
    delivered(bench, SLURM, inputs.sacct_table_of_many_users(bench), "sacct")
