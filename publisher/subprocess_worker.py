"""Work apart: a process of ours that does one thing for this one and sends what it made, frame after frame.

What takes a core of its own (reading a long source, rendering a long backlog) is done beside storing and sending. The
other process is given an order, waits while the pipe is full, writes nothing else, and ends with its parent.

The memory of commands that send, and of processes that work apart: much is made, handed on and soon freed.

The C library gives each thread a store of its own, from which pages and messages that pass from one thread to the next
are not given back for long; and after the first large piece that was freed it takes such pieces from the same store,
between small ones that stay. One store for all threads, and large pieces apart, take a fifth less memory and no more
time (docs/performance.md).
"""

from __future__ import annotations

import fcntl
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import IO, Any, Final, Self

import msgspec

from publisher import errors
from publisher.errors import PublisherError

_LARGE_BYTES: Final = 128 << 10
"""Pieces from this size on are taken from the system and given back to it, each by itself. It is the C library's own
beginning, which it gives up once it is left to itself."""
_OPTIONS: Final = {-8: 1, -3: _LARGE_BYTES, -1: _LARGE_BYTES}
"""`M_ARENA_MAX`, `M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` of glibc's mallopt."""
ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_LARGE_BYTES),
    }
)
"""The same for a process that is yet to begin."""


def keep_little() -> None:
    """Have this process keep little of what it frees, and threads that begin from now on take their memory from one
    place, where the C library has a way to ask."""
    import ctypes  # noqa: PLC0415 - some milliseconds, for commands that send alone

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)


_HEAD: Final = struct.Struct(">cI")
"""What a frame is, and its length."""
_PIPE_BYTES: Final = 1 << 20
"""What waits in the pipe at most, where the system allows it: fewer switches between the two for a large frame."""
_MADE: Final = b"+"
_FAILED: Final = b"-"
Send = Callable[[bytes], None]


class EndedError(Exception):
    """The other process ended before it was done."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class _Failure(msgspec.Struct):
    """A `PublisherError`, by the name of its class."""

    kind: str
    message: str
    hint: str


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))


class WorkerProcess:
    """The other process. Use it in a `with` statement: at its end it is gone."""

    def __init__(self, module: str, order: object) -> None:
        """`module` calls `serve` when it is run; `order` is what it is to do, and can be pickled."""
        self._module = module
        self._order = pickle.dumps(order)

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-m", self._module]  # -P: nothing is imported from the working directory
        environment = {**ENVIRONMENT, **os.environ}
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None  # both were asked for
        assert self._process.stdout is not None
        self._stdout: IO[bytes] = self._process.stdout
        with suppress(OSError):  # a limit of the system's for this user; a smaller pipe does as well
            fcntl.fcntl(self._stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            with self._process.stdin as stdin:
                stdin.write(self._order)
        except BrokenPipeError:
            pass  # it ended at once: told when its first frame is missed
        return self

    def frames(self) -> Iterator[bytes]:
        """What it sends, to the end.

        Raises the `PublisherError` that it met, by its kind, and `EndedError` where it ended before it was done.
        """
        while True:
            head = self._stdout.read(_HEAD.size)
            mark, length = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 1)
            frame = self._stdout.read(length)
            if not mark or len(frame) < length:
                code = self._process.wait()
                if code == 0:
                    return
                raise EndedError(code)
            if mark == _FAILED:
                raise _error_of(msgspec.msgpack.decode(frame, type=_Failure))
            yield frame
            del frame  # one in hand at a time

    def __exit__(self, *_error: object) -> None:
        self._stdout.close()
        self._process.kill()
        self._process.wait()


def _error_of(failure: _Failure) -> PublisherError:
    kind = getattr(errors, failure.kind, PublisherError)
    made = kind if isinstance(kind, type) and issubclass(kind, PublisherError) else PublisherError
    return made(failure.message, hint=failure.hint)


def serve(work: Callable[[Any, Send], None]) -> None:
    """Do the work that the parent ordered; `work` is given the order and what sends a frame to the parent."""
    for told_to_end in (signal.SIGINT, signal.SIGTERM):  # the parent decides when it has enough
        signal.signal(told_to_end, signal.SIG_IGN)
    order = pickle.load(sys.stdin.buffer)  # noqa: S301 - from our parent, through a pipe of its own
    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as pipe:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing else may get between the frames
            try:
                work(order, lambda made: _write(pipe, _MADE, made))
            except PublisherError as error:
                failure = _Failure(type(error).__name__, error.message, error.hint)
                _write(pipe, _FAILED, msgspec.msgpack.encode(failure))
    except BrokenPipeError:
        os._exit(1)  # the parent is gone; there is nobody to tell


def _write(pipe: IO[bytes], mark: bytes, made: bytes) -> None:
    pipe.write(_HEAD.pack(mark, len(made)))
    pipe.write(made)
    pipe.flush()
