"""Row: the memory of the page after every view was asked for, over a store whose columns are up to date."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import replace
from typing import Final
from urllib.request import urlopen

from publisher.report.view_kind import VIEW_KINDS
from tests.bench.measure import COMMAND, Bench, Watched, measured_end
from tests.bench.reporting import SIZES
from tests.bench.rows import row
from tests.bench.viewing import site_with_columns

_MONTH: Final = "month=2026-10&since=2026-10-01&until=2026-11-01"
_ASKED: Final = (
    "/", "/jobs?user=*a*", "/job?job=77&", "/utilization?by=user&", "/totals?by=user&by2=day&", "/waiting?by=user&",
    "/efficiency?by=job&", "/occupation?by=type&", "/utilization.png?", "/occupation.png?", "/totals.csv?",
)  # fmt: skip
"""Beside each view as its form has it at first."""


@row("the page after every view", SIZES, unit="jobs")
def page(bench: Bench) -> None:
    """`serve`, asked for each view, some of them grouped, and files. The peak is that of all; what it has after is a
    figure."""
    config = site_with_columns(bench)
    command = [*COMMAND, "--config", str(config), "serve", "--port", "0"]
    views = [kind for kind in VIEW_KINDS.values() if kind.roles and not kind.required and kind.needs != "samples"]
    addresses = [*_ASKED, *(f"/{kind.name}?" for kind in views)]
    begin = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=bench.folder)
    with Watched(process.pid) as watched:
        try:
            assert process.stderr is not None
            site = process.stderr.readline().split()[-1].rstrip("/")
            begun_mib = watched.held_mib()
            for address in addresses:
                with urlopen(f"{site}{address}{_MONTH if address[-1] in '?&' else ''}") as answer:
                    answer.read()
            held_mib = watched.held_mib()
        finally:
            process.send_signal(signal.SIGTERM)
            cost = measured_end(process, bench.size, begin, watched)
    bench.runs.append(replace(cost, figures={"at the start MiB": begun_mib, "after MiB": held_mib}))
