"""What is still to be sent to one target in this run: parts of refused batches first, then pages of what waits."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from publisher.messages.item import Item, Limits, halves, take
from publisher.store.schema import State


class Batch(msgspec.Struct, frozen=True):
    """Items to be sent together. `before` is the state of their deliveries; `uid` the id of a batch sent again.

    While a culprit is looked for: `sister` holds it if these items do not, `others` were refused with both and come
    after, all at once; `since` is the last batch that had left when all of them were first refused.
    """

    items: Sequence[Item]
    before: State
    uid: str | None = None
    sister: Sequence[Item] = ()
    others: Sequence[Item] = ()
    since: int | None = None

    @property
    def all_items(self) -> Sequence[Item]:
        """With those that come after."""
        return [*self.items, *self.sister, *self.others]

    def without(self, gone: Item) -> Batch:
        """All but one of its items or those that come after; which holds the culprit is not known any more if it may
        have been this one."""
        if any(item is gone for item in self.others):
            others = [item for item in self.others if item is not gone]
            return Batch(self.items, self.before, None, self.sister, others, self.since)
        return Batch([item for item in self.all_items if item is not gone], self.before, since=self.since)

    @property
    def tells(self) -> bool:
        """Whether its being taken shows that the service takes new records; what it has it takes anyway."""
        return not all(item.may_be_there for item in self.items)


def after_refusal(flight: Batch, since: int) -> list[Batch]:
    """What to send when a flight was refused: its first half, whose fate tells about the second; the rest once the
    culprit is alone."""
    behind = [*flight.sister, *flight.others]
    if len(flight.items) > 1:
        first, second = halves(flight.items)
        return [Batch(first, State.IN_FLIGHT, sister=second, others=behind, since=since)]
    return [Batch(behind, State.IN_FLIGHT, since=since)] if behind else []


def after_acceptance(flight: Batch) -> list[Batch]:
    """What to send when a flight was taken: the culprit is in its sister then, of which a half is enough to go on."""
    if len(flight.sister) > 1:
        first, second = halves(flight.sister)
        return [Batch(first, State.IN_FLIGHT, sister=second, others=flight.others, since=flight.since)]
    if flight.sister:
        return [Batch(flight.sister, State.IN_FLIGHT, others=flight.others, since=flight.since)]
    return [Batch(flight.others, State.IN_FLIGHT, since=flight.since)] if flight.others else []


class SendQueue:
    """Gives flights in order. `refill` gives the next page of rendered items that wait, or None at the end.

    A batch and more are kept loaded, at least `loaded` items: only the last batch is short because a page ended, and
    scouts come from afar.
    """

    def __init__(self, limits: Limits, refill: Callable[[], Sequence[Item] | None], loaded: int = 1000) -> None:
        self._limits = limits
        self._refill = refill
        self._parts: list[Batch] = []
        self._queue: deque[Item] = deque()
        self._loaded = max(limits.records, loaded)
        self._at_end = False

    def push(self, flights: Sequence[Batch]) -> None:
        """Put flights before everything else, the first of them first."""
        self._parts += reversed(flights)

    def next(self) -> Batch | None:
        """The next flight; None when nothing is left."""
        if self._parts:
            return self._parts.pop()
        self._load()
        if not self._queue:
            return None
        return Batch(take(self._queue, self._limits), State.WAITING)

    def keep_last(self, flight: Batch) -> bool:
        """Put back a flight that was never refused if nothing is left behind it; whether it was.

        What is taken last shows how the service was after all that it refused.
        """
        if flight.before is not State.WAITING or self._parts or self._queue:
            return False
        self._load()
        if self._queue:
            return False
        self._queue.extend(flight.items)
        return True

    def _load(self) -> None:
        while len(self._queue) < self._loaded and not self._at_end:
            page = self._refill()
            if page is None:
                self._at_end = True
            else:
                self._queue.extend(page)

    def draw(self, *, newest: bool = False) -> Batch | None:
        """A single record from anywhere in what is loaded: a scout, to see whether the service takes anything.

        One that was never refused, as long as there are such; the newest, if asked.
        """
        if self._queue:
            place = len(self._queue) - 1 if newest else random.randrange(len(self._queue))  # noqa: S311 - any will do
            item = self._queue[place]
            del self._queue[place]
            return Batch([item], State.WAITING)
        places = [(index, item) for index, flight in enumerate(self._parts) for item in flight.all_items]
        if not places:
            return None
        by_end = max(places, key=lambda place: place[1].latest_end or 0)
        index, item = by_end if newest else random.choice(places)  # noqa: S311 - as above
        flight = self._parts[index]
        rest = flight.without(item)
        self._parts[index : index + 1] = [rest] if rest.items else []
        return Batch([item], flight.before, since=flight.since)
