"""What the ledger and the evidence need of APEL's summaries and sync counts, besides their sums."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from formats.apel import values
from formats.apel.fold import Group, SyncCount, SyncKey, group_without_score, normalised_seconds
from formats.benchmark import normalised_from
from formats.calendar import Month
from formats.columns import MISSING, TOTAL_DIMENSIONS, TotalColumns, Value, comparable
from formats.hosts import infrastructure_of
from formats.job import Job
from formats.text import duration_seconds
from formats.totals import NamedPersons, TotalUsage
from formats.view import View

SYNC_DIMENSIONS: Final = ("site", "submit_host")
_SCORES: Final = frozenset({"benchmark", "score_milli"})
_ANY_MONTH: Final = Month(1970, 1)


def sync_count(group: Group) -> SyncCount:
    """The sync count that goes with a summary; of one month and submit host they are added up."""
    key = group.spelling
    spelling = SyncKey(key.site, key.year, key.month, key.submit_host)
    return SyncCount(spelling.folded(), spelling, group.jobs)


def usage(group: Group) -> TotalUsage:
    """The usage of the runs of a summary, all of which have its number of processors."""
    return TotalUsage(group.jobs, group.wall_ms * (group.key.processors or 1), group.cpu_ms)


def columns(group: Group) -> TotalColumns:
    """A summary as the server stores it: durations in whole seconds, which it multiplies by the score itself."""
    fields = {name: comparable(getattr(group.key, name)) for name in TOTAL_DIMENSIONS}
    wall_s, cpu_s = duration_seconds(group.wall_ms), duration_seconds(group.cpu_ms)
    normalised: list[float]
    if group.key.score_milli:
        normalised = [
            normalised_from(seconds, group.key.benchmark, group.key.score_milli) for seconds in (wall_s, cpu_s)
        ]
    else:
        normalised = [normalised_seconds(seconds) for seconds in (group.normalised_wall, group.normalised_cpu)]
    return TotalColumns(
        group.key.when, fields, group.jobs, wall_s, cpu_s, normalised[0], normalised[1], group.earliest, group.latest
    )


def sync_columns(count: SyncCount) -> TotalColumns:
    """A sync count as the server stores it."""
    key = count.key
    fields: dict[str, Value] = {"site": comparable(key.site), "submit_host": comparable(key.submit_host)}
    return TotalColumns(key.when, fields, count.jobs)


def dimensions_of_run(job: Job, view: View, *, names_submit_host_of_local_jobs: bool = True) -> dict[str, Value]:
    """The fields by which the records of runs with these facts are added up, without the benchmark, as `comparable`.

    Raises `CannotRenderError` for facts without a usable site or submit host.
    """
    key = group_without_score(job, _ANY_MONTH, view, [])
    fields = {name: comparable(getattr(key, name)) for name in TOTAL_DIMENSIONS if name not in _SCORES}
    if not names_submit_host_of_local_jobs and infrastructure_of(job) == "local":
        fields["submit_host"] = MISSING
    return fields


def _spelled(view: View, name: str) -> str:
    return values.user_name(Job(record_id="", system="", status="completed", user_dn=name), view, [])


def _renamed(group: Group, _names: Collection[str], name: str) -> Group:
    spelling = msgspec.structs.replace(group.spelling, user=name)
    return msgspec.structs.replace(group, spelling=spelling, key=spelling.folded(), notes=())


PERSONS: Final = NamedPersons(spelled=_spelled, names=lambda group: (group.spelling.user,), renamed=_renamed)
