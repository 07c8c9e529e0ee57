"""Runs sealed: in the form in which they are stored, with their digest and what stands in columns of its own.

Whoever reads a run seals it, be it another process. The bytes are handed on, compared and stored as they are, and made
a run again only where its facts are asked for: for a class that is new, a grid log, a person who was erased.

Which facts of a run may tell others, and so must stand in its class beside those that are shared.

One place for both sides of a promise: what `publisher.collect.enrich` looks at is what a class keeps
(`publisher.store.classes`), so that a class and its runs are given the same identity. The end of a run is in no class;
only benchmarks may go by it, and no wish and no sync count depends on a benchmark.
"""

from __future__ import annotations

from hashlib import blake2b
from operator import attrgetter
from typing import Final

import msgspec

from formats.benchmark import has_usable_benchmark
from formats.identity import decode, digest, encode, index_key, record_key
from formats.job import Job

LOCAL: Final = ("local_user", "local_group", "project", "account", "department")
"""What mapping rules may tell a grid identity from, where `class_needs_local_user`."""


def class_needs_local_user(job: Job) -> bool:
    """Whether the local facts of a run may tell something: not where the source tells both user and VO."""
    return not (job.vo and job.user_dn)


def class_needs_hosts(job: Job) -> bool:
    """Whether the hosts of a run may tell something: its benchmark, where the source has none that is usable."""
    return not has_usable_benchmark(job)


SHARED: Final = (
    "system",
    "status",
    "slave",
    "user_dn",
    "token_subject",
    "token_issuer",
    "vo",
    "vo_issuer",
    "fqans",
    "cluster",
    "queue",
    "endpoint_url",
    "endpoint_type",
    "nodes",
    "cores",
    "slots",
    "infrastructure",
    "lrms",
    "middleware",
    "middleware_version",
    "benchmarks",
)
"""The facts that many runs share: what makes their class."""
_encode: Final = msgspec.msgpack.Encoder().encode
_shared: Final = attrgetter(*SHARED)
_local: Final = attrgetter(*LOCAL)
_KEY_BYTES: Final = 16


class EncodedRun(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A run as it is stored.

    `stored` is its form of `formats.identity`, the rest is told by it. `class_key` None: not worked out, since most
    runs of a window that is read again are known. `names_cores`: it has core numbers, which are not in the digest.
    `mark`: that of what the source has of it, where the source gives marks. `local_id` and `global_id`: as they are
    looked up by (`index_key`).
    """

    record_id: str
    finished: bool
    end: int | None
    wall_ms: int
    cpu_ms: int
    untold: int
    local_id: str | None
    global_id: str | None
    digest: bytes
    stored: bytes
    names_cores: bool
    class_key: bytes | None
    mark: bytes | None = None

    def job(self) -> Job:
        """The run with all its facts."""
        return decode(self.stored)


def encode_run(job: Job, *, classed: bool = True, mark: bytes | None = None) -> EncodedRun:
    """A run as it is stored; `classed`: with the key of its class. `mark`: see `EncodedRun`."""
    record_id = record_key(job.record_id)
    if record_id is not job.record_id:
        job = msgspec.structs.replace(job, record_id=record_id)
    stored = encode(job)
    return EncodedRun(
        record_id,
        job.finished,
        job.end,
        job.wall_ms or 0,
        cpu_total_ms(job),
        untold(job),
        job.local_id and index_key(job.local_id),
        job.global_id and index_key(job.global_id),
        digest(stored),
        stored,
        bool(job.core_numbers),
        class_key(job) if classed else None,
        mark,
    )


def cpu_total_ms(job: Job) -> int:
    """CPU time of all cores: the source's total, else user plus system, else zero."""
    if job.cpu_ms is not None:
        return job.cpu_ms
    return (job.cpu_user_ms or 0) + (job.cpu_system_ms or 0)


def untold(job: Job) -> int:
    """1 where a run lacks its wall time, or its CPU time in total and one of its parts, so that the columns say zero or
    a part alone; 0: they are what a receiver of summaries adds up."""
    cpu_told = job.cpu_ms is not None or (job.cpu_user_ms is not None and job.cpu_system_ms is not None)
    return int(job.wall_ms is None or not cpu_told)


def class_key(job: Job, mark: str | None = None) -> bytes:
    """A digest of what makes a run's class: small enough to remember very many. `mark`: what its grid log told."""
    local, hosts = _local(job) if class_needs_local_user(job) else None, job.hosts if class_needs_hosts(job) else None
    return blake2b(_encode((_shared(job), local, hosts, mark)), digest_size=_KEY_BYTES).digest()
