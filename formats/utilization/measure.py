"""Queue and CPU utilization of an interval, as the Distributed Queueing System measures them.

Pure. Queue utilization of a bin is the time that jobs ran in it, divided by the bin's size: how many queues were busy.
CPU utilization is the same with each job's time weighted by its mean CPU time per second, separately for user and
system. A job is clipped to the interval. The sums are divided by the full size of a bin, even if the last bin ends
after the interval. (DQS accounting manual, "Measuring DQS Utilization" and "Calculating DQS Usage"; the facts on
sources, DQS.) The manual's IStop is the last second that counts; here an interval is `start <= t < stop`, so `stop` is
IStop + 1. Other names are used for measures that are not in the manual: means over the part of a bin that is in the
interval, and the same weighted by slots. Sums are whole numbers, so that sums over parts of the jobs add up exactly to
those over all jobs; the time is proportional to jobs plus bins.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

RATE: Final = 2**96
"""A job's CPU time per second is a whole number of this fraction of a millisecond, rounded down: far finer than any
float."""

MOST_BINS: Final = 1_000_000

KEYS: Final = (
    "queue", "host", "complex", "group", "user", "job", "vo", "project", "account", "department", "status", "pe",
    "slots", "task", "cluster", "reservation", "dn", "ending",
)  # fmt: skip
"""The keys by which runs are selected (DQS accounting manual, "Matching a Job to a Request", and keys of other
systems)."""


class Ran(NamedTuple):
    """When a job ran (epoch seconds, `stop` not included), its CPU time of all cores (ms) and its slots."""

    start: int
    stop: int
    user_ms: int = 0
    system_ms: int = 0
    slots: int = 1


class Bins(msgspec.Struct, frozen=True):
    """An interval, `start` to `stop` (exclusive), divided into bins of `size_s`; the last may end after `stop`.

    Raises ValueError for an interval that does not end after it begins, bins shorter than a second, or too many bins.
    """

    start: int
    stop: int
    size_s: int

    def __post_init__(self) -> None:
        if self.stop <= self.start:
            raise ValueError("the interval ends before or when it begins")
        if self.size_s < 1:
            raise ValueError("a bin cannot be finer than a second")
        if self.count > MOST_BINS:
            raise ValueError(f"{self.count} bins are too many; at most {MOST_BINS}")

    @classmethod
    def by_number(cls, start: int, stop: int, number: int) -> Bins:
        """At most `number` bins of equal whole seconds, which cover the interval. Raises ValueError, as the class."""
        if number < 1:
            raise ValueError("there must be at least one bin")
        if number > stop - start > 0:
            raise ValueError(f"{number} bins of {stop - start} seconds would be finer than a second")
        return cls(start, stop, max(1, -(-(stop - start) // number)))

    @property
    def count(self) -> int:
        """How many bins there are."""
        return -(-(self.stop - self.start) // self.size_s)

    def edges(self) -> Iterator[tuple[int, int]]:
        """For each bin its start, and the number of its seconds in the interval."""
        for start in range(self.start, self.stop, self.size_s):
            yield start, min(self.size_s, self.stop - start)


class Bin(msgspec.Struct, frozen=True):
    """A bin of a report: `start` epoch seconds, `inside_s` the seconds of it in the interval.

    `queue`, `cpu_user` and `cpu_system` are the manual's measures; `slots` is `queue` weighted by slots. Those with
    `_mean` are divided by `inside_s` instead of the size of the bin. `jobs`: the number that ran in it.
    """

    start: int
    inside_s: int
    queue: float
    cpu_user: float
    cpu_system: float
    slots: float
    queue_mean: float
    cpu_user_mean: float
    cpu_system_mean: float
    slots_mean: float
    jobs: int


class BinSums(NamedTuple):
    """The usage of jobs in a bin: seconds, CPU in ms times `RATE`, seconds times slots, and the number of jobs."""

    seconds: int
    user: int
    system: int
    slot_seconds: int
    jobs: int


class _UsageColumn:
    """One kind of usage over the bins: the usage of jobs in bins that they fill in part, and their rates in the bins
    between.

    Only changes of the rates from one bin to the next are kept, so that a job costs the same whatever its length.
    """

    __slots__ = ("_part", "_step")

    def __init__(self, count: int) -> None:
        self._part = [0] * count
        self._step = [0] * count

    def add(self, rate: int, first: int, head: int, last: int, tail: int) -> None:
        """Add a job with `head` seconds in its first bin, `tail` in its last one, if that is another, and all bins
        between."""
        self._part[first] += rate * head
        if last > first:
            self._part[last] += rate * tail
            self._step[first + 1] += rate
            self._step[last] -= rate

    def sums(self, size_s: int) -> Iterator[int]:
        """The usage in each bin."""
        return (partly + size_s * rate for partly, rate in zip(self._part, accumulate(self._step), strict=True))


class Tally:
    """Adds up jobs over the bins of an interval. Each costs the same for any number of bins."""

    def __init__(self, bins: Bins) -> None:
        self.bins = bins
        self.jobs = 0
        """Jobs that ran in the interval."""
        self.zero_length = 0
        """Jobs in the interval that started and ended in the same second: by the manual, they use nothing."""
        self._seconds = _UsageColumn(bins.count)
        self._user = _UsageColumn(bins.count)
        self._system = _UsageColumn(bins.count)
        self._slot_seconds = _UsageColumn(bins.count)
        self._running = [0] * (bins.count + 1)
        """By bin, how many more jobs ran in it than in the bin before."""

    def add(self, job: Ran) -> bool:
        """Add a job; return whether it overlaps the interval. One that ends before it starts does not."""
        start, stop, user_ms, system_ms, slots = job
        bins = self.bins
        length = stop - start
        if length <= 0:
            inside = length == 0 and bins.start <= start < bins.stop
            self.zero_length += inside
            return inside
        begin = max(start, bins.start)
        end = min(stop, bins.stop)
        if begin >= end:
            return False
        self.jobs += 1
        size = bins.size_s
        first, into = divmod(begin - bins.start, size)
        last = (end - 1 - bins.start) // size
        self._running[first] += 1
        self._running[last + 1] -= 1
        head = min(size - into, end - begin)
        tail = end - bins.start - last * size if last > first else 0
        self._seconds.add(1, first, head, last, tail)
        self._slot_seconds.add(slots, first, head, last, tail)
        if user_ms:
            self._user.add(user_ms * RATE // length, first, head, last, tail)
        if system_ms:
            self._system.add(system_ms * RATE // length, first, head, last, tail)
        return True

    def sums(self) -> Iterator[BinSums]:
        """The usage in each bin, in order."""
        columns = (self._seconds, self._user, self._system, self._slot_seconds)
        sums = [column.sums(self.bins.size_s) for column in columns]
        return (BinSums._make(cell) for cell in zip(*sums, accumulate(self._running[:-1]), strict=True))

    def measured(self) -> tuple[Bin, ...]:
        """The utilization of each bin, in order."""
        return measured(self.bins, self.sums())


def measured(bins: Bins, sums: Iterator[BinSums]) -> tuple[Bin, ...]:
    """The utilization of each bin from the usage in it. Only this function divides."""
    size = bins.size_s
    return tuple(
        Bin(
            start=start,
            inside_s=inside,
            queue=used.seconds / size,
            cpu_user=used.user / (size * _MS),
            cpu_system=used.system / (size * _MS),
            slots=used.slot_seconds / size,
            queue_mean=used.seconds / inside,
            cpu_user_mean=used.user / (inside * _MS),
            cpu_system_mean=used.system / (inside * _MS),
            slots_mean=used.slot_seconds / inside,
            jobs=used.jobs,
        )
        for (start, inside), used in zip(bins.edges(), sums, strict=True)
    )


_MS: Final = 1000 * RATE
