"""Slurm 25.05.0 to 25.05.6 and 25.11.0 to 25.11.2 record no CPU time of steps of srun: the sampled one counts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from formats.job import Job
from publisher.encoded_run import UsageNote, encode_run, usage_note
from publisher.sources.slurm import sacct
from publisher.sources.slurm.values import duration_ms
from tests.publisher.sources.log_reading import Seen, read_on
from tests.publisher.sources.slurm.test_source import source

COLUMNS = (
    "JobID", "JobIDRaw", "JobName", "User", "Group", "Account", "Cluster", "Partition", "Submit", "Start", "End",
    "ElapsedRaw", "TotalCPU", "UserCPU", "SystemCPU", "NCPUS", "NNodes", "AllocTRES", "MaxRSS", "TRESUsageInTot",
    "State",
)  # fmt: skip
BEGIN, END = "2026-11-20T10:00:00", "2026-11-20T12:00:00"
CORES = 4
WALL_S = 7_200


def row(step: str = "", total: str = "00:00:00", usage: str = "", rss: str = "2000000K", wall_s: int = WALL_S) -> str:
    number = f"200.{step}" if step else "200"
    values = {
        "JobID": number, "JobIDRaw": number, "JobName": step or "app", "Cluster": "c1", "Start": BEGIN, "End": END,
        "Submit": BEGIN, "ElapsedRaw": str(wall_s), "TotalCPU": total, "UserCPU": total, "SystemCPU": "00:00:00",
        "NCPUS": str(CORES), "NNodes": "1", "AllocTRES": "cpu=4,mem=8G,node=1", "MaxRSS": rss,
        "TRESUsageInTot": usage, "State": "COMPLETED",
    }  # fmt: skip
    return "|".join(values.get(name, "") for name in COLUMNS)


def job_of(folder: Path, *rows: str, without: str = "") -> Job:
    """The run of a table, without a column."""
    lines = ["|".join(COLUMNS), *rows]
    if without:
        at = COLUMNS.index(without)
        lines = ["|".join(word for place, word in enumerate(line.split("|")) if place != at) for line in lines]
    file = folder / "sacct.psv"
    file.write_text("\n".join(lines) + "\n")
    seen = read_on(source(file, timezone="UTC"), Seen())
    assert seen.unreadable == []
    (job,) = seen.jobs.values()
    return job


BATCH = row("batch", "00:01.500", "cpu=00:00:01,energy=0,mem=1000K", "1000K")
SRUN = row("0", "00:00:00", "cpu=07:30:00,energy=0,fs/disk=2012,mem=2000000K,pages=0,vmem=2000000K")


def test_the_sampled_time_of_a_step_counts(tmp_path: Path) -> None:
    job = job_of(tmp_path, row(total="00:01.500"), BATCH, SRUN)
    assert (job.cpu_ms, job.cpu_user_ms, job.cpu_system_ms) == (1_500 + 27_000_000, None, None)
    assert usage_note(job) is encode_run(job).note is UsageNote.CPU_SAMPLED
    assert {name: job.extras[f"{name}_s"] for name in ("TotalCPU", "UserCPU", "SystemCPU")} == {
        "TotalCPU": 1.5, "UserCPU": 1.5, "SystemCPU": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("total", "sampled"),
    [
        ("07:29:59", "07:30:00"), ("06:45:00", "07:30:00"), ("07:30:00", "00:00:00"), ("07:30:00", "06:00:00"),
        ("00:00:00", "00:00:10"), ("00:01:00", "00:01:09"), ("07:30:00", ""),
    ],
)  # fmt: skip
def test_a_small_difference_is_that_of_samples(tmp_path: Path, total: str, sampled: str) -> None:
    usage = f"cpu={sampled},energy=0,mem=1000K" if sampled else "energy=0"
    job = job_of(tmp_path, row(total=total), row("0", total, usage))
    assert job.cpu_ms == job.cpu_user_ms == duration_ms(total)
    assert usage_note(job) is None


def test_it_is_at_most_wall_time_times_cores(tmp_path: Path) -> None:
    job = job_of(tmp_path, row(total="00:00:00"), row("0", usage="cpu=99-00:00:00"))
    assert job.cpu_ms == WALL_S * CORES * 1000
    job = job_of(tmp_path, row(total="00:00:00"), row("0", usage="cpu=01:00:00", wall_s=600))
    assert job.cpu_ms == 600 * CORES * 1000


def test_what_the_job_has_already_is_not_replaced(tmp_path: Path) -> None:
    job = job_of(tmp_path, row(total="08:00:00"), row("0", usage="cpu=07:30:00"))
    assert (job.cpu_ms, usage_note(job)) == (8 * 3_600_000, None)
    assert job.cpu_user_ms is not None


@pytest.mark.parametrize(
    ("step", "rss", "wall_s", "total", "doubtful"),
    [
        ("0", "1000K", 61, "00:00:00", True),
        ("0", "1000K", 60, "00:00:00", False),
        ("0", "", 7_200, "00:00:00", False),
        ("0", "1000K", 7_200, "00:00.002", False),
        ("extern", "1000K", 7_200, "00:00:00", False),
        ("batch", "1000K", 7_200, "00:00:00", False),
    ],
)
def test_without_the_column_a_step_without_cpu_time_is_doubtful(
    tmp_path: Path, step: str, rss: str, wall_s: int, total: str, *, doubtful: bool
) -> None:
    rows = (row(total="00:01.500"), BATCH, row(step, total, rss=rss, wall_s=wall_s))
    job = job_of(tmp_path, *rows, without="TRESUsageInTot")
    assert usage_note(job) is (UsageNote.CPU_DOUBTFUL if doubtful else None)
    assert job.cpu_ms == (1_502 if total == "00:00.002" else 1_500)


def document(usage_ms: int | None, *, seconds: int = 0) -> dict[str, Any]:
    """A job of `sacct --json` with one step of srun."""
    time = {"start": 1_795_168_800, "end": 1_795_176_000, "elapsed": WALL_S, "submission": 1_795_168_800}
    used = {name: {"seconds": seconds, "microseconds": 500_000} for name in ("total", "user", "system")}
    allocated = [{"type": "cpu", "name": "", "id": 1, "count": CORES}]
    sampled = [] if usage_ms is None else [{"type": "cpu", "name": "", "id": 1, "count": usage_ms}]
    zero = {name: {"seconds": 0, "microseconds": 0} for name in used}
    step = {
        "step": {"id": "200.0", "name": "app"},
        "time": {**time, **zero},
        "tres": {
            "requested": {"max": [{"type": "mem", "name": "", "count": 1 << 30}], "total": sampled},
            "allocated": allocated,
        },
    }
    return {
        "jobs": [
            {
                "job_id": 200, "cluster": "c1", "name": "a", "state": {"current": ["COMPLETED"]},
                "time": {**time, **used}, "tres": {"allocated": allocated}, "steps": [step],
            }
        ]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("usage_ms", "cpu_ms", "note"),
    [(27_000_000, 27_000_000, UsageNote.CPU_SAMPLED), (9_000, 1_500, None), (None, 1_500, UsageNote.CPU_DOUBTFUL)],
)
def test_a_document(tmp_path: Path, usage_ms: int | None, cpu_ms: int, note: UsageNote | None) -> None:
    file = tmp_path / "sacct.json"
    file.write_text(json.dumps(document(usage_ms, seconds=1)))
    (job,) = read_on(source(file), Seen()).jobs.values()
    assert (job.cpu_ms, usage_note(job)) == (cpu_ms, note)
    assert (job.cpu_user_ms is None) is (note is UsageNote.CPU_SAMPLED)


def test_sacct_is_asked_for_it() -> None:
    assert "TRESUsageInTot" in sacct.NUMBERS
