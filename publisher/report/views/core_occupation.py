"""View `occupation` by core: how long runs held each core of each node, by day, week, month, or year.

This is the table `coreOccupation` of Li, Yang, Wu 2016. A run counts for the cores that its source names. A run whose
source has only the number of cores is divided evenly among all cores of the node and has a column of its own, so that
the occupation of a node is always the mean of its cores. If runs hold the same core at once, each of them counts: its
occupation is then more than 100 %.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from operator import attrgetter
from typing import Final, NamedTuple

import numpy as np

from formats.cores import MOST
from publisher.errors import UsageError
from publisher.report.calendar import ReportPeriod, edges, period_axis
from publisher.report.held_amounts import Occupation
from publisher.report.integers import Ints
from publisher.report.placing import HeldOnNodes
from publisher.report.report import UNKNOWN_NAME, Cell, Report, Series, in_percent
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import OCCUPATION
from publisher.report.views.nodes import NodeAllocations, names_of

MOST_CELLS: Final = 250_000
"""The limit of cores times periods, for a report that can be read."""
_MOST_SHOWN: Final = 10
_COLUMNS: Final = ("period", "start", "available", "in_use", "used_h", "inferred_h", "occupation")
_UNKNOWN_CORE: Final = -1
"""The core of a node whose number of cores is unknown."""


class CoresHeld:
    """How long runs held each core, and what they held of nodes without naming cores."""

    def __init__(self, periods: list[ReportPeriod], is_included: Callable[[int], bool]) -> None:
        """`is_included`: whether a node, by its number, is included."""
        self._periods = len(periods)
        self._named = Occupation(edges(periods))
        self._spread = Occupation(edges(periods))
        self._is_included = is_included
        self._ids: dict[int, int] = {}
        self.by_node: dict[int, dict[int, int]] = {}
        """By node, the cores that were named, and the number of each in the sums."""
        self.named = 0
        self.unnamed = 0
        """The number of runs that named cores of a node, and of those that did not."""

    def add(self, held: HeldOnNodes) -> None:
        """Add what runs held."""
        placed = held.placed
        looked_at = {node: self._is_included(node) for node in np.unique(placed.node).tolist()}
        chosen = np.array([looked_at[node] for node in placed.node.tolist()], np.bool_) & (placed.amount > 0)
        silent = np.flatnonzero(chosen & (held.named == 0))
        self._spread.add(placed.node[silent], held.start[silent], held.stop[silent], placed.amount[silent])
        named = np.flatnonzero(chosen & (held.named != 0))
        for some in held.numbers.portions(named, held.named[named]):
            entry, core = held.numbers.entries(held.named[some])
            rows = some[entry]
            ids = self._ids_of(placed.node[rows] * MOST + core)
            self._named.add(ids, held.start[rows], held.stop[rows], np.ones(len(rows), np.int64))
        self.named += len(np.unique(placed.row[named]))
        self.unnamed += len(np.unique(placed.row[silent]))

    def _ids_of(self, keys: Ints) -> Ints:
        distinct_keys, inverse = np.unique(keys, return_inverse=True)
        for key in distinct_keys.tolist():
            if key not in self._ids:
                self._ids[key] = len(self._ids)
                self.by_node.setdefault(key // MOST, {})[key % MOST] = self._ids[key]
                require_cells(len(self._ids), self._periods)
        return np.array([self._ids[key] for key in distinct_keys.tolist()], np.int64)[inverse.reshape(-1)]

    def of_core(self, node: int, core: int) -> list[int]:
        """The seconds for which runs held a core that they named, in each period."""
        place = self.by_node.get(node, {}).get(core)
        return [0] * self._periods if place is None else self._named.of(place)

    def spread(self, node: int) -> list[int]:
        """Cores times seconds that runs held of a node without naming cores, in each period."""
        return self._spread.of(node)


class _Core:
    """A core in one period: the seconds in service, held, and (a part of those) inferred."""

    __slots__ = ("held_s", "inferred_s", "known", "service_s")

    def __init__(self) -> None:
        self.known = True
        """Whether it is one core; else it stands for a node whose number of cores is unknown."""
        self.service_s = 0
        self.held_s: int | Fraction = 0
        self.inferred_s: int | Fraction = 0

    def add(self, service_s: int, held_s: int, inferred_s: int | Fraction, *, known: bool) -> None:
        """Add the part of the period for which the node had one table; usually that is the whole period."""
        self.known = known
        self.service_s += service_s
        self.held_s += held_s + inferred_s
        self.inferred_s += inferred_s

    @property
    def occupation(self) -> float | None:
        """The fraction of the time; None if unknown."""
        return float(Fraction(self.held_s, self.service_s)) if self.service_s and self.known else None


def require_cells(cores: int, periods: int) -> None:
    """Raises `UsageError` if the report would be too long."""
    if cores * periods > MOST_CELLS:
        raise UsageError(
            f"{cores:,} cores in {periods:,} periods are more than a report by core can have ({MOST_CELLS:,})",
            hint="Choose nodes with --host, a shorter interval, or a longer --period",
        )


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view. Other keys are those of occupation."""
    if request.resource != "cores":
        raise UsageError(f"{request.resource} cannot be grouped by core", hint="Omit --resource, or `core` in --by")
    if request.dask is not None:
        raise UsageError(
            "--dask: a cluster does not compute the occupation of cores", hint="Omit --dask, or group by node"
        )
    held = NodeAllocations(context, request, "cores")
    cores = CoresHeld(held.periods, lambda node: held.looks_at(held.inventory.nodes[node]))
    held.read(cores.add)
    labelled, beyond = _cores(request.by, held, cores)
    rows: list[tuple[Cell, ...]] = [
        (
            period.name, period.start, *one.label, each.service_s / period.inside_s if each.known else None,
            float(Fraction(each.held_s, period.inside_s)), float(Fraction(each.held_s, 3600)),
            float(Fraction(each.inferred_s, 3600)), each.occupation,
        )
        for place, period in enumerate(held.periods)
        for one in labelled
        if (each := one.each[place]).service_s
    ]  # fmt: skip
    picture = OCCUPATION.pictures["core"]
    series = (Series(one.words, tuple(in_percent(share.occupation) for share in one.each)) for one in labelled)
    plot = picture.plot("heat", *series, by="core", top=100.0, **period_axis(held.periods))
    shown, notes = ("used_h", "inferred_h", "occupation"), _notes(cores, labelled, beyond)
    return held.report(rows, plot, *_COLUMNS, picture=picture, shown=shown, notes=notes)


