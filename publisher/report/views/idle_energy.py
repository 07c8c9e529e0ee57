"""The energy of idle nodes: of the cores that no job held.

A core that is not held has its part of the idle power of its node. Cores are those of all nodes of one size and idle
power together, so that memory does not grow with nodes times hours.
"""

from __future__ import annotations

from bisect import bisect_right
from fractions import Fraction
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np

from publisher.report.carbon import HOUR_S, carbon_hours
from publisher.report.energy_use import MJ_A_KWH, IdleEnergy
from publisher.report.held_amounts import Occupation
from publisher.report.placing import HeldOnNodes
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views.nodes import NodeAllocations


class _IdleClass(msgspec.Struct, frozen=True):
    """Nodes of one size and idle power."""

    cores: int
    idle_uw: int
    since: int | None
    until: int | None


def idle_energy(context: ReportContext, request: ReportRequest) -> IdleEnergy | None:
    """The energy of idle cores in an interval, up to now, rounded once; None if no node has an idle power.
    Raises `ConfigError`."""
    if all(node.watts_idle is None for node in context.config.nodes):
        return None
    settings = context.config.energy
    everything = msgspec.structs.replace(request, filters={}, by=(), interval=None)
    allocations = NodeAllocations(context, everything, "cores")
    start, stop = allocations.periods[0].start, allocations.periods[-1].stop
    hours = carbon_hours(settings)
    inside = {at for hour in hours for at in (hour.start, hour.start + HOUR_S) if start < at < stop}
    edges = [start, *sorted(inside), stop]
    idle = _IdleCores(allocations, np.array(edges, np.int64))
    allocations.read(idle.add)
    starts = [hour.start for hour in hours]
    used = emitted = with_carbon = Fraction(0)
    for place, (first, last) in enumerate(pairwise(edges)):
        energy_mj = idle.millijoules(place, first, last)
        used += energy_mj
        intensity = settings.carbon_mg_per_kwh
        if hours:
            hour = hours[bisect_right(starts, first) - 1]
            intensity = hour.mg_per_kwh if hour.start <= first < hour.start + HOUR_S else None
        if intensity is not None:
            emitted += energy_mj * intensity * 1000 / MJ_A_KWH
            with_carbon += energy_mj
    return IdleEnergy(_half_up(used), _half_up(emitted) if with_carbon else None, _half_up(with_carbon), idle.unplaced)


def _half_up(exact: Fraction) -> int:
    return (2 * exact.numerator + exact.denominator) // (2 * exact.denominator)


class _IdleCores:
    """What was not held of the nodes that have an idle power, by their classes."""

    def __init__(self, allocations: NodeAllocations, edges: Any) -> None:
        self._occupation = Occupation(edges)
        self._inventory = allocations.inventory
        self._counts: dict[_IdleClass, int] = {}
        self._class_of: list[int] = []
        self._held: list[list[int]] | None = None
        self.unplaced = False
        numbers: dict[_IdleClass, int] = {}
        for node in self._inventory.nodes:
            if node.idle_uw is None or not allocations.looks_at(node):
                self._class_of.append(-1)
                continue
            of = _IdleClass(node.amounts["cores"] or 1, node.idle_uw, node.since, node.until)
            self._class_of.append(numbers.setdefault(of, len(numbers)))
            self._counts[of] = self._counts.get(of, 0) + 1

    def add(self, held: HeldOnNodes) -> None:
        """Add what the runs of a batch held."""
        nodes = self._inventory.nodes
        self._class_of += [-1] * (len(nodes) - len(self._class_of))
        placed = held.placed
        of = np.array(self._class_of, np.int64)[placed.node]
        known = of >= 0
        self._occupation.add(of[known], held.start[known], held.stop[known], placed.amount[known])
        unnamed = np.array([node.name == UNKNOWN_NAME for node in nodes], np.bool_)
        self.unplaced = self.unplaced or bool(unnamed[placed.node].any())

    def millijoules(self, place: int, first: int, last: int) -> Fraction:
        """The idle energy between two instants, which are the edges of a period."""
        if self._held is None:
            self._held = [self._occupation.of(number) for number in range(len(self._counts))]
        total = Fraction(0)
        for (of, count), held in zip(self._counts.items(), self._held, strict=True):
            begin = first if of.since is None else max(first, of.since)
            end = last if of.until is None else min(last, of.until)
            free_s = max(0, count * of.cores * max(0, end - begin) - held[place])
            total += Fraction(free_s * of.idle_uw, of.cores * 1000)
        return total
