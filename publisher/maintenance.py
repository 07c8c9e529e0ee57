"""Maintenance of the store, as a library: `Publisher.maintenance`.

Every method that changes the store as a whole holds all of its locks, and raises `UsageError` if a publisher works in
it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from formats.calendar import Month, month_numbered, month_of, months_before
from formats.job import Job
from publisher.collect.collect import TargetPlan
from publisher.collect.enrich import Enrichers
from publisher.collect.target_filter import TargetFilter
from publisher.config.schema import Config
from publisher.errors import PublisherError, StoreCorruptError, StoreError, UsageError
from publisher.finding import Finding
from publisher.messages.item import view_of
from publisher.store import registry, suspects
from publisher.store.admin import backup, engine, erase, integrity, local_users, purge, rename, rolling_check
from publisher.store.admin.backup import Backup, TableCopied, exclusive
from publisher.store.admin.erase import Forgotten, TotalsReceiver
from publisher.store.admin.integrity import Miscounted
from publisher.store.admin.purge import GroupKinds, MonthPlan
from publisher.store.admin.rolling_check import PartChecked
from publisher.store.classes import JobClass
from publisher.store.database import Store, open_store
from publisher.store.sent_mark import RESTORED_HINT
from publisher.store.suspects import PieceFilter

if TYPE_CHECKING:
    from publisher.collect.suspects import AcceptedSuspects
    from publisher.spool.exchange import Manifest

_UNCORRECTED = "it is closed, and has corrections that are not in a statement yet: close a later month"
_NOT_COMPARED = frozenset({"user_dn", "token_subject", "local_user"})


class PurgePlan(msgspec.Struct, frozen=True):
    """What a purge removes: whole months of jobs, messages, and receipts. `runs`: in the months that are removed."""

    months: list[MonthPlan]
    messages: int
    receipts: int

    @property
    def going(self) -> list[MonthPlan]:
        """The months that can be removed."""
        return [month for month in self.months if month.kept is None]

    @property
    def runs(self) -> int:
        """How many runs can be removed."""
        return sum(month.runs for month in self.going)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to remove."""
        return not (self.going or self.messages or self.receipts)


class Purged(msgspec.Struct, frozen=True):
    """What a purge removed."""

    months: list[MonthPlan]
    runs: int
    classes: int
    messages: int
    receipts: int


