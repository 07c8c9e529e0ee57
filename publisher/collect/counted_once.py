"""A job that two sources give counts once at each target: its other runs are waived there, with a reason that names the
one that counts.

It is decided in the transaction that stores a run, changes its deliveries, or follows a changed filter. Only one
transaction writes at a time, so no publisher can take a run that is decided on: what is in flight stays.

The run that counts is the one that the service has, or may have; else that of the computing element, then that of the
batch system, then that of a collector, then the one that was stored first (`publisher.same_job.rank`). A target of
whole periods replaces what it sent: there only what is in flight right now comes before this order. A run that a person
waived does not count, and neither does one that the target does not select: then the other one is sent. What a user may
have forged, and what is damaged in the store, is held and takes the place of no other run.

Runs are linked over others: ARC's and AUDITOR's with Slurm's. Of all that are linked, a run stands for at most one of
each other source, the one that ended last: a job that was requeued has several, all of which used cores. So at least as
many runs count as any one source has, whatever a user writes into his jobs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from sqlalchemy import Connection

from formats.fit import shown
from formats.identity import index_key
from formats.rule_codes import Reason
from publisher.collect.target_filter import TargetFilter, still_selected
from publisher.config.sources import COLLECTORS_OF_RUNS
from publisher.job_ids import local_id
from publisher.reason import ReasonCode
from publisher.same_job import LATER_S, LONGEST_STAGE_OUT_S, ids_of, is_same_job, may_be_of_one_user, rank
from publisher.store import deliveries, groups, registry, runs, same_jobs, transitions
from publisher.store.deliveries import DeliveryState
from publisher.store.runs import UpsertedRun
from publisher.store.schema import State
from publisher.store.stored_run import StoredRun, run_or_damage

_ROUTED: Final = b"Routed"
"""In an encoded run that may have an id of HTCondor-CE: to decode all would take longer than the look-up."""
_PAGE: Final = 1_000


def link(connection: Connection, source_id: int, put: Sequence[UpsertedRun]) -> Collection[int]:
    """Find the runs of other sources that are the same jobs as those just stored; return all runs concerned, also those
    that were the same job as an earlier version."""
    finished = [item for item in put if item.finished]
    if not finished or not registry.has_several_sources(connection):
        return ()
    parted = same_jobs.forget(connection, [item.run_id for item in finished if not item.fresh])
    pairs = [
        (run.run_id, other.run_id)
        for run, other in _candidates(connection, source_id, finished)
        if run.job.has_record and other.job.has_record and is_same_job(run.job, other.job)
    ]
    same_jobs.add(connection, pairs)
    return parted.union(*pairs)


def _candidates(
    connection: Connection, source_id: int, finished: Sequence[UpsertedRun]
) -> Iterator[tuple[StoredRun, StoredRun]]:
    """Runs with those of other sources that have the same id and ended at about the same time."""
    ids: set[str] = set()
    by_key: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    for item in finished:
        run, end = item.encoded, item.end_time
        if run is None or end is None:
            continue
        own = () if run.local_id is None else (run.local_id,)
        for each in ids_of(run.job()) if _ROUTED in run.packed else own:
            ids.add(index_key(each))
            by_key[_key(each)][item.run_id] = end
    near = [
        (run_id, other.run_id)
        for other in same_jobs.of_other_sources(connection, source_id, ids)
        for run_id, end in by_key[_key(other.local_id)].items()
        # As wide as the rule allows: a narrower look-up would miss jobs that the rule takes for one.
        if abs(end - other.end) <= LONGEST_STAGE_OUT_S + LATER_S
    ]
    stored = _stored(connection, {each for pair in near for each in pair})
    yield from ((stored[run_id], stored[other_id]) for run_id, other_id in near)


def _key(text: str) -> tuple[str, str]:
    """What the ids of one job have in common: without the part, all of an array or a cluster would be compared."""
    known = local_id(text)
    return known.key, known.part or "0"


def _stored(connection: Connection, run_ids: Collection[int]) -> dict[int, StoredRun]:
    """Runs by their ids. A damaged one stops no other."""
    return {run.run_id: run for run in runs.by_ids(connection, sorted(run_ids), run_or_damage)}


def decide_all(connection: Connection, target_id: int, selection: TargetFilter, now: int) -> None:
    """Decide anew which runs count at a target, after its filter changed."""
    for page in same_jobs.pages(connection, _PAGE):
        decide(connection, target_id, selection, page, now)


def decide(connection: Connection, target_id: int, selection: TargetFilter, run_ids: Collection[int], now: int) -> None:
    """Decide which of these runs, and of those that are the same jobs, count at a target."""
    links = dict.fromkeys(run_ids, frozenset[int]()) | same_jobs.linked(connection, run_ids)
    stored = _stored(connection, links)
    known = deliveries.deliveries_of(connection, target_id, sorted(links))
    instead = _not_counted(links, stored, known, periods=selection.is_snapshot)
    waived = {run_id: known[run_id] for run_id in instead if not is_counted_elsewhere(known[run_id])}
    moves: list[deliveries.Move] = [
        (run_id, each.state, State.WAIVED, _reason(stored[instead[run_id]])) for run_id, each in waived.items()
    ]
    released = {run_id: each for run_id, each in known.items() if is_counted_elsewhere(each) and run_id not in instead}
    selected = still_selected(connection, selection, list(released))
    moves += [(run_id, State.WAIVED, State.WAITING, None) for run_id in released if run_id in selected]
    deliveries.move(connection, target_id, moves, now)
    transitions.remove(connection, target_id, [(each, State.WAIVED) for each in released if each not in selected])
    # Of records, none was sent. A total is replaced by one without this run.
    deliveries.forget_sent_versions(connection, target_id, list(waived))
    ends = [each.end_time for each in (*waived.values(), *released.values())]
    if selection.is_snapshot:
        groups.mark_due(connection, target_id, groups.DueFor.FOLD, ends)
    if selection.sync:
        groups.mark_due(connection, target_id, groups.DueFor.SYNC, ends)


def not_counted(
    connection: Connection,
    target_id: int | None,
    run_ids: Collection[int],
    selects: Callable[[StoredRun], bool],
    delivered_until: int | None = None,
) -> Collection[int]:
    """Those of these runs that do not count at a target; `target_id` None: of those that will not, once deliveries of
    what it `selects` are planned. `delivered_until`: see `transitions.enqueue`."""
    links = same_jobs.linked(connection, run_ids)
    if not links:
        return ()
    if target_id is not None:
        known = deliveries.deliveries_of(connection, target_id, sorted(links))
        return {run_id for run_id, each in known.items() if is_counted_elsewhere(each)}
    stored = _stored(connection, links)
    planned: dict[int, DeliveryState] = {}
    for run_id, run in stored.items():
        end = run.job.end or 0
        state = State.WAITING if delivered_until is None or end > delivered_until else State.ACCEPTED
        if selects(run):
            planned[run_id] = DeliveryState(state, end, None, 0, None)
    return _not_counted(links, stored, planned, periods=False)


def is_counted_elsewhere(delivery: DeliveryState) -> bool:
    """Whether a run was waived because another run of the same job counts."""
    return delivery.state is State.WAIVED and delivery.reason == ReasonCode.COUNTED_ELSEWHERE.value


def _not_counted(
    links: Mapping[int, Collection[int]],
    stored: Mapping[int, StoredRun],
    known: Mapping[int, DeliveryState],
    *,
    periods: bool,
) -> dict[int, int]:
    """The runs that do not count, each with the one that counts instead. `periods`: the target replaces these."""

    def stays(delivery: DeliveryState) -> bool:
        if delivery.state is State.IN_FLIGHT or periods:
            return delivery.state is State.IN_FLIGHT
        return delivery.sent or delivery.state in {State.ACCEPTED, State.SUPERSEDED}

    def may_count(run_id: int) -> bool:
        each = known[run_id]
        if each.state is State.WAIVED:
            return is_counted_elsewhere(each)
        is_doubted = each.state is State.HELD and each.reason == ReasonCode.MAY_BE_FORGED.value
        return stays(each) or not (is_doubted or stored[run_id].damage is not None)

    def order(run_id: int) -> tuple[bool, int, int, int]:
        job = stored[run_id].job
        return not stays(known[run_id]), rank(job, COLLECTORS_OF_RUNS), -(job.end or 0), run_id

    instead: dict[int, int] = {}
    stands_for: dict[int, set[str]] = {}
    jobs = same_jobs.connected(links)
    for run_id in sorted(filter(may_count, known), key=order):
        run = stored[run_id]
        others = [
            other
            for other in jobs[run_id]
            if run.source not in stands_for.get(other, {run.source}) and may_be_of_one_user(run.job, stored[other].job)
        ]
        if others and not stays(known[run_id]):
            counted = min(others, key=lambda each: (each not in links[run_id], order(each)))
            instead[run_id] = counted
            stands_for[counted].add(run.source)
        else:
            stands_for[run_id] = {run.source}
    return instead


def _reason(counted: StoredRun) -> Reason:
    record_id = shown(counted.record_id)
    return Reason.of(ReasonCode.COUNTED_ELSEWHERE, source=counted.source, record_id=record_id)
