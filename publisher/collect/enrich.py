"""What configuration adds to the facts of a run: applied to a copy when planning and rendering, never stored.

Pure. A change here changes what is planned and held (`publisher.collect.target_filter`), never what was read or
delivered. It keeps the promise that nothing is guessed in silence: a rule gives only what the source does not have. A
benchmark that APEL does not take is none (`formats.benchmark`): the configured one is put before it.

For each value the first rule that matches and gives it counts, the source's own rules before those of all sources. VO
and VOMS attributes are one value: they come from one rule. Rules look at the facts as read, not at what another rule
gave. What is given to a class is given to every run of it (`publisher.encoded_run`), except benchmarks, which may go by
the run's end.

The rules of the configuration made ready to be asked: which runs each is for. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Any, Final

import msgspec

from formats.hosts import infrastructure_of
from formats.job import Benchmark, Job
from formats.names import parse_fqan
from publisher.config.schema import BenchmarkRule, Config, MapRule, SourceSettings
from publisher.encoded_run import LOCAL, class_needs_hosts, class_needs_local_user

_FACTS: Final = {"dn": "user_dn"} | {name: name for name in (*LOCAL, "queue", "token_issuer", "token_subject")}
"""The fact that each condition of a mapping rule looks at."""


class Matcher:
    """Patterns as in names of files, of which one must match a whole text: `*`, `?`, `[...]`; letters are exact."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._plain = frozenset(pattern for pattern in patterns if not set(pattern) & set("*?["))
        wild = [translate(pattern) for pattern in patterns if pattern not in self._plain]
        self._wild = re.compile("|".join(f"(?:{pattern})" for pattern in wild)) if wild else None

    def matches(self, text: str | None) -> bool:
        """Whether a text matches; what is not known, or empty, matches nothing."""
        if not text:
            return False
        return text in self._plain or (self._wild is not None and self._wild.match(text) is not None)


class Mapping:
    """A mapping rule made ready. `key` is its place in the configuration, `facts` what it looks at."""

    def __init__(self, key: str, rule: MapRule) -> None:
        self.key = key
        self.rule = rule
        given = {name: getattr(rule.when, name) for name in _FACTS if getattr(rule.when, name) is not None}
        self._local = any(name in LOCAL for name in given)
        self._conditions = tuple((_FACTS[name], Matcher(patterns)) for name, patterns in given.items())
        self.facts = tuple(fact for fact, _ in self._conditions)

    def matches(self, job: Job) -> bool:
        """Whether a run, or a class of runs, meets every condition."""
        if self._local and not class_needs_local_user(job):
            return False
        return all(matcher.matches(getattr(job, fact)) for fact, matcher in self._conditions)


class Scoring:
    """A benchmark rule made ready. `key` is its place in the configuration."""

    def __init__(self, key: str, rule: BenchmarkRule) -> None:
        self.key = key
        self.benchmarks = (Benchmark(rule.type, rule.value),)
        self.since, self.until = rule.since, rule.until
        self._queue = Matcher(rule.queue) if rule.queue is not None else None
        self._host = Matcher(rule.host) if rule.host is not None else None

    def matches(self, job: Job, end: int | None) -> bool:
        """Whether the rule is for a run, or a run of a class, that ended then."""
        if self.since is not None and (end is None or end < self.since):
            return False
        if self.until is not None and (end is None or end >= self.until):
            return False
        if self._queue is not None and not self._queue.matches(job.queue):
            return False
        host = self._host
        return host is None or (bool(job.hosts) and all(host.matches(each.name) for each in job.hosts))


_CACHED: Final = 50_000


class Enricher:
    """The additions of one source; `common` are the mapping rules of all sources."""

    def __init__(self, name: str, settings: SourceSettings, common: Sequence[MapRule] = ()) -> None:
        self._maps = [Mapping(f"sources.{name}.map[{place}]", rule) for place, rule in enumerate(settings.map)]
        self._maps += [Mapping(f"map[{place}]", rule) for place, rule in enumerate(common)]
        self._scores = [
            Scoring(f"sources.{name}.benchmarks[{place}]", rule) for place, rule in enumerate(settings.benchmarks)
        ]
        given = settings.benchmark
        self._benchmarks = (Benchmark(given.type, given.value),) if given else ()
        self._settings = settings
        self._identifies = bool(self._maps or settings.infrastructure or settings.site or settings.submit_host)
        self._conditions = tuple(sorted({fact for rule in self._maps for fact in rule.facts}))
        self._known: dict[tuple[Any, ...], dict[str, Any]] = {}

    def apply(self, job: Job) -> Job:
        """The job with what its source does not have and the configuration gives."""
        changes: dict[str, Any] = {}
        if self._identifies:
            changes.update(self._identity(job))
        if class_needs_hosts(job) and (benchmarks := self._benchmarks_of(job)):
            changes["benchmarks"] = benchmarks + job.benchmarks
        if self._settings.local_id_prefix and job.local_id:
            changes["local_id"] = self._settings.local_id_prefix + job.local_id
        return msgspec.structs.replace(job, **changes) if changes else job

    def _benchmarks_of(self, job: Job) -> tuple[Benchmark, ...]:
        for rule in self._scores:
            if rule.matches(job, job.end):
                return rule.benchmarks
        return self._benchmarks

    def _identity(self, job: Job) -> dict[str, Any]:
        key = (
            job.user_dn, job.vo, job.fqans, job.infrastructure, job.endpoint_url, job.token_subject,
            *[getattr(job, fact) for fact in self._conditions],
        )  # fmt: skip
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            known = self._known[key] = self._identified(job, set())
        return known

    def _identified(self, job: Job, used: set[str]) -> dict[str, Any]:
        """What rules and settings of the source give to a job; the keys of the rules that gave something in `used`."""
        matching = [rule for rule in self._maps if rule.matches(job)]
        changes: dict[str, Any] = {}
        for rule in matching:
            given = {**_membership(job, rule.rule, changes), **_others(job, rule.rule, changes)}
            if given:
                used.add(rule.key)
                changes.update(given)
        settings = self._settings
        host = changes.pop("endpoint_url", settings.submit_host)
        if settings.infrastructure is not None:
            changes.setdefault("infrastructure", settings.infrastructure)
        if settings.site is not None:
            changes["site"] = settings.site
        if host is not None and not job.endpoint_url:
            # A submit host makes no grid job of a local one.
            changes.setdefault("infrastructure", infrastructure_of(msgspec.structs.replace(job, **changes)))
            changes["endpoint_url"] = host
        return changes

    # --- for `check`

    def rules(self) -> Iterator[str]:
        """Where the rules of this source stand in the configuration."""
        yield from (rule.key for rule in self._maps)
        yield from (rule.key for rule in self._scores)

    def bounds(self) -> list[int]:
        """The instants at which another benchmark rule may begin to count, in order."""
        return sorted({at for rule in self._scores for at in (rule.since, rule.until) if at is not None})

    def used_by(self, facts: Job, ends: Iterable[int | None]) -> Iterator[str]:
        """The rules that give something to runs with these facts, which ended at these times."""
        used: set[str] = set()
        self._identified(facts, used)
        yield from used
        if class_needs_hosts(facts):
            for end in ends:
                yield from [rule.key for rule in self._scores if rule.matches(facts, end)][:1]

    def matching(self, facts: Job) -> Iterator[str]:
        """The mapping rules whose conditions these facts meet, whether or not there is anything left to give."""
        yield from (rule.key for rule in self._maps if rule.matches(facts))


def _membership(job: Job, rule: MapRule, given: dict[str, Any]) -> dict[str, Any]:
    """VO and VOMS attributes: both where the source has neither, the latter where they are of the VO it has."""
    if not (rule.vo or rule.fqans) or job.fqans or "vo" in given or "fqans" in given:
        return {}
    if not job.vo:
        return ({"vo": rule.vo} if rule.vo else {}) | ({"fqans": rule.fqans} if rule.fqans else {})
    return {"fqans": rule.fqans} if rule.fqans and parse_fqan(rule.fqans[0]).vo == job.vo else {}


def _others(job: Job, rule: MapRule, given: dict[str, Any]) -> dict[str, Any]:
    values = {"user_dn": rule.dn, "infrastructure": rule.infrastructure, "endpoint_url": rule.submit_host}
    return {fact: value for fact, value in values.items() if value and not getattr(job, fact) and fact not in given}


class Enrichers:
    """The additions of every source, by the source's name. Runs of a source that is gone are taken as read."""

    def __init__(self, config: Config) -> None:
        self.by_name: dict[str, Enricher] = {
            name: Enricher(name, source, config.map) for name, source in config.sources.items()
        }

    def used_by(self, source: str, job: Job) -> tuple[str, ...]:
        """The rules of the configuration that give something to a job of this source."""
        enricher = self.by_name.get(source)
        return tuple(sorted(set(enricher.used_by(job, [job.end])))) if enricher is not None else ()

    def bounds(self) -> list[int]:
        """The instants at which another benchmark rule of any source may begin to count, in order."""
        return sorted({at for enricher in self.by_name.values() for at in enricher.bounds()})

    def apply(self, source: str, job: Job) -> Job:
        """The job of this source with what the configuration adds."""
        enricher = self.by_name.get(source)
        return enricher.apply(job) if enricher is not None else job
