"""check: tests of all that a run needs, with what to do about problems. Sends no records.

Also: settings that are missing, rules that apply to no job, local ids that could collide, sources that read the same
files, and targets that select no job. Rules are tested with the stored classes instead of the runs; only benchmark
rules with dates need to know which classes had runs at the time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Final

import msgspec

from publisher.collect.enrich import Enricher, Enrichers
from publisher.collect.target_filter import TargetFilter
from publisher.config.operation import Credentials
from publisher.config.schema import Config, SourceSettings
from publisher.errors import PublisherError
from publisher.finding import DAMAGE_HINT, Finding, Level
from publisher.messages.item import view_of
from publisher.security.credentials import load_credentials
from publisher.security.distinguished_name import rfc2253_dn, slash_dn
from publisher.sources import blah, make_source
from publisher.status import check_host
from publisher.status.check_overlap import forwarded_twice, jobs_of_two_sources, overlapping_sources
from publisher.status.status import Status, status
from publisher.store.admin import check_progress
from publisher.store.classes import JobClass, all_classes, classes_ended_in
from publisher.store.database import Store
from publisher.store.sent_mark import RESTORED_HINT
from publisher.targets import make_target
from publisher.targets.identity import TargetContext
from publisher.text import counted


def unused_rules(config: Config, store: Store) -> Iterator[Finding]:
    """A finding for each rule that applies to no job collected so far. Sources without jobs are omitted."""
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
            is_shadowed = rule in matching
            shadowed = "has no effect: the source or an earlier rule gives the value"
            why = shadowed if is_shadowed else "matches no job"
            yield Finding(f"rule {rule}", "yellow", why, "Correct or remove it" if not is_shadowed else "")


class _Periods:
    """The times between which another benchmark rule may count, and the classes with runs that ended in each."""

    def __init__(self, enricher: Enricher) -> None:
        self.between = list(pairwise([None, *enricher.bounds(), None]))
        self.classes: list[frozenset[int] | None] = []

    def ends_of(self, job_class: JobClass) -> Iterator[int | None]:
        """One end in each period in which the class had runs; None: before all bounds."""
        for (first, stop), classes in zip(self.between, self.classes, strict=True):
            if classes is None or job_class.id in classes:
                yield first if first is not None else stop - 1 if stop is not None else None


def changed_clusters(config: Config, store: Store) -> Iterator[Finding]:
    """A finding for each source with jobs that were stored before its `cluster` was set, which is in record ids."""
    earlier: dict[str, set[str | None]] = {}
    with store.read() as connection:
        for job_class in all_classes(connection):
            settings = config.sources.get(job_class.source)
            if settings is None or settings.cluster is None or settings.kind.cluster_from == "nothing":
                continue
            stored = job_class.facts.cluster
            if stored != settings.cluster and (stored is None or settings.kind.cluster_from == "setting"):
                earlier.setdefault(job_class.source, set()).add(stored)
    for name, clusters in earlier.items():
        listed = " and ".join(sorted(repr(cluster) if cluster is not None else "no cluster" for cluster in clusters))
        text = (
            f"some of its jobs were stored with {listed}, and `cluster` is {config.sources[name].cluster!r} now: read "
            "again, as after the store was lost, they get other record ids and would be counted twice"
        )
        hint = "Remove `cluster`, or put back what it was, unless no job was sent before"
        yield Finding(f"source {name}", "yellow", text, hint)


def colliding_ids(config: Config) -> Iterator[Finding]:
    """A finding for the sources of one site whose local ids could collide at a target."""
    for name, target in config.targets.items():
        if target.format.key != "local id":  # facts on formats, 4.8
            continue
        alike: dict[tuple[str, str], list[str]] = {}
        for source, settings in config.sources.items():
            if not target.sources or source in target.sources:
                alike.setdefault(_local_id_space(settings, config), []).append(source)
        for first, *others in alike.values():
            if others:
                yield Finding(
                    f"target {name}",
                    "yellow",
                    f"the sources {', '.join((first, *others[:-1]))} and {others[-1]} belong to one site, and their "
                    "jobs could have the same LocalJobId and end time; the service would keep one of them",
                    f"Set a local_id_prefix for all but one of them, such as sources.{others[-1]}.local_id_prefix = "
                    f'"{others[-1]}-", before its first job is sent',
                )


def missing_settings(config: Config) -> Iterator[Finding]:
    """A finding for each setting of a source without which its targets hold what it has."""
    for name, source in config.sources.items():
        fed = {each: target.format for each, target in config.targets.items() if name in (target.sources or {name})}
        whole = [each for each, form in fed.items() if form.is_snapshot]
        if whole and source.complete_since is None and not source.kind.knows_first_day:
            text = f"it does not show since when it has every job: months for {', '.join(whole)} are held"
            hint = f"Set sources.{name}.complete_since to the first day from which it has every job"
            yield Finding(f"source {name}", "yellow", text, hint)
        scored = [each for each, form in fed.items() if form.needs_benchmark]
        if scored and source.benchmark is None and not source.benchmarks and not source.kind.has_scores:
            text = f"it has no benchmark: its jobs for {', '.join(scored)} are held"
            hint = f'Set sources.{name}.benchmark, such as {{ type = "HEPscore23", value = 14.2 }}'
            yield Finding(f"source {name}", "yellow", text, hint)


def reading_the_same(config: Config) -> Iterator[Finding]:
    """A finding for each pair of sources that read the same files; red if their jobs would count twice."""
    for one, other in combinations(config.sources, 2):
        first, second = config.sources[one], config.sources[other]
        if first.type != second.type or not _overlap(first.path, second.path):
            continue
        if first.cluster == second.cluster:
            said = "a job that is in both counts once, for the source that was read first"
            yield Finding(f"source {other}", "yellow", f"it reads the same files as source {one}: {said}", _TAKE_OUT)
        else:
            said = "their `cluster` differs, so that each job may count twice"
            yield Finding(f"source {other}", "red", f"it reads the same files as source {one}, and {said}", _TAKE_OUT)


_TAKE_OUT: Final = "Remove one of the two before anything is sent"


def _overlap(one: Path | None, other: Path | None) -> bool:
    """Whether two paths are the same, or one of them is a folder with the other in it."""
    if one is None or other is None:
        return False
    first, second = one.resolve(), other.resolve()
    return first == second or first in second.parents or second in first.parents


def _local_id_space(source: SourceSettings, config: Config) -> tuple[str, str]:
    """Site and prefix, without case: local ids of sources that have both in common could collide."""
    return (source.site or config.site.name).lower(), source.local_id_prefix.lower()


def targets_without_jobs(config: Config, store: Store, found: Status) -> Iterator[Finding]:
    """A finding for each target that selects none of the collected jobs. `found`: the status now."""
    ends = [source.last_job_end for source in found.sources.values() if source.last_job_end is not None]
    empty = [name for name, target in found.targets.items() if target.untouched]
    if not ends or not empty:
        return
    with store.read() as connection:
        known = [(job_class.source, job_class.facts) for job_class in all_classes(connection)]
    for name in empty:
        selection = TargetFilter(name, config.targets[name], config)
        reasons = {selection.why_not(source, facts) for source, facts in known}
        if None in reasons:
            why = selection.why_not_end(max(ends))
            if why is None:
                continue  # planned by the next publish
            reasons = {why}
        listed = sorted(reason for reason in reasons if reason is not None)
        more = f"; and {len(listed) - _MOST_REASONS} other reasons" if len(listed) > _MOST_REASONS else ""
        text = f"it selects none of the collected jobs. Of each job: {'; '.join(listed[:_MOST_REASONS])}{more}"
        yield Finding(f"target {name}", "yellow", text, "If this is not intended, change the setting of the target")


_MOST_REASONS = 5
_FEW_DAYS = 30
_LITTLE_SPACE_BYTES = 200 * 1024 * 1024
_NO_SPACE_BYTES = 20 * 1024 * 1024


def check(config: Config, store: Callable[[], Store | None], clock: Callable[[], int]) -> list[Finding]:
    """One finding for each thing; those that cannot be tested are red with the reason."""
    return [
        *_configuration(config),
        *_store(config, store),
        *_credentials(config, clock()),
        *check_host.trust(config, clock()),
        *_sources(config),
        *check_host.metrics(config),
        *check_host.mail(config.notices),
        *check_host.zones(config),
        *check_host.texts(config),
        *missing_settings(config),
        *_targets(config),
        *machine_names(config),
        *colliding_ids(config),
        *reading_the_same(config),
        *overlapping_sources(config),
        *forwarded_twice(config),
        *_stored(config, store, clock()),
    ]


def _configuration(config: Config) -> Iterator[Finding]:
    yield Finding("configuration", "green", f"{config.file} is valid; the site is {config.site.name}")
    if not config.sources:
        yield Finding("configuration", "red", "no source is configured", "Add a table [sources.NAME]")
    if not config.targets:
        # A table for reports shows that this is intended: else Nagios would warn of such a site for ever.
        makes_reports = bool(config.charges.prices) or config.has_allocations or "energy" in config.model_fields_set
        level: Level = "green" if makes_reports else "yellow"
        hint = "" if makes_reports else "Add a table [targets.NAME], unless this site only makes reports"
        yield Finding("configuration", level, "no target is configured: nothing is sent", hint)


def machine_names(config: Config) -> Iterator[Finding]:
    """A receiver that compares the beginning of a name would take two machines for one, so that all jobs are held."""
    for name, target in config.targets.items():
        longest = target.format.longest_machine_name
        if longest is not None and len(target.machine_name or "") > longest:
            text = f"machine_name has more than {longest} characters, which is all that counts: every job is held"
            yield Finding(f"target {name}", "red", text, "Choose a shorter name")


def _store(config: Config, store: Callable[[], Store | None]) -> Iterator[Finding]:
    try:
        opened = store()
    except PublisherError as error:
        yield Finding("store", "red", error.message, error.hint)
        return
    if opened is None:
        problems = list(check_host.new_store(config.store.url))
        yield from problems
        if not problems:
            yield Finding("store", "yellow", f"{config.store.url} does not exist yet", "The first collect creates it")
        return
    yield Finding("store", "green", f"{opened.place} can be read")
    yield from _restored(opened)
    yield from _damaged(opened)
    if opened.file is not None:
        space = os.statvfs(opened.file)
        free = space.f_bavail * space.f_frsize
        level: Level = "red" if free < _NO_SPACE_BYTES else "yellow" if free < _LITTLE_SPACE_BYTES else "green"
        hint = "Free some space: a run that cannot write its state sends nothing" if level != "green" else ""
        yield Finding("store", level, f"{free // (1024 * 1024):,} MiB of disk space are free", hint)


def _restored(store: Store) -> Iterator[Finding]:
    if store.mark_file is None:
        text = "a restored store cannot be recognised before it sends records again"
        yield Finding("store", "yellow", text, "Set store.sent_mark to a file on this host")
        return
    try:
        why = store.why_not_latest()
    except PublisherError as error:
        yield Finding("store", "red", error.message, error.hint)
        return
    if why is not None:
        yield Finding("store", "red", f"{why}. Nothing is sent", RESTORED_HINT)


def _damaged(store: Store) -> Iterator[Finding]:
    with store.read() as connection:
        number = check_progress.count_damaged(connection)
    if number:
        yield Finding("store", "red", f"{counted(number, 'damaged job')} found by earlier runs", DAMAGE_HINT)


def _credentials(config: Config, now: int) -> Iterator[Finding]:
    settings = {"common": config.credentials}
    settings |= {name: target.credentials for name, target in config.targets.items() if target.credentials is not None}
    for name, given in settings.items():
        if given.certificate is None or given.key is None:
            continue
        subject = f"credentials ({name})"
        try:
            loaded = load_credentials(given.certificate, given.key, now_s=time.time())
        except PublisherError as error:
            yield Finding(subject, "red", error.message, error.hint)
            continue
        days = int((loaded.expires_s - now) // 86400)
        level: Level = "yellow" if days < _FEW_DAYS else "green"
        yield Finding(
            subject,
            level,
            f"{given.certificate} matches its key; {days} days left",
            "Renew it" if days < _FEW_DAYS else "",
        )
        subject_name = loaded.certificate.subject
        yield Finding(
            subject,
            "green",
            f"the subject is {slash_dn(subject_name)} or {rfc2253_dn(subject_name)}",
            _registration(config, given),
        )


def _registration(config: Config, given: Credentials) -> str:
    """Where the subject of these credentials is to be registered: at the services that get them."""
    kinds = [
        target.kind
        for target in config.targets.values()
        if config.credentials_of(target).certificate == given.certificate
    ]
    places = dict.fromkeys(kind.registration for kind in kinds if kind.registration)
    return f"Register it {', '.join(places)}" if places else ""


def _sources(config: Config) -> Iterator[Finding]:
    for name, settings in config.sources.items():
        if settings.retired:
            yield Finding(f"source {name}", "green", "it is retired, and not read any more")
            continue
        try:
            for finding in make_source(name, settings).check():
                about = f"source {name}"
                yield msgspec.structs.replace(finding, subject=about) if finding.subject == name else finding
            if settings.grid_log is not None:
                yield blah.check(name, settings.grid_log.path)
        except PublisherError as error:
            yield Finding(f"source {name}", "red", error.message, error.hint)


def _targets(config: Config) -> Iterator[Finding]:
    for name, settings in config.targets.items():
        if check_host.lacks_authorities(config, settings):
            continue
        try:
            view_of(settings, config)
            target = make_target(name, settings, TargetContext(config.credentials, time.time))
            try:
                yield from target.check()
            finally:
                target.close()
        except PublisherError as error:
            yield Finding(f"target {name}", "red", error.message, error.hint)
        yield from check_host.evidence(name, settings)


def _stored(config: Config, store: Callable[[], Store | None], now: int) -> Iterator[Finding]:
    """Findings about what is in the store."""
    try:
        opened = store()
    except PublisherError:
        opened = None  # reported with the store
    try:
        yield from check_host.modes(config, opened)
        if opened is not None:
            yield from check_host.collected(config, opened, now)
            yield from check_host.targets(config, opened, now)
            yield from check_host.machine_names(config, opened)
            yield from targets_without_jobs(config, opened, status(opened, config, lambda: now, assumed=False))
            yield from unused_rules(config, opened)
            yield from changed_clusters(config, opened)
            yield from jobs_of_two_sources(config, opened)
    except PublisherError as error:
        yield Finding("rules", "red", error.message, error.hint)
