"""What `run` reconciles: each target whose service gives evidence, when that is due, within limits of time.

It comes after publishing, so it delays nothing that waits. No evidence, or a service that fails, is a finding that
`status` shows, never an error of the run. When it is due next is in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from formats.calendar import Month
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config, Target
from publisher.errors import PublisherError, StoppedError
from publisher.publish.context import Tools
from publisher.store import deliveries, reconciliations, registry
from publisher.store.database import Store
from publisher.store.schema import State

LONGEST_S: Final = 300
"""So long at most is reconciled in one run, all targets together; what is left is looked at in the next one."""
_AGAIN_S: Final = 3600
"""After a service gave no evidence it is asked again so much later, or when it would be due if that is sooner."""


class ReconcileResult(msgspec.Struct, frozen=True):
    """What reconciling a target in a run gave. `problem`: why there was no evidence; `unfinished`: time was over."""

    confirmed: int
    accepted: int
    differences: int
    problem: str | None = None
    unfinished: bool = False


def reconcile_due(
    store: Store, config: Config, plans: Callable[[], Mapping[str, TargetPlan]], tools: Tools
) -> dict[str, ReconcileResult]:
    """Reconcile the targets that are due, those first that are so for longest. `plans` is asked where one is.

    Raises `StoreError` where the store cannot be used.
    """
    since = {name: _due_since(store, name, settings, tools.clock()) for name, settings in config.targets.items()}
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
    """Since when a target is due, 0 where it never was reconciled; None: it is not due."""
    if settings.evidence_source == "none" or not settings.reconcile_every or settings.shadow:
        return None
    with store.read() as connection:
        target = registry.get_target(connection, name)
        if target is None or not deliveries.of_target(connection, target.id)[State.ACCEPTED]:
            return None
        before = reconciliations.of_target(connection, target.id)
    # one that is later than it can be was noted by a clock that was wrong, or with another setting
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
        """None where another run is at work for the target, or this one is interrupted: the next run does it."""
        from publisher.reconcile.evidence import EvidenceDatabase  # noqa: PLC0415 - a run in which nothing is due
        from publisher.reconcile.reconcile import reconcile  # noqa: PLC0415 - need not load what reads messages

        tools = msgspec.structs.replace(self._tools, stopping=self._stops)
        problem, differences, has_evidence = None, 0, False
        try:
            with EvidenceDatabase() as database:
                found = reconcile(
                    self._store, self._config, self._name, self._plan, self._months(), None, tools, database
                )
                if found.busy:
                    return None
                problem, has_evidence = found.unavailable, found.has_evidence
                differences = database.count_differences(self._name)
        except StoppedError:
            pass
        except PublisherError as error:
            problem = str(error)
        if self._tools.stopping():
            return None
        if self._late:
            problem = None  # it is ours: the request was ended
        self._remember(problem, differences, has_evidence=has_evidence)
        with self._store.read() as connection:
            confirmed = deliveries.confirmed(connection, self._plan.target_id)
            accepted = deliveries.of_target(connection, self._plan.target_id)[State.ACCEPTED]
        return ReconcileResult(confirmed, accepted, differences, problem, self._late)

    def _stops(self) -> bool:
        self._late = self._tools.clock() >= self._until
        return self._late or self._tools.stopping()

    def _months(self) -> list[Month] | None:
        """The usual months, and after them earlier ones with unconfirmed deliveries; None: those that a file names."""
        if self._settings.evidence_source == "file":
            return None
        from publisher.reconcile.reconcile import usual_months  # noqa: PLC0415 - as above

        usual = usual_months(self._tools.clock())
        with self._store.read() as connection:
            accepted = deliveries.of_target(connection, self._plan.target_id)[State.ACCEPTED]
            if deliveries.confirmed(connection, self._plan.target_id) == accepted:
                return usual
            unconfirmed = reconciliations.unconfirmed_months(connection, self._plan.target_id)
        return sorted({*unconfirmed, *usual}, reverse=True)

    def _remember(self, problem: str | None, differences: int, *, has_evidence: bool) -> None:
        from publisher.reconcile.confirm import remember  # noqa: PLC0415 - as above

        now, every_s = self._tools.clock(), int(self._settings.reconcile_every)
        pause_s = 0 if self._late else every_s if problem is None else min(every_s, _AGAIN_S)
        remember(
            self._store, self._plan.target_id, now, due_at=now + pause_s, problem=problem, has_evidence=has_evidence,
            differences=differences,
        )  # fmt: skip
