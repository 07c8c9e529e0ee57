"""Amounts of runs by month and by whose they are: what the sums of source, store, and services are made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from formats.calendar import Month, month_bounds
from formats.job import Job
from formats.names import to_slash, vo_of
from publisher.collect.enrich import Enrichers
from publisher.store.classes import classes_by_id
from publisher.store.database import Store

By = Literal["vo", "user"]


class SumsKey(NamedTuple):
    """Of which month the ends are (its number), and whose the runs are: empty where all are added up or none says."""

    month: int
    of: str = ""


class Amounts(msgspec.Struct, frozen=True):
    """Jobs, wall time times cores, and CPU time of all cores; what is unknown of a run is 0. May be negative."""

    jobs: int = 0
    core_ms: int = 0
    cpu_ms: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """Both together."""
        return Amounts(self.jobs + other.jobs, self.core_ms + other.core_ms, self.cpu_ms + other.cpu_ms)

    def minus(self, other: Amounts) -> Amounts:
        """What is left without the other."""
        return Amounts(self.jobs - other.jobs, self.core_ms - other.core_ms, self.cpu_ms - other.cpu_ms)


NOTHING: Final = Amounts()

AmountsByKey = defaultdict[SumsKey, Amounts]


def cores_of(facts: Job) -> int:
    """By how many cores the wall time of a run counts."""
    return facts.cores or facts.slots or 1


class ClassLabels:
    """Of the runs of a class: whose they are by `by`, and by how many cores their wall time counts.

    Runs that have no record, slaves for instance, are None: they are in no sum.
    """

    def __init__(self, store: Store, enrichers: Enrichers, by: By | None) -> None:
        self._store = store
        self._enrichers = enrichers
        self._label: Callable[[Job], str] = _LABELS[by]
        self._known: dict[int, tuple[str, int] | None] = {}

    def of(self, class_ids: Sequence[int]) -> dict[int, tuple[str, int] | None]:
        """Of these classes."""
        unknown = sorted({class_id for class_id in class_ids if class_id not in self._known})
        if unknown:
            with self._store.read() as connection:
                for each in classes_by_id(connection, unknown):
                    self._known[each.id] = self.of_facts(each.source, each.facts) if each.facts.has_record else None
        return {class_id: self._known[class_id] for class_id in class_ids}

    def of_facts(self, source: str, facts: Job) -> tuple[str, int]:
        """Of a run of this source with these facts."""
        return self._label(self._enrichers.apply(source, facts)), cores_of(facts)


def _user(job: Job) -> str:
    return to_slash(job.user_dn) if job.user_dn else job.token_subject or job.local_user or ""


_LABELS: Final[dict[By | None, Callable[[Job], str]]] = {
    None: lambda _job: "",
    "vo": lambda job: vo_of(job) or "",
    "user": _user,
}


def months_bounds(months: Sequence[Month]) -> tuple[int, int]:
    """From the beginning of the first to the end of the last of these months, which are in order."""
    return month_bounds(months[0])[0], month_bounds(months[-1])[1]
