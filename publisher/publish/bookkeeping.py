"""What a run records for a target besides its batches: held and released runs, recovered batches, finished months."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from sqlalchemy import Connection

from formats.calendar import Period
from formats.rule_codes import Reason
from publisher.events import RecordSettled
from publisher.messages.item import Held, Item, ItemPage, Limits, cut
from publisher.messages.items import records_of
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Finished, Release, Section
from publisher.publish.dispatcher import DeliveryContext
from publisher.publish.queue import Batch
from publisher.reason import TRIED_AGAIN, ReasonCode
from publisher.store import batches, deliveries, groups, in_flight, paging, runs
from publisher.store.deliveries import WHOLE
from publisher.store.queries import PendingDelivery
from publisher.store.schema import BatchState, State
from publisher.store.transitions import StateChange
from publisher.targets.base import Blocked

_MOVED_AT_ONCE: Final = 10_000


def prepare_section(context: DeliveryContext, section: Section) -> None:
    """Forget the earlier groups that the groups of this section replace. Let the runs wait that are settled with the
    groups of this section, which have their usage."""
    period = section.period
    if section.kind is None or period is None or not (section.outdated or section.resends):
        return
    with context.store.write() as connection:
        for state in section.resends:
            change = StateChange(context.target_id, state, State.WAITING, context.clock())
            deliveries.resend_between(connection, (period.start, period.stop), change)
        groups.forget(connection, context.target_id, section.kind, period.number, section.outdated)


def items_of(context: DeliveryContext, section: Section, page: ItemPage) -> Sequence[Item]:
    """Return the items of a page. Record the runs that the page holds, and accept those that the service already
    has."""
    # Where accepted runs are held, maybe no run waits: killed then, the service would keep the groups that have them.
    remade = section.period if State.ACCEPTED in section.resends else None
    hold(context, page.held, State.WAITING, remade)
    changes = section.changes_sync and section.period is not None
    if page.unchanged or changes:
        with context.store.write() as connection:
            _move(context, connection, chain.from_iterable(page.unchanged), State.WAITING, State.ACCEPTED, None)
            if changes and section.period is not None:
                groups.mark_due(connection, context.target_id, groups.DueFor.SYNC, [section.period.start])
    return page.items


def hold(context: DeliveryContext, held: Sequence[Held], before: State, remade: Period | None = None) -> None:
    """Hold runs that cannot be sent, with the reason. `remade`: the month whose groups are made again without them."""
    if not held:
        return
    with context.store.write() as connection:
        for held_item in held:
            context.sent.held += _hold_one(context, connection, held_item, before)
        context.mark_due(connection, [held_item.latest_end for held_item in held if held_item.latest_end is not None])
        if remade is not None:
            groups.mark_due(connection, context.target_id, groups.DueFor.FOLD, [remade.start])
    for held_item in held:
        _report_held(context, held_item)


def block(context: DeliveryContext, batch_id: int, item: Item, outcome: Blocked) -> None:
    """Hold a total that the service does not take now, and the runs that wait with it. The next run makes it again.

    What was held for the same before is not held newly; a total of which no run waits counts as one record: nothing
    else would say that the service has another one. A first version of which nothing can be there is forgotten: if its
    runs are waived, or move, nothing of it is left to take back.
    """
    reason, now = Reason.of(ReasonCode.BLOCKED, answer=outcome.answer), context.clock()
    with context.store.write(sorts_on_disk=True) as connection:
        held = in_flight.mark_refused(connection, context.target_id, batch_id, reason, now, after=State.HELD)
        if item.is_first and outcome.untouched and not outcome.after_unknown and len(item.members):
            groups.forget_sent(connection, context.target_id, batch_id)
        else:
            groups.settle(connection, context.target_id, batch_id, State.HELD, now)
    if item.group is not None and not len(item.members):
        context.sent.held += (item.group.month, item.group.key) not in context.held_totals
    again = min(held, context.sent.tried_again)
    context.sent.tried_again -= again
    context.sent.held += held - again
    _report_held(context, Held(reason, item.members, "" if len(item.members) else item.key))


def _report_held(context: DeliveryContext, held: Held) -> None:
    if held.key:
        context.observer(RecordSettled(context.target, held.key, State.HELD.word, held.reason))
        return
    with context.store.read() as connection:
        for record_id in runs.record_ids(connection, held.members.run_ids):
            context.observer(RecordSettled(context.target, record_id, State.HELD.word, held.reason))


def _hold_one(context: DeliveryContext, connection: Connection, held: Held, before: State) -> int:
    if held.bounds is None:
        return _move(context, connection, held.members, before, State.HELD, held.reason)
    change = StateChange(context.target_id, before, State.HELD, context.clock(), held.reason)
    return deliveries.move_between(connection, held.bounds, change)


def _move(
    context: DeliveryContext,
    connection: Connection,
    members: Iterable[tuple[int, int]],
    before: State,
    after: State,
    reason: Reason | None,
) -> int:
    """Move runs that have not changed since they were read, in chunks; return how many were moved."""
    moved = 0
    for some in paging.chunks(members, _MOVED_AT_ONCE):
        moves = ((*run, before, after, reason) for run in some)
        # A run that changed since it was read is left alone: accepted as it was, its new version would never be sent.
        moved += deliveries.move_if_unchanged(connection, context.target_id, moves, context.clock())
    return moved


def release(context: DeliveryContext, step: Release) -> None:
    """Let runs wait again that were held because their period was incomplete, or for a state of the service."""
    if not step.periods:
        return
    with context.store.write() as connection:
        for period in step.periods:
            change = StateChange(context.target_id, State.HELD, State.WAITING, context.clock())
            bounds = (period.start, period.stop)
            context.sent.tried_again += deliveries.move_between(connection, bounds, change, only={ReasonCode.BLOCKED})
            deliveries.move_between(connection, bounds, change, only=TRIED_AGAIN)


def finish(context: DeliveryContext, step: Finished) -> None:
    """Clear the marks of months that are finished."""
    if not step.marks and not step.reaches:
        return
    with context.store.write() as connection:
        # With the marks: cleared without the reaches, they would leave periods as they are into which late jobs reach.
        groups.set_reaches(connection, context.target_id, step.reaches)
        for month, times in step.marks.items():
            groups.end_due(connection, context.target_id, step.purpose, month, times)


def recovered(context: DeliveryContext, recipient: Recipient, limits: Limits) -> Iterator[Batch]:
    """Yield the batches of records that were in flight when a run ended without an answer; they are sent again.

    A batch that is unchanged (same runs, same versions) gets its old id (`uid_of`). Other contents get a new id: a
    service that recognises messages by id would otherwise ignore them.
    """
    with context.store.write() as connection:
        in_flight.settle_deselected(connection, context.target_id, context.clock(), context.part)
        # A service that replaces is sent the present version: called changed as well, the run would be sent twice.
        if not context.keeps_first:
            in_flight.forget_changes(connection, context.target_id, context.part)
        sent = in_flight.in_flight(connection, context.target_id, context.part)
    by_batch: dict[int, list[PendingDelivery]] = {}
    for batch_id, delivery in sent:
        by_batch.setdefault(batch_id, []).append(delivery)
    for batch_id, page in by_batch.items():
        with context.store.write() as connection:
            answer = "no answer was recorded; sent again with the same record ids"
            batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, context.clock(), answer=answer)
        made = records_of(recipient, page)
        hold(context, made.held, State.IN_FLIGHT)
        for items in cut(made.items, limits):
            yield Batch(items, State.IN_FLIGHT)


def put_back(context: DeliveryContext, batch_ids: Iterable[int] = ()) -> None:
    """Let all that is in flight wait again, and close its batches: of a part of the deliveries, these batches."""
    with context.store.write() as connection:
        now = context.clock()
        in_flight.let_wait(connection, context.target_id, State.IN_FLIGHT, now, context.part)
        if context.part == WHOLE:
            groups.put_back(connection, context.target_id, now)
        # Of a part, only its own batches: those of other publishers are still in flight.
        batches.close_open(connection, context.target_id, now, None if context.part == WHOLE else batch_ids)
