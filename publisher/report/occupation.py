"""View `occupation`: how much of cores, memory or GPUs was taken, by day, week, month or year.

Occupation of a node is what runs held of it, by time, divided by what it has; that of a cluster or of a kind of node
is the mean over its nodes, as the accounting system of Sun Yat-sen University has it (Li, Yang, Wu 2016). Beside it
stands the share of all that there is, to which larger nodes add more. Runs that still run count until now; the future
does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Final, Self

import msgspec
import numpy as np

from formats.occupation import Occupation, most_at_once
from formats.tally_columns import Ints
from publisher.report.frame import Frame
from publisher.report.inventory import KIB_A_GIB, UNTOLD, Inventory, KnownNode
from publisher.report.periods import Period, edges, periods, zone_of
from publisher.report.placing import WANTED, Placed, Placing
from publisher.report.reading import Context, running_note
from publisher.report.request import ReportRequest, Resource
from publisher.report.result import Cell, Column, Plot, Report, Series
from publisher.report.selection import Selection

OCCUPATION_BY: Final = ("cluster", "type", "node")
_UNITS: Final[dict[Resource, str]] = {"cores": "cores", "memory": "GiB", "vmem": "GiB", "gpus": "GPUs"}
_TITLES: Final[dict[Resource, str]] = {
    "cores": "Occupation of cores", "memory": "Occupation of memory", "vmem": "Occupation of virtual memory",
    "gpus": "Occupation of GPUs",
}  # fmt: skip
_ESTIMATED: Final = (
    "Memory is an estimate: a run is taken to hold its peak from start to end, spread over its hosts like its slots."
)


class Held:
    """What runs held of the nodes of a site in each period, and what there is."""

    def __init__(
        self, context: Context, request: ReportRequest, resource: Resource, more: frozenset[str] = frozenset()
    ) -> None:
        """`more`: columns that `watch` looks at besides."""
        request.require_interval()
        self.resource: Resource = resource
        stop = min(request.stop, context.now) if context.now > request.start else request.stop
        self.periods = periods(request.start, stop, request.period, zone_of(request.zone))
        self.inventory = Inventory(context.config.nodes)
        self.selection = context.select(request, WANTED[resource] | more, "overlapping", running=True)
        self._occupation = Occupation(edges(self.periods))
        self._inferred: dict[int, int] = {}

    def read(self, watch: Callable[[Frame, Placed], None] | None = None) -> Self:
        """Take all runs; `watch` sees each frame and where its runs ran."""
        placing = Placing(self.selection, self.inventory, self.resource)
        unknown: list[tuple[Ints, Ints, Ints, Ints]] = []
        for frame in self.selection.frames():
            placed = placing.of(frame)
            if watch is not None:
                watch(frame, placed)
            start, stop = frame.numbers["start"][placed.row], frame.numbers["stop"][placed.row]
            stop = np.minimum(stop, self._until(placed.node))
            start = np.maximum(start, self._since(placed.node))
            self._occupation.add(placed.node, start, stop, placed.amount)
            untold = np.array([self.capacity(node) is None for node in self.inventory.nodes], np.bool_)[placed.node]
            if self.resource in {"cores", "gpus"} and untold.any():
                unknown.append((placed.node[untold], start[untold], stop[untold], placed.amount[untold]))
        if unknown:
            self._inferred = most_at_once(*(np.concatenate(column) for column in zip(*unknown, strict=True)))
        return self

    def _since(self, node: Ints) -> Ints:
        return np.array([-(1 << 62) if one.since is None else one.since for one in self.inventory.nodes])[node]

    def _until(self, node: Ints) -> Ints:
        return np.array([1 << 62 if one.until is None else one.until for one in self.inventory.nodes])[node]

    def capacity(self, node: KnownNode) -> int | None:
        """How much of the resource a node has, as the configuration says."""
        return node.amounts.get(self.resource)

    def nodes(self) -> list[tuple[KnownNode, int | None, list[int]]]:
        """The nodes, what each has (None: not known), and what was held of it in each period, by time."""
        found = []
        for number, node in enumerate(self.inventory.nodes):
            capacity = self.capacity(node)
            if capacity is None and node.name != UNTOLD:
                capacity = self._inferred.get(number)
            if node.told or any(self._occupation.of(number)):
                if not node.cluster and (cluster := self.inventory.met_in.get(number)):
                    node = msgspec.structs.replace(node, cluster=cluster)  # noqa: PLW2901
                found.append((node, capacity, self._occupation.of(number)))
        return found

    def notes(self) -> tuple[str, ...]:
        """What was inferred, and what that means."""
        notes = []
        nodes = self.nodes()
        inferred = [node.name for node, _, held in nodes if not node.told and node.name != UNTOLD and any(held)]
        if inferred and self.resource in {"cores", "gpus"}:
            notes.append(
                f"Inferred: nodes that stand in no table [[nodes]], {len(inferred)} of them; each has as many "
                f"{_UNITS[self.resource]} as runs held at once, and idle nodes are not known."
            )
        elif any(capacity is None and any(held) for _, capacity, held in nodes):
            notes.append(f"No table [[nodes]] says how much {self.resource} some nodes have: no occupation of these.")
        if crowded := sorted(
            node.name for node, capacity, held in nodes if node.told and self._crowded(capacity, held)
        ):
            notes.append(f"On {', '.join(crowded[:10])} runs held more {self.resource} than [[nodes]] says there is.")
        if any(node.name == UNTOLD and any(held) for node, _, held in nodes):
            notes.append(f"Runs of a source that names no hosts stand under {UNTOLD}.")
        if self.resource in {"memory", "vmem"}:
            notes.append(_ESTIMATED)
        return tuple(notes)

    def _crowded(self, capacity: int | None, held: list[int]) -> bool:
        if capacity is None:
            return False
        return any(amount > capacity * period.inside_s for amount, period in zip(held, self.periods, strict=True))


class Share:
    """Nodes that are taken together, in one period."""

    def __init__(self) -> None:
        self.nodes = 0
        self.available = 0
        """What the nodes have, times the seconds that each is in service; of those of which it is known."""
        self.held = 0
        self._of_known = 0
        self._shares: list[Fraction] = []

    def add(self, node: KnownNode, capacity: int | None, held: int, period: Period) -> None:
        """A node and what was held of it in the period."""
        service_s = node.in_service_s(period)
        if not service_s:
            return
        self.nodes += 1
        self.held += held
        if capacity:
            self.available += capacity * service_s
            self._of_known += held
            self._shares.append(Fraction(held, capacity * service_s))

    @property
    def mean(self) -> float | None:
        """The mean over the nodes."""
        return float(sum(self._shares) / len(self._shares)) if self._shares else None

    @property
    def of_all(self) -> float | None:
        """The share of all that there is."""
        return self._of_known / self.available if self.available else None


def shares(held: Held, by: tuple[str, ...]) -> dict[tuple[str, ...], list[Share]]:
    """By the values of the keys, what was taken in each period."""
    found: dict[tuple[str, ...], list[Share]] = {}
    nodes = held.nodes()
    in_clusters: dict[str, set[str]] = {}
    for node, _, _ in nodes:
        in_clusters.setdefault(node.name, set()).add(node.cluster)
    for node, capacity, amounts in nodes:
        if node.told and not capacity and not any(amounts):
            continue  # a node without GPUs does not make the mean of those that have some smaller
        # Nodes of two clusters may have the same name, and are two nodes.
        apart = len(in_clusters[node.name]) > 1 and "cluster" not in by
        name = f"{node.cluster}/{node.name}" if apart else node.name
        words = {"cluster": node.cluster, "type": node.type, "node": name}
        label = tuple(words[key] for key in by)
        each = found.setdefault(label, [Share() for _ in held.periods])
        for share, amount, period in zip(each, amounts, held.periods, strict=True):
            share.add(node, capacity, amount, period)
    return found


def in_units(amount: Fraction | float, resource: Resource) -> float:
    """An amount of a resource in the unit that is shown."""
    return float(amount / KIB_A_GIB if resource in {"memory", "vmem"} else amount)


def view(context: Context, request: ReportRequest) -> Report:
    """The view."""
    request.require_by("occupation", OCCUPATION_BY, 2)
    resource = request.resource
    held = Held(context, request, resource).read()
    found = shares(held, request.by)
    unit = _UNITS[resource]
    rows: list[tuple[Cell, ...]] = [
        (
            period.name, period.start, *label, share.nodes,
            in_units(Fraction(share.available, period.inside_s), resource) if share.available else None,
            in_units(Fraction(share.held, period.inside_s), resource),
            in_units(Fraction(share.held, 3600), resource), share.mean, share.of_all,
        )
        for place, period in enumerate(held.periods)
        for label, each in sorted(found.items())
        if (share := each[place]).nodes
    ]  # fmt: skip
    return Report(
        view="occupation",
        title=_TITLES[resource] + (f" by {' and '.join(request.by)}" if request.by else ""),
        site=context.config.site.name,
        start=request.start,
        stop=request.stop,
        columns=(
            Column("period", "text"), Column("start", "instant"), *(Column(key, "text") for key in request.by),
            Column("nodes", "count"), Column("available", "number", unit), Column("in_use", "number", unit),
            Column("used_h", "number", f"{unit.removesuffix('s')} h"), Column("occupation", "ratio"),
            Column("share_of_all", "ratio"),
        ),
        shown=("period", *request.by, "nodes", "available", "in_use", "used_h", "occupation", "share_of_all"),
        rows=tuple(rows),
        plots=_plots(request, held, found) if rows else (),
        notes=(*held.notes(), *running_note(request)),
        nothing=_nothing(held.selection, rows),
        facts={"period": request.period, "zone": request.zone, "resource": resource, "by": list(request.by)},
    )  # fmt: skip


def _nothing(selection: Selection, rows: list[tuple[Cell, ...]]) -> str | None:
    return selection.nothing() if not rows else None


def _plots(request: ReportRequest, held: Held, found: dict[tuple[str, ...], list[Share]]) -> tuple[Plot, ...]:
    by_node = "node" in request.by
    series = tuple(
        Series(" ".join(label) or held.resource, tuple(share.mean for share in each))
        for label, each in sorted(found.items())
    )
    lengths = {period.inside_s for period in held.periods}
    return (
        Plot(
            title=_TITLES[held.resource],
            style="heat" if by_node else "line",
            x=tuple(period.start for period in held.periods),
            step_s=lengths.pop() if len(lengths) == 1 else None,
            unit="share of what there is",
            series=series,
        ),
    )
