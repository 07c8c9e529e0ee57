"""Writing an archive: a file for the runs of each whole month, which replaces the earlier file atomically."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from time import time
from typing import Any, BinaryIO, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from formats.calendar import Month, month_bounds, month_of
from publisher.config.schema import Config
from publisher.errors import OutputError, PublisherError
from publisher.report.archive import (
    COLUMNS,
    FILE,
    TEXT_COLUMNS,
    TYPES,
    VERSION,
    VERSION_KEY,
    folder_of,
    months_there,
)
from publisher.report.column_files import RUN_ID
from publisher.report.parquet_checks import DamagedParquetError, require_sound, seal
from publisher.report.tables import EACH_JOB_MB, EntryReading, arrow_batches, tables_of_store
from publisher.store.database import Store
from publisher.whole_file import BY_UMASK, new_file, require_own_folder

_ROWS: Final = 200_000
"""Rows in a row group."""
_PARTIAL: Final = ".partial"
_DAY_S: Final = 86_400
SCHEMA: Final = pa.schema([(name, TYPES[name]) for name in COLUMNS], metadata={VERSION_KEY: VERSION.encode()})


class Written(msgspec.Struct, frozen=True):
    """The result for a month: its `entries` in the archive. `refused`: the smaller number of the store, not written."""

    entries: int
    refused: int | None = None


def export_months(
    store: Store, config: Config, archive: Path, start: int | None, stop: int | None, *, shrink: bool = False
) -> dict[str, Written]:
    """Write the whole months that overlap an interval and have finished runs; see `write_month`."""
    written = {}
    with tables_of_store(store, config, EntryReading(buffers_mb=EACH_JOB_MB)) as connection:
        for month in _months(connection, archive, start, stop):
            written[str(month)] = write_month(_batches(connection, month), month, archive, shrink=shrink)
    return {month: one for month, one in written.items() if one.entries}


def _months(
    connection: duckdb.DuckDBPyConnection, archive: Path, start: int | None, stop: int | None
) -> list[Month]:  # fmt: skip
    """The months in which runs ended, and those between them of which there is a file, that an interval touches."""
    ended: list[Month] = []
    query = 'SELECT min("end") FROM entries'
    while (end := connection.execute(query).fetchall()[0][0]) is not None:
        ended.append(month_of(end))
        query = f'SELECT min("end") FROM entries WHERE "end" >= {month_bounds(ended[-1])[1]}'  # noqa: S608 - a number
    there = months_there(archive) if ended else ()
    return [
        month
        for month in sorted({*ended, *there})
        if ended[0] <= month <= ended[-1]
        and (start is None or month >= month_of(start))
        and (stop is None or month <= month_of(stop - 1))
    ]


def _batches(connection: duckdb.DuckDBPyConnection, month: Month) -> Iterator[Any]:
    """The finished runs that ended in a month, in a fixed order: what did not change gives the same file."""
    names = ", ".join(f'"{name}"' for name in COLUMNS)
    start, stop = month_bounds(month)
    yield from arrow_batches(
        connection,
        f'SELECT {names} FROM entries WHERE "end" >= $start AND "end" < $stop ORDER BY "end", {RUN_ID}',  # noqa: S608
        {"start": start, "stop": stop},
        _ROWS,
    )


def write_month(batches: Iterable[Any], month: Month, archive: Path, *, shrink: bool = False) -> Written:
    """Write record batches with the columns of an archive as a month of it. A month without rows has no file.

    A file with more runs, such as those that the store has purged, is only replaced with `shrink`. Raises
    `PublisherError` if it cannot be written.
    """
    folder = folder_of(archive, month)
    file = folder / FILE
    partial = folder / f"{FILE}.{os.getpid()}{_PARTIAL}"
    try:
        before = _entries(file)
        require_own_folder(folder)
        _remove_left_behind(folder)
        try:
            with new_file(partial, mode=BY_UMASK) as written:
                rows = _write(batches, written)
                seal(partial, written)
            if rows < before and not shrink:
                return Written(before, refused=rows)
            if rows:
                partial.replace(file)
            else:
                file.unlink(missing_ok=True)
        finally:
            partial.unlink(missing_ok=True)
            if not any(folder.iterdir()):
                folder.rmdir()
    except OSError as error:
        raise OutputError(
            f"the archive {folder} cannot be written: {error.strerror or error}",
            hint="Free space there, or name another folder",
        ) from error
    return Written(rows)


def _entries(file: Path) -> int:
    """The number of entries of a month of an archive. Raises `PublisherError` if it is damaged or another file."""
    if not file.exists():
        return 0
    try:
        require_sound(file, ())
        read: Any = pq.read_metadata
        return int(read(file).num_rows)
    except (DamagedParquetError, pa.ArrowInvalid) as error:
        # It may be the only place of what was purged.
        hint = "Restore it from a copy, or move it away and write the archive again"
        raise PublisherError(f"the archive cannot be written: {error}", hint=hint) from error


def _remove_left_behind(folder: Path) -> None:
    """Remove what a run that was killed has left, long ago: another may be writing now."""
    for partial in folder.glob(f"{FILE}.*{_PARTIAL}"):
        with suppress(FileNotFoundError):
            if partial.stat().st_mtime < time() - _DAY_S:
                partial.unlink()


def _write(batches: Iterable[Any], file: BinaryIO) -> int:
    rows = 0
    writer_type: Any = pq.ParquetWriter  # pyarrow has no type hints for it
    with writer_type(file, SCHEMA, compression="zstd", use_dictionary=list(TEXT_COLUMNS)) as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_batches([batch]).cast(SCHEMA), row_group_size=_ROWS)
            rows += batch.num_rows
    return rows
