"""Export and import: all contents of the store as files in a format of the contexts, and back into an empty store.

Each runs in one transaction: an export is one state, and an import is complete or has no effect. Every job is compared
with its digest, every kind with the number of objects written and the sum of their digests, and the store is checked
before the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, exc, insert, select

from formats.identity import digest
from formats.job import Job
from publisher.config.schema import SpoolContext
from publisher.encoded_run import EncodedRun, encode_run, encode_whole, run_key
from publisher.errors import UsageError
from publisher.grid_identity import IDENTITY_FIELDS
from publisher.spool import kinds
from publisher.spool.base import Object, SpoolError
from publisher.spool.content import Summed, write_all
from publisher.spool.context import FILE_FORMATS, SpoolingContext, make_context
from publisher.spool.journal import Journal
from publisher.spool.kinds import EXPORTED, JOBS, REFERENCES, TABLES, VERSIONS, job_of_values, kind_named
from publisher.store import dialect, paging
from publisher.store.admin import engine, integrity
from publisher.store.admin.backup import exclusive
from publisher.store.batches import check_of
from publisher.store.classes import JOINED, Interner, Marked
from publisher.store.database import SCHEMA, Store
from publisher.store.runs import insert_runs, row_of
from publisher.store.schema import batches, metadata, runs, sources, spool_changes, targets, versions

_FORM: Final = "usage-publisher export"
_VERSION: Final = 1
_PAGE: Final = 1000
_DAMAGE: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What values raise that no store exported."""


class Manifest(msgspec.Struct, frozen=True):
    """The description of an export: the note of its folder. `sums`: of the digests of the objects, by kind;
    exports of 1.0, which are of an earlier revision, have none."""

    form: str
    version: int
    format: str
    revision: str
    objects: dict[str, int]
    sums: dict[str, str] = {}


def export(store: Store, folder: Path, form: str) -> Manifest:
    """Write everything to a new or empty folder. The manifest is written last: without it, the export is incomplete.

    Raises `UsageError` for a folder that is not empty, `SpoolError` and `StoreError`.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} is not an empty folder", hint="Export into a new folder")
    try:
        return _export(store, folder, form)
    except SpoolError as error:
        hint = "It is not an export, and can be removed; export again into a new folder, where there is room"
        raise SpoolError(f"the export in {folder} is incomplete: {error.message}", hint=hint) from error


def _export(store: Store, folder: Path, form: str) -> Manifest:
    context = _context(folder, form)
    context.startup()
    with store.read() as connection:
        written = {name: Summed(kinds.all_of(connection, name)) for name in EXPORTED}
        for name, objects in written.items():
            write_all(context, kind_named(name), objects)
    counts = {name: objects.count for name, objects in written.items()}
    sums = {name: f"{objects.sum:x}" for name, objects in written.items()}
    manifest = Manifest(_FORM, _VERSION, form, SCHEMA.head, counts, sums)
    context.note(msgspec.json.format(msgspec.json.encode(manifest)).decode() + "\n")
    context.shutdown()
    return manifest


def _context(folder: Path, form: str) -> SpoolingContext:
    if form not in FILE_FORMATS:
        raise UsageError(f"unknown format {form!r}", hint=f"Known: {', '.join(FILE_FORMATS)}")
    context = make_context(SpoolContext(format=form, path=folder))  # type: ignore[arg-type]
    if isinstance(context, Journal):
        context.once = True
    return context


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an export. Raises `UsageError` for a folder without an export, or an incomplete one."""
    try:
        note = _context(folder, FILE_FORMATS[0]).noted() if folder.is_dir() else None
        manifest = msgspec.json.decode(note or "", type=Manifest)
    except ValueError:  # also of bytes that are not UTF-8
        manifest = None
    if manifest is None or manifest.form != _FORM:
        raise UsageError(
            f"{folder} does not contain a complete export", hint="`usage-publisher store export` makes one"
        )
    for what, its, own in (
        ("in form", manifest.version, _VERSION), ("from a store of version", manifest.revision, SCHEMA.head)
    ):  # fmt: skip
        if its != own:
            raise UsageError(
                f"{folder} was exported {what} {its}; this program imports {own}",
                hint="Import it with the version of the program that exported it",
            )
    return manifest


