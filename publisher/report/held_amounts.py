"""Amounts that runs held of nodes in each period, the most at once, and the rounding of money.

Occupation of a core in a period is the time that runs held it, divided by the length of the period; that of a node is
the mean of its cores, that of a cluster the mean of its nodes. The part of a run inside the period counts (Li, Yang, Wu
2016, section 2.1). Sums are whole numbers of amount times seconds. Cost: runs plus nodes times periods.

Money is rounded once, half away from zero, to the decimals of the currency.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from itertools import accumulate
from typing import Final

import numpy as np

from publisher.report.integers import ExactSums, Ints
from publisher.report.matching import RowTable

LARGEST_AMOUNT = 1 << 36
"""The upper limit of an amount: 64 TiB in KiB."""
_SLICES: Final = 4096
_AT_ONCE: Final = 100_000
"""The changes in memory while the most at once is sought, at two hundred bytes each."""


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

    def __init__(
        self,
        collected: Callable[[Mapping[str, str]], RowTable],
        start: int,
        stop: int,
        *,
        slices: int = _SLICES,
        at_once: int = _AT_ONCE,
    ) -> None:
        """`collected`: makes the table of rows, of columns with types; `start`, `stop`: the interval, epoch seconds."""
        seconds = "UINTEGER" if stop - start < 1 << 32 else "BIGINT"
        self._rows = collected({"node": "UINTEGER", "first": seconds, "stop": seconds, "amount": "BIGINT"})
        self._start, self._stop = start, stop
        self._width = max((stop - start) // slices, 1)
        self._at_once = at_once

    def add(self, node: Ints, start: Ints, stop: Ints, amount: Ints) -> None:
        """Add runs that held an amount of a node (numbers from 0) from `start` to `stop`."""
        begin, end = np.maximum(start, self._start), np.minimum(stop, self._stop)
        rows = end > begin
        begin, end = begin[rows] - self._start, end[rows] - self._start
        self._rows.add(node[rows], begin, end, np.minimum(amount[rows], LARGEST_AMOUNT))

    def by_node(self) -> dict[int, int]:
        """The most that was held of each node, if anything was."""
        table = self._rows.name
        changes = (
            f"(SELECT node, first AS instant, amount FROM {table} UNION ALL SELECT node, stop, -amount FROM {table})"  # noqa: S608 - names of ours
        )
        nodes = (self._rows.query(f"SELECT max(node) FROM {table}")[0][0] or 0) + 1  # noqa: S608 - as above
        most, held = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64)
        for first, stop in self._slices(changes):
            inside = f"instant >= {first} AND instant < {stop}"
            batches = self._rows.batches(f"SELECT * FROM {changes} WHERE {inside}")  # noqa: S608 - as above
            some = [[batch.numbers(name) for name in ("node", "instant", "amount")] for batch in batches]
            node, instant, amount = map(np.concatenate, zip(*some, strict=True))
            # What is held after all changes of an instant counts: those that release come first.
            at = node * (stop - first) + (instant - first)
            order = np.argsort(at, kind="stable")
            at, total = at[order], np.cumsum(amount[order])
            last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
            node, total = at[last] // (stop - first), total[last]
            begins = np.flatnonzero(np.diff(node, prepend=node[0] - 1))
            numbers, lengths = node[begins], np.diff(begins, append=len(node))
            before = np.where(begins > 0, total[begins - 1], 0)
            at_once = total + np.repeat(held[numbers] - before, lengths)
            most[numbers] = np.maximum(most[numbers], np.maximum.reduceat(at_once, begins))
            held[numbers] = at_once[begins + lengths - 1]
        return {number: top for number, top in enumerate(most.tolist()) if top}

    def _slices(self, changes: str) -> Iterator[tuple[int, int]]:
        """Slices of the interval, in seconds since its start: none is without changes, and each has about as many as
        are taken at once. DuckDB fails to sort millions of them within its limit."""
        width = self._width
        slices = f"SELECT instant // {width} AS slice, count(*) FROM {changes} GROUP BY ALL ORDER BY slice"  # noqa: S608 - as above
        first = inside = 0
        for place, count in self._rows.query(slices):
            if inside and inside + count > self._at_once:
                yield first, place * width
                first, inside = place * width, 0
            inside += count
        if inside:
            yield first, self._stop - self._start + 1


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
