"""The memory of a command that sends: all its threads take it from one place."""

from __future__ import annotations

import subprocess
import sys

import pytest

THREADS = """
import ctypes, threading
from publisher.cli import memory
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


@pytest.mark.parametrize(("before", "shared"), [("", False), ("memory.share_among_threads()", True)])
def test_threads_share_one_place(before: str, shared: bool) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS.format(before=before)], capture_output=True, text=True, check=True
    )
    assert (done.stderr.count("Arena ") == 1) is shared
