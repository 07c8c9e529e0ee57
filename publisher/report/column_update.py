"""Bringing the columns up to date with the store, in time proportional to what changed since.

Of each run that was written, reclassed, or removed, the row that is there is marked dead, and the present run, if there
is one, is added to a new part. Small parts are merged, and parts with many dead rows are written again, so that each
row is written a few times in its life. Where anything was erased, no dead row stays in any part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, select

from publisher.config.schema import SOURCE_KINDS
from publisher.errors import StoreCorruptError
from publisher.report.column_files import (
    PART_SCHEMA,
    RUN_ID,
    ColumnFolder,
    ColumnManifest,
    ColumnPart,
    UnreadableRun,
)
from publisher.report.columns import SlimDecoder, batch_of
from publisher.store import changes, energies, paging
from publisher.store.changes import ChangesLostError, ChangesSince, Ranges
from publisher.store.report_queries import (
    Rows,
    count_runs,
    has_source_of,
    rows_of_ids,
    rows_of_ranges,
    running_runs,
    stored_runs,
)
from publisher.store.schema import runs as runs_table

_PAGE: Final = 4_000
_BUFFERED: Final = 262_144
"""Rows in memory while columns are made: some hundred bytes each."""
_BUFFERED_BYTES: Final = 256 << 20
"""Their most bytes: a run on thousands of hosts has a hundred kilobytes."""
_FLUSHED: Final = 65_536
"""A month with so many rows in memory becomes a part."""
FULL: Final = 262_144
"""A part with so many rows is not merged any more."""
# With fewer, each row would be written more often; with more, each report would open many small files.
_MOST_ALIKE: Final = 8
"""So many parts of one month and of similar sizes become one."""
# Reports read dead rows and pass over them: with a larger part they slow down, with a smaller one every change would
# write its whole part again.
_MOST_DEAD: Final = 0.2
_FEW_DEAD: Final = 1_000
_RANGE: Final = 200
"""Ranges of so many ids are read as ranges."""
Advanced = Callable[[int, int | None], None]
"""Called with how many runs were read, and how many there are."""


class BatchReader:
    """Reads stored runs as record batches of `PART_SCHEMA`, in one transaction. `damaged`: the runs that cannot be."""

    def __init__(self, connection: Connection) -> None:
        kinds = [each.name for each in SOURCE_KINDS.values() if each.keeps_slaves]
        self._connection = connection
        self._metered = energies.are_used(connection)
        self._decoder = SlimDecoder(with_slaves=any(has_source_of(connection, kind) for kind in kinds))
        self.damaged: list[UnreadableRun] = []

    def batches(self, pages: Iterable[Rows], now: int | None = None) -> Iterator[Any]:
        """The batches of these pages; with `now`, of runs that are still running."""
        for page in pages:
            self._decoder.learn(self._connection, page)
            yield from (batch for batch in self._batches_of(page, now) if batch.num_rows)

    def _batches_of(self, page: Rows, now: int | None) -> Iterator[Any]:
        try:
            yield self._batch(page, now)
        except StoreCorruptError:
            for row in page:
                try:
                    yield self._batch([row], now)
                except StoreCorruptError as error:
                    query = select(runs_table.c.end_time).where(runs_table.c.id == row[0])
                    end = self._connection.execute(query).scalar()
                    self.damaged.append(UnreadableRun(row[0], end if isinstance(end, int) else 1 << 62, error.message))

    def _batch(self, page: Rows, now: int | None) -> Any:
        metered = energies.of_runs(self._connection, [row[0] for row in page] if self._metered else ())
        return batch_of(self._decoder.decoded(page), [(run_id, class_id) for run_id, class_id, _ in page], now, metered)


def running_table(connection: Connection, now: int) -> Any:
    """The runs that have not ended, as rows of a part, up to now. Raises `StoreCorruptError`."""
    reader = BatchReader(connection)
    rows = running_runs(connection)
    pages = (rows[place : place + _PAGE] for place in range(0, len(rows), _PAGE))
    table = pa.Table.from_batches(list(reader.batches(pages, now)), PART_SCHEMA)
    if reader.damaged:
        raise StoreCorruptError(reader.damaged[0].problem)
    return table


def up_to_date(
    folder: ColumnFolder, connection: Connection, manifest: ColumnManifest | None, advanced: Advanced,
    buffered_bytes: int = _BUFFERED_BYTES,
) -> ColumnManifest:  # fmt: skip
    """The manifest of columns that are true for the state that this transaction reads. Called while `updating`.

    `buffered_bytes`: the most of the rows in memory.

    Raises `StoreError` and its kinds, and `ForeignColumnsError`: then the columns are to be made from nothing.
    """
    mark = changes.mark_of(connection)
    if manifest is not None and manifest.mark == mark:
        folder.tidy(manifest)  # of a process that was killed before it did, or that did not wait for readers
        return manifest
    before, changed = ColumnManifest(), None
    if manifest is not None:
        try:
            changed = changes.since(connection, manifest.mark)
            before = manifest
        except ChangesLostError:
            pass  # of another store, or too long ago
    update = _ColumnUpdate(folder, connection, before, advanced, buffered_bytes)
    try:
        if changed is None:
            update.add(stored_runs(connection, _PAGE), count_runs(connection))
        else:
            update.follow(changed)
        update.merge(erased=changed is not None and changed.erased)
        made = update.manifest(mark, classes=None if changed is None or changed.classes else before.classes)
        folder.replace(made)
    except BaseException:
        for part in update.written:
            folder.remove(part.file)
        raise
    folder.tidy(made, wait=changed is None or changed.erased)  # what is made anew may follow what was erased
    return made


class _ColumnUpdate:
    """The parts while they are brought up to date. `written`: new files, which nothing names yet."""

    def __init__(
        self, folder: ColumnFolder, connection: Connection, known: ColumnManifest, advanced: Advanced,
        buffered_bytes: int,
    ) -> None:  # fmt: skip
        self._buffered_bytes = buffered_bytes
        self._folder = folder
        self._connection = connection
        self._reader = BatchReader(connection)
        self._advanced = advanced
        self._next = known.next_part
        self._parts = list(known.parts)
        self._damaged = {run.run_id: run for run in known.damaged}
        self.written: list[ColumnPart] = []

    def manifest(self, mark: changes.ChangeMark, classes: Any) -> ColumnManifest:
        """The manifest of the parts as they are now."""
        damaged = self._damaged | {run.run_id: run for run in self._reader.damaged}
        return ColumnManifest(
            mark=mark, next_part=self._next, parts=tuple(self._parts), classes=classes, damaged=tuple(damaged.values())
        )

    def follow(self, changed: ChangesSince) -> None:
        """Take over what changed."""
        self._kill(changed.runs)
        for run_id in [number for number in self._damaged if _within(np.array([number]), changed.runs)[0]]:
            del self._damaged[run_id]
        self.add(_pages_of(self._connection, changed.runs), sum(stop - first for first, stop in changed.runs))

    def add(self, pages: Iterable[Rows], total: int) -> None:
        """Add the runs of these pages, at most `total`, as new parts."""
        done = 0
        by_month: defaultdict[int, list[Any]] = defaultdict(list)
        rows: defaultdict[int, int] = defaultdict(int)
        size_bytes: defaultdict[int, int] = defaultdict(int)
        for batch in self._reader.batches(pages):
            for month, some in _by_month(batch):
                by_month[month].append(some)
                rows[month] += some.num_rows
                size_bytes[month] += batch.nbytes * some.num_rows // batch.num_rows
            done += batch.num_rows
            self._advanced(done, total)
            if sum(rows.values()) >= _BUFFERED or sum(size_bytes.values()) >= self._buffered_bytes:
                large = [month for month in rows if rows[month] >= _FLUSHED]
                for month in large or [max(size_bytes, key=size_bytes.__getitem__)]:
                    del rows[month], size_bytes[month]
                    self._write(_table(by_month.pop(month)))
        if sum(rows.values()) < _FLUSHED:  # a few rows of many months are one part
            self._write(_table([batch for month in sorted(by_month) for batch in by_month[month]]))
        else:
            for month in sorted(by_month):
                self._write(_table(by_month[month]))

    def _write(self, *tables: Any) -> None:
        part = self._folder.write_part(self._next, tables)
        if part is not None:
            self._next += 1
            self.written.append(part)
            self._parts.append(part)

    def _kill(self, ranges: Ranges) -> None:
        if not ranges:
            return
        for place, part in enumerate(self._parts):
            if any(first <= part.last_id and stop > part.first_id for first, stop in ranges):
                ids = self._folder.read_part(part, [RUN_ID]).column(RUN_ID).to_numpy()
                dead = np.union1d(ids[_within(ids, ranges)], ids_of(part.dead))
                if len(dead) > part.dead_rows:
                    self._parts[place] = msgspec.structs.replace(
                        part, dead=changes.pack(dead.tolist()), dead_rows=len(dead)
                    )
        self._parts = [part for part in self._parts if part.live_rows]

    def merge(self, *, erased: bool) -> None:
        """Join small parts, and write those with many dead rows again; all that have any if something was erased."""
        for part in list(self._parts):
            many = part.dead_rows > max(_FEW_DEAD, _MOST_DEAD * part.rows)
            if many or (erased and part.dead_rows):
                self._rewrite([part])
        while True:
            alike: defaultdict[tuple[int, int], list[ColumnPart]] = defaultdict(list)
            for part in self._parts:
                if part.live_rows < FULL:
                    alike[_month_of(part), part.live_rows.bit_length() // 3].append(part)
            groups = [group for group in alike.values() if len(group) > _MOST_ALIKE]
            if not groups:
                return
            for group in groups:
                self._rewrite(group)

    def _rewrite(self, group: Sequence[ColumnPart]) -> None:
        """Write the live rows of parts again: of one month, or mixed, as one part; many mixed ones by month."""
        live = sum(part.live_rows for part in group)
        tables = (self._live(part) for part in group)
        if live < _FLUSHED or _month_of(group[0]):
            self._write(*([pa.concat_tables(tables)] if live < FULL else tables))
        else:
            months: defaultdict[int, list[Any]] = defaultdict(list)
            for table in tables:
                for batch in table.to_batches():
                    for month, some in _by_month(batch):
                        months[month].append(some)
            for month in sorted(months):
                self._write(_table(months[month]))
        gone = {part.number for part in group}
        self._parts = [part for part in self._parts if part.number not in gone]

    def _live(self, part: ColumnPart) -> Any:
        table = self._folder.read_part(part, PART_SCHEMA.names).cast(PART_SCHEMA)
        if not part.dead_rows:
            return table
        ids = table.column(RUN_ID).to_numpy()
        return table.filter(pa.array(~np.isin(ids, ids_of(part.dead))))


def ids_of(packed: bytes) -> Any:
    """Packed ids as an array."""
    return ids_in(changes.unpack(packed))


def ids_in(ranges: Ranges) -> Any:
    """The ids of ranges as an array."""
    return np.concatenate([np.zeros(0, np.int64), *(np.arange(first, stop, dtype=np.int64) for first, stop in ranges)])


def _within(ids: Any, ranges: Ranges) -> Any:
    """Which of the ids are in one of the ranges, which ascend."""
    bounds = np.array(ranges, np.int64).reshape(-1, 2)
    places = np.searchsorted(bounds[:, 0], ids, side="right") - 1
    return (places >= 0) & (ids < np.append(bounds[:, 1], 0)[places])


def _pages_of(connection: Connection, ranges: Ranges) -> Iterator[Rows]:
    """The finished runs of these ids, by pages."""
    long = [(first, stop) for first, stop in ranges if stop - first >= _RANGE]
    few = [run_id for first, stop in ranges if stop - first < _RANGE for run_id in range(first, stop)]
    for first, stop in long:
        with closing(rows_of_ranges(connection, first, stop, _PAGE)) as pages:
            yield from pages
    for some in paging.chunks(few, _PAGE):
        yield rows_of_ids(connection, some)


def _month_of(part: ColumnPart) -> int:
    """The month in which all its runs ended, counted from 1970, after 1; 0: several."""
    first, last = _months(np.array([part.first_end, part.last_end])).tolist()
    return int(first) * 2 + 1 if first == last else 0


def _months(ends: Any) -> Any:
    return ends.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)


def _by_month(batch: Any) -> Iterator[tuple[int, Any]]:
    """The rows of a batch by the month of their ends."""
    months = _months(batch.column("end").to_numpy())
    if len(months) and (months == months[0]).all():
        yield int(months[0]), batch
        return
    order = np.argsort(months, kind="stable")
    ordered = months[order]
    cuts = np.flatnonzero(np.diff(ordered)) + 1
    for begin, end in pairwise([0, *cuts.tolist(), len(ordered)]):
        if end > begin:
            yield int(ordered[begin]), batch.take(pa.array(order[begin:end]))


def _table(batches: Sequence[Any]) -> Any:
    return pa.Table.from_batches(batches, PART_SCHEMA).unify_dictionaries()
