"""check: sources whose jobs would count twice at a target, from the settings and from the store.

Docs: reference/counted-once.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

from publisher.config.schema import Config
from publisher.finding import Finding, Level
from publisher.sources import overlaps
from publisher.sources.base import ONE_SOURCE
from publisher.status.same_jobs import SharedJobs, shared_jobs
from publisher.store.database import Store
from publisher.text import counted


def overlapping_sources(config: Config) -> Iterator[Finding]:
    """A finding for each pair of sources of a target that have the same jobs, by their settings."""
    for one, other in permutations(config.sources, 2):
        if _have_a_target(config, one, other):
            yield from overlaps(config, one, other)


def forwarded_twice(config: Config) -> Iterator[Finding]:
    """A finding for each target whose service may send our jobs on to the service of another one."""
    for name, target in config.targets.items():
        if target.kind.forwarder is None:
            continue
        program, service = target.kind.forwarder
        for other, beside in config.targets.items():
            if other != name and beside.format.service == service and _select_one_source(config, name, other):
                text = f"if {program} reads what this target gets, {service} has these jobs from it and from {other}"
                yield Finding(f"target {name}", "yellow", text, f"Let one of them publish to {service}")


def _select_one_source(config: Config, *targets: str) -> bool:
    chosen = [set(config.targets[name].sources or config.sources) for name in targets]
    return bool(set.intersection(*chosen))


def _have_a_target(config: Config, one: str, other: str) -> bool:
    return any({one, other} <= set(target.sources or config.sources) for target in config.targets.values())


def jobs_of_two_sources(config: Config, store: Store) -> Iterator[Finding]:
    """A finding for each pair of sources that have given the same jobs to a target lately."""
    with store.read() as connection:
        shared = list(shared_jobs(connection, config, config.targets))
    reported: set[tuple[str, frozenset[str]]] = set()
    for jobs in shared:
        pair = jobs.target, frozenset({jobs.source, jobs.other})
        if pair not in reported:
            reported.add(pair)
            level: Level = "red" if jobs.is_certain else "yellow"
            yield Finding(f"target {jobs.target}", level, shared_text(jobs), ONE_SOURCE)


def shared_text(found: SharedJobs) -> str:
    """What was found, for people."""
    one, other = found.example
    return (
        f"{found.shared:,} of the last {counted(found.looked_at, 'job')} of source {found.source} are also jobs of "
        f"source {found.other}, and both are sent: they count twice (such as {one} and {other})"
    )
