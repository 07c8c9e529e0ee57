"""Runs of two sources with one key at APEL: the first is sent and the second is held, or it would replace the first.

APEL knows a job record by site, LocalJobId, and end time, not by the computing element (facts on formats, 4.8). Whether
two such runs are one job that two sources tell of, or two jobs of batch systems that number alike, only a person knows.
The first is the one that the service has, or may have; else the one that was stored first. That is an order, so that of
several publishers none holds both.

One that cannot be rendered, and so is held, does not stand in the way of the other. One that the service has counts
with the key that it was sent with, also where it has another one since (`rekeyed`).

Runs are looked up by their local ids and ends, a page at a time: as they are spelt, and in upper and lower case. A
store with one source asks for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import Connection

from formats.apel_key import job_key
from formats.fit import shown
from formats.job import Job
from formats.record import CannotRenderError, RecordFormat
from formats.view import View
from publisher.config import JOB_RECORD_KINDS, Config
from publisher.pipeline import rekeyed
from publisher.pipeline.demand import Demand
from publisher.store import deliveries, registry, runs
from publisher.store.runs import StoredRun
from publisher.store.states import State

_LAST: Final = (True, 2**63)
"""The place of a run that is looked at without being about to be sent, as one that is held."""


class DuplicateGuard:
    """Of one target. `target_id` None: it was never planned for, and all that `is_wanted` waits."""

    def __init__(
        self,
        config: Config,
        form: RecordFormat,
        view: View,
        demand: Demand,
        target_id: int | None,
        is_wanted: Callable[[StoredRun], bool] = lambda _run: False,
    ) -> None:
        """`form` is the format that the target is sent."""
        self._form = form
        self._view = view
        self._demand = demand
        self._target_id = target_id
        self._is_wanted = is_wanted
        self._source_prefixes = config.local_id_prefixes
        self._prefixes = {"", *config.local_id_prefixes.values()}
        self._has_prefixes = self._prefixes != {""}
        self._applies: bool | None = None if form.name in JOB_RECORD_KINDS else False

    def held(self, connection: Connection, page: Sequence[StoredRun]) -> dict[int, str]:
        """Those of these runs that are to be held, by run id, each with the reason, which names both."""
        if self._applies is None:
            self._applies = registry.has_several_sources(connection)
        if not self._applies:
            return {}
        earlier = {} if self._target_id is None else rekeyed.sent_otherwise(connection, self._target_id)
        pairs = self._same_end_and_id(connection, page, earlier)
        if not pairs:
            return {}
        others = {run.run_id: run for run in runs.by_ids(connection, sorted({other for _, other in pairs}))}
        first = self._order(connection, [*others.values(), *(run for run, _ in pairs)])
        reasons: dict[int, str] = {}
        for run, other_id in pairs:
            other = others[other_id]
            if other.source == run.source or other_id not in first:
                continue
            is_there = not first[other_id][0]
            if is_there:  # then it counts as it was sent, whatever became of it since
                job = earlier.get(other_id, other.job)
                other = msgspec.structs.replace(other, job=job, awaits_grid_log=False)
            place = first.get(run.run_id, _LAST)
            if first[other_id] < place and self._replaces(run, other, is_there=is_there):
                reasons.setdefault(run.run_id, _reason(run, other))
        return reasons

    def _same_end_and_id(
        self, connection: Connection, page: Sequence[StoredRun], earlier: Mapping[int, Job]
    ) -> list[tuple[StoredRun, int]]:
        """Runs of the page, each with the id of another that ended then and may have its local id, or was sent so."""
        by_key: dict[tuple[str, int], list[StoredRun]] = {}
        asked = 0
        for run in page:
            local_id, end = run.job.local_id, run.job.end
            if local_id and end is not None:
                asked += 1
                for spelling in self._spellings(run.source, local_id):
                    by_key.setdefault((spelling, end), []).append(run)
        rows = runs.named(connection, list(by_key))
        if not earlier and len(rows) == asked and max(map(len, by_key.values()), default=1) == 1:
            return []  # nothing but the page itself, as nearly always
        rows += [(run_id, job.local_id, job.end) for run_id, job in earlier.items()]
        return [
            (run, run_id)
            for run_id, local_id, end in rows
            for run in by_key.get((local_id, end), ())
            if run_id != run.run_id
        ]

    def _spellings(self, source: str, local_id: str) -> Collection[str]:
        """Local ids, as their sources have them, that may be the same at APEL, where case does not count."""
        if not self._has_prefixes and local_id.isdigit():
            return (local_id,)
        whole = self._source_prefixes.get(source, "") + local_id
        given = {whole.removeprefix(prefix) for prefix in self._prefixes if whole.startswith(prefix)} - {""}
        return {spelling for each in given for spelling in (each, each.lower(), each.upper())}

    def _order(self, connection: Connection, found: Sequence[StoredRun]) -> dict[int, tuple[bool, int]]:
        """The order of the runs that are at the service, may be, or wait, by run id; others are left out."""
        if self._target_id is None:
            return {run.run_id: (True, run.run_id) for run in found if self._is_wanted(run)}
        order: dict[int, tuple[bool, int]] = {}
        standings = deliveries.standings_of(connection, self._target_id, sorted({run.run_id for run in found}))
        for run_id, standing in standings.items():
            is_there = standing.sent or standing.state in {State.ACCEPTED, State.IN_FLIGHT}
            if is_there or standing.state is State.WAITING:
                order[run_id] = (not is_there, run_id)
        return order

    def _replaces(self, run: StoredRun, other: StoredRun, *, is_there: bool) -> bool:
        """Whether a run has the key of another, which is at the service, or waits and can be sent."""
        try:
            job, other_job = self._demand.identified(run), self._demand.identified(other)
            if not is_there:
                self._form.record(self._demand.meet(other), other.stored_at)
        except CannotRenderError:
            return False
        return job_key(job, self._view) == job_key(other_job, self._view)


def _reason(run: StoredRun, first: StoredRun) -> str:
    return (
        f"LocalJobId: this run of source {run.source} and {shown(first.record_id)} of source {first.source} have the "
        f"same site, local id {shown(run.job.local_id)}, and end time, by which APEL knows a job record: it would "
        "replace that one. If both are the same job, waive this one. If not, set a `local_id_prefix` for one of the "
        "sources; this one is then tried again. If that one will not be sent, because it was rejected or waived, name "
        "this one to `held retry`"
    )
