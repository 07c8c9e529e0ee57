"""The run of a Grid Engine accounting record in either of the two formats.

Pure. Whether a job ran is decided by its times only, since every failed code occurs with and without usage; how it
ended, by the failed code, the exit status, and, if the record has it, who deleted it. (The facts on sources, 1 and 2.)
A record without any usage is that of a run that was deleted by force; its usage is lost
(`fixtures/gridengine/real/forced`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Final

import msgspec

from formats.identity import run_record_id
from formats.job import Host, Job, Status
from publisher.sources.limits import require_short

Number = int | float
Extras = dict[str, int | float | str]

RUSAGE: Final = (
    "ru_wallclock", "ru_utime", "ru_stime", "ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss", "ru_minflt",
    "ru_majflt", "ru_nswap", "ru_inblock", "ru_oublock", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw",
    "ru_nivcsw",
)  # fmt: skip
"""The fields of getrusage(2), in the order of the colon format."""

_LARGEST_OF_TASKS: Final = frozenset({"ru_maxrss", "maxrss", "maxpss", "maxvmem"})
"""Measures of which a parallel job has the largest of its tasks."""
_OF_MASTER: Final = frozenset({"ru_wallclock", "wallclock", "priority", "failed", "arid", "ar_submission_time"})
"""Numbers of a record to which its slaves add nothing."""

LARGEST: Final = 4_000_000_000_000_000
"""No figure of a real record is larger: microseconds of this century and bytes of petabytes are smaller."""

Figure = Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)] | Annotated[float, msgspec.Meta(ge=-LARGEST, le=LARGEST)]
"""A number that can be stored as it is."""

_FAILED: Final = {
    1: "before job", 3: "before writing config", 4: "before writing pid", 5: "reading config", 6: "setting processors",
    7: "before prolog", 8: "in prolog", 9: "before pestart", 10: "in pestart", 11: "before job", 12: "before pestop",
    13: "in pestop", 14: "before epilog", 15: "in epilog", 16: "releasing processor set", 17: "through signal",
    18: "shepherd returned error", 19: "before writing exit_status", 20: "unexpected error file", 21: "unknown job",
    22: "lost while running", 23: "setting up PTF", 24: "migrating", 25: "rescheduling", 26: "opening output file",
    27: "searching shell", 28: "changing into working directory", 29: "AFS setup", 30: "application error",
    36: "checking configured daemons", 37: "enforced h_rt", 38: "adding supplementary group", 100: "after job",
}  # fmt: skip
_ENDED_BY_JOB: Final = frozenset({12, 13, 14, 15, 30, 37, 100})
"""Failed codes of runs whose job itself had ended, died, or exceeded a limit; any other is caused by the system."""

_OVER_RUN_TIME: Final = 37

_SHORTEST_LOST_MS: Final = 1_000
"""A shorter run may have no visible usage: `ru_wallclock` is in whole seconds."""

NONE: Final = frozenset({"", "NONE"})


class PeTask(msgspec.Struct, frozen=True, array_like=True):
    """A slave record of a tightly integrated parallel job: one process started by `qrsh -inherit`."""

    task: str
    host: str
    start: int
    end: int
    exit_status: int
    failed: int
    cpu_ms: int | None
    user_ms: int | None
    system_ms: int | None
    mem_gb_s: float
    io_gb: float
    virtual_kib: int
    rss_kib: int
    measures: dict[str, Figure] = {}
    """Further numbers of the record that count for the job."""
    is_doubtful: bool = False
    """Whether a user may have written it."""


class Slave(msgspec.Struct, frozen=True):
    """A part of the parallel job with that local id; its master's record completes it."""

    job: str
    task: PeTask


def measures_of(extras: Mapping[str, object]) -> dict[str, Number]:
    """The numbers of a slave's record that count for its job, without zeros."""
    return {
        name: value
        for name, value in extras.items()
        if isinstance(value, int | float) and value and name not in _OF_MASTER
    }


def with_measures(extras: Extras, slaves: Iterable[Mapping[str, Number]]) -> Extras:
    """The extras of a master with the measures of its slaves: sums, and of memory the largest.

    Grid Engine writes the same with `accounting_summary`, also for custom usage, except for memory: it sums peaks that
    may have been at different times. A text of the master is kept.
    """
    total = dict(extras)
    for measures in slaves:
        for name, value in measures.items():
            own = total.get(name, 0)
            if isinstance(own, int | float):
                total[name] = storable(max(own, value) if name in _LARGEST_OF_TASKS else own + value)
    return total


