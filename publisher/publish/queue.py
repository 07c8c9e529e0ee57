"""The queue of a section: parts of refused batches first, then pages of items."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from publisher.messages.item import Item, Limits, halves, take
from publisher.store.schema import State


class Batch(msgspec.Struct, frozen=True):
    """Items to be sent together. `before` is the state of their deliveries.

    While the refused item is being searched for: `other_half` contains it if these items do not; `rest` was refused
    together with both and follows all at once; `since` is the last batch that had been sent when all of them were first
    refused.
    """

    items: Sequence[Item]
    before: State
    other_half: Sequence[Item] = ()
    rest: Sequence[Item] = ()
    since: int | None = None

    @property
    def all_items(self) -> Sequence[Item]:
        """All items: those of this batch and those that follow it."""
        return [*self.items, *self.other_half, *self.rest]

    def without(self, gone: Item) -> Batch:
        """Return the batch without one item, of this batch or of those that follow. If that item may have been the
        refused one, the search starts again."""
        if any(item is gone for item in self.rest):
            rest = [item for item in self.rest if item is not gone]
            return Batch(self.items, self.before, self.other_half, rest, self.since)
        return Batch([item for item in self.all_items if item is not gone], self.before, since=self.since)

    @property
    def has_new(self) -> bool:
        """Whether acceptance shows that the service takes new records; known records it accepts in any case."""
        return not all(item.may_be_there for item in self.items)


def after_refusal(batch: Batch, since: int, parts: Sequence[Sequence[str]] = ()) -> list[Batch]:
    """Return what to send after a refusal: the first half, whose outcome shows which half contains the refused item;
    the rest follows once that item is alone. With `parts` (by key), which the service accepts or refuses as a whole:
    all parts at once and then the rest; a single part is sent alone."""
    after = [*batch.other_half, *batch.rest]
    if parts:
        by_key = {item.key: item for item in batch.items}
        shares = [[by_key[key] for key in part] for part in parts] if len(parts) > 1 else []
        return [Batch(share, State.IN_FLIGHT, since=since) for share in [*shares, after] if share]
    if len(batch.items) > 1:
        first, second = halves(batch.items)
        return [Batch(first, State.IN_FLIGHT, other_half=second, rest=after, since=since)]
    return [Batch(after, State.IN_FLIGHT, since=since)] if after else []


def after_acceptance(batch: Batch) -> list[Batch]:
    """Return what to send after an acceptance: the refused item is in the other half, and half of that is sent next."""
    if len(batch.other_half) > 1:
        first, second = halves(batch.other_half)
        return [Batch(first, State.IN_FLIGHT, other_half=second, rest=batch.rest, since=batch.since)]
    if batch.other_half:
        return [Batch(batch.other_half, State.IN_FLIGHT, rest=batch.rest, since=batch.since)]
    return [Batch(batch.rest, State.IN_FLIGHT, since=batch.since)] if batch.rest else []


class SendQueue:
    """Gives batches in order. `refill` returns the next page of items, or None at the end.

    At least `loaded` items, more than a batch, are kept in memory, so that only the last batch can be short and probes
    come from many items.
    """

    def __init__(self, limits: Limits, refill: Callable[[], Sequence[Item] | None], loaded: int = 1000) -> None:
        self._limits = limits
        self._refill = refill
        self._parts: list[Batch] = []
        self._queue: deque[Item] = deque()
        self._loaded = max(limits.records, loaded)
        self._at_end = False

    @property
    def most(self) -> int:
        """The maximum number of records in a message."""
        return self._limits.records

    def shorten(self, most: int) -> None:
        """Make all later messages of no more records than this."""
        self._limits = msgspec.structs.replace(self._limits, records=min(most, self._limits.records))

    def push(self, batches: Sequence[Batch]) -> None:
        """Put batches before all others, in this order. Of one with too many records the others follow."""
        self._parts += map(self._cut, reversed(batches))

    def _cut(self, batch: Batch) -> Batch:
        items, most = batch.items, self._limits.records
        if batch.other_half or len(items) <= most:
            return batch
        return msgspec.structs.replace(batch, items=items[:most], rest=[*items[most:], *batch.rest])

    def next(self) -> Batch | None:
        """Return the next batch; None if nothing is left."""
        if self._parts:
            return self._parts.pop()
        self._load()
        if not self._queue:
            return None
        return Batch(take(self._queue, self._limits), State.WAITING)

    def keep_last(self, batch: Batch) -> bool:
        """Put back a batch that was never refused if nothing follows it; return whether it was put back.

        The last acceptance of a run shows the state of the service after all its refusals.
        """
        if batch.before is not State.WAITING or self._parts or self._queue:
            return False
        self._load()
        if self._queue:
            return False
        self._queue.extend(batch.items)
        return True

    def _load(self) -> None:
        while len(self._queue) < self._loaded and not self._at_end:
            page = self._refill()
            if page is None:
                self._at_end = True
            else:
                self._queue.extend(page)

    def draw(self, *, newest: bool = False) -> Batch | None:
        """Draw one random record of those in memory, as a probe of whether the service takes anything.

        Prefers records that were never refused; the newest, if asked.
        """
        self._load()
        if self._queue:
            # Random, since neighbours are often of one user or host: bad for one reason, they would look like a failing
            # service.
            place = len(self._queue) - 1 if newest else random.randrange(len(self._queue))  # noqa: S311 - not a secret
            item = self._queue[place]
            del self._queue[place]
            return Batch([item], State.WAITING)
        places = [(index, item) for index, part in enumerate(self._parts) for item in part.all_items]
        if not places:
            return None
        by_end = max(places, key=lambda place: place[1].latest_end or 0)
        index, item = by_end if newest else random.choice(places)  # noqa: S311 - as above
        part = self._parts[index]
        left = part.without(item)
        self._parts[index : index + 1] = [left] if left.items else []
        return Batch([item], part.before, since=part.since)
