"""View `occupation`: the share of cores, memory, or GPUs in use, by day, week, month, quarter, or year, or over all.

The occupation of a node is what runs held of it, times the time, divided by its capacity; that of a cluster or type of
nodes is the mean of its nodes (Li, Yang, Wu 2016). `share_of_all` is the share of the sum of all capacities, in which
larger nodes have more weight. Running jobs count until now; the future does not count. For single cores see
`publisher.report.views.core_occupation`.
"""

from __future__ import annotations

from fractions import Fraction

from publisher.report.calendar import ReportPeriod, period_axis
from publisher.report.inventory import PARTS_OF_UNIT, KnownNode
from publisher.report.report import Cell, Report, Series, in_percent, keys_text
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.view_kind import OCCUPATION
from publisher.report.view_option import Resource
from publisher.report.views import core_occupation
from publisher.report.views.nodes import NodeAllocations, names_of


class Share:
    """A group of nodes in one period."""

    def __init__(self) -> None:
        self.nodes = 0
        self.available = 0
        """Capacity times seconds in service, of the nodes whose capacity is known."""
        self.held = 0
        self._of_known = 0
        self._shares: list[tuple[int, int]] = []
        """By node, what was held of it, and of how much."""

    def add(self, node: KnownNode, capacity: int | None, held: int, period: ReportPeriod) -> None:
        """Add a node and what was held of it in the period."""
        service_s = node.in_service_s(period)
        if not service_s:
            return
        self.nodes += 1
        self.held += held
        if capacity:
            self.available += capacity * service_s
            self._of_known += held
            self._shares.append((held, capacity * service_s))

    @property
    def mean(self) -> float | None:
        """The mean of the nodes, a fraction of 1."""
        if len(self._shares) == 1:
            ((held, available),) = self._shares
            return held / available
        return float(sum(Fraction(*pair) for pair in self._shares) / len(self._shares)) if self._shares else None

    @property
    def of_all(self) -> float | None:
        """The share of the sum of the capacities, a fraction of 1."""
        return self._of_known / self.available if self.available else None


def shares(held: NodeAllocations, by: tuple[str, ...]) -> dict[tuple[str, ...], list[Share]]:
    """The share in each period, by the values of the keys."""
    by_group: dict[tuple[str, ...], list[Share]] = {}
    nodes = held.nodes()
    for (_, node, capacity, amounts), name in zip(nodes, names_of(nodes, by), strict=True):
        if node.is_named and not capacity and not any(amounts):
            continue  # a node without GPUs does not lower the mean of those that have some
        words = {"cluster": node.cluster, "type": node.type, "node": name}
        label = tuple(words[key] for key in by)
        each = by_group.setdefault(label, [Share() for _ in held.periods])
        for share, amount, period in zip(each, amounts, held.periods, strict=True):
            share.add(node, capacity, amount, period)
    return by_group


def in_units(amount: int, time_s: int, resource: Resource) -> float:
    """Amount times seconds, divided by `time_s`, in the unit of the report."""
    return amount / (time_s * PARTS_OF_UNIT[resource])


def view(context: ReportContext, request: ReportRequest) -> Report:
    """The view."""
    if "core" in request.by:
        return core_occupation.view(context, request)
    resource = request.resource
    held = NodeAllocations(context, request, resource).read()
    by_group = shares(held, request.by)
    rows: list[tuple[Cell, ...]] = [
        (
            period.name, period.start, *label, share.nodes,
            in_units(share.available, period.inside_s, resource) if share.available else None,
            in_units(share.held, period.inside_s, resource),
            in_units(share.held, 3600, resource), share.mean, share.of_all,
        )
        for place, period in enumerate(held.periods)
        for label, each in sorted(by_group.items())
        if (share := each[place]).nodes
    ]  # fmt: skip
    picture = OCCUPATION.pictures[resource]
    plot = picture.plot(
        "heat" if "node" in request.by else "line",
        *(
            Series(" ".join(label) or resource, tuple(in_percent(share.mean) for share in each))
            for label, each in sorted(by_group.items())
        ),
        keys=request.by, by=keys_text(request.by), top=100.0, **period_axis(held.periods),
    )  # fmt: skip
    shown = ("nodes", "available", "in_use", "used_h", "occupation", "share_of_all")
    return held.report(rows, plot, picture=picture, shown=shown)
