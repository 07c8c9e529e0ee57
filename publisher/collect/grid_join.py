"""Join the runs of a source with the entries of its grid log, in whichever order they turn up.

Promises kept here: nothing is guessed and nothing counts twice. A run without an entry is held until its entry is read,
or until it has waited long enough while the log was read to its end; only then is it a local job. The stored job stays
as read; its identity is that of its class, so filters, sync counts, and records agree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sqlalchemy import Connection

from formats.job import Job
from publisher.config.schema import GridLog
from publisher.errors import SourceError
from publisher.grid_identity import GridLogEntry, entry_for, needs_entry
from publisher.job_ids import local_id
from publisher.sources import blah
from publisher.store import grid_jobs, registry, runs, unreadable_input
from publisher.store.classes import AWAITED, GRID_LOG, JOINED, Interner, Marked, classes_by_id
from publisher.store.database import Store
from publisher.store.runs import UpsertedRun
from publisher.store.stored_run import StoredRun

Enqueue = Callable[[Connection, Sequence[UpsertedRun]], None]
"""Enqueues the deliveries of changed runs, in the same transaction."""

_PAGE: Final = 2000
_ANY_END: Final = 1 << 62


class GridJoin:
    """The grid log of one source, for one collect. `settings` None: it is no longer configured, and nothing is held."""

    def __init__(
        self, store: Store, source: registry.SourceRow, settings: GridLog | None, now: int, enqueue: Enqueue
    ) -> None:
        self._store = store
        self._source_id = source.id
        self._settings = settings
        self._now = now
        self._enqueue = enqueue
        self._read_to_end = settings is None
        self._latest_local = now - int(settings.wait) if settings is not None else now
        self._unmatched: dict[int, bool | None] = {}
        self.interner = Interner(source.id, source.name, self.joined)

    # --- runs

    def joined(self, connection: Connection, jobs: Sequence[Job]) -> list[Marked]:
        """Each run with the values of its entry, and whether it has one or is held for one."""
        keys = [local_id(job.local_id or "").key for job in jobs if needs_entry(job)]
        entries = grid_jobs.entries_by_key(connection, self._source_id, keys)
        return [self._marked(job, entries) for job in jobs]

    def _marked(self, job: Job, entries: dict[str, list[GridLogEntry]]) -> Marked:
        if not needs_entry(job):
            return job, None
        entry = entry_for(job, entries.get(local_id(job.local_id or "").key, ()))
        if entry is not None:
            return entry.given_to(job), JOINED
        return job, AWAITED if self._holds(job.end or 0) else None

    def _holds(self, end: int) -> bool:
        settings = self._settings
        if settings is None:
            return False
        # Until the log was read to its end, the entry may be in the rest: the run would be sent as a local job without
        # its owner.
        return settings.require or not self._read_to_end or end > self._latest_local

    def note(self, connection: Connection, put: Sequence[UpsertedRun]) -> None:
        """Remember which of the runs just stored have no entry."""
        finished = [item for item in put if item.finished]
        missing = {item.class_id for item in finished} - self._unmatched.keys()
        for job_class in classes_by_id(connection, sorted(missing)):
            facts, mark = job_class.facts, job_class.facts.extras.get(GRID_LOG)
            # With an owner of its own it needs no entry: an entry of a job with the same number would give it
            # another's.
            known = mark == JOINED or facts.user_dn or facts.token_subject
            self._unmatched[job_class.id] = None if known else mark == AWAITED
        grid_jobs.forget(connection, [item.run_id for item in finished])
        names = grid_jobs.local_ids(connection, [item.run_id for item in finished])
        waits: list[tuple[int, str, int, bool]] = []
        for item in finished:
            held, name = self._unmatched[item.class_id], names[item.run_id]
            if held is not None and name and item.end_time is not None:
                waits.append((item.run_id, name, item.end_time, held))
        grid_jobs.wait(connection, self._source_id, waits)

    # --- the log

    def read(self) -> str | None:
        """Continue to read the log to its present end, and give its entries to the runs that lack them; return the
        error."""
        if self._settings is None:
            return None
        with self._store.read() as connection:
            cursor = grid_jobs.cursor(connection, self._source_id)
        if cursor is None:
            self._adopt()
        try:
            for page in blah.pages(self._settings.path, cursor or {}, self._settings.rotated_to):
                with self._store.write() as connection:
                    grid_jobs.keep(connection, self._source_id, page.entries)
                    new = unreadable_input.keep_unreadable(connection, self._source_id, page.unreadable, self._now)
                    registry.count_window(connection, self._source_id, 0, 0, new, None)
                    unreadable_input.drop_recovered(connection, self._source_id, page.recovered)
                    grid_jobs.set_cursor(connection, self._source_id, page.cursor)
                    keys = [local_id(entry.lrms_id).key for entry in page.entries]
                    self._give(connection, grid_jobs.waiting_for(connection, self._source_id, keys))
        except SourceError as error:
            return f"grid log: {error}"
        self._read_to_end = True
        return None

    def _adopt(self) -> None:
        """Look at the runs that were stored before the log was configured: they may get entries, and are not held."""
        after = 0
        while True:
            with self._store.write() as connection:
                page = grid_jobs.runs_of(connection, self._source_id, after, _PAGE)
                waits = [
                    (run.run_id, run.job.local_id or "", run.job.end or 0, False)
                    for run in page
                    if needs_entry(run.job)
                ]
                grid_jobs.wait(connection, self._source_id, waits)
                if len(page) < _PAGE:
                    grid_jobs.set_cursor(connection, self._source_id, {})
                    return
            after = page[-1].run_id

    def _give(self, connection: Connection, found: Sequence[StoredRun]) -> None:
        """Give entries to those of these runs that have one now; the others do not change."""
        marked = self.joined(connection, [run.job for run in found])
        self._set_classes(connection, [run for run, (_, mark) in zip(found, marked, strict=True) if mark == JOINED])

    def release(self) -> None:
        """Release runs as local jobs that have waited long enough, if the log was read to its end."""
        settings = self._settings
        # After an error of the log, nothing shows that a run has no entry.
        if not self._read_to_end or (settings is not None and settings.require):
            return
        end = self._latest_local if settings is not None else _ANY_END
        while True:
            with self._store.write() as connection:
                page = grid_jobs.held(connection, self._source_id, end, _PAGE)
                self._set_classes(connection, page)
                grid_jobs.release(connection, [run.run_id for run in page])
            if len(page) < _PAGE:
                return

    def _set_classes(self, connection: Connection, found: Sequence[StoredRun]) -> None:
        """Update the classes of runs, and their deliveries, with what is known of them now."""
        present = grid_jobs.class_ids(connection, [run.run_id for run in found])
        class_ids = self.interner.ids_of(connection, [run.job for run in found])
        put = [
            UpsertedRun(run.run_id, class_id, run.job.end, finished=True, fresh=False)
            for run, class_id in zip(found, class_ids, strict=True)
            if present[run.run_id] != class_id
        ]
        runs.set_classes(connection, {item.run_id: item.class_id for item in put})
        self._enqueue(connection, put)
        self.note(connection, put)
