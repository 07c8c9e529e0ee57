"""Rendering apart: the rest of a long backlog is read and rendered by a process of its own, while this one sends.

Reading, rendering and sending cost about the same, and a process uses one core. Where many wait, the first of them are
rendered here, while another process begins behind them. It only reads the store. Should it end too early, this one goes
on where it stopped: what it made is the same as what is made here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

import msgspec

from publisher import subprocess_worker
from publisher.collect.wants import RunPreparer
from publisher.config.schema import Config
from publisher.messages.duplicate_guard import DuplicateGuard
from publisher.messages.item import view_of
from publisher.messages.records import PageRenderer, Place, RenderedPage
from publisher.plugins import record_format
from publisher.store.database import Store, open_store
from publisher.store.deliveries import Shard

WORTH_RUNS: Final = 20_000
"""So many must wait: to begin another process costs as much as to render some ten thousand runs."""
RUNS_HERE: Final = 3_000
"""So many are rendered here in about the time in which the other process begins."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(RenderedPage)


class RenderOrder(msgspec.Struct, frozen=True):
    """What another process needs to know in order to render what waits for a target."""

    config: Config
    target: str
    target_id: int
    part: Shard
    size: int

    def renderer(self, store: Store) -> PageRenderer:
        """What renders, over a store that is only read."""
        settings = self.config.targets[self.target]
        view = view_of(settings, self.config)
        form = record_format(settings.records, view)
        demand = RunPreparer(self.config, settings)
        guard = DuplicateGuard(self.config, form, view, demand, self.target_id)
        return PageRenderer(store, self.target_id, self.part, form, demand, guard, self.size)


class RenderedPages:
    """Pages of a target's backlog, made here or, behind the first of them, in another process."""

    def __init__(self, here: PageRenderer, order: RenderOrder, waiting: int, cores: int | None = None) -> None:
        """`waiting`: about how many runs wait; `cores`: how many this process may use."""
        self._here = here
        self._order = order
        self._apart = waiting >= WORTH_RUNS and (cores or subprocess_worker.cores()) > 1

    def pages(self, again: bool) -> Generator[RenderedPage, None, None]:
        """All that waits, oldest end first; `again` as for `PageRenderer.page`. Closed, its process ends."""
        behind = self._here.place_of(RUNS_HERE) if self._apart else None
        place: Place | None = None
        try:
            if behind is not None:
                for page in self._pages_of_both(behind, again=again):
                    yield page
                    place = page.place
                    del page  # one in hand at a time
        except subprocess_worker.EndedError:
            behind = None  # the rest is made here
        if behind is None:
            yield from self._pages_here(place, again=again)

    def _pages_of_both(self, behind: Place, *, again: bool) -> Generator[RenderedPage, None, None]:
        with subprocess_worker.WorkerProcess(__name__, (self._order, behind, again)) as other:
            yield from self._pages_until(behind, again=again)
            yield from map(_decoder.decode, other.frames())

    def _pages_until(self, behind: Place, *, again: bool) -> Generator[RenderedPage, None, None]:
        for page in self._pages_here(None, again=again):
            if page.place >= behind:
                yield page.until(behind)
                return
            yield page

    def _pages_here(self, place: Place | None, *, again: bool) -> Generator[RenderedPage, None, None]:
        while (page := self._here.page(place, again=again)) is not None:
            yield page
            place = page.place


def _render(order: tuple[RenderOrder, Place, bool], send: subprocess_worker.Send) -> None:
    asked, place, again = order
    settings = asked.config.store
    with closing(open_store(settings.url, settings.busy_timeout, read_only=True)) as store:
        renderer = asked.renderer(store)
        while (page := renderer.page(place, again=again)) is not None:
            send(_encoder.encode(page))
            place = page.place


if __name__ == "__main__":
    subprocess_worker.serve(_render)