def import_(store: Store, folder: Path, begin_kind: Callable[[str], None] = lambda _kind: None) -> Manifest:
    """Import an export into an empty store.

    Raises `UsageError` if the store contains anything or a publisher is at work, `SpoolError` if the files are not what
    was exported; then nothing is imported.
    """
    manifest = read_manifest(folder)
    try:
        _import(store, folder, manifest, begin_kind)
    except SpoolError as error:
        hint = "Nothing was imported. Use an undamaged copy of the export, or export again"
        raise SpoolError(f"the export in {folder} cannot be imported: {error.message}", hint=hint) from error
    store.refresh_statistics()
    return manifest


def _import(store: Store, folder: Path, manifest: Manifest, begin_kind: Callable[[str], None]) -> None:
    context = _context(folder, manifest.format)
    with exclusive(store), store.write() as connection:
        for table in metadata.sorted_tables:
            if table is not spool_changes and connection.execute(select(table).limit(1)).first() is not None:
                raise UsageError(
                    f"the store {store.place} is not empty (table {table.name})",
                    hint="Import into a new store; nothing was changed",
                )
        importer = _Importer(connection)
        for name in EXPORTED:
            begin_kind(name)
            objects = Summed(context.read_list(kind_named(name)))
            importer.put(name, objects)
            if objects.count != manifest.objects.get(name, 0):
                raise SpoolError(f"{name}: {manifest.objects.get(name, 0)} were exported, {objects.count} are there")
            # Only here damage shows that leaves the objects possible: another amount, an attribute without its line.
            if f"{objects.sum:x}" != manifest.sums.get(name):
                raise SpoolError(f"{name}: a value, or a key, is not what was exported")
        engine.set_sequences(connection, [table for table in metadata.sorted_tables if "id" in table.c])
        wrong = [
            f"{finding.subject}: {finding.message}" for finding in integrity.check(connection) if finding.level == "red"
        ]
        if wrong:
            raise SpoolError(f"its objects contradict each other: {'; '.join(wrong)}")


