"""Jobs that two sources give and a target counts twice: they were sent before they were recognised, or are not by the
rule by which they count once (`publisher.same_job`), which no chance meets.

Here two runs are taken for one job if their batch system's ids may be the same, their clusters do not differ, and they
ended in the same second, or, where one is of a computing element, the other ran in its time. Docs:
reference/counted-once.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection, select

from formats.job import Job
from publisher.collect.target_filter import TargetFilter
from publisher.config.schema import Config
from publisher.job_ids import local_id
from publisher.same_job import LATER_S, ids_of, is_of_element
from publisher.store import paging, registry, runs
from publisher.store.deliveries import deliveries_of
from publisher.store.schema import classes
from publisher.store.schema import runs as table
from publisher.store.stored_run import StoredRun

_SAMPLE: Final = 500
"""How many of the last runs of a source are looked up. Sources that overlap have nearly all jobs in common."""
_SPAN_S: Final = 7 * 86_400


class SharedJobs(msgspec.Struct, frozen=True):
    """How many of the last `looked_at` runs of a source are also runs of another one, and sent to the target as well.

    `example`: the record ids of such a pair.
    """

    target: str
    source: str
    other: str
    shared: int
    looked_at: int
    example: tuple[str, str]

    @property
    def is_certain(self) -> bool:
        """Whether it is more than the chance that two batch systems with equal numbers have."""
        return self.shared >= 3 and self.shared * 20 >= self.looked_at


def shared_jobs(
    connection: Connection, config: Config, targets: Collection[str], since: int | None = None, until: int | None = None
) -> Iterator[SharedJobs]:
    """The jobs that two sources give to one of these targets, among the last runs of each source that ended in between
    (epoch seconds; `until` exclusive)."""
    filters = {name: TargetFilter(name, config.targets[name], config) for name in targets}
    rows = [row for name in config.sources if (row := registry.get_source(connection, name)) is not None]
    if len(rows) < 2:
        return
    for row in rows:
        last = row.last_job_end if until is None else until - 1
        if last is None:
            continue
        first = since if since is not None else last - _SPAN_S
        sample = _last_runs(connection, row.id, first, last)
        pairs = list(_pairs(connection, sample))
        for name, selection in filters.items():
            counted = _counted(connection, name, {each.run_id for pair in pairs for each in pair})
            yield from _shared(
                name, selection, sample, [pair for pair in pairs if {each.run_id for each in pair} <= counted]
            )


def _shared(
    target: str, selection: TargetFilter, sample: Sequence[StoredRun], pairs: Sequence[tuple[StoredRun, StoredRun]]
) -> Iterator[SharedJobs]:
    sent: defaultdict[str, dict[int, tuple[str, str]]] = defaultdict(dict)
    for run, other in pairs:
        if _is_sent(selection, run) and _is_sent(selection, other):
            sent[other.source].setdefault(run.run_id, (run.record_id, other.record_id))
    for other_name, jobs in sent.items():
        example = next(iter(jobs.values()))
        yield SharedJobs(target, sample[0].source, other_name, len(jobs), len(sample), example)


def _counted(connection: Connection, target: str, run_ids: set[int]) -> set[int]:
    """Those of these runs that are not counted elsewhere at a target."""
    from publisher.collect.counted_once import is_counted_elsewhere  # noqa: PLC0415 - loads the rules

    row = registry.get_target(connection, target)
    known = {} if row is None else deliveries_of(connection, row.id, sorted(run_ids))
    return {run_id for run_id in run_ids if run_id not in known or not is_counted_elsewhere(known[run_id])}


def _is_sent(selection: TargetFilter, run: StoredRun) -> bool:
    return selection.why_not(run.source, run.job) is None and selection.selects_end(run.job.end)


def _last_runs(connection: Connection, source_id: int, first: int, last: int) -> list[StoredRun]:
    of_source = select(classes.c.id).where(classes.c.source_id == source_id)
    query = (
        select(table.c.id)
        .where(table.c.end_time >= first, table.c.end_time <= last, table.c.finished == 1)
        .where(table.c.class_id.in_(of_source))
        .order_by(table.c.end_time.desc(), table.c.id.desc())
        .limit(_SAMPLE)
    )
    return runs.by_ids(connection, [row[0] for row in connection.execute(query)])


def _pairs(connection: Connection, sample: Sequence[StoredRun]) -> Iterator[tuple[StoredRun, StoredRun]]:
    """The runs of the sample, each with the runs of other sources that are the same job."""
    by_spelling: defaultdict[str, list[StoredRun]] = defaultdict(list)
    for run in sample:
        for each in ids_of(run.job):
            by_spelling[each].append(run)
            by_spelling[local_id(each).key].append(run)
    query = select(table.c.id, table.c.local_id).where(table.c.finished == 1)
    named = {row[0]: row[1] for row in paging.rows_in(connection, query, table.c.local_id, sorted(by_spelling))}
    own = {run.run_id for run in sample}
    for other in runs.by_ids(connection, sorted(named.keys() - own)):
        for run in by_spelling[named[other.run_id]]:
            if other.source != run.source and _may_be_same_job(run.job, other.job):
                yield run, other


def _may_be_same_job(one: Job, other: Job) -> bool:
    """Whether two runs of different sources may be one job; see the module."""
    if not any(local_id(first).may_be(local_id(second)) for first in ids_of(one) for second in ids_of(other)):
        return False
    if is_of_element(one) or is_of_element(other):
        return (is_of_element(one) and _is_within(other, one)) or (is_of_element(other) and _is_within(one, other))
    if one.cluster and other.cluster and one.cluster.lower() != other.cluster.lower():
        return False
    return one.end is not None and one.end == other.end


def _is_within(inner: Job, outer: Job) -> bool:
    """Whether a run of the batch system was in the time of the computing element's."""
    begin = outer.submit if outer.submit is not None else outer.start
    if begin is None or outer.end is None or inner.start is None or inner.end is None:
        return False
    return begin - LATER_S <= inner.start and inner.end <= outer.end + LATER_S
