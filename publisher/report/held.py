"""What runs held of the nodes of a site, period by period: what occupation, scarcity and single cores are made of."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import translate
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from formats.occupation import Occupation, most_at_once
from formats.tally_columns import Ints
from publisher.report.core_numbers import CoreNumbers
from publisher.report.frame import Frame
from publisher.report.inventory import Inventory, KnownNode
from publisher.report.periods import edges, periods, zone_of
from publisher.report.placing import LACKS, WANTED, Placed, Placing
from publisher.report.reading import Context
from publisher.report.request import ReportRequest, Resource
from publisher.report.result import UNTOLD

UNITS: Final[dict[Resource, str]] = {"cores": "cores", "memory": "GiB", "vmem": "GiB", "gpus": "GPUs"}
_ESTIMATED: Final = (
    "Memory is an estimate: a run is taken to hold its peak from start to end, spread over its hosts like its slots."
)


class OfNode(NamedTuple):
    """A node, by its number in the inventory: what it has (None: not known), and what was held of it in each period,
    by time."""

    number: int
    node: KnownNode
    capacity: int | None
    held: list[int]


class HeldFrame(NamedTuple):
    """Of a frame, what its runs held of cores: `start` and `stop` within the service of the node, by entry of `placed`;
    `named` are codes of `numbers`."""

    placed: Placed
    start: Ints
    stop: Ints
    named: Ints
    numbers: CoreNumbers


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
        self._asked_of_runs = bool(request.filters.keys() - {"host"})
        self._looked_at = re.compile(translate(request.filters.get("host", "*"))).match
        self.selection = context.select(request, WANTED[resource] | more, "overlapping", running=True)
        self._occupation = Occupation(edges(self.periods))
        self._inferred: dict[int, int] = {}
        self._highest: dict[int, int] = {}
        """By node the highest number of a core that a run named."""

    def read(
        self, watch: Callable[[Frame, Placed], None] | None = None, held: Callable[[HeldFrame], None] | None = None
    ) -> Self:
        """Take all runs; `watch` sees each frame and where its runs ran, `held` what they held while it was there."""
        placing = Placing(self.selection, self.inventory, self.resource)
        numbers = CoreNumbers()
        unknown: list[tuple[Ints, Ints, Ints, Ints]] = []
        for frame in self.selection.frames():
            placed = placing.of(frame)
            if watch is not None:
                watch(frame, placed)
            start, stop = frame.numbers["start"][placed.row], frame.numbers["stop"][placed.row]
            stop = np.minimum(stop, self._until(placed.node))
            start = np.maximum(start, self._since(placed.node))
            self._occupation.add(placed.node, start, stop, placed.amount)
            if self.resource == "cores":
                named = numbers.of(frame, placed)
                numbers.note_highest(self._highest, placed.node, named)
                if held is not None:
                    held(HeldFrame(placed, start, stop, named, numbers))
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

    def looks_at(self, node: KnownNode) -> bool:
        """Whether a report is about a node: where hosts are selected, of others it is not known what all runs held."""
        return self._looked_at(node.name) is not None

    def nodes(self) -> list[OfNode]:
        """The nodes that the report is about, and what was held of each."""
        found = []
        for number, node in enumerate(self.inventory.nodes):
            if not self.looks_at(node):
                continue
            capacity = self.capacity(node)
            if capacity is None and node.name != UNTOLD:
                capacity = max(self._inferred.get(number, 0), self._highest.get(number, -1) + 1) or None
            if node.told or any(self._occupation.of(number)):
                if not node.cluster and (cluster := self.inventory.met_in.get(number)):
                    node = msgspec.structs.replace(node, cluster=cluster)  # noqa: PLW2901
                found.append(OfNode(number, node, capacity, self._occupation.of(number)))
        return found

    def nothing(self, *, rows: bool) -> str | None:
        """Why there is nothing to show, and what there is; None where there are `rows` that say something.

        Nodes of a table that no run held are idle, and worth a row, if there were runs at all and none was left out.
        """
        met = self.selection.met()
        idle = rows and met.runs > 0 and not self._asked_of_runs
        return None if idle else met.nothing()

    def notes(self) -> tuple[str, ...]:
        """What was inferred, and what that means."""
        notes = []
        nodes = self.nodes()
        inferred = [node.name for _, node, _, held in nodes if not node.told and node.name != UNTOLD and any(held)]
        if inferred and self.resource in {"cores", "gpus"}:
            or_named = " or named" if self.resource == "cores" else ""
            notes.append(
                f"Inferred: nodes that stand in no table [[nodes]], {len(inferred)} of them; each has as many "
                f"{UNITS[self.resource]} as runs held at once{or_named}, and idle nodes are not known."
            )
        elif any(capacity is None and any(held) for _, _, capacity, held in nodes):
            notes.append(f"No table [[nodes]] says how much {self.resource} some nodes have: no occupation of these.")
        if crowded := sorted(
            node.name for _, node, capacity, held in nodes if node.told and self._crowded(capacity, held)
        ):
            notes.append(f"On {', '.join(crowded[:10])} runs held more {self.resource} than [[nodes]] says there is.")
        if any(node.name == UNTOLD and any(held) for _, node, _, held in nodes):
            notes.append(f"Runs of a source that names no hosts stand under {UNTOLD}.")
        if self.resource in {"memory", "vmem"}:
            notes.append(_ESTIMATED)
        return (*notes, *self.selection.met().notes(LACKS.get(self.resource, 0)))

    def _crowded(self, capacity: int | None, held: list[int]) -> bool:
        if capacity is None:
            return False
        return any(amount > capacity * period.inside_s for amount, period in zip(held, self.periods, strict=True))


def names_of(nodes: list[OfNode], by: tuple[str, ...]) -> list[str]:
    """What nodes are called: nodes of two clusters may have the same name, and are two nodes."""
    in_clusters: dict[str, set[str]] = {}
    for each in nodes:
        in_clusters.setdefault(each.node.name, set()).add(each.node.cluster)
    return [
        f"{each.node.cluster}/{each.node.name}"
        if len(in_clusters[each.node.name]) > 1 and "cluster" not in by
        else each.node.name
        for each in nodes
    ]
