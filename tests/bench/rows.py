"""The rows of the table: each a measurement and what it is paired with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tests.bench.measure import Bench

Scale = Literal["quick", "default", "full"]
Measurement = Callable[[Bench], None]


@dataclass(frozen=True)
class Sizes:
    """Records at each scale; None leaves the row out."""

    quick: int | None
    default: int | None
    full: int | None

    def at(self, scale: Scale) -> int | None:
        """The size at a scale."""
        return {"quick": self.quick, "default": self.default, "full": self.full}[scale]


@dataclass(frozen=True)
class BenchRow:
    """A row: its name, what is measured, how large, and its baseline with what it is called."""

    name: str
    measurement: Measurement
    sizes: Sizes
    baseline: Measurement | None
    baseline_name: str
    unit: str
    unless: Callable[[Path], str]
    """Given where inputs are kept: why it cannot be measured here, or nothing."""
    variant: str = ""
    """Which one of the rows with this measurement it is."""

    @property
    def description(self) -> str:
        """The first line of the measurement's docstring."""
        return (self.measurement.__doc__ or "").split("\n")[0]


ROWS: list[BenchRow] = []
"""In the order of the table."""


def row(
    name: str,
    sizes: Sizes,
    *,
    beside: tuple[str, Measurement] | None = None,
    unit: str = "records",
    unless: Callable[[Path], str] = lambda _kept: "",
    variant: str = "",
) -> Callable[[Measurement], Measurement]:
    """Add a measurement to the table, with a baseline."""

    def add(measurement: Measurement) -> Measurement:
        baseline_name, baseline = beside or ("", None)
        ROWS.append(BenchRow(name, measurement, sizes, baseline, baseline_name, unit, unless, variant))
        return measurement

    return add
