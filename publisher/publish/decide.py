"""Decisions of people: retry, waive, settle, and take over. Each one is recorded in the audit log.

`retry` and `waive` are for rejected, held, and superseded records; `settle` for unreadable input; `assume_until` and
`assume` record what an earlier publisher delivered. The latter change only deliveries that wait or are held and were
never sent by this program. A shadow stays a shadow until its setting is removed.

Totals do not name their jobs. For them the ledger records that the service has the total: ours for the same month is
then always sent, and a total with a key that we do not make is treated like a group that vanished.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, select, true

from formats.base import Format
from formats.rule_codes import Reason
from formats.totals import MonthTotal
from formats.view import View
from publisher.collect import counted_once
from publisher.collect.collect import TargetPlan
from publisher.collect.target_filter import still_selected
from publisher.encoded_run import run_key
from publisher.errors import UsageError
from publisher.messages import duplicate_guard
from publisher.plugins import format_of
from publisher.reason import ReasonCode
from publisher.store import deliveries, groups, in_flight, paging, registry, suspects, unreadable_input
from publisher.store.admin import purge
from publisher.store.groups import GroupRow
from publisher.store.schema import State, runs
from publisher.store.schema import deliveries as table
from publisher.store.suspects import ALL_PIECES, PieceFilter
from publisher.store.transitions import ASSUMED, StateChange, transition
from publisher.text import counted, iso

_NO_VIEW: Final = View(site="")
"""Of a fold that no run is added to."""
_PLACES_NAMED: Final = 3
"""How many places of settled input the audit log names."""


def retry(
    connection: Connection, plan: TargetPlan, target: str, state: State, record_ids: Sequence[str], now: int
) -> int:
    """Let records in this state wait again: those named, or all. Return how many.

    Superseded records must be named: by that, the caller confirms that the service no longer has any version of them.
    The same holds for records that are held because their key changed; where all held records are retried, these are
    held again. Raises `UsageError` for a superseded record that the target no longer selects.
    """
    target_id = plan.target_id
    if state is State.SUPERSEDED and not record_ids:
        raise UsageError(
            "superseded records must be named to be retried",
            hint="Name those whose first version the service's administrator removed",
        )
    if not record_ids:
        moved = in_flight.let_wait(connection, target_id, state, now)
        counted_once.decide_all(connection, target_id, plan.filter, now)
    else:
        ids = _in_state(connection, target_id, target, state, record_ids)
        if state is State.SUPERSEDED:
            _require_selected(connection, plan, target, dict(zip(ids, record_ids, strict=True)))
            deliveries.forget_sent_versions(connection, target_id, ids)
        else:
            duplicate_guard.forget_first(connection, target_id, ids)
        deliveries.move(connection, target_id, [(run_id, state, State.WAITING, None) for run_id in ids], now)
        counted_once.decide(connection, target_id, plan.filter, ids, now)  # of those held as perhaps forged
        moved = len(ids)
    registry.record_action(connection, f"retry {state.word}", target, ", ".join(record_ids) or f"all {moved}", now)
    return moved


def _require_selected(connection: Connection, plan: TargetPlan, target: str, named: Mapping[int, str]) -> None:
    selected = still_selected(connection, plan.filter, list(named))
    deselected = [record_id for run_id, record_id in named.items() if run_id not in selected]
    if deselected:
        raise UsageError(
            f"{target} no longer selects {', '.join(deselected)}: there is nothing to send",
            hint="After the service's administrator has removed its version: `usage-publisher records waive RECORD "
            f"--state superseded --target {target} --reason TEXT`",
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
    """Decide that these records are not sent, with the reason. Return how many."""
    if not reason.strip():
        raise UsageError("a waiver needs a reason", hint="Give --reason: why these records need not be delivered")
    ids = _in_state(connection, plan.target_id, target, state, record_ids)
    why = Reason.of(ReasonCode.WAIVED, text=reason)
    deliveries.move(connection, plan.target_id, [(run_id, state, State.WAIVED, why) for run_id in ids], now)
    ends = [delivery.end_time for delivery in deliveries.deliveries_of(connection, plan.target_id, ids).values()]
    # Another source may have the same job, and is sent instead.
    counted_once.decide(connection, plan.target_id, plan.filter, ids, now)
    if plan.filter.sync:  # fewer jobs are due than the last sync count said
        groups.mark_due(connection, plan.target_id, groups.DueFor.SYNC, ends)
    if plan.filter.is_snapshot:
        groups.mark_due(connection, plan.target_id, groups.DueFor.FOLD, ends)
    registry.record_action(connection, f"waive {state.word}", target, f"{', '.join(record_ids)}: {reason}", now)
    return len(ids)


def assume_until(connection: Connection, target_id: int, target: str, until: int, now: int) -> int:
    """Record that an earlier publisher delivered what ended up to this time; return the number of jobs."""
    moved = _assume(connection, target_id, table.c.end_time <= until, now)
    detail = f"{moved} jobs that ended up to {iso(until)} count as delivered by an earlier publisher"
    registry.record_action(connection, "take over", target, detail, now)
    return moved


class DeliveredBefore(msgspec.Struct, frozen=True):
    """What an earlier publisher sent: runs by their ids, each with the digest of the version that was compared with
    what it sent; or totals, those of `form`."""

    runs: Iterable[tuple[int, bytes]] = ()
    groups: Sequence[MonthTotal] = ()
    form: Format | None = None


def assume(connection: Connection, target_id: int, target: str, found: DeliveredBefore, evidence: str, now: int) -> int:
    """Record that an earlier publisher delivered this; `evidence` says how we know. Runs that changed since they were
    compared are left out. Return the number of jobs or totals."""
    moved = 0
    for some in paging.chunks(found.runs):
        compared = dict(some)
        digests = paging.rows_in(connection, select(runs.c.id, runs.c.digest), runs.c.id, compared)
        unchanged = [run_id for run_id, digest in digests if bytes(digest) == compared[run_id]]
        moved += _assume(connection, target_id, table.c.run_id.in_(unchanged), now)
    if found.form is not None and found.form.totals is not None:
        _assume_groups(connection, target_id, found.form, found.groups, now)
    what = f"{len(found.groups)} summaries" if found.groups else f"{moved} jobs"
    registry.record_action(
        connection, "take over", target, f"{what} count as delivered by an earlier publisher: {evidence}", now
    )
    return len(found.groups) or moved


def _assume_groups(connection: Connection, target_id: int, form: Format, found: Sequence[MonthTotal], now: int) -> None:
    """Record that the service has these totals, and the sync counts that were sent with them."""
    totals = form.required_totals
    _assume_rows(connection, target_id, totals.kind, found, now)
    if totals.sync_count is not None:
        counts = format_of(form.sync).required_totals.fold(_NO_VIEW)
        for group in found:
            counts.merge_group(totals.sync_count(group))
        _assume_rows(connection, target_id, groups.SYNC, counts.groups(), now)


def _assume_rows(connection: Connection, target_id: int, kind: str, found: Iterable[MonthTotal], now: int) -> None:
    rows = [msgspec.structs.replace(GroupRow.of(each, State.ACCEPTED), digest=groups.UNLIKE_OURS) for each in found]
    groups.assume(connection, target_id, kind, rows, now)


def _assume(connection: Connection, target_id: int, chosen: ColumnElement[bool], now: int) -> int:
    total = 0
    for state in (State.WAITING, State.HELD):
        theirs = and_(
            table.c.sent_digest.is_(None),
            chosen,
            purge.not_held_for_good() if state is State.HELD else true(),
        )
        total += transition(connection, StateChange(target_id, state, State.ACCEPTED, now, ASSUMED), theirs)
    return total


def settle(
    connection: Connection,
    names: Sequence[str],
    reason: str,
    now: int,
    limit: int = unreadable_input.LISTED,
    chosen: PieceFilter = ALL_PIECES,
) -> list[unreadable_input.UnreadableRow]:
    """Mark the listed unreadable input of these sources, or of all, as settled, with the reason. Return what was
    settled. Raises `UsageError` for an unknown piece of those that are `chosen`.

    A suspect run of it is discarded, so pieces with one are left unless some are `chosen`: most are of honest users.

    Settled input is no longer counted or listed, until it is read again and still cannot be parsed.
    """
    if not reason.strip():
        raise UsageError("settling needs a reason", hint="Give --reason: what was done about the input")
    if chosen.takes_all:
        chosen = msgspec.structs.replace(chosen, with_suspects=False)
    if chosen.user is not None:
        mine = [each.piece for page in suspects.listed(connection, names, chosen) for each in page]
        pieces = [
            unreadable_input.list_unreadable(connection, None, names, PieceFilter(some)) for some in paging.chunks(mine)
        ]
        settled = [item for items in pieces for item in items]
    else:
        settled = unreadable_input.list_unreadable(connection, limit, names, chosen)
    unreadable_input.require_pieces(chosen.pieces, [item.id for item in settled])
    of_source: dict[str, list[unreadable_input.UnreadableRow]] = {}
    for item in settled:
        of_source.setdefault(item.source, []).append(item)
    for name, items in of_source.items():
        unreadable_input.drop_unreadable(connection, name, items)
        jobs = sum(item.is_suspect for item in items)
        discarded = f", {counted(jobs, 'suspect job')} discarded" if jobs else ""
        registry.record_action(connection, "settle unreadable", name, f"{_places(items)}{discarded}: {reason}", now)
    return settled


def _places(items: Sequence[unreadable_input.UnreadableRow]) -> str:
    """Return a text with the number of pieces and files, and the first places."""
    files = len({item.file for item in items})
    named = [f"{item.place} ({item.reason})" for item in items[::-1][:_PLACES_NAMED]]
    if len(items) > len(named):
        named.append(f"{len(items) - len(named)} more")
    return f"{counted(len(items), 'piece')} of {counted(files, 'file')}, {', '.join(named)}"


def _in_state(
    connection: Connection, target_id: int, target: str, state: State, record_ids: Sequence[str]
) -> list[int]:
    run_ids = []
    for record_id in record_ids:
        run_id = connection.execute(
            select(runs.c.id).where(runs.c.record_key == run_key(record_id))
        ).scalar_one_or_none()
        if run_id is None or deliveries.states_of(connection, target_id, [run_id]).get(run_id) is not state:
            raise UsageError(
                f"record {record_id} is not {state.word} for target {target}",
                hint=f"`usage-publisher records list --state {state.word}` lists those that are",
            )
        run_ids.append(run_id)
    return run_ids
