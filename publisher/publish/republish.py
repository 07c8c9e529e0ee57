"""republish: a window again to one target, with a plan first of what it means there.

Carried out by letting the window's deliveries wait again: a kill in between leaves a ledger that the next run finishes,
and the usual sending does the rest. Asked for once more before it was finished, it goes on; what was sent is not sent
again. Other targets are not touched.
"""

from __future__ import annotations

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, false, func, or_, select

from formats.calendar import period_of
from publisher.collect import plan as collect_plan
from publisher.collect.collect import TargetPlan
from publisher.config.schema import Config
from publisher.errors import TargetBusyError, UsageError
from publisher.messages import duplicate_guard
from publisher.reason import ReasonCode
from publisher.sources.base import Window
from publisher.store import batches, groups, registry
from publisher.store import deliveries as store_deliveries
from publisher.store.admin import purge
from publisher.store.batches import Resend
from publisher.store.database import Store
from publisher.store.schema import ARE_ASSUMED, State, deliveries, runs
from publisher.store.transitions import StateChange, transition
from publisher.text import iso


class RepublishPlan(msgspec.Struct, frozen=True):
    """What sending a window again means, in jobs.

    `new`: the target has not got them. `changed`: it has an earlier version; `unchanged`: it has this one.
    `kept`: changed ones that are not sent: the service keeps their first version, or the target no longer wants them.
    `waived`: somebody decided that they are not to be sent; they stay so. `assumed`: delivered before us, as far as an
    import says; counted in `unchanged`. `resumes`: the same was asked for then and is not done yet; `new` counts
    what is left of it. `key_changed`: they would count twice, and are held until `records retry` names them.
    `held`: held for another reason; they are tried again, and stay held where the reason still holds. `busy`: another
    run is at work for the target, so that nothing can be sent again now. `elsewhere`: waiting or in flight, and ended
    outside the window; they are sent with it.
    """

    from_: int
    until: int
    new: int
    changed: int
    unchanged: int
    kept: int
    waived: int
    assumed: int
    resumes: int | None = None
    key_changed: int = 0
    held: int = 0
    busy: bool = False
    elsewhere: int = 0

    @property
    def to_send(self) -> int:
        """How many jobs will be sent; of those that are held nobody knows before they are tried."""
        return self.new + self.changed + self.unchanged


def _in_window(target_id: int, from_: int, until: int) -> ColumnElement[bool]:
    return and_(deliveries.c.target_id == target_id, runs.c.end_time >= from_, runs.c.end_time < until)


_undelivered = deliveries.c.state.in_([int(state) for state in (State.WAITING, State.IN_FLIGHT, State.REJECTED)])
_for_good = or_(func.coalesce(deliveries.c.reason, "") == ReasonCode.KEY_CHANGED.value, ~purge.not_held_for_good())
_held = and_(deliveries.c.state == int(State.HELD), ~_for_good)
_held_for_good = and_(deliveries.c.state == int(State.HELD), _for_good)
_on_its_way = deliveries.c.state.in_([int(State.WAITING), int(State.IN_FLIGHT)])
_accepted = deliveries.c.state == int(State.ACCEPTED)
_assumed = and_(_accepted, ARE_ASSUMED)
_same = or_(
    deliveries.c.sent_digest.is_(None),
    and_(deliveries.c.sent_digest == runs.c.digest, deliveries.c.may_be_one_of_several == 0),
)


def plan_republish(
    connection: Connection, target: TargetPlan, records: str, from_: int, until: int, *, only_missing: bool
) -> RepublishPlan:
    """What sending the runs that ended in a window again would mean. `until` is exclusive; epoch seconds.

    `records` is the format that the target is sent.
    """
    resumes = batches.resend_asked_at(connection, target.target_id, Resend(from_, until, only_missing))
    window = _in_window(target.target_id, from_, until)
    query = (
        select(
            func.count().filter(_undelivered if resumes is None else _on_its_way),
            func.count().filter(and_(_accepted, ~_same)),
            func.count().filter(and_(_accepted, _same)),
            func.count().filter(deliveries.c.state == int(State.SUPERSEDED)),
            func.count().filter(deliveries.c.state == int(State.WAIVED)),
            func.count().filter(_assumed),
            func.count().filter(_superseded_to_send(connection, target, window)),
            func.count().filter(_held_for_good),
            func.count().filter(_held),
            func.count().filter(_on_its_way),
        )
        .join(runs, deliveries.c.run_id == runs.c.id)
        .where(window)
    )
    counted = connection.execute(query).one()
    new, changed, unchanged, superseded, waived, assumed, to_send, held_back, held, on_its_way = counted
    will_be_held = sum(
        from_ <= each.end_time < until for each in duplicate_guard.waiting(connection, target.target_id, records)
    )
    new -= will_be_held
    kept = superseded - to_send
    changed += to_send
    if resumes is not None:
        changed, unchanged, held = 0, 0, 0
    elif only_missing:
        changed, unchanged = 0, assumed
    held_back += will_be_held
    states = store_deliveries.of_target(connection, target.target_id)
    elsewhere = states[State.WAITING] + states[State.IN_FLIGHT] - on_its_way
    return RepublishPlan(
        from_, until, new, changed, unchanged, kept, waived, assumed, resumes, held_back, held, elsewhere=elsewhere
    )


