"""Runs as the DuckDB relation `entries`: one row a run, from the columns of a store or from an archive.

The columns are those of an archive (`publisher.report.archive.COLUMNS`), with the id of the run in the store, which
archives do not have. What the configuration adds is joined by class. The connection reads these files alone: no other
file, no network, no extension; its memory is bounded, and what it spills is private.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from formats.calendar import Month, month_of
from publisher.collect.enrich import Enrichers
from publisher.config.schema import Config
from publisher.errors import StoreCorruptError, UsageError
from publisher.report.archive import COLUMNS, LATER, NUMBERS, months_about, months_in
from publisher.report.column_files import (
    CLASS_ID,
    OF_CLASS,
    PART_ID,
    PART_SCHEMA,
    RUN_ID,
    ClassFile,
    ColumnFolder,
    ColumnManifest,
    ColumnPart,
    ForeignColumnsError,
)
from publisher.report.column_place import column_place
from publisher.report.column_update import Advanced, ids_of, running_table, up_to_date
from publisher.report.parquet_checks import DamagedParquetError, require_sound
from publisher.report.temporary_files import MOST_SPILLED, is_of_room, spilling, temporary_folder
from publisher.store.classes import JobClass, classes_after, source_names
from publisher.store.database import Store
from publisher.store.file_owner import is_foreign, owner_of

ENTRIES: Final = (*COLUMNS, RUN_ID)
"""The columns of `entries`."""
STREAMING_MB, GROUPING_MB, EACH_JOB_MB, _FOUND_JOBS_MB = 30, 56, 80, 160
"""The least of DuckDB's buffers for three million runs: for what passes them on, what groups them, what shows or sorts
them all, and what has the ids of jobs that match a pattern, which may be most. What DuckDB keeps beside its buffers,
and the libraries, take up to 235 MiB more."""
AGAIN_MB: Final = 500
"""For what failed with less. Little is enough for millions of common runs, but not where many have a thousand hosts."""
_MOST_MB: Final = 1000
_THREE_MILLION_BYTES: Final = 240_000_000
"""The files of three million runs. Larger ones get more buffers: groups of ten million jobs do not fit into what is
enough for three million."""
_THREADS: Final = 1
"""Each thread has buffers of its own: with two, what sorts three million runs needs more than the limit, and fails."""
_CLASS_SCHEMA: Final = pa.schema(
    [(CLASS_ID, pa.int64()), *((name, pa.string()) for name in OF_CLASS), ("prefix", pa.string())]
)


def column_folder(store: Store, config: Config) -> ColumnFolder | None:
    """The folder of the columns of a store: see `column_place`."""
    place = column_place(store, config)
    owner = owner_of(store.file) if store.file is not None and is_foreign(store.file) else None
    return None if place is None else ColumnFolder(place, owner)


class EntryReading(msgspec.Struct, frozen=True):
    """What is read of the runs, and with how much memory."""

    columns: Collection[str] = ENTRIES
    """The columns of `entries`."""
    start: int | None = None
    stop: int | None = None
    """Runs that ended before `start`, or at `stop` or later, will not be looked at."""
    running_until: int | None = None
    """With the runs that have not ended, up to then; archives do not have them."""
    buffers_mb: int = GROUPING_MB
    """The least of DuckDB's buffers."""
    temporary: str | None = None
    """The folder for what is spilled; None: one of the connection's own."""

    def selecting(self, filters: Collection[str]) -> EntryReading:
        """The same with memory for these filters."""
        return msgspec.structs.replace(self, buffers_mb=_FOUND_JOBS_MB) if "job" in filters else self


_ALL: Final = EntryReading()
OpenTables = Callable[[], AbstractContextManager[duckdb.DuckDBPyConnection]]
"""Opens a connection with `entries`."""


