"""The files and the columns of an archive.

An archive is a folder with `month=2026-11/runs.parquet` for each month, with a row for each entry of a report.

The columns are those of `publisher.report.frame`, with null where nothing is known. Hosts, core numbers and events
are JSON, the resources of `complex` are joined by commas. Other programs may read it: DuckDB, Spark, pandas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa

from formats.calendar import Month, month_of
from formats.job import Events, Host
from publisher.errors import UsageError
from publisher.report.frame import NUMBERS, WORDS

VERSION: Final = "1"
VERSION_KEY: Final = b"usage-publisher-archive"
FILE: Final = "runs.parquet"
JOB_COLUMNS: Final = ("local_id", "name", "global_id", "array_id", "dqs_job_name")
"""The names of a job."""
TEXT_COLUMNS: Final = (*sorted(WORDS - NUMBERS - {"placed", "host"}), "placed")
"""Columns of words; `host` is read from `placed`, and the word `slots` from the number."""
CORE_NUMBERS: Final = "core_numbers"
LATER: Final = frozenset({CORE_NUMBERS, "incomplete", "energy_mj"})
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


def months_in(archive: Path) -> dict[Month, Path]:
    """The files of an archive by month, in order. Raises `UsageError` if there is no archive."""
    found: dict[Month, Path] = {}
    if archive.is_dir():
        for folder in sorted(archive.iterdir()):
            if (month := _MONTH.fullmatch(folder.name)) and (folder / FILE).is_file():
                found[Month(int(month[1]), int(month[2]))] = folder / FILE
    if not found:
        raise UsageError(f"{archive} is not an archive", hint=f"Write one with `usage-publisher archive {archive}`")
    return found


def text_of(name: str, raw: Any, words: tuple[str, ...]) -> str | None:
    """A raw value of a coding as text of a column."""
    if name == "placed":
        return msgspec.json.encode(raw).decode() if raw else None
    return ",".join(words) if words else None


def reader_of(name: str) -> Callable[[str | None], Any]:
    """A function from the text of a column to the raw value, as `words_of` takes it."""
    if name in {"placed", "host"}:
        return lambda text: _hosts.decode(text) if text else ()
    return lambda text: text


def words_of(name: str) -> Callable[[Any], tuple[str, ...]]:
    """A function from a raw value to its words."""
    if name in {"placed", "host"}:
        return lambda hosts: tuple(host.name for host in hosts if host.name)
    if name == "complex":
        return lambda text: tuple(text.split(",")) if text else ()
    return lambda text: (text,) if text else ()


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
