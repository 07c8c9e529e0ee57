"""Runs of the store in memory, from which a server makes reports without reading the store again.

A report never shows an outdated state: before each one the state of the store is compared. If it changed, ids and
digests of its runs are compared with those in memory, and new, changed, and deleted runs are applied. Until that is
done, reports read the store as a command does.

Memory is bounded: if the store has more than `MOST_KEPT` runs, those that ended last are in memory, and a report of an
earlier time reads the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Condition, Lock, Thread
from typing import Any, Final

import msgspec
import numpy as np
from sqlalchemy import Connection

from publisher.collect.enrich import Enrichers
from publisher.config.schema import Config
from publisher.errors import PublisherError
from publisher.report.column_tally import Ints
from publisher.report.columns import ColumnMaker
from publisher.report.compact import OBJECTS_KEPT, ColumnChunk, KeptFrame
from publisher.report.frame import NUMBERS, ROW, WORDS, Coding, Frame
from publisher.report.runs import StoredFrames, StoreRuns
from publisher.store.database import Store
from publisher.store.report_queries import (
    Rows,
    State,
    class_marks,
    end_of_latest,
    marked_runs,
    marks_only,
    running_runs,
    runs_by_id,
    state_of,
)

MOST_KEPT: Final = 3_000_000
"""Runs, at some hundred bytes each."""
_CHUNK: Final = 65_536
_PAGE: Final = 4_000
_AT_ONCE: Final = 20_000
"""Up to so many new runs are read while a report waits; more are read in the background."""
_MOST_SMALL: Final = 32
"""If there are more small chunks, they are joined."""
_SMALL: Final = _CHUNK // 4
_ALL: Final = NUMBERS | WORDS | OBJECTS_KEPT
_WAIT_S: Final = 2.0


class _FrameMaker:
    """Makes frames with all columns; all of them share its codings. Thread-safe."""

    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._maker = ColumnMaker(_ALL, running=True)
        self._frames = StoredFrames(self._maker, config, Enrichers(config), with_slaves=True)
        self._lock = Lock()

    @property
    def codings(self) -> dict[str, Coding]:
        """The codings of the frames; words are only added, never changed."""
        return self._maker.codings

    def running(self, page: Rows, now: int) -> list[Frame]:
        """Frames of stored runs that are still running, up to now."""
        with self._lock:
            return list(self._frames.of(self._decoded(page), page, now))

    def frames(self, page: Rows, ids: list[int]) -> list[Frame]:
        """Frames of stored runs."""
        with self._lock:
            return [frame for frame in self._frames.of(self._decoded(page), page, None, ids) if frame.rows]

    def _decoded(self, page: Rows) -> list[Any]:
        if unknown := self._frames.unknown(page):
            with self._store.read() as connection:
                self._frames.learn(connection, unknown)
        return self._frames.decoded(page)


class _StoreState(msgspec.Struct, frozen=True):
    """The runs of one state of the store. It is immutable: reports use theirs while the next is made."""

    state: State
    reader: _FrameMaker
    classes: dict[int, int]
    ids: Ints
    """The ids of the runs, ascending."""
    marks: Ints
    chunks: tuple[ColumnChunk, ...]
    running: Rows
    horizon: int | None
    """Runs that ended earlier are not in memory; None: all are."""

    def has(self, start: int) -> bool:
        """Whether all runs that ended at an instant or later are in memory."""
        return self.horizon is None or start >= self.horizon


class ReportCache:
    """The runs of a store in memory. `say` is given a message when preparing them fails. Thread-safe."""

    def __init__(
        self, store: Store, config: Config, say: Callable[[str], None], clock: Callable[[], int], *,
        most: int = MOST_KEPT, at_once: int = _AT_ONCE,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._store = store
        self._config = config
        self._say = say
        self._most = most
        self._at_once = at_once
        self._updating = Lock()
        self._made: _StoreState | None = None
        self._thread: Thread | None = None
        self._stopping = False
        self._reading = 0
        self._quiet = Condition()
        self._failed = False

    def runs(self) -> KeptRuns:
        """The runs for a report: `publisher.report.frame.Runs`."""
        return KeptRuns(self, StoreRuns(self._store, self._config))

    # --- preparing

    def prepare(self) -> None:
        """Read the store in a background thread."""
        with self._quiet:
            if self._stopping or (self._thread is not None and self._thread.is_alive()):
                return
            self._thread = Thread(target=self._prepare, name="prepare reports", daemon=True)
            self._thread.start()

    def _prepare(self) -> None:
        with self._updating:
            try:
                self._update(None)
            except PublisherError as error:
                self._failed = True
                self._say(f"each report reads the store, because its runs cannot be kept in memory: {error}")
            except _CacheStoppedError:
                return

    def close(self) -> None:
        """Stop the background thread and wait for its end."""
        with self._quiet:
            self._stopping = True
            self._quiet.notify_all()
        if self._thread is not None:
            self._thread.join()

    def wait(self) -> None:
        """Wait until the background thread has finished."""
        if self._thread is not None:
            self._thread.join()

    @property
    def bytes(self) -> int:
        """The approximate memory of the runs, in bytes."""
        return 0 if self._made is None else sum(chunk.bytes for chunk in self._made.chunks)

    def being_read(self, change: int) -> None:
        """Note that a report that reads the store begins (1) or ends (-1): preparing waits meanwhile."""
        with self._quiet:
            self._reading += change
            self._quiet.notify_all()

    def _wait_for_reports(self) -> None:
        with self._quiet:
            self._quiet.wait_for(lambda: not self._reading or self._stopping, _WAIT_S if self._reading else 0)
            if self._stopping:
                raise _CacheStoppedError

    # --- the present state

    def present(self) -> _StoreState | None:
        """The runs of the present state of the store; None if they are not in memory, and the store must be read."""
        with self._store.read() as connection:
            state = state_of(connection, self._clock())
        made = self._made
        if made is not None and made.state == state:
            return made
        if self._thread is not None and self._thread.is_alive():
            return None
        with self._updating:
            made = self._made
            if made is not None and made.state != state:
                made = self._update(self._at_once)
        if made is None and not self._failed:
            self.prepare()
        return made

    def _update(self, at_once: int | None) -> _StoreState | None:
        """Read what changed; None, and the memory is cleared, if more than so many runs changed."""
        with self._store.read() as connection:
            state = state_of(connection, self._clock())
            running = running_runs(connection)
            old, classes = self._made, class_marks(connection)
            horizon = end_of_latest(connection, self._most)
            if old is None or _changed(old.classes, classes) or _earlier(horizon, old.horizon):
                self._made = None
                if at_once is not None:
                    return None
                reader = _FrameMaker(self._store, self._config)
                ids, marks, chunks = self._whole(connection, reader, horizon)
            else:
                reader = old.reader
                ids, marks, chunks, new = _difference(connection, old, horizon)
                if at_once is not None and len(new) > at_once:
                    self._made = None
                    return None
                chunks = _few([*chunks, *_chunks(reader, runs_by_id(connection, new))])
            self._made = _StoreState(state, reader, classes, ids, marks, tuple(chunks), running, horizon)
            return self._made

    def _whole(
        self, connection: Connection, reader: _FrameMaker, horizon: int | None
    ) -> tuple[Ints, Ints, list[ColumnChunk]]:
        marked: list[tuple[Ints, Ints]] = []

        def pages() -> Iterator[tuple[list[int], Rows]]:
            with closing(marked_runs(connection, horizon, _PAGE)) as found:
                for page in found:
                    self._wait_for_reports()
                    marked.append((page.ids, page.marks))
                    yield page.ids.tolist(), page.rows

        chunks = list(_chunks(reader, pages()))
        ids, marks = _together(marked)
        return ids, marks, chunks


def _difference(
    connection: Connection, old: _StoreState, horizon: int | None
) -> tuple[Ints, Ints, list[ColumnChunk], list[int]]:
    """The present runs, the chunks without deleted and changed runs, and the ids of new and changed runs."""
    ids, marks = _together([(page.ids, page.marks) for page in marks_only(connection, horizon, _PAGE * 5)])
    if not len(old.ids):
        return ids, marks, [], ids.tolist()
    places = np.minimum(np.searchsorted(old.ids, ids), len(old.ids) - 1)
    same = (old.ids[places] == ids) & (old.marks[places] == marks)
    gone = np.setdiff1d(old.ids, ids[same], assume_unique=True)
    left = [_without(chunk, gone) for chunk in old.chunks] if len(gone) else old.chunks
    return ids, marks, [chunk for chunk in left if chunk is not None], ids[~same].tolist()


def _together(marked: list[tuple[Ints, Ints]]) -> tuple[Ints, Ints]:
    """Ids in ascending order, and their marks."""
    if not marked:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    ids, marks = (np.concatenate([pair[place] for pair in marked]) for place in (0, 1))
    order = np.argsort(ids, kind="stable")
    return ids[order], marks[order]


def _without(chunk: ColumnChunk, gone: Ints) -> ColumnChunk | None:
    """A chunk without these runs; None if nothing is left."""
    left = chunk.without(gone)
    if left.rows == chunk.rows:
        return chunk
    return ColumnChunk([left]) if left.rows else None


def _few(chunks: list[ColumnChunk]) -> list[ColumnChunk]:
    """The chunks, with small ones joined if there are many."""
    small = [chunk for chunk in chunks if chunk.rows < _SMALL]
    if len(small) <= _MOST_SMALL:
        return chunks
    large = [chunk for chunk in chunks if chunk.rows >= _SMALL]
    return [*large, ColumnChunk([KeptFrame(chunk, None) for chunk in small])]


def _chunks(reader: _FrameMaker, pages: Iterator[tuple[list[int], Rows]]) -> Iterator[ColumnChunk]:
    gathered: list[Frame] = []
    for ids, page in pages:
        gathered += reader.frames(page, ids)
        if sum(frame.rows for frame in gathered) >= _CHUNK:
            yield ColumnChunk(gathered)
            gathered.clear()
    if gathered:
        yield ColumnChunk(gathered)


def _changed(old: dict[int, int], new: dict[int, int]) -> bool:
    """Whether a class of the present runs changed."""
    return any(new.get(class_id, mark) != mark for class_id, mark in old.items())


def _earlier(horizon: int | None, old: int | None) -> bool:
    """Whether earlier runs must be kept than before."""
    return old is not None and (horizon is None or horizon < old)


class _CacheStoppedError(Exception):
    """The program is stopping."""


class KeptRuns:
    """The runs of a store for one report, from memory or from the store: `publisher.report.frame.Runs`."""

    def __init__(self, kept: ReportCache, stored: StoreRuns) -> None:
        self._kept = kept
        self._stored = stored
        self.codings: dict[str, Coding] = {}

    def frames(
        self, start: int, stop: int | None, requested: frozenset[str], *, running_until: int | None
    ) -> Iterator[Frame]:
        """See `Runs`."""
        made = self._kept.present()
        if made is None or not requested - {ROW} <= _ALL or not made.has(start):
            yield from self._read(start, stop, requested, running_until)
            return
        self.codings = made.reader.codings
        for chunk in made.chunks:
            frame = chunk.ended(start, stop)
            if frame is not None and frame.rows:
                yield frame
        if running_until is not None:
            yield from made.reader.running(made.running, running_until)

    def _read(
        self, start: int, stop: int | None, requested: frozenset[str], running_until: int | None
    ) -> Iterator[Frame]:
        self._kept.being_read(1)
        try:
            for frame in self._stored.frames(start, stop, requested, running_until=running_until):
                self.codings = self._stored.codings
                yield frame
            self.codings = self._stored.codings
        finally:
            self._kept.being_read(-1)
