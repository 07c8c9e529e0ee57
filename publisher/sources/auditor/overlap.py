"""check: a source of AUDITOR beside another source that has the same jobs, by their settings.

Docs: reference/counted-once.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from publisher.config.schema import Config, SourceSettings
from publisher.finding import Finding
from publisher.sources.base import ONE_SOURCE


def overlaps(config: Config, name: str, other: str) -> Iterator[Finding]:
    """What counts twice of source `name`, of AUDITOR, and the other one."""
    yield from _same_records(config, name, other)
    yield from _other_accounting(config, name, other)


def _same_records(config: Config, one: str, other: str) -> Iterator[Finding]:
    names = list(config.sources)
    first, second = config.sources[one].auditor, config.sources[other].auditor
    if first is None or second is None or names.index(one) > names.index(other) or not first.overlaps(second):
        return
    if first.place == second.place and config.sources[one].cluster == config.sources[other].cluster:
        text = f"it selects records that source {one} reads too: one that both read counts once, as the first read it"
        yield Finding(f"source {other}", "yellow", text, "Give them other values of `record_prefix` or `where`")
    elif first.place == second.place or first.is_table != second.is_table:
        text = f"it may read the same records of AUDITOR as source {one}, and each may count twice"
        yield Finding(f"source {other}", "red", text, ONE_SOURCE)


def _other_accounting(config: Config, name: str, other: str) -> Iterator[Finding]:
    """What AUDITOR's collector has, beside the source that has the same jobs, or the jobs that ran in its machines."""
    settings, beside = config.sources[name], config.sources[other]
    if settings.auditor is None or _site(config, settings) != _site(config, beside):
        return
    collector = settings.auditor.kind
    if beside.type in collector.batch_systems and not _have_other_clusters(settings, beside):
        text = f"AUDITOR's collector for {beside.type} has the jobs that source {other} reads: each counts twice"
        yield Finding(f"source {name}", "red", text, f"{ONE_SOURCE}; other clusters: set `cluster` of both")
    if collector.counts_pilots and not (beside.auditor is not None and beside.auditor.kind.counts_pilots):
        text = f"its records are machines (drones), in which jobs of source {other} may run: their cores count twice"
        yield Finding(f"source {name}", "red", text, f"{ONE_SOURCE}; other machines: set `site` of one of them")


def _site(config: Config, source: SourceSettings) -> str:
    return (source.site or config.site.name).lower()


def _have_other_clusters(one: SourceSettings, other: SourceSettings) -> bool:
    return bool(one.cluster and other.cluster) and one.cluster != other.cluster
