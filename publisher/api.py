"""What the commands do, as a library: `Publisher` holds a configuration and its store.

    publisher = Publisher.from_file(Path("publisher.toml"))
    publisher.collect()
    publisher.publish()
    print(publisher.status().complete)

Every method raises the errors of `publisher.errors`; trouble with one source or target is in its result.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from publisher import config_file
from publisher.config import REPORT_KINDS, Config
from publisher.errors import StoreMissingError, UsageError
from publisher.observe.events import Observer, TargetPaused, ignore
from publisher.pipeline import outbox, recall
from publisher.pipeline.collect import Collected, TargetPlan, collect
from publisher.pipeline.status import Status, status
from publisher.pipeline.tools import Tools
from publisher.sources.apart import ReadApart
from publisher.sources.base import Window
from publisher.store import audit, deliveries, registry
from publisher.store.database import Store, open_store
from publisher.store.states import State

if TYPE_CHECKING:
    from formats.month import Month
    from publisher.finding import Finding
    from publisher.keeper import Keeper
    from publisher.pipeline.circuit import Circuits
    from publisher.pipeline.compare import Comparison
    from publisher.pipeline.deliver import Delivery
    from publisher.pipeline.explain import Explanation
    from publisher.pipeline.recall import KnownRun
    from publisher.pipeline.reconcile import Reconciliation
    from publisher.pipeline.render import Rendering
    from publisher.pipeline.report_render import TargetReports
    from publisher.pipeline.republish import RepublishPlan
    from publisher.report.charges import Statements
    from publisher.report.reading import Context
    from publisher.report.reports import ReportRendering, Totals, Utilization
    from publisher.report.request import ReportRequest
    from publisher.report.result import Report
    from publisher.report.statements import Kind
    from publisher.scale.export import Written
    from publisher.spool.exchange import Manifest
    from publisher.spool.spooler import ContextState, Spooler


class RunResult(msgspec.Struct, frozen=True):
    """What a run did: collected by source, delivered by target. `busy`: another run is collecting."""

    sources: dict[str, Collected]
    targets: dict[str, Delivery]
    busy: bool = False


class ListedRecord(msgspec.Struct, frozen=True):
    """A record that is rejected or held, and why."""

    target: str
    record_id: str
    end_time: int
    reason: str


def wall_clock() -> int:
    """Epoch seconds now."""
    return int(time.time())


class Publisher:
    """A site's publisher. Close it, or use it in a `with` statement."""

    def __init__(self, config: Config, tools: Tools | None = None, *, read_only: bool = False) -> None:
        self.config = config
        self._read_only = read_only
        self.tools = tools or Tools(wall_clock, ignore)
        self._store: Store | None = None
        self.spooler: Spooler | None = None
        """What keeps the spooling contexts of the configuration up with the store, once it is opened."""

    @classmethod
    def from_file(cls, path: Path | None = None, tools: Tools | None = None, *, read_only: bool = False) -> Self:
        """With the configuration of a file; with `read_only` the store cannot be written. Raises `ConfigError`."""
        return cls(config_file.load(path), tools, read_only=read_only)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; spooling contexts get what they have not got."""
        if self.spooler is not None:
            self.spooler.shutdown()
            self.spooler = None
        if self._store is not None:
            self._store.close()
            self._store = None

    def observed_by(self, observer: Observer) -> Publisher:
        """The same publisher telling its events to this observer."""
        return Publisher(self.config, msgspec.structs.replace(self.tools, observer=observer), read_only=self._read_only)

    @property
    def store(self) -> Store:
        """The opened store; made where it is missing."""
        if self._store is None:
            settings = self.config.store
            self._store = self._spooled(open_store(settings.url, settings.busy_timeout, read_only=self._read_only))
        return self._store

    # --- the main job

    def collect(self, names: Sequence[str] = (), window: Window | None = None) -> dict[str, Collected] | None:
        """Read sources into the store: those named, or all. None where another process is collecting."""
        self._require(names, self.config.sources, "source")
        if not self.config.sources:
            raise UsageError("no source is configured", hint="Add a table [sources.NAME] to the configuration")
        chosen = names or list(self.config.sources)
        made = {name: ReadApart(name, self.config.sources[name]) for name in chosen}
        with self.store.lock("collect") as held:
            if not held:
                return None
            plans = list(self._plans().values())
            return {
                name: collect(
                    self.store,
                    source,
                    plans,
                    self.tools.clock,
                    self.tools.observer,
                    window,
                    self.config.sources[name].grid_log,
                    self.tools.stopping,
                )
                for name, source in made.items()
                if not self.tools.stopping()
            }

    def publish(
        self, names: Sequence[str] = (), *, only_due: bool = False, circuits: Circuits | None = None
    ) -> dict[str, Delivery]:
        """Send everything undelivered: to the targets named, or to all. `only_due`: not oftener than `every`.

        `circuits`: those of a program that stays, which asks a failing service less often.
        """
        from publisher.pipeline.deliver import deliver_all  # noqa: PLC0415 - loads the network, which most commands need not

        self._require(names, self.config.targets, "target")
        if not self.config.targets:
            raise UsageError("no target is configured", hint="Add a table [targets.NAME] to the configuration")
        plans = self._plans()
        chosen = {name: plans[name] for name in names or self.config.targets}
        return deliver_all(self.store, self.config, chosen, self.tools, only_due=only_due, circuits=circuits)

    def run(self, circuits: Circuits | None = None) -> RunResult:
        """Collect and publish: what the timer calls, or, with `circuits`, a program that stays."""
        collected = self.collect()
        delivered = self.publish(only_due=True, circuits=circuits)
        return RunResult(collected or {}, delivered, busy=collected is None)

    def plan_republish(self, target: str, window: Window, *, only_missing: bool = False) -> RepublishPlan:
        """What sending a window again to a target would mean."""
        from publisher.pipeline.republish import plan_republish  # noqa: PLC0415
        from publisher.store.purged import require_unpurged  # noqa: PLC0415

        self._require([target], self.config.targets, "target")
        plan = self._plans()[target]
        from_, until = self._whole_periods(target, window)
        with self.store.read() as connection:
            require_unpurged(connection, from_, until)
            return plan_republish(connection, plan, from_, until, only_missing=only_missing)

    def republish(self, target: str, window: Window, *, only_missing: bool = False) -> Delivery:
        """Send a window again to a target."""
        from publisher.pipeline.deliver import deliver  # noqa: PLC0415
        from publisher.pipeline.republish import let_wait_again  # noqa: PLC0415

        meaning = self.plan_republish(target, window, only_missing=only_missing)
        if self.config.targets[target].shadow:
            raise UsageError(
                f"{target} is a shadow: nothing is sent to it", hint="Take out `shadow` of the target first"
            )
        plan = self._plans()[target]
        with self.store.lock(f"target-{target}") as held:
            if not held:
                raise UsageError(f"another run is at work for target {target}", hint="Try again when it is done")
            with self.store.write() as connection:
                let_wait_again(connection, plan, target, meaning, self.tools.clock(), only_missing=only_missing)
        return deliver(self.store, self.config, target, plan, self.tools)

    def reconcile(
        self, names: Sequence[str] = (), months: Sequence[Month] | None = None, file: Path | None = None
    ) -> Reconciliation:
        """What was sent beside what the services have: of the targets named, or of all; close it when done.

        `months` None: this one and the one before or, of a file, those that it tells of. `file`: CSV or JSON of what
        the service of one target has. What was seen there is confirmed in the ledger.
        """
        from publisher.pipeline.reconcile import Reconciliation, reconcile  # noqa: PLC0415

        self._require(names, self.config.targets, "target")
        chosen = list(names or self.config.targets)
        if file is not None and len(chosen) != 1:
            raise UsageError("a file is about one target", hint="Name the target whose service it tells of")
        store = self._collected_store()
        plans = self._plans()
        found = Reconciliation()
        try:
            for name in chosen:
                found.targets[name] = reconcile(
                    store, self.config, name, plans[name], months, file, self.tools, found.scratch
                )
        except BaseException:
            found.scratch.close()
            raise
        return found

    def send_missing(self, found: Reconciliation) -> dict[str, Delivery]:
        """Send again what a reconciliation did not find at the services, under the same ids."""
        from publisher.pipeline.deliver import deliver  # noqa: PLC0415
        from publisher.pipeline.reconcile import let_go_again  # noqa: PLC0415

        plans = self._plans()
        delivered = {}
        for name, one in found.targets.items():
            if not (one.again_jobs or one.again_groups):
                continue
            with self._deciding(name) as (_, now):
                let_go_again(self.store, plans[name], self.config.targets[name], one, found.scratch, now)
            delivered[name] = deliver(self.store, self.config, name, plans[name], self.tools)
        return delivered

    def comparison(self, format_name: str, target: str, window: Window) -> Comparison | TargetReports:
        """The records that publish would send beside those that were last delivered, without changing anything."""
        from publisher.pipeline.compare import Comparison  # noqa: PLC0415

        self._require([target], self.config.targets, "target")
        self._require_format(format_name)
        if format_name in REPORT_KINDS:
            return self._reports_of(target, format_name, window)
        return Comparison(self._collected_store(), self.config, format_name, target, window)

    def explanations(self, format_name: str, target: str | None, name: str) -> list[Explanation]:
        """Why each value stands in the records of the runs with this record id, local id or global id."""
        from publisher.pipeline.explain import explanations  # noqa: PLC0415

        self._require([target] if target else [], self.config.targets, "target")
        self._require_format(format_name)
        return explanations(self._collected_store(), self.config, format_name, target, name)

    def report(self, request: ReportRequest) -> Utilization:
        """Queue and CPU utilization of an interval, as DQS measures them."""
        from publisher.report.reports import utilization  # noqa: PLC0415

        return utilization(self._reporting(request), request)

    def totals(self, request: ReportRequest) -> Totals:
        """What the runs used that ended in an interval, by up to two keys."""
        from publisher.report.reports import totals  # noqa: PLC0415

        return totals(self._reporting(request), request)

    def view(self, name: str, request: ReportRequest) -> Report:
        """A report of any view (`publisher.report.result.VIEWS`): columns, rows, and what a picture shows."""
        from publisher.report.views import make  # noqa: PLC0415

        return make(name, self._reporting(request), request)

    def archive(
        self, directory: Path, start: int | None = None, stop: int | None = None, *, shrink: bool = False
    ) -> dict[str, Written]:
        """Write the finished runs of the whole months that an interval touches to an archive; what became of each.

        With `shrink`, months are replaced also where the store has fewer runs than the archive.
        """
        from publisher.report.stored import StoreRuns  # noqa: PLC0415
        from publisher.scale.export import export_month  # noqa: PLC0415 - loads Arrow
        from publisher.store.columns import months_ended_in  # noqa: PLC0415

        store = self._collected_store()
        with store.read() as connection:
            months = months_ended_in(connection, start, stop)
        runs = StoreRuns(store, self.config)
        written = {str(month): export_month(runs, month, directory, shrink=shrink) for month in months}
        return {month: one for month, one in written.items() if one.entries}

    def statements(
        self, request: ReportRequest, directory: Path, kinds: tuple[Kind, ...]
    ) -> tuple[Statements, list[Path]]:
        """Write the statements of a whole month into a folder: what they say, and the files."""
        from publisher.report.charges import statements  # noqa: PLC0415
        from publisher.report.statements import write  # noqa: PLC0415

        made = statements(self._reporting(request), request)
        return made, write(made, directory, kinds)

    def _reporting(self, request: ReportRequest) -> Context:
        from publisher.report.reading import Context  # noqa: PLC0415

        store = self._collected_store() if request.archive is None else self._store_if_there()
        return Context(store, self.config, self.tools.clock())

    def rendering(
        self, format_name: str, target: str | None, window: Window
    ) -> Rendering | ReportRendering | TargetReports:
        """The messages that publish would send, without sending and without changing anything.

        `utilization` without a target is that of the window, or of the 30 days up to its end, or up to now.
        """
        from publisher.pipeline.render import Rendering  # noqa: PLC0415

        self._require([target] if target else [], self.config.targets, "target")
        self._require_format(format_name)
        if format_name in REPORT_KINDS:
            if target is not None:
                return self._reports_of(target, format_name, window)
            from publisher.report.reports import ReportRendering  # noqa: PLC0415
            from publisher.report.request import LAST_DAYS_S, ReportRequest  # noqa: PLC0415

            stop = self.tools.clock() if window.until is None else window.until
            start = stop - LAST_DAYS_S if window.from_ is None else window.from_
            request = ReportRequest(start=start, stop=stop)
            return ReportRendering(self._collected_store(), self.config, request, self.tools.clock())
        return Rendering(self._collected_store(), self.config, format_name, target, window)

    @staticmethod
    def _require_format(name: str) -> None:
        from publisher.forms import require_format  # noqa: PLC0415 - loads the formats, which most commands need not

        require_format(name)

    def _reports_of(self, target: str, format_name: str, window: Window) -> TargetReports:
        from publisher.pipeline.report_render import TargetReports  # noqa: PLC0415

        if self.config.targets[target].records != format_name:
            raise UsageError(
                f"target {target} is not sent reports", hint="Leave --target away to see one of any window"
            )
        return TargetReports(self._collected_store(), self.config, target, window, self.tools.clock())

    def _collected_store(self) -> Store:
        store = self._store_if_there()
        if store is None:
            raise UsageError("nothing was collected yet", hint="Run `usage-publisher collect` first")
        return store

    def check(self) -> list[Finding]:
        """Everything that a run will need, tested: one finding each. Sends no records."""
        from publisher.pipeline.check import check  # noqa: PLC0415

        return check(self.config, self._store_if_there, self.tools.clock)

    # --- what is known

    def status(self) -> Status:
        """The state of everything that is configured."""
        return status(self._store_if_there(), self.config, self.tools.clock)

    def job(self, name: str) -> list[KnownRun]:
        """The runs with this record id, local id or global id, and where each went."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            return recall.known_runs(connection, name)

    def jobs(self, window: Window, page: int = 1000) -> Iterator[KnownRun]:
        """Runs that ended in a window, by end time, and where each went. Memory does not grow with their number."""
        store = self._store_if_there()
        after: tuple[int, int] | None = None
        while store is not None:
            with store.read() as connection:
                found = [
                    recall.KnownRun(run, recall.whereabouts(connection, run.run_id))
                    for run, _class_id in recall.runs_in(connection, window.from_, window.until, after, page)
                ]
            yield from found
            if len(found) < page:
                return
            last = found[-1].run
            after = (last.job.end or 0, last.run_id)

    def listed(self, state: State, target: str | None = None, limit: int = 1000) -> list[ListedRecord]:
        """Records that are rejected or held, oldest first."""
        self._require([target] if target else [], self.config.targets, "target")
        store = self._store_if_there()
        found: list[ListedRecord] = []
        if store is None:
            return found
        with store.read() as connection:
            for name in [target] if target else self.config.targets:
                row = registry.get_target(connection, name)
                if row is None:
                    continue
                for record_id, end, reason, _run_id in deliveries.listed(connection, row.id, state, limit):
                    found.append(ListedRecord(name, record_id, end, reason or ""))
        return found

    def audit(self, limit: int = 1000) -> list[audit.Entry]:
        """What people did, newest first."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            return audit.entries(connection, limit)

    def unreadable(self, limit: int = 1000) -> list[registry.UnreadableRow]:
        """Input that is no record, newest first."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            return registry.list_unreadable(connection, limit)

    def import_store(self, folder: Path) -> Manifest:
        """Put what was exported into the store, which is made; it must be empty."""
        from publisher.spool.exchange import import_  # noqa: PLC0415

        return import_(self.store, folder)

    def spool(self) -> list[ContextState]:
        """Write to the spooling contexts what they have not got, tidy up, and tell how they are."""
        if self._store_if_there() is None or self.spooler is None:
            return []
        self.spooler.maintain()
        return self.spooler.states()

    @property
    def keeper(self) -> Keeper:
        """What looks after the store itself. Raises `UsageError` as long as there is none."""
        from publisher.keeper import Keeper  # noqa: PLC0415 - most commands need it not

        store = self._store_if_there()
        if store is None:
            raise UsageError("there is no store yet", hint="Run `usage-publisher collect` first")
        return Keeper(store, self.config, self.tools.clock, self._plans)

    # --- what people decide

    def retry(self, state: State, target: str, record_ids: Sequence[str] = ()) -> int:
        """Let rejected or held records of a target wait again: those named, or all."""
        from publisher.pipeline.decide import retry  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return retry(connection, plan.target_id, target, state, record_ids, now)

    def waive(self, state: State, target: str, record_ids: Sequence[str], reason: str) -> int:
        """Decide that rejected or held records are not to be sent, and why."""
        from publisher.pipeline.decide import waive  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return waive(connection, plan, target, state, record_ids, reason, now)

    def take_over_until(self, target: str, until: int) -> int:
        """Put down what ended up to then, and was never sent from here, as delivered before us; gives how many jobs."""
        from publisher.pipeline.take_over import assume_until  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return assume_until(connection, plan.target_id, target, until, now)

    def take_over(self, target: str, run_ids: Sequence[int], told: str) -> int:
        """Put down these runs, where they were never sent from here, as delivered before us; `told`: by what."""
        from publisher.pipeline.take_over import assume_runs  # noqa: PLC0415

        with self._deciding(target) as (plan, now), self.store.write() as connection:
            return assume_runs(connection, plan.target_id, target, run_ids, told, now)

    # --- inner

    @contextmanager
    def alone_at(self, target: str) -> Iterator[TargetPlan]:
        """Within this, no other process sends to a target. Raises `UsageError` where one is at work."""
        with self._deciding(target) as (plan, _now):
            yield plan

    @contextmanager
    def _deciding(self, target: str) -> Iterator[tuple[TargetPlan, int]]:
        self._require([target], self.config.targets, "target")
        with self.store.lock(f"target-{target}") as held:
            if not held:
                raise UsageError(f"another run is at work for target {target}", hint="Try again when it is done")
            yield self._plans()[target], self.tools.clock()

    def _plans(self) -> dict[str, TargetPlan]:
        return outbox.prepare(self.store, self.config, self.tools.clock())

    def _store_if_there(self) -> Store | None:
        if self._store is None:
            settings = self.config.store
            try:
                store = open_store(settings.url, settings.busy_timeout, create=False, read_only=self._read_only)
            except StoreMissingError:
                return None
            self._store = self._spooled(store)
        return self._store

    def _spooled(self, store: Store) -> Store:
        """The store, with the spooling contexts of the configuration kept up with it."""
        if self.config.spool and not self._read_only:
            from publisher.spool.spooler import attach  # noqa: PLC0415 - a leaf, for those who want it

            try:
                self.spooler = attach(store, self.config.spool, self._tell_of_context)
            except BaseException:
                store.close()
                raise
        return store

    def _tell_of_context(self, name: str, trouble: str) -> None:
        self.tools.observer(TargetPaused(f"spool {name}", trouble))

    def _whole_periods(self, target: str, window: Window) -> tuple[int, int]:
        from formats.period import period_of  # noqa: PLC0415
        from publisher.config import SNAPSHOT_KINDS  # noqa: PLC0415
        from publisher.pipeline.wish import period_kind  # noqa: PLC0415

        if window.from_ is None or window.until is None or window.from_ >= window.until:
            raise UsageError("a window needs a beginning and a later end", hint="Give --from and --until")
        settings = self.config.targets[target]
        if settings.records not in SNAPSHOT_KINDS:
            return window.from_, window.until
        kind = period_kind(settings)
        return period_of(kind, window.from_).start, period_of(kind, window.until - 1).stop

    @staticmethod
    def _require(names: Sequence[str], known: Mapping[str, object], what: str) -> None:
        for name in names:
            if name not in known:
                there = ", ".join(known) or "none is configured"
                raise UsageError(f"there is no {what} {name!r}; there are: {there}")
