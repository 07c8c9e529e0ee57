"""How an archive lies on the disk: `month=2026-11/runs.parquet` in its folder, a row for each entry of a report.

The columns are those of `publisher.report.frame`, with null where nothing is known. Hosts, core numbers and events
are JSON, the resources of `complex` are joined by commas. Other programs may read it: DuckDB, Spark, pandas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.job import Event, Host
from formats.month import Month
from publisher.errors import UsageError
from publisher.report.frame import NUMBERS, WORDS

VERSION: Final = "1"
VERSION_KEY: Final = b"usage-publisher-archive"
FILE: Final = "runs.parquet"
JOB_COLUMNS: Final = ("local_id", "name", "global_id")
TEXT_COLUMNS: Final = (*sorted(WORDS - NUMBERS - {"placed", "host"}), "placed")
"""Columns of words; `host` is read from `placed`, and the word `slots` from the number."""
CORE_NUMBERS: Final = "core_numbers"
LATER: Final = frozenset({CORE_NUMBERS, "incomplete"})
"""Columns that archives of older programs do not have: nothing is known of them there."""
COLUMNS: Final = (*sorted(NUMBERS), *TEXT_COLUMNS, *JOB_COLUMNS, "events", CORE_NUMBERS)
_MONTH: Final = re.compile(r"month=(\d{4})-(\d{2})", re.ASCII)

_hosts: Final = msgspec.json.Decoder(tuple[Host, ...])
_events: Final = msgspec.json.Decoder(tuple[Event, ...])
_core_numbers: Final = msgspec.json.Decoder(tuple[str, ...])


def folder_of(archive: Path, month: Month) -> Path:
    """Where the runs that ended in a month lie."""
    return archive / f"month={month}"


def months_in(archive: Path) -> dict[Month, Path]:
    """The files of an archive by month, in order. Raises `UsageError` where there is no archive."""
    found: dict[Month, Path] = {}
    if archive.is_dir():
        for folder in sorted(archive.iterdir()):
            if (month := _MONTH.fullmatch(folder.name)) and (folder / FILE).is_file():
                found[Month(int(month[1]), int(month[2]))] = folder / FILE
    if not found:
        raise UsageError(f"there is no archive in {archive}", hint=f"`usage-publisher archive {archive}` makes one")
    return found


def text_of(name: str, raw: Any, words: tuple[str, ...]) -> str | None:
    """What a column of words has for a raw value of a coding."""
    if name == "placed":
        return msgspec.json.encode(raw).decode() if raw else None
    return ",".join(words) if words else None


def reader_of(name: str) -> Callable[[str | None], Any]:
    """What gives the raw value of a coding back, as `words_of` takes it."""
    if name in {"placed", "host"}:
        return lambda text: _hosts.decode(text) if text else ()
    return lambda text: text


def words_of(name: str) -> Callable[[Any], tuple[str, ...]]:
    """The words of a raw value."""
    if name in {"placed", "host"}:
        return lambda hosts: tuple(host.name for host in hosts if host.name)
    if name == "complex":
        return lambda text: tuple(text.split(",")) if text else ()
    return lambda text: (text,) if text else ()


def events_of(text: str | None) -> tuple[Event, ...]:
    """The events of a job."""
    return _events.decode(text) if text else ()


def core_numbers_of(text: str | None) -> tuple[str, ...]:
    """The cores of each host of a job."""
    return _core_numbers.decode(text) if text else ()
