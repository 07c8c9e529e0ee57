"""Rows: how long a command takes before it does anything."""

from __future__ import annotations

import sys

from tests.bench.measure import Bench
from tests.bench.rows import Sizes, row
from tests.bench.site import DELIVERED, make_site, prepare

ONCE = Sizes(1_000, 1_000, 1_000)
RUNS = 3


def python(bench: Bench) -> None:
    """An interpreter that does nothing."""
    for _ in range(RUNS):
        bench.process(1, sys.executable, "-c", "pass")


def start(bench: Bench, *arguments: str) -> None:
    """A command over a store of a thousand delivered jobs; the first is not counted."""
    config = make_site(bench, DELIVERED)
    prepare(bench, "collect", "status")
    for _ in range(RUNS):
        bench.command(1, "--config", config, *arguments)


@row("start: --version", ONCE, beside=("python -c pass", python), unit="starts")
def version(bench: Bench) -> None:
    """`usage-publisher --version`."""
    start(bench, "--version")


@row("start: --help", ONCE, beside=("python -c pass", python), unit="starts")
def help_(bench: Bench) -> None:
    """`usage-publisher --help`."""
    start(bench, "--help")


@row("start: report totals", ONCE, beside=("python -c pass", python), unit="starts")
def report(bench: Bench) -> None:
    """`usage-publisher report totals`, which opens the columns too."""
    start(bench, "report", "totals")


@row("start: status", ONCE, beside=("python -c pass", python), unit="starts")
def status(bench: Bench) -> None:
    """`usage-publisher status`, which opens the store."""
    start(bench, "status")
