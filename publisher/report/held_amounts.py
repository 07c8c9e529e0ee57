"""Amounts that runs held of nodes in each period, the most at once, and the rounding of money.

Occupation of a core in a period is the time that runs held it, divided by the length of the period; that of a node is
the mean of its cores, that of a cluster the mean of its nodes. The part of a run inside the period counts (Li, Yang, Wu
2016, section 2.1). Sums are whole numbers of amount times seconds. Cost: runs plus nodes times periods.

Money is rounded once, half away from zero, to the decimals of the currency.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Final

import numpy as np

from publisher.report.integers import ExactSums, Ints
from publisher.report.matching import RowTable

LARGEST_AMOUNT = 1 << 36
"""The upper limit of an amount: 64 TiB in KiB."""


class Occupation:
    """Sums up what runs held of nodes, in consecutive periods."""

    def __init__(self, edges: Ints) -> None:
        """`edges`: the start of each period and the stop of the last, epoch seconds."""
        self._edges = edges
        self._lengths: list[int] = np.diff(edges).tolist()
        self._periods = len(self._lengths)
        self._nodes = 0
        self._part = ExactSums(0)
        self._step = ExactSums(0)

    def add(self, node: Ints, start: Ints, stop: Ints, amount: Ints) -> None:
        """Add runs that held an amount of a node (numbers from 0) from `start` to `stop` (not included)."""
        edges = self._edges
        begin, end = np.maximum(start, edges[0]), np.minimum(stop, edges[-1])
        rows = np.flatnonzero((end > begin) & (amount > 0))
        if not len(rows):
            return
        node, begin, end = node[rows], begin[rows], end[rows]
        amount = np.minimum(amount[rows], LARGEST_AMOUNT)
        self._reserve(int(node.max()) + 1)
        first = np.searchsorted(edges, begin, "right") - 1
        last = np.searchsorted(edges, end - 1, "right") - 1
        long = np.flatnonzero(last > first)
        head = np.minimum(edges[first + 1], end) - begin
        tail = (end - edges[last])[long]
        base = node * self._periods
        most = int(amount.max())
        longest = max(int(head.max()), int(tail.max(initial=0)))
        self._part.add(base + first, amount * head, most * longest)
        held = amount[long]
        self._part.add((base + last)[long], held * tail, most * longest)
        self._step.add((base + first)[long] + 1, held, most)
        self._step.add((base + last)[long], -held, most)

    def merge(self, other: Occupation, numbers: list[int]) -> None:
        """Add other sums over the same periods; `numbers` are the numbers here of their nodes."""
        if not other._nodes:
            return
        here = np.array(numbers[: other._nodes], np.int64)
        self._reserve(int(here.max()) + 1)
        at = (here[:, None] * self._periods + np.arange(self._periods)).reshape(-1)
        self._part.merge(other._part, at)
        self._step.merge(other._step, at)

    def _reserve(self, nodes: int) -> None:
        if nodes > self._nodes:
            self._nodes = max(nodes, 2 * self._nodes)
            self._part.grow(self._nodes * self._periods)
            self._step.grow(self._nodes * self._periods)

    def of(self, node: int) -> list[int]:
        """The amount times seconds that was held of a node, by period."""
        if node >= self._nodes:
            return [0] * self._periods
        first, stop = node * self._periods, (node + 1) * self._periods
        part, step = self._part.slice(first, stop), self._step.slice(first, stop)
        return [
            partly + length * rate for partly, length, rate in zip(part, self._lengths, accumulate(step), strict=True)
        ]


class MostAtOnce:
    """The most that runs held of each node at once. A run that ends releases before another that starts takes."""

    ROWS: Final = ("node", "first", "stop", "amount")
    """The columns of the table of rows."""

    def __init__(self, rows: RowTable, start: int, stop: int) -> None:
        """The table of rows, and the interval (`stop` not included), epoch seconds."""
        self._rows = rows
        self._start, self._stop = start, stop

    def add(self, node: Ints, start: Ints, stop: Ints, amount: Ints) -> None:
        """Add runs that held an amount of a node (numbers from 0) from `start` to `stop`."""
        begin, end = np.maximum(start, self._start), np.minimum(stop, self._stop)
        rows = end > begin
        self._rows.add(node[rows], begin[rows], end[rows], np.minimum(amount[rows], LARGEST_AMOUNT))

    def by_node(self) -> dict[int, int]:
        """The most that was held of each node, if anything was."""
        table = self._rows.name
        changes = (
            f"SELECT node, first AS instant, amount FROM {table} UNION ALL SELECT node, stop, -amount FROM {table}"  # noqa: S608 - names of ours
        )
        most: dict[int, int] = {}
        held = 0  # each node ends at zero, so none affects the next
        for batch in self._rows.batches(f"SELECT node, amount FROM ({changes}) ORDER BY node, instant, amount"):  # noqa: S608 - as above
            node, amount = batch.numbers("node"), batch.numbers("amount")
            at_once = held + np.cumsum(amount)
            held = int(at_once[-1])
            begins = np.flatnonzero(np.diff(node, prepend=node[0] - 1))
            for number, top in zip(node[begins].tolist(), np.maximum.reduceat(at_once, begins).tolist(), strict=True):
                most[number] = max(most.get(number, 0), top)
        return {number: top for number, top in most.items() if top}


def rounded(amount: Fraction | Decimal, decimals: int) -> Decimal:
    """An exact amount rounded to so many decimals, half away from zero."""
    exact = Fraction(amount)
    scaled = abs(exact) * 10**decimals
    units = (2 * scaled.numerator + scaled.denominator) // (2 * scaled.denominator)
    return Decimal(units if exact >= 0 else -units).scaleb(-decimals)


def plain(amount: Decimal) -> str:
    """A decimal without an exponent and trailing zeros."""
    text = f"{amount:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
