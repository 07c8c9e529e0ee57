"""summaries: snapshots of whole months, sent when they changed, each replacing the one before at the service.

A month is summarised only if every source that feeds it is known from the month's first second on; otherwise it is held
with the reason, and released by itself once that is so. A group that vanished is sent with zero jobs.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from formats.apel.summary import SummaryFormat
from formats.calendar import Month, month_numbered
from formats.summary import Fold, Group
from formats.view import View
from publisher.collect.wants import RunPreparer
from publisher.config.schema import Config
from publisher.config.schema import Target as TargetSettings
from publisher.messages import erased_groups
from publisher.messages.item import Mail, Members
from publisher.messages.month_fold import MonthFolder
from publisher.store import groups, queries
from publisher.store.database import Store
from publisher.store.groups import GroupRow
from publisher.store.schema import State


class DueMonth(msgspec.Struct, frozen=True):
    """What a month comes to: the groups as they are now, those of them (or zeroed ones) to be sent, the waiting runs of
    groups that the service has as they are, and the runs that are to be held, by the reason. `fixed`: the keys of the
    summaries that the service has under the name of an erased person; they are in none of the groups."""

    groups: list[Group]
    mails: list[Mail]
    unchanged: list[Members]
    held: dict[str, Members]
    fixed: frozenset[str]

    @property
    def changes_sync(self) -> bool:
        """Whether the sync counts of the month are due with it."""
        return bool(self.mails or self.held)


class MonthSummaries:
    """What one target is due of a month in summaries: for publishing, and for showing what publishing would do."""

    def __init__(
        self, store: Store, config: Config, settings: TargetSettings, target_id: int, form: SummaryFormat, view: View
    ) -> None:
        self._store = store
        self._target_id = target_id
        self._view = view
        self._format = form
        self._folder = MonthFolder(store, target_id, RunPreparer(config, settings))

    def due(self, month: Month, now: int, *, released: bool = False, whole: bool = False) -> DueMonth:
        """What is due of a month that is known whole, at `now` (epoch seconds).

        `released` as for `MonthFolder.fold`; `whole`: all groups are to be sent, whatever the service has.
        """
        folded = self._folder.fold(month, Fold(self._view, normalised=self._format.normalised), released=released)
        with self._store.read() as connection:
            known = groups.of_month(connection, self._target_id, groups.SUMMARY, month.number)
            fixed = erased_groups.fixed(connection, self._target_id, month, self._view, now)
        members, held = dict(folded.members), dict(folded.held)
        mails = []
        for group in owed_groups(folded.fold, {} if whole else known):
            waiting = members.pop(group.key.text, Members())
            if group.key.text not in fixed:
                mails.append(mail_of(self._format, month, group, waiting))
            elif len(waiting):
                held.setdefault(erased_groups.HELD, Members()).extend(waiting)
        present = [group for group in folded.fold.groups() if group.key.text not in fixed]
        return DueMonth(present, mails, list(members.values()), held, fixed)


def mail_of(form: SummaryFormat, month: Month, group: Group, waiting: Members | None = None) -> Mail:
    """A group as it will stand in a message."""
    rendered = form.record(group)
    row = GroupRow(month.number, group.key.text, State.WAITING, group.digest, group.jobs, group.to_json())
    return Mail(row, rendered.body, group.latest, waiting or Members(), rendered.notes)


def months_to_fold(store: Store, target_id: int) -> tuple[set[Month], dict[Month, int]]:
    """The months in which something waits or is to be sent again, or that are marked; and the marked ones, each with
    how often it was marked."""
    with store.read() as connection:
        months = set(queries.months_of(connection, target_id, State.WAITING))
        months.update(map(month_numbered, groups.unsettled(connection, target_id, groups.SUMMARY)))
        marked = groups.marked(connection, target_id, groups.REFOLD)
    return months.union(marked), marked


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