class _Importer:
    """Inserts objects into the store, kind by kind; kinds to which others refer come first."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._ids: dict[str, dict[str, int]] = {"source": {}, "target": {}}
        self._interners: dict[str, tuple[Interner, _Join]] = {}

    def put(self, name: str, items: Iterable[Object]) -> None:
        """Insert all objects of a kind. Raises `SpoolError` for values that no store exported."""
        driver: Any = self._connection.dialect.dbapi
        try:
            self._put(name, items)
        except (exc.IntegrityError, exc.DataError, driver.IntegrityError, driver.DataError) as error:
            said = getattr(error, "orig", error)
            raise SpoolError(f"{name}: an object is there twice, or has impossible values: {said}") from error
        except _DAMAGE as error:
            raise SpoolError(f"{name}: {_said(error)}") from error

    def _put(self, name: str, items: Iterable[Object]) -> None:
        for page in paging.chunks(items, _PAGE):
            if name == JOBS.name:
                self._put_jobs(page)
            elif name == VERSIONS.name:
                self._put_versions(page)
            else:
                self._put_rows(name, page)
        for word, table in (("source", sources), ("target", targets)):
            if name == f"{word}s":
                self._ids[word] = {row[0]: row[1] for row in self._connection.execute(select(table.c.name, table.c.id))}

    def _put_rows(self, name: str, page: Sequence[Object]) -> None:
        each = TABLES[name]
        words = {
            "source_id": self._ids["source"],
            "target_id": self._ids["target"],
            "run_id": self._run_ids(item.values["record_id"] for item in page if "record_id" in item.values),
            "state": {word: number for number, word in each.states.items()},
        }
        rows = []
        for item in page:
            row = {}
            for column in kinds.columns_of(each.table):
                name = REFERENCES.get(column.name, column.name)
                value = item.values.get(name)
                if value is not None and column.name in words:
                    value = self._known(words[column.name], name, value, item)
                row[column.name] = value
            if each.table is batches:
                row["row_check"] = check_of(row)
            rows.append(row)
        self._connection.execute(insert(each.table), rows)

    @staticmethod
    def _known(numbers: Mapping[str, int], what: str, name: str, item: Object) -> int:
        if name not in numbers:
            raise SpoolError(f"{item.kind} {item.key}: its {what} {name!r} is not in the export")
        return numbers[name]

    def _run_ids(self, names: Iterable[str]) -> dict[str, int]:
        keys = map(run_key, sorted(set(names)))
        query = select(runs.c.record_id, runs.c.id)
        return {row[0]: row[1] for row in paging.rows_in(self._connection, query, runs.c.record_key, keys)}

    def _put_jobs(self, page: Sequence[Object]) -> None:
        by_source: dict[str, list[tuple[Object, Job]]] = {}
        for item in page:
            by_source.setdefault(item.values.get("source", ""), []).append((item, _job(item)))
        by_key: dict[str, tuple[EncodedRun, int]] = {}
        for source, items in by_source.items():
            interner, join = self._interner(source, items[0][0])
            join.items = [item for item, _ in items]
            classed = interner.classed(self._connection, [encode_run(job) for _, job in items])
            by_key.update((item.key, each) for (item, _), each in zip(items, zip(*classed, strict=True), strict=True))
        run_ids = dialect.allocate_run_ids(self._connection, runs, len(page))
        rows = [
            row_of(*by_key[item.key], run_id, item.values["stored_at"])
            for run_id, item in zip(run_ids, page, strict=True)
        ]
        insert_runs(self._connection, rows)

    def _interner(self, source: str, item: Object) -> tuple[Interner, _Join]:
        if source not in self._interners:
            join = _Join()
            number = self._known(self._ids["source"], "source", source, item)
            self._interners[source] = Interner(number, source, join), join
        return self._interners[source]

    def _put_versions(self, page: Sequence[Object]) -> None:
        run_ids = self._run_ids(item.values["record_id"] for item in page)
        rows = [
            {
                "run_id": self._known(run_ids, "run", item.values["record_id"], item),
                "digest": item.values["digest"],
                "stored_at": item.values["stored_at"],
                "job": encode_whole(_job(item)),
            }
            for item in page
        ]
        self._connection.execute(insert(versions), rows)


class _Join:
    """The exported values of the grid log for the current jobs."""

    def __init__(self) -> None:
        self.items: Sequence[Object] = ()

    def __call__(self, _connection: Connection, jobs: Sequence[Job]) -> list[Marked]:
        return [_marked(job, item.values) for job, item in zip(jobs, self.items, strict=True)]


def _marked(job: Job, values: Mapping[str, Any]) -> Marked:
    mark = values.get("grid_log")
    if mark != JOINED:
        return job, mark
    marked = {name: value for name in IDENTITY_FIELDS if (value := values.get(f"grid_{name}")) not in (None, ())}
    return msgspec.structs.replace(job, **marked), mark


def _job(item: Object) -> Job:
    """The job of an object. Raises `SpoolError` if it is not the job that was exported."""
    try:
        job = job_of_values(item.values)
        mark = digest(job)
    except _DAMAGE as error:
        raise SpoolError(f"{item.kind} {item.key}: it is not a job: {_said(error)}") from error
    if mark != item.values.get("digest"):
        raise SpoolError(f"{item.kind} {item.key}: it is not what was exported: its digest differs")
    return job


def _said(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
