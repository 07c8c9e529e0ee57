"""check: sources whose jobs would count twice at a target, from the settings and from the store.

Docs: reference/counted-once.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, permutations
from typing import Final

from publisher.config.schema import Config, SourceSettings
from publisher.finding import Finding, Level
from publisher.status.same_jobs import SharedJobs, shared_jobs
from publisher.store.database import Store
from publisher.text import counted

_ONE_SOURCE: Final = "Read each job from one source, or set `sources` of the target (docs/reference/counted-once.md)"


def overlapping_sources(config: Config) -> Iterator[Finding]:
    """A finding for each pair of sources of a target that have the same jobs, by their settings."""
    for one, other in combinations(config.sources, 2):
        if _have_a_target(config, one, other):
            yield from _same_records(config, one, other)
    for one, other in permutations(config.sources, 2):
        if _have_a_target(config, one, other):
            yield from _other_accounting(config, one, other)


def _have_a_target(config: Config, one: str, other: str) -> bool:
    return any({one, other} <= set(target.sources or config.sources) for target in config.targets.values())


def _same_records(config: Config, one: str, other: str) -> Iterator[Finding]:
    first, second = config.sources[one].auditor, config.sources[other].auditor
    if first is None or second is None or not first.overlaps(second):
        return
    if first.place == second.place and config.sources[one].cluster == config.sources[other].cluster:
        text = f"it selects records that source {one} reads too: one that both read counts once, as the first read it"
        yield Finding(f"source {other}", "yellow", text, "Give them other values of `record_prefix` or `where`")
    elif first.place == second.place or first.is_table != second.is_table:
        text = f"it may read the same records of AUDITOR as source {one}, and each may count twice"
        yield Finding(f"source {other}", "red", text, _ONE_SOURCE)


def _other_accounting(config: Config, name: str, other: str) -> Iterator[Finding]:
    """What AUDITOR's collector has, beside the source that has the same jobs, or the jobs that ran in its machines."""
    settings, beside = config.sources[name], config.sources[other]
    if settings.auditor is None or _site(config, settings) != _site(config, beside):
        return
    collector = settings.auditor.kind
    if beside.type in collector.batch_systems and not _have_other_clusters(settings, beside):
        text = f"AUDITOR's collector for {beside.type} has the jobs that source {other} reads: each counts twice"
        yield Finding(f"source {name}", "red", text, f"{_ONE_SOURCE}; other clusters: set `cluster` of both")
    if collector.counts_pilots and not (beside.auditor is not None and beside.auditor.kind.counts_pilots):
        text = f"its records are machines (drones), in which jobs of source {other} may run: their cores count twice"
        yield Finding(f"source {name}", "red", text, f"{_ONE_SOURCE}; other machines: set `site` of one of them")


def _site(config: Config, source: SourceSettings) -> str:
    return (source.site or config.site.name).lower()


def _have_other_clusters(one: SourceSettings, other: SourceSettings) -> bool:
    return bool(one.cluster and other.cluster) and one.cluster != other.cluster


def jobs_of_two_sources(config: Config, store: Store) -> Iterator[Finding]:
    """A finding for each pair of sources that have given the same jobs to a target lately."""
    with store.read() as connection:
        found = list(shared_jobs(connection, config, config.targets))
    reported: set[tuple[str, frozenset[str]]] = set()
    for each in found:
        pair = each.target, frozenset({each.source, each.other})
        if pair not in reported:
            reported.add(pair)
            level: Level = "red" if each.is_certain else "yellow"
            yield Finding(f"target {each.target}", level, shared_text(each), _ONE_SOURCE)


def shared_text(found: SharedJobs) -> str:
    """What was found, for people."""
    one, other = found.example
    return (
        f"{found.shared:,} of the last {counted(found.looked_at, 'job')} of source {found.source} are also jobs of "
        f"source {found.other}, and both are sent: they count twice (such as {one} and {other})"
    )
