"""check, of the rules that add to jobs: one that gives nothing to any job, local ids that could collide, sources of
the same files.

Looked at over the stored classes, not over the runs; only benchmark rules with dates need to know which classes had
runs at the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final

from publisher.config import Config, Source
from publisher.enrich import Enricher, Enrichers
from publisher.finding import Finding
from publisher.store.classes import JobClass, all_classes, classes_ended_in
from publisher.store.database import Store

KEYED_BY_LOCAL_ID: Final = frozenset({"apel-job", "emi-car"})
"""The formats of which the service keeps one record a site, local id and end (facts on formats, 4.8)."""


def unused_rules(config: Config, store: Store) -> Iterator[Finding]:
    """A finding for each rule that gives nothing to any job collected so far. Sources without jobs are passed over."""
    enrichers = Enrichers(config).by_name
    if not any(any(enricher.rules()) for enricher in enrichers.values()):
        return
    rules: dict[str, None] = {}
    used: set[str] = set()
    matching: set[str] = set()
    with store.read() as connection:
        periods = {name: _Periods(enricher) for name, enricher in enrichers.items()}
        for period in periods.values():
            for bounds in period.between:
                period.classes.append(classes_ended_in(connection, *bounds) if len(period.between) > 1 else None)
        for job_class in all_classes(connection):
            enricher = enrichers.get(job_class.source)
            if enricher is not None:
                rules.update(dict.fromkeys(enricher.rules()))
                used.update(enricher.used_by(job_class.facts, periods[job_class.source].ends_of(job_class)))
                matching.update(enricher.matching(job_class.facts))
    for rule in rules:
        if rule not in used:
            told = rule in matching
            why = "gives nothing: the source or an earlier rule tells what it would" if told else "matches no job"
            yield Finding(f"rule {rule}", "yellow", why, "Mend it or take it out" if not told else "")


class _Periods:
    """The times between which another benchmark rule may count, and the classes with runs that ended in each."""

    def __init__(self, enricher: Enricher) -> None:
        self.between = list(pairwise([None, *enricher.bounds(), None]))
        self.classes: list[frozenset[int] | None] = []

    def ends_of(self, job_class: JobClass) -> Iterator[int | None]:
        """One end in each period in which the class had runs; None stands for before all bounds."""
        for (first, behind), classes in zip(self.between, self.classes, strict=True):
            if classes is None or job_class.id in classes:
                yield first if first is not None else behind - 1 if behind is not None else None


def colliding_ids(config: Config) -> Iterator[Finding]:
    """A finding for each two sources whose local ids could be taken for one another at a target."""
    for name, target in config.targets.items():
        if target.records not in KEYED_BY_LOCAL_ID:
            continue
        fed = [source for source in config.sources if not target.sources or source in target.sources]
        for one, other in combinations(fed, 2):
            if _could_collide(config.sources[one], config.sources[other], config):
                yield Finding(
                    f"target {name}",
                    "yellow",
                    f"the sources {one} and {other} are of one site and could have jobs with the same LocalJobId and "
                    "end, of which the service keeps one",
                    f"Give one of them a local_id_prefix of its own, such as sources.{other}.local_id_prefix = "
                    f'"{other}-", before its first job is sent',
                )


def reading_the_same(config: Config) -> Iterator[Finding]:
    """A finding for each two sources that read the same files; red where each job of them would count twice."""
    for one, other in combinations(config.sources, 2):
        first, second = config.sources[one], config.sources[other]
        if first.type != second.type or not _overlap(first.path, second.path):
            continue
        if first.cluster == second.cluster:
            said = "a job that both give counts once, for the source that gave it first"
            yield Finding(f"source {other}", "yellow", f"it reads the files of the source {one}: {said}", _TAKE_OUT)
        else:
            said = "their `cluster` differs, so that each job may count twice"
            yield Finding(f"source {other}", "red", f"it reads the files of the source {one}, and {said}", _TAKE_OUT)


_TAKE_OUT: Final = "Take one of the two out before anything is sent"


def _overlap(one: Path | None, other: Path | None) -> bool:
    """Whether two paths are the same, or one of them is a folder with the other in it."""
    if one is None or other is None:
        return False
    first, second = one.resolve(), other.resolve()
    return first == second or first in second.parents or second in first.parents


def _could_collide(one: Source, other: Source, config: Config) -> bool:
    same_site = (one.site or config.site.name).lower() == (other.site or config.site.name).lower()
    return same_site and one.local_id_prefix.lower() == other.local_id_prefix.lower()
