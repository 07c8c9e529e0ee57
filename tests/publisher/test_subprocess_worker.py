"""Workers, and the memory of commands that send: threads share one arena, large blocks are given back at once, and rows
are not searched for cycles."""

from __future__ import annotations

import os
import subprocess
import sys
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
import msgspec
from publisher import subprocess_worker
class Number(msgspec.Struct):
    text: str
class Told(msgspec.Struct):
    number: Number
msgspec.msgpack.Decoder(Told)
def tell(order, send):
    send(int(at_start))
    send(gc.isenabled() and gc.get_freeze_count() > 0 and gc.get_threshold()[0])
subprocess_worker.serve(tell)
"""
SIGNALLED = """
import os, signal
from publisher import subprocess_worker
def work(order, send):
    for name in order:
        os.kill(os.getpid(), signal.Signals[name])
        send(name)
subprocess_worker.serve(work)
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
    (tmp_path / "worker_of_test.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with subprocess_worker.WorkerProcess("worker_of_test") as worker:
        worker.give(None)
        assert list(worker.results(msgspec.msgpack.Decoder(int))) == [0, 50_000]  # while it is loaded, and at work


def test_only_its_parent_ends_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost terminal, or Ctrl-C there, sends signals to the workers as well."""
    (tmp_path / "worker_of_test.py").write_text(SIGNALLED)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with subprocess_worker.WorkerProcess("worker_of_test") as worker:
        worker.give(["SIGHUP", "SIGINT", "SIGTERM"])
        assert list(worker.results(msgspec.msgpack.Decoder(str))) == ["SIGHUP", "SIGINT", "SIGTERM"]


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
