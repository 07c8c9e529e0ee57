"""Sync counts sent last, so that the service can check that it has every job."""

from __future__ import annotations

from formats.calendar import Month
from formats.registry import sync_format
from formats.summary import SyncCount
from formats.view import View
from publisher.collect.collect import TargetPlan
from publisher.collect.enrich import Enrichers
from publisher.collect.wants import sends_sync
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.messages.item import Mail, Members
from publisher.messages.sync import owed_by_host, to_send
from publisher.publish.context import Tools
from publisher.publish.group_sender import GroupSender
from publisher.publish.post import RetryBudget
from publisher.publish.stats import DeliveryStats
from publisher.store import groups
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
        patience: RetryBudget,
        sent: DeliveryStats,
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
