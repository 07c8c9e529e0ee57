"""Summaries sent: month by month, then the sync counts."""

from __future__ import annotations

from formats.calendar import Month, Period, month_bounds, month_of
from formats.registry import summary_format
from formats.view import View
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.messages.completeness import why_not_whole
from publisher.messages.summaries import MonthSummaries, months_to_fold
from publisher.publish.context import Tools
from publisher.publish.group_sender import GroupSender
from publisher.publish.post import RetryBudget
from publisher.publish.snapshots import SnapshotSender
from publisher.publish.sync import SyncSender
from publisher.store import groups
from publisher.store.database import Store
from publisher.targets.base import Target


class Summariser(SnapshotSender):
    """Sends the summaries and sync counts that one target is owed. Made for one run."""

    def __init__(
        self,
        store: Store,
        config: Config,
        target: Target,
        plan: TargetPlan,
        settings: TargetSettings,
        view: View,
        tools: Tools,
    ) -> None:
        super().__init__(store, config, target.name, plan.target_id, settings, tools)
        form = summary_format(settings.records, view)
        self._summaries = MonthSummaries(store, config, settings, plan.target_id, form, view)
        patience = RetryBudget(settings)
        self._sender = GroupSender(
            store, target, plan.target_id, settings, form, groups.SUMMARY, tools, patience, self.sent
        )
        self._sync = SyncSender(store, config, target, plan, settings, view, tools, patience, self.sent)

    def _send_changed(self) -> None:
        """Month by month, then the sync counts."""
        months, refold = months_to_fold(self._store, self._target_id)
        for month in sorted(months):
            if self._month(month) and month in refold:
                self._unmark({month: refold[month]})
        self._sync.run()

    def _why_not_whole(self, period: Period) -> str | None:
        """Of a month alone: what is unknown of a later one is in none of its summaries."""
        return why_not_whole(self._store, self._config, self._settings, month_of(period.start))

    def _month(self, month: Month) -> bool:
        """Send what changed of a month; False where it is held."""
        bounds = month_bounds(month)
        reason = why_not_whole(self._store, self._config, self._settings, month)
        if reason is not None:
            self._hold(bounds, reason)
            return False
        due = self._summaries.due(month, self._tools.clock())
        self._settle_unsent(due.unchanged, due.held)
        if due.changes_sync:
            with self._store.write() as connection:
                groups.mark(connection, self._target_id, groups.DUE, [bounds[0]], self._tools.clock())
        self._sender.send(due.mails)
        return True
