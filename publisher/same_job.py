"""Whether two runs of different sources are one job, and which of them counts. Pure.

No id is common to all logs. Two runs are one job if all of this holds:

1. Their batch system's ids are the same (`publisher.job_ids`). Of HTCondor-CE and a schedd, each names the other's id.
2. Of two batch systems, or of two computing elements: they started and ended in the same second, and their clusters, if
   both are known, are the same. Of a computing element and a batch system: the element's batch system is of this kind,
   and the run was in the time of the element's job; it ended with its payload, if the element has the end of this, else
   not more than the time of a long stage-out before it.
3. Their local users, if both are known, are the same.

Chance cannot meet all of these, and a job that is not recognised is no worse off than before: `check` and `reconcile`
look for it. Docs: reference/counted-once.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from formats.job import Job
from publisher.job_ids import id_with_schedd, local_id

LATER_S: Final = 300
"""How far apart the clocks of a computing element and its batch system may be, or the polls of the element."""
LONGEST_STAGE_OUT_S: Final = 2 * 86_400
ROUTED_TO: Final = "RoutedToJobId"
ROUTED_FROM: Final = "RoutedFromJobId"
"""HTCondor-CE's job has the id of its routed copy, and that copy the id of the job."""

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
_COPIES: Final = frozenset({"auditor"})
"""Accountings of what another batch system ran."""


def ids_of(job: Job) -> tuple[str, ...]:
    """The ids in a batch system by which the other run of a job is looked up."""
    routed = (job.extras.get(ROUTED_TO), job.extras.get(ROUTED_FROM))
    return tuple(each for each in (job.local_id, *routed) if isinstance(each, str) and each)


def rank(job: Job) -> int:
    """Which of several runs of a job counts: the lowest. A computing element knows user and VO, a batch system what
    ran, and a collector less of both."""
    return 0 if _is_of_element(job) else 2 if job.system in _COPIES else 1


def is_same_job(one: Job, other: Job) -> bool:
    """Whether two runs of different sources are one job; see the module."""
    if one.local_user and other.local_user and one.local_user != other.local_user:
        return False
    if _is_of_element(one) != _is_of_element(other):
        element, batch = (one, other) if _is_of_element(one) else (other, one)
        return _ran_for(element, batch)
    if not _have_one_id(one, other):
        return False
    if one.cluster and other.cluster and one.cluster.lower() != other.cluster.lower():
        return False
    starts = {one.start, other.start} - {None}
    return one.end is not None and one.end == other.end and len(starts) < 2


def _is_of_element(job: Job) -> bool:
    return job.is_of_grid or ROUTED_TO in job.extras


def _have_one_id(one: Job, other: Job) -> bool:
    first, second = (local_id(id_with_schedd(each) or "") for each in (one, other))
    return (
        bool(one.local_id and other.local_id) and first.may_be(second) and (first.part or "0") == (second.part or "0")
    )


def _ran_for(element: Job, batch: Job) -> bool:
    """Whether a run of a batch system is that of a computing element's job."""
    if ROUTED_TO in element.extras:
        ids_agree = (element.extras[ROUTED_TO], batch.extras.get(ROUTED_FROM)) == (batch.local_id, element.local_id)
    else:
        ids_agree = _have_one_id(element, batch) and batch.system in _SYSTEMS.get(element.lrms or "", {batch.system})
    begin = element.submit if element.submit is not None else element.start
    if not ids_agree or begin is None or element.end is None or batch.start is None or batch.end is None:
        return False
    if element.execution_end is not None and abs(batch.end - element.execution_end) > LATER_S:
        return False
    return begin - LATER_S <= batch.start and -LATER_S <= element.end - batch.end <= LONGEST_STAGE_OUT_S
