"""What a report counts of a run.

Promise kept here: every line of an act_file is counted, as DQS' own programs do (DQS accounting manual, "Internals"):
slaves' lines separately, and for a run what its master's line has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import translate
from functools import lru_cache
from typing import Final

import msgspec

from formats.calendar import month_of
from formats.ending import ending_of
from formats.job import Job
from formats.utilization.measure import KEYS, Ran
from publisher.errors import UsageError
from publisher.job_ids import JobIds, JobPattern, ids_of
from publisher.sources.dqs import without_slaves

RESERVATION: Final = ("arid", "Reservation", "resvID", "resvname", "rsvId")
"""Names of the advance reservation of a run in its `extras`: Grid Engine, Slurm, PBS, and LSF."""
_RANGE: Final = re.compile(r"(\d{1,9})-(\d{1,9})(?::(\d{1,9}))?", re.ASCII)


class ReportedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run for reports: `facts` by the names of `KEYS`; instants in epoch seconds, durations in ms."""

    facts: dict[str, tuple[str, ...]]
    """The values of the run for each key but `job`; empty where its source has none. The first counts in totals."""
    ids: JobIds
    ran: Ran
    wall_ms: int
    cpu_ms: int
    memory_kib: int

    def first(self, key: str) -> str:
        """The value of a key under which the run is counted; empty if it has none."""
        if key == "month":
            return str(month_of(self.ran.stop))
        values = self.facts[key]
        return values[0] if values else ""


class Filters:
    """Patterns by the names of `KEYS`, with the wildcards of file names; a run must match all of them.

    (DQS accounting manual, "Matching a Job to a Request".) Raises ValueError for an unknown key, and `UsageError` as
    `word_test`.
    """

    def __init__(self, patterns: Mapping[str, str]) -> None:
        for key in patterns:
            if key not in KEYS:
                raise ValueError(f"{key!r} is not a filter; known: {', '.join(KEYS)}")
        self._tests = {key: word_test(key, text) for key, text in patterns.items() if key != "job"}
        self._is_asked = JobPattern(patterns["job"]) if "job" in patterns else None

    def match(self, facts: Mapping[str, tuple[str, ...]], ids: JobIds) -> bool:
        """Whether an entry with these facts and ids is selected."""
        if self._is_asked is not None and not self._is_asked(ids):
            return False
        return all(any(map(test, facts[key])) for key, test in self._tests.items())


@lru_cache(maxsize=256)
def word_test(key: str, text: str) -> Callable[[str], bool]:
    """Return a test of whether a value matches a pattern; for `task` also a range, as in qacct: `1-10:2`.

    Raises `UsageError` for an invalid range.
    """
    if key == "task" and (task_range := _RANGE.fullmatch(text)):
        first, last, step = int(task_range[1]), int(task_range[2]), int(task_range[3] or 1)
        if step < 1 or last < first:
            raise UsageError(f"--task {text}: not a range of tasks such as 1-10 or 1-10:2")
        tasks = range(first, last + 1, step)
        return lambda word: word.isdecimal() and int(word) in tasks
    match = re.compile(translate(text)).match
    return lambda word: match(word) is not None


def entries_of(job: Job) -> list[ReportedRun]:
    """The entries that are counted of a run; empty if it has not ended, or its times are unknown."""
    if not job.finished:
        return []
    job = without_slaves(job)
    ran = _ran(job)
    if ran is None:
        return []
    wall_ms = job.wall_ms if job.wall_ms is not None else max(ran.stop - ran.start, 0) * 1000
    cpu_ms = job.cpu_ms if job.cpu_ms is not None else ran.user_ms + ran.system_ms
    return [
        ReportedRun(
            facts=facts_of(job),
            ids=ids_of(job),
            ran=ran,
            wall_ms=wall_ms,
            cpu_ms=cpu_ms,
            memory_kib=job.memory_rss_kib or 0,
        )
    ]


def rans_of(job: Job) -> list[Ran]:
    """When the entries of a run ran: all that is needed where nothing is filtered."""
    if not job.finished:
        return []
    ran = _ran(without_slaves(job))
    return [ran] if ran is not None else []


def _ran(job: Job) -> Ran | None:
    """When the payload ran. CPU time that the source does not split counts as user time."""
    stop = job.execution_end if job.execution_end is not None else job.end
    start = job.execution_start if job.execution_start is not None else job.start
    if stop is None:
        return None
    counted_back = stop - job.wall_ms // 1000 if job.wall_ms is not None else None
    if start is None:
        if counted_back is None:
            return None
        start = counted_back
    elif job.execution_start is None and start == job.submit and counted_back is not None:
        start = max(start, counted_back)  # ARC without LRMSSTART: it waited, or never ran
    if job.cpu_user_ms is None and job.cpu_system_ms is None:
        user_ms, system_ms = job.cpu_ms or 0, 0
    else:
        user_ms, system_ms = job.cpu_user_ms or 0, job.cpu_system_ms or 0
    return Ran(start, stop, user_ms, system_ms, _slots(job))


def _slots(job: Job) -> int:
    return job.slots or job.cores or 1


def reservations(extras: Mapping[str, object]) -> tuple[str, ...]:
    """The advance reservation of a run: its id, and its name if the source has both."""
    return tuple(str(extras[name]) for name in RESERVATION if extras.get(name))


def facts_of(job: Job) -> dict[str, tuple[str, ...]]:
    """The values of a run by the names of `KEYS` but `job`; see `ReportedRun.facts`."""
    values: dict[str, tuple[str | None, ...]] = {
        "queue": (job.queue,),
        "host": tuple(host.name for host in job.hosts),
        "complex": complex_items(job.extras.get("complex", ""), job.extras.get("category", "")),
        "group": (job.local_group,),
        "user": (job.local_user or job.user_dn,),
        "vo": (job.vo,),
        "project": (job.project,),
        "account": (job.account,),
        "department": (job.department,),
        "status": (job.status,),
        "pe": (job.parallel_environment,),
        "slots": (str(_slots(job)),),
        "task": (str(job.array_task) if job.array_task is not None else None,),
        "cluster": (job.cluster,),
        "reservation": reservations(job.extras),
        "dn": (job.user_dn,),
        "ending": (ending_of(job.system, job.status, job.end_reason),),
    }
    return {key: tuple(value for value in several if value) for key, several in values.items()}


def complex_items(resources: object, category: object = "") -> tuple[str, ...]:
    """The resources of a DQS queue, or those that a job requested from Grid Engine (`-l a=1,b=2` in its category)."""
    words = str(category).split() if category else []
    asked = [words[place + 1] for place, word in enumerate(words[:-1]) if word == "-l"]
    return tuple(item.strip() for text in (str(resources), *asked) for item in text.split(",") if item.strip())
