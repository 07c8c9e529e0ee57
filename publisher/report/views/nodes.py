"""What runs held of the nodes of a site in each period: the base of the views of occupation and scarcity.

`Placing` divides the runs of a batch among nodes; `CoreNumbers` are the cores that runs name, parsed once each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from fnmatch import translate
from functools import partial
from typing import Final, NamedTuple, Self

import msgspec
import numpy as np

from formats.cores import expand
from formats.job import Host
from publisher.config.reports import Node
from publisher.errors import UsageError
from publisher.report.archive import CORE_NUMBERS, MEMORY_UNKNOWN, VIRTUAL_UNKNOWN, core_numbers_of, hosts_of
from publisher.report.calendar import ReportPeriod, edges, periods, zone_of
from publisher.report.held_amounts import LARGEST_AMOUNT, MostAtOnce, Occupation
from publisher.report.integers import BOUND, Ints, distinct
from publisher.report.inventory import GPU_PARTS, Inventory, KnownNode
from publisher.report.matching import Matching, RunBatch, columns_of, computed, summed
from publisher.report.met import Met
from publisher.report.report import UNKNOWN_NAME
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import Resource
from publisher.text import counted

REQUIRED: dict[Resource, frozenset[str]] = {
    "cores": frozenset({"start", "stop", "placed", "cluster", "slots", "core_numbers"}),
    "memory": frozenset({"start", "stop", "placed", "cluster", "slots", "memory_kib", "incomplete"}),
    "vmem": frozenset({"start", "stop", "placed", "cluster", "slots", "virtual_kib", "incomplete"}),
    "gpus": frozenset({"start", "stop", "placed", "cluster", "slots", "gpus"}),
}
"""The columns that placing a resource needs."""

LACKS: dict[Resource, int] = {"memory": MEMORY_UNKNOWN, "vmem": VIRTUAL_UNKNOWN}
"""The bit of `incomplete` of runs whose amount of a resource is unknown and counts as 0."""
_MOST_GPUS: Final = LARGEST_AMOUNT // GPU_PARTS
_LIKE_SLOTS: frozenset[Resource] = frozenset({"memory", "vmem"})


class Placed:
    """What runs held, by entry: `row` of the batch, `host` (its place among the run's hosts), `node` of the inventory,
    and `amount`."""

    def __init__(self, row: Ints, host: Ints, node: Ints, amount: Ints) -> None:
        self.row = row
        self.host = host
        self.node = node
        self.amount = amount


class _NodeShare(NamedTuple):
    """What a run held: the columns of `Placed` without the row."""

    hosts: list[int]
    nodes: list[int]
    amounts: list[int]
    """Slots, for resources that are divided like slots."""
    whole: int
    """All slots of the run, at least 1."""


class Placing:
    """Places runs on the nodes of an inventory.

    Slots are those granted on each host; if a source has only the total of a run, they are divided evenly, in whole
    slots. Memory is divided like slots, since batch systems report one peak for the run. GPUs that are not known by
    host are divided evenly, in parts of a GPU: two GPUs of a run on three nodes are two thirds of a GPU on each.
    """

    def __init__(self, inventory: Inventory, resource: Resource) -> None:
        self._inventory = inventory
        self._resource = resource
        self._known: dict[tuple[str, str, int, int], _NodeShare] = {}

    def meet(self, matching: Matching) -> None:
        """Note on which nodes the runs of the interval were: those that a report leaves out show their cluster too."""
        if matching.filtered:
            for placed, cluster in matching.rows("SELECT DISTINCT placed, cluster FROM inside ORDER BY ALL"):
                for host in hosts_of(placed):
                    self._inventory.numbers(cluster or "", host.name)

    def of(self, batch: RunBatch) -> Placed:
        """Where the runs of a batch ran."""
        total = self._total(batch)
        by_slots = self._resource in _LIKE_SLOTS
        # Amounts of memory hardly ever repeat; the division of slots does.
        spread = np.zeros(batch.rows, np.int64) if by_slots else total
        placed, clusters = batch.words("placed"), batch.words("cluster")
        found, inverse = distinct([placed.codes, clusters.codes, batch.numbers("slots"), spread])
        shares = [
            self._shares(placed.words[place], clusters.words[cluster], slots, some)
            for place, cluster, slots, some in found.tolist()
        ]
        counts = np.array([len(share.nodes) for share in shares], np.int64)
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)[:-1]])
        hosts = np.array([host for share in shares for host in share.hosts], np.int64)
        nodes = np.array([node for share in shares for node in share.nodes], np.int64)
        amounts = np.array([amount for share in shares for amount in share.amounts], np.int64)
        repeated = counts[inverse]
        row = np.repeat(np.arange(batch.rows), repeated)
        within = np.arange(len(row)) - np.repeat(np.cumsum(repeated) - repeated, repeated)
        place = np.repeat(begins[inverse], repeated) + within
        held = amounts[place]
        if by_slots:
            wholes = np.array([share.whole for share in shares], np.int64)
            held = _parts(total[row], held, wholes[inverse][row])
        return Placed(row, hosts[place], nodes[place], held)

    def once(self, batch: RunBatch) -> Placed:
        """The same, each part of a run on one node: of the consecutive tables of a node, the one that is in service
        when the run starts, or else the first."""
        placed = self.of(batch)
        begins = np.ones(len(placed.row), np.bool_)
        begins[1:] = (placed.row[1:] != placed.row[:-1]) | (placed.host[1:] != placed.host[:-1])
        if begins.all():
            return placed
        times = [
            (-_FOREVER if one.since is None else one.since, _FOREVER if one.until is None else one.until)
            for one in self._inventory.nodes
        ]
        since, until = np.array(times, np.int64).reshape(-1, 2).T[:, placed.node]
        start = batch.numbers("start")[placed.row]
        part = np.cumsum(begins)
        order = np.lexsort(((start < since) | (start >= until), part))
        first = order[np.flatnonzero(np.diff(part[order], prepend=0))]
        return Placed(placed.row[first], placed.host[first], placed.node[first], placed.amount[first])

    def _total(self, batch: RunBatch) -> Ints:
        """The total of a run, for what is not known by host."""
        if self._resource == "cores":
            return batch.numbers("slots")
        if self._resource == "gpus":
            return np.minimum(batch.numbers("gpus"), _MOST_GPUS) * GPU_PARTS
        return batch.numbers({"memory": "memory_kib", "vmem": "virtual_kib"}[self._resource])

    def _shares(self, placed: str, cluster: str, slots: int, total: int) -> _NodeShare:
        key = (placed, cluster, slots, total)
        if key not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            self._known[key] = self._spread(hosts_of(placed), cluster, slots, total)
        return self._known[key]

    def _spread(self, hosts: Sequence[Host], cluster: str, slots: int, total: int) -> _NodeShare:
        if not hosts:
            numbers = self._inventory.numbers(cluster, "")
            amount = 1 if self._resource in _LIKE_SLOTS else total
            return _NodeShare([0] * len(numbers), numbers, [amount] * len(numbers), 1)
        granted_slots = [host.slots for host in hosts]
        if any(amount is None for amount in granted_slots):
            granted = _evenly(slots, len(hosts))
        else:
            granted = [amount or 0 for amount in granted_slots]
        amounts = granted
        if self._resource == "gpus":
            by_host = [host.gpus for host in hosts]
            known = [min(amount or 0, _MOST_GPUS) * GPU_PARTS for amount in by_host]
            amounts = _evenly(total, len(hosts)) if None in by_host else known
        share = _NodeShare([], [], [], max(sum(granted), 1))
        for place, (host, amount) in enumerate(zip(hosts, amounts, strict=True)):
            numbers = self._inventory.numbers(cluster, host.name)
            share.hosts.extend([place] * len(numbers))
            share.nodes.extend(numbers)
            share.amounts.extend([amount] * len(numbers))
        return share


def _parts(totals: Ints, slots: Ints, wholes: Ints) -> Ints:
    """The part of each total for so many of all slots, rounded down; impossible ones are as large as can be."""
    if int(np.abs(totals).max(initial=0)) * int(np.abs(slots).max(initial=0)) < BOUND:
        return totals * slots // wholes
    rows = zip(totals.tolist(), slots.tolist(), wholes.tolist(), strict=True)
    return np.array([max(-BOUND, min(BOUND, total * some // whole)) for total, some, whole in rows], np.int64)


def _evenly(total: int, parts: int) -> list[int]:
    """Whole numbers that differ by at most 1, the larger ones first, and add up to the total."""
    each, rest = divmod(total, parts)
    return [each + (place < rest) for place in range(parts)]


_FOREVER: Final = 1 << 62
_MOST_KEPT: Final = 2_000_000
"""The limit of numbers in memory, at eight bytes each."""
_AT_ONCE: Final = 500_000


class CoreNumbers:
    """Codes of texts of core numbers, valid until the next batch; 0: no cores are named."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._codes: dict[str, int] = {"": 0}
        self._numbers: list[Ints] = [np.zeros(0, np.int64)]
        self._kept = 0

    def of(self, batch: RunBatch, placed: Placed) -> Ints:
        """The code of each entry; 0 if the numbers are not as many as the slots of the run on that node."""
        if self._kept > _MOST_KEPT:
            self._forget()
        texts = batch.words(CORE_NUMBERS)
        by_run = [core_numbers_of(text) for text in texts.words]
        if not any(by_run):
            return np.zeros(len(placed.row), np.int64)
        found, inverse = distinct([texts.codes[placed.row], placed.host])
        code_of = [self._code(by_run[run][host]) if host < len(by_run[run]) else 0 for run, host in found.tolist()]
        codes = np.array(code_of, np.int64)[inverse]
        counts = np.array([len(numbers) for numbers in self._numbers], np.int64)
        return np.where(counts[codes] == placed.amount, codes, 0)

    def _code(self, text: str) -> int:
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self._numbers)
            self._numbers.append(np.array(expand(text), np.int64))
            self._kept += len(self._numbers[-1])
        return code

    def note_highest(self, highest: dict[int, int], node: Ints, codes: Ints) -> None:
        """Update the highest core number of each node, by the number of the node."""
        named = np.flatnonzero(codes)
        if not len(named):
            return
        pairs = np.unique(np.stack([node[named], codes[named]], axis=1), axis=0)
        for one, code in pairs.tolist():
            highest[one] = max(highest.get(one, -1), int(self._numbers[code][-1]))

    def portions(self, places: Ints, codes: Ints) -> list[Ints]:
        """The places in portions whose cores fit into memory, at a hundred bytes a core."""
        ends = np.cumsum([len(self._numbers[code]) for code in codes.tolist()])
        return np.split(places, np.flatnonzero(np.diff(ends // _AT_ONCE)) + 1)

    def entries(self, codes: Ints) -> tuple[Ints, Ints]:
        """For each named core, the place of its entry and the number of the core."""
        counts = np.array([len(numbers) for numbers in self._numbers], np.int64)[codes]
        entry = np.repeat(np.arange(len(codes)), counts)
        numbers = [self._numbers[code] for code in codes.tolist()]
        return entry, np.concatenate(numbers) if numbers else np.zeros(0, np.int64)


FORGOTTEN_S: Final = 90 * 86_400
"""Jobs hardly ever run longer: the end of one that seems to was lost, and it would hold its nodes for ever."""
UNITS: Final[dict[Resource, str]] = {"cores": "cores", "memory": "GiB", "vmem": "GiB", "gpus": "GPUs"}
_ESTIMATED: Final = (
    "Memory is an estimate: each run is assumed to hold its peak from start to end, divided among its hosts like its "
    "slots."
)


class OfNode(NamedTuple):
    """A node, its number in the inventory, its capacity (None: unknown), and the amount times seconds held in each
    period."""

    number: int
    node: KnownNode
    capacity: int | None
    held: list[int]


class Allocations(NamedTuple):
    """What the runs of a batch held of cores: by entry of `placed`, `start` and `stop` within the service of the node;
    `named` are codes of `numbers`."""

    placed: Placed
    start: Ints
    stop: Ints
    named: Ints
    numbers: CoreNumbers


class NodeUse:
    """What some runs held of nodes in each period: `publisher.report.dask.PartialReport`."""

    def __init__(self, nodes: Sequence[Node], resource: Resource, periods: list[ReportPeriod], now: int) -> None:
        """`now`: up to when running jobs count."""
        self.inventory = Inventory(nodes)
        self.occupation = Occupation(edges(periods))
        self.met = Met()
        self.forgotten = 0
        """The number of running jobs that started longer ago than jobs run."""
        self._now = now
        self._resource: Resource = resource
        self._periods = periods
        self._inferred: dict[int, int] = {}
        self._highest: dict[int, int] = {}
        """By node, the highest number of a core that a run named."""

    def read(
        self,
        matching: Matching,
        watch: Callable[[RunBatch, Placed], None] | None = None,
        held: Callable[[Allocations], None] | None = None,
        more: Collection[str] = (),
        runs: str = "matching",
    ) -> Self:
        """Read the matching runs; `watch` gets each batch, with the columns `more`, and its placing, `held` the cores
        held while nodes were in service. `runs`: the relation that has the runs."""
        placing = Placing(self.inventory, self._resource)
        placing.meet(matching)
        numbers = CoreNumbers()
        table = matching.collected("held_of_nodes", MostAtOnce.ROWS)
        lacking = MostAtOnce(table, self._periods[0].start, self._periods[-1].stop)
        for batch in matching.batches({*REQUIRED[self._resource], *more}, self.met, runs):
            begin, end = batch.numbers("start"), batch.numbers("stop")
            long_ago = begin < self._now - FORGOTTEN_S
            self.forgotten += int(np.count_nonzero(long_ago & (end == self._now)))
            placed = placing.of(batch)
            if watch is not None:
                watch(batch, placed)
            start, stop = begin[placed.row], end[placed.row]
            stop = np.minimum(stop, self._until(placed.node))
            start = np.maximum(start, self._since(placed.node))
            self.occupation.add(placed.node, start, stop, placed.amount)
            if self._resource == "cores":
                named = numbers.of(batch, placed)
                numbers.note_highest(self._highest, placed.node, named)
                if held is not None:
                    held(Allocations(placed, start, stop, named, numbers))
            if self._resource in {"cores", "gpus"}:
                unknown = np.array([self._is_inferred(node) for node in self.inventory.nodes], np.bool_)[placed.node]
                lacking.add(placed.node[unknown], start[unknown], stop[unknown], placed.amount[unknown])
        self._inferred = lacking.by_node()
        return self

    def add(self, other: NodeUse) -> None:
        """Add what other runs held. Raises `UsageError` if a capacity must be inferred, which needs all runs."""
        numbers = self.inventory.add(other.inventory)
        for number, most in other._inferred.items():
            if numbers[number] in self._inferred:
                name = other.inventory.nodes[number].name
                raise UsageError(
                    f"no table [[nodes]] has the {UNITS[self._resource]} of {name}, and a cluster cannot infer them",
                    hint="Add the table to the configuration, or omit --dask",
                )
            self._inferred[numbers[number]] = most
        for number, highest in other._highest.items():
            self._highest[numbers[number]] = max(highest, self._highest.get(numbers[number], -1))
        self.occupation.merge(other.occupation, numbers)
        self.forgotten += other.forgotten
        self.met.add(other.met)

    def of(self, number: int, node: KnownNode) -> OfNode:
        """A node and what was held of it."""
        capacity = self._capacity(node)
        if self._is_inferred(node):
            most = self._inferred.get(number, 0)
            if self._resource == "gpus":
                most = -(-most // GPU_PARTS) * GPU_PARTS  # a node has whole GPUs
            capacity = max(most, self._highest.get(number, -1) + 1) or None
        if not node.cluster and (cluster := self.inventory.cluster_of(number)):
            node = msgspec.structs.replace(node, cluster=cluster)
        return OfNode(number, node, capacity, self.occupation.of(number))

    def _capacity(self, node: KnownNode) -> int | None:
        """The capacity of a node by the configuration."""
        return node.amounts.get(self._resource)

    def _is_inferred(self, node: KnownNode) -> bool:
        """Whether the capacity of a node is the most that runs held at once."""
        return self._capacity(node) is None and node.name != UNKNOWN_NAME

    def _since(self, node: Ints) -> Ints:
        return np.array([-(1 << 62) if one.since is None else one.since for one in self.inventory.nodes])[node]

    def _until(self, node: Ints) -> Ints:
        return np.array([1 << 62 if one.until is None else one.until for one in self.inventory.nodes])[node]


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
        self._use = NodeUse(context.config.nodes, resource, self.periods, context.now)

    @property
    def inventory(self) -> Inventory:
        """The nodes of the configuration and of the runs that were read."""
        return self._use.inventory

    def read(self) -> Self:
        """Read all runs."""
        part = partial(
            _use, nodes=self._context.config.nodes, resource=self.resource, periods=self.periods, now=self._context.now
        )
        columns = columns_of(self._request, *REQUIRED[self.resource])
        self._use = summed(
            self._context, self._request, columns, "overlapping", part, running_until=self._running_until
        )
        self._know_clusters()
        return self

    def watch(self, read: Callable[[Matching, NodeUse], NodeUse], more: Collection[str] = ()) -> Self:
        """Read all runs with `read`, which calls `NodeUse.read`. `more`: further columns that it needs."""
        columns = columns_of(self._request, *REQUIRED[self.resource], *more)
        computed(
            self._context, self._request, columns, "overlapping", lambda matching: read(matching, self._use),
            running_until=self._running_until,
        )  # fmt: skip
        self._know_clusters()
        return self

    def _know_clusters(self) -> None:
        """A cluster that ran nothing in the interval may have the nodes that were idle: on a day of one of two clusters
        the idle nodes of the other are not nodes of the first."""
        if self.inventory.has_idle:
            with self._context.tables(self._request, self._running_until, columns=("cluster",)) as connection:
                rows = connection.execute("SELECT DISTINCT cluster FROM entries").fetchall()
            self.inventory.know_clusters(name or "" for (name,) in rows)

    @property
    def _running_until(self) -> int | None:
        return self._context.now if self._request.running else None

    def looks_at(self, node: KnownNode) -> bool:
        """Whether the report includes a node: with a filter for hosts, what all runs held of others is unknown."""
        return self._looked_at(node.name) is not None

    def nodes(self) -> list[OfNode]:
        """The nodes of the report, and what was held of each."""
        found = []
        for number, node in enumerate(self.inventory.nodes):
            if self.looks_at(node):
                one = self._use.of(number, node)
                if node.is_named or any(one.held):
                    found.append(one)
        return found

    def nothing(self, *, rows: bool) -> str | None:
        """Why there is nothing to show, and which values exist; None if there are `rows` to show.

        Idle nodes of the configuration have rows if there were runs and none were filtered out.
        """
        met = self._use.met
        idle = rows and met.runs > 0 and not self._asked_of_runs
        return None if idle else met.nothing()

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
                f"{counted(len(inferred), 'node')} without a table [[nodes]]: the number of {UNITS[self.resource]} of "
                f"each is assumed to be the largest that jobs used at once{or_named}. Nodes that ran no job are not "
                "counted."
            )
        elif any(capacity is None and any(held) for _, _, capacity, held in nodes):
            notes.append(f"The occupation of some nodes is unknown: no table [[nodes]] has their {self.resource}.")
        if crowded := sorted(
            node.name for _, node, capacity, held in nodes if node.is_named and self._crowded(capacity, held)
        ):
            notes.append(f"Runs held more {self.resource} than [[nodes]] has on {', '.join(crowded[:10])}.")
        if forgotten := self._use.forgotten:
            notes.append(
                f"{counted(forgotten, 'job')} {'has' if forgotten == 1 else 'have'} been running for more than "
                f"{FORGOTTEN_S // 86_400} days. If the batch system does not have them any more, their ends were lost: "
                "the figures are too high."
            )
        if any(node.name == UNKNOWN_NAME and any(held) for _, node, _, held in nodes):
            notes.append(f"{UNKNOWN_NAME}: runs of sources that name no hosts.")
        if self.resource in {"memory", "vmem"}:
            notes.append(_ESTIMATED)
        if by_cluster and (stray := [each.node.name for each in nodes if self._is_stray(each)]):
            them = f"{', '.join(stray[:10])}{' ...' if len(stray) > 10 else ''}"
            notes.append(
                f"The cluster of {counted(len(stray), 'idle node')} is unknown: {them}. "
                "Set `cluster` in the tables [[nodes]] that name them."
            )
        return (*notes, *self._use.met.notes(LACKS.get(self.resource, 0)))

    def _is_stray(self, one: OfNode) -> bool:
        return bool(one.node.is_named and one.capacity) and self.inventory.cluster_of(one.number) is None

    def _crowded(self, capacity: int | None, held: list[int]) -> bool:
        if capacity is None:
            return False
        return any(amount > capacity * period.inside_s for amount, period in zip(held, self.periods, strict=True))


def names_of(nodes: list[OfNode], by: tuple[str, ...]) -> list[str]:
    """The names of nodes, with the cluster if nodes of two clusters have the same name."""
    in_clusters: dict[str, set[str]] = {}
    for each in nodes:
        in_clusters.setdefault(each.node.name, set()).add(each.node.cluster)
    return [
        f"{each.node.cluster}/{each.node.name}"
        if len(in_clusters[each.node.name]) > 1 and "cluster" not in by
        else each.node.name
        for each in nodes
    ]
