"""Runs as columns, from which views compute, independent of where the runs are stored.

A `Frame` holds some thousand entries (runs, or act_file lines of DQS runs): numbers as columns of 64-bit integers, and
words (queue, user, and so on) as codes of a `Coding`, which all frames of one reading share. The columns are defined as
the fields of an entry in `publisher.messages.entries`; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from formats.utilization.measure import KEYS
from publisher.report.column_tally import Ints

UNKNOWN: Final = -(1 << 63)
"""In a column of numbers: the source does not report it."""

NUMBERS: Final = frozenset(
    {
        "start", "stop", "end", "submit", "eligible", "run",  # epoch seconds, `stop` not included; number of the run
        "user_ms", "system_ms", "cpu_ms", "wall_ms", "tasks_wall_ms",  # the last with every task of a parallel job
        "slots", "gpus", "memory_kib", "virtual_kib",
        "stage_in_bytes", "stage_out_bytes",
        "mem_ugb_s", "io_ugb", "iow_us",  # Grid Engine's mem, io and iow: millionths of GB s, GB and s
        "energy_mj",  # millijoules that the source reports, of all nodes of the run
        "incomplete",  # amounts that the source does not report, which are 0 in their columns: a sum of the bits below
    }
)  # fmt: skip
CPU_UNKNOWN, MEMORY_UNKNOWN, VIRTUAL_UNKNOWN, STAGED_UNKNOWN = 1, 2, 4, 8
"""Bits of `incomplete`: total CPU time or a part of it, resident memory, virtual memory, both staged volumes."""
AMOUNTS: Final = {
    CPU_UNKNOWN: "CPU time",
    MEMORY_UNKNOWN: "resident memory",
    VIRTUAL_UNKNOWN: "virtual memory",
    STAGED_UNKNOWN: "staged volumes",
}
"""The amount that each bit stands for."""
WORDS: Final = frozenset(KEYS) - {"job"} | {"source", "placed"}
"""Columns of codes. `placed` are the hosts of a run: its `Coding.raw` are tuples of `formats.job.Host`."""
OBJECTS: Final = frozenset({"job", "events", "core_numbers"})
"""Columns of values that hardly ever repeat: `publisher.job_ids.JobIds`, the events of the job, and the cores that it
held of each host of `placed` (`formats.cores`; empty if its source names none)."""

ROW: Final = "run_id"
"""A column of numbers: the ids of the runs in the store, which archives do not have."""

Mask: TypeAlias = npt.NDArray[np.bool_]


class Coding:
    """The codes of a column of words: `code` of a raw value, `values` the words of each code."""

    def __init__(self, words: Callable[[Any], tuple[str, ...]]) -> None:
        self._words = words
        self.values: list[tuple[str, ...]] = []
        self.raw: list[Any] = []
        """A raw value of each code."""
        self.code = _Codes(self._learn)

    def _learn(self, raw: Any) -> int:
        self.values.append(self._words(raw))
        self.raw.append(raw)
        return len(self.values) - 1


class _Codes(dict[Any, int]):
    def __init__(self, learn: Callable[[Any], int]) -> None:
        super().__init__()
        self._learn = learn

    def __missing__(self, raw: Any) -> int:
        code = self[raw] = self._learn(raw)
        return code


class Frame:
    """Some entries. `numbers`, `codes`, and `objects` hold the requested columns, each as long as the frame."""

    __slots__ = ("codes", "numbers", "objects", "rows")

    def __init__(
        self, rows: int, numbers: Mapping[str, Ints], codes: Mapping[str, Ints], objects: Mapping[str, list[Any]]
    ) -> None:
        self.rows = rows
        self.numbers = numbers
        self.codes = codes
        self.objects = objects

    def job_numbers(self) -> Ints:
        """A number for each entry, equal for runs of one job: a 64-bit hash of its names, valid in this process."""
        return np.fromiter(map(hash, self.objects["job"]), np.int64, self.rows)

    def where(self, mask: Mask) -> Frame:
        """The entries for which `mask` is true."""
        if mask.all():
            return self
        chosen = np.flatnonzero(mask)
        places = chosen.tolist()
        return Frame(
            len(chosen),
            {name: column[chosen] for name, column in self.numbers.items()},
            {name: column[chosen] for name, column in self.codes.items()},
            {name: [column[place] for place in places] for name, column in self.objects.items()},
        )


class Runs(Protocol):
    """Where a report reads runs: the store, or an archive."""

    codings: dict[str, Coding]
    """The codings of the requested columns, by the names in `WORDS`."""

    def frames(
        self, start: int, stop: int | None, requested: frozenset[str], *, running_until: int | None
    ) -> Iterator[Frame]:
        """Entries of runs that ended from `start` until `stop`: the columns `requested`, `start`, and `stop`.

        There may be other entries, which the caller leaves out. `running_until` (epoch seconds) includes runs that are
        still running, up to then.
        """
        ...
