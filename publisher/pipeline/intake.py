"""The intake of a lane: what waits, page by page, and what was in flight when a run ended; rendered, to be sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from formats.record import CannotRenderError
from publisher.observe.events import RecordSettled
from publisher.pipeline.backlog import Flight
from publisher.pipeline.batch import Item, Limits, cut
from publisher.pipeline.demand import Demand
from publisher.pipeline.lane import Lane
from publisher.store import batches, deliveries, resends
from publisher.store.deliveries import Waiting
from publisher.store.states import BatchState, State


class Intake:
    """Of one run. What cannot be rendered is held with the reason."""

    def __init__(self, lane: Lane, demand: Demand, page: int) -> None:
        """`page`: runs read and rendered at a time."""
        self._lane = lane
        self._demand = demand
        self._page = page
        self._after: tuple[int, int] | None = None
        self._stored_again = False

    def next_page(self) -> Sequence[Item] | None:
        """The next page of what waits, oldest first; None at the end."""
        lane = self._lane
        with lane.store.read() as connection:
            page = deliveries.waiting(connection, lane.target_id, self._after, self._page, lane.part)
        if not page:
            return None
        self._after = (page[-1].end_time, page[-1].run.run_id)
        return self._rendered(page, State.WAITING)

    def recovered(self, limits: Limits) -> Iterator[Flight]:
        """Batches that were in flight when a run ended without an answer: to be sent again, with the same ids."""
        lane = self._lane
        with lane.store.write() as connection:
            deliveries.settle_unwanted(connection, lane.target_id, lane.clock(), lane.part)
            if not lane.keeps_first:
                deliveries.forget_changes(connection, lane.target_id, lane.part)
            found = deliveries.in_flight(connection, lane.target_id, lane.part)
            # A service that keeps last versions has to store what is sent again; one that keeps first ones ignores it.
            self._stored_again = not lane.keeps_first and resends.under_way(connection, lane.target_id)
        by_batch: dict[int, list[Waiting]] = {}
        for batch_id, delivery in found:
            by_batch.setdefault(batch_id, []).append(delivery)
        for batch_id, page in by_batch.items():
            with lane.store.write() as connection:
                uid = batches.uid_of(connection, batch_id)
                answer = "no answer was recorded: sent again with the same ids"
                batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, lane.clock(), answer=answer)
            pieces = list(cut(self._rendered(page, State.IN_FLIGHT), limits))
            for items in pieces:
                yield Flight(items, State.IN_FLIGHT, uid if len(pieces) == 1 else None)

    def _rendered(self, page: Sequence[Waiting], before: State) -> list[Item]:
        items = []
        held: list[tuple[Waiting, str]] = []
        for delivery in page:
            run = delivery.run
            try:
                rendered = self._lane.record_format.record(self._demand.meet(run), run.stored_at)
            except CannotRenderError as error:
                held.append((delivery, str(error)))
                continue
            record_id = rendered.record_id or run.record_id
            there = before is State.IN_FLIGHT or (delivery.sent is not None and not self._stored_again)
            items.append(
                Item(
                    run.run_id,
                    delivery.end_time,
                    record_id,
                    run.digest,
                    rendered.body,
                    delivery.seen,
                    delivery.sent,
                    there,
                )
            )
        if held:
            self._hold(held, before)
        return items

    def _hold(self, held: Sequence[tuple[Waiting, str]], before: State) -> None:
        lane = self._lane
        with lane.store.write() as connection:
            moves = [(delivery.run.run_id, delivery.seen, before, State.HELD, reason) for delivery, reason in held]
            lane.sent.held += deliveries.move_seen(connection, lane.target_id, moves, lane.clock())
            lane.mark_due(connection, [delivery.end_time for delivery, _ in held])
        for delivery, reason in held:
            lane.observer(RecordSettled(lane.target, delivery.run.record_id, State.HELD.word, reason))