class Cluster:
    """The cluster or cell of the records. `prefix`: the beginning of all their record ids (`run_record_id`)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.prefix = run_record_id("gridengine", name, "0", 0).removesuffix("0/0")


def outcome(
    cluster: Cluster, number: int, task: int, submit: int, start: int, end: int, wall_ms: int, cpu_ms: int | None,
    failed: int, exit_status: int, slots: int, host: str, pe_task: str, maxvmem: Number, maxrss: Number, extras: Extras,
    owner: str, group: str, name: str, account: str, queue: str, project: str | None, department: str | None,
    granted_pe: str | None, client_host: str | None = None, deleted_by: str | None = None,
) -> Job | Slave | None:  # fmt: skip
    """The outcome of a record: a run, from a master or serial record; a part of one; None: nothing ran.

    `pe_task` is empty for a master or serial record. `maxvmem` and `maxrss` are bytes, zero if the record has none;
    then `ru_maxrss` of the extras (KiB) is used. The submission time of a job that did not run may be missing.
    `cpu_ms` None: unknown.
    """
    local_id = f"{number}.{task}" if task else str(number)
    user_ms, system_ms = milliseconds(extras.get("ru_utime")), milliseconds(extras.get("ru_stime"))
    rss = kib(maxrss) if maxrss else _whole(extras.get("ru_maxrss"))
    virtual = kib(maxvmem)
    if pe_task:
        mem, transferred = _float(extras.get("mem")), _float(extras.get("io"))
        require_short("pe_taskid", pe_task)
        require_short("hostname", host)
        used = (cpu_ms, user_ms, system_ms, mem, transferred, virtual, rss)
        task_extras = measures_of({name: value for name, value in extras.items() if name not in {"mem", "io"}})
        return Slave(local_id, PeTask(pe_task, host, start, end, exit_status, failed, *used, task_extras))
    if start <= 0 or end < start:
        return None
    parallel = granted_pe is not None
    good = failed == 0 == exit_status and deleted_by is None
    job = Job(
        record_id=f"{cluster.prefix}{local_id}/{start}",
        system="gridengine",
        status="completed" if good else status_of(failed, exit_status, deleted_by),
        local_id=local_id,
        name=name or None,
        array_id=str(number) if task else None,
        array_task=task or None,
        local_user=owner or None,
        local_group=group or None,
        project=project,
        account=account or None,
        department=department,
        cluster=cluster.name,
        queue=queue or None,
        parallel_environment=granted_pe,
        client_host=client_host,
        hosts=(Host(host, None if parallel else slots or None),),
        nodes=None if parallel else 1,
        slots=slots or None,
        submit=submit or None,
        start=start,
        end=end,
        wall_ms=wall_ms,
        cpu_ms=cpu_ms,
        cpu_user_ms=user_ms,
        cpu_system_ms=system_ms,
        memory_rss_kib=rss or None,
        memory_virtual_kib=virtual or None,
        exit_code=exit_status,
        exit_signal=exit_status - 128 if 128 < exit_status < 256 else None,
        end_reason=failed_text(failed) if failed else None,
        extras=extras,
    )
    if failed or exit_status or cpu_ms or wall_ms < _SHORTEST_LOST_MS or maxvmem or not _are_zero(extras):
        return job
    return _lost(job)


def _are_zero(extras: Mapping[str, object]) -> bool:
    """Whether the record has the figures of getrusage(2), and all are zero: no real process has used nothing."""
    return all(extras.get(name) == 0 for name in RUSAGE)


def _lost(job: Job) -> Job:
    """A run that was deleted by force: the qmaster removed it without a report of its host, and wrote a normal end.

    Its usage is unknown; it had its slots from its start until it was deleted.
    """
    return msgspec.structs.replace(
        job,
        status="lost",
        cpu_ms=None,
        cpu_user_ms=None,
        cpu_system_ms=None,
        exit_code=None,
        end_reason="deleted by force, without usage",
        extras={**job.extras, "estimated": 1},
    )


def status_of(failed: int, exit_status: int, deleted_by: str | None) -> Status:
    """How a run ended: see the table in the documentation of the source."""
    if deleted_by is not None and not deleted_by.startswith("execd@"):
        return "cancelled"
    if deleted_by is not None and failed != _OVER_RUN_TIME:
        return "aborted"
    if failed == 0:
        return "completed" if exit_status == 0 else "failed"
    return "failed" if failed in _ENDED_BY_JOB else "aborted"


def failed_text(failed: int) -> str:
    """Grid Engine's failed code with its meaning, as `qacct` shows it."""
    return f"{failed} {_FAILED[failed]}" if failed in _FAILED else str(failed)


def milliseconds(seconds: object) -> int | None:
    """Whole milliseconds of a value in seconds; None: there is none, or it is not a sensible number."""
    if (type(seconds) is float or type(seconds) is int) and 0 <= seconds < LARGEST:
        return int(seconds * 1000 + 0.5)
    return None


def kib(size: Number) -> int:
    """KiB of bytes, rounded up; zero for a number that is not sensible (a counter that wrapped)."""
    return int(size + 1023) >> 10 if 0 < size < LARGEST else 0


def seconds_and_unit(stamp: int) -> tuple[int, int]:
    """Epoch seconds and the divisor of a stamp in seconds, milliseconds (later Univa) or microseconds."""
    if stamp < 100_000_000_000:
        return stamp, 1
    unit = 1_000 if stamp < 100_000_000_000_000 else 1_000_000
    return stamp // unit, unit


def storable(value: Number) -> int | float | str:
    """The value, as text if it is too large for a number."""
    return value if -LARGEST < value < LARGEST else str(value)


def none_if_none(text: str) -> str | None:
    """The text; None for NONE, which Grid Engine writes for a missing value."""
    return None if text in NONE else text


def _whole(value: object) -> int:
    return int(value) if (type(value) is float or type(value) is int) and 0 < value < LARGEST else 0


def _float(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
