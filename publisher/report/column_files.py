"""The files of the columns: a private folder with Parquet parts, a manifest that names them, and two locks.

A part is written whole, synced, and never changed. The manifest is replaced atomically. It has the mark of the store up
to which the parts are true, a check number of each, which decides on those of its columns, and one of itself. What it
does not name is not read, and is removed as soon as nobody can be reading it. The folder may be deleted at any time.

Who brings the columns up to date holds `update.lock`. Who reads holds `read.lock` shared, from before the former is
released until the last file is read; files are removed under both.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from publisher.errors import PublisherError, StoreError, StoreFullError
from publisher.report.archive import COLUMNS, TYPES
from publisher.report.parquet_checks import DamagedParquetError, require_sound, seal
from publisher.report.temporary_files import not_written
from publisher.store.changes import NOTHING, ChangeMark
from publisher.whole_file import new_file, require_own_folder, sync, write_whole

VERSION: Final = 6
_MANIFEST: Final = "manifest"
_CHECK_BYTES: Final = 4
_MODE: Final = 0o600
ROW_GROUP: Final = 131_072
"""Rows: as many as DuckDB gives to one thread."""
OF_CLASS: Final = ("source", "vo", "dn")
"""Columns of words that the runs of a class share."""
OWN: Final = tuple(name for name in COLUMNS if name not in OF_CLASS)
"""Columns that parts have as `publisher.report.archive` describes them: `user` without the name of the
class, `local_id` without the prefix of the source."""
RUN_ID, CLASS_ID, PART_ID = "run_id", "class_id", "part"
PART_SCHEMA: Final = pa.schema(
    [
        *((name, TYPES[name]) for name in OWN),
        (RUN_ID, pa.int64()),
        (CLASS_ID, pa.int64()),
        (PART_ID, pa.int32()),
    ]
)


class ColumnPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part: `rows` in the file, of runs with these first and last ends and ids.

    `dead`: the ids of rows that no longer count, packed; `check`: see `publisher.report.parquet_checks.seal`.
    """

    number: int
    file: str
    size_bytes: int
    rows: int
    first_end: int
    last_end: int
    first_id: int
    last_id: int
    dead_rows: int
    dead: bytes
    check: int

    @property
    def live_rows(self) -> int:
        """The rows that count."""
        return self.rows - self.dead_rows

    def touches(self, start: int | None, stop: int | None) -> bool:
        """Whether a run of it may have ended from `start` until `stop` (exclusive); None is open."""
        return (start is None or self.last_end >= start) and (stop is None or self.first_end < stop)


class ClassFile(msgspec.Struct, frozen=True):
    """The file of the classes: what the configuration with this digest makes of those up to an id."""

    file: str
    config: bytes
    last_id: int
    check: int


class UnreadableRun(msgspec.Struct, frozen=True):
    """A stored run that cannot be read: reports of the time of its end fail."""

    run_id: int
    end: int
    problem: str


class ColumnManifest(msgspec.Struct, frozen=True, kw_only=True):
    """What the columns are: true up to `mark`."""

    version: int = VERSION
    mark: ChangeMark = NOTHING
    next_part: int = 1
    parts: tuple[ColumnPart, ...] = ()
    classes: ClassFile | None = None
    damaged: tuple[UnreadableRun, ...] = ()

    @property
    def files(self) -> set[str]:
        """The names of the files that it needs."""
        return {part.file for part in self.parts} | ({self.classes.file} if self.classes is not None else set())


class ForeignColumnsError(Exception):
    """A file is not what was written: the columns are made anew."""


