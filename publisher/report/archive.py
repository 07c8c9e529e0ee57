"""The files and the columns of an archive.

An archive is a folder with `month=2026-11/runs.parquet` for each month, with a row for each entry of a report.

The columns are the fields of an entry in `publisher.messages.entries`, with null where nothing is known. Hosts, core
numbers and events are JSON, the resources of `complex` are joined by commas. Other programs may read it: DuckDB, Spark,
pandas.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa

from formats.calendar import Month, month_of
from formats.job import Events, Host
from formats.utilization.measure import KEYS
from publisher.errors import UsageError

VERSION: Final = "2"
"""From 2 on, files have checks: `publisher.report.parquet_checks`."""
VERSION_KEY: Final = b"usage-publisher-archive"
FILE: Final = "runs.parquet"
NUMBERS: Final = frozenset(
    {
        "start", "stop", "end", "submit", "eligible", "run",  # epoch seconds, `stop` not included; number of the run
        "user_ms", "system_ms", "cpu_ms", "wall_ms", "tasks_wall_ms",  # the last with every task of a parallel job
        "slots", "gpus", "memory_kib", "virtual_kib", "memory_asked_kib",
        "stage_in_bytes", "stage_out_bytes",
        "mem_ugb_s", "io_ugb", "iow_us",  # Grid Engine's mem, io and iow: millionths of GB s, GB and s
        "energy_mj",  # millijoules that the source reports, of all nodes of the run
        "metered_mj", "metered_by",  # what another program measured of the run alone, and which one: `energies.Method`
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
JOB_COLUMNS: Final = ("local_id", "name", "global_id", "array_id", "dqs_job_name")
"""The names of a job."""
TEXT_COLUMNS: Final = (*sorted({*KEYS, "source"} - {"job", "host", "slots"}), "placed")
"""Columns of words; `host` is read from `placed`, the hosts of a run, and the word `slots` from the number."""
CORE_NUMBERS: Final = "core_numbers"
LATER: Final = frozenset(
    {CORE_NUMBERS, "incomplete", "energy_mj", "metered_mj", "metered_by", "memory_asked_kib", "ending"}
)
"""Columns that older archives may lack: their values are then unknown."""
COLUMNS: Final = (*sorted(NUMBERS), *TEXT_COLUMNS, *JOB_COLUMNS, "events", CORE_NUMBERS)
TYPES: Final = {
    **dict.fromkeys(NUMBERS, pa.int64()),
    **dict.fromkeys(TEXT_COLUMNS, pa.dictionary(pa.int32(), pa.string())),
    **dict.fromkeys((*JOB_COLUMNS, "events", CORE_NUMBERS), pa.string()),
}
_MONTH: Final = re.compile(r"month=(\d{4})-(\d{2})", re.ASCII)

_hosts: Final = msgspec.json.Decoder(tuple[Host, ...])
_events: Final = msgspec.json.Decoder(Events)
_core_numbers: Final = msgspec.json.Decoder(tuple[str, ...])


def folder_of(archive: Path, month: Month) -> Path:
    """The folder of the runs that ended in a month."""
    return archive / f"month={month}"


def months_there(archive: Path) -> dict[Month, Path]:
    """The files of a folder by month, in order."""
    files: dict[Month, Path] = {}
    if archive.is_dir():
        for folder in archive.iterdir():
            if (month := _MONTH.fullmatch(folder.name)) and (folder / FILE).is_file():
                files[Month(int(month[1]), int(month[2]))] = folder / FILE
    return dict(sorted(files.items()))


def months_in(archive: Path) -> dict[Month, Path]:
    """The files of an archive by month, in order. Raises `UsageError` if there is no archive."""
    files = months_there(archive)
    if not files:
        raise UsageError(f"{archive} is not an archive", hint=f"Write one with `usage-publisher archive {archive}`")
    return files


def hosts_of(text: str | None) -> tuple[Host, ...]:
    """The hosts of a run."""
    return _hosts.decode(text) if text else ()


def events_of(text: str | None) -> Events | None:
    """The events of a job."""
    return _events.decode(text) if text else None


def core_numbers_of(text: str | None) -> tuple[str, ...]:
    """The cores of each host of a job."""
    return _core_numbers.decode(text) if text else ()


def months_about(archive: Path, start: int) -> dict[Month, Path]:
    """The files of an archive with runs that ended at an instant or later. Raises `UsageError` if there is none."""
    first = month_of(start)
    return {month: path for month, path in months_in(archive).items() if month >= first}
