"""Measure in a separate process: wall and CPU seconds of the timed part, and the peak memory of the process; for a
command, of it and the processes that it starts together.

A measurement is a function of a `Bench`. It prepares what it needs, does the work inside `bench.timed()` (or by a
command in `bench.command()`), and returns the number of records. The median of several runs counts.
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

_EVERY_S: Final = 0.05
_AT_LEAST_EVERY: Final = 10
_NOTEWORTHY_KIB: Final = 1024
_PAGE_KIB: Final = os.sysconf("SC_PAGE_SIZE") // 1024
COMMAND = (sys.executable, "-m", "publisher.cli")


@dataclass(frozen=True)
class Measured:
    """One run: how many records, and what they cost."""

    records: int
    wall_s: float
    cpu_s: float
    peak_mib: float
    note: str = ""
    """What else is to be said of it."""
    figures: dict[str, float] = field(default_factory=dict)
    """What else was measured; each name ends with a blank and the unit."""

    @property
    def per_s(self) -> float:
        """Records a second of wall time."""
        return self.records / self.wall_s

    @property
    def per_cpu_s(self) -> float:
        """Records a second of CPU time: what a busy machine leaves as it is."""
        return self.records / max(self.cpu_s, 0.001)


@dataclass
class Bench:
    """The arguments of a measurement: `inputs`, a folder whose files may be kept for the next time; a separate `folder`
    for everything else; a `size`, in records; the `variant`, of a measurement that several rows have."""

    inputs: Path
    folder: Path
    size: int
    runs: list[Measured] = field(default_factory=list)
    variant: str = ""

    @contextlib.contextmanager
    def timed(self, records: int) -> Iterator[None]:
        """The part that is measured; may be used several times."""
        cpu, wall = _cpu_s(), time.perf_counter()
        yield
        self.runs.append(Measured(records, time.perf_counter() - wall, _cpu_s() - cpu, peak_mib()))

    def command(self, records: int, *arguments: str | Path, codes: Sequence[int] = (0,)) -> None:
        """Measure `usage-publisher` with these arguments, as a process."""
        self.process(records, *COMMAND, *arguments, codes=codes)

    def process(self, records: int, *arguments: str | Path, codes: Sequence[int] = (0,)) -> None:
        """Measure a process with all that it starts. Raises `RuntimeError` where it ends with another exit code."""
        self.runs.append(self.cost_of(records, *arguments, codes=codes))

    def cost_of(self, records: int, *arguments: str | Path, codes: Sequence[int] = (0,)) -> Measured:
        """What such a process costs, not counted among the runs. Raises `RuntimeError` as `process` does."""
        wall = time.perf_counter()
        process = subprocess.Popen([*map(str, arguments)], stdout=subprocess.DEVNULL, cwd=self.folder)
        with Watched(process.pid) as watched:
            cost = measured_end(process, records, wall, watched)
        if process.returncode not in codes:
            raise RuntimeError(f"{' '.join(map(str, arguments))}: exit code {process.returncode}")
        return cost


def measured_end(process: subprocess.Popen[Any], records: int, begin: float, watched: Watched) -> Measured:
    """Wait for the end of a process that began at `begin`, of `time.perf_counter`: what it has cost."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall_s = time.perf_counter() - begin
    peak = max(used.ru_maxrss, watched.peak_kib) / 1024
    return Measured(records, wall_s, used.ru_utime + used.ru_stime, peak)


class Watched:
    """Samples the memory of a process and those that it starts together: `peak_kib`.

    Pages that several share count once. To find what is shared the kernel walks through all pages, while the process
    waits: a tenth of the time of a row, if done each time. So the memory of each, shared or not, is sampled, and shared
    pages are counted only if that has grown since its minimum, and from time to time.

    A process counts from its second sample on: until it has become another program its memory is its parent's.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.peak_kib = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._ended.set()
        self._thread.join()

    def held_mib(self) -> float:
        """The memory that they have now."""
        return sum(map(_pss_kib, _family(self._pid))) / 1024

    def _watch(self) -> None:
        lowest_kib = since = 0
        sampled = {self._pid}
        while not self._ended.wait(_EVERY_S):
            found = _family(self._pid)
            family, sampled = [pid for pid in found if pid in sampled], set(found)
            held_kib, since = sum(map(_rss_kib, family)), since + 1
            lowest_kib = min(lowest_kib, held_kib)
            if held_kib > lowest_kib + _NOTEWORTHY_KIB or since >= _AT_LEAST_EVERY:
                lowest_kib, since = held_kib, 0
                self.peak_kib = max(self.peak_kib, sum(map(_pss_kib, family)))


def _family(pid: int) -> list[int]:
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in children.read_text(encoding="ascii").split():
                found += _family(int(child))
    return found


def _rss_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_KIB
    return 0


def _pss_kib(pid: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def median(runs: Sequence[Measured]) -> Measured:
    """The run of median wall time, with the largest peak of all."""
    middle = statistics.median_low(run.wall_s for run in runs)
    chosen = next(run for run in runs if run.wall_s == middle)
    return replace(chosen, peak_mib=max(run.peak_mib for run in runs))


def peak_mib() -> float:
    """The peak memory of this process; if possible, of the program alone: `getrusage` includes the size of the process
    that started it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
