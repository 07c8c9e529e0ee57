"""Sentences about jobs whose CPU time is not as the batch system has it (`publisher.encoded_run.UsageNote`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from publisher.text import counted

if TYPE_CHECKING:
    from publisher.collect.collect import Collected
    from publisher.status.status import SourceStatus


def usage_notes(found: Collected | SourceStatus) -> Iterator[str]:
    """How many jobs of a source have each note, and what to do."""
    if found.cpu_sampled:
        yield (
            f"{counted(found.cpu_sampled, 'job')}: Slurm's TotalCPU is too small, so the CPU time is TRESUsageInTot's. "
            "If such jobs were sent before, `usage-publisher republish` sends their months again"
        )
    if found.cpu_doubtful:
        yield (
            f"{counted(found.cpu_doubtful, 'job')}: steps of srun have no CPU time, as Slurm 25.05 and 25.11 record "
            "them, and the source has no TRESUsageInTot: the CPU time is probably too small. Read them with this column"
        )
