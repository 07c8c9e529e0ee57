"""The intake of a lane: what waits, page by page, and what was in flight when a run ended; rendered, to be sent."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from publisher.events import RecordSettled
from publisher.messages.item import Held, Item, ItemPage, Limits, cut
from publisher.messages.items import records_of
from publisher.messages.recipient import Recipient
from publisher.publish.dispatch import DeliveryContext
from publisher.publish.queue import Batch
from publisher.store import batches, deliveries, in_flight
from publisher.store.queries import PendingDelivery
from publisher.store.schema import BatchState, State


class PendingReader:
    """Of one run. What cannot be rendered is held with the reason."""

    def __init__(self, lane: DeliveryContext, recipient: Recipient, pages: Iterator[ItemPage]) -> None:
        self._lane = lane
        self._recipient = recipient
        self._pages = pages

    def next_page(self) -> Sequence[Item] | None:
        """The next page of what waits, oldest first; None at the end."""
        page = next(self._pages, None)
        return None if page is None else self._unless_held(page, State.WAITING)

    def recovered(self, limits: Limits) -> Iterator[Batch]:
        """Batches that were in flight when a run ended without an answer: to be sent again, with the same ids."""
        lane = self._lane
        with lane.store.write() as connection:
            in_flight.settle_unwanted(connection, lane.target_id, lane.clock(), lane.part)
            if not lane.keeps_first:
                in_flight.forget_changes(connection, lane.target_id, lane.part)
            found = in_flight.in_flight(connection, lane.target_id, lane.part)
        by_batch: dict[int, list[PendingDelivery]] = {}
        for batch_id, delivery in found:
            by_batch.setdefault(batch_id, []).append(delivery)
        for batch_id, page in by_batch.items():
            with lane.store.write() as connection:
                uid = batches.uid_of(connection, batch_id)
                answer = "no answer was recorded: sent again with the same ids"
                batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, lane.clock(), answer=answer)
            made = records_of(self._recipient, page)
            pieces = list(cut(self._unless_held(made, State.IN_FLIGHT), limits))
            for items in pieces:
                yield Batch(items, State.IN_FLIGHT, uid if len(pieces) == 1 else None)

    def _unless_held(self, page: ItemPage, before: State) -> Sequence[Item]:
        if page.held:
            self._hold(page.held, before)
        return page.items

    def _hold(self, held: Sequence[Held], before: State) -> None:
        lane = self._lane
        with lane.store.write() as connection:
            moves = [(*run, before, State.HELD, each.reason) for each in held for run in each.members]
            lane.sent.held += deliveries.move_if_unchanged(connection, lane.target_id, moves, lane.clock())
            lane.mark_due(connection, [each.latest_end for each in held if each.latest_end is not None])
        for each in held:
            lane.observer(RecordSettled(lane.target, each.key, State.HELD.word, each.reason))