@contextmanager
def tables_of_store(
    store: Store, config: Config, reading: EntryReading = _ALL, advanced: Advanced = lambda _done, _total: None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with `entries` as of now: see `current_tables`."""
    with current_tables(store, config, reading, advanced) as opened, opened() as connection:
        yield connection


@contextmanager
def current_tables(
    store: Store, config: Config, reading: EntryReading, advanced: Advanced = lambda _done, _total: None
) -> Iterator[OpenTables]:
    """Opens `entries` as of now; brings the columns up to date before, and opens nothing of DuckDB itself, so that a
    child process can. Raises `StoreError` and its kinds.
    """
    start, stop, until = reading.start, reading.stop, reading.running_until
    with ExitStack() as stack:
        folder = column_folder(store, config)
        if folder is None:
            private = stack.enter_context(temporary_folder("usage-publisher-columns-"))
            folder = ColumnFolder(Path(private), temporary=True)
        state = _CurrentColumns(folder, reading)
        with folder.updating(), store.read() as connection:
            manifest = state.brought(connection, config, advanced)
            running = None if until is None else running_table(connection, until)
            stack.enter_context(folder.reading())
        for run in manifest.damaged:
            if (start is None or run.end >= start) and (stop is None or run.end < stop):
                raise StoreCorruptError(run.problem, hint="`usage-publisher store check` says what to do")
        parts = [part for part in manifest.parts if part.touches(start, stop)]
        yield partial(_connected, folder, parts, state.classes, running, reading)


def bring_up_to_date(store: Store, config: Config) -> None:
    """Bring the columns up to date: nothing that was erased is in them any more."""
    folder = column_folder(store, config)
    if folder is not None:
        with folder.updating(), store.read() as connection:
            _CurrentColumns(folder, EntryReading(())).brought(connection, config, lambda _done, _total: None)


class _CurrentColumns:
    """ColumnManifest and classes, made true."""

    def __init__(self, folder: ColumnFolder, reading: EntryReading) -> None:
        self._folder = folder
        self._reading = reading
        self.classes: Any = None

    def brought(self, connection: Connection, config: Config, advanced: Advanced) -> ColumnManifest:
        """The manifest; `classes` is the table of the classes."""
        try:
            return self._made(connection, config, advanced, self._folder.manifest())
        except ForeignColumnsError:
            return self._made(connection, config, advanced, None)

    def _made(
        self, connection: Connection, config: Config, advanced: Advanced, known: ColumnManifest | None
    ) -> ColumnManifest:
        manifest = up_to_date(self._folder, connection, known, advanced)
        parts = [part for part in manifest.parts if part.touches(self._reading.start, self._reading.stop)]
        columns = [*self._reading.columns, CLASS_ID, RUN_ID, PART_ID, "end"]
        self._folder.require_sound(parts, dict.fromkeys(name for name in columns if name in PART_SCHEMA.names))
        file, self.classes = _classes(self._folder, connection, config, manifest.classes)
        if file != manifest.classes:
            manifest = msgspec.structs.replace(manifest, classes=file)
            self._folder.replace(manifest)
            self._folder.tidy(manifest)
        return manifest


def _classes(
    folder: ColumnFolder, connection: Connection, config: Config, known: ClassFile | None
) -> tuple[ClassFile, Any]:
    """The classes with what the configuration adds: those that are new are added to the file, if nothing else is."""
    names = source_names(connection)
    rules = config.model_dump(include={"site", "sources", "map"})  # what `Enrichers` and prefixes are made from
    digest = blake2b(f"{sorted(names.items())} {rules!r}".encode(), digest_size=16).digest()
    table = _CLASS_SCHEMA.empty_table()
    if known is not None and known.config == digest:
        with suppress(ForeignColumnsError):
            table = folder.classes(known)
    last = table.column(CLASS_ID)[-1].as_py() if table.num_rows else 0
    more = list(classes_after(connection, last))
    if known is not None and known.config == digest and not more and last == known.last_id:
        return known, table
    table = pa.concat_tables([table, _resolved(more, config)])
    last = table.column(CLASS_ID)[-1].as_py() if table.num_rows else 0
    return folder.write_classes(table, digest, last), table


def _resolved(classes: Sequence[JobClass], config: Config) -> Any:
    enrichers = Enrichers(config)
    rows = []
    for job_class in classes:
        facts = enrichers.apply(job_class.source, job_class.facts)
        rows.append(
            {
                CLASS_ID: job_class.id, "source": _text(job_class.source), "vo": _text(facts.vo),
                "dn": _text(facts.user_dn), "prefix": _text(config.local_id_prefixes.get(job_class.source, "")),
            }
        )  # fmt: skip
    return pa.Table.from_pylist(rows, _CLASS_SCHEMA)


def _text(value: str | None) -> str | None:
    return value.encode("utf-8", "backslashreplace").decode() if value else None


@contextmanager
def _connected(
    folder: ColumnFolder, parts: Sequence[ColumnPart], classes: Any, running: Any, reading: EntryReading
) -> Iterator[duckdb.DuckDBPyConnection]:
    paths = {part.number: str(folder.path / part.file) for part in parts}
    tables_bytes = sum(table.nbytes for table in (classes, running) if table is not None)
    with _bounded([*paths.values()], reading, tables_bytes) as connection:
        names = [name for name in PART_SCHEMA.names if name != PART_ID]
        own = ", ".join(f'"{name}"' for name in names)
        sources = []
        clean = [paths[part.number] for part in parts if not part.dead_rows]
        dirty = [part for part in parts if part.dead_rows]
        if clean:
            sources.append(f"SELECT {own} FROM read_parquet({_list(clean)})")  # noqa: S608 - names of ours
        if dirty:
            dead = [ids_of(part.dead) for part in dirty]
            numbers = np.repeat(np.array([part.number for part in dirty], np.int32), [len(ids) for ids in dead])
            fill(connection, "dead", pa.table({PART_ID: numbers, RUN_ID: np.concatenate(dead)}))
            files = [paths[part.number] for part in dirty]
            sources.append(
                f"SELECT {own} FROM read_parquet({_list(files)}) AS one "  # noqa: S608 - as above
                f"ANTI JOIN dead ON one.{PART_ID} = dead.{PART_ID} AND one.{RUN_ID} = dead.{RUN_ID}"
            )
        if running is not None:
            fill(connection, "running", running, columns=own)
            sources.append(f"SELECT {own} FROM running")  # noqa: S608 - as above
        if not sources:
            fill(connection, "nothing", PART_SCHEMA.empty_table())
            sources.append(f"SELECT {own} FROM nothing")  # noqa: S608 - as above
        fill(connection, "classes", classes)
        connection.execute(_entries(" UNION ALL ".join(sources), classes, reading.columns))
        _lock(connection)
        yield connection


def _entries(runs: str, classes: Any, columns: Collection[str]) -> str:
    """The view `entries`. Without need, classes are not joined."""
    has = {name: classes.column(name).null_count < classes.num_rows for name in (*OF_CLASS, "prefix")}
    words: dict[str, str] = {name: f'runs."{name}"' for name in ENTRIES if name not in OF_CLASS}
    words |= {name: f'classes."{name}"' for name in OF_CLASS}
    if has["dn"]:
        words["user"] = 'coalesce(runs."user", classes.dn)'
    if has["prefix"]:
        words["local_id"] = "coalesce(classes.prefix, '') || nullif(runs.local_id, '')"
    selected = [f'{words[name]} AS "{name}"' for name in ENTRIES if name in columns]
    joined = any("classes." in words[name] for name in ENTRIES if name in columns)
    join = f"JOIN classes ON runs.{CLASS_ID} = classes.{CLASS_ID}" if joined else ""
    return f"CREATE VIEW entries AS SELECT {', '.join(selected)} FROM ({runs}) AS runs {join}"  # noqa: S608 - as above


@contextmanager
def tables_of_archive(
    archive: Path, reading: EntryReading = _ALL, *, only: Month | None = None
) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection with `entries` of an archive; `only`: those that ended in this month. Raises `UsageError` if it is
    not one.
    """
    months = months_in(archive) if reading.start is None else months_about(archive, reading.start)
    last = None if reading.stop is None else month_of(reading.stop - 1)
    files = [str(path) for month, path in months.items() if (last is None or month <= last) and only in {None, month}]
    with _bounded(files, reading) as connection, archive_errors(archive):
        there = set()
        if files:
            named = connection.execute("SELECT DISTINCT name FROM parquet_schema($files)", {"files": files}).fetchall()
            there = {row[0] for row in named}
        selected = [
            f'"{name}"' if name in there else f'CAST(NULL AS {_type(name)}) AS "{name}"'
            for name in ENTRIES
            if name in reading.columns
        ]
        missing = set(COLUMNS) - there - LATER
        if missing and files:
            raise duckdb.Error(f"it lacks the column {min(missing)}")
        for file in files:
            try:
                require_sound(Path(file), reading.columns)
            except OSError as error:  # a disk that fails
                raise duckdb.IOException(str(error)) from error
        read = f"read_parquet({_list(files)}, union_by_name = true)" if files else "(SELECT 1) WHERE false"
        connection.execute(f"CREATE VIEW entries AS SELECT {', '.join(selected)} FROM {read}")  # noqa: S608 - as above
        _lock(connection)
        yield connection


def fill(
    connection: duckdb.DuckDBPyConnection, table: str, arrow: Any, *, columns: str = "*", temporary: bool = False
) -> None:
    """Make a table of DuckDB of one of Arrow, or of batches of Arrow. `columns`: the SQL of those that it gets."""
    kind = "TEMP TABLE" if temporary else "TABLE"
    connection.register("filled", arrow)
    connection.execute(f"CREATE {kind} {table} AS SELECT {columns} FROM filled")  # noqa: S608 - names of ours
    connection.unregister("filled")


def arrow_batches(
    connection: duckdb.DuckDBPyConnection, query: str, given: Mapping[str, Any], rows: int
) -> Iterator[Any]:
    """The result of a query as record batches of at most so many rows. Raises the errors of DuckDB."""
    result: Any = connection.execute(query, dict(given))
    # DuckDB before 1.4 has only the older name.
    read = getattr(result, "to_arrow_reader", None) or result.fetch_record_batch
    try:
        yield from read(rows)
    except OSError as error:  # pyarrow's, for one of DuckDB
        text = str(error)
        raise (duckdb.OutOfMemoryException if text.startswith("Out of Memory") else duckdb.IOException)(text) from error


@contextmanager
def archive_errors(archive: Path) -> Iterator[None]:
    """Raise `UsageError` for an archive that is damaged, or that DuckDB cannot read."""
    try:
        yield
    except (duckdb.Error, DamagedParquetError) as error:
        if isinstance(error, duckdb.Error) and is_of_room(error):
            raise
        raise UsageError(
            f"the archive {archive} cannot be read: {str(error).splitlines()[0]}",
            hint=f"Restore it from a copy, or move it away and write it again with `usage-publisher archive {archive}`",
        ) from error


def _type(name: str) -> str:
    return "BIGINT" if name in NUMBERS or name == RUN_ID else "VARCHAR"


def memory_mb(files: Sequence[str], least_mb: int = GROUPING_MB, tables_bytes: int = 0) -> int:
    """The limit of DuckDB's buffers for a report over these files, in megabytes, if it needs at least so many.

    `tables_bytes`: of tables that are in the buffers too. Where nearly each run has a class of its own, their table
    leaves too little for what joins and sorts.
    """
    size_bytes = 0
    for file in files:
        with suppress(OSError):  # what is wrong with it is said by what reads it
            size_bytes += Path(file).stat().st_size
    needed_mb = least_mb * max(size_bytes, _THREE_MILLION_BYTES) // _THREE_MILLION_BYTES
    return min(needed_mb + tables_bytes // 1_000_000, _MOST_MB)


@contextmanager
def _bounded(files: Sequence[str], reading: EntryReading, tables_bytes: int = 0) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that can read these files, until `_lock` nothing keeps it from others. `tables_bytes`: see
    `memory_mb`.
    """
    with (
        temporary_folder() if reading.temporary is None else nullcontext(reading.temporary) as private,
        duckdb.connect(":memory:") as connection,
    ):
        for setting, value in (
            ("memory_limit", f"'{memory_mb(files, reading.buffers_mb, tables_bytes)}MB'"),
            ("threads", str(_THREADS)),
            ("enable_external_file_cache", "false"),  # each file is read once
            ("TimeZone", "'UTC'"),  # else that of the host, for now() and what has a time zone
            ("enable_progress_bar", "false"),
            ("temp_directory", f"'{private}'"),
            ("max_temp_directory_size", f"'{MOST_SPILLED}'"),
            ("autoinstall_known_extensions", "false"),
            ("autoload_known_extensions", "false"),
            ("allowed_paths", _list(files)),
        ):
            with suppress(duckdb.CatalogException):  # an older version does not have it
                connection.execute(f"SET {setting} = {value}")
        with spilling(private):
            yield connection


def _list(paths: Sequence[str]) -> str:
    return "[" + ", ".join("'" + path.replace("'", "''") + "'" for path in paths) + "]"


def _lock(connection: duckdb.DuckDBPyConnection) -> None:
    """Nothing but the allowed files can be read from now on, and no setting changed."""
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
