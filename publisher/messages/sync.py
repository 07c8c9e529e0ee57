"""sync: how many jobs the site owes for a month and submit host, so that the service can see that it has them all.

Goes last. Counted from classes, not from runs: what is accepted, waiting, in flight, held and rejected.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from formats.base import CannotRenderError
from formats.calendar import Month, month_bounds
from formats.registry import sync_format
from formats.summary import SyncCount, SyncFold
from formats.view import View
from publisher.collect.collect import TargetPlan
from publisher.collect.enrich import Enrichers
from publisher.collect.wants import sends_sync
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.publish.context import Tools
from publisher.publish.group_sender import GroupSender, Mail, Members
from publisher.publish.post import Patience
from publisher.publish.stats import Sent
from publisher.store import groups, sums
from publisher.store.admin import purge
from publisher.store.classes import awaits_grid_log, classes_by_id
from publisher.store.database import Store
from publisher.store.groups import GroupRow
from publisher.store.schema import State
from publisher.targets.base import Target


class SyncSender:
    """Sends the sync counts that are due. Does nothing for a target without them."""

    def __init__(
        self,
        store: Store,
        config: Config,
        target: Target,
        plan: TargetPlan,
        settings: TargetSettings,
        view: View,
        tools: Tools,
        patience: Patience,
        sent: Sent,
    ) -> None:
        self._store = store
        self._target_id = plan.target_id
        self._view = view
        self._enrichers = Enrichers(config)
        self._wanted = sends_sync(settings)
        self._format = sync_format(view)
        self._sender = GroupSender(
            store, target, plan.target_id, settings, self._format, groups.SYNC, tools, patience, sent
        )

    def run(self) -> None:
        """Count and send every month that is due. Raises `StopSending`, and errors as posting does."""
        if not self._wanted:
            return
        with self._store.read() as connection:
            months = groups.marked(connection, self._target_id, groups.DUE)
        for month, times in months.items():
            self._sender.send(self._changed(month))
            with self._store.write() as connection:
                groups.unmark(connection, self._target_id, groups.DUE, month, times)

    def _changed(self, month: Month) -> list[Mail]:
        counts = owed_by_host(self._store, self._enrichers, self._view, self._target_id, month)
        return [self._mail(month, count) for count in to_send(self._store, self._target_id, month, counts)]

    def _mail(self, month: Month, count: SyncCount) -> Mail:
        row = GroupRow(month.number, count.key.text, State.WAITING, count.digest, count.jobs, count.to_json())
        return Mail(row, self._format.record(count).body, None, Members())


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
