"""Rendering in a worker process: the rest of a long backlog is read and rendered there while this process sends.

Reading, rendering, and sending cost about the same, and a process uses one core. If many runs wait, the first are
rendered here, while the worker process starts after them. It only reads the store. If it ends too early, this process
continues where it stopped; the result is the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

import msgspec

from publisher import subprocess_worker
from publisher.config.schema import Config
from publisher.messages.item import ItemPage
from publisher.messages.recipient import Recipient
from publisher.messages.records import PageRenderer
from publisher.messages.steps import BacklogLimits, Scope
from publisher.plugins import record_format
from publisher.store.database import Store, open_store
from publisher.store.paging import Place

_decoder: Final = msgspec.msgpack.Decoder(ItemPage)


class RenderOrder(msgspec.Struct, frozen=True):
    """What a worker process needs in order to render what waits for a target."""

    config: Config
    target: str
    scope: Scope
    size: int

    def renderer(self, store: Store) -> PageRenderer:
        """Return the renderer, over a store that is opened read-only."""
        recipient = Recipient(store, self.config, self.target)
        form = record_format(recipient.format_name, recipient.view)
        return PageRenderer(recipient, form, self.scope, self.size)


class BackgroundRenderer:
    """Pages of a target's backlog, made here or, after the first ones, in a worker process."""

    def __init__(self, here: PageRenderer, order: RenderOrder, waiting: int, limits: BacklogLimits) -> None:
        """`waiting`: about how many runs wait."""
        self._here = here
        self._order = order
        self._runs_here = limits.runs_here
        self._in_worker = waiting >= limits.worth_runs and (limits.cores or subprocess_worker.cores()) > 1

    def pages(self, as_new: bool) -> Generator[ItemPage, None, None]:
        """Yield all that waits, oldest end first; `as_new` as in `PageRenderer.page`. Closing it ends its process."""
        border = self._here.place_of(self._runs_here) if self._in_worker else None
        place: Place | None = None
        try:
            if border is not None:
                for page in self._pages_of_both(border, as_new=as_new):
                    yield page
                    place = page.place
                    del page  # one page at a time
        except subprocess_worker.EndedError:
            border = None  # the rest is rendered here
        if border is None:
            yield from self._pages_here(place, as_new=as_new)

    def _pages_of_both(self, border: Place, *, as_new: bool) -> Generator[ItemPage, None, None]:
        with subprocess_worker.WorkerProcess(__name__) as worker:
            worker.give((self._order, border, as_new))
            yield from self._pages_until(border, as_new=as_new)
            yield from worker.results(_decoder)

    def _pages_until(self, border: Place, *, as_new: bool) -> Generator[ItemPage, None, None]:
        for page in self._pages_here(None, as_new=as_new):
            if page.place is None or page.place >= border:
                yield page.until(border)
                return
            yield page

    def _pages_here(self, place: Place | None, *, as_new: bool) -> Generator[ItemPage, None, None]:
        while (page := self._here.page(place, as_new=as_new)) is not None:
            yield page
            place = page.place


def _render(order: tuple[RenderOrder, Place, bool], send: subprocess_worker.Send) -> None:
    asked, begin, as_new = order
    place: Place | None = begin
    settings = asked.config.store
    with closing(open_store(settings.url, settings.busy_timeout, read_only=True)) as store:
        renderer = asked.renderer(store)
        while (page := renderer.page(place, as_new=as_new)) is not None:
            send(page)
            place = page.place


if __name__ == "__main__":
    subprocess_worker.serve(_render)
