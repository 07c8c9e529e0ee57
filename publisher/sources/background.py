"""Reading apart: the rest of a large source is read by a process of its own, while this one stores what it gives.

Reading and storing cost about the same, and a process uses one core. The first pages are read here, since most
collects find little; a source that goes on is then read from its cursor by a child, which sends page after page through
a pipe and waits while the pipe is full. A window that goes on is read by the child from its beginning. The child seals
the runs, so that here nothing is left to be done but look-ups and rows. It never writes anything else, and ends with
its parent.

A window is read here where most of what is in its first page is recognised: then there is little to read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Final

import msgspec

from publisher import subprocess_worker
from publisher.config import schema
from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.sources import make_source
from publisher.sources.base import Cursor, Known, Recognising, SealedPage, Window, cursor_of, sealed, text_of

PAGES_HERE: Final = 3
PAGES_OF_WINDOW: Final = 2
"""A window has no cursor to go on from: if it ends within so many pages they are given, and else read once more."""


class _Read(msgspec.Struct):
    """A page, its cursor as it is stored."""

    page: SealedPage
    cursor: str
    complete_since: int | None


_Order = tuple[str, schema.SourceSettings, Cursor, Window | None]
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Read)


class BackgroundReader:
    """A source as any other, whose long reads are done by another process where there is a core for it."""

    def __init__(self, name: str, settings: schema.SourceSettings, *, cores: int | None = None) -> None:
        """`cores`: how many this process may use. Raises `ConfigError` as `make_source`."""
        self._here = make_source(name, settings)
        self._settings = settings
        self._apart = (cores or subprocess_worker.cores()) > 1
        self._told_since: int | None = None
        self._told = False
        self.name = name
        self.kind = self._here.kind

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[SealedPage]:
        """See `publisher.sources.base.Source`."""
        yield from self._pages(cursor, window, None)

    def window_pages(self, cursor: Cursor, window: Window, known: Known) -> Iterator[SealedPage]:
        """See `publisher.sources.base.Recognising`; of any source."""
        yield from self._pages(cursor, window, known)

    def _pages(self, cursor: Cursor, window: Window | None, known: Known | None) -> Iterator[SealedPage]:
        self._told = False
        here = not self._apart
        kept: list[SealedPage] = []
        with closing(self._pages_here(cursor, window, known)) as pages:
            for count, page in enumerate(pages, 1):
                here = here or (count == 1 and 0 < page.read <= 2 * page.recognised.count)
                if window is None or here:
                    yield page
                    cursor = page.cursor
                else:
                    kept.append(page)
                if not here and not page.at_end and count == (PAGES_HERE if window is None else PAGES_OF_WINDOW):
                    break
            else:
                yield from kept
                return
        kept.clear()
        order: _Order = (self.name, self._settings, dict(cursor), window)
        try:
            with subprocess_worker.WorkerProcess(__name__, order) as reader:
                for read in map(_decoder.decode, reader.frames()):
                    self._told, self._told_since = True, read.complete_since
                    page = msgspec.structs.replace(read.page, cursor=cursor_of(read.cursor))
                    del read  # one in hand at a time
                    yield page
                    del page
        except subprocess_worker.EndedError as error:
            raise SourceError(
                f"the process that read the source {self.name} ended before its end ({error})",
                hint="What it gave is stored; the next collect goes on behind it",
            ) from None

    def _pages_here(
        self, cursor: Cursor, window: Window | None, known: Known | None
    ) -> Generator[SealedPage, None, None]:
        if window is not None and known is not None and isinstance(self._here, Recognising):
            pages = self._here.window_pages(cursor, window, known)
        else:
            pages = self._here.pages(cursor, window)
        for page in pages:
            yield sealed(page, classed=window is None)

    def complete_since(self) -> int | None:
        """As whoever read last knows it."""
        return self._told_since if self._told else self._here.complete_since()

    def check(self) -> list[Finding]:
        """See `publisher.sources.base.Source`."""
        return self._here.check()


def _read(order: _Order, send: subprocess_worker.Send) -> None:
    name, settings, cursor, window = order
    source = make_source(name, settings)
    for page in source.pages(cursor, window):
        made = msgspec.structs.replace(sealed(page, classed=window is None), cursor={})
        send(_encoder.encode(_Read(made, text_of(page.cursor), source.complete_since())))


if __name__ == "__main__":
    subprocess_worker.serve(_read)
