"""A log of our own keeps the promises of `publisher.testing`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from publisher.testing import Facts, SourceSuite
from tests.publisher.torque_cluster import torque_line


class TestTorque(SourceSuite):
    type = "torque"
    settings = {"complete_since": "2026-01-01"}  # noqa: RUF012 - as an author writes it
    end = 1_795_132_800

    def path(self, folder: Path) -> Path:
        return folder / "20261120"

    def write(self, path: Path, runs: Sequence[Facts]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(torque_line(run["number"], run["end"], wall_s=run["wall_s"]) for run in runs)
