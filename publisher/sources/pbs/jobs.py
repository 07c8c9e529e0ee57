"""The run of a record of TORQUE or PBS Pro: from attributes to `Job`.

Pure. Slots are those granted (exec_host); cores are those allocated (PBS: resources_used.ncpus, then exec_vnode), never
those requested. TORQUE gives the numbers of the cores, PBS Pro does not. The wall time is end minus start;
`resources_used.walltime`, which omits suspensions, is kept besides it. Attributes without a field are kept in `extras`
under their own names. (The facts on sources, 4, 5 and "Common rules".)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

import msgspec

from formats.identity import run_record_id
from formats.job import Events, Host, Job
from publisher.sources.fields import LineError, instant, integer
from publisher.sources.pbs import values

_ID: Final = re.compile(r"(\d{1,18})(?:\[(\d{0,18})\]|-(\d{1,18}))?(?:\.(.+))?", re.ASCII)
_STORED: Final = frozenset(
    {
        "user", "group", "account", "project", "jobname", "queue", "ctime", "qtime", "etime", "start", "end", "owner",
        "exec_host", "exec_vnode", "Exit_status", "run_count", "array_indices", "total_execution_slots",
        "unique_node_count", "resources_used.cput", "resources_used.mem", "resources_used.vmem",
        "resources_used.ncpus",
    }
)  # fmt: skip


_CACHED_CHARACTERS: Final = 256


class Dialect(msgspec.Struct, frozen=True):
    """The differences between TORQUE and PBS Pro.

    `job_kinds`: record types of jobs; `other_kinds`: those of licences and reservations. `has_vnodes`: cores are
    granted on virtual nodes, and the numbers after hosts are not core numbers. `has_owner`: records
    name the job's owner.
    """

    system: Literal["torque", "pbs"]
    quoted: bool
    job_kinds: frozenset[str]
    other_kinds: frozenset[str]
    codes: Mapping[int, str]
    has_vnodes: bool
    has_owner: bool


TORQUE: Final = Dialect("torque", False, frozenset("QSEDARCT"), frozenset(), values.TORQUE_CODES, False, True)
PBS: Final = Dialect("pbs", True, frozenset("QSEDARCTsuceMazrPp"), frozenset("LUYBFKk"), values.PBS_CODES, True, False)


class JobId(NamedTuple):
    """The parts of a job id. `array`: the record is that of a whole array, which is not a run."""

    local: str
    server: str
    array_id: str | None = None
    array_task: int | None = None
    array: bool = False


def job_id(text: str) -> JobId:
    """`123.server`, `123`, `123[4].server`, `123-4.server` (old TORQUE), `123[].server`. Raises `LineError`."""
    if (digits := text.partition("."))[0].isdecimal() and digits[0].isascii() and len(digits[0]) <= 18:
        return JobId(digits[0], digits[2])
    found = _ID.fullmatch(text)
    if found is None:
        raise LineError("the job id does not have the form 123.server or 123[4].server")
    number, index, old_index, server = found.groups()
    if index == "":
        return JobId(f"{number}[]", server or "", number, None, array=True)
    task = index or old_index
    return JobId(text[: found.end(3) if old_index else found.end(2) + 1], server or "", number, int(task))


def instants(found: Mapping[str, str]) -> tuple[int, int] | None:
    """Start and end of an E record (or of an R record with usage); None: it never started.

    Raises `LineError` if one is missing or they contradict each other.
    """
    written = found.get("start")
    start = instant(written)
    if start is None:
        if written == "0":
            return None
        raise LineError("no start: the record is cut off, or is not of a job that ran")
    end = instant(found.get("end"))
    if end is None:
        raise LineError("no end: the record is cut off, or is not of a job that ran")
    if end < start:
        raise LineError(f"ends at {end}, before its start at {start}")
    return start, end


def cores_of(found: Mapping[str, str]) -> int | None:
    """Cores of a phase of a run, from its exec_vnode or exec_host."""
    cores = values.vnode_cpus(found.get("exec_vnode", ""))
    if cores is None and (hosts := values.exec_hosts(found.get("exec_host", ""))):
        cores = sum(hosts.values())
    return cores


Extras = dict[str, int | float | str]


def extras_of(found: Mapping[str, str]) -> Extras:
    """The attributes that have no field."""
    return {key: value for key, value in found.items() if key not in _STORED}


@lru_cache(maxsize=4096)
def _hosts(exec_host: str) -> tuple[tuple[Host, ...], int | None, tuple[str, ...]]:
    """Hosts, the sum of their slots (None: the list cannot be read), and the numbers of their cores as in TORQUE.

    Cached, since few different lists occur.
    """
    by_host = values.exec_hosts(exec_host)
    if by_host is None:
        return (), None, ()
    hosts = tuple([Host(name, count) for name, count in by_host.items()])
    return hosts, sum(by_host.values()), values.exec_cores(exec_host)


def run_of(
    dialect: Dialect,
    ident: JobId,
    found: Mapping[str, str],
    *,
    cluster: str | None,
    ending: values.Ending,
    start: int,
    end: int | None,
    run: int,
    queued: int | None,
    events: Events | None,
    extras: Extras,
) -> Job:
    """The run that an S record begins, or that an E record (or an R record with usage) ends. `queued`: its `qtime`;
    `extras`: what has no field; of a run in progress nothing, since that is what it requests."""
    get = found.get
    server = ident.server or cluster or ""
    hosts: tuple[Host, ...] = ()
    core_numbers: tuple[str, ...] = ()
    slots = nodes = None
    if exec_host := get("exec_host"):
        read = _hosts if len(exec_host) <= _CACHED_CHARACTERS else _hosts.__wrapped__
        hosts, slots, core_numbers = read(exec_host)
        if slots is None:
            extras["exec_host"] = exec_host
        else:
            nodes = len(hosts)
    if dialect.has_vnodes:
        core_numbers = ()
        vnodes = get("exec_vnode", "")
        cores = integer(get("resources_used.ncpus"))
        if cores is None or cores < 0:
            cores = values.vnode_cpus(vnodes)
        gpus = values.vnode_gpus(vnodes)
        if gpus is None:
            gpus = integer(get("Resource_List.ngpus"))
    else:
        cores = None
        gpus = values.node_gpus(get("Resource_List.nodes", ""))
        if slots is None:
            slots = integer(get("total_execution_slots"))
    cpu_ms = values.duration_ms(get("resources_used.cput"))
    rss_kib = values.memory_kib(get("resources_used.mem"))
    virtual_kib = values.memory_kib(get("resources_used.vmem"))
    if cpu_ms is None or rss_kib is None or virtual_kib is None:
        for value, key in ((cpu_ms, "cput"), (rss_kib, "mem"), (virtual_kib, "vmem")):
            if value is None and (written := get(f"resources_used.{key}")) is not None:
                extras[f"resources_used.{key}"] = written
    run_count = integer(get("run_count"))
    created, eligible, written = get("ctime"), get("etime"), get("qtime")  # mostly one instant, which is read once
    return Job(
        record_id=run_record_id(dialect.system, server, ident.local, start),
        system=dialect.system,
        status=ending.status,
        local_id=ident.local,
        name=get("jobname") or None,
        run=max(run_count - 1, 0) if run_count is not None else run,
        array_id=ident.array_id,
        array_task=ident.array_task,
        local_user=get("user") or None,
        local_group=get("group") or None,
        project=get("project") or None,
        account=get("account") or None,
        cluster=server or None,
        queue=get("queue") or None,
        client_host=get("owner", "").partition("@")[2] or None,
        hosts=hosts,
        nodes=nodes,
        cores=slots if cores is None else cores,
        slots=slots,
        gpus=gpus,
        submit=queued if created == written else instant(created),
        eligible=queued if eligible == written else instant(eligible),
        lrms_submit=queued,
        start=start,
        end=end,
        events=events,
        wall_ms=None if end is None else (end - start) * 1000,
        cpu_ms=cpu_ms,
        memory_rss_kib=rss_kib,
        memory_virtual_kib=virtual_kib,
        exit_code=ending.exit_code,
        exit_signal=ending.exit_signal,
        end_reason=ending.end_reason,
        extras=extras,
        core_numbers=core_numbers,
    )
