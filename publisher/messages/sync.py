"""sync: how many jobs the site owes for a month and submit host, so that the service can see that it has them all.

Goes last. Counted from classes, not from runs: what is accepted, waiting, in flight, held and rejected.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from formats.base import CannotRenderError
from formats.calendar import Month, month_bounds
from formats.summary import SyncCount, SyncFold
from formats.view import View
from publisher.collect.enrich import Enrichers
from publisher.store import groups, sums
from publisher.store.admin import purge
from publisher.store.classes import awaits_grid_log, classes_by_id
from publisher.store.database import Store
from publisher.store.schema import State


def owed_by_host(store: Store, enrichers: Enrichers, view: View, target_id: int, month: Month) -> list[SyncCount]:
    """What the site owes a target for a month, by submit host; nothing where nobody can tell any more."""
    total = SyncFold(view)
    bounds = month_bounds(month)
    with store.read() as connection:
        kept = groups.of_month(connection, target_id, groups.KEPT_SYNC, month.number)
        if not kept and month.number in purge.months(connection):
            return []  # purged before the service had a count: what is left is not what the site owes
        owed = sums.owed_by_class(connection, target_id, bounds)
        for job_class in classes_by_id(connection, list(owed)):
            if awaits_grid_log(job_class.facts):
                continue  # held; counted when it is known through which submit host it came
            job = enrichers.apply(job_class.source, job_class.facts)
            one = SyncFold(view)
            try:
                one.add(msgspec.structs.replace(job, end=bounds[0]))
            except CannotRenderError:
                continue  # no site or submit host: such runs are held, and there is no count they could stand in
            for counted in one.counts():
                total.merge_count(msgspec.structs.replace(counted, jobs=owed[job_class.id]))
        for row in kept.values():
            total.merge_count(SyncCount.from_json(row.body))
    return list(total.counts())


def to_send(store: Store, target_id: int, month: Month, counts: Iterable[SyncCount]) -> list[SyncCount]:
    """The counts of a month that the service has not got as they are; those that vanished come last, with no jobs."""
    with store.read() as connection:
        known = groups.of_month(connection, target_id, groups.SYNC, month.number)
    now = {count.key.text: count for count in counts}
    now |= {key: SyncCount.from_json(row.body).zeroed for key, row in known.items() if key not in now and row.jobs}
    return [
        count
        for key, count in now.items()
        if key not in known or known[key].digest != count.digest or known[key].state is not State.ACCEPTED
    ]
