"""Reconcile in `run`: each target that has evidence, when it is due, within a time limit.

This follows publishing, so it delays no delivery. Missing evidence, or a service that fails, is shown by `status` and
is never an error of the run. The store has when each target is due next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from formats.calendar import Month, month_numbered
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config, Target
from publisher.errors import PublisherError, StoppedError
from publisher.publish.context import Tools
from publisher.store import deliveries, reconciliations, registry
from publisher.store.database import Store
from publisher.store.reconciliations import ByMonth
from publisher.store.schema import State

if TYPE_CHECKING:
    from publisher.reconcile.result import Found

LONGEST_S: Final = 300
"""The time limit of one run, for all targets together; the next run continues."""
_AGAIN_S: Final = 3600
"""Delay after a service gave no evidence, unless the target is due sooner."""


class ReconcileResult(msgspec.Struct, frozen=True):
    """Result for one target. `problem`: why there was no evidence; `unfinished`: the time limit was reached;
    `counted_twice`: see `publisher.reconcile.result.Found`."""

    confirmed: int
    accepted: int
    differences: int
    problem: str | None = None
    unfinished: bool = False
    counted_twice: tuple[str, ...] = ()


def reconcile_due(
    store: Store, config: Config, plans: Callable[[], Mapping[str, TargetPlan]], tools: Tools
) -> dict[str, ReconcileResult]:
    """Reconcile the targets that are due, the longest due first. `plans` is called only if one is due.

    Raises `StoreError` where the store cannot be used.
    """
    since = {name: _due_since(store, name, settings, tools.clock()) for name, settings in config.targets.items()}
    # The longest due first: in another order, the time limit could leave out the same targets in every run.
    due = sorted((at, name) for name, at in since.items() if at is not None)
    prepared = plans() if due else {}
    until = tools.clock() + LONGEST_S
    done = {}
    for _, name in due:
        if tools.stopping() or tools.clock() >= until:
            break
        result = _Scheduled(store, config, name, prepared[name], tools, until).reconcile()
        if result is not None:
            done[name] = result
    return done


def _due_since(store: Store, name: str, settings: Target, now: int) -> int | None:
    """Since when a target is due; 0 if it was never reconciled, None if it is not due."""
    # A shadow has sent nothing: all that it would send would be missing.
    if settings.evidence_source == "none" or not settings.reconcile_every or settings.shadow:
        return None
    with store.read() as connection:
        target = registry.get_target(connection, name)
        if target is None or not deliveries.of_target(connection, target.id)[State.ACCEPTED]:
            return None
        before = reconciliations.of_target(connection, target.id)
    # a later time than possible was written with a wrong clock, or with another setting
    if before is None or before.due_at > now + settings.reconcile_every:
        return 0
    return before.due_at if before.due_at <= now else None


class _Scheduled:
    """One target that is due."""

    def __init__(self, store: Store, config: Config, name: str, plan: TargetPlan, tools: Tools, until: int) -> None:
        """`until`: when it ends at the latest."""
        self._store = store
        self._config = config
        self._name = name
        self._settings = config.targets[name]
        self._plan = plan
        self._tools = tools
        self._until = until
        self._late = False

    def reconcile(self) -> ReconcileResult | None:
        """Return None if another run is at work for the target, or this one is interrupted: the next run does it."""
        from publisher.reconcile.confirm import counts_of  # noqa: PLC0415 - as below
        from publisher.reconcile.counted_twice import add_sources  # noqa: PLC0415 - as below
        from publisher.reconcile.evidence import EvidenceDatabase  # noqa: PLC0415 - if nothing is due, a run
        from publisher.reconcile.reconcile import ReconcileScope, reconcile  # noqa: PLC0415 - does not load the
        from publisher.reconcile.result import Found  # noqa: PLC0415 - code that reads messages

        tools = msgspec.structs.replace(self._tools, stopping=self._stops)
        began = self._tools.clock()
        with self._store.read() as connection:
            before = reconciliations.of_target(connection, self._plan.target_id)
        begin_at = None if before is None or before.next_month is None else month_numbered(before.next_month)
        counts: ByMonth = {}
        scope = ReconcileScope(self._months(), newest_first=True, begin_at=begin_at)
        found, problem = Found.of(self._name, self._settings), None
        try:
            with EvidenceDatabase() as database:
                try:
                    reconcile(self._store, self._config, self._plan, scope, tools, database, found)
                    problem = found.unavailable
                except StoppedError:
                    pass
                done = [month for month in found.months if month.is_done or not self._late]
                counts = counts_of(done, database.differences_by_month(self._name))
        except PublisherError as error:
            problem = str(error)
        if found.busy or self._tools.stopping():
            return None
        compared = [month.month for month in found.months if month.is_done and not month.purged]
        add_sources(self._store, self._config, found, compared)
        if self._late:
            problem = None  # the time limit ended the request
        had_most_of_the_time = 2 * (self._until - began) >= LONGEST_S
        next_month = self._next_month(found, begin_at, leave_out=had_most_of_the_time) if self._late else None
        continues = self._late and (next_month is not None or not found.months)
        every_s = self._settings.reconcile_every
        looked_recently = before is not None and before.evidence_at is not None and began - before.evidence_at < every_s
        # once: a service that is always late would be compared in every run
        looks_again = bool(found.too_recent) and not looked_recently
        self._remember(
            problem, counts, next_month, others_stay=begin_at is not None, continues=continues or looks_again,
            has_evidence=found.has_evidence,
        )  # fmt: skip
        with self._store.read() as connection:
            confirmed = deliveries.confirmed(connection, self._plan.target_id)
            accepted = deliveries.of_target(connection, self._plan.target_id)[State.ACCEPTED]
            after = reconciliations.of_target(connection, self._plan.target_id)
        differences = 0 if after is None else after.differences
        return ReconcileResult(confirmed, accepted, differences, problem, self._late, tuple(found.counted_twice))

    @staticmethod
    def _next_month(found: Found, begin_at: Month | None, *, leave_out: bool) -> Month | None:
        """The month with which the next run continues; None: all were compared, or left out.

        `leave_out`: if the month with which this run began is not done, leave it out until the next reconciliation. The
        time of two runs was not enough for it, and the months after it would never be compared.
        """
        left = [month.month for month in found.months if not month.is_done]
        if not found.months:
            return begin_at
        if leave_out and left[:1] == [begin_at]:
            del left[0]
        return next(iter(left), None)

    def _stops(self) -> bool:
        self._late = self._tools.clock() >= self._until
        return self._late or self._tools.stopping()

    def _months(self) -> list[Month] | None:
        """The usual months and those with unconfirmed deliveries; None: the months of the file."""
        if self._settings.evidence_source == "file":
            return None
        from publisher.reconcile.reconcile import usual_months  # noqa: PLC0415 - as above

        usual = usual_months(self._tools.clock())
        with self._store.read() as connection:
            accepted = deliveries.of_target(connection, self._plan.target_id)[State.ACCEPTED]
            if deliveries.confirmed(connection, self._plan.target_id) == accepted:
                return usual
            unconfirmed = reconciliations.unconfirmed_months(connection, self._plan.target_id)
        return list({*unconfirmed, *usual})

    def _remember(
        self,
        problem: str | None,
        counts: ByMonth,
        next_month: Month | None,
        *,
        others_stay: bool,
        continues: bool,
        has_evidence: bool,
    ) -> None:
        from publisher.reconcile.confirm import remember  # noqa: PLC0415 - as above

        now, every_s = self._tools.clock(), int(self._settings.reconcile_every)
        pause_s = 0 if continues else every_s if problem is None else min(every_s, _AGAIN_S)
        remember(
            self._store, self._plan.target_id, now, due_at=now + pause_s, problem=problem, has_evidence=has_evidence,
            counts=counts, others_stay=others_stay, next_month=next_month,
        )  # fmt: skip
