"""A run of Slurm with its steps.

Every run is one record: the steps of an allocation, which sacct writes after it, are added to it (memory as the largest
of any step, CPU time as their sum if the allocation has less) and are never records of their own.

Slurm 25.05.0 to 25.05.6 and 25.11.0 to 25.11.2 do not add up the CPU time of steps of srun, and their records stay
wrong: what was sampled while the step ran (`TRESUsageInTot`) is taken where it is clearly larger. (Slurm's commit
a8f6d010aa.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.encoded_run import NOTE, UsageNote
from publisher.sources.base import Line, Outcome
from publisher.sources.fields import LineError
from publisher.sources.slurm.table import Layout, Step
from publisher.sources.slurm.values import Clock

_LARGER_MS: Final = 10_000
_LARGER_SHARE: Final = 10
"""Sampled CPU time counts if it is larger by more than 10 s and a tenth: the samples of a right sum differ by less."""
_SHORT_MS: Final = 60_000
"""A step of a minute or less may have used no CPU time that Slurm measures."""


def sampled_if_larger(step: Step) -> int | None:
    """The sampled CPU time (ms) of a step, at most wall time on all cores, if Slurm's sum is clearly too small."""
    if step.sampled_cpu_ms is None:
        return None
    most = step.wall_ms * step.cores if step.wall_ms is not None and step.cores else step.sampled_cpu_ms
    sampled, total = min(step.sampled_cpu_ms, most), step.cpu_ms or 0
    return sampled if sampled - total > max(_LARGER_MS, sampled // _LARGER_SHARE) else None


class Run(msgspec.Struct):
    """An allocation that waits for its steps, and the sums of the steps so far."""

    job: Job
    key: str
    steps: int = 0
    rss: int = 0
    virtual: int = 0
    total: int = 0
    user: int = 0
    system: int = 0
    given: bool = False
    closed: bool = False
    """A later run was refused: further steps do not belong to this one."""
    sampled: bool = False
    """The CPU time of a step is what was sampled."""
    srun_cpu: int = 0
    unsampled: bool = False
    """A long step of srun has memory, no CPU time, and no sampled one."""

    def add(self, step: Step) -> None:
        """Add a step."""
        rss, virtual, total, user, system, is_srun, sampled, wall_ms, _ = step
        self.steps += 1
        self.given = False
        self.rss = max(self.rss, rss or 0)
        self.virtual = max(self.virtual, virtual or 0)
        cpu_ms = total or 0
        if sampled is not None and (larger := sampled_if_larger(step)) is not None:
            cpu_ms = larger
            self.sampled = True
        self.total += cpu_ms
        self.user += user or 0
        self.system += system or 0
        if is_srun:
            self.srun_cpu += cpu_ms
            if total == 0 and sampled is None and rss and (wall_ms or 0) > _SHORT_MS:
                self.unsampled = True

    def whole(self) -> Job:
        """The run with its steps. Without steps, a CPU time of zero means that it is unknown."""
        job = self.job
        # Slurm adds up the CPU time of steps: a zero without any would be sent as a job that did nothing.
        if not self.steps:
            if job.cpu_ms == 0 and not job.cpu_user_ms and not job.cpu_system_ms:
                return msgspec.structs.replace(job, cpu_ms=None, cpu_user_ms=None, cpu_system_ms=None)
            return job
        cpu_ms, user_ms, system_ms = job.cpu_ms, job.cpu_user_ms, job.cpu_system_ms
        extras = job.extras
        if self.total > (cpu_ms or 0):
            cpu_ms = self.total
            if self.sampled:  # nothing was sampled of user and system time
                user_ms = system_ms = None
                extras = {**extras, NOTE: UsageNote.CPU_SAMPLED.word, **_as_read(job)}
            else:
                user_ms, system_ms = self.user or user_ms, self.system or system_ms
        if self.unsampled and not self.srun_cpu:
            extras = {**extras, NOTE: UsageNote.CPU_DOUBTFUL.word}
        return msgspec.structs.replace(
            job,
            memory_rss_kib=max(self.rss, job.memory_rss_kib or 0) or None,
            memory_virtual_kib=max(self.virtual, job.memory_virtual_kib or 0) or None,
            cpu_ms=cpu_ms,
            cpu_user_ms=user_ms,
            cpu_system_ms=system_ms,
            extras=extras,
        )


def _as_read(job: Job) -> dict[str, Any]:
    """The CPU times of an allocation that were replaced, by their columns, in seconds."""
    read = (("TotalCPU", job.cpu_ms), ("UserCPU", job.cpu_user_ms), ("SystemCPU", job.cpu_system_ms))
    return {f"{name}_s": value / 1000 for name, value in read if value is not None}


class ParserState(msgspec.Struct):
    """The state of a parser between two pages."""

    headers: dict[str, str] = {}
    run: Run | None = None
    begun: list[str] = []
    is_reported: bool = False
    completion: list[str] = []
    later: dict[str, str] = {}


class AllocationSteps:
    """Adds the steps to the allocation before them. `cluster` is used if the column is missing."""

    def __init__(self, clock: Clock, cluster: str) -> None:
        self.run: Run | None = None
        self._clock = clock
        self._cluster = cluster

    def add(self, layout: Layout, fields: list[str]) -> Outcome | list[Outcome]:
        """Take a line of a table, one field for each column. Raises `LineError`."""
        key = layout.job_id(fields)
        if "." in key:
            return self._step(layout, fields, key)
        fields.append("")
        try:
            job = layout.job(fields, self._clock, self._cluster)
        except LineError:
            self.refuse()
            raise
        before = self.waiting()
        self.run = None if job is None else Run(job, key)
        if job is None:
            return [*before, Line.SKIPPED]
        return before[0] if before else Line.MORE

    def alone(self, layout: Layout, fields: Sequence[str]) -> Job | None:
        """The run of an allocation's line without its steps; None: it never started. Raises `LineError`."""
        job = layout.job([*fields, ""], self._clock, self._cluster)
        return None if job is None else Run(job, "").whole()

    def refuse(self) -> None:
        """Note that an allocation was refused: the steps that follow belong to no job."""
        if self.run is not None:
            self.run.closed = True

    def waiting(self) -> list[Job]:
        """The allocation that waits for steps, unless it was given already."""
        run = self.run
        if run is None or run.given:
            return []
        run.given = True
        return [run.whole()]

    def _step(self, layout: Layout, fields: Sequence[str], key: str) -> Outcome:
        """Take a step; one of an allocation that never ran or was refused counts nowhere."""
        run = self.run
        if run is not None and not run.closed and key.partition(".")[0] == run.key:
            start = layout.start(fields, self._clock)
            # A later step belongs to a later run, which was refused.
            if start is None or run.job.end is None or start <= run.job.end:
                run.add(layout.step(fields))
                return Line.MERGED
        return Line.SKIPPED
