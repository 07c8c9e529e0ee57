"""A worker process: runs one function of ours, and sends what it makes to the process that started it, as frames.

What takes a core of its own (reading a long source, rendering a long backlog) runs beside storing and sending. The
worker is given an order on its standard input, waits while the pipe is full, writes nothing else to it, and ends when
its parent has ended.

`multiprocessing` would do this at a higher price, as measured: its start takes 0.3 s of CPU time and 9 MiB more, it
starts a third process, and its connections take five times the CPU time for large frames. Its worker also imports from
the working directory, which may be anybody's.

Memory: commands that collect or send, and workers, allocate much and free it soon. The C library gives each thread an
arena of its own, from which pages and messages that pass from one thread to the next are not given back for long; and
after the first large block was freed it allocates such blocks in the same arena, between small ones that stay. One
arena for all threads, and large blocks by themselves, take a fifth less memory and no more time.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from io import BufferedReader
from types import MappingProxyType
from typing import IO, Any, Final, Self, TypeVar

import msgspec

from publisher import errors
from publisher.errors import PublisherError

_LARGE_BYTES: Final = 128 << 10
"""Blocks from this size on are taken from the system and given back to it, each by itself. It is the C library's first
setting, which it raises by itself unless it is set."""
_OPTIONS: Final = {-8: 1, -3: _LARGE_BYTES, -1: _LARGE_BYTES}
"""`M_ARENA_MAX`, `M_MMAP_THRESHOLD` and `M_TRIM_THRESHOLD` of glibc's mallopt."""
ENVIRONMENT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(_LARGE_BYTES),
        "MALLOC_TRIM_THRESHOLD_": str(_LARGE_BYTES),
    }
)
"""The same for a process that is still to be started."""


def tune_memory() -> None:
    """Make this process return freed memory, let new threads share one arena, and look for cycles rarely. The first two
    need a C library with `mallopt`."""
    collect_garbage_rarely()
    import ctypes  # noqa: PLC0415 - some milliseconds, which most commands do not need

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option, value in _OPTIONS.items():
            mallopt(option, value)


_OBJECTS: Final = 50_000


def collect_garbage_rarely() -> None:
    """Search for cycles once in `_OBJECTS` new containers, not in 700, and not among those that exist now.

    A page is thousands of rows without a cycle: to search them again and again takes a tenth of the time of reading.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS)
    gc.enable()


_RUN: Final = """
import gc, runpy, sys
gc.disable()
runpy.run_module(sys.argv[1], run_name="__main__", alter_sys=True)
"""
"""Runs a module as `-m` does. Loading modules takes a fifth less time if they are not searched for cycles; `serve`
enables that search again."""
_encoder: Final = msgspec.msgpack.Encoder()
_HEAD: Final = struct.Struct(">cI")
"""The kind of a frame, and its length in bytes."""
_PIPE_BYTES: Final = 1 << 20
"""The size of the pipe, where the system allows it: fewer switches between the processes for a large frame."""
_RESULT: Final = b"+"
_FAILURE: Final = b"-"
Send = Callable[[object], None]
"""Sends a value, encoded as MessagePack."""
_Value = TypeVar("_Value")


class EndedError(Exception):
    """The worker ended before its work was done."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit code {code}")
        self.code = code


class _WorkerFailure(msgspec.Struct):
    """A `PublisherError`, by the name of its class."""

    kind: str
    message: str
    hint: str


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


class WorkerProcess:
    """A worker, in a `with` statement, which starts it and kills it at its end.

    It loads its modules before it has an order: until then this process can do something else.
    """

    def __init__(self, module: str) -> None:
        """`module` calls `serve` when it is run."""
        self._module = module

    def __enter__(self) -> Self:
        command = [sys.executable, "-P", "-c", _RUN, self._module]  # -P: nothing is imported from the working directory
        environment = {**ENVIRONMENT, **os.environ}
        self._process = subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdin is not None  # both are pipes
        assert isinstance(self._process.stdout, BufferedReader)
        self._stdin: IO[bytes] = self._process.stdin
        self._stdout = self._process.stdout
        with suppress(OSError):  # the user's limit; a smaller pipe does as well
            fcntl.fcntl(self._stdout.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        return self

    def give(self, order: object) -> None:
        """Give it its order: the argument of its function, which can be pickled."""
        try:
            with self._stdin as stdin:
                stdin.write(pickle.dumps(order))
        except BrokenPipeError:
            pass  # it ended at once: `results` raises

    def results(self, decoder: msgspec.msgpack.Decoder[_Value]) -> Iterator[_Value]:
        """As `received`."""
        return received(self._stdout, self._process.wait, decoder)

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._stdin.close()
        self._stdout.close()
        self._process.wait()


def received(
    pipe: BufferedReader, wait: Callable[[], int], decoder: msgspec.msgpack.Decoder[_Value]
) -> Iterator[_Value]:  # fmt: skip
    """What a child process sends, decoded, until its work is done. `wait` gives its exit code.

    Raises the `PublisherError` that the child raised, of the same class, and `EndedError`.
    """
    buffer = bytearray()  # of all frames: the system maps a new one of this size page by page, which costs more
    while True:
        head = pipe.read(_HEAD.size)
        kind, length = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 1)
        if len(buffer) < length:
            buffer = bytearray(length)
        frame = memoryview(buffer)[:length]
        if not kind or pipe.readinto(frame) < length:
            code = wait()
            if code == 0:
                return
            raise EndedError(code)
        if kind == _FAILURE:
            raise _error_of(msgspec.msgpack.decode(frame, type=_WorkerFailure))
        yield decoder.decode(frame)


def send_all(pipe: IO[bytes], work: Callable[[Send], None]) -> None:
    """Call `work` in a child process with a function that sends a value to the parent, and send its error."""
    buffer = bytearray(_HEAD.size)  # of all frames, as in `received`
    try:
        work(lambda value: _write(pipe, buffer, _RESULT, value))
    except PublisherError as error:
        failure = _WorkerFailure(type(error).__name__, error.message, error.hint)
        _write(pipe, buffer, _FAILURE, failure)


def _error_of(failure: _WorkerFailure) -> PublisherError:
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, PublisherError)):
        kind = PublisherError
    return kind(failure.message, hint=failure.hint)


def serve(work: Callable[[Any, Send], None]) -> None:
    """Run in the worker: call `work` with the order of the parent, and with a function that sends a value to the
    parent."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # the parent decides when the worker ends
        signal.signal(number, signal.SIG_IGN)
    # Unpickling can run code. It is safe here: only our parent has the other end of this pipe, and what it pickled are
    # plain values, whatever texts they hold. Frames, which hold what was read from files, are never unpickled.
    ordered = sys.stdin.buffer.read()
    if not ordered:
        return  # the parent has ended, or has no work
    order = pickle.loads(ordered)  # noqa: S301 - as above
    collect_garbage_rarely()
    try:
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as pipe:
            os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not get between the frames
            send_all(pipe, lambda send: work(order, send))
    except BrokenPipeError:
        os._exit(1)  # the parent has ended


def _write(pipe: IO[bytes], buffer: bytearray, kind: bytes, value: object) -> None:
    _encoder.encode_into(value, buffer, _HEAD.size)
    _HEAD.pack_into(buffer, 0, kind, len(buffer) - _HEAD.size)
    pipe.write(buffer)
    pipe.flush()
