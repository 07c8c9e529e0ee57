"""Every sample of real and public logs gives exactly the runs in its golden file, one on each line.

The golden files contain no names of people. The README in their folder explains the unusual ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from formats.job import Job
from publisher.config.schema import SourceSettings as Settings
from publisher.errors import SourceFormatError
from publisher.sources import make_source
from tests.publisher.sources.log_reading import Seen, read_on

GRID_ENGINE: Final = {"type": "gridengine", "cluster": "c"}
SLURM: Final = {"type": "slurm", "cluster": "c", "timezone": "UTC"}
SAMPLES: Final[dict[str, dict[str, str]]] = {
    "gridengine/accounting": GRID_ENGINE,
    "sge-variants/accounting-by-version": GRID_ENGINE,
    "ocs-jsonl/accounting.jsonl": GRID_ENGINE,
    "ocs-jsonl/SYNTHETIC-9.1-shape.jsonl": GRID_ENGINE,
    "torque/accounting.log": {"type": "torque", "timezone": "Australia/Adelaide"},
    "pbs/pbspro.log": {"type": "pbs", "timezone": "America/Denver"},
    "pbs/xdmod-accounting-logs.log": {"type": "pbs", "timezone": "America/New_York"},
    "lsf/lsb.acct": {"type": "lsf"},
    "htcondor/apel-batch.log": {"type": "htcondor"},
    "htcondor/condor_history-selected-evicted.txt": {"type": "htcondor"},
    "slurm-public/xdmod-sacct.log": SLURM,
    "slurm/sacct-all-D.psv": SLURM,
    "slurm/sacct-all-X-D.psv": SLURM,
    "slurm/sacct-all.psv": SLURM,
    "slurm/sacct-apel-format.psv": SLURM,
    "slurm/sacct-apel-totalcpu.psv": SLURM,
    "slurm/sacct-auditor-like.psv": SLURM,
    "slurm/sacct-bart-format.psv": SLURM,
    "slurm/sacct-epoch.psv": SLURM,
    "slurm/sacct-tz-tokyo.psv": SLURM | {"timezone": "Asia/Tokyo"},
    "slurm/sacct-units.psv": SLURM,
    "slurm/sacct-utf8.psv": SLURM,
    "slurm/sacct-xdmod-format.psv": SLURM,
    "slurm/sacct.json": SLURM,
    "slurm/jobcomp.txt": SLURM,
}
COLUMNS: Final = (
    "local_id", "status", "run", "start", "end", "wall_ms", "cpu_ms", "slots", "cores", "nodes", "gpus",
    "memory_rss_kib", "memory_virtual_kib", "exit_code", "exit_signal",
)  # fmt: skip


def table(seen: Seen) -> str:
    """A run a line, and what is not a record."""
    lines = [" ".join(COLUMNS), *sorted(map(_line, seen.jobs.values()), key=_by_id)]
    reasons = [item.reason for item in seen.unreadable]
    lines += [f"unreadable, {reasons.count(reason)}: {reason}" for reason in dict.fromkeys(reasons)]
    return "\n".join(lines) + "\n"


def _line(job: Job) -> str:
    values: list[Any] = [getattr(job, name) for name in COLUMNS]
    return " ".join("-" if value is None else str(value) for value in values)


def _by_id(line: str) -> tuple[int, str]:
    return int("".join(filter(str.isdigit, line.split(maxsplit=1)[0])) or 0), line


@pytest.mark.parametrize("name", SAMPLES)
def test_each_run(shared: Path, fixtures: Path, name: str, rewrite_golden: bool) -> None:
    golden = fixtures / "golden" / "samples" / f"{name.replace('/', '.')}.txt"
    source = make_source("s", Settings.model_validate(SAMPLES[name] | {"path": shared / "samples" / name}))
    seen = Seen()
    refused = ""
    try:
        read_on(source, seen)
    except SourceFormatError as error:
        refused = f"refused: {error.message.removeprefix(str(shared / 'samples' / name))[2:]}\n"
    found = table(seen) + refused
    if rewrite_golden:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(found, encoding="utf-8")
    assert found == golden.read_text(encoding="utf-8")


def test_no_golden_is_left_over(fixtures: Path) -> None:
    names = {f"{name.replace('/', '.')}.txt" for name in SAMPLES} | {"README.md"}
    assert {file.name for file in (fixtures / "golden" / "samples").iterdir()} == names
