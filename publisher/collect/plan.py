"""Deliveries follow the filter of a target: a new target is filled once; after a change of the filter, deliveries that
were not sent are planned again. A change of settings never sends again what was delivered; only `republish` does.

A record that was sent keeps its key: settings that are part of the service's key cannot change once records were
delivered. SGAS keeps one record for each record id, APEL one job record for each site, local id, and end. If a setting
in that key changed, a delivered record would count twice after its next correction or republish. Summaries and sync
counts need no such guard: a group whose key changed is sent with zero jobs.

Superseded deliveries are sent again only while the target still selects the run. A run may no longer be selected after
it was delivered (another status, another VO): then the service's record is to be removed there, and nothing replaces
it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    and_,
    bindparam,
    exists,
    insert,
    not_,
    or_,
    select,
    true,
)

from publisher import plugins
from publisher.collect import counted_once
from publisher.collect.collect import TargetPlan
from publisher.collect.target_filter import TargetFilter, selected_classes
from publisher.config.schema import Config, Target
from publisher.errors import ConfigError
from publisher.store import deliveries as store_deliveries
from publisher.store import groups, registry
from publisher.store.admin import purge
from publisher.store.classes import all_classes
from publisher.store.database import Store
from publisher.store.in_flight import NO_LONGER_SELECTED
from publisher.store.schema import State, deliveries, runs
from publisher.store.stored_json import read_with
from publisher.store.transitions import ASSUMED, StateChange, enqueue_from, remove_where, transition
from publisher.text import counted, iso


def keys_of(filter_text: str) -> dict[str, Any]:
    """Return the settings in the service's key, by their place in the configuration, from the stored filter of a
    target."""
    return read_with(_keys_of, filter_text, "the settings of a target")


def _keys_of(filter_text: str) -> dict[str, Any]:
    stored = msgspec.json.decode(filter_text)
    settings: dict[str, Any] = {}
    for place in sorted(plugins.format_of(stored["target"]["records"]).key_settings):
        table, _, name = place.partition(".")
        if table == "target":
            settings[place] = stored["target"].get(name)
        elif table == "site":
            settings[place] = stored["site"]
        else:
            sources = stored["sources"].items()
            settings |= {f"sources.{source}.{name}": each[name] for source, each in sources if name in each}
    return settings


def require_same_keys(target: str, before: str, now: str, count_delivered: Callable[[], int]) -> None:
    """Raise `ConfigError`, with the number of records that would count twice, if a setting in the key changed.

    A source that is new or gone does not change the key of delivered records; neither does another format, which is
    another kind of record.
    """
    old, new = keys_of(before), keys_of(now)
    for place, value in new.items():
        if place in old and old[place] != value and (delivered := count_delivered()):
            key = place.replace("target.", f"targets.{target}.", 1)
            raise ConfigError(
                f"was {old[place]!r} when {delivered} records were delivered to {target}, and is {value!r} now: they "
                "would be counted twice",
                key=key,
                hint="Restore the old value. For new jobs, add another target with `since` at the end of this one",
            )


_MOST_CHARACTERS: Final = 500
"""Of a value of a setting in the audit log."""

_classes = Table("selected_classes", MetaData(), Column("id", BigInteger, primary_key=True), prefixes=["TEMPORARY"])


def prepare(store: Store, config: Config, now: int) -> dict[str, TargetPlan]:
    """Return every configured target, with the deliveries that its present filter selects."""
    return {name: prepare_target(store, name, target, config, now) for name, target in config.targets.items()}


def prepare_target(store: Store, name: str, target: Target, config: Config, now: int) -> TargetPlan:
    """Return one target; fill it if it is new, plan its deliveries again if its filter changed.

    Raises `ConfigError` if the service would count delivered records twice after the change.
    """
    selection = TargetFilter(name, target, config)
    with store.read() as connection:
        row = registry.get_target(connection, name)
    if row is None or row.filter_settings != selection.text:
        with store.write() as connection:
            row = registry.get_target(connection, name)
            if row is None:
                row = registry.new_target(connection, name, target.type, selection.text, sorted(config.sources))
                _follow(connection, row.id, selection, now, before=target.delivered_until)
                counted_once.decide_all(connection, row.id, selection, now)
                _note_assumed(connection, name, None, target, config, now)
            elif row.filter_settings != selection.text:
                # Also what may have been sent: the service may have it under the earlier key, and would count it twice.
                delivered = partial(store_deliveries.count_perhaps_sent, connection, row.id)
                require_same_keys(name, row.filter_settings, selection.text, delivered)
                registry.set_filter_settings(connection, row.name, target.type, selection.text)
                _note_changes(connection, name, row.filter_settings, selection.text, now)
                _note_left_over(connection, name, row.id, target, now)
                _follow(connection, row.id, selection, now)
                counted_once.decide_all(connection, row.id, selection, now)
                _note_assumed(connection, name, row.filter_settings, target, config, now)
    return TargetPlan(row.id, selection, assumes=row.assumes)


def _delivered_until(filter_text: str) -> int | None:
    until: int | None = msgspec.json.decode(filter_text)["target"]["delivered_until"]
    return until


def _note_changes(connection: Connection, name: str, before: str, now_text: str, now: int) -> None:
    """Record in the audit log which settings of a target changed: what is sent changes with them."""
    old, new = (
        read_with(lambda stored: msgspec.json.decode(stored)["target"], text, f"the settings of target {name}")
        for text in (before, now_text)
    )
    for key in sorted({*old, *new} - {"delivered_until", "taken_over_from"}):
        if old.get(key) != new.get(key):
            detail = f"{key} was {_said(old.get(key))}, is {_said(new.get(key))}"
            registry.record_action(connection, "settings", name, detail, now)


def _note_left_over(connection: Connection, name: str, target_id: int, target: Target, now: int) -> None:
    """Record in the audit log what is sent as zero because the settings have it no more."""
    totals = target.format.totals
    if totals is not None:
        for amount, number in groups.left_over(connection, target_id, totals, target.format_options).items():
            detail = f"{amount} is removed: zero is sent for it with the next version of {counted(number, 'total')}"
            registry.record_action(connection, "settings", name, detail, now)


def _said(value: Any) -> str:
    if value is None:
        return "not set"
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def _note_assumed(
    connection: Connection, name: str, before: str | None, target: Target, config: Config, now: int
) -> None:
    """Record in the audit log what counts as delivered by an earlier publisher, even if that is nothing; and a later
    change of the setting, which has no effect on what was collected."""
    until = iso(target.delivered_until)
    source = f"; {target.taken_over_from}" if target.taken_over_from is not None else ""
    if before is None:
        if until is not None:
            jobs = f"jobs of {', '.join(sorted(config.sources))} that ended up to {until}"
            detail = f"{jobs} count as delivered by an earlier publisher"
            registry.record_action(connection, "delivered_until", name, detail + source, now)
        elif source:
            registry.record_action(
                connection, "import", name, f"nothing counts as delivered by an earlier publisher{source}", now
            )
        return
    earlier = iso(read_with(_delivered_until, before, f"the settings of target {name}"))
    if earlier != until:
        detail = f"was {earlier}, is {until}: applies to sources not yet read to their end; stored jobs do not change"
        registry.record_action(connection, "delivered_until", name, detail + source, now)


def _follow(
    connection: Connection, target_id: int, selection: TargetFilter, now: int, *, before: int | None = None
) -> None:
    """Plan deliveries again. `before`: at a new target, runs that ended up to then count as delivered by an earlier
    publisher."""
    _classes.create(connection, checkfirst=False)
    ids = [{"id": item.id} for item in all_classes(connection) if selection.selects_class(item)]
    if ids:
        connection.execute(insert(_classes), ids)
    _deselect(connection, target_id, selection, now)
    _release(connection, target_id, now)
    _fill(connection, target_id, selection, now, before)
    _classes.drop(connection)


def _deselect(connection: Connection, target_id: int, selection: TargetFilter, now: int) -> None:
    deselected: ColumnElement[bool] = not_(
        deliveries.c.run_id.in_(select(runs.c.id).join(_classes, runs.c.class_id == _classes.c.id))
    )
    if selection.since is not None:
        deselected = or_(deselected, deliveries.c.end_time < selection.since)
    # What is accepted or in flight stays: a changed filter takes nothing back that a service has, or may have.
    for state in (State.WAITING, State.HELD, State.REJECTED):
        sent = and_(deselected, deliveries.c.sent_digest.is_not(None))
        if selection.second_version.sends_vanished:
            mine = and_(deliveries.c.target_id == target_id, deliveries.c.state == int(state))
            ends = connection.execute(select(deliveries.c.end_time).where(mine, sent)).scalars()
            # Their totals are at the service with these runs, and nothing waits that would make them again.
            groups.mark_due(connection, target_id, groups.DueFor.FOLD, ends)
        else:
            transition(connection, StateChange(target_id, state, State.SUPERSEDED, now, NO_LONGER_SELECTED), sent)
        remove_where(connection, target_id, state, deselected)


def _release(connection: Connection, target_id: int, now: int) -> None:
    transition(connection, StateChange(target_id, State.HELD, State.WAITING, now), purge.not_held_for_good())


def _fill(
    connection: Connection, target_id: int, selection: TargetFilter, now: int, delivered_until: int | None
) -> None:
    selected: ColumnElement[bool] = and_(runs.c.finished == 1, runs.c.end_time.is_not(None))
    if selection.since is not None:
        selected = and_(selected, runs.c.end_time >= selection.since)
    parts: Mapping[State, ColumnElement[bool]] = {State.WAITING: selected}
    if delivered_until is not None:
        before = runs.c.end_time <= delivered_until
        parts = {State.ACCEPTED: and_(selected, before), State.WAITING: and_(selected, not_(before))}
    # The other jobs of its month are gone from the store: a total of what came late would replace the whole.
    late = purge.in_purged_month(connection, runs.c.end_time)
    parts = {
        **parts,
        State.HELD: and_(parts[State.WAITING], late),
        State.WAITING: and_(parts[State.WAITING], not_(late)),
    }
    for state, condition in parts.items():
        reason = {State.HELD: purge.LATE, State.ACCEPTED: ASSUMED}.get(state)
        query = select(runs.c.id, runs.c.end_time).join(_classes, runs.c.class_id == _classes.c.id).where(condition)
        enqueue_from(connection, target_id, state, query, now, reason)


def superseded(
    connection: Connection, target_id: int, selection: TargetFilter, window: ColumnElement[bool]
) -> ColumnElement[bool]:
    """Return the condition that deliveries are superseded and still selected; `window`: the condition on runs."""
    are_superseded = deliveries.c.state == int(State.SUPERSEDED)
    query = (
        select(runs.c.class_id)
        .join(deliveries, deliveries.c.run_id == runs.c.id)
        .where(deliveries.c.target_id == target_id, are_superseded, window)
        .distinct()
    )
    class_ids = selected_classes(connection, selection, list(connection.execute(query).scalars()))
    ends = true() if selection.since is None else runs.c.end_time >= selection.since
    selected = exists().where(
        runs.c.id == deliveries.c.run_id,
        runs.c.class_id.in_(bindparam("classes", sorted(class_ids), expanding=True, literal_execute=True)),
        runs.c.end_time.is_not(None),
        ends,
    )
    return and_(are_superseded, selected.correlate(deliveries))
