"""Records that would count twice at APEL, replace another job there, or be ignored by Open XDMoD: they are held.

APEL identifies a job record by site, LocalJobId, and end time, not by the computing element.

**Two runs with one key** (of two sources): the first is sent, the second is held, or it would replace the first.
Whether they are one job that two sources have, or two jobs of batch systems with the same numbers, only a person knows.
The first is the one that the service has, or may have; else the one that was stored first. This order is the same for
all publishers, so they never hold both. A run that cannot be rendered, and so is held, does not block the other. A run
that the service has counts with the key with which it was sent, even if its key changed (`key_changed`). Runs are
looked up by local id (as spelled, and in upper and lower case) and end, a page at a time. A store with one source needs
no look-up. Open XDMoD's key has the job number alone, which two servers of one source may both give: there, runs with
one end are looked up, and compared by their keys.

**A delivered run whose key changed**: the run turns out to have another end time or local id. Its new record would be
counted in addition to the first, and only a person can have that one removed. Summaries need no guard, since a group
that vanished is sent with zero jobs; neither does SGAS, which identifies a record by its id alone.

Each page is checked when it is rendered (`is_key_changed`): a run may change while others are sent, or between a kill
and the run that settles what was in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, select

from formats.base import RecordFormat
from formats.fit import shown
from formats.job import Job
from formats.rule_codes import CannotRenderError, Reason
from formats.view import View
from publisher.collect.run_preparer import RunPreparer
from publisher.config.schema import Config
from publisher.plugins import format_of
from publisher.reason import ReasonCode
from publisher.store import deliveries, paging, registry, runs, schema
from publisher.store.classes import decode
from publisher.store.queries import SentVersion
from publisher.store.runs import version_of
from publisher.store.schema import State
from publisher.store.schema import deliveries as table
from publisher.store.stored_run import StoredRun

KEY_CHANGED: Final = Reason.of(ReasonCode.KEY_CHANGED)


def is_key_changed(connection: Connection, records: str, run: StoredRun, sent: SentVersion) -> bool:
    """Whether a run has another key than the version that was sent, which the service has, or may have."""
    if format_of(records).record_key is None or sent.may_be_one_of_several or sent.digest == run.digest:
        return False
    first = version_of(connection, run.run_id, sent.digest)
    return first is not None and _key(first) != _key(run.job)


def sent_otherwise(connection: Connection, target_id: int) -> dict[int, Job]:
    """By run id: the versions that the service has, or may have, of runs that have another key now.

    In any state of their deliveries, including waived and no longer selected ones. Goes through the earlier versions
    and looks up the delivery of each by its key: the reverse would read all deliveries of the target.
    """
    sent_digest = (
        select(table.c.sent_digest)
        .where(table.c.target_id == target_id, table.c.run_id == schema.versions.c.run_id)
        .scalar_subquery()
    )
    now_digest = select(schema.runs.c.digest).where(schema.runs.c.id == schema.versions.c.run_id).scalar_subquery()
    query = select(schema.versions.c.run_id, schema.versions.c.job).where(
        schema.versions.c.digest == sent_digest, schema.versions.c.digest != now_digest
    )
    earlier = [(row[0], row[1]) for row in connection.execute(query)]
    jobs = {run_id: decode(blob, b"", f"number {run_id}, an earlier version") for run_id, blob in earlier}
    present = runs.by_ids(connection, list(jobs))
    return {run.run_id: jobs[run.run_id] for run in present if _key(jobs[run.run_id]) != _key(run.job)}


def forget_first(connection: Connection, target_id: int, run_ids: Sequence[int]) -> None:
    """A person confirms that the service no longer has the first versions of those of these runs that are held for
    it."""
    query = select(table.c.run_id).where(table.c.target_id == target_id, table.c.reason == ReasonCode.KEY_CHANGED.value)
    stored = paging.rows_in(connection, query, table.c.run_id, run_ids)
    deliveries.forget_sent_versions(connection, target_id, [row[0] for row in stored])


def _key(job: Job) -> tuple[str | None, int | None]:
    return job.local_id, job.end


_LAST: Final = (True, 2**63)
"""The place of a run that is not about to be sent, for example a held one."""


class DuplicateGuard:
    """The guard of one target. `target_id` None: deliveries were never planned, and all that `is_selected` waits."""

    def __init__(
        self,
        config: Config,
        form: RecordFormat,
        view: View,
        preparer: RunPreparer,
        target_id: int | None,
        is_selected: Callable[[StoredRun], bool] = lambda _run: False,
        as_waiting: ColumnElement[bool] | None = None,
    ) -> None:
        """`form`: the format that the target is sent; `as_waiting`: deliveries that count as waiting."""
        self._as_waiting = as_waiting
        self._form = form
        self._view = view
        self._preparer = preparer
        self._target_id = target_id
        self._is_selected = is_selected
        self._source_prefixes = config.local_id_prefixes
        self._prefixes = {"", *config.local_id_prefixes.values()}
        self._has_prefixes = self._prefixes != {""}
        descriptor = format_of(form.name)
        self._record_key = descriptor.record_key
        self._has_local_id = descriptor.key_has_local_id
        self._same_key = descriptor.same_key
        self._applies: bool | None = (
            None if self._record_key is not None and self._has_local_id else (self._record_key is not None)
        )

    def applies(self, connection: Connection) -> bool:
        """Whether two runs of the store may have one key."""
        if self._applies is None:
            self._applies = registry.has_several_sources(connection)
        return self._applies

    def held(self, connection: Connection, page: Sequence[StoredRun]) -> dict[int, Reason]:
        """Return the runs that are to be held, by run id, each with the reason, which names both runs."""
        earlier = {} if self._target_id is None else sent_otherwise(connection, self._target_id)
        alike = self._same_end_and_id if self._has_local_id else self._same_end_and_key
        pairs = alike(connection, page, earlier)
        if not pairs:
            return {}
        others = {run.run_id: run for run in runs.by_ids(connection, sorted({other for _, other in pairs}))}
        first = self._order(connection, [*others.values(), *(run for run, _ in pairs)])
        reasons: dict[int, Reason] = {}
        for run, other_id in pairs:
            other = others[other_id]
            if (other.source == run.source and self._has_local_id) or other_id not in first:
                continue
            is_there = not first[other_id][0]
            if is_there:  # then it counts as it was sent, even if it changed since
                job = earlier.get(other_id, other.job)
                other = msgspec.structs.replace(other, job=job, awaits_grid_log=False)
            place = first.get(run.run_id, _LAST)
            if first[other_id] < place and self._replaces(run, other, is_there=is_there):
                reasons.setdefault(run.run_id, self._reason(run, other))
        return reasons

    def _same_end_and_id(
        self, connection: Connection, page: Sequence[StoredRun], earlier: Mapping[int, Job]
    ) -> list[tuple[StoredRun, int]]:
        """Runs of the page, each with the id of another run that had the same end and may have the same local id,
        now or when it was sent."""
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
            return []  # only runs of the page itself, the usual case
        rows += [(run_id, job.local_id, job.end) for run_id, job in earlier.items()]
        return [
            (run, run_id)
            for run_id, local_id, end in rows
            for run in by_key.get((local_id, end), ())
            if run_id != run.run_id
        ]

    def _same_end_and_key(
        self, connection: Connection, page: Sequence[StoredRun], earlier: Mapping[int, Job]
    ) -> list[tuple[StoredRun, int]]:
        """Runs of the page, each with the id of another run that has its key, now or when it was sent. Keys are
        compared, not pairs: a node that fails ends thousands of runs in one second."""
        ids = runs.ended_at(connection, {run.job.end for run in page if run.job.end is not None})
        others = runs.by_ids(connection, sorted({*ids, *earlier} - {run.run_id for run in page}))
        by_key: dict[Hashable, list[int]] = {}
        for run in (*page, *others):
            versions = [
                run,
                *([msgspec.structs.replace(run, job=earlier[run.run_id])] if run.run_id in earlier else []),
            ]
            for key in {self._key_of(version) for version in versions} - {None}:
                by_key.setdefault(key, []).append(run.run_id)
        return [(run, run_id) for run in page for run_id in by_key.get(self._key_of(run), ()) if run_id != run.run_id]

    def _key_of(self, run: StoredRun) -> Hashable:
        """The key of a run at the receiver; None if it has no record."""
        assert self._record_key is not None  # else the guard does not apply
        try:
            return self._record_key(self._preparer.identified(run), self._view)
        except CannotRenderError:
            return None

    def _spellings(self, source: str, local_id: str) -> Collection[str]:
        """Local ids, as their sources spell them, that may be the same at APEL, which ignores case."""
        if not self._has_prefixes and local_id.isdigit():
            return (local_id,)
        whole = self._source_prefixes.get(source, "") + local_id
        given = {whole.removeprefix(prefix) for prefix in self._prefixes if whole.startswith(prefix)} - {""}
        return {spelling for each in given for spelling in (each, each.lower(), each.upper())}

    def _order(self, connection: Connection, found: Sequence[StoredRun]) -> dict[int, tuple[bool, int]]:
        """The order of the runs that are at the service, may be, or wait, by run id; without the others."""
        if self._target_id is None:
            return {run.run_id: (True, run.run_id) for run in found if self._is_selected(run)}
        order: dict[int, tuple[bool, int]] = {}
        ids = sorted({run.run_id for run in found})
        found_deliveries = deliveries.deliveries_of(connection, self._target_id, ids, self._as_waiting)
        for run_id, delivery in found_deliveries.items():
            is_there = delivery.sent or delivery.state in {State.ACCEPTED, State.IN_FLIGHT}
            # A held or rejected run takes no key: it may never be sent, and would hold the other one for ever.
            if is_there or delivery.state is State.WAITING:
                order[run_id] = (not is_there, run_id)
        return order

    def _replaces(self, run: StoredRun, other: StoredRun, *, is_there: bool) -> bool:
        """Whether a run has the key of another run that is at the service, or that waits and can be sent."""
        if not is_there:
            try:
                self._form.record(self._preparer.prepare(other), other.stored_at)
            except CannotRenderError:
                return False
        key = self._key_of(run)
        return key is not None and key == self._key_of(other)

    def _reason(self, run: StoredRun, first: StoredRun) -> Reason:
        return Reason.of(
            self._same_key,
            source=run.source,
            first_source=first.source,
            first_record_id=shown(first.record_id),
            local_id=shown(run.job.local_id),
        )
