"""Worker processes, new interpreters and forked ones; and the memory of commands that send: threads share one arena,
large blocks are given back at once, and rows are not searched for cycles."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import msgspec
import pytest

from publisher import subprocess_worker

THREADS = """
import ctypes, threading
from publisher import subprocess_worker
{before}
kept, ready = [], threading.Barrier(4)
def take():
    ready.wait()
    kept.append([bytes(5_000) for _ in range(1_000)])
threads = [threading.Thread(target=take) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
ctypes.CDLL(None).malloc_stats()
"""
LARGE = """
import ctypes
from publisher import subprocess_worker
{before}
class Told(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
library = ctypes.CDLL(None)
library.mallinfo2.restype = Told
bytes(20_000_000)  # made and freed: what the C library learns from
before = library.mallinfo2().hblkhd
kept = bytes(10_000_000)
print(library.mallinfo2().hblkhd - before)
"""


WORK = """
from __future__ import annotations
import gc
at_start = gc.isenabled()
import os, signal
import msgspec
from publisher.errors import SourceError
class Number(msgspec.Struct):
    text: str
class Told(msgspec.Struct):
    number: Number
msgspec.msgpack.Decoder(Told)
def tell(order, send):
    send(int(at_start))
    send(gc.isenabled() and gc.get_freeze_count() > 0 and gc.get_threshold()[0])
def show(order, send):
    print("printed by a library", flush=True)
    files = [os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")]
    send((os.getpid(), os.getppid(), order, files))
def fail(order, send):
    raise SourceError(order, hint="Do this")
def leave(order, send):
    os._exit(order)
def stay(order, send):
    send(os.getpid())
    signal.pause()
"""
START = """
import os, select, signal, sys, threading
from msgspec.msgpack import Decoder
from publisher.subprocess_worker import EndedError, WorkerProcess, WorkerServer
import worker_of_test as work
def shown():
    with WorkerProcess(work.show) as worker:
        worker.give("order")
        (facts,) = worker.results(Decoder())
    return facts
def begun(function, order):
    worker = stack.enter_context(WorkerProcess(function))
    worker.give(order)
    return worker.results(Decoder())
"""
GARBAGE = """
import gc
from publisher import subprocess_worker
{before}
rounds = []
gc.callbacks.append(lambda phase, found: rounds.append(phase))
rows = [(number, str(number)) for number in range(20_000)]
print(len(rounds))
"""


@pytest.mark.parametrize(("before", "often"), [("", True), ("subprocess_worker.tune_memory()", False)])
def test_pages_of_rows_are_not_searched_for_cycles_again_and_again(before: str, often: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", GARBAGE.format(before=before)], capture_output=True, text=True, check=True
    )
    assert (int(done.stdout) > 10) is often


def test_nor_are_they_in_a_worker_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_work(tmp_path, monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    work = import_module("worker_of_test")
    with subprocess_worker.WorkerProcess(work.tell) as worker:
        worker.give(None)
        assert list(worker.results(msgspec.msgpack.Decoder(int))) == [0, 50_000]  # while it is loaded, and at work


def _write_work(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "worker_of_test.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))


def _starts(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a process with one thread prints that runs `START` and the code."""
    _write_work(folder, monkeypatch)
    done = subprocess.run([sys.executable, "-c", START + code], capture_output=True, text=True, check=True, cwd=folder)
    assert done.stderr == ""
    return done.stdout


def test_a_worker_is_forked_by_a_copy_that_has_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
with WorkerServer("worker_of_test"):
    store = open("store.db", "w")
    for _ in range(2):
        pid, parent, order, files = shown()
        print(parent not in (os.getpid(), os.getppid()), pid != parent, order, any("store" in file for file in files))
_, parent, order, files = shown()
print(parent == os.getpid(), order, any("store" in file for file in files))
print(len(open(f"/proc/self/task/{os.getpid()}/children").read()))
"""
    forked = "True True order False\n"
    assert _starts(code, tmp_path, monkeypatch) == 2 * forked + "True order False\n0\n"


def test_a_process_with_threads_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
ended = threading.Event()
thread = threading.Thread(target=ended.wait)
thread.start()
with WorkerServer("worker_of_test"):
    print(shown()[1] == os.getpid())
ended.set()
thread.join()
"""
    assert _starts(code, tmp_path, monkeypatch) == "True\n"


@pytest.mark.parametrize("forked", [False, True], ids=["a new interpreter", "forked"])
def test_how_a_worker_ended_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked: bool) -> None:
    code = f"""
from contextlib import ExitStack
with ExitStack() as stack:
    if {forked}:
        stack.enter_context(WorkerServer("worker_of_test"))
    try:
        next(begun(work.fail, "cannot be read"))
    except work.SourceError as error:
        print(error.message, error.hint)
    try:
        next(begun(work.leave, 3))
    except EndedError as error:
        print(error.code)
    found = begun(work.stay, None)
    os.kill(next(found), signal.SIGKILL)
    try:
        next(found)
    except EndedError as error:
        print(error.code)
    there = os.pidfd_open(next(begun(work.stay, None)))
print(bool(select.select([there], [], [], 0)[0]))
"""
    assert _starts(code, tmp_path, monkeypatch) == "cannot be read Do this\n3\n-9\nTrue\n"


def test_where_the_copy_was_killed_a_worker_is_a_new_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
with WorkerServer("worker_of_test"):
    os.kill(shown()[1], signal.SIGKILL)
    print(shown()[1] == os.getpid())
"""
    assert _starts(code, tmp_path, monkeypatch) == "True\n"


def test_the_copy_ends_with_its_parent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write_work(tmp_path, monkeypatch)
    code = """
with WorkerServer("worker_of_test"):
    print(shown()[1], flush=True)
    sys.stdin.read()
"""
    command = [sys.executable, "-c", START + code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        there = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
    try:
        assert select.select([there], [], [], 60)[0], "the copy goes on without its parent"
    finally:
        os.close(there)


@pytest.mark.parametrize(("before", "shared"), [("", False), ("subprocess_worker.tune_memory()", True)])
def test_threads_share_one_arena(before: str, shared: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS.format(before=before)], capture_output=True, text=True, check=True
    )
    assert (done.stderr.count("Arena ") == 1) is shared


@pytest.mark.parametrize(
    ("before", "environment"),
    [("subprocess_worker.tune_memory()", {}), ("", subprocess_worker.ENVIRONMENT)],
    ids=["a command", "a worker process"],
)
def test_a_large_block_is_not_allocated_between_small_ones(before: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LARGE.format(before=before)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) >= 10_000_000
