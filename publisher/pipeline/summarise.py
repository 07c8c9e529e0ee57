"""summaries: snapshots of whole months, sent when they changed, each replacing the one before at the service.

A month is summarised only if every source that feeds it is known from the month's first second on; otherwise it is held
with the reason, and released by itself once that is so. A group that vanished is sent with zero jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

from formats.month import Month, month_bounds, month_numbered, month_of
from formats.period import Period
from formats.registry import summary_format
from formats.summary import Fold, Group
from formats.view import View
from publisher.config import Config
from publisher.config import Target as TargetSettings
from publisher.pipeline import erased_groups
from publisher.pipeline.collect import TargetPlan
from publisher.pipeline.demand import Demand
from publisher.pipeline.group_sender import GroupSender, Mail, Members
from publisher.pipeline.month_fold import MonthFold, MonthFolder
from publisher.pipeline.post import Patience
from publisher.pipeline.snapshots import SnapshotSender
from publisher.pipeline.sync import SyncSender
from publisher.pipeline.tools import Tools
from publisher.pipeline.wholeness import why_not_whole
from publisher.store import deliveries, groups, ledger
from publisher.store.database import Store
from publisher.store.groups import GroupRow
from publisher.store.states import State
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
        self._view = view
        self._folder = MonthFolder(store, plan.target_id, Demand(config, settings))
        self._format = summary_format(settings.records, view)
        patience = Patience(settings)
        self._sender = GroupSender(
            store, target, plan.target_id, settings, self._format, groups.SUMMARY, tools, patience, self.sent
        )
        self._sync = SyncSender(store, config, target, plan, settings, view, tools, patience, self.sent)

    def _send_changed(self) -> None:
        """Month by month, then the sync counts."""
        with self._store.read() as connection:
            months = set(ledger.months_of(connection, self._target_id, State.WAITING))
            months.update(map(month_numbered, groups.unsettled(connection, self._target_id, groups.SUMMARY)))
            refold = groups.marked(connection, self._target_id, groups.REFOLD)
        for month in sorted(months.union(refold)):
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
        folded = self._folder.fold(month, Fold(self._view, normalised=self._format.normalised))
        mails, unchanged = self._changed(month, folded)
        mails = self._without_erased(month, mails)
        self._settle_unsent(unchanged, folded.held)
        if mails or folded.held:
            with self._store.write() as connection:
                groups.mark(connection, self._target_id, groups.DUE, [bounds[0]], self._tools.clock())
        self._sender.send(mails)
        return True

    def _changed(self, month: Month, folded: MonthFold) -> tuple[list[Mail], list[Members]]:
        """The groups to send, and the waiting runs of groups that the service already has as they are."""
        with self._store.read() as connection:
            known = groups.of_month(connection, self._target_id, groups.SUMMARY, month.number)
        owed = owed_groups(folded.fold, known)
        members = dict(folded.members)
        mails = [self._mail(month, group, members.pop(group.key.text, Members())) for group in owed]
        return mails, list(members.values())

    def _without_erased(self, month: Month, mails: list[Mail]) -> list[Mail]:
        """What can be sent: the jobs of summaries that the service has under an erased name are held."""
        with self._store.read() as connection:
            fixed = erased_groups.fixed(connection, self._target_id, month, self._view, self._tools.clock())
        kept = [mail for mail in mails if mail.row.key in fixed]
        if kept:
            late = ((*one, State.WAITING, State.HELD, erased_groups.HELD) for mail in kept for one in mail.members)
            with self._store.write() as connection:
                self.sent.held += deliveries.move_seen(connection, self._target_id, late, self._tools.clock())
        return [mail for mail in mails if mail.row.key not in fixed]

    def _mail(self, month: Month, group: Group, waiting: Members) -> Mail:
        body = self._format.record(group).body
        row = GroupRow(month.number, group.key.text, State.WAITING, group.digest, group.jobs, group.to_json())
        return Mail(row, body, group.latest, waiting)


def owed_groups(fold: Fold, known: Mapping[str, GroupRow]) -> list[Group]:
    """The groups of a month that the service has not got as they are; those that vanished come last, with no jobs."""
    groups_now = {group.key.text: group for group in fold.groups()}

    def has(group: Group) -> bool:
        row = known.get(group.key.text)
        return row is not None and row.state is State.ACCEPTED and row.digest == group.digest

    return [group for group in groups_now.values() if not has(group)] + [
        Group.from_json(row.body).zeroed
        for key, row in known.items()
        if key not in groups_now and (row.jobs or row.state is not State.ACCEPTED)
    ]
