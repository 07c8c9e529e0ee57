"""A worker process: runs one function of ours, and sends what it makes to the process that started it, as frames.

What takes a core of its own (reading a long source, rendering a long backlog) runs beside storing and sending. The
worker is given its function and an order in one pipe, and sends frames in another. It waits while that pipe is full,
and ends when its parent has ended.

A command that collects or sends has a `WorkerServer`, which forks workers: a new interpreter takes 0.1 to 0.3 s of CPU
time and 25 MiB more. Other programs use a new interpreter, since a process with threads or an open store must not fork.

`multiprocessing` would do this at a higher price (measured, docs/internals/performance.md): its start takes 0.3 s of
CPU time and 9 MiB more, it starts a third process, and its connections take five times the CPU time for large frames.
Its worker also imports from the working directory, which may be anybody's.

Memory: commands that send, and workers, allocate much and free it soon. The C library gives each thread an arena of its
own, from which pages and messages that pass from one thread to the next are not given back for long; and after the
first large block was freed it allocates such blocks in the same arena, between small ones that stay. One arena for all
threads, and large blocks by themselves, take a fifth less memory and no more time (docs/internals/performance.md).
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, Final, NoReturn, Protocol, Self, TypeVar

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
    import ctypes  # noqa: PLC0415 - some milliseconds, which only commands that send need

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
import gc, importlib, sys
gc.disable()
importlib.import_module(sys.argv[1])
from publisher.subprocess_worker import serve
serve(int(sys.argv[2]), int(sys.argv[3]))
"""
"""A new interpreter runs this. Loading modules takes a fifth less time if they are not searched for cycles; `serve`
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
Work = Callable[[Any, Send], None]
"""The function of a worker, of a module: called with the order, and with a function that sends a value to the
parent."""
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


class _Process(Protocol):
    """A started worker."""

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class WorkerProcess:
    """A worker, in a `with` statement, which starts it and kills it at its end.

    A new interpreter loads its modules before it has an order: until then this process can do something else.
    """

    def __init__(self, work: Work) -> None:
        self._work = work

    def __enter__(self) -> Self:
        order, our_order = os.pipe()
        our_frames, frames = os.pipe()
        self._order: IO[bytes] = os.fdopen(our_order, "wb")
        self._frames: BufferedReader = os.fdopen(our_frames, "rb")
        with suppress(OSError):  # the user's limit; a smaller pipe does as well
            fcntl.fcntl(our_frames, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        try:
            self._process = _start(self._work, order, frames)
        except BaseException:
            self._order.close()
            self._frames.close()
            raise
        finally:
            os.close(order)
            os.close(frames)
        return self

    def give(self, order: object) -> None:
        """Give it its order: the argument of its function, which can be pickled."""
        try:
            with self._order as pipe:
                pipe.write(pickle.dumps((self._work, order)))
        except BrokenPipeError:
            pass  # it ended at once: `results` raises

    def results(self, decoder: msgspec.msgpack.Decoder[_Value]) -> Iterator[_Value]:
        """What the worker sends, decoded, until its work is done.

        Raises the `PublisherError` that the worker raised, of the same class, and `EndedError`.
        """
        buffer = bytearray()  # of all frames: the system maps a new one of this size page by page, which costs more
        while True:
            head = self._frames.read(_HEAD.size)
            kind, length = _HEAD.unpack(head) if len(head) == _HEAD.size else (b"", 1)
            if len(buffer) < length:
                buffer = bytearray(length)
            frame = memoryview(buffer)[:length]
            if not kind or self._frames.readinto(frame) < length:
                code = self._process.wait()
                if code == 0:
                    return
                raise EndedError(code)
            if kind == _FAILURE:
                raise _error_of(msgspec.msgpack.decode(frame, type=_WorkerFailure))
            yield decoder.decode(frame)

    def __exit__(self, *_error: object) -> None:
        self._process.kill()
        self._order.close()
        self._frames.close()
        with suppress(EndedError):  # the server has ended
            self._process.wait()


def _error_of(failure: _WorkerFailure) -> PublisherError:
    kind = getattr(errors, failure.kind, None)
    if not (isinstance(kind, type) and issubclass(kind, PublisherError)):
        kind = PublisherError
    return kind(failure.message, hint=failure.hint)


def _start(work: Work, order: int, frames: int) -> _Process:
    """Start a worker with its ends of both pipes."""
    if _server is not None:
        with suppress(EndedError):
            return _server.fork(order, frames)
    # -P: nothing is imported from the working directory. What a library prints must not be in the command's output.
    command = [sys.executable, "-P", "-c", _RUN, work.__module__, str(order), str(frames)]
    environment = {**ENVIRONMENT, **os.environ}
    return subprocess.Popen(  # noqa: S603 - ourselves
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(order, frames), env=environment
    )


def serve(order: int, frames: int) -> None:
    """Run in the worker: call the function that is in the pipe `order`; its frames go to the pipe `frames`."""
    for number in _PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    # Unpickling can run code. It is safe here: only our parent has the other end of this pipe, and what it pickled are
    # plain values, whatever texts they hold. Frames, which hold what was read from files, are never unpickled.
    with os.fdopen(order, "rb") as pipe:
        ordered = pipe.read()
    if not ordered:
        return  # the parent has ended, or has no work
    work, given = pickle.loads(ordered)  # noqa: S301 - as above
    collect_garbage_rarely()
    try:
        with os.fdopen(frames, "wb") as pipe:
            buffer = bytearray(_HEAD.size)  # of all frames, as in `results`
            try:
                work(given, lambda value: _write(pipe, buffer, _RESULT, value))
            except PublisherError as error:
                failure = _WorkerFailure(type(error).__name__, error.message, error.hint)
                _write(pipe, buffer, _FAILURE, failure)
    except BrokenPipeError:
        os._exit(1)  # the parent has ended


def _write(pipe: IO[bytes], buffer: bytearray, kind: bytes, value: object) -> None:
    _encoder.encode_into(value, buffer, _HEAD.size)
    _HEAD.pack_into(buffer, 0, kind, len(buffer) - _HEAD.size)
    pipe.write(buffer)
    pipe.flush()


_PARENTS_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
"""Ignored by workers: the parent decides when they end."""
_REQUEST: Final = struct.Struct("<i?")
"""To the server: 0 to fork a worker, with its ends of two pipes; else the worker whose exit code is asked for, and
whether it is killed."""
_ANSWER: Final = struct.Struct("<i")
"""The number of the new process, or an exit code."""
_server: WorkerServer | None = None


class WorkerServer:
    """A copy of this process that forks workers on request, in a `with` statement.

    A process may be copied safely only while it has one thread and no open store: another thread may hold a lock, and
    SQLite's locks belong to a process. So the copy is made before a command opens or starts anything, and only the copy
    forks; it has no threads and opens nothing. A process that has threads already gets no copy, and its workers are new
    interpreters. The copy ends with this process.
    """

    def __init__(self, *modules: str) -> None:
        """`modules`: loaded before, since all workers share their memory."""
        self._modules = modules
        self._asking = threading.Lock()
        self._pid = 0

    def __enter__(self) -> Self:
        global _server  # noqa: PLW0603 - one for all workers of the process
        if _server is not None or not _has_one_thread():
            return self
        for module in self._modules:
            import_module(module)
        gc.freeze()  # a search for cycles writes to each object, and then its memory is no longer shared
        with suppress(OSError):  # the system has no memory or descriptors for it
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._pid = os.fork()
                if not self._pid:
                    self._channel.close()
                    _run_and_leave(_fork_on_request, theirs)
            _server = self
        return self

    def __exit__(self, *_error: object) -> None:
        if self._pid:
            self._forget()
            self._channel.close()
            os.waitpid(self._pid, 0)

    def _forget(self) -> None:
        """From now on workers are new interpreters."""
        global _server  # noqa: PLW0603 - as above
        if _server is self:
            _server = None

    def fork(self, order: int, frames: int) -> _Process:
        """Fork a worker with its ends of both pipes. Raises `EndedError` if the server has ended."""
        return _ForkedWorker(self, self._ask(0, False, order, frames))

    def end(self, pid: int, *, kill: bool) -> int:
        """The exit code of a worker that has ended, or is killed. Raises `EndedError` if the server has ended."""
        return self._ask(pid, kill)

    def _ask(self, pid: int, kill: bool, *descriptors: int) -> int:
        with self._asking:
            try:
                socket.send_fds(self._channel, [_REQUEST.pack(pid, kill)], descriptors)
                answer = self._channel.recv(_ANSWER.size)
            except OSError:
                answer = b""
        if not answer:
            self._forget()
            raise EndedError(-signal.SIGKILL)
        number: int = _ANSWER.unpack(answer)[0]
        return number


def _has_one_thread() -> bool:
    """Whether this process is known to have no other thread, also none of a library."""
    try:
        return len(list(Path("/proc/self/task").iterdir())) == 1
    except OSError:
        return False


class _ForkedWorker:
    """A worker of the server. Only the server may end it: the number of a process that was waited for may be that of
    another process."""

    def __init__(self, server: WorkerServer, pid: int) -> None:
        self._server = server
        self._pid = pid
        self._code: int | None = None

    def kill(self) -> None:
        if self._code is None:
            with suppress(EndedError):  # then it ends when it writes the next frame
                self._code = self._server.end(self._pid, kill=True)

    def wait(self) -> int:
        if self._code is None:
            self._code = self._server.end(self._pid, kill=False)
        return self._code


def _run_and_leave(work: Callable[..., None], *arguments: Any) -> NoReturn:
    """Run in a copy: end the process without what the copied program does at its end."""
    try:
        work(*arguments)
        os._exit(0)
    except BaseException:  # noqa: BLE001 - as an interpreter that ends
        traceback.print_exc()
    finally:
        os._exit(1)


def _fork_on_request(channel: socket.socket) -> None:
    """Run in the copy, until its parent has ended."""
    for number in _PARENTS_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)  # what a library prints must not be in the command's output
    os.close(nothing)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, _REQUEST.size, 2)
        if not request:
            return
        pid, kill = _REQUEST.unpack(request)
        answer = _ended(pid, kill=kill) if pid else _forked(channel, *descriptors)
        channel.send(_ANSWER.pack(answer))


def _forked(channel: socket.socket, order: int, frames: int) -> int:
    pid = os.fork()
    if not pid:
        channel.close()
        _run_and_leave(serve, order, frames)
    os.close(order)
    os.close(frames)
    return pid


def _ended(pid: int, *, kill: bool) -> int:
    if kill:
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
