"""What the APEL client's parsers read of a log, and what our sources read: the same jobs, but for what pages name."""

from __future__ import annotations

from typing import Any, Final

import pytest

from formats.job import Job
from publisher.config.schema import SourceSettings
from publisher.sources import make_source
from tests.conftest import ROOT
from tests.real.programs import RealProgram

LOGS: Final = ROOT / "fixtures" / "moving" / "apel-client"
PARSERS: Final = {"torque": "PBSParser", "gridengine": "SGEParser", "lsf": "LSFParser"}
"""Those that read what we read; Slurm and HTCondor write a table of their own for the client."""
FIELDS: Final[dict[str, Any]] = {
    "LocalUserID": lambda job: job.local_user,
    "StartTime": lambda job: job.start,
    "StopTime": lambda job: job.end,
    "CpuDuration": lambda job: (job.cpu_ms + 500) // 1000,
    "WallDuration": lambda job: job.extras.get("resources_used.walltime") or job.wall_ms // 1000,
    "Processors": lambda job: job.cores if job.cores is not None else job.slots,
    "NodeCount": lambda job: job.nodes,
}
COUNTED_OTHERWISE: Final = {"lsf": {"Processors", "NodeCount"}, "gridengine": {"NodeCount"}}
"""Of LSF the client counts an entry of several cores as one; of Grid Engine it counts no nodes."""


@pytest.fixture(scope="module")
def apel() -> RealProgram:
    return RealProgram("apel")


@pytest.mark.parametrize("system", sorted(PARSERS))
def test_jobs_of_a_log(apel: RealProgram, system: str) -> None:
    (log,) = (LOGS / system / "batch").iterdir()
    table = {"type": system, "path": str(log), "timezone": "UTC", "complete_since": "2026-10-01"}
    source = make_source(system, SourceSettings.model_validate(table))
    jobs = [job for page in source.pages({}) for job in page.jobs if job.finished and job.start is not None]
    lines = log.read_text(encoding="utf-8").splitlines()
    real = [each for each in apel.read("apel_parser", {"parser": PARSERS[system], "lines": lines}) if each is not None]
    compared = 0
    real.sort(key=lambda each: (each["StopTime"], each["StartTime"]))
    for job, theirs in zip(sorted(jobs, key=_key), real, strict=True):
        for name, ours in FIELDS.items():
            if name in COUNTED_OTHERWISE.get(system, ()):
                continue
            assert _seconds(ours(job)) == theirs[name], (job.local_id, name)
            compared += 1
    apel.compared(f"fields of jobs of {system}", compared)


def _key(job: Job) -> tuple[int, int]:
    return job.end or 0, job.start or 0


def _seconds(value: Any) -> Any:
    """A duration that is kept as it was written, in seconds."""
    if not isinstance(value, str) or ":" not in value:
        return value
    hours, minutes, seconds = map(int, value.split(":"))
    return hours * 3600 + minutes * 60 + seconds
