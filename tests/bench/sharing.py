"""Rows: sending a window again, and several publishers that share a store on PostgreSQL."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import time
from collections import Counter

from tests.bench.measure import COMMAND, Bench, Measured
from tests.bench.rows import Sizes, row
from tests.bench.site import HEAD, make_site, prepare
from tests.publisher.store.server import serving

FILES = """
[targets.spool]
type = "directory"
path = "files"
layout = "files"
records = "emi-car"
batch_records = 100
publishers = 4
"""
_RECORD_ID = re.compile(rb'recordId="([^"]+)"')


def first_time(bench: Bench) -> None:
    """What waits, published to a folder."""
    config = make_site(bench, FILES)
    prepare(bench, "collect")
    bench.command(bench.size, "--config", config, "publish")


@row("republish a month", Sizes(5_000, 100_000, 1_000_000), beside=("publish, the first time", first_time))
def republish(bench: Bench) -> None:
    """A month that was delivered to a folder, sent there again."""
    config = make_site(bench, FILES)
    prepare(bench, "collect", "publish")
    window = ("--since", "2026-10", "--until", "2026-11", "--yes")
    bench.command(bench.size, "--config", config, "republish", "spool", *window)


def share(bench: Bench, publishers: int) -> None:
    """Publish what waits with several processes, started at the same time. Raises `RuntimeError` if a record came
    twice."""
    with serving() as server:
        config = make_site(bench, FILES)
        url = server.url(server.new_database())
        config.write_text(HEAD.replace("sqlite:///store.db", url) + FILES, encoding="utf-8")
        prepare(bench, "collect")
        command = [*COMMAND, "--config", str(config), "--json", "publish"]
        wall = time.perf_counter()
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=bench.folder) for _ in range(publishers)]
        ended = [_ended(process) for process in processes]
        wall = time.perf_counter() - wall
        status = subprocess.run([*command[:-1], "status"], stdout=subprocess.PIPE, cwd=bench.folder, check=False)
        left = json.loads(status.stdout)["targets"]["spool"]
    if left["waiting"] or left["in_flight"]:
        raise RuntimeError(f"not all was sent: {left}")
    shares = sorted((accepted for accepted, _ in ended), reverse=True)
    cpu_s = sum(used.ru_utime + used.ru_stime for _, used in ended)
    peak_mib = max(used.ru_maxrss for _, used in ended) / 1024
    sent = Counter(
        found for file in (bench.folder / "files").iterdir() for found in _RECORD_ID.findall(file.read_bytes())
    )
    if len(sent) != sum(shares) or max(sent.values()) > 1:
        raise RuntimeError(f"{sum(shares)} accepted, {sent.total()} sent, {len(sent)} different ones")
    note = f"{len(sent)} records, none twice; shares {', '.join(f'{part / len(sent):.0%}' for part in shares)}"
    bench.runs.append(Measured(len(sent), wall, cpu_s, peak_mib, note))


def _ended(process: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    """How many records a publisher sent, and what that cost. What it prints is less than a pipe holds."""
    assert process.stdout is not None
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    with process.stdout as output:
        reported = output.read()
    if process.returncode not in {0, 1, 3}:  # 1: others were still at work when it left
        raise RuntimeError(f"a publisher ended with exit code {process.returncode}")
    return json.loads(reported)["targets"]["spool"]["accepted"], used


def one(bench: Bench) -> None:
    """The same work by a single publisher."""
    share(bench, 1)


SHARED = Sizes(None, 50_000, 200_000)


@row("PostgreSQL, one publisher", Sizes(5_000, 50_000, 200_000))
def alone(bench: Bench) -> None:
    """A store on PostgreSQL, records to a folder; the CPU time of its server is not counted."""
    share(bench, 1)


@row("PostgreSQL, 2 publishers", SHARED, beside=("one publisher", one))
def two(bench: Bench) -> None:
    """Two publishers share a target's backlog."""
    share(bench, 2)


@row("PostgreSQL, 4 publishers", SHARED, beside=("one publisher", one))
def four(bench: Bench) -> None:
    """Four publishers share a target's backlog."""
    share(bench, 4)