class _Labelled(NamedTuple):
    """A core with its label, by period."""

    order: tuple[str | int, ...]
    label: tuple[str, ...]
    name: str
    each: list[_Core]

    @property
    def words(self) -> str:
        """The name in a picture."""
        return self.name if self.name.startswith(self.label[0]) else " ".join(self.label)


def _cores(by: tuple[str, ...], held: NodeAllocations, cores: CoresHeld) -> tuple[list[_Labelled], list[str]]:
    """The cores of the nodes of the report, in the order of their labels, and surplus cores."""
    groups: dict[tuple[str, ...], _Labelled] = {}
    beyond: list[str] = []
    nodes = held.nodes()
    for of_node, node_name in zip(nodes, names_of(nodes, by), strict=True):
        node, capacity = of_node.node, of_node.capacity
        spread = cores.spread(of_node.number)
        require_cells(len(groups) + (capacity or 0), len(held.periods))  # before so many are numbered
        there = sorted({*range(capacity or 0), *cores.by_node.get(of_node.number, ())})
        if capacity:
            beyond += [f"{node_name}/{core}" for core in there if core >= capacity]
        elif any(spread):
            there = [_UNKNOWN_CORE]
        require_cells(len(groups) + len(there), len(held.periods))
        for core in there:
            number = str(core) if core != _UNKNOWN_CORE else UNKNOWN_NAME
            name = f"{node_name}/{number}" if core != _UNKNOWN_CORE else node_name
            words = {"cluster": node.cluster, "type": node.type, "node": node_name}
            words["core"] = number if "node" in by else name
            label = tuple(words[key] for key in by)
            order = tuple(part for key in by for part in ((node_name, core) if key == "core" else (words[key],)))
            one = groups.setdefault(label, _Labelled(order, label, name, [_Core() for _ in held.periods]))
            named = cores.of_core(of_node.number, core)
            portion = capacity or 1
            for each, period, seconds, more in zip(one.each, held.periods, named, spread, strict=True):
                inferred = Fraction(more, portion) if more and core < portion else 0
                each.add(node.in_service_s(period), seconds, inferred, known=core != _UNKNOWN_CORE)
    return sorted(groups.values(), key=attrgetter("order")), beyond


def _notes(cores: CoresHeld, found: list[_Labelled], beyond: list[str]) -> list[str]:
    notes = []
    if cores.unnamed and not cores.named:
        notes.append(
            "The sources of these jobs have the number of cores, not which: their use is inferred, divided evenly "
            "among the cores of each node."
        )
    elif cores.unnamed:
        notes.append(
            f"For {cores.unnamed:,} jobs the source has the number of cores, not which: their use is inferred, divided "
            "evenly among the cores of each node (inferred_h)."
        )
    if crowded := [one.name for one in found if any((share.occupation or 0) > 1 for share in one.each)]:
        notes.append(f"More than 100 %: several jobs held {_some(crowded)} at once; each of them counts.")
    if beyond:
        notes.append(f"Jobs held cores that [[nodes]] does not have: {_some(beyond)}.")
    return notes


def _some(names: list[str]) -> str:
    return ", ".join(names[:_MOST_SHOWN]) + (f" and {len(names) - _MOST_SHOWN} more" * (len(names) > _MOST_SHOWN))
