"""Compare the store, what was sent, and what a service has, month by month; send again what the service lacks.

The evidence is the best that the target has: sums that it is asked for, the records that a service gives by day, the
files of a directory, a file that was given, or the file or URL of the configuration. Without any of these, the receipts
of the service still show what it accepted. What the service has as it was sent is confirmed in the ledger; what it
lacks may be sent again, under the same ids. Memory does not grow with the jobs: they are read in pages, and the
evidence goes into a temporary file (`publisher.reconcile.evidence`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

import msgspec

from formats.calendar import SECONDS_A_DAY, Month, month_bounds, month_of
from formats.columns import MISSING, comparable
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config
from publisher.errors import CredentialError, PublisherError, StoppedError, StoreError, UsageError
from publisher.events import WorkAdvanced
from publisher.messages.item import view_of
from publisher.messages.recipient import Recipient
from publisher.plugins import format_of
from publisher.publish.context import Tools
from publisher.reconcile import counted_twice
from publisher.reconcile.by_group import ByGroup, BySyncCount, compared_of, dimensions_of
from publisher.reconcile.by_record import ByRecord
from publisher.reconcile.by_report import ByReport
from publisher.reconcile.by_sums import BySums
from publisher.reconcile.comparison import MonthComparison
from publisher.reconcile.configured_evidence import configured_evidence
from publisher.reconcile.confirm import Verdicts, counts_of, remember
from publisher.reconcile.evidence import EvidenceDatabase, EvidenceGroup, EvidenceRecord
from publisher.reconcile.evidence_files import EvidenceFile, read_files
from publisher.reconcile.evidence_messages import AsSent, read_messages
from publisher.reconcile.evidence_reports import EvidenceReports, reports_of_files, reports_of_messages
from publisher.reconcile.ledger import Ledger, RecordKeys
from publisher.reconcile.result import ALL_MEASURES, Difference, Evidence, Found, MonthFound
from publisher.reconcile.sent_records import SentRecords
from publisher.reconcile.sent_settings import SentSettings
from publisher.status.jobs import count_in
from publisher.store import queries
from publisher.store.database import Store
from publisher.targets.base import EvidenceUnavailable, GivesRecords, GivesSums, GivesTotals, KeepsMessages
from publisher.targets.base import Target as Service
from publisher.targets.identity import TargetContext
from publisher.text import counted

_NOTHING_TO_ASK: Final = (
    "the service cannot be asked what it has. Use --file, or set `evidence` of the target, with an export"
)


def usual_months(now: int) -> list[Month]:
    """The months that are compared by default: this one and the one before (UTC)."""
    this = month_of(now)
    return [month_of(month_bounds(this)[0] - 1), this]


class ReconcileScope(msgspec.Struct, frozen=True):
    """What is compared. `months`: None for those in the evidence, or the usual ones. `files`: the evidence, if given.

    `newest_first`: compare the newest month first, else as listed. `begin_at`: leave out the months before it in this
    order.
    """

    months: Sequence[Month] | None = None
    files: Sequence[Path] = ()
    newest_first: bool = False
    begin_at: Month | None = None

    def ordered(self, months: Sequence[Month]) -> list[Month]:
        """The months to compare, in order."""
        listed = sorted(months, reverse=True) if self.newest_first else list(months)
        left = [month for month in listed if self.begin_at is None or month <= self.begin_at]
        return left or listed


def reconcile(
    store: Store,
    config: Config,
    plan: TargetPlan,
    scope: ReconcileScope,
    tools: Tools,
    database: EvidenceDatabase,
    found: Found,
) -> None:
    """Reconcile the target of `found`, which gets the result; differences go to `database`.

    Raises `StoreError`, `StoppedError`, and `UsageError` for a file that cannot be read. After an interruption, `found`
    says which months are done.
    """
    with store.lock(f"target-{found.target}") as held:
        if held:
            _OneTarget(store, config, tools, database, plan, scope, found).reconcile()
        else:
            found.busy = True


class Reconciliation:
    """Results of several targets. It has a temporary file: close it, or use it in a `with` statement."""

    def __init__(self) -> None:
        """Raises `StoreFullError` where there is no room for the temporary file."""
        self.targets: dict[str, Found] = {}
        self.database = EvidenceDatabase()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.database.close()

    def count_differences(self, target: str) -> int:
        """Number of differences of a target."""
        return self.database.count_differences(target)

    def differences(self, target: str, limit: int | None = None) -> Iterator[Difference]:
        """The differences of a target, in the order found; at most `limit`."""
        return self.database.differences(target, limit)

    @property
    def agrees(self) -> bool:
        """Whether every target was compared, and no evidence contradicts the ledger."""
        return all(target_result.agrees and not target_result.busy for target_result in self.targets.values())


def reconcile_targets(
    store: Store,
    config: Config,
    plans: Mapping[str, TargetPlan],
    months: Sequence[Month] | None,
    files: Sequence[Path],
    tools: Tools,
) -> Reconciliation:
    """Reconcile the targets of these plans, one after the other; see `reconcile`. The caller closes the result."""
    reconciliation = Reconciliation()
    try:
        for name, plan in plans.items():
            one = reconciliation.targets[name] = Found.of(name, config.targets[name])
            reconcile(store, config, plan, ReconcileScope(months, files), tools, reconciliation.database, one)
            if not one.busy:
                compared = [month.month for month in one.months if month.is_done and not month.purged]
                one.notes += counted_twice.notes_on_months(store, config, name, compared)
                counted_twice.add_sources(store, config, one, compared)
                counts = counts_of(one.months, reconciliation.database.differences_by_month(name))
                # what a queue still has says nothing of the service, so it does not settle what a file contradicted
                of_service = bool(files) or config.targets[name].evidence_source != "none"
                remember(
                    store, plan.target_id, tools.clock(), due_at=None, problem=one.unavailable,
                    has_evidence=of_service and one.has_evidence, counts=counts, others_stay=True,
                )  # fmt: skip
    except BaseException:
        reconciliation.database.close()
        raise
    return reconciliation


_Comparisons: TypeAlias = Sequence[MonthComparison] | EvidenceUnavailable
"""What is compared by, each month; or why there is no evidence."""


class _ReadEvidence(msgspec.Struct, frozen=True):
    """What a service, a directory, or files have; the records are in the temporary database.

    `dimensions`: the fields of groups of jobs by which they are compared, if there are no records; `sync_dimensions`:
    those of sync counts. None: they are not compared. `spool`: the directory.
    """

    has_records: bool = False
    groups: Sequence[EvidenceGroup] = ()
    dimensions: tuple[str, ...] | None = None
    sync_dimensions: tuple[str, ...] | None = None
    spool: KeepsMessages | None = None


class _OneTarget:
    """One target, whose lock is held."""

    def __init__(
        self,
        store: Store,
        config: Config,
        tools: Tools,
        database: EvidenceDatabase,
        plan: TargetPlan,
        scope: ReconcileScope,
        found: Found,
    ) -> None:
        name = found.target
        self._store = store
        self._config = config
        self._clock, self._stopping, self._make_target = tools.clock, tools.stopping, tools.make_target
        self._database = database
        self._settings = config.targets[name]
        self._view = view_of(self._settings, config)
        self._scope = scope
        self._found = found
        settings = SentSettings(Recipient(store, config, name))
        # Before a change of the name of the site, records and reports were sent with the earlier one.
        self._sites = {str(comparable(name)) for each in settings.configs for name in each.site_names}
        self._reporting_sites = list(dict.fromkeys(each.site.name for each in settings.configs))
        self._keys, self._sent = RecordKeys(settings), SentRecords(settings)
        by_receipt = self._keys if self._settings.kind.receipts_name_records else None
        self._ledger = Ledger(settings, by_receipt, tools.stopping)
        self._ledger.advanced = self._advanced
        self._observer, self._looked_at, self._jobs = tools.observer, 0, 0
        self._sends_reports = self._settings.reporting is not None
        self._verdicts = Verdicts(store, plan.target_id, self._found, database, tools.clock())

    def reconcile(self) -> None:
        result = self._found
        if self._scope.files:
            self._by_given(self._scope.files)
            return
        # also where only receipts are left: one table has one unit
        self._ledger.per_core = self._settings.evidence_source == "query" and self._settings.kind.sums.per_core
        context = TargetContext(self._config.credentials, time.time, self._stopping)
        try:
            if self._settings.evidence:
                with configured_evidence(self._settings, context) as paths:
                    self._by_given(paths)
                return
            listed = self._months([])
            service = self._make_target(result.target, self._settings, context)
            try:
                self._by_service(listed, service)
            finally:
                service.close()
        except (StoreError, StoppedError):
            raise
        except PublisherError as error:
            if isinstance(error, UsageError) and not self._settings.evidence:
                raise
            result.unavailable, result.unauthorised = str(error), error.exit_code == CredentialError.exit_code
            if not result.months:
                self._months([])
            self._by_receipts(self._afresh())

    def _by_service(self, listed: Sequence[MonthFound], service: Service) -> None:
        """Compare with the best evidence that the service gives."""
        for kind in EVIDENCE.values():
            if kind.given_by is not None and kind.comparisons is not None and isinstance(service, kind.given_by):
                self._compare(listed, kind.name, kind.comparisons(self, listed, service))
                return
        self._by_receipts(listed, EvidenceUnavailable(_NOTHING_TO_ASK))

    def _advanced(self, runs: int) -> None:
        self._looked_at += runs
        self._observer(WorkAdvanced(f"reconcile {self._found.target}", self._looked_at, self._jobs or None))

    def _by_given(self, files: Sequence[Path]) -> None:
        result = self._found
        if self._sends_reports:
            reports = reports_of_files(files, self._reporting_sites, self._clock())
            result.notes = list(reports.all_notes())
            reported = sorted({month_of(start) for start, _ in reports.reports})
            self._compare(self._months(reported), "file", self._of_reports(reports, None))
            return
        evidence = read_files(files, result.target, self._settings.format, self._sites, self._database)
        result.notes = evidence.notes
        months = self._months(evidence.months)
        self._compare(months, "file", self._comparisons(self._of_files(evidence)))
        result.notes += counted_twice.notes_on_hosts(
            self._store, self._config, self._view, evidence.groups, self._database, result.target
        )

    def _afresh(self) -> list[MonthFound]:
        """Reset the months without evidence, so that they can be counted again."""
        unknown = []
        for place, month in enumerate(self._found.months):
            if month.service_jobs is None and not month.purged:
                self._found.months[place] = MonthFound(month.month)
                unknown.append(self._found.months[place])
        return unknown

    def _months(self, named: Sequence[Month]) -> list[MonthFound]:
        """The months to compare; `named`: those in the evidence. Purged months are listed, but not compared."""
        months = self._scope.months
        chosen = list(months) if months is not None else list(named) or usual_months(self._clock())
        listed = []
        for month in self._scope.ordered(chosen):
            one = MonthFound(month)
            with self._store.read() as connection:
                one.purged = queries.is_purged(connection, month.number)
                self._jobs += count_in(connection, *month_bounds(month))
            one.is_done = one.purged
            self._found.months.append(one)
            if not one.purged:
                listed.append(one)
        return listed

    def _by_receipts(self, months: Sequence[MonthFound], unavailable: EvidenceUnavailable | None = None) -> None:
        """Count what the receipts show. `unavailable`: why the service gives no more."""
        if unavailable is not None:
            self._found.unavailable, self._found.unauthorised = unavailable.reason, unavailable.unauthorised
        self._compare(months, "receipts", [MonthComparison(self._ledger)])

    def _compare(self, months: Sequence[MonthFound], evidence: Evidence, comparisons: _Comparisons) -> None:
        """Compare month after month, as far as there is evidence."""
        if isinstance(comparisons, EvidenceUnavailable):
            self._by_receipts(months, comparisons)
            return
        self._found.evidence = evidence
        for number, month in enumerate(months):
            for comparison in comparisons:
                unavailable = comparison.month(month)
                if unavailable is not None:
                    month.service_jobs = month.service_wall_s = month.service_cpu_s = None
                    self._by_receipts(months[number + 1 :], unavailable)
                    return
            month.is_done = True
        for comparison in comparisons:
            comparison.end()
        taken = sum(month.taken for month in months)
        if taken:
            self._found.notes.append(
                f"messages of {counted(taken, 'job')} are no longer in this directory, and were not compared: another "
                "program took them, or somebody removed them"
            )

    def _comparisons(self, read: _ReadEvidence) -> list[MonthComparison]:
        """Compare what was read, record by record, or group by group."""
        by_groups = (
            self._ledger, self._view, self._settings.format, read.groups, self._verdicts, read.spool, self._clock(),
        )  # fmt: skip
        comparisons: list[MonthComparison] = []
        if read.has_records:
            self._found.compared = self._database.content(self._found.target).named
            comparisons.append(
                ByRecord(self._ledger, self._keys, self._found, self._database, self._verdicts, read.spool, self._sent)
            )
        else:
            self._found.compared = compared_of(read.groups)
            dimensions = read.dimensions
            comparisons.append(MonthComparison(self._ledger) if dimensions is None else ByGroup(*by_groups, dimensions))
        if read.sync_dimensions is not None:
            comparisons.append(BySyncCount(*by_groups, read.sync_dimensions))
        return comparisons

    def of_sums(self, _months: Sequence[MonthFound], service: GivesSums) -> _Comparisons:
        form = self._settings.format
        if not (self._sent.are_readable or form.summed_columns):
            return EvidenceUnavailable(f"{self._settings.records} cannot be compared with sums of records")
        kind = self._settings.kind
        return [BySums(self._ledger, kind, form, service, self._found, self._verdicts, self._sent, self._clock)]

    def of_messages(self, months: Sequence[MonthFound], service: KeepsMessages) -> _Comparisons:
        if self._sends_reports:
            reports = reports_of_messages(service.kept(), self._reporting_sites, self._clock())
            self._found.notes += reports.all_notes()
            return self._of_reports(reports, service)
        if not self._settings.format.is_readable:
            return EvidenceUnavailable(f"{self._settings.records} cannot be read back")
        return self._comparisons(self._read_messages(months, service))

    def _of_reports(self, evidence: EvidenceReports, spool: KeepsMessages | None) -> list[MonthComparison]:
        self._found.compared = ALL_MEASURES
        return [ByReport(self._ledger, self._settings.period_kind, evidence, self._verdicts, spool)]

    def of_records(self, months: Sequence[MonthFound], service: GivesRecords) -> _Comparisons:
        for month in months:  # all before the first is compared: a record may have another end there
            unavailable = self._read_days(month.month, service)
            if unavailable is not None:
                return unavailable
        return self._comparisons(_ReadEvidence(has_records=True))

    def _read_days(self, month: Month, service: GivesRecords) -> EvidenceUnavailable | None:
        """Add the records of a month to the temporary database, a day at a time; return why there are none.

        Records of other sites are left out: several may send to one service, and they are theirs.
        """
        begin, end = month_bounds(month)
        for day in range(begin // SECONDS_A_DAY, min(end - 1, self._clock()) // SECONDS_A_DAY + 1):
            if self._stopping():
                raise StoppedError("interrupted", hint="What was found until then is confirmed; nothing was sent")
            records = service.records(day)
            if isinstance(records, EvidenceUnavailable):
                return records
            ours = (record for record in records if comparable(record.columns.get("site")) in {MISSING, *self._sites})
            self._database.add_records(self._found.target, map(EvidenceRecord.of_columns, ours))
        return None

    def of_totals(self, months: Sequence[MonthFound], service: GivesTotals) -> _Comparisons:
        evidence: list[EvidenceGroup] = []
        for month in months:
            if self._stopping():
                raise StoppedError("interrupted", hint="Nothing was compared")
            totals = service.totals(month.month)
            if isinstance(totals, EvidenceUnavailable):
                return totals
            evidence += (EvidenceGroup.of_columns("jobs", total) for total in totals)
        dimensions = self._settings.format.required_totals.dimensions
        return self._comparisons(_ReadEvidence(groups=evidence, dimensions=dimensions))

    def _read_messages(self, months: Sequence[MonthFound], service: KeepsMessages) -> _ReadEvidence:
        form = self._settings.format
        groups, unreadable = read_messages(
            self._found.target, form, service, self._database, self._clock(), self._as_sent(months)
        )
        self._found.notes += unreadable
        sync = format_of(form.sync).required_totals.dimensions if self._settings.sends_sync else None
        dimensions = None if form.totals is None else form.totals.dimensions
        return _ReadEvidence(dimensions is None, groups, dimensions, sync, service)

    def _as_sent(self, months: Sequence[MonthFound]) -> AsSent:
        """What finds the records that need not be parsed. What was sent is rendered with the first message: another
        program may have taken all of them."""
        target, database, are_rendered = self._found.target, self._database, False

        def as_sent(payload: bytes) -> list[EvidenceRecord] | None:
            nonlocal are_rendered
            if not are_rendered:
                are_rendered = True
                for month in months:
                    for entries in self._ledger.pages(month.month):
                        database.add_sent_bodies(target, self._sent.bodies(entries))
            return self._sent.as_sent(payload, target, database)

        if self._settings.format.pieces is None:
            return lambda _payload: None
        self._jobs *= 2  # each is looked at twice
        return as_sent

    def _of_files(self, evidence: EvidenceFile) -> _ReadEvidence:
        """What files have that this target is sent. Raises `UsageError` if they are of another kind."""
        kinds = {group.kind for group in evidence.groups}
        totals = self._settings.format.totals
        if evidence.records and totals is not None:
            raise UsageError(f"the file lists records, but {self._found.target} receives summaries")
        if totals is not None and totals.columns is None:
            raise UsageError(f"{self._settings.records} cannot be compared with a file")
        if "sync" in kinds and not self._settings.sends_sync:
            self._found.notes.append("the sync counts are not compared: this target is sent none")
            kinds.remove("sync")
        dimensions, sync_dimensions = (
            dimensions_of(evidence.groups, kind) if kind in kinds else None for kind in ("jobs", "sync")
        )
        return _ReadEvidence(bool(evidence.records), evidence.groups, dimensions, sync_dimensions)


class EvidenceKind(msgspec.Struct, frozen=True):
    """A kind of evidence, with `words` for people. `given_by`: the protocol of the targets that are asked for it, and
    `comparisons`: what it is compared by; None: it is not asked for."""

    name: Evidence
    words: str
    given_by: type | None = None
    comparisons: Callable[[_OneTarget, Sequence[MonthFound], Any], _Comparisons] | None = None


# A target is asked for the first that it gives: records say of which job something differs, sums of how many.
EVIDENCE: Final[Mapping[Evidence, EvidenceKind]] = {
    kind.name: kind
    for kind in (
        EvidenceKind("files", "the files in the folder", KeepsMessages, _OneTarget.of_messages),
        EvidenceKind("records", "the records of the service", GivesRecords, _OneTarget.of_records),
        EvidenceKind("totals", "the totals of the service", GivesTotals, _OneTarget.of_totals),
        EvidenceKind("query", "queries of the service", GivesSums, _OneTarget.of_sums),
        EvidenceKind("file", "the files given"),
        EvidenceKind("receipts", "receipts only"),
    )
}
