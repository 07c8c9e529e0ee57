"""What brings jobs to the services: collect, publish, send again, compare with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from publisher.api.opened import Opened
from publisher.collect.collect import Collected, collect
from publisher.errors import TargetBusyError, UsageError
from publisher.sources.background import BackgroundReader
from publisher.sources.base import Window

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from formats.calendar import Month
    from publisher.collect.collect import TargetPlan
    from publisher.publish.circuit import Circuits
    from publisher.publish.publish import Delivery
    from publisher.publish.republish import RepublishPlan
    from publisher.reconcile.reconcile import Reconciliation


class RunResult(msgspec.Struct, frozen=True):
    """What a run did: collected by source, delivered by target. `busy`: another run is collecting."""

    sources: dict[str, Collected]
    targets: dict[str, Delivery]
    busy: bool = False


class Sending(Opened):
    """See the module."""

    def collect(self, names: Sequence[str] = (), window: Window | None = None) -> dict[str, Collected] | None:
        """Read sources into the store: those named, or all. None where another process is collecting."""
        self._require(names, self.config.sources, "source")
        if not self.config.sources:
            raise UsageError("no source is configured", hint="Add a table [sources.NAME] to the configuration")
        chosen = names or list(self.config.sources)
        made = {name: BackgroundReader(name, self.config.sources[name]) for name in chosen}
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
        from publisher.publish.publish import deliver_all  # noqa: PLC0415 - loads the network, which most commands need not

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
        """What sending a window again to a target would mean, and whether another run is at work for it."""
        self._require([target], self.config.targets, "target")
        plan = self._plans()[target]
        with self.store.lock(f"target-{target}") as free:
            pass  # only to learn whether it is: a run that comes meanwhile is not to find it taken
        with self.store.read() as connection:
            meaning = self._planned_again(connection, plan, target, window, only_missing=only_missing)
        return msgspec.structs.replace(meaning, busy=not free)

    def _planned_again(
        self, connection: Connection, plan: TargetPlan, target: str, window: Window, *, only_missing: bool
    ) -> RepublishPlan:
        from publisher.publish.republish import plan_republish  # noqa: PLC0415
        from publisher.store.admin.purge import require_unpurged  # noqa: PLC0415

        from_, until = self._whole_periods(target, window)
        require_unpurged(connection, from_, until)
        records = self.config.targets[target].records
        return plan_republish(connection, plan, records, from_, until, only_missing=only_missing)

    def republish(self, target: str, window: Window, *, only_missing: bool = False) -> Delivery:
        """Send a window again to a target."""
        from publisher.publish.publish import deliver  # noqa: PLC0415
        from publisher.publish.republish import let_wait_again  # noqa: PLC0415

        self._require([target], self.config.targets, "target")
        plan = self._plans()[target]
        with self.store.read() as connection:
            self._planned_again(connection, plan, target, window, only_missing=only_missing)
        if self.config.targets[target].shadow:
            raise UsageError(
                f"{target} is a shadow: nothing is sent to it", hint="Take out `shadow` of the target first"
            )
        with self.store.lock(f"target-{target}") as held:
            if not held:
                raise TargetBusyError(target)
            with self.store.write() as connection:
                meaning = self._planned_again(connection, plan, target, window, only_missing=only_missing)
                let_wait_again(connection, plan, target, meaning, self.tools.clock(), only_missing=only_missing)
        return deliver(self.store, self.config, target, plan, self.tools)

    def reconcile(
        self, names: Sequence[str] = (), months: Sequence[Month] | None = None, file: Path | None = None
    ) -> Reconciliation:
        """What was sent beside what the services have: of the targets named, or of all; close it when done.

        `months` None: this one and the one before or, of a file, those that it tells of. `file`: CSV or JSON of what
        the service of one target has. What was seen there is confirmed in the ledger.
        """
        from publisher.reconcile.reconcile import Reconciliation, reconcile  # noqa: PLC0415

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
        from publisher.publish.publish import deliver  # noqa: PLC0415
        from publisher.reconcile.reconcile import let_go_again  # noqa: PLC0415

        plans = self._plans()
        delivered = {}
        for name, one in found.targets.items():
            if not (one.again_jobs or one.again_groups):
                continue
            with self._deciding(name) as (_, now):
                let_go_again(self.store, plans[name], self.config.targets[name], one, found.scratch, now)
            delivered[name] = deliver(self.store, self.config, name, plans[name], self.tools)
        return delivered

    def _whole_periods(self, target: str, window: Window) -> tuple[int, int]:
        from formats.calendar import period_of  # noqa: PLC0415
        from publisher.collect.wants import period_kind  # noqa: PLC0415
        from publisher.config.schema import SNAPSHOT_KINDS  # noqa: PLC0415

        if window.from_ is None or window.until is None or window.from_ >= window.until:
            raise UsageError("a window needs a beginning and a later end", hint="Give --from and --until")
        settings = self.config.targets[target]
        if settings.records not in SNAPSHOT_KINDS:
            return window.from_, window.until
        kind = period_kind(settings)
        return period_of(kind, window.from_).start, period_of(kind, window.until - 1).stop
