"""The rules of the configuration made ready to be asked: which runs each is for. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate
from typing import Final

from formats.job import Benchmark, Job
from publisher.config import BenchmarkRule, MapRule
from publisher.told import LOCAL, local_tells

_FACTS: Final = {"dn": "user_dn"} | {name: name for name in (*LOCAL, "queue", "token_issuer", "token_subject")}
"""The fact that each condition of a mapping rule looks at."""


class Matcher:
    """Patterns as in names of files, of which one must match a whole text: `*`, `?`, `[...]`; letters are exact."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._plain = frozenset(pattern for pattern in patterns if not set(pattern) & set("*?["))
        wild = [translate(pattern) for pattern in patterns if pattern not in self._plain]
        self._wild = re.compile("|".join(f"(?:{pattern})" for pattern in wild)) if wild else None

    def matches(self, text: str | None) -> bool:
        """Whether a text matches; what is not told, or empty, matches nothing."""
        if not text:
            return False
        return text in self._plain or (self._wild is not None and self._wild.match(text) is not None)


class Mapping:
    """A mapping rule made ready. `key` is where it stands in the configuration, `facts` what it looks at."""

    def __init__(self, key: str, rule: MapRule) -> None:
        self.key = key
        self.rule = rule
        given = {name: getattr(rule.when, name) for name in _FACTS if getattr(rule.when, name) is not None}
        self._local = any(name in LOCAL for name in given)
        self._conditions = tuple((_FACTS[name], Matcher(patterns)) for name, patterns in given.items())
        self.facts = tuple(fact for fact, _ in self._conditions)

    def matches(self, job: Job) -> bool:
        """Whether a run, or a class of runs, meets every condition."""
        if self._local and not local_tells(job):
            return False
        return all(matcher.matches(getattr(job, fact)) for fact, matcher in self._conditions)


class Scoring:
    """A benchmark rule made ready. `key` is where it stands in the configuration."""

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
