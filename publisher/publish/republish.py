"""Republish: send the jobs of a window again to one target, after a plan of what that changes there.

The window's deliveries are set to wait again, and the usual sending does the rest: after a kill in between, the next
run finishes from the ledger. The same request made again before it is finished continues it; what was sent is not sent
again. Other targets, and deliveries outside the window, are not touched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, TypeAlias, get_args

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, false, func, not_, or_, select

from formats.calendar import months_between, period_of
from formats.rule_codes import Reason
from publisher.collect import plan as collect_plan
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config
from publisher.errors import TargetBusyError, UsageError
from publisher.messages import erased_groups
from publisher.messages.item import Held, view_of
from publisher.messages.items import items
from publisher.messages.recipient import Recipient
from publisher.messages.steps import Scope, Section
from publisher.preview.render import payload_limit
from publisher.reason import ReasonCode
from publisher.sources.base import Window
from publisher.store import batches, groups, reconciliations, registry
from publisher.store import deliveries as store_deliveries
from publisher.store.admin import purge
from publisher.store.batches import Resend
from publisher.store.database import Store
from publisher.store.deliveries import IS_ONE_VERSION
from publisher.store.groups import GroupRow
from publisher.store.schema import ARE_ASSUMED, State, deliveries, runs
from publisher.store.stored_values import state_of
from publisher.store.transitions import StateChange, transition
from publisher.text import iso


class WindowCounts(msgspec.Struct, frozen=True):
    """The ledger's counts of the jobs of a window.

    `new`: the target lacks them. `changed`: it has an earlier version; `unchanged`: it has this one. `held`: they are
    held, and tried again. `stays_held`: held until a person releases them. `kept`: changed, but not sent: the service
    keeps their first version, or the target no longer selects them. `waived`: a person decided that they are not sent;
    they stay waived. `assumed`: delivered by an earlier publisher, according to an import; counted in `unchanged`.
    """

    new: int = 0
    changed: int = 0
    unchanged: int = 0
    held: int = 0
    stays_held: int = 0
    kept: int = 0
    waived: int = 0
    assumed: int = 0


class GroupCounts(msgspec.Struct, frozen=True):
    """The summaries, reports, and sync counts that republishing a window sends, by what they change at the service.

    `new`: it has none with the key. `changed`: it has another version. `emptied`: it gets zero jobs in place of a
    group that no longer exists. `unchanged`: it has the same.
    """

    new: int = 0
    changed: int = 0
    emptied: int = 0
    unchanged: int = 0

    @property
    def total(self) -> int:
        """How many are sent."""
        return self.new + self.changed + self.emptied + self.unchanged


class RepublishPlan(msgspec.Struct, frozen=True):
    """What republishing a window does, in jobs; `groups`: in summaries or reports; `sync`: in sync counts.

    `counts`: what the ledger has of them. `to_send` and `to_hold` (by reason code): what happens to the new,
    changed, unchanged, and held ones; `reasons`: the first reason with each code; `held_again` of the latter are
    held now. What is in neither waits for the end of its period. `resumes`: when the same request was made, if it
    is unfinished; `counts.new` of it are left. `busy`: another run has the target, so nothing can be sent now.
    `elsewhere`: runs that wait and ended outside the window; with `sends_all_due` they are sent too, since a report
    counts jobs of several periods, and are in `to_send` and `to_hold`. `in_flight`: runs that ended outside the
    window and whose outcome was not recorded; they are sent first.
    """

    asked: Resend
    counts: WindowCounts
    to_send: int
    to_hold: Mapping[str, int]
    reasons: Mapping[str, Reason]
    held_again: int
    resumes: int | None
    busy: bool
    elsewhere: int
    in_flight: int
    sends_all_due: bool
    groups: GroupCounts = GroupCounts()
    sync: GroupCounts = GroupCounts()

    @property
    def sends_anything(self) -> bool:
        """Whether any message is sent, be it only with emptied groups."""
        return bool(self.to_send or self.groups.total or self.sync.total)


def plan_window(
    store: Store, config: Config, name: str, target: TargetPlan, window: Window, now: int, *, only_missing: bool
) -> RepublishPlan:
    """Return what republishing a window to a target does, and whether another run has the target.

    All records of the window are rendered, since nothing else shows which ones will be held; for summaries the sums of
    classes are folded. Raises `UsageError` for a window that is open, empty, or reaches into purged months, and as
    `items` does.
    """
    asked = _whole_periods(config, name, window, only_missing=only_missing)
    with store.lock(f"target-{name}") as free:
        pass  # only to learn whether it is busy; a run that starts meanwhile must find it free
    with store.read() as connection:
        purge.require_unpurged(connection, asked.begins, asked.ends)
        resumes = batches.resend_asked_at(connection, target.target_id, asked)
        again = {} if resumes is not None else _again(connection, target, asked)
        counts = _counts(connection, target, asked, resumed=resumes is not None)
        states = store_deliveries.of_target(connection, target.target_id)
        here = store_deliveries.on_their_way(connection, target.target_id, asked.begins, asked.ends)
    recipient = Recipient(store, config, name)
    in_flight = and_(deliveries.c.state == int(State.IN_FLIGHT), deliveries.c.deselected == 0, _ended_in(asked))
    limit_bytes, _ = payload_limit(config, name)  # reports are cut by it
    foreseen = _Foreseen(recipient, target.target_id, or_(in_flight, *again.values()), limit_bytes)
    resends_groups = target.filter.is_snapshot and resumes is None and not only_missing  # as `begin`
    foreseen.look(Window(asked.begins, asked.ends), now, resends_groups=resends_groups)
    return RepublishPlan(
        asked,
        counts,
        to_send=foreseen.to_send,
        to_hold=dict(foreseen.to_hold),
        reasons=foreseen.reasons,
        held_again=foreseen.held_again,
        resumes=resumes,
        busy=not free,
        elsewhere=states[State.WAITING] - here[State.WAITING],
        in_flight=states[State.IN_FLIGHT] - here[State.IN_FLIGHT],
        sends_all_due=recipient.format.shape == "report",
        groups=foreseen.group_counts(sync=False),
        sync=foreseen.group_counts(sync=True),
    )


class _Foreseen:
    """Counts the items of a window that will be sent, and those that will be held, once the selected deliveries
    wait."""

    def __init__(
        self, recipient: Recipient, target_id: int, as_waiting: ColumnElement[bool], limit_bytes: int | None
    ) -> None:
        self._recipient = recipient
        self._limit_bytes = limit_bytes
        self._target_id = target_id
        self._as_waiting = as_waiting
        self.to_send = 0
        self.to_hold: Counter[str] = Counter()
        self.reasons: dict[str, Reason] = {}
        self.held_again = 0
        self._groups: Counter[tuple[bool, _Effect]] = Counter()

    def group_counts(self, *, sync: bool) -> GroupCounts:
        """The totals or reports, or the sync counts, that will be sent."""
        return GroupCounts(**{effect: self._groups[sync, effect] for effect in _EFFECTS})

    def look(self, window: Window, now: int, *, resends_groups: bool) -> None:
        """Go through the items."""
        scope = Scope(window, only_due=True, as_waiting=self._as_waiting, resends_groups=resends_groups)
        for step in items(self._recipient, scope, now=now, limit_bytes=self._limit_bytes):
            if not isinstance(step, Section):
                continue
            for page in step.pages:
                self.to_send += sum(len(item.members) for item in page.items)
                if step.kind is not None:
                    self._count_groups(step.kind, [item.group for item in page.items if item.group is not None])
                for held in page.held:
                    self._hold(held)

    def _count_groups(self, kind: str, rows: Sequence[GroupRow]) -> None:
        known: dict[int, dict[str, GroupRow]] = {}
        with self._recipient.store.read() as connection:
            for month in {row.month for row in rows}:
                known[month] = groups.of_month(connection, self._target_id, kind, month)
        for row in rows:
            self._groups[kind == groups.SYNC, _effect_of(row, known[row.month].get(row.key))] += 1

    def _hold(self, held: Held) -> None:
        with self._recipient.store.read() as connection:
            if held.bounds is not None:
                before = self._states_between(connection, held.bounds)
            else:
                states = store_deliveries.states_of(connection, self._target_id, held.members.run_ids)
                before = Counter(states.values())
        jobs = before.total()
        if jobs:
            self.to_hold[held.reason.code] += jobs
            self.reasons.setdefault(held.reason.code, held.reason)
            self.held_again += before[State.HELD]

    def _states_between(self, connection: Connection, bounds: tuple[int, int]) -> Counter[State]:
        waits = or_(deliveries.c.state == int(State.WAITING), self._as_waiting)
        ended = and_(runs.c.end_time >= bounds[0], runs.c.end_time < bounds[1])
        query = (
            select(deliveries.c.state, func.count())
            .join(runs, deliveries.c.run_id == runs.c.id)
            .where(deliveries.c.target_id == self._target_id, ended, waits)
            .group_by(deliveries.c.state)
        )
        return Counter({state_of(state): jobs for state, jobs in connection.execute(query)})


_Effect: TypeAlias = Literal["new", "changed", "emptied", "unchanged"]
_EFFECTS: Final[tuple[_Effect, ...]] = get_args(_Effect)


def _effect_of(row: GroupRow, before: GroupRow | None) -> _Effect:
    """What a group changes at a service that has, or may have, the version `before`."""
    if before is not None and before.state is State.REJECTED:
        before = None
    if before is not None and before.state is State.ACCEPTED and before.digest == row.digest:
        return "unchanged"
    if not row.jobs:
        return "emptied"
    return "new" if before is None else "changed"


_accepted = deliveries.c.state == int(State.ACCEPTED)
_is_sent_as_it_is = or_(
    deliveries.c.sent_digest.is_(None),
    and_(deliveries.c.sent_digest == runs.c.digest, IS_ONE_VERSION),
)
_is_released = and_(func.coalesce(deliveries.c.reason, "") != ReasonCode.KEY_CHANGED.value, purge.not_held_for_good())


def _ended_in(asked: Resend) -> ColumnElement[bool]:
    return and_(deliveries.c.end_time >= asked.begins, deliveries.c.end_time < asked.ends)


def _again(connection: Connection, target: TargetPlan, asked: Resend) -> dict[State, ColumnElement[bool]]:
    """The deliveries of a window that wait again on request, by their present state."""
    chosen: dict[State, ColumnElement[bool]] = {
        State.HELD: _is_released,
        State.REJECTED: _ended_in(asked),
        State.ACCEPTED: ARE_ASSUMED if asked.only_missing else _ended_in(asked),
    }
    if not asked.only_missing and target.filter.second_version.sends_changed:
        window = _runs_ended_in(asked)
        chosen[State.SUPERSEDED] = collect_plan.superseded(connection, target.target_id, target.filter, window)
    return {
        state: and_(deliveries.c.state == int(state), _ended_in(asked), condition)
        for state, condition in chosen.items()
    }


def _runs_ended_in(asked: Resend) -> ColumnElement[bool]:
    return and_(runs.c.end_time >= asked.begins, runs.c.end_time < asked.ends)


def _counts(connection: Connection, target: TargetPlan, asked: Resend, *, resumed: bool) -> WindowCounts:
    on_its_way = deliveries.c.state.in_([int(State.WAITING), int(State.IN_FLIGHT)])
    is_held = deliveries.c.state == int(State.HELD)
    sent_again = _again(connection, target, asked)
    counted = (
        on_its_way if resumed else or_(on_its_way, deliveries.c.state == int(State.REJECTED)),
        and_(_accepted, not_(_is_sent_as_it_is)),
        and_(_accepted, _is_sent_as_it_is),
        and_(is_held, _is_released),
        and_(is_held, not_(_is_released)),
        deliveries.c.state == int(State.SUPERSEDED),
        deliveries.c.state == int(State.WAIVED),
        and_(_accepted, ARE_ASSUMED),
        sent_again.get(State.SUPERSEDED, false()),
    )
    query = (
        select(*(func.count().filter(condition) for condition in counted))
        .join(runs, deliveries.c.run_id == runs.c.id)
        .where(deliveries.c.target_id == target.target_id, _runs_ended_in(asked))
    )
    row = connection.execute(query).one()
    new, changed, unchanged, held, stays_held, superseded, waived, assumed, selected = map(int, row)
    kept, changed = superseded - selected, changed + selected
    if resumed:
        changed, unchanged, held = 0, 0, 0
    elif asked.only_missing:
        changed, unchanged = 0, assumed
    return WindowCounts(new, changed, unchanged, held, stays_held, kept, waived, assumed)


def begin(
    store: Store, config: Config, name: str, target: TargetPlan, window: Window, now: int, *, only_missing: bool
) -> Scope:
    """Let a window wait again at a target, and record who asked for it; return what is then sent.

    Nothing changes if the same request is unfinished. Raises `UsageError` as `plan_window` and for a shadow,
    `StoreRestoredError`, and `TargetBusyError` if another run has the target.
    """
    asked = _whole_periods(config, name, window, only_missing=only_missing)
    with store.read() as connection:
        purge.require_unpurged(connection, asked.begins, asked.ends)
    if config.targets[name].shadow:
        raise UsageError(f"{name} is a shadow: nothing is sent to it", hint="Remove `shadow` from the target first")
    store.require_latest()
    with store.lock(f"target-{name}") as held:
        if not held:
            raise TargetBusyError(name)
        with store.write() as connection:
            purge.require_unpurged(connection, asked.begins, asked.ends)
            if batches.resend_asked_at(connection, target.target_id, asked) is None:
                kept = _kept(connection, target, config, asked, now)
                _let_wait_again(connection, target, name, asked, now, kept)
    return Scope(Window(asked.begins, asked.ends), only_due=True)


def _let_wait_again(
    connection: Connection, target: TargetPlan, name: str, asked: Resend, now: int, kept: Collection[str]
) -> None:
    batches.record_resend(connection, target.target_id, asked, now)
    ended = deliveries.c.run_id.in_(select(runs.c.id).where(_runs_ended_in(asked)))
    if target.filter.is_snapshot:  # once they wait, nothing else says that the sums of the service contain them
        store_deliveries.take_assumed_as_sent(connection, target.target_id, ended)
    moved = {
        state: transition(connection, StateChange(target.target_id, state, State.WAITING, now), and_(ended, condition))
        for state, condition in _again(connection, target, asked).items()
    }
    if target.filter.is_snapshot and not asked.only_missing:
        numbers = target.filter.numbers_between(asked.begins, asked.ends)
        groups.send_again(connection, target.target_id, numbers, kept)
    which = ", ".join(f"{jobs} {state.word}" for state, jobs in moved.items() if jobs) or "none of them"
    detail = (
        f"jobs that ended from {iso(asked.begins)} until {iso(asked.ends)} are sent again: {which}"
        f"{', only missing ones' if asked.only_missing else ''}"
    )
    registry.record_action(connection, "republish", name, detail, now)
    reconciliations.make_due(connection, target.target_id, now)


def _kept(connection: Connection, target: TargetPlan, config: Config, asked: Resend, now: int) -> set[str]:
    """The keys of groups that stay unchanged at the service: those with names of persons who were erased since."""
    settings = config.targets[target.filter.name]
    totals, view = settings.format.totals, view_of(settings, config)
    months = months_between(asked.begins, asked.ends) if target.filter.is_snapshot else []
    return set().union(
        *(erased_groups.fixed(connection, target.target_id, totals, month, view, now) for month in months)
    )


def _whole_periods(config: Config, name: str, window: Window, *, only_missing: bool) -> Resend:
    if window.from_ is None or window.until is None or window.from_ >= window.until:
        raise UsageError("a window needs a start and a later end", hint="Give --month, or --since and --until")
    settings = config.targets[name]
    if not settings.format.is_snapshot:
        return Resend(window.from_, window.until, only_missing)
    kind = settings.period_kind
    return Resend(period_of(kind, window.from_).start, period_of(kind, window.until - 1).stop, only_missing)
