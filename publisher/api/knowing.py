"""What is known: of the site, of a job, of what is rejected, held or unreadable, of what people did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from formats.reason import Reason
from publisher.api.opened import Opened
from publisher.sources.base import Window
from publisher.status import jobs as status_jobs
from publisher.status.jobs import KnownRun
from publisher.status.status import Status, status
from publisher.store import deliveries, queries, registry
from publisher.store.runs import StoredRun
from publisher.store.schema import State

if TYPE_CHECKING:
    from publisher.finding import Finding

_PAGE: Final = 1000


class JobFilter(msgspec.Struct, frozen=True):
    """What runs are selected by; None: not by this. `state` is that of a delivery to any target."""

    user: str | None = None
    vo: str | None = None
    queue: str | None = None
    source: str | None = None
    state: State | None = None

    def selects(self, run: StoredRun) -> bool:
        """Whether a run is selected, but for the state of its deliveries."""
        job = run.job
        return (
            (self.user is None or self.user in {job.local_user, job.user_dn})
            and (self.vo is None or job.vo == self.vo)
            and (self.queue is None or job.queue == self.queue)
            and (self.source is None or run.source == self.source)
        )


class FoundJobs(msgspec.Struct, frozen=True):
    """How many runs were found, and the oldest of them."""

    total: int
    jobs: list[KnownRun]


class ListedRecord(msgspec.Struct, frozen=True):
    """A record that is rejected or held, and why."""

    target: str
    record_id: str
    end_time: int
    reason: Reason | None


class Knowing(Opened):
    """See the module."""

    def check(self) -> list[Finding]:
        """Everything that a run will need, tested: one finding each. Sends no records."""
        from publisher.status.check import check  # noqa: PLC0415

        return check(self.config, self._store_if_there, self.tools.clock)

    def status(self, *, assumed: bool = True) -> Status:
        """The state of everything that is configured.

        `assumed`: with how many jobs count as delivered before us, which takes 0.25 s for each million of them.
        """
        return status(self._store_if_there(), self.config, self.tools.clock, assumed=assumed)

    def job(self, name: str) -> list[KnownRun]:
        """The runs with this record id, global id or local id (with or without the source's prefix), where each went,
        and why each target that does not want it does not."""
        from publisher.collect.wants import why_unwanted  # noqa: PLC0415 - loads the rules, which lists need not

        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            runs = status_jobs.found(connection, name, self.config.local_id_prefixes)
            unwanted = why_unwanted(connection, self.config, self.config.targets, runs)
            return [
                status_jobs.KnownRun(run, status_jobs.whereabouts(connection, run.run_id), unwanted[run.run_id])
                for run in runs
            ]

    def jobs(self, window: Window, page: int = 1000) -> Iterator[KnownRun]:
        """Runs that ended in a window, by end time, and where each went. Memory does not grow with their number."""
        store = self._store_if_there()
        after: tuple[int, int] | None = None
        while store is not None:
            with store.read() as connection:
                found = [
                    status_jobs.KnownRun(run, status_jobs.whereabouts(connection, run.run_id))
                    for run, _class_id in queries.runs_in(connection, window.from_, window.until, after, page)
                ]
            yield from found
            if len(found) < page:
                return
            last = found[-1].run
            after = (last.job.end or 0, last.run_id)

    def jobs_found(self, window: Window, chosen: JobFilter, limit: int | None = 100) -> FoundJobs:
        """The oldest runs that ended in a window and are selected, and how many there are. None: all of them.

        With a filter every run of the window is looked at: some 20 s for a million of them.
        """
        store = self._store_if_there()
        if store is None:
            return FoundJobs(0, [])
        with store.read() as connection:
            whole = status_jobs.count_in(connection, window.from_, window.until) if chosen == JobFilter() else None
        total, shown = 0, list[KnownRun]()
        after: tuple[int, int] | None = None
        while True:
            with store.read() as connection:
                page = [run for run, _ in queries.runs_in(connection, window.from_, window.until, after, _PAGE)]
                found = [run for run in page if chosen.selects(run)]
                if chosen.state is not None:
                    ids = status_jobs.with_state(connection, [run.run_id for run in found], chosen.state)
                    found = [run for run in found if run.run_id in ids]
                total += len(found)
                for run in found if limit is None else found[: limit - len(shown)]:
                    shown.append(status_jobs.KnownRun(run, status_jobs.whereabouts(connection, run.run_id)))
            if whole is not None and len(shown) == limit:
                return FoundJobs(whole, shown)
            if len(page) < _PAGE:
                return FoundJobs(total, shown)
            after = (page[-1].job.end or 0, page[-1].run_id)

    def count_listed(self, state: State, target: str | None = None) -> dict[str, int]:
        """How many records of each target, or of one, are in a state."""
        self._require([target] if target else [], self.config.targets, "target")
        store = self._store_if_there()
        found: dict[str, int] = {}
        if store is None:
            return found
        with store.read() as connection:
            for name in [target] if target else self.config.targets:
                row = registry.get_target(connection, name)
                found[name] = deliveries.of_target(connection, row.id)[state] if row is not None else 0
        return found

    def listed(self, state: State, target: str | None = None, limit: int | None = 1000) -> list[ListedRecord]:
        """Records that are rejected, held or superseded, oldest first: at most so many of each target; None: all."""
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
                for record_id, end, reason, _run_id in queries.listed(connection, row.id, state, limit):
                    found.append(ListedRecord(name, record_id, end, reason))
        return found

    def count_audit(self) -> int:
        """How many entries `audit` has."""
        store = self._store_if_there()
        if store is None:
            return 0
        with store.read() as connection:
            return registry.count_actions(connection)

    def audit(self, limit: int | None = 1000) -> list[registry.AuditEntry]:
        """What people did, newest first; None: all of it."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            return registry.actions(connection, limit)

    def count_unreadable(self, sources: Sequence[str] = ()) -> int:
        """How many pieces of input are no record: of these sources, or of all. `unreadable` lists what is kept."""
        store = self._store_if_there()
        if store is None:
            return 0
        with store.read() as connection:
            self._require_sources(connection, sources)
            return registry.count_unreadable(connection, sources)

    def unreadable(
        self, limit: int | None = registry.LISTED, sources: Sequence[str] = ()
    ) -> list[registry.UnreadableRow]:
        """Input that is no record, newest first: of these sources, or of all. `limit` None: all of it."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            self._require_sources(connection, sources)
            return registry.list_unreadable(connection, limit, sources)
