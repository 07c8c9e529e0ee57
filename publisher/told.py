"""Which facts of a run may tell others, and so must stand in its class beside those that are shared.

One place for both sides of a promise: what `publisher.enrich` looks at is what a class keeps
(`publisher.store.classes`), so that a class and its runs are given the same identity. The end of a run is in no class;
only benchmarks may go by it, and no wish and no sync count depends on a benchmark.
"""

from __future__ import annotations

from typing import Final

from formats.benchmark import has_usable_benchmark
from formats.job import Job

LOCAL: Final = ("local_user", "local_group", "project", "account", "department")
"""What mapping rules may tell a grid identity from, where `local_tells`."""


def local_tells(job: Job) -> bool:
    """Whether the local facts of a run may tell something: not where the source tells both user and VO."""
    return not (job.vo and job.user_dn)


def hosts_tell(job: Job) -> bool:
    """Whether the hosts of a run may tell something: its benchmark, where the source has none that is usable."""
    return not has_usable_benchmark(job)
