"""Rendering apart: the rest of a long backlog is read and rendered by a process of its own, while this one sends.

Reading, rendering and sending cost about the same, and a process uses one core. The first pages are made here; where
many more wait, another process goes on behind them. It only reads the store. Should it end too early, this one goes on
where it stopped: what it made is the same as what is made here.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

import msgspec

from publisher import apart
from publisher.config import Config
from publisher.forms import record_format
from publisher.pipeline.demand import Demand
from publisher.pipeline.rendered import PageRenderer, Place, RenderedPage
from publisher.pipeline.viewing import view_of
from publisher.store.database import Store, open_store
from publisher.store.part import Part

WORTH_RUNS: Final = 10_000
"""So many must wait: to begin another process costs as much as to render some thousand runs."""
PAGES_HERE: Final = 3

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(RenderedPage)


class RenderOrder(msgspec.Struct, frozen=True):
    """What another process needs to know in order to render what waits for a target."""

    config: Config
    target: str
    target_id: int
    part: Part
    size: int

    def renderer(self, store: Store) -> PageRenderer:
        """What renders, over a store that is only read."""
        settings = self.config.targets[self.target]
        form = record_format(settings.records, view_of(settings, self.config))
        return PageRenderer(store, self.target_id, self.part, form, Demand(self.config, settings), self.size)


class RenderedPages:
    """Pages of a target's backlog, made here or, from the fourth on, in another process."""

    def __init__(self, here: PageRenderer, order: RenderOrder, waiting: int, cores: int | None = None) -> None:
        """`waiting`: about how many runs wait; `cores`: how many this process may use."""
        self._here = here
        self._order = order
        self._apart = waiting >= WORTH_RUNS and (cores or apart.cores()) > 1

    def pages(self, again: bool) -> Generator[RenderedPage, None, None]:
        """All that waits, oldest end first; `again` as for `PageRenderer.page`. Closed, its process ends."""
        place: Place | None = None
        for count, page in enumerate(self._pages_here(None, again=again), 1):
            yield page
            place = page.place
            if self._apart and count == PAGES_HERE:
                break
        else:
            return
        try:
            with apart.Apart(__name__, (self._order, place, again)) as other:
                for page in map(_decoder.decode, other.frames()):
                    yield page
                    place = page.place
                    del page  # one in hand at a time
        except apart.EndedError:
            yield from self._pages_here(place, again=again)

    def _pages_here(self, place: Place | None, *, again: bool) -> Generator[RenderedPage, None, None]:
        while (page := self._here.page(place, again=again)) is not None:
            yield page
            place = page.place


def _render(order: tuple[RenderOrder, Place, bool], send: apart.Send) -> None:
    asked, place, again = order
    settings = asked.config.store
    with closing(open_store(settings.url, settings.busy_timeout, read_only=True)) as store:
        renderer = asked.renderer(store)
        while (page := renderer.page(place, again=again)) is not None:
            send(_encoder.encode(page))
            place = page.place


if __name__ == "__main__":
    apart.serve(_render)
