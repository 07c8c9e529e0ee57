"""Collect: store the runs of a source, with a delivery for each target that selects them, page by page.

A page's runs, deliveries, unreadable input, and cursor are one transaction: nothing that was read is read again,
skipped, or stored without a delivery for every target that selects it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import msgspec
from sqlalchemy import Connection

from publisher.collect import counted_once
from publisher.collect.grid_join import GridJoin
from publisher.collect.target_filter import TargetFilter, still_selected
from publisher.config.schema import GridLog
from publisher.encoded_run import EncodedRun, UsageNote, run_key
from publisher.errors import SourceError
from publisher.events import Observer, PageStored
from publisher.sources.base import (
    FILE_MARKS,
    Cursor,
    EncodedPage,
    Page,
    Reader,
    Recognising,
    Unreadable,
    Window,
    encode_page,
)
from publisher.store import (
    deliveries,
    file_marks,
    grid_jobs,
    groups,
    in_flight,
    registry,
    runs,
    same_jobs,
    suspects,
    transitions,
    unreadable_input,
    usage_notes,
)
from publisher.store.admin import erase, purge
from publisher.store.admin.erase import PseudonymMap
from publisher.store.classes import Interner, JobClass, classes_by_id
from publisher.store.database import Store
from publisher.store.runs import UpsertedRun
from publisher.store.schema import State


class Collected(msgspec.Struct, frozen=True):
    """The result of collecting one source; `error`: why it was not read to its end.

    `read` counts records of the source (lines, rows). `merged`: records that are a part of a run, such as slaves and
    steps. `skipped`: jobs that never ran or still run, and other entries that are not a job's end. `cpu_sampled` and
    `cpu_doubtful`: of the new and changed jobs, those with this `UsageNote`. `interrupted`: the next collect reads the
    rest. `suspect`: how many of the unreadable pieces have a run that a user may have made, and that is
    held.
    """

    read: int = 0
    new: int = 0
    changed: int = 0
    unchanged: int = 0
    skipped: int = 0
    unreadable: int = 0
    error: str | None = None
    merged: int = 0
    cpu_sampled: int = 0
    cpu_doubtful: int = 0
    interrupted: bool = False
    suspect: int = 0

    @property
    def jobs(self) -> int:
        """The finished jobs that were read."""
        return self.new + self.changed + self.unchanged


class TargetPlan(msgspec.Struct, frozen=True):
    """A target as collecting needs it: its id in the store, and its filter.

    `assumes`: the sources from which an earlier publisher may have delivered; None: all.
    """

    target_id: int
    filter: TargetFilter
    assumes: tuple[str, ...] | None = None

    def assumes_of(self, source: str | None) -> bool:
        """Whether an earlier publisher may have delivered jobs that the first reading of this source finds."""
        return source is not None and (self.assumes is None or source in self.assumes)


def collect(
    store: Store,
    source: Reader,
    plans: Sequence[TargetPlan],
    clock: Callable[[], int],
    observer: Observer,
    window: Window | None = None,
    grid_log: GridLog | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Collected:
    """Read a source to its present end and store what it has; its grid log, if it has one, is read first.

    When interrupted, it ends after a page, and the next collect continues there. Raises `StoreError` and its kinds; a
    problem with the source is in the result's `error`, and what was read is stored.
    """
    with store.write() as connection:
        row = registry.source(connection, source.name, source.kind)
        cursor = registry.cursor(connection, row)
        # Of erased persons: a log that is read again would bring their names back.
        pseudonyms = erase.pseudonyms(connection)
        joins = grid_log is not None or grid_jobs.cursor(connection, row.id) is not None
    now = clock()
    follow = partial(enqueue_runs, plans=plans, now=now, identity_only=True)
    join = GridJoin(store, row, grid_log, now, follow) if joins else None
    # Before the source: a run whose entry is known is stored with its owner, and need not be held and changed later.
    problem = join.read() if join is not None else None
    total = Collected()
    try:
        interner = join.interner if join is not None else Interner(row.id, row.name)
        again = window is not None
        page_store = _PageStore(source, row, interner, pseudonyms, join, plans, again=again)
        cursor = {**cursor, FILE_MARKS: file_marks.stored(store, row.id)}
        for page in _pages(store, source, cursor, window):
            encoded, stored_at = encode_page(page, again=again), clock()
            with store.write() as connection:
                of_page = page_store.store(connection, encoded, stored_at)
            total = _add(total, of_page)
            observer(PageStored(source.name, of_page.read, of_page.new, of_page.changed, page.share))
            if stopping() and not page.at_end:
                total = msgspec.structs.replace(total, interrupted=True)
                break
            del page, encoded
        if join is not None:
            join.release()
    except SourceError as error:
        problem = f"{problem}; {error}" if problem else str(error)
    if problem is not None:
        with store.write() as connection:
            registry.record_failure(connection, row.id, problem)
        return msgspec.structs.replace(total, error=problem)
    if total.new:
        store.refresh_statistics()
    with store.read() as connection:
        return msgspec.structs.replace(total, error=unreadable_input.unread_error(connection, row.id))


def _pages(store: Store, source: Reader, cursor: Cursor, window: Window | None) -> Iterator[Page | EncodedPage]:
    """The pages of a source; of a window, without runs that the source recognises as stored and unchanged."""
    if window is None or not isinstance(source, Recognising):
        return source.pages(cursor, window)

    def known(record_ids: Sequence[str]) -> Mapping[str, tuple[bytes, int]]:
        with store.read() as connection:
            return runs.marks_of(connection, record_ids)

    return source.window_pages(cursor, window, known)


def _add(one: Collected, other: Collected) -> Collected:
    return Collected(
        one.read + other.read,
        one.new + other.new,
        one.changed + other.changed,
        one.unchanged + other.unchanged,
        one.skipped + other.skipped,
        one.unreadable + other.unreadable,
        merged=one.merged + other.merged,
        cpu_sampled=one.cpu_sampled + other.cpu_sampled,
        cpu_doubtful=one.cpu_doubtful + other.cpu_doubtful,
        suspect=one.suspect + other.suspect,
    )


class _PageStore:
    """Stores the pages of one reading of a source. `again`: of a window, which leaves the cursor where it is."""

    def __init__(
        self, source: Reader, row: registry.SourceRow, interner: Interner, pseudonyms: PseudonymMap,
        join: GridJoin | None, plans: Sequence[TargetPlan], *, again: bool,
    ) -> None:  # fmt: skip
        self._source = source
        self._row = row
        self._interner = interner
        self._pseudonyms = pseudonyms
        self._join = join
        self._plans = plans
        self._again = again
        self._first_read_of = None if row.first_read_done else row.name

    def store(self, connection: Connection, page: EncodedPage, now: int) -> Collected:
        """Store the runs of a page, their deliveries, what could not be read, and the cursor, in one transaction."""
        stored = store_runs(
            connection, self._interner, self._pseudonyms, self._join, page.runs, self._plans, now,
            first_read_of=self._first_read_of, verified=self._again,
        )  # fmt: skip
        unreadable, unreadable_new = self._keep_unreadable(connection, page, now)
        ends = [run.end for run in page.runs if run.finished and run.end]
        last_end = max([*ends, page.recognised.last_end or 0]) or None
        counts = (stored.new, page.skipped, unreadable_new, last_end)
        if self._again:
            registry.count_window(connection, self._row.id, *counts)
        else:
            registry.advance(
                connection, self._row.id, *counts, cursor=page.cursor, at_end=page.at_end,
                complete_since=self._source.complete_since(), now=now,
            )  # fmt: skip
            file_marks.change(connection, self._row.id, page.file_marks)
        return Collected(
            read=page.read,
            new=stored.new,
            changed=stored.changed,
            unchanged=stored.unchanged + page.recognised.unchanged,
            skipped=page.skipped + stored.skipped,
            unreadable=len(unreadable),
            merged=page.merged,
            suspect=sum(piece.suspect is not None for piece in unreadable),
            cpu_sampled=stored.cpu_sampled,
            cpu_doubtful=stored.cpu_doubtful,
        )

    def _keep_unreadable(self, connection: Connection, page: EncodedPage, now: int) -> tuple[list[Unreadable], int]:
        """What could not be read and was not decided on before, and how much of it is new."""
        unreadable = suspects.undecided(connection, page.unreadable)
        unreadable = suspects.doubt_given(connection, unreadable, [plan.target_id for plan in self._plans], now)
        doubted = [run_key(item.given.record_id) for item in unreadable if item.given is not None]
        if doubted and (same := same_jobs.linked_with(connection, doubted)):
            for plan in self._plans:  # what may be forged takes the place of no other run
                counted_once.decide(connection, plan.target_id, plan.filter, same, now)
        new = unreadable_input.keep_unreadable(
            connection, self._row.id, unreadable, now, again=self._again, first_read=self._first_read_of is not None
        )
        unreadable_input.drop_recovered(connection, self._row.id, page.recovered)
        return unreadable, new


def store_runs(
    connection: Connection,
    interner: Interner,
    pseudonyms: PseudonymMap,
    join: GridJoin | None,
    found: Sequence[EncodedRun],
    plans: Sequence[TargetPlan],
    now: int,
    *,
    first_read_of: str | None,
    verified: bool = False,
) -> Collected:
    """Store runs of a source, with a delivery for each target that selects them. Return what they were.

    `first_read_of`: see `enqueue_runs`; `verified`: see `runs.upsert`.
    """
    # A purged run is not in the store: stored again from its log, it would be new, and be sent again.
    unpurged = purge.drop_purged(connection, found, pseudonyms)
    upserted = runs.upsert(connection, interner, pseudonyms.over(unpurged.runs), now, verified=verified)
    notes = usage_notes.record(connection, interner.source_id, unpurged.runs, upserted.put)
    same = counted_once.link(connection, interner.source_id, upserted.put)
    enqueue_runs(connection, upserted.put, plans, now, first_read_of=first_read_of, read=interner.classes)
    # After the deliveries, between which it decides; in this transaction, or both runs of a job could be taken.
    for plan in plans if same else ():
        counted_once.decide(connection, plan.target_id, plan.filter, same, now)
    back = purge.hold_changed(connection, (plan.target_id for plan in plans), upserted.put, unpurged.changed, now)
    if join is not None:
        join.note(connection, upserted.put)
    return Collected(
        new=upserted.new - back,
        changed=upserted.changed + back,
        unchanged=upserted.unchanged + unpurged.unchanged,
        skipped=upserted.running,
        cpu_sampled=notes[UsageNote.CPU_SAMPLED],
        cpu_doubtful=notes[UsageNote.CPU_DOUBTFUL],
    )


def enqueue_runs(
    connection: Connection,
    put: Sequence[UpsertedRun],
    plans: Sequence[TargetPlan],
    now: int,
    *,
    first_read_of: str | None = None,
    identity_only: bool = False,
    read: Callable[[Connection, Sequence[int]], Iterable[JobClass]] = classes_by_id,
) -> None:
    """Enqueue new runs for every target that selects them, and update the deliveries of changed ones.

    `read`: classes by their ids. `first_read_of`: the source, if it was never read to its end; then runs that ended up
    to `delivered_until` count as delivered by an earlier publisher, without a batch, if the target was configured with
    this source.
    `identity_only`: only the identity of the changed runs is new. Then what an earlier publisher delivered stays
    delivered, since it had the identity.
    """
    finished = [item for item in put if item.finished]
    if not finished:
        return
    class_ids = {item.class_id for item in finished}
    for plan in plans:
        missing = [class_id for class_id in class_ids if plan.filter.known_verdict(class_id) is None]
        for job_class in read(connection, missing):
            plan.filter.selects_class(job_class)
        of_selected_class = {class_id for class_id in class_ids if plan.filter.known_verdict(class_id)}
        selected: list[UpsertedRun] = []
        others: list[UpsertedRun] = []
        for item in finished:
            verdict = item.class_id in of_selected_class and plan.filter.selects_end(item.end_time)
            (selected if verdict else others).append(item)
        fresh = [item for item in selected if item.fresh]
        before = plan.filter.delivered_until if plan.assumes_of(first_read_of) else None
        assumed = [item for item in fresh if before is not None and (item.end_time or 0) <= before]
        waiting = [item for item in fresh if before is None or (item.end_time or 0) > before]
        transitions.enqueue(connection, plan.target_id, State.ACCEPTED, assumed, now)
        transitions.enqueue(connection, plan.target_id, State.WAITING, waiting, now)
        changed = [item for item in selected if not item.fresh]
        gone = [item for item in others if not item.fresh]
        if identity_only and not plan.filter.is_snapshot:
            changed, gone = _not_assumed(connection, plan, changed), _not_assumed(connection, plan, gone)
        if changed or gone:
            _follow_changes(connection, plan, changed, gone, now)
        purge.hold_late(connection, plan.target_id, selected, now)
        if identity_only and (same := same_jobs.linked(connection, [item.run_id for item in finished])):
            counted_once.decide(connection, plan.target_id, plan.filter, same, now)


def follow_energy(connection: Connection, run_ids: Sequence[int], plans: Sequence[TargetPlan], now: int) -> None:
    """Let the runs of which energy was measured, or another than before, wait again for targets that are sent energy.
    What an earlier publisher delivered stays delivered: it did not have the energy of this store."""
    if not run_ids or not plans:
        return
    items = runs.as_changed(connection, run_ids)
    for plan in plans:
        selected = still_selected(connection, plan.filter, [item.run_id for item in items])
        there = deliveries.deliveries_of(connection, plan.target_id, list(selected))
        changed = _not_assumed(connection, plan, [item for item in items if item.run_id in there])
        if changed:
            _follow_changes(connection, plan, changed, [], now)
            purge.hold_late(connection, plan.target_id, changed, now)


def _has_restored(item: UpsertedRun, delivery: deliveries.DeliveryState | None) -> bool:
    """Whether the service has the very version of a run whose damage in the store is repaired by now: nothing is to be
    sent.

    It has it, too, if an earlier publisher delivered it: no other version of the run was ever read.
    """
    if item.restored is None or delivery is None or delivery.state is not State.ACCEPTED:
        return False
    return delivery.version in {None, item.restored}


def _not_assumed(connection: Connection, plan: TargetPlan, items: Sequence[UpsertedRun]) -> list[UpsertedRun]:
    """The runs that an earlier publisher did not deliver, according to an import."""
    known = deliveries.deliveries_of(connection, plan.target_id, [item.run_id for item in items])
    assumed = {run_id for run_id, each in known.items() if each.state is State.ACCEPTED and not each.sent}
    return [item for item in items if item.run_id not in assumed]


def _know_assumed(connection: Connection, plan: TargetPlan, changed: Sequence[UpsertedRun]) -> None:
    """An earlier publisher delivered the previous version: record it, so that a change of the key is seen as for our
    own deliveries."""
    if plan.filter.second_version.sends_changed and not plan.filter.is_snapshot:
        before = {item.run_id: item.before for item in changed if item.before is not None}
        deliveries.record_assumed_versions(connection, plan.target_id, before)


def _follow_changes(
    connection: Connection, plan: TargetPlan, changed: Sequence[UpsertedRun], gone: Sequence[UpsertedRun], now: int
) -> None:
    """A changed run waits again, unless the service keeps the first version it received: then it is superseded.

    A superseded run that is again as it was sent is accepted there if the service took that, by whatever settings; else
    it waits: nobody may know whether the service received it, and sent again under its id it counts once.

    A run that the target no longer selects is deselected if it was never sent, and superseded if it was: the service
    has a record that is no longer right, and the administrator must know. A summary is sent again without it. See
    `SecondVersion`.
    """
    sent_for = plan.filter.second_version
    known = deliveries.deliveries_of(connection, plan.target_id, [item.run_id for item in (*changed, *gone)])
    restored = [item for item in changed if _has_restored(item, known.get(item.run_id))]
    changed = [item for item in changed if item not in restored]
    new = [item for item in changed if item.run_id not in known]
    superseded = [item.run_id for item in changed if item not in new and known[item.run_id].state is State.SUPERSEDED]
    as_sent = deliveries.sent_as_they_are(connection, plan.target_id, superseded)
    there = set() if sent_for.sends_changed else deliveries.known_there(connection, plan.target_id, sorted(as_sent))
    transitions.enqueue(connection, plan.target_id, State.WAITING, new, now)
    moves: list[deliveries.Move] = []
    # Their earlier deliveries may have been removed while they, or their groups, were about to be sent.
    in_motion = [item.run_id for item in new]
    for item in changed:
        if item.run_id not in known:
            continue
        state = known[item.run_id].state
        is_there = state is State.ACCEPTED or (state is State.SUPERSEDED and item.run_id not in as_sent)
        # The service keeps the first version: the new one would look accepted there and change nothing.
        if item.run_id in there:
            moves.append((item.run_id, state, State.ACCEPTED, None))
        elif is_there and not sent_for.sends_changed:
            moves.append((item.run_id, state, State.SUPERSEDED, in_flight.CHANGED_AFTER_DELIVERY))
        # Waived by a person, or since another source's run counts: a change alone must not send it.
        elif state is not State.WAIVED:
            if state not in {State.WAITING, State.IN_FLIGHT}:
                moves.append((item.run_id, state, State.WAITING, None))
            in_motion.append(item.run_id)  # its group may be about to be sent, made of the earlier version
    no_longer = _no_longer_selected(gone, known, sends_vanished=sent_for.sends_vanished)
    # The ends before the change: a run that moves to another month leaves a total behind that still counts it.
    followed = [item for item in (*changed, *gone) if item.run_id in known]
    left = [known[item.run_id].end_time for item in (*followed, *restored)]
    if plan.filter.is_snapshot:  # a month may have lost its only run, and then nothing in it waits
        groups.mark_due(connection, plan.target_id, groups.DueFor.FOLD, left)
    if plan.filter.sync:
        groups.mark_due(connection, plan.target_id, groups.DueFor.SYNC, left)
    deliveries.set_end_times(connection, plan.target_id, [item for item in followed if item.end_time is not None])
    _know_assumed(connection, plan, changed)
    deliveries.mark_deselected(connection, plan.target_id, no_longer.deselected)
    deliveries.move(connection, plan.target_id, [*moves, *no_longer.moves], now)
    deliveries.mark_changed(connection, plan.target_id, in_motion)
    transitions.remove(connection, plan.target_id, no_longer.removed)


class _NoLongerSelected(msgspec.Struct):
    """What happens to deliveries of runs that a target no longer selects."""

    deselected: list[int] = []
    moves: list[deliveries.Move] = []
    removed: list[tuple[int, State]] = []


def _no_longer_selected(
    gone: Sequence[UpsertedRun], known: Mapping[int, deliveries.DeliveryState], *, sends_vanished: bool
) -> _NoLongerSelected:
    decided = _NoLongerSelected()
    for item in gone:
        delivery = known.get(item.run_id)
        if delivery is None or delivery.state in {State.WAIVED, State.SUPERSEDED}:
            continue
        # In flight, its answer is not known: without its delivery, a run that the service accepts would be in no state.
        if delivery.state is State.IN_FLIGHT:
            decided.deselected.append(item.run_id)
        # The service has, or may have, a record that nothing takes back: removed, it would be unknown here.
        elif not sends_vanished and (delivery.state is State.ACCEPTED or delivery.sent):
            decided.moves.append((item.run_id, delivery.state, State.SUPERSEDED, in_flight.NO_LONGER_SELECTED))
        else:
            decided.removed.append((item.run_id, delivery.state))
    return decided
