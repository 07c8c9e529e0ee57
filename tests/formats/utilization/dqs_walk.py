"""The DQS manual's own algorithm, walked plainly: through each job a bin at a time. The reference for the fast path."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from formats.utilization.measure import RATE, Bins, BinSums, Ran


def walk(jobs: Iterable[Ran], bins: Bins) -> list[BinSums]:
    """What the jobs used in each bin, CPU rounded as `formats.utilization.measure` says: job by job, bin by bin."""
    used = [[0] * 5 for _ in range(bins.count)]
    for job in jobs:
        for place, inside_s in parts(job, bins):
            length = job.stop - job.start
            cell = used[place]
            cell[0] += inside_s
            cell[1] += inside_s * (job.user_ms * RATE // length)
            cell[2] += inside_s * (job.system_ms * RATE // length)
            cell[3] += inside_s * job.slots
            cell[4] += 1
    return [BinSums(*cell) for cell in used]


def exactly(jobs: Iterable[Ran], bins: Bins) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Queue, user and system utilization of each bin without any rounding."""
    used = [[Fraction()] * 3 for _ in range(bins.count)]
    for job in jobs:
        for place, inside_s in parts(job, bins):
            length = job.stop - job.start
            for kind, weight in enumerate((Fraction(1), Fraction(job.user_ms, 1000 * length),
                                           Fraction(job.system_ms, 1000 * length))):  # fmt: skip
                used[place][kind] += inside_s * weight
    return [(cell[0] / bins.size_s, cell[1] / bins.size_s, cell[2] / bins.size_s) for cell in used]


def parts(job: Ran, bins: Bins) -> list[tuple[int, int]]:
    """The bins that a job ran in and for how many seconds, by the steps of "The Usage Calculation Algorithm"."""
    if job.stop <= job.start:
        return []
    start = max(job.start, bins.start)
    last_second = bins.stop - 1  # the manual's IStop
    stop = last_second + 1 if job.stop > last_second else job.stop
    found: list[tuple[int, int]] = []
    while start < stop:
        place = (start - bins.start) // bins.size_s
        next_bin = bins.start + (place + 1) * bins.size_s
        found.append((place, min(next_bin, stop) - start))
        start = next_bin
    return found
