"""Totals: snapshots of whole months. A changed one is sent and replaces the one at the service.

A month is summed up only if every source that feeds it is complete from the month's first second on; otherwise it is
held with the reason, and released automatically once the month is complete. A group that vanished is sent with zero
jobs, or forgotten if the receiver drops it by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import msgspec
from sqlalchemy import or_

from formats.base import TotalsFormat
from formats.calendar import Month, month_bounds, month_numbered, month_of, period_of
from formats.job import Job
from formats.rule_codes import CannotRenderError, Reason
from formats.totals import MonthTotal, TotalKey, TotalsFold, TotalsKind
from publisher.messages import erased_groups
from publisher.messages.completeness import why_not_whole
from publisher.messages.due import ended_in, held_periods, month_of_run, month_runs, months_touched, months_waiting_as
from publisher.messages.item import Held, Item, ItemPage, Members
from publisher.messages.month_fold import MonthFold, MonthFolder, fold_runs
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Finished, Release, Scope, Section, Step
from publisher.plugins import totals_format
from publisher.reason import ReasonCode
from publisher.sources.base import Window
from publisher.store import groups, queries
from publisher.store.deliveries import blocked, resent
from publisher.store.groups import GroupRow
from publisher.store.runs import record_ids
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun


class MonthlyTotals:
    """The totals of one recipient. Made for one run; `changed`: the months so far with something to send or hold,
    whose sync counts are due with them."""

    def __init__(self, recipient: Recipient, scope: Scope, now: int) -> None:
        """`now`: epoch seconds. Raises `ValueError` for a version that the format does not have."""
        self._recipient = recipient
        self._scope = scope
        self._now = now
        self._gives_all = scope.unchanged_too or not (scope.is_due and recipient.is_sent)
        self._format = totals_format(recipient.format_name, recipient.view)
        self._totals = recipient.format.required_totals
        self.changed: set[Month] = set()

    def steps(self) -> Iterator[Step]:
        """Month by month; a month is read from the store when its step is requested."""
        if self._recipient.target_id is None:
            yield from self._of_no_deliveries()
            return
        target_id = self._recipient.target_id
        released: set[Month] = set()
        months, marked = set[Month](), dict[Month, int]()
        if self._scope.is_due:
            held = held_periods(
                self._recipient.store,
                self._recipient.required_settings(),
                target_id,
                lambda period: self._why_not_whole(month_of(period.start)),
            )
            let_wait = [period for period in held.released if self._scope.touches(period.start, period.stop)]
            yield Release(let_wait)
            released = {month_of(period.start) for period in let_wait}
            months, marked = self._months_to_fold(target_id)
            months = months.union(released, (month_of(period.start) for period in held.incomplete))
            months = {month for month in months if self._scope.touches(*month_bounds(month))}
            if self._scope.resends_groups:
                months |= months_touched(self._recipient.store, target_id, self._scope.window)
            elif self._scope.as_waiting is not None:
                months |= months_waiting_as(
                    self._recipient.store, target_id, self._scope.window, self._scope.as_waiting
                )
        else:
            months = months_touched(self._recipient.store, target_id, self._scope.window)
        for month in sorted(months):
            yield self._month(target_id, month, released=month in released or self._scope.incomplete)
            if month in marked and self._why_not_whole(month) is None:
                yield Finished(groups.DueFor.FOLD, {month: marked[month]})

    def _months_to_fold(self, target_id: int) -> tuple[set[Month], dict[Month, int]]:
        """The months with waiting runs, with groups to send again, or with a mark; and the marked ones, each with
        how often it was marked."""
        with self._recipient.store.read() as connection:
            months = set(queries.months_of(connection, target_id, State.WAITING))
            months.update(map(month_numbered, groups.unsettled(connection, target_id, self._totals.kind)))
            marked = groups.months_due(connection, target_id, groups.DueFor.FOLD)
        return months.union(marked), marked

    def _why_not_whole(self, month: Month) -> Reason | None:
        settings = self._recipient.settings
        if settings is None or self._scope.incomplete:
            return None  # a plain view shows all groups
        return why_not_whole(self._recipient.store, self._recipient.config, settings, month)

    def _month(self, target_id: int, month: Month, *, released: bool) -> Section:
        why = self._why_not_whole(month)
        # A total replaces that of the whole month: made of the jobs read so far, it would take the others away there.
        if why is not None:
            return self._section(month, ItemPage((), [_all_of(month, why)]))
        with self._recipient.store.read() as connection:
            known = groups.of_month(connection, target_id, self._totals.kind, month.number)
            kept = erased_groups.fixed(connection, target_id, self._totals, month, self._recipient.view, self._now)
        resends: list[State] = []
        # A rejected group is made again with the month; its runs are settled with the group that has them now.
        if any(row.state is State.REJECTED for row in known.values()):
            resends.append(State.REJECTED)
        folded = self._folded(target_id, month, resends, released=released)
        if folded.damaged:
            return self._section(month, ItemPage((), [self._held_for_damage(month, folded.damaged)]))
        anew = self._folded_anew(target_id, month, folded, known, resends, released=released)
        if anew is not None and kept:  # those that moved may be counted in a total that stays at the service
            return self._section(month, ItemPage((), [_all_of(month, erased_groups.HELD)]))
        if anew is not None:
            resends.append(State.ACCEPTED)
            folded = anew
        if self._scope.resends_groups:
            for key in known.keys() - kept:
                known[key] = msgspec.structs.replace(known[key], state=State.WAITING)
        members, held = dict(folded.members), dict(folded.held)
        items = []
        changed, outdated = changed_groups(self._totals, folded.fold, known, gives_all=self._gives_all)
        for group in changed:
            waiting = members.pop(group.key.text, None) or Members([], [])
            reason = erased_groups.HELD
            if group.key.text not in kept:
                try:
                    items.append(_item(self._format, group, waiting, is_first=group.key.text not in known))
                    continue
                except CannotRenderError as error:  # its sums are larger than the service can store
                    reason = error.reason
            if len(waiting):
                held.setdefault(reason, Members.packed()).extend(waiting)
        page = ItemPage(items, _held(held), None, list(members.values()))
        if page.items or page.held:
            self.changed.add(month)
        return self._section(month, page, kept, resends, [key for key in outdated if key not in kept])

    def _folded_anew(
        self,
        target_id: int,
        month: Month,
        folded: MonthFold,
        known: Mapping[str, GroupRow],
        resends: Sequence[State],
        *,
        released: bool,
    ) -> MonthFold | None:
        """The month with accepted runs among those that wait, if some of them are in another group than they were sent
        with.

        After a change of a benchmark, say: if the service takes the old group without these runs and refuses the new
        one, the ledger would call runs accepted that the service does not have. So they wait with the new group.
        """
        if not self._scope.is_due or not _have_moved(folded, known):
            return None
        anew = self._folded(target_id, month, [*resends, State.ACCEPTED], released=released)
        return anew if anew.count_waiting() > folded.count_waiting() else None  # all are only assumed to be accepted

    def _held_for_damage(self, month: Month, run_ids: Sequence[int]) -> Held:
        """Hold the month: without its damaged runs the service would replace its sums by smaller ones."""
        with self._recipient.store.read() as connection:
            record_id = next(record_ids(connection, run_ids[:1]), "")
        reason = Reason.of(ReasonCode.MONTH_DAMAGED, record_id=record_id, number=len(run_ids))
        return _all_of(month, reason)

    def _folded(self, target_id: int, month: Month, resends: Sequence[State], *, released: bool) -> MonthFold:
        """The month folded; the runs in the states `resends` count as waiting."""
        conditions = [resent(state) for state in resends]
        if self._scope.as_waiting is not None:
            conditions.append(self._scope.as_waiting)
        folder = MonthFolder(
            self._recipient.store,
            target_id,
            self._recipient.preparer,
            self._totals,
            self._recipient.view,
            as_waiting=or_(*conditions) if conditions else None,
        )
        return folder.fold(month, released=released)

    def _of_no_deliveries(self) -> Iterator[Step]:
        """The months of a plain view, or of a target that has no deliveries yet."""
        for month, runs in groupby(month_runs(self._recipient, self._scope.window), key=month_of_run):
            why = self._why_not_whole(month)
            if why is not None:
                members = Members.packed()
                for run in runs:
                    members.add(run.run_id, 0)
                yield self._section(month, ItemPage((), [Held(why, members)]))
                continue
            fold = self._totals.fold(self._recipient.view)
            folded = fold_runs(self._recipient.preparer, runs, fold)
            items = [
                _item(self._format, group, folded.members.get(group.key.text, Members([], [])))
                for group in fold.groups()
            ]
            self.changed.add(month)
            yield self._section(month, ItemPage(items, _held(folded.held)))

    def _section(
        self,
        month: Month,
        page: ItemPage,
        kept: frozenset[str] = frozenset(),
        resends: Sequence[State] = (),
        outdated: Sequence[str] = (),
    ) -> Section:
        return Section(
            self._format,
            iter([page]),
            self._totals.kind,
            period_of("month", month_bounds(month)[0]),
            outdated,
            kept=kept,
            changes_sync=month in self.changed,
            resends=resends,
        )


class GroupedRun(msgspec.Struct, frozen=True):
    """An enriched run, and the group that it is part of: its key, and the values as spelled in the run."""

    run: StoredRun
    job: Job
    key: TotalKey
    spelling: TotalKey


def group_of_run(recipient: Recipient, run: StoredRun) -> GroupedRun:
    """Return the group that a run is part of. Raises `CannotRenderError` if it cannot be part of any."""
    fold = recipient.format.required_totals.fold(recipient.view)
    job = recipient.preparer.prepare(run)
    key = fold.add(job)
    (group,) = fold.groups()
    return GroupedRun(run, job, key, group.spelling)


def grouped_runs(recipient: Recipient, month: Month) -> Iterator[GroupedRun]:
    """Yield the runs of a month that are counted in its totals, by end."""
    bounds = month_bounds(month)
    runs = month_runs(recipient, Window(*bounds))
    if recipient.target_id is not None:
        # What the service does not take for now is part of the total that is tried again: left out, sums would seem to
        # differ.
        there = ended_in(recipient.store, recipient.target_id, bounds, as_waiting=blocked())
        runs = (each.run for state, each in there if state is not State.HELD)
    for run in runs:
        with suppress(CannotRenderError):  # held, and counted in no group
            yield group_of_run(recipient, run)


def _all_of(month: Month, reason: Reason) -> Held:
    """All that waits of a month."""
    return Held(reason, Members([], []), bounds=month_bounds(month))


def _held(reasons: Mapping[Reason, Members]) -> list[Held]:
    return [Held(reason, members) for reason, members in reasons.items()]


def _item(form: TotalsFormat, group: MonthTotal, waiting: Members, *, is_first: bool = False) -> Item:
    """A group as an item of a message."""
    made = form.record(group)
    row = GroupRow.of(group, State.WAITING)
    return Item(row.key, waiting, made.body, row.digest, group.latest, tuple(made.notes), row, is_first=is_first)


def _have_moved(folded: MonthFold, known: Mapping[str, GroupRow]) -> bool:
    """Whether accepted runs are in a group now with which they were not sent, as after a change of a benchmark, or in
    none: a group has more of them than it had runs when it was last sent."""
    return any(
        jobs > (known[key].jobs if key is not None and key in known else 0) for key, jobs in folded.accepted.items()
    )


def changed_groups(
    totals: TotalsKind, fold: TotalsFold, known: Mapping[str, GroupRow], *, gives_all: bool = False
) -> tuple[list[MonthTotal], list[str]]:
    """Return the groups of a month that changed since they were sent, last those that vanished, with zero jobs; or, if
    the receiver drops these by itself, their keys. `gives_all`: all groups that there are."""
    groups_now = {group.key.text: group for group in fold.groups()}
    if totals.following is not None:
        for key in groups_now.keys() & known.keys():
            row = known[key]
            groups_now[key] = totals.following(row.total(totals), groups_now[key], row.state is State.ACCEPTED)
    if gives_all:
        return list(groups_now.values()), []

    def has(key: str, group: MonthTotal) -> bool:
        row = known.get(key)
        return row is not None and row.state is State.ACCEPTED and row.digest == group.digest

    changed = [group for key, group in groups_now.items() if not has(key, group)]
    # Accepted with zero jobs, a total is gone at the service: given again, it would be sent in every run.
    vanished = [
        row for key, row in known.items() if key not in groups_now and (row.jobs or row.state is not State.ACCEPTED)
    ]
    if totals.vanished == "forgotten":
        return changed, [row.key for row in vanished]
    return changed + [row.total(totals).zeroed for row in vanished], []
