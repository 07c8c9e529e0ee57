"""Where runs ran: a frame of runs taken apart into what each held of each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from formats.job import Host
from formats.tally_columns import Ints
from publisher.report.distinct import distinct
from publisher.report.frame import Frame
from publisher.report.inventory import Inventory
from publisher.report.request import Resource
from publisher.report.selection import Selection

WANTED: dict[Resource, frozenset[str]] = {
    "cores": frozenset({"placed", "cluster", "slots", "core_numbers"}),
    "memory": frozenset({"placed", "cluster", "slots", "memory_kib"}),
    "vmem": frozenset({"placed", "cluster", "slots", "virtual_kib"}),
    "gpus": frozenset({"placed", "cluster", "slots", "gpus"}),
}
"""The columns that are needed to place a resource."""


class Placed:
    """What runs held: entries of `row` (of the frame), `host` (its place among the run's hosts), `node` (of the
    inventory) and `amount`."""

    def __init__(self, row: Ints, host: Ints, node: Ints, amount: Ints) -> None:
        self.row = row
        self.host = host
        self.node = node
        self.amount = amount


class _Share(NamedTuple):
    """What a run held: the columns of `Placed` but for the row."""

    hosts: list[int]
    nodes: list[int]
    amounts: list[int]


class Placing:
    """Places the runs of a selection on the nodes of an inventory.

    Slots are those granted on each host; where a source tells only how many a run has in all, they are spread evenly.
    Memory is spread like slots, as the batch systems tell one peak for the run; GPUs evenly where they are not told
    by host.
    """

    def __init__(self, selection: Selection, inventory: Inventory, resource: Resource) -> None:
        self._selection = selection
        self._inventory = inventory
        self._resource = resource
        self._known: dict[tuple[int, int, int, int], _Share] = {}

    def of(self, frame: Frame) -> Placed:
        """Where the runs of a frame ran."""
        total = self._total(frame)
        found, inverse = distinct([frame.codes["placed"], frame.codes["cluster"], frame.numbers["slots"], total])
        shares = [self._shares(*row) for row in found.tolist()]
        counts = np.array([len(share.nodes) for share in shares], np.int64)
        begins = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)[:-1]])
        hosts = np.array([host for share in shares for host in share.hosts], np.int64)
        nodes = np.array([node for share in shares for node in share.nodes], np.int64)
        amounts = np.array([amount for share in shares for amount in share.amounts], np.int64)
        repeated = counts[inverse]
        row = np.repeat(np.arange(frame.rows), repeated)
        within = np.arange(len(row)) - np.repeat(np.cumsum(repeated) - repeated, repeated)
        place = np.repeat(begins[inverse], repeated) + within
        return Placed(row, hosts[place], nodes[place], amounts[place])

    def _total(self, frame: Frame) -> Ints:
        """Of what is not told by host, what a run has in all."""
        if self._resource == "cores":
            return frame.numbers["slots"]
        return frame.numbers[{"memory": "memory_kib", "vmem": "virtual_kib", "gpus": "gpus"}[self._resource]]

    def _shares(self, placed: int, cluster: int, slots: int, total: int) -> _Share:
        key = (placed, cluster, slots, total)
        if key not in self._known:
            if len(self._known) > 100_000:
                self._known.clear()
            name = (self._selection.coding("cluster").values[cluster] or ("",))[0]
            self._known[key] = self._spread(self._selection.coding("placed").raw[placed], name, slots, total)
        return self._known[key]

    def _spread(self, hosts: Sequence[Host], cluster: str, slots: int, total: int) -> _Share:
        if not hosts:
            numbers = self._inventory.numbers(cluster, "")
            return _Share([0] * len(numbers), numbers, [total] * len(numbers))
        told = [host.slots for host in hosts]
        if any(amount is None for amount in told):
            granted = _evenly(slots, len(hosts))
        else:
            granted = [amount or 0 for amount in told]
        if self._resource == "cores":
            amounts = granted
        elif self._resource == "gpus":
            by_host = [host.gpus for host in hosts]
            amounts = _evenly(total, len(hosts)) if None in by_host else [amount or 0 for amount in by_host]
        else:
            amounts = [total * share // max(sum(granted), 1) for share in granted]
        share = _Share([], [], [])
        for place, (host, amount) in enumerate(zip(hosts, amounts, strict=True)):
            numbers = self._inventory.numbers(cluster, host.name)
            share.hosts.extend([place] * len(numbers))
            share.nodes.extend(numbers)
            share.amounts.extend([amount] * len(numbers))
        return share


def _evenly(total: int, parts: int) -> list[int]:
    """Whole numbers as equal as can be, the larger ones first, which add up to the total."""
    each, rest = divmod(total, parts)
    return [each + (place < rest) for place in range(parts)]
