"""Reading apart: the rest of a large source is read by a process of its own, while this one stores what it gives.

Reading and storing cost about the same, and a process uses one core. The first pages are read here, since most
collects find little; a source that goes on is then read from its cursor by a child, which sends page after page through
a pipe and waits while the pipe is full. A window that goes on is read by the child from its beginning. The child seals
the runs, so that here nothing is left to be done but look-ups and rows. It never writes anything else, and ends with
its parent.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from typing import IO, Final, Self

import msgspec

from publisher import config, errors
from publisher.errors import SourceError
from publisher.finding import Finding
from publisher.sources import make_source
from publisher.sources.base import Cursor, SealedPage, Window, sealed

PAGES_HERE: Final = 3
PAGES_OF_WINDOW: Final = 2
"""A window has no cursor to go on from: if it ends within so many pages they are given, and else read once more."""
_PIPE_BYTES: Final = 1 << 20
"""What waits in the pipe at most, where the system allows it; a page is some 3 MB."""
_LENGTH: Final = struct.Struct(">I")


class _Read(msgspec.Struct, tag="read"):
    page: SealedPage
    complete_since: int | None


class _Failed(msgspec.Struct, tag="failed"):
    """A `SourceError`, by the name of its class."""

    kind: str
    message: str
    hint: str


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Read | _Failed)


class ReadApart:
    """A source as any other, whose long reads are done by another process where there is a core for it."""

    def __init__(self, name: str, settings: config.Source, *, cores: int | None = None) -> None:
        """`cores`: how many this process may use. Raises `ConfigError` as `make_source`."""
        self._here = make_source(name, settings)
        self._settings = settings
        self._apart = (cores if cores is not None else len(os.sched_getaffinity(0))) > 1
        self._told_since: int | None = None
        self._told = False
        self.name = name
        self.kind = self._here.kind

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[SealedPage]:
        """See `publisher.sources.base.Source`."""
        self._told = False
        kept: list[SealedPage] = []
        with closing(self._pages_here(cursor, window)) as pages:
            for count, page in enumerate(pages, 1):
                if window is None or not self._apart:
                    yield page
                    cursor = page.cursor
                else:
                    kept.append(page)
                if self._apart and not page.at_end and count == (PAGES_HERE if window is None else PAGES_OF_WINDOW):
                    break
            else:
                yield from kept
                return
        kept.clear()
        with _Child(self.name, self._settings, cursor, window) as child:
            for read in child.pages():
                self._told, self._told_since = True, read.complete_since
                page = read.page
                del read
                yield page
                del page

    def _pages_here(self, cursor: Cursor, window: Window | None) -> Generator[SealedPage, None, None]:
        for page in self._here.pages(cursor, window):
            yield sealed(page, classed=window is None)

    def complete_since(self) -> int | None:
        """As whoever read last knows it."""
        return self._told_since if self._told else self._here.complete_since()

    def check(self) -> list[Finding]:
        """See `publisher.sources.base.Source`."""
        return self._here.check()


class _Child:
    """The other process. Use it in a `with` statement: at its end it is gone."""

    def __init__(self, name: str, settings: config.Source, cursor: Cursor, window: Window | None) -> None:
        self._name = name
        self._order = pickle.dumps((name, settings, dict(cursor), window))

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-m", __name__]  # -P: nothing is imported from the working directory
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - ourselves
        assert self._process.stdin is not None  # both were asked for
        assert self._process.stdout is not None
        self._stdout: IO[bytes] = self._process.stdout
        with suppress(OSError):  # a limit of the system's for this user; a smaller pipe does as well
            fcntl.fcntl(self._stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            with self._process.stdin as stdin:
                stdin.write(self._order)
        except BrokenPipeError:
            pass  # it ended at once: told when its first page is missed
        return self

    def pages(self) -> Iterator[_Read]:
        """What it reads, to the end. Raises `SourceError`, also where the process ended before that."""
        while True:
            told = self._next()
            if told is None:
                code = self._process.wait()
                if code == 0:
                    return
                raise SourceError(
                    f"the process that read the source {self._name} ended before its end (exit code {code})",
                    hint="What it gave is stored; the next collect goes on behind it",
                )
            if isinstance(told, _Failed):
                raise _error_of(told)
            yield told
            del told

    def _next(self) -> _Read | _Failed | None:
        head = self._stdout.read(_LENGTH.size)
        if len(head) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack(head)
        body = self._stdout.read(length)
        return _decoder.decode(body) if len(body) == length else None

    def __exit__(self, *_error: object) -> None:
        self._stdout.close()
        self._process.kill()
        self._process.wait()


def _error_of(failed: _Failed) -> SourceError:
    kind = getattr(errors, failed.kind, SourceError)
    made = kind if isinstance(kind, type) and issubclass(kind, SourceError) else SourceError
    return made(failed.message, hint=failed.hint)


def _send(pipe: IO[bytes], told: _Read | _Failed) -> None:
    body = _encoder.encode(told)
    pipe.write(_LENGTH.pack(len(body)))
    pipe.write(body)
    pipe.flush()


def main() -> None:
    """What the other process does."""
    for told_to_end in (signal.SIGINT, signal.SIGTERM):  # the parent decides: it stops behind a page
        signal.signal(told_to_end, signal.SIG_IGN)
    name, settings, cursor, window = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent, through a pipe of its own
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as pipe:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may get between the pages
        try:
            source = make_source(name, settings)
            for page in source.pages(cursor, window):
                _send(pipe, _Read(sealed(page, classed=window is None), source.complete_since()))
        except SourceError as error:
            _send(pipe, _Failed(type(error).__name__, error.message, error.hint))


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        os._exit(1)  # the parent is gone; there is nobody to tell
