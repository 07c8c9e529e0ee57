"""What runs held of the nodes of a site in each period: the base of the views of occupation and scarcity."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from fnmatch import translate
from functools import partial
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from publisher.config.reports import Node
from publisher.errors import UsageError
from publisher.report.archive import MEMORY_UNKNOWN, VIRTUAL_UNKNOWN
from publisher.report.calendar import ReportPeriod, edges, periods, zone_of
from publisher.report.held_amounts import MostAtOnce, Occupation
from publisher.report.inventory import GPU_PARTS, Inventory, KnownNode
from publisher.report.matching import Matching, RunBatch, columns_of, computed, summed
from publisher.report.met import Met
from publisher.report.placing import REQUIRED, HeldOnNodes, Placing
from publisher.report.report import UNKNOWN_NAME, Cell, Column, Plot, Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext, running_note
from publisher.report.tables import STREAMING_MB, EntryReading
from publisher.report.view_kind import OCCUPATION
from publisher.report.view_option import Resource
from publisher.report.view_parts import Picture
from publisher.text import counted

LACKS: dict[Resource, int] = {"memory": MEMORY_UNKNOWN, "vmem": VIRTUAL_UNKNOWN}
"""The bit of `incomplete` of runs whose amount of a resource is unknown and counts as 0."""


FORGOTTEN_S: Final = 90 * 86_400
"""Jobs hardly ever run longer: the end of one that seems to was lost, and it would hold its nodes for ever."""
UNITS: Final[dict[Resource, dict[str, str]]] = {
    "cores": {"units": "cores", "unit": "core"}, "memory": {"units": "GiB", "unit": "GiB"},
    "vmem": {"units": "GiB", "unit": "GiB"}, "gpus": {"units": "GPUs", "unit": "GPU"},
}  # fmt: skip
"""What amounts of a resource are of, in the plural and before `h`."""
_ESTIMATED: Final = (
    "Memory is an estimate: each job is assumed to hold its peak from start to end, divided among its hosts like its "
    "slots."
)


class OfNode(NamedTuple):
    """A node, its number in the inventory, its capacity (None: unknown), and the amount times seconds held in each
    period."""

    number: int
    node: KnownNode
    capacity: int | None
    held: list[int]


class NodeUse:
    """What some runs held of nodes in each period: `publisher.report.dask.PartialReport`."""

    def __init__(self, nodes: Sequence[Node], resource: Resource, periods: list[ReportPeriod], now: int) -> None:
        """`now`: up to when running jobs count."""
        self.inventory = Inventory(nodes)
        self.occupation = Occupation(edges(periods))
        self.forgotten = 0
        """The number of running jobs that started longer ago than jobs run."""
        self._now = now
        self.resource: Resource = resource
        self._periods = periods
        self._lacking: MostAtOnce | None = None
        """What is held of nodes whose capacity is unknown, while runs are read."""
        self._inferred: dict[int, int] = {}
        self._highest: dict[int, int] = {}
        """By node, the highest number of a core that a run named."""

    def read(self, matching: Matching, each: Callable[[HeldOnNodes], None] | None = None) -> Self:
        """Read the matching runs; `each` gets what those of a batch held."""
        for (held,) in read_together([self], matching):
            if each is not None:
                each(held)
        return self

    def begin(self, matching: Matching) -> Callable[[RunBatch], HeldOnNodes]:
        """A function that adds what the runs of a batch held; after the last batch, `end` is called."""
        placing = Placing(self.inventory, self.resource)
        placing.meet(matching)
        if self.resource in {"cores", "gpus"}:
            collected = partial(matching.collected, f"held_{self.resource}")
            self._lacking = MostAtOnce(collected, self._periods[0].start, self._periods[-1].stop)
        return partial(self._take, placing)

    def _take(self, placing: Placing, batch: RunBatch) -> HeldOnNodes:
        held = placing.held(batch)
        placed = held.placed
        long_ago = batch.numbers("start") < self._now - FORGOTTEN_S
        self.forgotten += int(np.count_nonzero(long_ago & (batch.numbers("stop") == self._now)))
        self.occupation.add(placed.node, held.start, held.stop, placed.amount)
        held.numbers.note_highest(self._highest, placed.node, held.named)
        if self._lacking is not None:
            unknown = np.array([self._is_inferred(node) for node in self.inventory.nodes], np.bool_)[placed.node]
            self._lacking.add(placed.node[unknown], held.start[unknown], held.stop[unknown], placed.amount[unknown])
        return held

    def end(self) -> None:
        """Infer capacities from the most that was held at once."""
        if self._lacking is not None:
            self._inferred, self._lacking = self._lacking.by_node(), None

    def add(self, other: NodeUse) -> None:
        """Add what other runs held. Raises `UsageError` if a capacity must be inferred, which needs all runs."""
        numbers = self.inventory.add(other.inventory)
        for number, most in other._inferred.items():
            if numbers[number] in self._inferred:
                name = other.inventory.nodes[number].name
                units = UNITS[self.resource]["units"]
                raise UsageError(
                    f"no table [[nodes]] has the {units} of {name}, and a cluster cannot infer them",
                    hint="Add the table to the configuration, or omit --dask",
                )
            self._inferred[numbers[number]] = most
        for number, highest in other._highest.items():
            self._highest[numbers[number]] = max(highest, self._highest.get(numbers[number], -1))
        self.occupation.merge(other.occupation, numbers)
        self.forgotten += other.forgotten

    def of(self, number: int, node: KnownNode) -> OfNode:
        """A node and what was held of it."""
        capacity = self._capacity(node)
        if self._is_inferred(node):
            most = self._inferred.get(number, 0)
            if self.resource == "gpus":
                most = -(-most // GPU_PARTS) * GPU_PARTS  # a node has whole GPUs
            capacity = max(most, self._highest.get(number, -1) + 1) or None
        if not node.cluster and (cluster := self.inventory.cluster_of(number)):
            node = msgspec.structs.replace(node, cluster=cluster)
        return OfNode(number, node, capacity, self.occupation.of(number))

    def _capacity(self, node: KnownNode) -> int | None:
        """The capacity of a node by the configuration."""
        return node.amounts.get(self.resource)

    def _is_inferred(self, node: KnownNode) -> bool:
        """Whether the capacity of a node is the most that runs held at once."""
        return self._capacity(node) is None and node.name != UNKNOWN_NAME


def read_together(
    uses: Sequence[NodeUse], matching: Matching, more: Collection[str] = (), runs: str = "matching"
) -> Iterator[list[HeldOnNodes]]:
    """Read the matching runs once for what they used of different resources; yields what each batch held.

    Batches have the columns `more` too. `runs`: the relation that has the runs.
    """
    add = [use.begin(matching) for use in uses]
    columns = frozenset(more).union(*(REQUIRED[use.resource] for use in uses))
    for batch in matching.batches(columns, runs):
        yield [add_to(batch) for add_to in add]
    for use in uses:
        use.end()


def _use(
    matching: Matching, *, nodes: Sequence[Node], resource: Resource, periods: list[ReportPeriod], now: int
) -> NodeUse:  # fmt: skip
    return NodeUse(nodes, resource, periods, now).read(matching)


class NodeAllocations:
    """What runs held of the nodes of a site in each period, and their capacities."""

    def __init__(self, context: ReportContext, request: ReportRequest, resource: Resource) -> None:
        request.require_interval()
        self.resource: Resource = resource
        stop = min(request.stop, context.now) if context.now > request.start else request.stop
        self.periods = periods(request.start, stop, request.period, zone_of(request.timezone))
        self._context = context
        self._request = request
        self._asked_of_runs = bool(request.filters.keys() - {"host"})
        self._looked_at = re.compile(translate(request.filters.get("host", "*"))).match
        self.use = NodeUse(context.config.nodes, resource, self.periods, context.now)
        self.met = Met()
        """The counts of the runs that were read."""

    @property
    def inventory(self) -> Inventory:
        """The nodes of the configuration and of the runs that were read."""
        return self.use.inventory

    def read(self, each: Callable[[HeldOnNodes], None] | None = None) -> Self:
        """Read all runs. `each` gets what those of a batch held; with it, a cluster reads none of them."""
        part = partial(
            _use, nodes=self._context.config.nodes, resource=self.resource, periods=self.periods, now=self._context.now
        )
        how = self._context, self._request, self.reading(REQUIRED[self.resource])
        if each is None:
            self.use, self.met = summed(*how, "overlapping", part)
        else:
            _, self.met = computed(*how, "overlapping", partial(self.use.read, each=each))
        self.know_clusters()
        return self

    def know_clusters(self) -> None:
        """A cluster that ran nothing in the interval may have the nodes that were idle: on a day of one of two clusters
        the idle nodes of the other are not nodes of the first."""
        if self.inventory.has_idle:
            with self._context.tables(self._request, self.reading(("cluster",))) as connection:
                rows = connection.execute("SELECT DISTINCT cluster FROM entries").fetchall()
            self.inventory.know_clusters(name or "" for (name,) in rows)

    def reading(self, columns: Collection[str]) -> EntryReading:
        """How the runs are read, with these columns of `entries`."""
        until = self._context.now if self._request.running else None
        return EntryReading(columns_of(self._request, *columns), running_until=until, buffers_mb=STREAMING_MB)

    def looks_at(self, node: KnownNode) -> bool:
        """Whether the report includes a node: with a filter for hosts, what all runs held of others is unknown."""
        return self._looked_at(node.name) is not None

    def nodes(self) -> list[OfNode]:
        """The nodes of the report, and what was held of each."""
        of_nodes = []
        for number, node in enumerate(self.inventory.nodes):
            if self.looks_at(node):
                one = self.use.of(number, node)
                if node.is_named or any(one.held):
                    of_nodes.append(one)
        return of_nodes

    def nothing(self, *, rows: bool) -> str | None:
        """Why there is nothing to show, and which values exist; None if there are `rows` to show.

        Idle nodes of the configuration have rows if there were runs and none were filtered out.
        """
        idle = rows and self.met.runs > 0 and not self._asked_of_runs
        return None if idle else self.met.nothing()

    def notes(self, *, by_cluster: bool = False) -> tuple[str, ...]:
        """What was inferred or estimated, and with `by_cluster`, which nodes are in no cluster."""
        notes = []
        nodes = self.nodes()
        inferred = [
            node.name for _, node, _, held in nodes if not node.is_named and node.name != UNKNOWN_NAME and any(held)
        ]
        if inferred and self.resource in {"cores", "gpus"}:
            or_named = " or named" if self.resource == "cores" else ""
            notes.append(
                f"{counted(len(inferred), 'node')} without a table [[nodes]]: the number of "
                f"{UNITS[self.resource]['units']} of each is assumed to be the largest that jobs used at once"
                f"{or_named}. Nodes that ran no job are not counted."
            )
        elif any(capacity is None and any(held) for _, _, capacity, held in nodes):
            notes.append(f"The occupation of some nodes is unknown: no table [[nodes]] has their {self.resource}.")
        if crowded := sorted(
            node.name for _, node, capacity, held in nodes if node.is_named and self._crowded(capacity, held)
        ):
            notes.append(f"Jobs held more {self.resource} than [[nodes]] has on {', '.join(crowded[:10])}.")
        if forgotten := self.use.forgotten:
            notes.append(
                f"{counted(forgotten, 'job')} {'has' if forgotten == 1 else 'have'} been running for more than "
                f"{FORGOTTEN_S // 86_400} days. If the batch system does not have them any more, their ends were lost: "
                "the figures are too high."
            )
        if any(node.name == UNKNOWN_NAME and any(held) for _, node, _, held in nodes):
            notes.append(f"{UNKNOWN_NAME}: jobs of sources that name no hosts.")
        if self.resource in {"memory", "vmem"}:
            notes.append(_ESTIMATED)
        if by_cluster and (stray := [each.node.name for each in nodes if self._is_stray(each)]):
            them = f"{', '.join(stray[:10])}{' ...' if len(stray) > 10 else ''}"
            notes.append(
                f"The cluster of {counted(len(stray), 'idle node')} is unknown: {them}. "
                "Set `cluster` in the tables [[nodes]] that name them."
            )
        return (*notes, *self.met.notes(LACKS.get(self.resource, 0)))

    def report(
        self, rows: Iterable[tuple[Cell, ...]], plot: Plot, *columns: str, picture: Picture, shown: tuple[str, ...],
        notes: Iterable[str] = (),
    ) -> Report:  # fmt: skip
        """The report of `occupation` with these rows of periods and keys. `columns`: those of the view (none: all that
        it has with most options); `shown`: those of tables."""
        request, by = self._request, self._request.by
        nothing = self.nothing(rows=bool(chosen := tuple(rows)))
        period, start, *amounts = OCCUPATION.made_columns(*columns, **UNITS[self.resource])
        return self._context.report(
            OCCUPATION,
            request,
            title=picture.titled(key for key in by if key != "core"),
            columns=(period, start, *(Column(key, "text", key=key) for key in by), *amounts),
            sorted_by="used_h",
            shown=("period", *by, *shown),
            rows=() if nothing else chosen,
            plots=(plot,) if chosen and not nothing else (),
            notes=(*self.notes(by_cluster="cluster" in by), *notes, *running_note(request)),
            nothing=nothing,
            sql=self.sql,
            facts={"period": request.period, "timezone": request.timezone, "resource": self.resource, "by": list(by)},
        )

    @property
    def sql(self) -> str:
        """The SQL that read the runs."""
        return self.met.sql

    def _is_stray(self, one: OfNode) -> bool:
        return bool(one.node.is_named and one.capacity) and self.inventory.cluster_of(one.number) is None

    def _crowded(self, capacity: int | None, held: list[int]) -> bool:
        if capacity is None:
            return False
        return any(amount > capacity * period.inside_s for amount, period in zip(held, self.periods, strict=True))


def names_of(nodes: list[OfNode], by: tuple[str, ...]) -> list[str]:
    """The names of nodes, with the cluster if nodes of two clusters have the same name."""
    in_clusters: dict[str, set[str]] = {}
    for of_node in nodes:
        in_clusters.setdefault(of_node.node.name, set()).add(of_node.node.cluster)
    return [
        f"{of_node.node.cluster}/{of_node.node.name}"
        if len(in_clusters[of_node.node.name]) > 1 and "cluster" not in by
        else of_node.node.name
        for of_node in nodes
    ]
