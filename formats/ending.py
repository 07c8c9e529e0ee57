"""How a run ended, in the same words for all batch systems: which jobs ran out of time, and which were preempted.

`Job.status` says whether a run failed, `Job.end_reason` why, in the words of its source. Sources without such words
(ARC, DQS, HTCondor) give no ending, nor does an ambiguous one (exit status 271 of PBS is a signal, which the server or
the job itself may have sent).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from formats.job import Status

COMPLETED, CANCELLED = "completed", "cancelled"
TIME, DEADLINE, CPU, MEMORY, OTHER = "time-limit", "deadline", "cpu-limit", "memory-limit", "other-limit"
NODE, START, PREEMPTED, REQUEUED = "node-failure", "start-failure", "preempted", "requeued"
ENDINGS: Final = (
    COMPLETED, CANCELLED, TIME, DEADLINE, CPU, MEMORY, OTHER, NODE, START, PREEMPTED, REQUEUED,
)  # fmt: skip

_SLURM: Final = {
    "TIMEOUT": TIME, "DEADLINE": DEADLINE, "OUT_OF_MEMORY": MEMORY, "NODE_FAIL": NODE, "BOOT_FAIL": START,
    "LAUNCH_FAILED": START, "PREEMPTED": PREEMPTED, "REQUEUED": REQUEUED,
}  # fmt: skip
_PBS: Final = {
    "JOB_EXEC_OVERLIMIT_WT": TIME, "JOB_EXEC_KILL_WALLTIME": TIME, "JOB_EXEC_OVERLIMIT_CPUT": CPU,
    "JOB_EXEC_KILL_CPUT": CPU, "JOB_EXEC_KILL_NCPUS_BURST": CPU, "JOB_EXEC_KILL_NCPUS_SUM": CPU,
    "JOB_EXEC_OVERLIMIT_MEM": MEMORY, "JOB_EXEC_KILL_MEM": MEMORY, "JOB_EXEC_KILL_VMEM": MEMORY,
    "JOB_EXEC_INITABT": NODE, "JOB_EXEC_INITRST": NODE, "JOB_EXEC_INITRMG": NODE, "JOB_EXEC_FAIL1": START,
    "JOB_EXEC_FAIL2": START, "JOB_EXEC_CMDFAIL": START, "JOB_EXEC_STDOUTFAIL": START, "JOB_EXEC_FAILUID": START,
    "JOB_EXEC_FAIL_PASSWORD": START, "JOB_EXEC_RETRY": REQUEUED, "JOB_EXEC_RETRY_CGROUP": REQUEUED,
    "JOB_EXEC_RETRY_PROLOGUE": REQUEUED, "JOB_EXEC_RERUN": REQUEUED, "JOB_EXEC_RERUN_ON_SIS_FAIL": REQUEUED,
    "JOB_EXEC_RERUN_MS_FAIL": REQUEUED, "JOB_EXEC_HOOK_RERUN": REQUEUED, "JOB_EXEC_FAILHOOK_RERUN": REQUEUED,
    "rerun": REQUEUED, "rerun,": REQUEUED,
}  # fmt: skip
_WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "slurm": _SLURM,
    "auditor": _SLURM,
    "torque": _PBS,
    "pbs": _PBS,
    "lsf": {
        "TERM_RUNLIMIT": TIME, "TERM_DEADLINE": DEADLINE, "TERM_CPULIMIT": CPU, "TERM_MEMLIMIT": MEMORY,
        "TERM_SWAP": MEMORY, "TERM_PROCESSLIMIT": OTHER, "TERM_THREADLIMIT": OTHER, "TERM_PREEMPT": PREEMPTED,
        "TERM_REQUEUE_OWNER": REQUEUED, "TERM_REQUEUE_ADMIN": REQUEUED, "TERM_CWD_NOTEXIST": START,
    },
    "gridengine": {
        **dict.fromkeys(map(str, (1, *range(3, 12), 26, 27, 28, 29, 36, 38)), START),
        "22": NODE, "25": REQUEUED, "37": TIME,
    },
}  # fmt: skip
"""The endings by the first words of `Job.end_reason` of each system. Grid Engine has 37 for h_rt only: a job that
exceeds another limit ends with 100, as one that kills itself."""
_LOOKED_AT: Final = 2
"""`-29 JOB_EXEC_KILL_WALLTIME`, `CANCELLED by 1000`; text after these words may be a user's."""


_BY_STATUS: Final = frozenset({COMPLETED, CANCELLED})
"""The statuses that say it themselves: a job that was deleted as its time ran out was deleted."""


def reason_decides(system: str, status: Status) -> bool:
    """Whether the reason of a run may decide its ending; else all runs of such a source with this status have one."""
    return status not in _BY_STATUS and system in _WORDS


@lru_cache(maxsize=4_096)
def ending_of(system: str, status: Status, end_reason: str | None) -> str | None:
    """How a run of such a source, with this status and reason, ended: one of `ENDINGS`; None: it is not known."""
    if not reason_decides(system, status):
        return status if status in _BY_STATUS else None
    words = (end_reason or "").split(" ", _LOOKED_AT)[:_LOOKED_AT]
    endings = (_WORDS[system].get(word.removesuffix("+")) for word in words)
    return next((ending for ending in endings if ending is not None), None)
