"""Jobs and times by month and VO or user: the values that are compared between source, store, and services."""

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
    """A month of end times (its number), and a VO or user; `of` is empty for all runs, or where neither is known."""

    month: int
    of: str = ""


class Amounts(msgspec.Struct, frozen=True):
    """Jobs, wall time times cores, and CPU time of all cores; what is unknown of a run is 0. May be negative."""

    jobs: int = 0
    core_ms: int = 0
    cpu_ms: int = 0

    def plus(self, other: Amounts) -> Amounts:
        """The sum of both."""
        return Amounts(self.jobs + other.jobs, self.core_ms + other.core_ms, self.cpu_ms + other.cpu_ms)

    def minus(self, other: Amounts) -> Amounts:
        """The difference of both."""
        return Amounts(self.jobs - other.jobs, self.core_ms - other.core_ms, self.cpu_ms - other.cpu_ms)


NOTHING: Final = Amounts()

AmountsByKey = defaultdict[SumsKey, Amounts]


def cores_of(facts: Job) -> int:
    """The number of cores by which the wall time of a run is multiplied."""
    return facts.cores or facts.slots or 1


class ClassLabels:
    """For the runs of a class: their VO or user, as `by` says, and the number of cores that multiplies their wall time.

    None for runs without a record, such as slaves: they are in no sum.
    """

    def __init__(self, store: Store, enrichers: Enrichers, by: By | None) -> None:
        self._store = store
        self._enrichers = enrichers
        self._label: Callable[[Job], str] = _LABELS[by]
        self._known: dict[int, tuple[str, int] | None] = {}

    def of(self, class_ids: Sequence[int]) -> dict[int, tuple[str, int] | None]:
        """Labels by class id."""
        unknown = sorted({class_id for class_id in class_ids if class_id not in self._known})
        if unknown:
            with self._store.read() as connection:
                for job_class in classes_by_id(connection, unknown):
                    self._known[job_class.id] = (
                        self.of_facts(job_class.source, job_class.facts) if job_class.facts.has_record else None
                    )
        return {class_id: self._known[class_id] for class_id in class_ids}

    def of_facts(self, source: str, facts: Job) -> tuple[str, int]:
        """Label of a run with these facts, without looking at its class."""
        return self._label(self._enrichers.apply(source, facts)), cores_of(facts)


def _user(job: Job) -> str:
    return to_slash(job.user_dn) if job.user_dn else job.token_subject or job.local_user or ""


_LABELS: Final[dict[By | None, Callable[[Job], str]]] = {
    None: lambda _job: "",
    "vo": lambda job: vo_of(job) or "",
    "user": _user,
}


def months_bounds(months: Sequence[Month]) -> tuple[int, int]:
    """First second of the first month, and first second after the last; the months are in order."""
    return month_bounds(months[0])[0], month_bounds(months[-1])[1]
