"""The record of one run of a job, as in a batch system's accounting.

One `Job` is one *run*: a requeued job has several, an array task has its own, the slave lines of a tightly integrated
parallel job are folded into their master. It contains facts as read; what the configuration adds (VO mappings,
benchmarks) is applied to a copy when a message is planned or rendered (`publisher.collect.enrich`).

Units are in the names. Instants are whole epoch seconds UTC, durations integer milliseconds, memory KiB, volumes bytes.
`None` means that the source has no value; zero means that the source has zero.

The fields are those of ARC's accounting record (ARC accounting technical details, tables 4 and 5) and of the accounting
files listed in the documentation of the sources. A run is encoded as an array of its fields in their order, so a new
field comes last, with the default None: then older records are read and have the same digests (`formats.identity`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec

Status = Literal["completed", "failed", "aborted", "cancelled", "running", "never_started", "lost"]
"""How a run ended. `completed`, `failed` and `aborted` are ARC's terminal states; `cancelled` ran and was ended by its
user or an administrator. `running` and `never_started` are only for reports and never published. `lost` ran and left no
accounting (TORQUE's rerun): its usage is estimated, and it is sent only to targets whose `statuses` name it."""

GRID_SYSTEMS: frozenset[str] = frozenset({"arc"})
"""The values of `Job.system` that are grid front ends."""

FINISHED_STATUSES: frozenset[str] = frozenset({"completed", "failed", "aborted", "cancelled", "lost"})
"""The states of a run that ran and has ended: only these may be published."""

Infrastructure = Literal["grid", "local"]


class Host(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """An execution host of a run. `slots` are those granted on it, `gpus` the devices; None: unknown."""

    name: str
    slots: int | None = None
    cores: int | None = None
    gpus: int | None = None


class Transfer(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A file staged in or out for a run: `size_bytes` as transferred, `start` and `end` epoch seconds UTC."""

    direction: Literal["download", "upload"]
    url: str
    size_bytes: int | None = None
    start: int | None = None
    end: int | None = None
    from_cache: bool = False


class Benchmark(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A benchmark score per core of the host that ran the job, e.g. type `HEPscore23`, value 14.2.

    If the source's text cannot be read, such as `HEPSPEC:1:2`, `type` is that text and `value` is 0.
    """

    type: str
    value: float


class Events(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The events of a job in their order: `kinds` in the source's own words or letters, each separated by a space
    (`Q S E`, see `kinds_text`), `times` epoch seconds UTC. One text of kinds, since most jobs have the same kinds.
    """

    kinds: str
    times: tuple[int, ...]

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, str]]) -> Events | None:
        """The events of pairs of time and kind; None if there are none."""
        events = tuple(pairs)
        if not events:
            return None
        times, kinds = zip(*events, strict=True)
        return cls(_usual_kinds_text(kinds) if len(kinds) <= _USUAL_KINDS else kinds_text(kinds), times)

    def pairs(self) -> Iterator[tuple[int, str]]:
        """The time and kind of each event."""
        return zip(self.times, self.kinds.split(" "), strict=True)


def kinds_text(kinds: Iterable[str]) -> str:
    """The kinds of events as one text; a space in one of them becomes `_`."""
    return " ".join([kind.replace(" ", "_") for kind in kinds])


_USUAL_KINDS: Final = 8
_usual_kinds_text = lru_cache(maxsize=1_024)(kinds_text)
"""Few jobs have other kinds of events than the one before."""


class Job(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One run of a job. See the module for units; because of `record_id` sending again is harmless.

    The facts of a class are together, so that `publisher.encoded_run` can cut them out of an encoded run.

    The sources of ARC and PBS give the fields by position, in the order below: they set most of them, and so many
    keywords would take 4 to 8 % of the time of reading a run. All others name them.
    """

    # --- run
    record_id: str
    """Global, stable id of this run: a pure function of the run (`formats.identity`)."""
    system: str
    """The kind of accounting from which it was read: arc, gridengine, torque, pbs, dqs, slurm, htcondor, lsf."""
    status: Status

    # --- class: what many runs share, in the order of `publisher.encoded_run`, which stores it once
    slave: bool = False
    """A part of another run, whose record includes its usage: only for reports, never published by itself."""
    user_dn: str | None = None
    """Distinguished name of the user's certificate, in the form that the source has."""
    token_subject: str | None = None
    token_issuer: str | None = None
    vo: str | None = None
    vo_issuer: str | None = None
    fqans: tuple[str, ...] = ()
    """VOMS attributes, the primary one first, each once: `/atlas/Role=production`."""
    cluster: str | None = None
    """The batch system's server or cell: MachineName of UR and CAR, unless there is an endpoint."""
    queue: str | None = None
    endpoint_url: str | None = None
    endpoint_type: str | None = None
    """The interface through which the job was submitted, e.g. `org.nordugrid.arcrest`."""
    nodes: int | None = None
    cores: int | None = None
    slots: int | None = None
    infrastructure: Infrastructure | None = None
    lrms: str | None = None
    """The batch system behind a grid front end: slurm, condor, pbs ..."""
    middleware: str | None = None
    middleware_version: str | None = None
    benchmarks: tuple[Benchmark, ...] = ()
    """As in the source, each type once; the first is the source's choice."""
    hosts: tuple[Host, ...] = ()
    local_user: str | None = None
    local_group: str | None = None
    project: str | None = None
    account: str | None = None
    department: str | None = None

    # --- names
    global_id: str | None = None
    """Global job id (ARC's job id, HTCondor's GlobalJobId); if there is none, the record id is used instead."""
    local_id: str | None = None
    """The batch system's id of the job (with its array index, if any), unique in the cluster."""
    name: str | None = None
    run: int = 0
    """Number of this run of the job, from 0, if the source counts or distinguishes runs."""
    array_id: str | None = None
    array_task: int | None = None

    # --- place
    parallel_environment: str | None = None
    client_host: str | None = None
    """The host from which the job was submitted, without a port."""
    gpus: int | None = None
    service_class: str | None = None
    """Class of worker node, ARC's wninstance."""
    system_software: str | None = None
    runtime_environments: tuple[str, ...] = ()

    # --- time
    submit: int | None = None
    eligible: int | None = None
    lrms_submit: int | None = None
    start: int | None = None
    """StartTime as accounted (for ARC by default the submission)."""
    end: int | None = None
    """EndTime as accounted (for ARC by default the reaching of the terminal state)."""
    execution_start: int | None = None
    """When the payload began, if the source distinguishes this from `start`."""
    execution_end: int | None = None
    events: Events | None = None

    # --- usage
    wall_ms: int | None = None
    """Elapsed time of the run, not multiplied by cores."""
    cpu_ms: int | None = None
    """CPU time used, summed over cores: user plus system, if the source has both."""
    cpu_user_ms: int | None = None
    cpu_system_ms: int | None = None
    memory_rss_kib: int | None = None
    memory_virtual_kib: int | None = None
    swap_kib: int | None = None
    scratch_bytes: int | None = None
    energy_j: float | None = None
    stage_in_ms: int | None = None
    stage_out_ms: int | None = None
    stage_in_bytes: int | None = None
    stage_out_bytes: int | None = None
    transfers: tuple[Transfer, ...] = ()
    charge: float | None = None
    process_ids: tuple[int, ...] = ()

    # --- end and environment
    exit_code: int | None = None
    exit_signal: int | None = None
    end_reason: str | None = None
    """The source's own word or code for the end: Grid Engine's failed code, Slurm's state, LSF's exitInfo."""
    extras: dict[str, int | float | str] = {}
    """All other values of the source, under the source's own names (Grid Engine's ru_*, TRES, resource lists)."""
    site: str | None = None
    """The site to which the run is accounted, if not that of the view. It comes only from the configuration."""
    core_numbers: tuple[str, ...] = ()
    """The cores that it used on each of `hosts`, in their order, as `formats.cores` writes them: `0-3,7`; empty if the
    source has only their number. For reports; not in any message or in the digest."""
    token_groups: tuple[str, ...] | None = None
    """The groups of the user's token (`wlcg.groups`), as the computing element verified them, each once; only of
    sources that are declared to have them. Their order is no rank. Part of the class of a run."""

    def known(self) -> dict[str, Any]:
        """The facts of the run by the names of their fields, without default values."""
        facts = zip(_defaults().items(), msgspec.structs.astuple(self), strict=True)
        return {name: value for (name, default), value in facts if value != default}

    @property
    def is_of_grid(self) -> bool:
        """Whether a grid front end recorded the run (ARC), not a batch system: its status is that of the grid job."""
        return self.system in GRID_SYSTEMS

    @property
    def finished(self) -> bool:
        """Whether the run ran and has ended."""
        return self.status in FINISHED_STATUSES

    @property
    def has_record(self) -> bool:
        """Whether the run is finished and not a part of another run: only these are published."""
        return self.finished and not self.slave


@lru_cache(maxsize=1)
def _defaults() -> dict[str, Any]:
    """The default value of each fact, by the name of its field: asking msgspec for them takes a millisecond."""
    return {
        field.name: field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        for field in msgspec.structs.fields(Job)
    }
