"""One picture of each kind, from the real command, for the documents: `PICTURES=DIR` keeps them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.publisher.cli.program import Inside, Program
from tests.publisher.page.conftest import DAY

MONTH = ("--from", "2026-11-01", "--until", "2026-12-01")
WEEK = ("--from", "2026-11-01", "--until", "2026-11-08")
KINDS = {
    "queue-line": (*WEEK, "--grid"),
    "cpu-bar": (*WEEK, "--measure", "cpu", "--style", "bar", "--bin", "6h", "--grid"),
    "stacked": (*MONTH, "--by", "owner", "--style", "bar", "--bin", "6h"),
    "stacked-line": (*MONTH, "--by", "queue", "--bin", "1d", "--title", "November by queue"),
    "occupation": (*MONTH, "--view", "occupation", "--by", "node", "--period", "day"),
    "totals": (*MONTH, "--view", "totals", "--by", "owner"),
    "load": (*WEEK, "--view", "load", "--bin", "10m", "--grid"),
    "many-bins": (*MONTH, "--bin", "15m"),
    "few-bins": (*WEEK, "--bins", "3", "--style", "bar"),
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