def _superseded_to_send(connection: Connection, target: TargetPlan, window: ColumnElement[bool]) -> ColumnElement[bool]:
    if target.keeps_first:
        return false()
    return collect_plan.superseded(connection, target.target_id, target.filter, window)


def let_wait_again(
    connection: Connection, target: TargetPlan, name: str, plan: RepublishPlan, now: int, *, only_missing: bool
) -> None:
    """Let what the plan counts wait again, and put down who asked for it. Nothing to do for one that is resumed."""
    if plan.resumes is not None:
        return
    batches.record_resend(connection, target.target_id, Resend(plan.from_, plan.until, only_missing), now)
    states: list[tuple[State, ColumnElement[bool]]] = [
        (State.HELD, _held),
        (State.REJECTED, deliveries.c.state == int(State.REJECTED)),
        (State.ACCEPTED, _assumed if only_missing else _accepted),
    ]
    if not only_missing:
        window = _in_window(target.target_id, plan.from_, plan.until)
        states.append((State.SUPERSEDED, _superseded_to_send(connection, target, window)))
    for state, condition in states:
        chosen = (
            select(deliveries.c.run_id)
            .join(runs, deliveries.c.run_id == runs.c.id)
            .where(_in_window(target.target_id, plan.from_, plan.until), condition)
        )
        change = StateChange(target.target_id, state, State.WAITING, now)
        transition(connection, change, deliveries.c.run_id.in_(chosen))
    if target.filter.is_snapshot:
        numbers = target.filter.numbers_between(plan.from_, plan.until)
        groups.send_again(connection, target.target_id, numbers, now)
    detail = (
        f"runs that ended from {iso(plan.from_)} until {iso(plan.until)}: {plan.new} new, {plan.changed} changed, "
        f"{plan.unchanged} unchanged, {plan.held} held{', only missing ones' if only_missing else ''}"
    )
    registry.record_action(connection, "republish", name, detail, now)


def plan_window(
    store: Store, config: Config, name: str, target: TargetPlan, window: Window, *, only_missing: bool
) -> RepublishPlan:
    """What sending a window again to a target would mean, and whether another run is at work for it.

    Raises `UsageError` for a window that is open, empty, or reaches into months that were purged.
    """
    with store.lock(f"target-{name}") as free:
        pass  # only to learn whether it is: a run that comes meanwhile is not to find it taken
    with store.read() as connection:
        plan = _plan(connection, config, name, target, window, only_missing=only_missing)
    return msgspec.structs.replace(plan, busy=not free)


def begin(
    store: Store, config: Config, name: str, target: TargetPlan, window: Window, now: int, *, only_missing: bool
) -> None:
    """Let a window wait again at a target.

    Raises `UsageError` as `plan_window` and for a shadow, and `TargetBusyError` where another run is at work.
    """
    with store.read() as connection:
        _plan(connection, config, name, target, window, only_missing=only_missing)
    if config.targets[name].shadow:
        raise UsageError(f"{name} is a shadow: nothing is sent to it", hint="Take out `shadow` of the target first")
    with store.lock(f"target-{name}") as held:
        if not held:
            raise TargetBusyError(name)
        with store.write() as connection:
            plan = _plan(connection, config, name, target, window, only_missing=only_missing)
            let_wait_again(connection, target, name, plan, now, only_missing=only_missing)


def _plan(
    connection: Connection, config: Config, name: str, target: TargetPlan, window: Window, *, only_missing: bool
) -> RepublishPlan:
    from_, until = _whole_periods(config, name, window)
    purge.require_unpurged(connection, from_, until)
    return plan_republish(connection, target, config.targets[name].records, from_, until, only_missing=only_missing)


def _whole_periods(config: Config, name: str, window: Window) -> tuple[int, int]:
    if window.from_ is None or window.until is None or window.from_ >= window.until:
        raise UsageError("a window needs a beginning and a later end", hint="Give --since and --until")
    settings = config.targets[name]
    if not settings.format.is_snapshot:
        return window.from_, window.until
    kind = settings.period_kind
    return period_of(kind, window.from_).start, period_of(kind, window.until - 1).stop
