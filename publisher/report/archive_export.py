"""Writing an archive: a file for the runs of each whole month, which replaces the earlier file atomically."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from formats.calendar import Month, month_bounds
from publisher.config.schema import Config
from publisher.errors import OutputError, PublisherError
from publisher.report.archive import (
    COLUMNS,
    CORE_NUMBERS,
    FILE,
    JOB_COLUMNS,
    TEXT_COLUMNS,
    VERSION,
    VERSION_KEY,
    folder_of,
    text_of,
)
from publisher.report.frame import NUMBERS, OBJECTS, UNKNOWN, WORDS, Coding, Frame, Runs
from publisher.report.runs import StoreRuns
from publisher.store.database import Store
from publisher.store.report_queries import months_ended_in
from publisher.whole_file import require_own_folder

_ROWS: Final = 200_000
"""Rows in a row group."""
_TYPES: Final = {
    **dict.fromkeys(NUMBERS, pa.int64()),
    **dict.fromkeys(TEXT_COLUMNS, pa.dictionary(pa.int32(), pa.string())),
    **dict.fromkeys((*JOB_COLUMNS, "events", CORE_NUMBERS), pa.string()),
}
SCHEMA: Final = pa.schema([(name, _TYPES[name]) for name in COLUMNS], metadata={VERSION_KEY: VERSION.encode()})


class Written(msgspec.Struct, frozen=True):
    """The result for a month: its `entries` in the archive. `refused`: the smaller number of the store, not written."""

    entries: int
    refused: int | None = None


def export_months(
    store: Store, config: Config, archive: Path, start: int | None, stop: int | None, *, shrink: bool = False
) -> dict[str, Written]:
    """Write the whole months that overlap an interval and have finished runs; see `export_month`."""
    with store.read() as connection:
        months = months_ended_in(connection, start, stop)
    runs = StoreRuns(store, config)
    written = {str(month): export_month(runs, month, archive, shrink=shrink) for month in months}
    return {month: one for month, one in written.items() if one.entries}


def export_month(runs: Runs, month: Month, archive: Path, *, shrink: bool = False) -> Written:
    """Write the finished runs that ended in a month. A month without any has no file.

    A file with more runs, such as those that the store has purged, is only replaced with `shrink`. Raises
    `PublisherError` if it cannot be written.
    """
    start, stop = month_bounds(month)
    frames = runs.frames(start, stop, NUMBERS | WORDS | OBJECTS, running_until=None)
    return write_month(frames, runs, month, archive, shrink=shrink)


def write_month(
    frames: Iterable[Frame], runs: Runs, month: Month, archive: Path, *, shrink: bool = False
) -> Written:  # fmt: skip
    """Write frames with all columns as a month of an archive; see `export_month`."""
    folder = folder_of(archive, month)
    file = folder / FILE
    partial = folder / f"{FILE}.{os.getpid()}.partial"
    try:
        before = _entries(file)
        require_own_folder(folder)
        try:
            rows = _write(frames, runs, partial)
            if rows < before and not shrink:
                return Written(before, refused=rows)
            if rows:
                _settle(partial, file)
            else:
                file.unlink(missing_ok=True)
        finally:
            partial.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()
    except OSError as error:
        raise OutputError(f"the archive {folder} cannot be written: {error.strerror or error}") from error
    return Written(rows)


def _entries(file: Path) -> int:
    """The number of entries of a month of an archive. Raises `PublisherError` if it is not a Parquet file."""
    if not file.exists():
        return 0
    try:
        read: Any = pq.read_metadata
        return int(read(file).num_rows)
    except pa.ArrowInvalid as error:
        raise PublisherError(
            f"{file} is not a Parquet file: {error}", hint="Move it away and write the archive again"
        ) from error


def _write(frames: Iterable[Frame], runs: Runs, path: Path) -> int:
    rows = 0
    held: list[Any] = []
    waiting = 0
    writer_type: Any = pq.ParquetWriter  # pyarrow has no type hints for it
    path.unlink(missing_ok=True)  # left by a process that was killed
    with (
        path.open("xb") as file,
        writer_type(file, SCHEMA, compression="zstd", use_dictionary=list(TEXT_COLUMNS)) as writer,
    ):
        for frame in frames:
            held.append(_batch(frame, runs.codings))
            waiting += frame.rows
            if waiting >= _ROWS:
                writer.write_table(pa.Table.from_batches(held, SCHEMA), row_group_size=_ROWS)
                held, waiting = [], 0
            rows += frame.rows
        if held:
            writer.write_table(pa.Table.from_batches(held, SCHEMA), row_group_size=_ROWS)
    return rows


def _settle(partial: Path, path: Path) -> None:
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    partial.replace(path)


def _batch(frame: Frame, codings: Mapping[str, Coding]) -> Any:
    arrays: dict[str, Any] = {}
    for name in NUMBERS:
        values = frame.numbers[name]
        arrays[name] = pa.array(values, mask=values == UNKNOWN)
    for name in TEXT_COLUMNS:
        found, places = np.unique(frame.codes[name], return_inverse=True)
        coding = codings[name]
        texts = [text_of(name, coding.raw[code], coding.values[code]) for code in found.tolist()]
        indices = places.reshape(-1).astype(np.int32)
        silent = np.array([text is None for text in texts], np.bool_)
        words = pa.array([_unicode(text) or "" for text in texts], pa.string())
        arrays[name] = pa.DictionaryArray.from_arrays(pa.array(indices, mask=silent[indices]), words)
    for name in JOB_COLUMNS:
        arrays[name] = pa.array([_unicode(getattr(ids, name)) for ids in frame.objects["job"]], pa.string())
    for name in ("events", CORE_NUMBERS):
        encoded = [msgspec.json.encode(some).decode() if some else None for some in frame.objects[name]]
        arrays[name] = pa.array(encoded, pa.string())
    return pa.record_batch([arrays[name] for name in COLUMNS], schema=SCHEMA)


def _unicode(text: str | None) -> str | None:
    """Text for Parquet: bytes of the source that are not UTF-8 become escapes."""
    return text if text is None or text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")
