"""Grid Engine's own sums from `qacct`: by the end of the jobs, of master tasks by slots, and CPU time of all tasks.

`-b` and `-e` include their seconds. WALLCLOCK is in seconds, CPU has three decimals; a heading is underlined by `=`.
(`fixtures/gridengine/real`; a record keeps whole milliseconds of CPU time, qacct adds up microseconds.)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Final

from publisher.errors import SourceFormatError
from publisher.sources.base import Window
from publisher.sources.tool import ToolSums, run, uncompressed

_NAME: Final = "qacct"
_FIGURES: Final = 7
"""The columns WALLCLOCK, UTIME, STIME, CPU, MEMORY, IO, IOW."""


def qacct_sums(files: Sequence[Path], window: Window) -> ToolSums:
    """The sums of qacct for the jobs in these files that ended in a window. Raises `SourceError`s."""
    chosen = ["-E"]
    if window.from_ is not None:
        chosen += ["-b", _stamp(window.from_)]
    if window.until is not None:
        chosen += ["-e", _stamp(window.until - 1)]
    core_ms = wall_ms = cpu_ms = 0
    for file in uncompressed(files, _NAME):
        for slots, wall, _ in figures(run(_NAME, "-f", str(file), *chosen, "-m", "-slots")):
            core_ms += wall * 1000 * int(slots)
            wall_ms += wall * 1000
        cpu_ms += sum(cpu for _, _, cpu in figures(run(_NAME, "-f", str(file), *chosen, "-slots")))
    return ToolSums(_NAME, wall_ms=wall_ms, core_ms=core_ms, cpu_ms=cpu_ms, cpu_within_ms=2)


def figures(lines: Iterable[str]) -> Iterator[tuple[str, int, int]]:
    """Slots, wall seconds, and CPU milliseconds of each row. Raises `SourceFormatError`."""
    begun = False
    for line in lines:
        if not begun or not line.strip():
            begun = begun or line.startswith("===")
            continue
        row = _row(line.split())
        if row is None:
            raise SourceFormatError(f"{_NAME} printed a line that is not a row of figures: {line[:200]}")
        yield row


def _row(words: Sequence[str]) -> tuple[str, int, int] | None:
    if len(words) != _FIGURES + 1 or not words[0].isdecimal():
        return None
    try:
        return words[0], int(Decimal(words[1])), round(Decimal(words[4]) * 1000)
    except (ValueError, InvalidOperation):
        return None


def _stamp(at: int) -> str:
    return time.strftime("%Y%m%d%H%M.%S", time.gmtime(at))
