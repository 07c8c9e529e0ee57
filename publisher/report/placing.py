"""Where runs ran: a frame of runs taken apart into what each held of each node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from formats.job import Host
from formats.tally_columns import Ints
from publisher.report.distinct import distinct
from publisher.report.frame import MEMORY_UNKNOWN, VIRTUAL_UNKNOWN, Frame
from publisher.report.inventory import Inventory
from publisher.report.request import Resource
from publisher.report.selection import Selection

WANTED: dict[Resource, frozenset[str]] = {
    "cores": frozenset({"placed", "cluster", "slots", "core_numbers"}),
    "memory": frozenset({"placed", "cluster", "slots", "memory_kib", "incomplete"}),
    "vmem": frozenset({"placed", "cluster", "slots", "virtual_kib", "incomplete"}),
    "gpus": frozenset({"placed", "cluster", "slots", "gpus"}),
}
"""The columns that are needed to place a resource."""

LACKS: dict[Resource, int] = {"memory": MEMORY_UNKNOWN, "vmem": VIRTUAL_UNKNOWN}
"""The bit of `incomplete` of runs whose amount of a resource is unknown, and counts as none."""
_LIKE_SLOTS: frozenset[Resource] = frozenset({"memory", "vmem"})


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
    """Of what is spread like slots, the slots."""
    whole: int
    """All slots of the run, at least 1."""


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
        by_slots = self._resource in _LIKE_SLOTS
        # What is spread like slots is hardly ever alike, and how the slots are spread is.
        spread = np.zeros(frame.rows, np.int64) if by_slots else total
        found, inverse = distinct([frame.codes["placed"], frame.codes["cluster"], frame.numbers["slots"], spread])
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
        held = amounts[place]
        if by_slots:
            wholes = np.array([share.whole for share in shares], np.int64)
            held = _parts(total[row], held, wholes[inverse][row])
        return Placed(row, hosts[place], nodes[place], held)

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
            amount = 1 if self._resource in _LIKE_SLOTS else total
            return _Share([0] * len(numbers), numbers, [amount] * len(numbers), 1)
        told = [host.slots for host in hosts]
        if any(amount is None for amount in told):
            granted = _evenly(slots, len(hosts))
        else:
            granted = [amount or 0 for amount in told]
        amounts = granted
        if self._resource == "gpus":
            by_host = [host.gpus for host in hosts]
            amounts = _evenly(total, len(hosts)) if None in by_host else [amount or 0 for amount in by_host]
        share = _Share([], [], [], max(sum(granted), 1))
        for place, (host, amount) in enumerate(zip(hosts, amounts, strict=True)):
            numbers = self._inventory.numbers(cluster, host.name)
            share.hosts.extend([place] * len(numbers))
            share.nodes.extend(numbers)
            share.amounts.extend([amount] * len(numbers))
        return share


def _parts(totals: Ints, slots: Ints, wholes: Ints) -> Ints:
    """Of each total the part that goes with so many of all slots, rounded down."""
    if int(totals.max(initial=0)) * int(slots.max(initial=0)) < 1 << 62:
        return totals * slots // wholes
    rows = zip(totals.tolist(), slots.tolist(), wholes.tolist(), strict=True)
    return np.array([total * some // whole for total, some, whole in rows], np.int64)


def _evenly(total: int, parts: int) -> list[int]:
    """Whole numbers as equal as can be, the larger ones first, which add up to the total."""
    each, rest = divmod(total, parts)
    return [each + (place < rest) for place in range(parts)]
