"""Fold a month of what is due to a target into totals: class by class, from sums.

Enrichment and the group of a run are decided once for a class and each stretch of time with the same benchmark rule.
Runs whose columns do not hold their values are folded one by one from their records, and so are all runs if a format
needs more of them than columns hold (`formats.totals.TotalsKind.from_columns`). All is read from one snapshot of the
store, so the sums and the runs that are settled with them agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Final, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection

from formats.calendar import Month, month_bounds
from formats.rule_codes import CannotRenderError, Reason
from formats.totals import Sums, TotalsFold, TotalsKind
from formats.view import View
from publisher.collect.run_preparer import RunPreparer
from publisher.messages.due import held_in
from publisher.messages.item import Members
from publisher.reason import TRIED_AGAIN, ReasonCode
from publisher.store import deliveries, ledger_checks, paging, queries, sums
from publisher.store.classes import classes_by_id
from publisher.store.database import Store
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun

_Key = TypeVar("_Key", str, Reason)
DAMAGED: Final = Reason.of(ReasonCode.DAMAGED)
# A total replaces the one at the service: without what is in flight, accepted, or rejected, that usage would be taken
# away there. With these, it would count what has no group yet, or what a person or the filter has excluded.
_LEFT_OUT: Final = frozenset({State.HELD, State.WAIVED, State.SUPERSEDED})


class MonthFold(msgspec.Struct, frozen=True):
    """A folded month: the waiting runs by the key of their group, and those that cannot be in any group by the
    reason. `accepted`: the number of accepted runs by the key of their group; None: they cannot be in any.

    `damaged`: the ids of runs that were sent, and are not stored as they were read: without them sums would shrink.
    """

    fold: TotalsFold
    members: dict[str, Members]
    held: dict[Reason, Members]
    accepted: Counter[str | None]
    damaged: list[int]

    def count_waiting(self) -> int:
        """The number of waiting runs."""
        return sum(map(len, self.members.values())) + sum(map(len, self.held.values()))


class MonthFolder:
    """Folds months of one target from all its runs."""

    def __init__(
        self,
        store: Store,
        target_id: int,
        preparer: RunPreparer,
        totals: TotalsKind,
        view: View,
        page: int = sums.PAGE,
        as_waiting: ColumnElement[bool] | None = None,
    ) -> None:
        """`as_waiting`: deliveries that count as waiting."""
        self._totals = totals
        self._view = view
        self._store = store
        self._as_waiting = as_waiting
        self._page = page
        self._target_id = target_id
        self._preparer = preparer

    def fold(self, month: Month, *, released: bool = False) -> MonthFold:
        """Fold the month.

        `released`: runs that are held because the month was incomplete count as waiting, as they will once a run has
        released them.
        """
        folded = MonthFold(self._totals.fold(self._view), {}, {}, Counter(), [])
        first, until = month_bounds(month)
        # A class whose benchmark changes within the month is in two groups: folded in one piece, all of its runs would
        # be sent with the score of the earliest.
        edges = [first, *(at for at in self._preparer.bounds() if first < at < until), until]
        with self._store.read() as connection:
            met = 0
            if self._totals.from_columns:
                met = sum(self._fold_classes(connection, bounds, folded) for bounds in pairwise(edges))
            met += self._fold_others(connection, (first, until), folded)
            # A delivery that a damaged index does not show would be missing in the sums, and the service would replace
            # its total by a smaller one.
            ledger_checks.require_month(connection, self._target_id, (first, until), met)
        if released:
            for delivery in held_in(self._store, self._target_id, (first, until), TRIED_AGAIN, self._as_waiting):
                fold_run(self._preparer, delivery.run, folded, delivery.revision, State.WAITING)
        return folded

    def _fold_classes(self, connection: Connection, bounds: tuple[int, int], folded: MonthFold) -> int:
        """Fold what can be summed; return how many deliveries were met."""
        met = 0
        by_class: dict[int, Sums] = {}
        waiting: dict[int, Members] = {}
        accepted: Counter[int] = Counter()
        damaged: list[int] = []
        for class_sums in sums.by_class(connection, self._target_id, bounds, self._page, self._as_waiting, damaged):
            met += class_sums.sums.jobs
            if class_sums.state in _LEFT_OUT:
                continue
            before = by_class.get(class_sums.class_id)
            by_class[class_sums.class_id] = class_sums.sums if before is None else before.plus(class_sums.sums)
            if class_sums.state is State.WAITING:
                waiting.setdefault(class_sums.class_id, Members.packed()).add_all(
                    class_sums.waiting, class_sums.revision
                )
            elif class_sums.state is State.ACCEPTED:
                accepted[class_sums.class_id] += class_sums.sums.jobs
        for job_class in classes_by_id(connection, sorted(by_class)):
            total = by_class[job_class.id]
            waits = waiting.pop(job_class.id, None)
            try:
                key = folded.fold.add_alike(self._preparer.prepare_class(job_class, total.earliest), total).text
            except CannotRenderError as error:
                # Accepted runs that can be in no group now: not counted here, the total that the service has of them
                # would stay.
                folded.accepted[None] += accepted[job_class.id]
                if waits is not None:
                    _add(folded.held, error.reason_of(job_class.source), waits)
                continue
            folded.accepted[key] += accepted[job_class.id]
            if waits is not None:
                _add(folded.members, key, waits)
        return met + (self._set_apart(connection, damaged, folded) if damaged else 0)

    def _set_apart(self, connection: Connection, run_ids: list[int], folded: MonthFold) -> int:
        """Hold the damaged runs that wait, and note those that were sent, which may wait to be sent again; return how
        many deliveries they have."""
        known = deliveries.deliveries_of(connection, self._target_id, run_ids, self._as_waiting)
        for run_id, delivery in known.items():
            # What an earlier publisher sent has no version of ours, and the service's total contains it all the same.
            if _was_sent(delivery.state, sent=delivery.sent or delivery.reason == ReasonCode.ASSUMED.value):
                folded.damaged.append(run_id)
            elif delivery.state is State.WAITING:
                folded.held.setdefault(DAMAGED, Members.packed()).add(run_id, delivery.revision)
        return len(known)

    def _fold_others(self, connection: Connection, bounds: tuple[int, int], folded: MonthFold) -> int:
        """Fold the others one by one, or all; return how many deliveries were met."""
        met = 0
        for page in paging.pages(
            lambda after: queries.ended_in(
                connection,
                self._target_id,
                bounds,
                after,
                self._page,
                only=sums.UNUSABLE if self._totals.from_columns else None,
                as_waiting=self._as_waiting,
            )
        ):
            met += len(page)
            for state, delivery in page:
                if delivery.run.damage is not None and _was_sent(state, sent=delivery.sent is not None):
                    folded.damaged.append(delivery.run.run_id)
                if state in _LEFT_OUT:
                    continue
                fold_run(self._preparer, delivery.run, folded, delivery.revision, state)
        return met


def _was_sent(state: State, *, sent: bool) -> bool:
    """Whether the sums that the service has contain a run that is damaged now; `sent`: whether it has a version."""
    if state in {State.WAIVED, State.SUPERSEDED}:
        return False  # the sums are right without it
    return sent or state not in {State.WAITING, State.HELD}


def _add(groups: dict[_Key, Members], key: _Key, waits: Members) -> None:
    """Add the runs of a class to a group. The first ones are not copied, since there may be a million."""
    if key in groups:
        groups[key].extend(waits)
    else:
        groups[key] = waits


def fold_runs(preparer: RunPreparer, runs: Iterable[StoredRun], into: TotalsFold) -> MonthFold:
    """Fold the runs of a month one by one, for a target that has no deliveries yet or a plain view: all of them
    wait."""
    folded = MonthFold(into, {}, {}, Counter(), [])
    for run in runs:
        fold_run(preparer, run, folded, 0, State.WAITING)
    return folded


def fold_run(preparer: RunPreparer, run: StoredRun, folded: MonthFold, revision: int, state: State) -> None:
    """Fold one run from its record."""
    key: str | None = None
    try:
        key = folded.fold.add(preparer.prepare(run)).text
    except CannotRenderError as error:
        if state is State.WAITING:
            folded.held.setdefault(error.reason_of(run.source), Members.packed()).add(run.run_id, revision)
    else:
        if state is State.WAITING:
            folded.members.setdefault(key, Members.packed()).add(run.run_id, revision)
    folded.accepted[key] += state is State.ACCEPTED
