"""Reads the rest of a large source in a worker process, while this process stores what was read.

Reading and storing cost about the same, and a process uses one core. The beginning is read here, since most collects
find little. If the source goes on, a worker reads from its cursor on (a window from its beginning), sends the pages
through a pipe, and waits while the pipe is full. It is started while the beginning is read, since loading its modules
takes as long as reading some thousand runs. It also encodes the runs, so that this process only looks up and writes
rows. It writes nothing else, and ends with its parent.

A window whose first page is mostly recognised is read here: there is little to read.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import islice
from typing import Final

import msgspec

from publisher import subprocess_worker
from publisher.config.sources import SourceSettings
from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.sources import make_source
from publisher.sources.base import (
    FILE_MARKS,
    PAGE_RECORDS,
    Cursor,
    EncodedPage,
    Known,
    Recognising,
    StoredMarks,
    Window,
    cursor_of,
    encode_page,
)
from publisher.sources.tool import HasTool, ToolSums

_START_AFTER: Final = PAGE_RECORDS
READ_HERE: Final = 2 * PAGE_RECORDS
"""How much is read before a worker is started, and before it reads. Small pages, of which a source may have many when
it has little, count by their content. A window has no cursor to continue from: the worker reads this part again."""


class _PageRead(msgspec.Struct):
    """A page from the worker."""

    page: EncodedPage
    complete_since: int | None


_Order = tuple[str, SourceSettings, str, list[bytes] | None, Window | None]
_decoder: Final = msgspec.msgpack.Decoder(_PageRead)


class BackgroundReader:
    """A source of which a worker process does the long readings, if there is a core for it."""

    def __init__(self, name: str, settings: SourceSettings, *, cores: int | None = None) -> None:
        """`cores`: the number of cores this process may use. Raises `ConfigError` as `make_source`."""
        self._here = make_source(name, settings)
        self._settings = settings
        self._may_use_worker = (cores or subprocess_worker.cores()) > 1
        self._worker_read = False
        self._worker_complete_since: int | None = None
        self.name = name
        self.kind = self._here.kind

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[EncodedPage]:
        """See `publisher.sources.base.Source`."""
        yield from self._pages(cursor, window, None)

    def window_pages(self, cursor: Cursor, window: Window, known: Known) -> Iterator[EncodedPage]:
        """See `publisher.sources.base.Recognising`; a source that does not recognise runs reads the whole window."""
        yield from self._pages(cursor, window, known)

    def _pages(self, cursor: Cursor, window: Window | None, known: Known | None) -> Iterator[EncodedPage]:
        self._worker_read = False
        here = not self._may_use_worker
        kept: list[EncodedPage] = []
        read = 0
        here_now = "{}"
        marks: StoredMarks | None = cursor.get(FILE_MARKS) if window is None else None
        with ExitStack() as stack:
            worker: subprocess_worker.WorkerProcess | None = None
            with closing(self._pages_here(cursor, window, known)) as pages:
                for count, page in enumerate(pages, 1):
                    here = here or (count == 1 and 0 < page.read <= 2 * page.recognised.count)
                    read += page.read
                    if worker is None and not here and not page.at_end and read >= _START_AFTER:
                        worker = stack.enter_context(subprocess_worker.WorkerProcess(__name__))
                    if window is None or here:
                        yield page
                        here_now = page.cursor
                    else:
                        kept.append(page)
                    if worker is not None and not page.at_end and read >= READ_HERE:
                        break
                else:
                    yield from kept
                    return
            kept.clear()
            worker.give((self.name, self._settings, here_now, marks and _packed(marks()), window))
            yield from self._pages_of(worker)

    def _pages_of(self, worker: subprocess_worker.WorkerProcess) -> Iterator[EncodedPage]:
        try:
            for read in worker.results(_decoder):
                self._worker_read, self._worker_complete_since = True, read.complete_since
                page = read.page
                del read  # only one in memory at a time
                yield page
                del page
        except subprocess_worker.EndedError as error:
            raise SourceError(
                f"the process that read the source {self.name} ended too early ({error})",
                hint="What it read is stored; the next collect continues from there",
            ) from None

    def _pages_here(
        self, cursor: Cursor, window: Window | None, known: Known | None
    ) -> Generator[EncodedPage, None, None]:
        if window is not None and known is not None and isinstance(self._here, Recognising):
            pages = self._here.window_pages(cursor, window, known)
        else:
            pages = self._here.pages(cursor, window)
        for page in pages:
            encoded = encode_page(page, again=window is not None)
            del page  # its runs are encoded: only one form of them in memory
            yield encoded
            del encoded

    def complete_since(self) -> int | None:
        """See `publisher.sources.base.Source`; from the process that read last."""
        return self._worker_complete_since if self._worker_read else self._here.complete_since()

    def tool_sums(self, window: Window, clusters: Collection[str], /) -> ToolSums | None:
        """See `publisher.sources.tool.HasTool`."""
        return self._here.tool_sums(window, clusters) if isinstance(self._here, HasTool) else None

    def check(self) -> list[Finding]:
        """See `publisher.sources.base.Source`."""
        return self._here.check()


_MARKS_AT_ONCE: Final = 1_000


def _packed(marks: Iterable[str]) -> list[bytes]:
    """The marks of log files, compressed for the pipe: there may be many."""
    texts = iter(marks)
    parts = iter(lambda: list(islice(texts, _MARKS_AT_ONCE)), [])
    return [zlib.compress(msgspec.msgpack.encode(part), 1) for part in parts]


def _unpacked(parts: list[bytes]) -> Iterator[str]:
    for part in parts:
        yield from msgspec.msgpack.decode(zlib.decompress(part), type=list[str])


def _read(order: _Order, send: subprocess_worker.Send) -> None:
    name, settings, text, marks, window = order
    source = make_source(name, settings)
    cursor = cursor_of(text)
    if marks is not None:
        cursor = {**cursor, FILE_MARKS: partial(_unpacked, marks)}
    for page in source.pages(cursor, window):
        encoded = encode_page(page, again=window is not None)
        del page  # its runs are encoded: only one form of them in memory
        send(_PageRead(encoded, source.complete_since()))


if __name__ == "__main__":
    subprocess_worker.serve(_read)