class StoreMaintenance:
    """Maintenance of a store. `prepare` plans deliveries for the configured targets; `erased` takes what was removed
    from the store out of what is derived from it; `uncorrected` are months of which closed statements lack something.
    """

    def __init__(
        self,
        store: Store,
        config: Config,
        clock: Callable[[], int],
        prepare: Callable[[], Mapping[str, TargetPlan]],
        erased: Callable[[], None] = lambda: None,
        uncorrected: Callable[[], Collection[Month]] = tuple,
    ) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self._prepare = prepare
        self._erased = erased
        self._uncorrected = uncorrected

    # --- decisions on suspect runs

    def accept_suspects(self, names: Sequence[str], chosen: PieceFilter, reason: str) -> dict[str, AcceptedSuspects]:
        """Store these suspect runs of these sources, or of all; how many, by source (`collect.suspects.accept`).

        Raises `UsageError` without a reason, and if another process is collecting.
        """
        from publisher.collect.suspects import accept  # noqa: PLC0415 - few commands need it

        with self._store.lock("collect") as held:
            if not held:
                raise UsageError("another run is collecting", hint="Try again when it has finished")
            plans = list(self._prepare().values())
            return accept(self._store, self._config.sources, plans, names, chosen, reason, self._clock())

    def suspects(self, pieces: Sequence[int]) -> dict[int, Job]:
        """The suspect runs of these pieces of unreadable input, by the piece."""
        with self._store.read() as connection:
            return suspects.of_pieces(connection, pieces)

    def count_suspects(self, sources: Sequence[str] = ()) -> int:
        """How many suspect runs these sources have, or all."""
        with self._store.read() as connection:
            return suspects.count(connection, sources)

    # --- check and repair

    def check(self) -> list[Finding]:
        """Check the store for contradictions, as far as it can be read. Changes nothing."""
        from publisher.spool import spooler  # noqa: PLC0415 - a leaf

        findings: list[Finding] = []
        changes: int | None = None
        try:
            if (why := self._store.why_not_latest()) is not None:
                findings.append(Finding("last sent", "red", why, RESTORED_HINT))
            with self._store.read() as connection:
                findings.extend(integrity.check(connection))
                if spooler.generation(connection) is not None:
                    changes = spooler.count(connection)
        except StoreCorruptError as error:
            findings.append(Finding("database", "red", error.message, integrity.RESTORE))
        return [*findings, *(self._spooling(changes) if changes is not None else ())]

    def check_part(self) -> PartChecked:
        """Check the part of the store that is due, as every run does.

        An error of the store is in the result: what the run did before must be shown nevertheless.
        """
        try:
            return rolling_check.check_part(self._store, self._clock())
        except StoreError as error:
            return PartChecked([], 0, error)

    def _spooling(self, changes: int) -> Iterator[Finding]:
        """Findings about the spooling contexts, for which `changes` are recorded."""
        if not self._config.spool:
            text = f"no context is configured any more, and {changes} changes are still recorded for one"
            yield Finding("spooling", "yellow", text, "`usage-publisher store check --repair` stops that")
        elif changes:
            text = f"{changes} changes are not written to every context yet"
            yield Finding(
                "spooling", "yellow", text, "`usage-publisher store spool` writes them, and says what is wrong"
            )
        else:
            yield from self._incomplete_contexts()

    def _incomplete_contexts(self) -> Iterator[Finding]:
        from publisher.spool import spooler  # noqa: PLC0415 - a leaf

        hint = "`usage-publisher store spool` fills it again"
        try:
            incomplete = spooler.all_incomplete(self._store, self._config.spool)
        except PublisherError as error:
            yield Finding("spooling", "red", str(error), hint)
            return
        for name, kinds in incomplete.items():
            numbers = [
                f"{one.there:,} of {one.stored:,} {kind}" for kind, one in kinds.items() if one.there != one.stored
            ]
            if numbers:
                text = f"the context {name} has {', '.join(numbers)}: something was removed or added"
                yield Finding("spooling", "red", text, hint)
            else:
                text = f"the context {name} has {', '.join(kinds)} that are not as they were written"
                yield Finding("spooling", "red", text, hint)
        if not incomplete:
            yield Finding("spooling", "green", "every context has what the store has")

    def repair(self) -> list[Miscounted]:
        """Set the counters to counted values, and return those that were wrong. Record missing local users of classes.
        Nothing else is repaired automatically.

        Changes recorded for spooling contexts are removed if none is configured any more.
        """
        from publisher.spool import spooler  # noqa: PLC0415 - a leaf

        with self._store.write() as connection:
            if not self._config.spool and spooler.generation(connection) is not None:
                spooler.remove(connection)
            local_users.repair(connection, self._clock())
            return integrity.repair_counters(connection, self._clock())

    def accept_restored(self) -> str | None:
        """Allow sending from this store although it may not know of all that was sent before; return why it may not.

        Returns None, and changes nothing, if it does know, as far as can be seen. Learn first what was delivered.
        """
        with exclusive(self._store, self._config.targets):
            why = self._store.why_not_latest()
            if why is not None:
                with self._store.write() as connection:
                    self._store.accept_restored(connection)
                    registry.record_action(connection, "accept restored", self._store.place, why, self._clock())
                self._store.adopt_mark()
        return why

    def rename_source(self, before: str, after: str) -> int:
        """Rename a source as the configuration did; return how many of its jobs were ever stored.

        Raises `UsageError`: see `publisher.store.admin.rename`.
        """
        from publisher.spool import spooler  # noqa: PLC0415 - a leaf

        if before in self._config.sources or after not in self._config.sources:
            raise UsageError(
                f"the configuration must have [sources.{after}], and not [sources.{before}]",
                hint="Rename its table first",
            )
        with exclusive(self._store, self._config.targets), self._store.write() as connection:
            jobs = rename.rename_source(connection, before, after, self._clock())
            spooler.remove(connection)  # spooled objects have the name: the contexts are filled again
        return jobs

    def backup(self, file: Path) -> Backup:
        """Write a verified backup while a publisher works: see `publisher.store.admin.backup`."""
        return backup.backup(self._store, file)

    def vacuum(self) -> None:
        """Return the space of removed rows to the file system."""
        engine.vacuum(self._store.engine)

    def export(self, folder: Path, form: str) -> Manifest:
        """Write everything into files: see `publisher.spool.exchange`."""
        from publisher.spool.exchange import export  # noqa: PLC0415 - a leaf

        return export(self._store, folder, form)

    # --- removal

    def plan_purge(self, before: Month | None = None) -> PurgePlan:
        """What a purge would remove: jobs that ended before a month, or all that the settings no longer keep.

        Raises `UsageError` if neither is given, and for a month that is not over.
        """
        return self._plan(before, self._prepare())

    def _plan(self, before: Month | None, plans: Mapping[str, TargetPlan]) -> PurgePlan:
        settings = self._config.store
        present = month_of(self._clock())
        if before is not None and before > present:
            raise UsageError(f"{before} has not begun: only months that are over can be purged")
        if before is None and not (settings.keep_jobs or settings.keep_messages or settings.keep_receipts):
            raise UsageError(
                "no months to purge are given",
                hint="Give --before MONTH, or set store.keep_jobs, store.keep_messages or store.keep_receipts",
            )
        configured = {name: GroupKinds(plan.filter.is_snapshot, plan.filter.sync) for name, plan in plans.items()}
        jobs_before = before or _before(present, settings.keep_jobs)
        with self._store.read() as connection:
            months = purge.months_before(connection, jobs_before, configured) if jobs_before is not None else []
            messages_before, receipts_before = self._limits(before, present)
            messages = purge.old_messages(connection, messages_before) if messages_before is not None else 0
            receipts = purge.old_receipts(connection, receipts_before) if receipts_before is not None else 0
        # Without its runs, nobody could tell any more what the open corrections of a closed month are.
        wrong = self._uncorrected() if months else ()
        months = [
            msgspec.structs.replace(month, kept=month.kept or _UNCORRECTED) if month.month in wrong else month
            for month in months
        ]
        return PurgePlan(months, messages, receipts)

    def _limits(self, before: Month | None, present: Month) -> tuple[Month | None, Month | None]:
        """The months before which messages and receipts are removed; they stay if a purge of jobs of certain months
        is requested."""
        if before is not None:
            return None, None
        settings = self._config.store
        return _before(present, settings.keep_messages), _before(present, settings.keep_receipts)

    def purge(self, before: Month | None = None) -> Purged:
        """Remove what `plan_purge` gives now, one month a transaction, then rows without references."""
        plans = self._prepare()
        with exclusive(self._store, self._config.targets):
            plan = self._plan(before, plans)
            now = self._clock()
            count = self._purge_months([month.month for month in plan.going], now)
            messages_before, receipts_before = self._limits(before, month_of(now))
            with self._store.write(sorts_on_disk=True) as connection:
                engine.drop_index_by_run(connection)
                unused = purge.drop_unused_classes(connection)
                local_users.drop_unused(connection)
            with self._store.write(sorts_on_disk=True) as connection:
                messages = purge.purge_messages(connection, messages_before, now) if messages_before is not None else 0
                receipts = purge.purge_receipts(connection, receipts_before, now) if receipts_before is not None else 0
        self._erased()
        return Purged(plan.months, count, unused, messages, receipts)

    def tidy(self) -> None:
        """Remove what a killed purge left."""
        with self._store.write() as connection:
            engine.drop_index_by_run(connection)

    def _purge_months(self, months: Sequence[Month], now: int) -> int:
        count = 0
        if months:
            with engine.found_by_run(self._store):
                for month in months:
                    with self._store.write() as connection:
                        count += purge.purge_month(connection, month, now)
        return count

    def purged_months(self) -> list[Month]:
        """The months that were purged."""
        with self._store.read() as connection:
            return [month_numbered(number) for number in sorted(purge.months(connection))]

    def forget(self, person: str, pseudonym: str | None = None) -> Forgotten:
        """Replace the name of a person with a pseudonym: see `publisher.store.admin.erase`."""
        self._prepare()
        receivers = self._receivers()
        enrichers = Enrichers(self._config)
        filters = [TargetFilter(name, target, self._config) for name, target in self._config.targets.items()]

        def same(job_class: JobClass, renamed: Job) -> str | None:
            before, after = (enrichers.apply(job_class.source, facts) for facts in (job_class.facts, renamed))
            for selection in filters:
                if (selection.why_not(job_class.source, job_class.facts) is None) != (
                    selection.why_not(job_class.source, renamed) is None
                ):
                    return f"target {selection.name} selects jobs by this name: without it, others would be sent"
            differing = [
                field
                for field in before.__struct_fields__
                if field not in _NOT_COMPARED and getattr(before, field) != getattr(after, field)
            ]
            if not differing:
                return None
            return f"a mapping rule goes by this name: without it jobs would have another {', '.join(differing)}"

        try:
            with exclusive(self._store, self._config.targets), self._store.write() as connection:
                by_target_id = {
                    row.id: receiver
                    for name, receiver in receivers.items()
                    if (row := registry.get_target(connection, name)) is not None
                }
                chosen = pseudonym or erase.new_pseudonym()
                forgotten = erase.forget(connection, person, chosen, same, by_target_id, self._clock())
        except UsageError:  # none is left; an earlier command may have been killed before the columns were written
            self._erased()
            raise
        self._erased()
        return forgotten

    def _receivers(self) -> dict[str, TotalsReceiver]:
        """The targets that are sent totals."""
        return {
            name: TotalsReceiver(target.format.required_totals, view_of(target, self._config))
            for name, target in self._config.targets.items()
            if target.format.shape == "totals"
        }


