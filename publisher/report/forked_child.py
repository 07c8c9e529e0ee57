"""A child process that runs a function of ours with a limit of time, and sends what it makes to this process.

What DuckDB does in one call of a function, such as the distance of two long texts, cannot be interrupted: only the end
of its process ends it. The child is a copy of this process, which has loaded everything already: to start another would
take half a second. It is safe because the child alone opens DuckDB, and uses no connection that was open before; only
the thread that forks is in it. It ends by itself when its time is over (the system's timer kills it, whatever it does),
and when this process has ended.
"""

from __future__ import annotations

import ctypes
import io
import os
import select
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar, cast

import msgspec

from publisher.subprocess_worker import Send, received, send_all

_Value = TypeVar("_Value")
_PR_SET_PDEATHSIG: Final = 1
_FAILED: Final = 1
_LOOK_S: Final = 0.1


def start_limit(limit_s: float) -> None:
    """In the child: from now on it has so many seconds."""
    signal.setitimer(signal.ITIMER_REAL, limit_s)


@contextmanager
def forked(
    work: Callable[[Send], None], decoder: msgspec.msgpack.Decoder[_Value], stopping: Callable[[], bool]
) -> Iterator[Iterator[_Value]]:  # fmt: skip
    """What `work` sends from a child process, which is killed at the end. Values are those of MessagePack.

    Raises KeyboardInterrupt if somebody asked to stop (`stopping`): what handles signals only notes them. Raises the
    `PublisherError` that the child raised, and `EndedError` if it died, of `SIGALRM` if its time was over.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python warns where libraries have threads: those can be forked, and the child uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _run(work, parent, writing)
    os.close(writing)
    process = _Child(child)
    try:
        with cast("io.BufferedReader", io.BufferedReader(_WatchedPipe(reading, stopping))) as pipe:
            yield received(pipe, process.wait, decoder)
    finally:
        process.end()


class _WatchedPipe(io.FileIO):
    """A pipe that looks whether somebody asked to stop while nothing arrives."""

    def __init__(self, pipe: int, stopping: Callable[[], bool]) -> None:
        super().__init__(pipe)
        self._stopping = stopping

    def readinto(self, buffer: Any) -> int | None:
        """As `FileIO`."""
        while not select.select([self], [], [], _LOOK_S)[0]:
            if self._stopping():
                raise KeyboardInterrupt
        return super().readinto(buffer)


class _Child:
    """A process that we forked: it is waited for once."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._code: int | None = None
        with suppress(ProcessLookupError, PermissionError):  # the child does it too, and may be first
            os.setpgid(number, number)

    def wait(self) -> int:
        """Its exit code; of a signal its number, negative."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._number, 0)[1])
        return self._code

    def end(self) -> None:
        """Kill it and its children, if it has not ended."""
        if self._code is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._number, signal.SIGKILL)
            self.wait()


def _run(work: Callable[[Send], None], parent: int, writing: int) -> Any:
    """Be the child. Nothing of the parent's is closed, flushed, or cleaned up: that is the parent's to do."""
    code = _FAILED
    try:
        os.setpgid(0, 0)
        for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        with suppress(AttributeError, OSError):  # of Linux; elsewhere its timer ends it
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            with os.fdopen(writing, "wb") as pipe:
                send_all(pipe, work)
            code = 0
    finally:
        os._exit(code)
