"""Whether two runs of different sources are one job, and which of them counts. Pure.

No id is common to all logs. Two runs are one job if all of this holds:

1. Their batch system's ids are the same (`publisher.job_ids`). Of HTCondor-CE and a schedd, each names the other's id.
2. Of two batch systems, or of two computing elements: they started and ended in the same second, and their clusters, if
   both are known, are the same. Of a computing element and a batch system: the element's batch system is of this kind,
   and the run was in the time of the element's job; it ended with its payload, if the element has the end of this, else
   not more than the time of a long stage-out before it.
3. Their local users, if both are known, are the same: nobody can take away another one's job.
4. The run that counts held its cores as long as the other (and as many of them, where the ids are those that the user
   may write), but for a difference in measuring. Else a user could have a long run stand behind a short one: the ids
   of HTCondor-CE are attributes that he may set in his own ads, and those of two clusters may be equal.

Chance cannot meet all of these, and a job that is not recognised is no worse off than before: `check` and `reconcile`
look for it. Docs: reference/counted-once.md.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from formats.job import Job
from publisher.job_ids import id_with_schedd, local_id

LATER_S: Final = 300
"""How far apart the clocks of a computing element and its batch system may be, or the polls of the element."""
# An element ends a job when its output is uploaded: with less, a job with a slow upload would count twice.
LONGEST_STAGE_OUT_S: Final = 2 * 86_400
ROUTED_TO: Final = "RoutedToJobId"
ROUTED_FROM: Final = "RoutedFromJobId"
"""HTCondor-CE's job has the id of its routed copy, and that copy the id of the job. A user may write anything there."""
_HTCONDOR_ID: Final = re.compile(r"\d{1,12}\.\d{1,12}", re.ASCII)
_SHARE_OF_WALL: Final = 10
"""By what part of it the wall time may be shorter in the other log, which leaves out the batch system's own work."""

_SYSTEMS: Final[Mapping[str, frozenset[str]]] = {
    "slurm": frozenset({"slurm"}),
    "condor": frozenset({"htcondor"}),
    "htcondor": frozenset({"htcondor"}),
    "pbs": frozenset({"pbs", "torque"}),
    "pbspro": frozenset({"pbs"}),
    "torque": frozenset({"torque", "pbs"}),
    "sge": frozenset({"gridengine"}),
    "lsf": frozenset({"lsf"}),
}
"""The batch systems behind ARC, by its word for them."""


def ids_of(job: Job) -> tuple[str, ...]:
    """The ids in a batch system by which the other run of a job is looked up."""
    routed = (each for each in (job.extras.get(ROUTED_TO), job.extras.get(ROUTED_FROM)) if isinstance(each, str))
    return (*filter(None, [job.local_id]), *filter(_HTCONDOR_ID.fullmatch, routed))


def rank(job: Job, collectors: Collection[str] = ()) -> int:
    """Which of several runs of a job counts: the lowest. A computing element knows user and VO, a batch system what
    ran, and a collector less of both. ARC is before what an ad says of itself. `collectors`: the systems whose runs are
    what a batch system ran."""
    if job.is_of_grid:
        return 0
    return 1 if ROUTED_TO in job.extras else 3 if job.system in collectors else 2


def is_of_element(job: Job) -> bool:
    """Whether a run is that of a computing element, or says so: a user can write that into an ad of HTCondor."""
    return rank(job) < 2


def may_be_of_one_user(one: Job, other: Job) -> bool:
    """Whether the local users of two runs are not known to be different."""
    return not (one.local_user and other.local_user and one.local_user != other.local_user)


def is_same_job(one: Job, other: Job) -> bool:
    """Whether two runs of different sources are one job; see the module."""
    if not may_be_of_one_user(one, other):
        return False
    for element, batch in ((one, other), (other, one)):
        if _is_routed(element, batch):
            cores = {element.cores, batch.cores} - {None}
            held_alike = _held_as_long(element, batch) and _held_as_long(batch, element) and len(cores) < 2
            return held_alike and _ran_for(element, batch)
        if element.is_of_grid and not batch.is_of_grid:
            is_its_system = batch.system in _SYSTEMS.get(element.lrms or "", {batch.system})
            same_id = _have_one_id(element, batch) and is_its_system
            return same_id and _held_as_long(element, batch) and _ran_for(element, batch)
    if not _have_one_id(one, other):
        return False
    if one.cluster and other.cluster and one.cluster.lower() != other.cluster.lower():
        return False
    starts = {one.start, other.start} - {None}
    return one.end is not None and one.end == other.end and len(starts) < 2


def _is_routed(element: Job, batch: Job) -> bool:
    """Whether the ads of HTCondor-CE and of a schedd name each other."""
    named = (element.extras.get(ROUTED_TO), batch.extras.get(ROUTED_FROM))
    return None not in named and named == (batch.local_id, element.local_id)


def _have_one_id(one: Job, other: Job) -> bool:
    first, second = (local_id(id_with_schedd(each) or "") for each in (one, other))
    return (
        bool(one.local_id and other.local_id) and first.may_be(second) and (first.part or "0") == (second.part or "0")
    )


def _held_as_long(counted: Job, other: Job) -> bool:
    """Whether a run held its cores about as long as another one, so that it can count instead."""
    if other.wall_ms is None:
        return True
    missing_ms = other.wall_ms - (counted.wall_ms or 0)
    # Both limits: a part alone would be seconds for a short job, and the constant alone too little for one of weeks.
    return missing_ms <= max(LATER_S * 1000, other.wall_ms // _SHARE_OF_WALL)


def _ran_for(element: Job, batch: Job) -> bool:
    """Whether a run of a batch system was in the time of a computing element's job."""
    begin = element.submit if element.submit is not None else element.start
    if begin is None or element.end is None or batch.start is None or batch.end is None:
        return False
    if element.execution_end is not None and abs(batch.end - element.execution_end) > LATER_S:
        return False
    return begin - LATER_S <= batch.start and -LATER_S <= element.end - batch.end <= LONGEST_STAGE_OUT_S
