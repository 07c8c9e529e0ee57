"""Send again what a reconciliation did not find at the services."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from formats.calendar import month_bounds, month_numbered
from formats.rule_codes import Reason
from publisher.collect.collect import TargetPlan
from publisher.collect.target_filter import still_selected
from publisher.config.schema import Config, Target
from publisher.errors import TargetBusyError
from publisher.publish.context import Tools
from publisher.publish.publish import Delivery, deliver
from publisher.reason import ReasonCode
from publisher.reconcile.evidence import EvidenceDatabase
from publisher.reconcile.reconcile import Reconciliation
from publisher.reconcile.result import Found
from publisher.store import deliveries, groups, reconciliations, registry
from publisher.store.database import Store
from publisher.store.schema import State

SENT_AGAIN: Final = Reason.of(ReasonCode.SENT_AGAIN)


def send_again(
    store: Store, plan: TargetPlan, settings: Target, found: Found, database: EvidenceDatabase, now: int
) -> int:
    """Let what the service lacks wait again, in one transaction, and record in the audit who asked for it.

    Return how many jobs. Jobs that changed meanwhile wait already, or are superseded, and are left alone; so are
    superseded ones that the target no longer selects. The caller holds the target's lock.
    """
    again = database.groups_to_send(found.target)
    moved = 0
    with store.write() as connection:
        for page in database.runs_to_send(found.target):
            named = [run_id for run_id, state in page if state is State.SUPERSEDED]
            states = deliveries.states_of(connection, plan.target_id, named)
            superseded = [run_id for run_id in named if states.get(run_id) is State.SUPERSEDED]
            selected = still_selected(connection, plan.filter, superseded)
            moves = [
                (run_id, state, State.WAITING, SENT_AGAIN)
                for run_id, state in page
                if state is not State.SUPERSEDED or run_id in selected
            ]
            # The service has no version of them any more: with the first one known, a changed key would hold them.
            deliveries.forget_sent_versions(connection, plan.target_id, superseded)
            moved += deliveries.move(connection, plan.target_id, moves, now)
        groups.send_missing(connection, plan.target_id, again)
        if settings.sends_sync:
            due = {month_bounds(month_numbered(month))[0] for kind, month, _ in again if kind == groups.SYNC}
            groups.mark_due(connection, plan.target_id, groups.DueFor.SYNC, due)
        months = ", ".join(str(month.month) for month in found.months)
        detail = f"{moved} jobs and {len(again)} groups of {months} are sent again ({found.evidence})"
        registry.record_action(connection, "reconcile --resend", found.target, detail, now)
        reconciliations.make_due(connection, plan.target_id, now)
    return moved


def send_missing(
    store: Store, config: Config, plans: Mapping[str, TargetPlan], found: Reconciliation, tools: Tools
) -> dict[str, Delivery]:
    """Send again what the services lack, under the same ids.

    Raises `TargetBusyError` where another run is at work for a target, and `StoreRestoredError`.
    """
    store.require_latest()
    delivered = {}
    for name, one in found.targets.items():
        if not (one.again_jobs or one.again_groups):
            continue
        with store.lock(f"target-{name}") as held:
            if not held:
                raise TargetBusyError(name)
            send_again(store, plans[name], config.targets[name], one, found.database, tools.clock())
        delivered[name] = deliver(store, config, name, plans[name], tools)
    return delivered
