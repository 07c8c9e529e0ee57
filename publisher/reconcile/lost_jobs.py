"""Which of several jobs may be missing at a service that gives only their sums.

If a service has fewer jobs than were sent, the missing ones have the hours that it lacks. What is in no combination
with these hours is there, and need not be sent again. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb
from typing import Final

import msgspec

_MOST_COMBINATIONS: Final = 100_000
"""A tenth of a second for each sum."""
_MOST_JOBS: Final = 1_000
"""They are in memory until all of a month are known."""


class JobHours(msgspec.Struct, frozen=True, gc=False):
    """Wall time, of all processors, and CPU time of a job, in seconds."""

    wall_s: float
    cpu_s: float


def may_be_tested(jobs: int, missing: int) -> bool:
    """Whether there are few enough combinations."""
    return 0 < missing < jobs <= _MOST_JOBS and comb(jobs, missing) <= _MOST_COMBINATIONS


def possibly_missing(jobs: Sequence[JobHours], missing: int, lacks: JobHours, within: JobHours) -> set[int]:
    """The places of the jobs that may be among so many missing ones; all of them if no combination has these hours.

    `lacks`: the hours that the service lacks, right `within` these.
    """
    may_lack: set[int] = set()
    walls, cpus = [job.wall_s for job in jobs], [job.cpu_s for job in jobs]
    least, most = lacks.wall_s - within.wall_s, lacks.wall_s + within.wall_s
    for places in combinations(range(len(jobs)), missing):
        if (
            least <= sum([walls[place] for place in places]) <= most
            and abs(sum([cpus[place] for place in places]) - lacks.cpu_s) <= within.cpu_s
        ):
            may_lack.update(places)
            if len(may_lack) == len(jobs):
                break
    # Hours that no combination explains are wrong in another way too: nothing proves that any of these jobs is there.
    return may_lack or set(range(len(jobs)))
