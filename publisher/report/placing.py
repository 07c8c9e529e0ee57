"""Which part of a run is on which node: `Placing` divides the runs of a batch among the nodes of an inventory;
`CoreNumbers` are the cores that runs name, parsed once each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from formats.cores import expand
from formats.job import Host
from publisher.report.archive import CORE_NUMBERS, core_numbers_of, hosts_of
from publisher.report.held_amounts import LARGEST_AMOUNT
from publisher.report.integers import BOUND, Ints, distinct
from publisher.report.inventory import GPU_PARTS, Inventory
from publisher.report.matching import Matching, RunBatch
from publisher.report.view_option import Resource

REQUIRED: dict[Resource, frozenset[str]] = {
    "cores": frozenset({"start", "stop", "placed", "cluster", "slots", "core_numbers"}),
    "memory": frozenset({"start", "stop", "placed", "cluster", "slots", "memory_kib", "incomplete"}),
    "vmem": frozenset({"start", "stop", "placed", "cluster", "slots", "virtual_kib", "incomplete"}),
    "gpus": frozenset({"start", "stop", "placed", "cluster", "slots", "gpus"}),
}
"""The columns that placing a resource needs."""
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


class HeldOnNodes(NamedTuple):
    """What the runs of a batch held, by entry of `placed`: `start` and `stop` within the service of the node.

    `named`: the codes of the cores in `numbers`, valid until the next batch; 0 if the resource is not cores.
    """

    batch: RunBatch
    placed: Placed
    start: Ints
    stop: Ints
    named: Ints
    numbers: CoreNumbers


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
        self._numbers = CoreNumbers()
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
        distinct_kinds, inverse = distinct([placed.codes, clusters.codes, batch.numbers("slots"), spread])
        shares = [
            self._shares(placed.words[place], clusters.words[cluster], slots, some)
            for place, cluster, slots, some in distinct_kinds.tolist()
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
        since, until = self._inventory.service_bounds()[:, placed.node]
        start = batch.numbers("start")[placed.row]
        part = np.cumsum(begins)
        order = np.lexsort(((start < since) | (start >= until), part))
        first = order[np.flatnonzero(np.diff(part[order], prepend=0))]
        return Placed(placed.row[first], placed.host[first], placed.node[first], placed.amount[first])

    def held(self, batch: RunBatch) -> HeldOnNodes:
        """What the runs of a batch held of each node, while it was in service."""
        placed = self.of(batch)
        since, until = self._inventory.service_bounds()[:, placed.node]
        start = np.maximum(batch.numbers("start")[placed.row], since)
        stop = np.minimum(batch.numbers("stop")[placed.row], until)
        is_cores = self._resource == "cores"
        named = self._numbers.of(batch, placed) if is_cores else np.zeros(len(placed.row), np.int64)
        return HeldOnNodes(batch, placed, start, stop, named, self._numbers)

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
        distinct_kinds, inverse = distinct([texts.codes[placed.row], placed.host])
        code_of = [
            self._code(by_run[run][host]) if host < len(by_run[run]) else 0 for run, host in distinct_kinds.tolist()
        ]
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
