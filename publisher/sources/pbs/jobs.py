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


class JobId(msgspec.Struct, frozen=True, gc=False):
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
    match = _ID.fullmatch(text)
    if match is None:
        raise LineError("the job id does not have the form 123.server or 123[4].server")
    number, index, old_index, server = match.groups()
    if index == "":
        return JobId(f"{number}[]", server or "", number, None, array=True)
    task = index or old_index
    return JobId(text[: match.end(3) if old_index else match.end(2) + 1], server or "", number, int(task))


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


class _Granted(NamedTuple):
    """What a run was given."""

    hosts: tuple[Host, ...]
    cores: int | None
    slots: int | None
    gpus: int | None
    core_numbers: tuple[str, ...]


def _granted(dialect: Dialect, found: Mapping[str, str], extras: Extras) -> _Granted:
    get = found.get
    hosts: tuple[Host, ...] = ()
    core_numbers: tuple[str, ...] = ()
    slots = None
    if exec_host := get("exec_host"):
        read = _hosts if len(exec_host) <= _CACHED_CHARACTERS else _hosts.__wrapped__
        hosts, slots, core_numbers = read(exec_host)
        if slots is None:
            extras["exec_host"] = exec_host
    if not dialect.has_vnodes:
        gpus = values.node_gpus(get("Resource_List.nodes", ""))
        if slots is None:
            slots = integer(get("total_execution_slots"))
        return _Granted(hosts, slots, slots, gpus, core_numbers)
    vnodes = get("exec_vnode", "")
    cores = integer(get("resources_used.ncpus"))
    if cores is None or cores < 0:
        cores = values.vnode_cpus(vnodes)
    gpus = values.vnode_gpus(vnodes)
    if gpus is None:
        gpus = integer(get("Resource_List.ngpus"))
    return _Granted(hosts, slots if cores is None else cores, slots, gpus, ())


def _keep_unread(found: Mapping[str, str], extras: Extras, **read: int | None) -> None:
    """Keep the usage that is written and cannot be read; `read`: what was read of it."""
    for name, value in read.items():
        key = f"resources_used.{name}"
        if value is None and (written := found.get(key)) is not None:
            extras[key] = written


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
    `extras`: what has no field; of a run in progress nothing, since that is what it requests.

    By position, as in the source of ARC: by name takes a fifteenth of the time of reading a run.
    """
    get = found.get
    server = ident.server or cluster or ""
    hosts, cores, slots, gpus, core_numbers = _granted(dialect, found, extras)
    cpu_ms = values.duration_ms(get("resources_used.cput"))
    rss_kib = values.memory_kib(get("resources_used.mem"))
    virtual_kib = values.memory_kib(get("resources_used.vmem"))
    if cpu_ms is None or rss_kib is None or virtual_kib is None:
        _keep_unread(found, extras, cput=cpu_ms, mem=rss_kib, vmem=virtual_kib)
    run_count = integer(get("run_count"))
    created, eligible, written = get("ctime"), get("etime"), get("qtime")  # mostly one instant, which is read once
    return Job(
        run_record_id(dialect.system, server, ident.local, start),
        dialect.system,
        ending.status,
        False,  # slave
        None,  # user_dn
        None,  # token_subject
        None,  # token_issuer
        None,  # vo
        None,  # vo_issuer
        (),  # fqans
        server or None,
        get("queue") or None,
        None,  # endpoint_url
        None,  # endpoint_type
        len(hosts) or None,
        cores,
        slots,
        None,  # infrastructure
        None,  # lrms
        None,  # middleware
        None,  # middleware_version
        (),  # benchmarks
        hosts,
        get("user") or None,
        get("group") or None,
        get("project") or None,
        get("account") or None,
        None,  # department
        None,  # global_id
        ident.local,
        get("jobname") or None,
        max(run_count - 1, 0) if run_count is not None else run,
        ident.array_id,
        ident.array_task,
        None,  # parallel_environment
        get("owner", "").partition("@")[2] or None,
        gpus,
        None,  # service_class
        None,  # system_software
        (),  # runtime_environments
        queued if created == written else instant(created),
        queued if eligible == written else instant(eligible),
        queued,
        start,
        end,
        None,  # execution_start
        None,  # execution_end
        events,
        None if end is None else (end - start) * 1000,
        cpu_ms,
        None,  # cpu_user_ms
        None,  # cpu_system_ms
        rss_kib,
        virtual_kib,
        None,  # swap_kib
        None,  # scratch_bytes
        None,  # energy_j
        None,  # stage_in_ms
        None,  # stage_out_ms
        None,  # stage_in_bytes
        None,  # stage_out_bytes
        (),  # transfers
        None,  # charge
        (),  # process_ids
        ending.exit_code,
        ending.exit_signal,
        ending.end_reason,
        extras,
        None,  # site
        core_numbers,
    )
