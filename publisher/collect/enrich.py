"""Enrichment: values that the configuration adds to the facts of a run, when items are made; they are never stored.
Pure.

A change here changes what is planned and held (`publisher.collect.target_filter`), never what was read or delivered. It
keeps the promise that nothing is guessed silently: a rule gives only values that the source lacks. A benchmark that
APEL does not accept counts as missing (`formats.benchmark`): the configured one takes precedence.

For each value the first matching rule that gives it counts; the source's own rules come before those of all sources. VO
and VOMS attributes are one value and come from one rule. Rules look at the facts as read, not at values from other
rules. A class gets the same values for all its runs (`publisher.encoded_run`), except benchmarks, which may depend on
the end of the run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import translate
from typing import Any, Final

import msgspec

from formats.hosts import infrastructure_of
from formats.job import Benchmark, Job
from formats.names import parse_fqan, token_groups_of_vo
from publisher.config.schema import BenchmarkRule, Config, MapRule, SourceSettings
from publisher.config.types import EXCLUDES
from publisher.encoded_run import LOCAL, class_needs_hosts, class_needs_local_user

_FACTS: Final = {"dn": "user_dn"} | {name: name for name in (*LOCAL, "queue", "token_issuer", "token_subject")}
"""The fact that each condition of a mapping rule tests."""


class Matcher:
    """Patterns with the wildcards of file names (`*`, `?`, `[...]`), of which one must match a whole text;
    case-sensitive."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._plain = frozenset(pattern for pattern in patterns if not set(pattern) & set("*?["))
        wild = [translate(pattern) for pattern in patterns if pattern not in self._plain]
        self._wild = re.compile("|".join(f"(?:{pattern})" for pattern in wild)) if wild else None

    def matches(self, text: str | None) -> bool:
        """Whether a text matches; an unknown or empty one never does."""
        if not text:
            return False
        return text in self._plain or (self._wild is not None and self._wild.match(text) is not None)


class NameSelection:
    """A compiled `publisher.config.types.NameFilter`. `key`: its setting."""

    def __init__(self, key: str, patterns: Sequence[str]) -> None:
        self.key = key
        included = [pattern for pattern in patterns if not pattern.startswith(EXCLUDES)]
        self._included = Matcher(included) if included else None
        self._excluded = Matcher([pattern.removeprefix(EXCLUDES) for pattern in patterns if pattern not in included])

    def selects(self, *names: str | None) -> bool:
        """Whether something with these names is selected: one of them is included, and none is excluded."""
        if any(map(self._excluded.matches, names)):
            return False
        return self._included is None or any(map(self._included.matches, names))


class Mapping:
    """A compiled mapping rule. `key`: its place in the configuration; `facts`: what it tests."""

    def __init__(self, key: str, rule: MapRule) -> None:
        self.key = key
        self.rule = rule
        given = {name: getattr(rule.when, name) for name in _FACTS if getattr(rule.when, name) is not None}
        self._local = any(name in LOCAL for name in given)
        self._conditions = tuple((_FACTS[name], Matcher(patterns)) for name, patterns in given.items())
        self.facts = tuple(fact for fact, _ in self._conditions)
        if rule.fqans_from is not None:
            self.facts += (rule.fqans_from,)

    def matches(self, job: Job) -> bool:
        """Whether a run, or a class of runs, meets every condition."""
        if self._local and not class_needs_local_user(job):
            return False
        return all(matcher.matches(getattr(job, fact)) for fact, matcher in self._conditions)


class Scoring:
    """A compiled benchmark rule. `key`: its place in the configuration."""

    def __init__(self, key: str, rule: BenchmarkRule) -> None:
        self.key = key
        self.benchmarks = (Benchmark(rule.type, rule.value),)
        self.since, self.until = rule.since, rule.until
        self._queue = Matcher(rule.queue) if rule.queue is not None else None
        self._host = Matcher(rule.host) if rule.host is not None else None

    def matches(self, job: Job, end: int | None) -> bool:
        """Whether the rule applies to a run, or a run of a class, that ended then."""
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
    """The enrichment of one source; `common`: the mapping rules of all sources."""

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
        """Return the job with configured values for what its source lacks."""
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
        """The values that rules and settings of the source give to a job; the keys of the rules that gave one go to
        `used`."""
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
            # A submit host does not make a local job a grid job.
            changes.setdefault("infrastructure", infrastructure_of(msgspec.structs.replace(job, **changes)))
            changes["endpoint_url"] = host
        return changes

    # --- for `check`

    def rules(self) -> Iterator[str]:
        """The places of this source's rules in the configuration."""
        yield from (rule.key for rule in self._maps)
        yield from (rule.key for rule in self._scores)

    def bounds(self) -> list[int]:
        """The instants at which another benchmark rule may begin to apply, in order."""
        return sorted({at for rule in self._scores for at in (rule.since, rule.until) if at is not None})

    def used_by(self, facts: Job, ends: Iterable[int | None]) -> Iterator[str]:
        """The rules that give a value to runs with these facts that ended at these times."""
        used: set[str] = set()
        self._identified(facts, used)
        yield from used
        if class_needs_hosts(facts):
            for end in ends:
                yield from [rule.key for rule in self._scores if rule.matches(facts, end)][:1]

    def fqan_from_groups(self, facts: Job) -> str | None:
        """How the groups of the token gave a VOMS attribute or none, for people; None: no rule looked at them."""
        used: set[str] = set()
        self._identified(facts, used)
        rules = (each.rule for each in self._maps if each.key in used and each.rule.fqans_from is not None)
        return next((_said(facts.token_groups or (), rule.vo or "") for rule in rules if not facts.fqans), None)

    def matching(self, facts: Job) -> Iterator[str]:
        """The mapping rules whose conditions these facts meet, whether or not a value is missing."""
        yield from (rule.key for rule in self._maps if rule.matches(facts))


def _membership(job: Job, rule: MapRule, given: dict[str, Any]) -> dict[str, Any]:
    """VO and VOMS attributes: both if the source has neither; the attributes alone if they belong to the VO of the
    source."""
    if not (rule.vo or rule.fqans) or job.fqans or "vo" in given or "fqans" in given:
        return {}
    fqans = _fqans(job, rule)
    if not job.vo:
        return ({"vo": rule.vo} if rule.vo else {}) | ({"fqans": fqans} if fqans else {})
    return {"fqans": fqans} if fqans and parse_fqan(fqans[0]).vo == job.vo else {}


def _fqans(job: Job, rule: MapRule) -> tuple[str, ...]:
    """The VOMS attributes that a rule gives; of the groups of a token only a single one."""
    if rule.fqans_from is None or rule.vo is None:
        return rule.fqans
    groups = token_groups_of_vo(job.token_groups or (), rule.vo)
    return groups if len(groups) == 1 else ()


def _said(groups: Sequence[str], vo: str) -> str:
    within = token_groups_of_vo(groups, vo)
    if len(within) == 1:
        result = f"{within[0]} is the VOMS attribute"
    elif within:
        result = f"{', '.join(within)}: several, and their order is no rank, so there is only the VO"
    else:
        result = "none, so there is only the VO"
    return f"groups of the token: {', '.join(groups) or 'none'}; the lowest within /{vo}: {result}"


def _others(job: Job, rule: MapRule, given: dict[str, Any]) -> dict[str, Any]:
    values = {"user_dn": rule.dn, "infrastructure": rule.infrastructure, "endpoint_url": rule.submit_host}
    return {fact: value for fact, value in values.items() if value and not getattr(job, fact) and fact not in given}


class Enrichers:
    """The enrichment of every source, by the name of the source. Runs of a source that is no longer configured are
    left as read."""

    def __init__(self, config: Config) -> None:
        self.by_name: dict[str, Enricher] = {
            name: Enricher(name, source, config.map) for name, source in config.sources.items()
        }

    def used_by(self, source: str, job: Job) -> tuple[str, ...]:
        """The rules of the configuration that give a value to a job of this source."""
        enricher = self.by_name.get(source)
        return tuple(sorted(set(enricher.used_by(job, [job.end])))) if enricher is not None else ()

    def fqan_from_groups(self, source: str, job: Job) -> str | None:
        """See `Enricher.fqan_from_groups`."""
        enricher = self.by_name.get(source)
        return enricher.fqan_from_groups(job) if enricher is not None else None

    def bounds(self) -> list[int]:
        """The instants at which another benchmark rule of any source may begin to apply, in order."""
        return sorted({at for enricher in self.by_name.values() for at in enricher.bounds()})

    def apply(self, source: str, job: Job) -> Job:
        """Return the job of this source with the configured values."""
        enricher = self.by_name.get(source)
        return enricher.apply(job) if enricher is not None else job
