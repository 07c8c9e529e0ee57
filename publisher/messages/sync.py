"""Sync counts: how many jobs are due for a month and submit host, so that the service can see that it has all of them.

They are sent last. Counted from classes, not from runs: accepted, waiting, in flight, held, and rejected.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby

import msgspec

from formats.calendar import Month, month_bounds, period_of
from formats.rule_codes import CannotRenderError, Reason
from formats.totals import MonthTotal, Sums
from publisher.collect.enrich import Enrichers
from publisher.messages.completeness import why_not_whole
from publisher.messages.due import month_of_run, month_runs, months_touched
from publisher.messages.item import Held, Item, ItemPage, Members
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Finished, Scope, Section, Step
from publisher.plugins import totals_format
from publisher.store import groups, ledger_checks, sums
from publisher.store.admin import purge
from publisher.store.classes import awaits_grid_log, classes_by_id
from publisher.store.groups import GroupRow
from publisher.store.schema import State


class SyncCounts:
    """The sync counts of one recipient. Made for one run."""

    def __init__(self, recipient: Recipient, scope: Scope) -> None:
        self._recipient = recipient
        self._scope = scope
        self._format = totals_format(recipient.sync_format.name, recipient.view)
        self._totals = recipient.sync_format.required_totals
        self._enrichers = Enrichers(recipient.config)

    def steps(self, changed: Collection[Month]) -> Iterator[Step]:
        """The counts of each month that is due: marked ones, and those in `changed`, whose records or summaries came
        before."""
        target_id = self._recipient.target_id
        if target_id is None:
            yield from self._of_no_deliveries()
            return
        marks: dict[Month, int] = {}
        with self._recipient.store.read() as connection:
            groups.require_places(connection, target_id)
        if self._scope.is_due:
            with self._recipient.store.read() as connection:
                marks = groups.months_due(connection, target_id, groups.DueFor.SYNC)
            months = {month for month in (*marks, *changed) if self._scope.touches(*month_bounds(month))}
        else:
            months = months_touched(self._recipient.store, target_id, self._scope.window)
        unknown: list[Month] = []
        gives_all = self._scope.unchanged_too or not (self._scope.is_due and self._recipient.sends_sync)
        for month in sorted(months):
            counts = self._due(target_id, month)
            if counts is None:
                unknown.append(month)  # of damaged runs it is not known where they count; the month stays due
                continue
            with self._recipient.store.read() as connection:
                known = groups.of_month(connection, target_id, groups.SYNC, month.number)
            chosen = counts if gives_all else self._changed(known, counts)
            items = [self._item(count, is_first=count.key.text not in known) for count in chosen]
            yield self._section(month, ItemPage(items, ()))
            if month in marks:
                yield Finished(groups.DueFor.SYNC, {month: marks[month]})
        with self._recipient.store.read() as connection:  # last: everything else is sent
            for month in unknown:
                ledger_checks.require_held(connection, target_id, month)

    def _due(self, target_id: int, month: Month) -> list[MonthTotal] | None:
        """The number of jobs due to a target for a month, by submit host; empty if it is no longer known, None if runs
        of it are damaged."""
        fold = self._totals.fold(self._recipient.view)
        bounds = month_bounds(month)
        with self._recipient.store.read() as connection:
            kept = groups.kept_sync_counts(connection, target_id, month, self._totals)
            if not kept and month.number in purge.months(connection):
                return []  # purged before the service had a count: the rest is not all that was due
            damaged: list[int] = []
            due = sums.due_by_class(connection, target_id, bounds, damaged=damaged)
            if damaged:
                return None
            for job_class in classes_by_id(connection, list(due)):
                if awaits_grid_log(job_class.facts):
                    continue  # held; counted once its submit host is known
                job = self._enrichers.apply(job_class.source, job_class.facts)
                with suppress(CannotRenderError):  # no site or submit host: such runs are held and not counted
                    some = Sums(due[job_class.id], 0, 0, bounds[0], bounds[0])
                    fold.add_alike(msgspec.structs.replace(job, end=bounds[0]), some)
            for count in kept:
                fold.merge_group(count)
        return list(fold.groups())

    def _changed(self, known: Mapping[str, GroupRow], counts: Iterable[MonthTotal]) -> list[MonthTotal]:
        """The counts that changed since they were sent; those that vanished come last, with zero jobs."""
        now = {count.key.text: count for count in counts}
        # Nothing else takes a count back: the service would wait for jobs of a submit host that has none any more.
        now |= {key: row.total(self._totals).zeroed for key, row in known.items() if key not in now and row.jobs}
        return [
            count
            for key, count in now.items()
            if self._scope.resends_groups
            or key not in known
            or known[key].digest != count.digest
            or known[key].state is not State.ACCEPTED
        ]

    def _of_no_deliveries(self) -> Iterator[Step]:
        """The months of a plain view, or of a target that has no deliveries yet."""
        for month, runs in groupby(month_runs(self._recipient, self._scope.window), key=month_of_run):
            if self._goes_with_incomplete(month):
                continue
            fold = self._totals.fold(self._recipient.view)
            held: dict[Reason, Members] = {}
            for run in runs:
                try:
                    fold.add(self._recipient.preparer.identified(run))
                except CannotRenderError as error:
                    held.setdefault(error.reason_of(run.source), Members.packed()).add(run.run_id, 0)
            items = [self._item(count) for count in fold.groups()]
            yield self._section(month, ItemPage(items, [Held(why, members) for why, members in held.items()]))

    def _goes_with_incomplete(self, month: Month) -> bool:
        """Whether the counts go with summaries of an incomplete month."""
        recipient = self._recipient
        if recipient.settings is None or recipient.settings.format.shape != "totals":
            return False
        return why_not_whole(recipient.store, recipient.config, recipient.settings, month) is not None

    def _item(self, count: MonthTotal, *, is_first: bool = False) -> Item:
        row, body = GroupRow.of(count, State.WAITING), self._format.record(count).body
        return Item(row.key, Members([], []), body, row.digest, None, group=row, is_first=is_first)

    def _section(self, month: Month, page: ItemPage) -> Section:
        period = period_of("month", month_bounds(month)[0])
        return Section(self._format, iter([page]), groups.SYNC, period)
