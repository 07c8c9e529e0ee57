"""One picture of each kind, from the real command, for the documents: `PICTURES=DIR` keeps them."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.publisher.cli.program import BASE, Inside, Program
from tests.publisher.page.conftest import DAY

MONTH = ("--since", "2026-11-01", "--until", "2026-12-01")
WEEK = ("--since", "2026-11-01", "--until", "2026-11-08")
KINDS = {
    "queue-line": ("utilization", *WEEK, "--grid"),
    "cpu-bar": ("utilization", *WEEK, "--measure", "cpu", "--style", "bar", "--bin", "6h", "--grid"),
    "stacked": ("utilization", *MONTH, "--by", "user", "--style", "bar", "--bin", "6h"),
    "stacked-line": ("utilization", *MONTH, "--by", "queue", "--bin", "1d", "--title", "November by queue"),
    "occupation": ("occupation", *MONTH, "--by", "node", "--period", "day"),
    "totals": ("totals", *MONTH, "--by", "user"),
    "load": ("load", *WEEK, "--bin", "10m", "--grid"),
    "many-bins": ("utilization", *MONTH, "--bin", "15m"),
    "few-bins": ("utilization", *WEEK, "--bins", "3", "--style", "bar"),
}


def stat_file() -> str:
    """A week of samples of two queues, busier by day."""
    lines = []
    for place in range(7 * 144):
        share = 0.5 - 0.4 * math.cos(place / 144 * 2 * math.pi)
        for queue, count in (("fast.q", 12), ("slow.q", 8)):
            active = round(share * count)
            lines.append(f"{DAY + 600 * place}:node0:{queue}:{100 * active // count}:{count}:{active}:linux:r")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_picture_of_each_kind(month: Program, pictures: Path, kind: str) -> None:
    file = pictures / f"{kind}.png"
    if kind == "load":
        (month.folder / "stat_file").write_text(stat_file(), encoding="utf-8")
    samples = ("--stat-file", "stat_file") if kind == "load" else ()
    inside = Inside(month.folder, month.config.read_text(encoding="utf-8"))
    inside("report", *KINDS[kind], *samples, "--format", "png", "--output", file).ok()
    assert file.read_bytes().startswith(b"\x89PNG")


def torque_log() -> str:
    """A month of a node of 16 cores, where each job takes the first cores that are free."""
    free = [DAY] * 16
    lines = []
    at = DAY
    for job in range(600):
        at += 600 + job * 7919 % 7200
        cores_held = (1, 1, 2, 4, 8)[job % 5]
        cores = [core for core, until in enumerate(free) if until <= at][:cores_held]
        if len(cores) < cores_held or at > DAY + 20 * 86_400:
            continue
        end = at + (3600, 20_000, 90_000)[job % 3]
        for core in cores:
            free[core] = end
        hosts = "+".join(f"n1/{core}" for core in cores)
        asked = f"user=ada group=physics jobname=j queue=batch ctime={at} qtime={at} etime={at} start={at}"
        lines.append((end, f"E;{job}.srv;{asked} exec_host={hosts} end={end} Exit_status=0"))
    return "".join(f"{datetime.fromtimestamp(end, UTC):%m/%d/%Y %H:%M:%S};{text}\n" for end, text in sorted(lines))


def test_a_picture_of_single_cores(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "accounting").mkdir()
    (tmp_path / "accounting" / "20261101").write_text(torque_log(), encoding="utf-8")
    inside = Inside(tmp_path, BASE + '[sources.torque]\ntype = "torque"\npath = "accounting"\ntimezone = "UTC"\n')
    inside("collect").ok()
    file = pictures / "cores.png"
    asked = ("--since", "2026-11-01", "--until", "2026-11-22", "--by", "core", "--period", "day")
    inside("report", "occupation", *asked, "--format", "png", "--output", file).ok()
    assert file.read_bytes().startswith(b"\x89PNG")
