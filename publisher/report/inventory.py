"""The nodes of a site: those of `[[nodes]]`, and those that are known from runs only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from publisher.config.energy import millionths
from publisher.config.reports import Node
from publisher.report.calendar import ReportPeriod
from publisher.report.integers import Ints
from publisher.report.report import UNKNOWN_NAME
from publisher.report.view_option import Resource

KIB_A_GIB: Final = 1 << 20
GPU_PARTS: Final = 720_720
"""Into how many parts a GPU is counted: so many are divided exactly among up to 16 nodes."""
PARTS_OF_UNIT: Final[dict[Resource, int]] = {
    "cores": 1, "memory": KIB_A_GIB, "vmem": KIB_A_GIB, "gpus": GPU_PARTS,
}  # fmt: skip
"""How many of the whole numbers in which amounts are counted are a core, a GiB, or a GPU."""
INFERRED: Final = "(inferred)"
"""The type of nodes without a table."""


FOREVER: Final = 1 << 62
"""An instant after all others; negative, one before them."""


class KnownNode(msgspec.Struct, frozen=True):
    """A node: its amount of each resource (`PARTS_OF_UNIT`; None: unknown), and when it is in service."""

    name: str
    cluster: str
    type: str
    amounts: dict[Resource, int | None]
    since: int | None = None
    until: int | None = None
    is_named: bool = True
    """Whether the configuration names it."""
    idle_uw: int | None = None
    """The power without jobs, microwatts."""

    def in_service_s(self, period: ReportPeriod) -> int:
        """The number of seconds of a period in which it is in service."""
        start = period.start if self.since is None else max(self.since, period.start)
        stop = period.stop if self.until is None else min(self.until, period.stop)
        return max(0, stop - start)


class Inventory:
    """The numbers of nodes: those of the configuration first, then others in the order in which runs name them."""

    def __init__(self, tables: Iterable[Node]) -> None:
        self.nodes: list[KnownNode] = []
        self._met_in: dict[int, str] = {}
        """The cluster whose runs were on a node; of several the first by name."""
        self._tables: list[int] = []
        """The table of each node of the configuration."""
        self._of_tables: dict[int, set[str]] = {}
        """By table, the clusters whose runs were on its nodes."""
        self._clusters: set[str] = set()
        self._by_name: dict[tuple[str | None, str], list[int]] = {}
        self._met: dict[tuple[str, str], list[int]] = {}
        seen: set[tuple[str | None, str, int | None]] = set()
        for place, table in enumerate(tables):
            if table.cluster is not None:
                self._clusters.add(table.cluster)
            for name in table.names:
                if (table.cluster, name, table.since) in seen:
                    continue
                seen.add((table.cluster, name, table.since))
                self._by_name.setdefault((table.cluster, name), []).append(len(self.nodes))
                self.nodes.append(_of_table(name, table))
                self._tables.append(place)

    def numbers(self, cluster: str, name: str) -> list[int]:
        """The numbers of a node of this name in a cluster: several if it has consecutive tables."""
        key = (cluster, name)
        if key not in self._met:
            numbers = self._by_name.get(key) or self._by_name.get((None, name))
            if numbers is None:
                numbers = [len(self.nodes)]
                self.nodes.append(KnownNode(name or UNKNOWN_NAME, cluster, INFERRED, {}, is_named=False))
            self._met[key] = numbers
            self._clusters.add(cluster)
            for number in numbers:
                self._met_in[number] = min(cluster, self._met_in.get(number, cluster))
                if number < len(self._tables):
                    self._of_tables.setdefault(self._tables[number], set()).add(cluster)
        return self._met[key]

    @property
    def has_idle(self) -> bool:
        """Whether a node of the configuration had no runs, and no table says its cluster."""
        return any(not self.nodes[at].cluster and at not in self._met_in for at in range(len(self._tables)))

    def service_bounds(self) -> Ints:
        """When each node is in service: the first instants, and those at which it is no more."""
        bounds = [
            (-FOREVER if node.since is None else node.since, FOREVER if node.until is None else node.until)
            for node in self.nodes
        ]
        return np.array(bounds, np.int64).reshape(-1, 2).T

    def know_clusters(self, clusters: Iterable[str]) -> None:
        """Add clusters that exist, whether or not their runs are looked at."""
        self._clusters.update(clusters)

    def cluster_of(self, number: int) -> str | None:
        """The cluster of a node; None if it is unknown.

        It is that of the node's table, or of the runs that were on it. A node that was idle belongs to the cluster of
        the other nodes of its table, or to the only cluster there is (see `know_clusters`): if idle nodes were left
        out, two busy nodes of ten would look like a full cluster.
        """
        cluster = self.nodes[number].cluster or self._met_in.get(number)
        if cluster is not None:
            return cluster
        for clusters in (self._of_tables.get(self._tables[number], set()), self._clusters):
            if len(clusters) == 1:
                return next(iter(clusters))
        return None

    def add(self, other: Inventory) -> list[int]:
        """Add the nodes of another inventory with the same tables; returns the number here of each of its nodes."""
        numbers = list(range(len(other.nodes)))
        for (cluster, name), there in other._met.items():
            for number, here in zip(there, self.numbers(cluster, name), strict=True):
                numbers[number] = here
        return numbers


def _of_table(name: str, table: Node) -> KnownNode:
    memory = table.memory_gib * KIB_A_GIB if table.memory_gib is not None else None
    virtual = table.virtual_gib * KIB_A_GIB if table.virtual_gib is not None else None
    amounts: dict[Resource, int | None] = {
        "cores": table.cores, "memory": memory, "vmem": virtual, "gpus": table.gpus * GPU_PARTS,
    }  # fmt: skip
    return KnownNode(
        name, table.cluster or "", table.type, amounts, table.since, table.until,
        idle_uw=millionths(table.watts_idle),
    )  # fmt: skip
