"""A run of Slurm with its steps.

Every run is one record: the steps of an allocation, which sacct writes after it, are added to it (memory as the largest
of any step, CPU time as their sum if the allocation has none) and are never records of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.job import Job
from publisher.sources.base import Line, Outcome
from publisher.sources.fields import LineError
from publisher.sources.slurm.table import Layout, Step
from publisher.sources.slurm.values import Clock


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

    def add(self, step: Step) -> None:
        """Add a step."""
        rss, virtual, total, user, system = step
        self.steps += 1
        self.given = False
        self.rss = max(self.rss, rss or 0)
        self.virtual = max(self.virtual, virtual or 0)
        self.total += total or 0
        self.user += user or 0
        self.system += system or 0

    def whole(self) -> Job:
        """The run with its steps. Without steps, a CPU time of zero means that it is unknown."""
        job = self.job
        if not self.steps:
            if job.cpu_ms == 0 and not job.cpu_user_ms and not job.cpu_system_ms:
                return msgspec.structs.replace(job, cpu_ms=None, cpu_user_ms=None, cpu_system_ms=None)
            return job
        cpu_ms, user_ms, system_ms = job.cpu_ms, job.cpu_user_ms, job.cpu_system_ms
        if self.total > (cpu_ms or 0):
            cpu_ms = self.total
            user_ms, system_ms = self.user or user_ms, self.system or system_ms
        return msgspec.structs.replace(
            job,
            memory_rss_kib=max(self.rss, job.memory_rss_kib or 0) or None,
            memory_virtual_kib=max(self.virtual, job.memory_virtual_kib or 0) or None,
            cpu_ms=cpu_ms,
            cpu_user_ms=user_ms,
            cpu_system_ms=system_ms,
        )


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

    def refuse(self) -> None:
        """Note that an allocation was refused: the steps that follow belong to no run."""
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
