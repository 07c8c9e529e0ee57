"""Rows: the store: collecting, having nothing to do, folding a changed month."""

from __future__ import annotations

import sqlite3

from tests.bench import inputs
from tests.bench.measure import Bench
from tests.bench.parsing import floor_rows, plain_colon
from tests.bench.rows import Sizes, row
from tests.bench.site import DELIVERED, SUMMARIES, make_gridengine_site, make_site, make_site_of_two_years, prepare
from tests.generators.arc_database import ArcWriter, jobs_of

SIZES = Sizes(5_000, 100_000, 1_000_000)


def plain_rows(bench: Bench) -> None:
    """Bare sqlite3: the rows read, nothing stored."""
    path = inputs.arc_database(bench)
    with bench.timed(bench.size):
        floor_rows(path)


@row("collect arc, all new", SIZES, beside=("bare sqlite3, rows read", plain_rows))
def collect_new(bench: Bench) -> None:
    """An ARC database into an empty store."""
    config = make_site(bench, DELIVERED)
    bench.command(bench.size, "--config", config, "collect")


@row("collect arc, all unchanged", SIZES, beside=("bare sqlite3, rows read", plain_rows))
def collect_unchanged(bench: Bench) -> None:
    """All of the same database read again: every run is compared with what is stored."""
    config = make_site(bench, DELIVERED)
    prepare(bench, "collect")
    bench.command(bench.size, "--config", config, "collect", "--since", "2026-01-01")


@row("collect gridengine, all new", SIZES, beside=("csv module", plain_colon))
def collect_gridengine_new(bench: Bench) -> None:
    """A classic accounting file into an empty store."""
    config = make_gridengine_site(bench, DELIVERED)
    bench.command(bench.size, "--config", config, "collect")


@row("collect gridengine, all unchanged", SIZES, beside=("csv module", plain_colon))
def collect_gridengine_unchanged(bench: Bench) -> None:
    """All of the same file read again: every run is compared with what is stored."""
    config = make_gridengine_site(bench, DELIVERED)
    prepare(bench, "collect")
    bench.command(bench.size, "--config", config, "collect", "--since", "2026-01-01")


def idle_when_small(bench: Bench) -> None:
    """The same over a thousand delivered jobs."""
    idle(Bench(bench.inputs, bench.folder, 1_000, bench.runs))


@row("run, nothing to do", Sizes(10_000, 300_000, 3_000_000), beside=("over 1 000 jobs", idle_when_small), unit="jobs")
def idle(bench: Bench) -> None:
    """`run` where every job of the store was delivered: jobs of two years, of which ARC's last week is compared."""
    config = make_site_of_two_years(bench, DELIVERED)
    prepare(bench, "collect", "run")
    for _ in range(3):
        bench.command(bench.size, "--config", config, "run")


GROUPED = """
    SELECT strftime('%Y-%m', EndTime, 'unixepoch'), UserID, VOID, EndpointID, NodeCount, CPUCount, COUNT(*),
           SUM(UsedWalltime), SUM(UsedCPUUserTime + UsedCPUKernelTime), MIN(EndTime), MAX(EndTime)
    FROM AAR WHERE StatusID IN (SELECT ID FROM Status WHERE Name IN ('completed', 'failed')) GROUP BY 1, 2, 3, 4, 5, 6
"""


def plain_fold(bench: Bench) -> None:
    """One GROUP BY over ARC's database, as ARC's own publisher has it."""
    connection = sqlite3.connect(f"file:{inputs.arc_database(bench)}?mode=ro", uri=True)
    for _ in range(3):
        with bench.timed(bench.size):
            assert connection.execute(GROUPED).fetchall()
    connection.close()


@row(
    "fold and send a changed month",
    Sizes(10_000, 300_000, 1_000_000),
    beside=("SQL GROUP BY over ARC's database", plain_fold),
)
def fold_month(bench: Bench) -> None:
    """One more job in a month that was sent: the month is folded again, and changed groups are sent to a folder."""
    config = make_site(bench, SUMMARIES)
    prepare(bench, "run")
    with ArcWriter(bench.folder / "accounting.db") as writer:
        (late,) = jobs_of(1, seed=99, first=inputs.FIRST, last=inputs.FIRST + 86_400)
        writer.add(late)
    prepare(bench, "collect")
    bench.command(bench.size, "--config", config, "publish")
