"""retry and waive: what people decide about rejected, held and superseded records. Every decision is put down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, select

from publisher.errors import UsageError
from publisher.pipeline import rekeyed
from publisher.pipeline.collect import TargetPlan
from publisher.pipeline.still_wanted import still_wanted
from publisher.store import audit, deliveries, flights, groups, sent
from publisher.store.states import State
from publisher.store.tables import runs


def retry(
    connection: Connection, plan: TargetPlan, target: str, state: State, record_ids: Sequence[str], now: int
) -> int:
    """Let records in this state wait again: those named, or all. Gives how many.

    Superseded ones must be named: the service no longer has any version of them, says who asks for it. So must those
    that are held because their key changed; of all that are held, they are held again. Raises `UsageError` for a
    superseded one that the target no longer wants.
    """
    target_id = plan.target_id
    if state is State.SUPERSEDED and not record_ids:
        raise UsageError(
            "superseded records are retried by name",
            hint="Name those whose first version the service's administrator removed",
        )
    if not record_ids:
        moved = flights.put_back(connection, target_id, state, now)
    else:
        ids = _in_state(connection, target_id, target, state, record_ids)
        if state is State.SUPERSEDED:
            _require_wanted(connection, plan, target, dict(zip(ids, record_ids, strict=True)))
            sent.forget(connection, target_id, ids)
        else:
            rekeyed.forget_first(connection, target_id, ids)
        deliveries.move(connection, target_id, [(run_id, state, State.WAITING, None) for run_id in ids], now)
        moved = len(ids)
    audit.note(connection, f"retry {state.word}", target, ", ".join(record_ids) or f"all {moved}", now)
    return moved


def _require_wanted(connection: Connection, plan: TargetPlan, target: str, named: Mapping[int, str]) -> None:
    wanted = still_wanted(connection, plan.wish, list(named))
    unwanted = [record_id for run_id, record_id in named.items() if run_id not in wanted]
    if unwanted:
        raise UsageError(
            f"{target} no longer wants {', '.join(unwanted)} as it is now: nothing of it is to be sent",
            hint=f"When the service's administrator removed its version: `usage-publisher superseded waive {target} "
            "RECORD --reason TEXT`",
        )


def waive(
    connection: Connection,
    plan: TargetPlan,
    target: str,
    state: State,
    record_ids: Sequence[str],
    reason: str,
    now: int,
) -> int:
    """Decide that these records are not to be sent, and why. Gives how many."""
    if not reason.strip():
        raise UsageError("a waiver needs a reason", hint="Say with --reason why these records need not be delivered")
    ids = _in_state(connection, plan.target_id, target, state, record_ids)
    deliveries.move(connection, plan.target_id, [(run_id, state, State.WAIVED, reason) for run_id in ids], now)
    ends = [standing.end_time for standing in deliveries.standings_of(connection, plan.target_id, ids).values()]
    if plan.wish.sync:  # the site owes less than it said
        groups.mark(connection, plan.target_id, groups.DUE, ends, now)
    if plan.wish.summaries:
        groups.mark(connection, plan.target_id, groups.REFOLD, ends, now)
    audit.note(connection, f"waive {state.word}", target, f"{', '.join(record_ids)}: {reason}", now)
    return len(ids)


def _in_state(
    connection: Connection, target_id: int, target: str, state: State, record_ids: Sequence[str]
) -> list[int]:
    found = []
    for record_id in record_ids:
        run_id = connection.execute(select(runs.c.id).where(runs.c.record_id == record_id)).scalar_one_or_none()
        if run_id is None or deliveries.states_of(connection, target_id, [run_id]).get(run_id) is not state:
            raise UsageError(
                f"record {record_id} is not {state.word} for target {target}",
                hint=f"`usage-publisher {state.word} list` shows those that are",
            )
        found.append(run_id)
    return found
