"""Read the ledger: the runs that a target selects, by month, each with the sums of the version that was sent.

The key of a record at a service is the id that was rendered, or for evidence of APEL's job records their key there
(`publisher.reconcile.sent_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection

from formats import fit
from formats.calendar import Month, month_bounds
from formats.job import Job
from formats.rule_codes import CannotRenderError
from formats.text import duration_seconds
from formats.view import View
from publisher.encoded_run import cpu_total_ms
from publisher.errors import StoppedError
from publisher.messages.duplicate_guard import sent_otherwise
from publisher.messages.items import records_of
from publisher.reason import ReasonCode
from publisher.reconcile.result import MonthFound
from publisher.reconcile.sent_settings import SentSettings
from publisher.store import ledger_entries, runs
from publisher.store.classes import JobClass, classes_by_id
from publisher.store.ledger_entries import LedgerEntry
from publisher.store.paging import Place, chunks
from publisher.store.queries import PendingDelivery
from publisher.store.schema import State


class RecordKeys:
    """The record ids of runs at one target."""

    def __init__(self, settings: SentSettings) -> None:
        self._settings = settings
        self._recipient = settings.present
        self._rule = self._recipient.format.record_id

    def of(self, found: Sequence[LedgerEntry]) -> dict[int, str]:
        """Ids by run id; runs whose id the format cannot express are left out."""
        if self._rule is None:
            return self._rendered(found)
        keys = {}
        for run in found:
            try:
                keys[run.run_id] = fit.token(self._rule, self._recipient.view.record_id_prefix + run.record_id, [])[0]
            except CannotRenderError:
                continue
        return keys

    def _rendered(self, found: Sequence[LedgerEntry]) -> dict[int, str]:
        """The ids that the format itself gives its records."""
        with self._recipient.store.read() as connection:
            stored = {run.run_id: run for run in runs.by_ids(connection, [entry.run_id for entry in found])}
        keys: dict[int, str] = {}
        for made_by, entries in self._settings.groups(found):
            present = (stored[entry.run_id] for entry in entries if entry.run_id in stored)
            pages = [PendingDelivery(run.job.end or 0, run) for run in present]
            items = records_of(made_by.recipient or self._recipient, pages, guarded=False).items if pages else ()
            keys.update((item.members.run_ids[0], item.key) for item in items)
        return keys


def kept_as(run: LedgerEntry) -> str | None:
    """The other id under which the service keeps a record, if its answer said so."""
    if run.reason is None or run.reason.code != ReasonCode.KEPT_UNDER_OTHER_ID:
        return None
    return str(dict(run.reason.parameters)["record_id"])


_PAGE: Final = 2000
_TAKEN: Final = (State.ACCEPTED, State.SUPERSEDED, State.WAIVED)
"""A tuple: comparing with three states is faster than the hash of a state."""


class LedgerRun(msgspec.Struct, frozen=True, gc=False):
    """A run of the ledger. Sums in whole seconds, as sent; `version`: the facts that were sent, if they changed since.

    `known`: the version that was sent is kept, so its sums are known.
    """

    run: LedgerEntry
    wall_s: int
    cpu_s: int
    known: bool = True
    version: Job | None = None

    @property
    def end(self) -> int:
        """The end of the run, as sent."""
        return self.run.end if self.version is None or self.version.end is None else self.version.end

    @property
    def is_ambiguous(self) -> bool:
        """Whether the service has one of several versions, and it is unknown which."""
        return self.run.changed and self.run.version is not None and self.run.version.may_be_one_of_several

    @property
    def counted(self) -> bool:
        """Whether the service accepted a version: accepted, superseded, or waived after being superseded."""
        return self.run.sent and self.run.state in _TAKEN


class Ledger:
    """The ledger of one target. `keys`: the keys of records, if the service's receipts name records.

    `per_core`: wall time is multiplied by the number of processors, as the service counts it.
    """

    def __init__(
        self,
        settings: SentSettings,
        keys: RecordKeys | None = None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        assert settings.present.target_id is not None  # a target without deliveries has no ledger
        self.settings = settings
        self.store = settings.present.store
        self.per_core = False
        self.advanced: Callable[[int], None] = lambda _runs: None
        """Called with the number of runs of each page."""
        self._stopping = stopping
        self.target_id = settings.present.target_id
        self._keys = keys
        self._classes: dict[int, JobClass] = {}
        self._enriched: dict[tuple[int, int], Job] = {}
        self._processors: dict[int, int] = {}

    def pages(self, month: Month) -> Iterator[list[LedgerRun]]:
        """The runs of a month by end time, in pages. Raises `StoppedError`."""

        def page(connection: Connection, after: Place | None) -> tuple[list[LedgerRun], Place | None]:
            if self._stopping():
                raise StoppedError("interrupted", hint="What was found until then is confirmed; nothing was sent")
            found, last = ledger_entries.page(connection, self.target_id, month_bounds(month), after, _PAGE)
            versions = {
                run.run_id: runs.version_of(connection, run.run_id, run.version.digest)
                for run in found
                if run.changed and run.version is not None and not run.version.may_be_one_of_several
            }
            return [_entry(run, versions.get(run.run_id)) for run in found], last

        for found in self.store.pages(page):
            self.advanced(len(found))
            yield found

    def moved_out(self, month: Month) -> list[LedgerRun]:
        """The runs that ended in this month when they were sent, and end in another one now: they are listed there, but
        the service counts them here. Without ambiguous ones."""
        first, stop = month_bounds(month)
        with self.store.read() as connection:
            earlier = {
                run_id: job
                for run_id, job in sent_otherwise(connection, self.target_id).items()
                if job.end is not None and first <= job.end < stop
            }
            entries = ledger_entries.entries_of(connection, self.target_id, sorted(earlier))
        moved = [_entry(entry, earlier[entry.run_id]) for entry in entries if not first <= entry.end < stop]
        return [entry for entry in moved if not entry.is_ambiguous]

    def perhaps_never_sent(self, entries: Sequence[LedgerRun]) -> set[int]:
        """The runs among these, by id, that were superseded or waived while it was unknown whether the service had
        them."""
        given_up = [entry.run for entry in entries if entry.counted and entry.run.state is not State.ACCEPTED]
        of_batches = [run.batch_id for run in given_up if run.batch_id is not None]
        if not of_batches:
            return set()
        with self.store.read() as connection:
            unknown = ledger_entries.not_accepted(connection, of_batches)
        return {run.run_id for run in given_up if run.batch_id in unknown}

    def ambiguous_versions(self) -> Iterator[list[LedgerRun]]:
        """Of each ambiguous run of any month: all versions that the service may have, in pages of whole runs."""
        with self.store.read() as connection:
            run_ids = ledger_entries.ambiguous_runs(connection, self.target_id)
        for some in chunks(run_ids, _PAGE):
            with self.store.read() as connection:
                entries = {one.run_id: one for one in ledger_entries.entries_of(connection, self.target_id, some)}
                earlier = runs.earlier_versions(connection, some)
            versions = [_entry(entries[run_id], job) for run_id, job in earlier if run_id in entries]
            yield [*versions, *(_entry(entry, None) for entry in entries.values())]

    def counted_pages(self, month: MonthFound) -> Iterator[list[LedgerRun]]:
        """The same, and count the runs into the month."""
        month.per_core = self.per_core
        for entries in self.pages(month.month):
            named = self._named(entries)
            for entry in entries:
                run = entry.run
                month.states[run.state] += 1
                month.confirmed += run.confirmed
                if entry.counted:
                    month.sent.jobs += 1
                    month.sent.wall_s += entry.wall_s * (self.processors_of(entry) if self.per_core else 1)
                    month.sent.cpu_s += entry.cpu_s
                    month.sent.assumed += run.batch_id is None
                    month.sent.without_receipt += run.batch_id is not None and run.run_id not in named
            yield entries

    def _named(self, entries: Sequence[LedgerRun]) -> set[int]:
        """The runs named in the receipts that are kept or, if receipts name no records, sent in their batches."""
        of_batches = [entry.run.batch_id for entry in entries if entry.counted and entry.run.batch_id is not None]
        kept = self.receipts(of_batches)
        in_kept = [entry.run for entry in entries if entry.counted and entry.run.batch_id in kept]
        if self._keys is None:
            return {run.run_id for run in in_kept}
        keys = self._keys.of(in_kept)
        return {run.run_id for run in in_kept if keys.get(run.run_id) in kept[run.batch_id or 0]}

    def receipts(self, batch_ids: Sequence[int]) -> dict[int, dict[str, str]]:
        """The receipts of these batches, as far as they are kept."""
        with self.store.read() as connection:
            return dict(ledger_entries.receipts(connection, batch_ids))

    def possibly_sent(self, entry: LedgerRun) -> list[LedgerRun]:
        """A run as it was sent by each of the settings by which the service may have it, the last ones first."""
        return [msgspec.structs.replace(entry, run=run) for run in self.settings.possible(entry.run)]

    def _class_of(self, entry: LedgerRun) -> JobClass:
        class_id = entry.run.class_id
        if class_id not in self._classes:
            with self.store.read() as connection:
                self._classes.update((job_class.id, job_class) for job_class in classes_by_id(connection, [class_id]))
        return self._classes[class_id]

    def kind_of(self, entry: LedgerRun) -> tuple[int, int]:
        """Runs of one kind were sent with the same facts, but for their versions: class and settings are the same."""
        return entry.run.class_id, self.settings.of(entry.run).number

    def view_of(self, entry: LedgerRun) -> View:
        """The view of the jobs with which a run was sent."""
        return self.settings.of(entry.run).view

    def facts_of(self, entry: LedgerRun) -> Job:
        """The facts with which a run was sent, with what the configuration added: those of the earlier version, if one
        was sent, else of its class."""
        job_class, enrichers = self._class_of(entry), self.settings.of(entry.run).enrichers
        if entry.version is not None:
            return enrichers.apply(job_class.source, entry.version)
        kind = self.kind_of(entry)
        if kind not in self._enriched:
            self._enriched[kind] = enrichers.apply(job_class.source, job_class.facts)
        return self._enriched[kind]

    def with_facts(self, entries: Sequence[LedgerRun]) -> list[LedgerRun]:
        """The same runs with all facts that were sent, not only those of their classes."""
        with self.store.read() as connection:
            stored = runs.by_ids(connection, [entry.run.run_id for entry in entries if entry.version is None])
        jobs = {run.run_id: run.job for run in stored}
        return [
            msgspec.structs.replace(entry, version=jobs[entry.run.run_id]) if entry.run.run_id in jobs else entry
            for entry in entries
        ]

    def facts_at_end(self, entry: LedgerRun) -> Job:
        """The same with the end of the run, on which its benchmark may depend."""
        if entry.version is not None:
            return self.facts_of(entry)
        job_class, enrichers = self._class_of(entry), self.settings.of(entry.run).enrichers
        return enrichers.apply(job_class.source, msgspec.structs.replace(job_class.facts, end=entry.end))

    def processors_of(self, entry: LedgerRun) -> int:
        """The number of processors that multiplies the wall time of a run."""
        class_id = entry.run.class_id
        if entry.version is not None:
            return _processors(self.facts_of(entry))
        if class_id not in self._processors:
            self._processors[class_id] = _processors(self.facts_of(entry))
        return self._processors[class_id]


def _processors(job: Job) -> int:
    return job.cores or job.slots or 1


def _entry(run: LedgerEntry, version: Job | None) -> LedgerRun:
    if version is None:
        return LedgerRun(
            run, duration_seconds(run.wall_ms), duration_seconds(run.cpu_ms), known=not run.changed, version=None
        )
    wall_s, cpu_s = duration_seconds(version.wall_ms or 0), duration_seconds(cpu_total_ms(version))
    return LedgerRun(run, wall_s, cpu_s, version=version)
