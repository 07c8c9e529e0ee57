"""The intake of a lane: what waits, page by page, and what was in flight when a run ended; rendered, to be sent."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from publisher.events import RecordSettled
from publisher.messages.item import Item, Limits, cut
from publisher.messages.records import HeldRun, PageRenderer, RenderedPage
from publisher.publish.dispatch import DeliveryContext
from publisher.publish.queue import Batch
from publisher.store import batches, deliveries, in_flight
from publisher.store.queries import PendingDelivery
from publisher.store.schema import BatchState, State

Pages = Callable[[bool], Generator[RenderedPage, None, None]]
"""Gives the pages of all that waits; the argument as `again` of `PageRenderer.page`."""


class PendingReader:
    """Of one run. What cannot be rendered is held with the reason. Close it at the end."""

    def __init__(self, lane: DeliveryContext, renderer: PageRenderer, pages: Pages) -> None:
        self._lane = lane
        self._renderer = renderer
        self._make_pages = pages
        self._pages: Generator[RenderedPage, None, None] | None = None
        self._stored_again = False

    def next_page(self) -> Sequence[Item] | None:
        """The next page of what waits, oldest first; None at the end."""
        if self._pages is None:
            self._pages = self._make_pages(self._stored_again)
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
            # A service that keeps last versions has to store what is sent again; one that keeps first ones ignores it.
            self._stored_again = not lane.keeps_first and batches.under_way(connection, lane.target_id)
        by_batch: dict[int, list[PendingDelivery]] = {}
        for batch_id, delivery in found:
            by_batch.setdefault(batch_id, []).append(delivery)
        for batch_id, page in by_batch.items():
            with lane.store.write() as connection:
                uid = batches.uid_of(connection, batch_id)
                answer = "no answer was recorded: sent again with the same ids"
                batches.close(connection, batch_id, BatchState.NOT_ACCEPTED, lane.clock(), answer=answer)
            rendered = self._renderer.rendered(page, [True] * len(page))
            pieces = list(cut(self._unless_held(rendered, State.IN_FLIGHT), limits))
            for items in pieces:
                yield Batch(items, State.IN_FLIGHT, uid if len(pieces) == 1 else None)

    def close(self) -> None:
        """No more pages are asked for."""
        if self._pages is not None:
            self._pages.close()

    def _unless_held(self, page: RenderedPage, before: State) -> Sequence[Item]:
        if page.held:
            self._hold(page.held, before)
        return page.items

    def _hold(self, held: Sequence[HeldRun], before: State) -> None:
        lane = self._lane
        with lane.store.write() as connection:
            moves = [(each.run_id, each.seen, before, State.HELD, each.reason) for each in held]
            lane.sent.held += deliveries.move_seen(connection, lane.target_id, moves, lane.clock())
            lane.mark_due(connection, [each.end_time for each in held])
        for each in held:
            lane.observer(RecordSettled(lane.target, each.record_id, State.HELD.word, each.reason))
