"""summaries: snapshots of whole months, sent when they changed, each replacing the one before at the service.

A month is summarised only if every source that feeds it is known from the month's first second on; otherwise it is held
with the reason, and released by itself once that is so. A group that vanished is sent with zero jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from formats.month import Month, month_bounds, month_numbered
from formats.record import CannotRenderError
from formats.registry import summary_format
from formats.summary import Fold, Group
from formats.view import View
from publisher.config import Config
from publisher.config import Target as TargetSettings
from publisher.observe.events import RecordSettled, TargetPaused
from publisher.pipeline.collect import TargetPlan
from publisher.pipeline.demand import Demand
from publisher.pipeline.group_sender import GroupSender, Mail, Members
from publisher.pipeline.post import Patience
from publisher.pipeline.sent import Sent
from publisher.pipeline.sync import SyncSender
from publisher.pipeline.tools import StopSending, Tools
from publisher.pipeline.wholeness import NOT_WHOLE, why_not_whole
from publisher.store import batches, deliveries, groups
from publisher.store.database import Store
from publisher.store.deliveries import Waiting
from publisher.store.groups import GroupRow
from publisher.store.states import State
from publisher.targets.base import Target

_PAGE: Final = 5000


class Summariser:
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
        self._store = store
        self._config = config
        self._target = target
        self._target_id = plan.target_id
        self._settings = settings
        self._view = view
        self._tools = tools
        self._demand = Demand(config, settings)
        self._format = summary_format(settings.records, view)
        self._normalised = settings.records == "apel-normalised-summary"
        self.sent = Sent()
        patience = Patience(settings)
        self._sender = GroupSender(
            store, target, plan.target_id, settings, self._format, groups.SUMMARY, tools, patience, self.sent
        )
        self._sync = SyncSender(store, config, target, plan, settings, view, tools, patience, self.sent)

    def run(self) -> None:
        """Send what changed, month by month, then the sync counts.

        Raises `StoreError`, `CredentialError`, `SigningError`; before that, everything unsent waits again.
        """
        try:
            self._release_held()
            with self._store.write() as connection:
                deliveries.put_back(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())
                batches.close_open(connection, self._target_id, self._tools.clock())
                months = set(deliveries.months_of(connection, self._target_id, State.WAITING))
                months.update(map(month_numbered, groups.unsettled(connection, self._target_id, groups.SUMMARY)))
                refold = groups.marked(connection, self._target_id, groups.REFOLD)
            for month in sorted(months.union(refold)):
                if self._month(month) and month in refold:
                    with self._store.write() as connection:
                        groups.unmark(connection, self._target_id, groups.REFOLD, month, refold[month])
            self._sync.run()
        except StopSending as stop:
            self.sent.paused = str(stop)
            self._tools.observer(TargetPaused(self._target.name, str(stop)))
        finally:
            with self._store.write() as connection:
                deliveries.put_back(connection, self._target_id, State.IN_FLIGHT, self._tools.clock())

    def _release_held(self) -> None:
        with self._store.write() as connection:
            for month in deliveries.months_of(connection, self._target_id, State.HELD):
                if why_not_whole(self._store, self._config, self._settings, month) is None:
                    deliveries.move_between(
                        connection,
                        self._target_id,
                        month_bounds(month),
                        State.HELD,
                        State.WAITING,
                        None,
                        self._tools.clock(),
                        only_reason=NOT_WHOLE,
                    )

    def _month(self, month: Month) -> bool:
        """Send what changed of a month; False where it is held."""
        reason = why_not_whole(self._store, self._config, self._settings, month)
        now = self._tools.clock()
        if reason is not None:
            with self._store.write() as connection:
                self.sent.held += deliveries.move_between(
                    connection, self._target_id, month_bounds(month), State.WAITING, State.HELD, reason, now
                )
            return False
        fold, members, held = self._fold(month)
        mails, unchanged = self._changed(month, fold, members)
        with self._store.write() as connection:
            self.sent.held += deliveries.move_seen(
                connection,
                self._target_id,
                ((one.run.run_id, one.seen, State.WAITING, State.HELD, why) for one, why in held),
                now,
            )
            deliveries.move_seen(
                connection,
                self._target_id,
                ((*one, State.WAITING, State.ACCEPTED, None) for group in unchanged for one in group.seen),
                now,
            )
            if mails or held:
                groups.mark(connection, self._target_id, groups.DUE, [month_bounds(month)[0]], now)
        for one, why in held:
            self._tools.observer(RecordSettled(self._target.name, one.run.record_id, State.HELD.word, why))
        self._sender.send(mails)
        return True

    def _fold(self, month: Month) -> tuple[Fold, dict[str, Members], list[tuple[Waiting, str]]]:
        """The month folded anew from all its runs; the waiting runs of each group; those that cannot be summarised."""
        fold = Fold(self._view, normalised=self._normalised)
        members: dict[str, Members] = {}
        held: list[tuple[Waiting, str]] = []
        after: tuple[int, int] | None = None
        bounds = month_bounds(month)
        while True:
            with self._store.read() as connection:
                page = deliveries.ended_in(connection, self._target_id, bounds, after, _PAGE)
            for state, delivery in page:
                if state in {State.WAIVED, State.SUPERSEDED, State.HELD}:
                    continue
                run = delivery.run
                try:
                    key = fold.add(self._demand.meet(run))
                except CannotRenderError as error:
                    if state is State.WAITING:
                        held.append((delivery, str(error)))
                    continue
                if state is State.WAITING:
                    members.setdefault(key.text, Members()).add(run.run_id, run.digest, delivery.seen)
            if len(page) < _PAGE:
                return fold, members, held
            last = page[-1][1].run
            assert last.job.end is not None  # chosen by it
            after = (last.job.end, last.run_id)

    def _changed(self, month: Month, fold: Fold, members: dict[str, Members]) -> tuple[list[Mail], list[Members]]:
        """The groups to send, and the waiting runs of groups that the service already has as they are."""
        with self._store.read() as connection:
            known = groups.of_month(connection, self._target_id, groups.SUMMARY, month.number)
        owed = owed_groups(fold, known)
        mails = [self._mail(month, group, members.pop(group.key.text, Members())) for group in owed]
        return mails, list(members.values())

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
