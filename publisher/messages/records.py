"""What waits for a target, page by page, rendered: each run as it will stand in a message, or why it cannot yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from formats.base import CannotRenderError, Note, RecordFormat
from publisher.collect.wants import RunPreparer
from publisher.messages import duplicate_guard
from publisher.messages.duplicate_guard import DuplicateGuard
from publisher.messages.item import Item
from publisher.store import queries
from publisher.store.database import Store
from publisher.store.deliveries import Shard
from publisher.store.queries import PendingDelivery

Noted = Callable[[str, Sequence[Note]], None]
Place = tuple[int, int]
"""Where a page ended: end time and id of its last run."""


class HeldRun(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A run that cannot be rendered. `seen`: how often it had changed when it was read."""

    run_id: int
    seen: int
    end_time: int
    record_id: str
    reason: str


class RenderedPage(msgspec.Struct, frozen=True, array_like=True):
    """Oldest end first. `place` is where the next page begins."""

    items: Sequence[Item]
    held: Sequence[HeldRun]
    place: Place

    def until(self, place: Place) -> RenderedPage:
        """What of it lies up to there."""
        items = [item for item in self.items if (item.end_time, item.run_id) <= place]
        held = [each for each in self.held if (each.end_time, each.run_id) <= place]
        return RenderedPage(items, held, place)


class PageRenderer:
    """Reads and renders the deliveries of one target that wait, or of a part of them."""

    def __init__(
        self,
        store: Store,
        target_id: int,
        part: Shard,
        record_format: RecordFormat,
        demand: RunPreparer,
        guard: DuplicateGuard | None,
        size: int,
        noted: Noted | None = None,
    ) -> None:
        """`guard` None: other sources are not asked. `size`: runs in a page; `noted` is called with every record in
        which a value had to be altered."""
        self._store = store
        self._target_id = target_id
        self._part = part
        self._format = record_format
        self._demand = demand
        self._guard = guard
        self._size = size
        self._noted = noted

    def place_of(self, number: int) -> Place | None:
        """Where the so many-th of them stands; None where fewer wait."""
        with self._store.read() as connection:
            return queries.place_of(connection, self._target_id, number, self._part)

    def page(self, after: Place | None, *, again: bool) -> RenderedPage | None:
        """The next page; None at the end.

        `again`: what the service has is sent again on request, and does as if it were new: there may be nothing else.
        """
        with self._store.read() as connection:
            waiting = queries.waiting(connection, self._target_id, after, self._size, self._part)
        if not waiting:
            return None
        return self.rendered(waiting, [delivery.sent is not None and not again for delivery in waiting])

    def rendered(self, page: Sequence[PendingDelivery], there: Sequence[bool]) -> RenderedPage:
        """These deliveries; `there` says of which the service may have a version."""
        items = []
        held = []
        to_hold = self._counted_twice(page)
        for delivery, may_be_there in zip(page, there, strict=True):
            run = delivery.run
            if run.run_id in to_hold:
                held.append(HeldRun(run.run_id, delivery.seen, delivery.end_time, run.record_id, to_hold[run.run_id]))
                continue
            try:
                made = self._format.record(self._demand.prepare(run), run.stored_at)
            except CannotRenderError as error:
                held.append(HeldRun(run.run_id, delivery.seen, delivery.end_time, run.record_id, str(error)))
                continue
            if made.notes and self._noted is not None:
                self._noted(run.record_id, made.notes)
            record_id = made.record_id or run.record_id
            items.append(
                Item(
                    run.run_id,
                    delivery.end_time,
                    record_id,
                    run.digest,
                    made.body,
                    delivery.seen,
                    delivery.sent,
                    may_be_there,
                )
            )
        return RenderedPage(items, held, (page[-1].end_time, page[-1].run.run_id))

    def _counted_twice(self, page: Sequence[PendingDelivery]) -> dict[int, str]:
        """Those of these runs that would count twice, or in place of another one, by run id, each with the reason."""
        with self._store.read() as connection:
            to_hold = {} if self._guard is None else self._guard.held(connection, [each.run for each in page])
            for each in page:  # corrections alone, of which there are few
                is_changed = each.sent is not None and each.sent != each.run.digest
                if is_changed and duplicate_guard.is_rekeyed(connection, self._format.name, each.run, each.sent):
                    to_hold[each.run.run_id] = duplicate_guard.REASON
        return to_hold
