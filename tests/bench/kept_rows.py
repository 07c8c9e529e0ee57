"""The table of rows that is kept: docs/internals/performance.csv, a line for each row and size."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

HEADINGS: Final = (
    "row", "records", "records/s", "CPU s", "wall s", "peak MiB", "baseline", "baseline records/s", "ratio",
    "CPU ratio",
)  # fmt: skip


def keep(result: Mapping[str, Any], file: Path) -> None:
    """Put a result in the place of the line with its row and size, or at the end; not one that failed."""
    if "error" in result:
        return
    lines: list[list[str]] = []
    if file.exists():
        with file.open(encoding="utf-8", newline="") as text:
            lines = list(csv.reader(text))[1:]
    line = _line(result)
    places = [place for place, other in enumerate(lines) if other[:2] == line[:2]]
    lines[places[0] if places else len(lines) :] = [line, *(lines[places[0] + 1 :] if places else [])]
    with file.open("w", encoding="utf-8", newline="") as text:
        csv.writer(text, lineterminator="\n").writerows([HEADINGS, *lines])


def _line(result: Mapping[str, Any]) -> list[str]:
    beside = result.get("baseline")
    return [
        result["row"], str(result["records"]), _rate(result["per_s"]), f"{result['cpu_s']:.2f}",
        f"{result['wall_s']:.2f}", f"{result['peak_mib']:.0f}", beside["name"] if beside else "",
        _rate(beside["per_s"]) if beside else "", f"{result['ratio']:.2f}" if beside else "",
        f"{result['cpu_ratio']:.2f}" if beside else "",
    ]  # fmt: skip


def _rate(per_s: float) -> str:
    return f"{per_s:.0f}" if per_s >= 100 else f"{per_s:.3g}"