class StoreCopied(msgspec.Struct, frozen=True):
    """A store that was copied. `why_not_latest`: why it may not know of all that was sent, and sends nothing."""

    tables: Sequence[TableCopied]
    why_not_latest: str | None


def copy_store(
    source_url: str,
    destination_url: str,
    busy_timeout_s: float,
    begin_table: Callable[[str], None],
    *,
    mark: Path | None = None,
) -> StoreCopied:
    """Copy everything from one store into another, which is made: see `publisher.store.admin.backup`.

    `mark`: the file by which the source is recognised as restored; None: in the folder of an SQLite store. A copy of a
    restored store is recognised as well.
    """
    source = open_store(source_url, busy_timeout_s, create=False, mark=mark)
    try:
        destination = open_store(destination_url, busy_timeout_s)
        try:
            copied = backup.copy(source, destination, begin_table)
            marked = source.mark_file.read() if source.mark_file is not None else None
            why = source.why_not_latest()
            if why is None:
                destination.adopt_mark()
            elif marked is not None and destination.mark_file is not None:
                destination.mark_file.replace(marked)
            return StoreCopied(copied, why)
        finally:
            destination.close()
    finally:
        source.close()


def _before(present: Month, months: int | None) -> Month | None:
    return None if months is None else months_before(present, months)