class ColumnFolder:
    """The folder of the columns of a store. `owner`: of what root makes there; None: root himself. `temporary`: of one
    report."""

    def __init__(self, path: Path, owner: int | None = None, *, temporary: bool = False) -> None:
        self.path = path
        self._owner = owner
        self._temporary = temporary

    # --- locks

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Wait until nobody else brings the columns up to date. Raises `StoreError` and its kinds."""
        try:
            require_own_folder(self.path)
            self._give(self.path)
        except OSError as error:
            raise self._unusable(error) from error
        with self._locked("update.lock", fcntl.LOCK_EX):
            yield

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Nothing that the present manifest names is removed meanwhile. Entered while `updating`."""
        with self._locked("read.lock", fcntl.LOCK_SH):
            yield

    @contextmanager
    def _locked(self, name: str, kind: int) -> Iterator[bool]:
        path = self.path / name
        try:
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise self._unusable(error) from error
        try:
            self._give(path)
            try:
                fcntl.flock(descriptor, kind)
            except BlockingIOError:
                yield False
            else:
                yield True
        finally:
            os.close(descriptor)

    # --- the manifest

    def manifest(self) -> ColumnManifest | None:
        """The manifest; None if there is none that can be believed."""
        try:
            content = (self.path / _MANIFEST).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._unusable(error) from error
        check, body = content[:_CHECK_BYTES], content[_CHECK_BYTES:]
        if crc32(body).to_bytes(_CHECK_BYTES, "big") != check:
            return None
        try:
            manifest = msgspec.msgpack.decode(body, type=ColumnManifest)
        except msgspec.DecodeError:
            return None
        # The columns are derived: making them anew is always right, and believing another layout is not.
        return manifest if manifest.version == VERSION else None

    def replace(self, manifest: ColumnManifest) -> None:
        """Write the manifest; from then on it counts. Raises `StoreError` and its kinds."""
        body = msgspec.msgpack.encode(manifest)
        try:
            write_whole(self.path / _MANIFEST, crc32(body).to_bytes(_CHECK_BYTES, "big") + body, mode=_MODE)
            self._give(self.path / _MANIFEST)
            # Before parts are removed: after a power failure, the earlier manifest would name files that are gone.
            sync(self.path)
        except OSError as error:
            raise self._unusable(error) from error

    def tidy(self, manifest: ColumnManifest, *, wait: bool = False) -> None:
        """Remove what a manifest does not name, once nobody reads it; `wait` for them. Called while `updating`."""
        needed = {*manifest.files, _MANIFEST, "update.lock", "read.lock"}
        try:
            needless = [path for path in self.path.iterdir() if path.name not in needed]
            if needless:
                with self._locked("read.lock", fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB)) as alone:
                    for path in needless if alone else ():
                        if path.is_dir() and not path.is_symlink():
                            shutil.rmtree(path)
                        else:
                            path.unlink(missing_ok=True)
        except OSError as error:
            raise self._unusable(error) from error

    # --- parts

    def write_part(self, number: int, tables: Iterable[Any]) -> ColumnPart | None:
        """Write tables of `PART_SCHEMA` as a part; None if they have no rows. Raises `StoreError` and its kinds."""
        name = f"{number:08d}-{secrets.token_hex(4)}.parquet"
        rows = 0
        ends: list[int] = []
        ids: list[int] = []
        path = self.path / name
        with self._new_file(name) as file:
            writer_type: Any = pq.ParquetWriter  # pyarrow has no type hints for it
            words = [name for name in PART_SCHEMA.names if pa.types.is_dictionary(PART_SCHEMA.field(name).type)]
            with writer_type(file, PART_SCHEMA, compression="zstd", use_dictionary=[*words, PART_ID]) as writer:
                for table in tables:
                    if table.num_rows:
                        place = PART_SCHEMA.get_field_index(PART_ID)
                        numbered = pa.array([number], pa.int32()).take(pa.array([0] * table.num_rows))
                        writer.write_table(table.set_column(place, PART_ID, numbered), row_group_size=ROW_GROUP)
                        rows += table.num_rows
                        for bounds, column in ((ends, "end"), (ids, RUN_ID)):
                            bounds.extend(_bounds(table.column(column)))
            check = seal(path, file)
        if not rows:
            self.remove(name)
            return None
        return ColumnPart(
            number=number, file=name, size_bytes=path.stat().st_size, rows=rows,
            first_end=min(ends), last_end=max(ends), first_id=min(ids), last_id=max(ids),
            dead_rows=0, dead=bytes(_CHECK_BYTES), check=check,
        )  # fmt: skip

    def write_classes(self, table: Any, config: bytes, last_id: int) -> ClassFile:
        """Write the table of the classes."""
        name = f"classes-{secrets.token_hex(4)}.parquet"
        with self._new_file(name) as file:
            write: Any = pq.write_table
            write(table, file, compression="zstd")
        return ClassFile(name, config, last_id, crc32((self.path / name).read_bytes()))

    def classes(self, file: ClassFile) -> Any:
        """The table of the classes. Raises `ForeignColumnsError`."""
        try:
            content = (self.path / file.file).read_bytes()
        except OSError as error:
            raise ForeignColumnsError from error
        if crc32(content) != file.check:
            raise ForeignColumnsError
        read: Any = pq.read_table
        return read(pa.BufferReader(content))

    def remove(self, name: str) -> None:
        """Remove a file that no manifest names."""
        with suppress(OSError):
            (self.path / name).unlink()

    def require_sound(self, parts: Sequence[ColumnPart], columns: Iterable[str]) -> None:
        """Compare these columns of parts with their check numbers. Raises `ForeignColumnsError`."""
        names = [*columns]
        for part in parts:
            try:
                require_sound(self.path / part.file, names, part.check)
            except (DamagedParquetError, OSError) as error:
                raise ForeignColumnsError from error

    def read_part(self, part: ColumnPart, columns: Sequence[str]) -> Any:
        """A table of these columns. Raises `ForeignColumnsError`."""
        self.require_sound([part], columns)
        file_type: Any = pq.ParquetFile
        with file_type(self.path / part.file) as file:
            return file.read(columns=list(columns), use_threads=False)

    @contextmanager
    def _new_file(self, name: str) -> Iterator[Any]:
        """See `new_file`; nothing names it yet. Raises `StoreError` and its kinds."""
        path = self.path / name
        try:
            with new_file(path, mode=_MODE) as file:
                self._give(path)
                yield file
        except OSError as error:
            raise self._unusable(error) from error

    def _give(self, path: Path) -> None:
        if self._owner is not None and path.stat().st_uid != self._owner:
            os.chown(path, self._owner, -1, follow_symlinks=False)

    def _unusable(self, error: OSError) -> PublisherError:
        if self._temporary:
            return not_written(self.path, error)
        kind = StoreFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else StoreError
        return kind(
            f"the columns in {self.path}, from which reports are made, cannot be written: {error.strerror or error}",
            hint="Check owner, mode and space of the folder. It may be removed: the next report makes it anew",
        )


def _bounds(column: Any) -> list[int]:
    import pyarrow.compute as pc  # noqa: PLC0415 - it has no type hints

    compute: Any = pc
    least_and_most = compute.min_max(column).as_py()
    return [least_and_most["min"], least_and_most["max"]]
