"""The commands as a library: `Publisher` has a configuration and its store.

    publisher = Publisher.from_file(Path("publisher.toml"))
    publisher.collect()
    publisher.publish()
    print(publisher.status().delivered)

Every method raises the errors of `publisher.errors`; a problem with one source or target is in its result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec
from msgspec.structs import replace

from publisher.config import file
from publisher.config.schema import Config
from publisher.configured_store import ConfiguredStore
from publisher.errors import StoreError, TargetBusyError, UsageError
from publisher.events import Observer
from publisher.plugins import required_format
from publisher.publish.context import Tools
from publisher.sources.base import Window
from publisher.store import closed_months as store_closings
from publisher.store import reconciliations, registry, suspects, unreadable_input
from publisher.store.database import Store
from publisher.store.schema import State
from publisher.text import unknown_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from formats.base import Format
    from formats.calendar import Month
    from publisher.collect.collect import Collected, TargetPlan
    from publisher.collect.meters import MeterResult
    from publisher.finding import Finding
    from publisher.maintenance import StoreMaintenance
    from publisher.observe.allocations import AllocationUse
    from publisher.preview.diff import DiffRendering
    from publisher.preview.explain import Explanation
    from publisher.preview.render import Rendering, ReportRendering
    from publisher.publish.circuit import Circuits
    from publisher.publish.decide import DeliveredBefore
    from publisher.publish.publish import Delivery
    from publisher.publish.republish import RepublishPlan
    from publisher.reconcile.amounts import By
    from publisher.reconcile.conservation import Conservation
    from publisher.reconcile.reconcile import Reconciliation
    from publisher.reconcile.schedule import ReconcileResult
    from publisher.recording import History
    from publisher.report.archive_export import Written
    from publisher.report.closing import ClosedMonth
    from publisher.report.report import Report
    from publisher.report.request import ReportRequest
    from publisher.report.runs import ReportContext
    from publisher.report.statements.closed import ClosedStatement
    from publisher.report.statements.files import Kind, StatementFiles
    from publisher.report.statements.focus import FocusForm
    from publisher.report.statements.statement import Statements
    from publisher.spool.exchange import Manifest
    from publisher.spool.spooler import ContextState
    from publisher.status.jobs import FoundJobs, JobFilter, KnownRun
    from publisher.status.records import ListedRecord
    from publisher.status.status import Status
    from publisher.store.admin.rolling_check import PartChecked


class RunResult(msgspec.Struct, frozen=True):
    """What a run did: collected by source, delivered and reconciled by target. `busy`: another run is collecting.

    `problem`: why the store could not be used once the run had delivered.
    """

    sources: dict[str, Collected]
    targets: dict[str, Delivery]
    busy: bool = False
    reconciled: dict[str, ReconcileResult] = {}
    checked: PartChecked | None = None
    problem: StoreError | None = None
    measured: dict[str, MeterResult] = {}


class Publisher:
    """A site's publisher. Close it, or use it in a `with` statement."""

    def __init__(self, config: Config, tools: Tools | None = None, *, read_only: bool = False) -> None:
        self.config = config
        self._read_only = read_only
        self.tools = tools or Tools()
        self._opened = ConfiguredStore(config, self.tools.observer, read_only=read_only)

    @classmethod
    def from_file(cls, path: Path | None = None, tools: Tools | None = None, *, read_only: bool = False) -> Self:
        """With the configuration of a file; with `read_only` the store cannot be written. Raises `ConfigError`."""
        return cls(file.load(path), tools, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Write to the spooling contexts what they lack, and close the store."""
        self._opened.close()

    def observed_by(self, observer: Observer) -> Self:
        """Return the same publisher with another observer of its events."""
        return type(self)(self.config, replace(self.tools, observer=observer), read_only=self._read_only)

    @property
    def store(self) -> Store:
        """The opened store; created if it is missing."""
        return self._opened.made()

    @property
    def missing(self) -> str:
        """The notice that there is no store, and how to make one, if one was needed."""
        return self._opened.missing

    # --- from the sources to the services

    def collect(self, names: Sequence[str] = (), window: Window | None = None) -> dict[str, Collected] | None:
        """Read sources into the store: those named, or all. None where another process is collecting."""
        from publisher.collect.collect import Collected, collect  # noqa: PLC0415 - each method loads only what it needs

        self._require(names, self.config.sources, "source")
        if not self.config.sources:
            raise UsageError("no source is configured", hint="Add a table [sources.NAME] to the configuration")
        store, tools, settings = self.store, self.tools, self.config.sources
        present = [name for name, source in settings.items() if not source.retired]
        sources = {name: tools.make_source(name, settings[name]) for name in names or present}
        with store.lock("collect") as held:
            if not held:
                return None
            plans, watched = list(self._plans().values()), (tools.clock, tools.observer)
            return {
                name: Collected(interrupted=True)
                if tools.stopping()
                else collect(store, source, plans, *watched, window, settings[name].grid_log, tools.stopping)
                for name, source in sources.items()
            }

    def read_meters(self) -> dict[str, MeterResult]:
        """Store the energy that other programs measured, by their paths: `[[energy.measured]]`. Nothing while another
        process collects or closes a month, whose statements must not see half of it: the next run reads them."""
        from publisher.collect.meters import read_meters  # noqa: PLC0415

        meters = self.config.energy.measured
        if not meters:
            return {}
        with self.store.lock("collect") as held:
            if not held:
                return {}
            needed = {name for name, target in self.config.targets.items() if target.needs_energy}
            plans = [plan for name, plan in self._plans().items() if name in needed] if needed else []
            return read_meters(self.store, meters, plans, self.tools.clock())

    def publish(
        self, names: Sequence[str] = (), *, only_due: bool = False, circuits: Circuits | None = None
    ) -> dict[str, Delivery]:
        """Send everything undelivered to the named targets, or to all. `only_due`: respect the targets' `every`.

        `circuits`: those of a long-running process, which tries a failing service less often.
        """
        from publisher.publish.publish import deliver_all  # noqa: PLC0415 - loads the network

        self._require(names, self.config.targets, "target")
        if not self.config.targets:
            raise UsageError("no target is configured", hint="Add a table [targets.NAME] to the configuration")
        plans = self._plans()
        chosen = {name: plans[name] for name in names or self.config.targets}
        return deliver_all(self.store, self.config, chosen, self.tools, only_due=only_due, circuits=circuits)

    def run(self, circuits: Circuits | None = None) -> RunResult:
        """Collect, publish, reconcile what is due, check a part of the store. `circuits`: see `publish`. A site without
        targets, which only makes reports, sends nothing.

        An error of the store after publishing is in the result: what was sent must be shown nevertheless.
        """
        from publisher.reconcile.schedule import reconcile_due  # noqa: PLC0415

        collected = self.collect()
        delivered = self.publish(only_due=True, circuits=circuits) if self.config.targets else {}
        done = RunResult(collected or {}, delivered, collected is None)
        try:
            reconciled = reconcile_due(self.store, self.config, self._plans, self.tools)
            measured = self.read_meters()
        except StoreError as error:
            return replace(done, problem=error)
        return replace(done, reconciled=reconciled, measured=measured, checked=self.maintenance.check_part())

    def plan_republish(self, target: str, window: Window, *, only_missing: bool = False) -> RepublishPlan:
        """What republishing a window to a target does, and whether another run has the target."""
        from publisher.publish.republish import plan_window  # noqa: PLC0415

        self._require([target], self.config.targets, "target")
        plan, now = self._plans()[target], self.tools.clock()
        return plan_window(self.store, self.config, target, plan, window, now, only_missing=only_missing)

    def republish(self, target: str, window: Window, *, only_missing: bool = False) -> Delivery:
        """Send a window again to a target, and nothing else that waits for it, except to one that is sent reports.

        Raises `TargetBusyError` where another run is at work for it.
        """
        from publisher.publish.publish import deliver  # noqa: PLC0415
        from publisher.publish.republish import begin  # noqa: PLC0415

        self._require([target], self.config.targets, "target")
        plan, now = self._plans()[target], self.tools.clock()
        scope = begin(self.store, self.config, target, plan, window, now, only_missing=only_missing)
        return deliver(self.store, self.config, target, plan, self.tools, scope=scope)

    def reconcile(
        self, names: Sequence[str] = (), months: Sequence[Month] | None = None, files: Sequence[Path] = ()
    ) -> Reconciliation:
        """What was sent beside what the services have: of the targets named, or of all; close it when done.

        `months` None: this one and the one before or, with files, those that they cover. `files`: CSV or JSON of what
        the service of one target has. What was seen there is confirmed in the ledger.
        """
        from publisher.reconcile.reconcile import reconcile_targets  # noqa: PLC0415

        self._require(names, self.config.targets, "target")
        chosen = list(names or self.config.targets)
        if files and len(chosen) != 1:
            raise UsageError(
                "--file needs the name of one target", hint="Name the target whose service wrote the files"
            )
        store, plans = self._opened.collected(), self._plans()
        return reconcile_targets(store, self.config, {name: plans[name] for name in chosen}, months, files, self.tools)

    def conservation(self, found: Reconciliation, by: By | None = None, *, with_tool: bool = False) -> Conservation:
        """The sums of source, store, sent, and service; `with_tool`: also those of the batch systems' own programs."""
        from publisher.reconcile.conservation import conservation  # noqa: PLC0415

        return conservation(self.store, self.config, self._plans(), found.targets, by, self.tools, with_tool=with_tool)

    def send_missing(self, found: Reconciliation) -> dict[str, Delivery]:
        """Send again what a reconciliation did not find at the services, under the same ids."""
        from publisher.reconcile.resend import send_missing  # noqa: PLC0415

        return send_missing(self.store, self.config, self._plans(), found, self.tools)

    def take_over_found(self, found: Reconciliation, evidence: str) -> dict[str, int]:
        """Record as delivered what a reconciliation found at the services and was never sent from here, as after a
        restore or in a new store. `evidence`: by what. How many jobs, by target."""
        from publisher.publish.decide import DeliveredBefore, assume  # noqa: PLC0415

        jobs = {}
        for name, one in found.targets.items():
            if one.delivered_jobs:
                delivered = DeliveredBefore(found.database.delivered_runs(name))
                with self._locked(name) as (plan, now), self.store.write() as connection:
                    jobs[name] = assume(connection, plan.target_id, name, delivered, evidence, now)
                    unsettled = {month.month.number: month.unsettled for month in one.months}
                    reconciliations.end_differences(connection, plan.target_id, jobs[name], unsettled)
        return jobs

    # --- the messages that publishing would send

    def rendering(
        self, format_name: str, target: str | None, window: Window, *, with_sync: bool = False
    ) -> Rendering | ReportRendering:
        """The messages that publish would send; nothing is sent or changed. `with_sync`: also those of sync counts.

        `utilization` without a target is that of the window, or of the 30 days up to its end, or up to now.
        """
        from publisher.preview.render import Rendering, ReportRendering  # noqa: PLC0415

        form, store, now = self._require_message(format_name, target), self._opened.collected(), self.tools.clock()
        if target is None and form.shape == "report":
            return ReportRendering(store, self.config, format_name, window, now)
        return Rendering(store, self.config, format_name, target, window, now, with_sync=with_sync)

    def comparison(self, format_name: str, target: str, window: Window) -> DiffRendering:
        """The records that publish would send beside those that were last delivered, without changing anything."""
        from publisher.preview.diff import DiffRendering  # noqa: PLC0415

        self._require_message(format_name, target)
        return DiffRendering(self._opened.collected(), self.config, format_name, target, window, self.tools.clock())

    def explanations(self, format_name: str, target: str | None, name: str) -> list[Explanation]:
        """Why each value is in the records of the runs with this record id, local id or global id."""
        from publisher.preview.explain import explanations  # noqa: PLC0415

        self._require_message(format_name, target)
        return explanations(self._opened.collected(), self.config, format_name, target, name, self.tools.clock())

    # --- reports, and the archive

    def view(self, name: str, request: ReportRequest) -> Report:
        """A report of any view (`publisher.report.view_kind.VIEW_KINDS`): columns, rows, and what a picture shows."""
        from publisher.report.views import make  # noqa: PLC0415

        return make(name, self._report_context(request), request)

    def statements(
        self, request: ReportRequest, directory: Path, kinds: tuple[Kind, ...]
    ) -> tuple[Statements, StatementFiles]:
        """Write the statements of a whole month into a folder: what they say, and the files."""
        from publisher.report.statements.files import write  # noqa: PLC0415
        from publisher.report.views.charges import statements  # noqa: PLC0415

        made = statements(self._report_context(request), request)
        return made, write(made, directory, kinds)

    def focus(self, request: ReportRequest, directory: Path, form: FocusForm) -> tuple[Statements, Path]:
        """Write the statements of a whole month into a folder in FOCUS: what they say, and the file."""
        from publisher.report.statements.focus import write_focus  # noqa: PLC0415
        from publisher.report.views.charges import statements  # noqa: PLC0415

        made = statements(self._report_context(request), request)
        return made, write_focus(made, directory, form)

    def allocations(self) -> list[AllocationUse]:
        """The use of each allocation now. Raises `UsageError` and `ConfigError`."""
        from publisher.report.views.allocations import uses  # noqa: PLC0415

        return uses(self._store_context())

    def close_month(self, month: Month) -> list[ClosedStatement]:
        """Close a month: the statements that were issued. Raises `UsageError`."""
        from publisher.report.closing import close  # noqa: PLC0415

        return close(self._store_context(), month)

    def cancel_month(self, month: Month, reason: str) -> list[ClosedStatement]:
        """Cancel the statements of a closed month, and issue their successors. Raises `UsageError`."""
        from publisher.report.closing import cancel  # noqa: PLC0415

        return cancel(self._store_context(), month, reason)

    def closed_months(self) -> list[ClosedMonth]:
        """The closed months, with their statements and open corrections."""
        from publisher.report.closing import closed  # noqa: PLC0415

        return closed(self._store_context())

    def archive(
        self, directory: Path, start: int | None = None, stop: int | None = None, *, shrink: bool = False
    ) -> dict[str, Written]:
        """Write the finished runs of the whole months that an interval touches to an archive: by month, what was done.

        With `shrink`, months are replaced also where the store has fewer jobs than the archive.
        """
        from publisher.report.archive_export import export_months  # noqa: PLC0415 - loads Arrow

        return export_months(self._opened.collected(), self.config, directory, start, stop, shrink=shrink)

    # --- state

    def check(self) -> list[Finding]:
        """Everything that a run will need, tested: one finding each. Sends no records."""
        from publisher.report.check_files import check_files  # noqa: PLC0415
        from publisher.status.check import check  # noqa: PLC0415

        findings = check(self.config, self._opened.if_there, self.tools.clock)
        return [*findings, *check_files(self.config, self.tools.clock())]

    def status(self, *, assumed: bool = True) -> Status:
        """The state of all that is configured. `assumed`: with how many jobs count as delivered by an earlier
        publisher, which takes 0.25 s for each million of them."""
        from publisher.status.status import status  # noqa: PLC0415

        return status(self._opened.if_there(), self.config, self.tools.clock, assumed=assumed)

    @property
    def history(self) -> History:
        """The runs of the program with this store."""
        from publisher.recording import History  # noqa: PLC0415

        return History(self._opened, self.tools.clock, self.config.store.keep_history)

    def written_contexts(self) -> dict[str, str]:
        """Write to the spooling contexts what they lack; then as `context_errors`."""
        return self._opened.written_contexts()

    def context_errors(self) -> dict[str, str]:
        """By name, the spooling contexts that could not be written since this was last asked, or still cannot be, and
        why; also of a publisher that was closed."""
        return self._opened.context_errors()

    def job(self, name: str) -> list[KnownRun]:
        """The runs with this record id, global id, or local id (with or without the source's prefix; for an array
        all tasks), where each was delivered, and why each target that does not select it does not."""
        from publisher.status.jobs import JobFilter  # noqa: PLC0415

        return self.job_found(name, Window(), JobFilter(), None).jobs

    def job_found(self, name: str, window: Window, chosen: JobFilter, limit: int | None = 100) -> FoundJobs:
        """Those of `job` that ended in a window and are selected, and how many there are. None: all of them."""
        from publisher.status.jobs import FoundJobs, named  # noqa: PLC0415

        store = self._opened.if_there()
        if store is None:
            return FoundJobs(0, [])
        return named(store, self.config, name, window, chosen, limit)

    def jobs(self, window: Window, page: int = 1000) -> Iterator[KnownRun]:
        """Runs that ended in a window, by end time, and where each went. Memory does not grow with their number."""
        from publisher.status.jobs import ended_in  # noqa: PLC0415

        store = self._opened.if_there()
        return iter(()) if store is None else ended_in(store, window, page)

    def jobs_found(self, window: Window, chosen: JobFilter, limit: int | None = 100) -> FoundJobs:
        """The newest runs that ended in a window and are selected, and how many there are. None: all of them."""
        from publisher.status.jobs import FoundJobs, newest  # noqa: PLC0415

        store = self._opened.if_there()
        return FoundJobs(0, []) if store is None else newest(store, window, chosen, limit)

    def count_listed(self, state: State, target: str | None = None) -> dict[str, int]:
        """How many records of each target, or of one, are in a state."""
        from publisher.status.records import count  # noqa: PLC0415

        store, targets = self._opened.if_there(), self._targets(target)
        return {} if store is None else count(store, targets, state)

    def listed(
        self, state: State, target: str | None = None, limit: int | None = 1000, since: int | None = None
    ) -> list[ListedRecord]:
        """Records in a state, oldest first, at most `limit` of each target. `since`: see `records.listed`."""
        from publisher.status.records import listed  # noqa: PLC0415

        store, targets = self._opened.if_there(), self._targets(target)
        return [] if store is None else listed(store, targets, state, limit, since)

    def count_audit(self) -> int:
        """How many entries `audit` has."""
        with self._opened.reading() as connection:
            return 0 if connection is None else registry.count_actions(connection)

    def audit(self, limit: int | None = 1000) -> list[registry.AuditEntry]:
        """What people did, newest first; None: all of it."""
        with self._opened.reading() as connection:
            return [] if connection is None else registry.actions(connection, limit)

    def count_unreadable(self, sources: Sequence[str] = ()) -> int:
        """How many pieces of input are not a record: of these sources, or of all. `unreadable` lists what is kept."""
        with self._opened.reading() as connection:
            if connection is None:
                return 0
            self._require_sources(connection, sources)
            return unreadable_input.count_unreadable(connection, sources)

    def unreadable(
        self, limit: int | None = unreadable_input.LISTED, sources: Sequence[str] = ()
    ) -> list[unreadable_input.UnreadableRow]:
        """Input that is not a record, newest first: of these sources, or of all. `limit` None: all of it."""
        with self._opened.reading() as connection:
            if connection is None:
                return []
            self._require_sources(connection, sources)
            return unreadable_input.list_unreadable(connection, limit, sources)

    # --- decisions of people
    @contextmanager
    def alone_at(self, target: str) -> Iterator[TargetPlan]:
        """Inside the block no other process sends to a target. Raises `TargetBusyError` if another run has it."""
        with self._locked(target) as (plan, _now):
            yield plan

    def retry(self, state: State, target: str, record_ids: Sequence[str] = ()) -> int:
        """Let rejected, held or superseded records of a target wait again: those named, or all. How many they were."""
        from publisher.publish.decide import retry  # noqa: PLC0415

        with self._locked(target) as (plan, now), self.store.write() as connection:
            return retry(connection, plan, target, state, record_ids, now)

    def waive(self, state: State, target: str, record_ids: Sequence[str], reason: str) -> int:
        """Decide that rejected or held records are not to be sent, and why. How many they were."""
        from publisher.publish.decide import waive  # noqa: PLC0415

        with self._locked(target) as (plan, now), self.store.write() as connection:
            return waive(connection, plan, target, state, record_ids, reason, now)

    def settle_unreadable(
        self, reason: str, sources: Sequence[str] = (), chosen: suspects.PieceFilter = suspects.ALL_PIECES
    ) -> list[unreadable_input.UnreadableRow]:
        """Mark what `unreadable` lists, of these sources or all, as settled, with the reason. Return it."""
        from publisher.publish.decide import settle  # noqa: PLC0415

        with self._opened.collected().write() as connection:
            self._require_sources(connection, sources)
            return settle(connection, sources, reason, self.tools.clock(), chosen=chosen)

    def take_over_until(self, target: str, until: int) -> int:
        """Record what ended up to then, and was never sent from here, as delivered before. Return how many jobs."""
        from publisher.publish.decide import assume_until  # noqa: PLC0415

        with self._locked(target) as (plan, now), self.store.write() as connection:
            return assume_until(connection, plan.target_id, target, until, now)

    def take_over(self, target: str, found: DeliveredBefore, evidence: str) -> int:
        """Record runs never sent by this program, or summaries, as delivered by an earlier publisher. Return how
        many."""
        from publisher.publish.decide import assume  # noqa: PLC0415

        with self._locked(target) as (plan, now), self.store.write() as connection:
            return assume(connection, plan.target_id, target, found, evidence, now)

    # --- the store itself, and the spooling contexts that follow it

    @property
    def maintenance(self) -> StoreMaintenance:
        """Upkeep of the store itself. Raises `UsageError` where there is no store."""
        from publisher.maintenance import StoreMaintenance  # noqa: PLC0415
        from publisher.report.erased_columns import remove_erased  # noqa: PLC0415

        store = self._opened.collected()
        return StoreMaintenance(
            store, self.config, self.tools.clock, self._plans, erased=lambda: remove_erased(store, self.config),
            uncorrected=self._uncorrected,
        )  # fmt: skip

    def _uncorrected(self) -> set[Month]:
        """The months of which a closed month has open corrections."""
        with self.store.read() as connection:
            if not store_closings.closings_of(connection):
                return set()
        return {month for closed_month in self.closed_months() for month in closed_month.changes.uncorrected}

    def import_store(self, folder: Path) -> Manifest:
        """Store what was exported into a folder; the store is made, and must be empty."""
        from publisher.spool.exchange import import_  # noqa: PLC0415

        return import_(self.store, folder)

    def spool(self) -> list[ContextState]:
        """Write to the spooling contexts what they lack, and remove what they keep no longer; the state of each."""
        return self._opened.spool()

    # --- plans; look-up by name
    def _plans(self) -> dict[str, TargetPlan]:
        from publisher.collect.plan import prepare  # noqa: PLC0415

        return prepare(self.store, self.config, self.tools.clock())

    @contextmanager
    def _locked(self, target: str) -> Iterator[tuple[TargetPlan, int]]:
        """The plan of a target that no other process sends to meanwhile, and the time."""
        self._require([target], self.config.targets, "target")
        with self.store.lock(f"target-{target}") as held:
            if not held:
                raise TargetBusyError(target)
            yield self._plans()[target], self.tools.clock()

    def _report_context(self, request: ReportRequest) -> ReportContext:
        if request.archive is not None:
            return self._context_over(self._opened.if_there())
        return self._store_context()

    def _store_context(self) -> ReportContext:
        return self._context_over(self._opened.collected())

    def _context_over(self, store: Store | None) -> ReportContext:
        from publisher.report.runs import ReportContext  # noqa: PLC0415 - loads DuckDB and Arrow

        tools = self.tools
        return ReportContext(store, self.config, tools.clock(), tools.observer, tools.stopping)

    def _targets(self, target: str | None) -> Sequence[str]:
        """The one that is named, or all."""
        self._require([target] if target else [], self.config.targets, "target")
        return [target] if target else list(self.config.targets)

    def _require_message(self, format_name: str, target: str | None) -> Format:
        """The descriptor of a format.

        Raises `UsageError` for an unknown target or format, and for reports of a target that is not sent any.
        """
        self._targets(target)
        form = required_format(format_name)
        if target and form.shape == "report" and self.config.targets[target].records != format_name:
            hint = "Omit --target to see one of any window"
            raise UsageError(f"target {target} does not receive reports", hint=hint)
        return form

    def _require_sources(self, connection: Connection, names: Sequence[str]) -> None:
        """Sources that are configured, or were once and were read."""
        unread = [name for name in names if registry.get_source(connection, name) is None]
        self._require(unread, self.config.sources, "source")

    @staticmethod
    def _require(names: Sequence[str], known: Mapping[str, object], what: str) -> None:
        if unknown := [name for name in names if name not in known]:
            raise UsageError(unknown_name(what, unknown[0], known))
