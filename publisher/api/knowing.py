"""What is known: of the site, of a job, of what is rejected, held or unreadable, of what people did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from publisher.api.opened import Opened
from publisher.pipeline import recall
from publisher.pipeline.status import Status, status
from publisher.sources.base import Window
from publisher.store import audit, ledger, registry
from publisher.store.states import State

if TYPE_CHECKING:
    from publisher.finding import Finding
    from publisher.pipeline.recall import KnownRun


class ListedRecord(msgspec.Struct, frozen=True):
    """A record that is rejected or held, and why."""

    target: str
    record_id: str
    end_time: int
    reason: str


class Knowing(Opened):
    """See the module."""

    def check(self) -> list[Finding]:
        """Everything that a run will need, tested: one finding each. Sends no records."""
        from publisher.pipeline.check import check  # noqa: PLC0415

        return check(self.config, self._store_if_there, self.tools.clock)

    def status(self, *, assumed: bool = True) -> Status:
        """The state of everything that is configured.

        `assumed`: with how many jobs count as delivered before us, which takes 0.25 s for each million of them.
        """
        return status(self._store_if_there(), self.config, self.tools.clock, assumed=assumed)

    def job(self, name: str) -> list[KnownRun]:
        """The runs with this record id, global id or local id (with or without the source's prefix), where each went,
        and why each target that does not want it does not."""
        from publisher.pipeline.unwanted import why_unwanted  # noqa: PLC0415 - loads the rules, which lists need not

        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            runs = recall.found(connection, name, self.config.local_id_prefixes)
            unwanted = why_unwanted(connection, self.config, self.config.targets, runs)
            return [
                recall.KnownRun(run, recall.whereabouts(connection, run.run_id), unwanted[run.run_id]) for run in runs
            ]

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
                for record_id, end, reason, _run_id in ledger.listed(connection, row.id, state, limit):
                    found.append(ListedRecord(name, record_id, end, reason or ""))
        return found

    def audit(self, limit: int = 1000) -> list[audit.Entry]:
        """What people did, newest first."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            return audit.entries(connection, limit)

    def unreadable(self, limit: int = registry.LISTED, sources: Sequence[str] = ()) -> list[registry.UnreadableRow]:
        """Input that is no record, newest first: of these sources, or of all."""
        store = self._store_if_there()
        if store is None:
            return []
        with store.read() as connection:
            self._require_sources(connection, sources)
            return registry.list_unreadable(connection, limit, sources)
