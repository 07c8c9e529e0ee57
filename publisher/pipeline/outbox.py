"""The outbox follows the wishes: a new target is filled, once; changed wishes plan anew what was not delivered.

What was delivered is never sent again by a change of wishes; only `republish` does that.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    Text,
    and_,
    delete,
    false,
    insert,
    literal,
    not_,
    or_,
    select,
    update,
)

from publisher.config import Config, Target
from publisher.pipeline.collect import TargetPlan
from publisher.pipeline.key_guard import require_same_keys
from publisher.pipeline.wish import Wish
from publisher.store import audit, counters, dialect, groups, purged, registry
from publisher.store.classes import add_hosts, all_classes
from publisher.store.database import Store
from publisher.store.flights import NO_LONGER_WANTED
from publisher.store.states import State
from publisher.store.tables import ASSUMED, deliveries, runs
from publisher.times import iso

_wanted = Table("wanted_classes", MetaData(), Column("id", BigInteger, primary_key=True), prefixes=["TEMPORARY"])


def prepare(store: Store, config: Config, now: int) -> dict[str, TargetPlan]:
    """Every configured target, with its deliveries put down as its present wishes want them."""
    return {name: prepare_target(store, name, target, config, now) for name, target in config.targets.items()}


def prepare_target(store: Store, name: str, target: Target, config: Config, now: int) -> TargetPlan:
    """One target, filled where it is new, planned anew where its wishes changed.

    Raises `ConfigError` where the change would let the service count delivered records twice.
    """
    wish = Wish(name, target, config)
    with store.read() as connection:
        row = registry.get_target(connection, name)
    if row is None or row.wishes != wish.text:
        with store.write() as connection:
            row = registry.get_target(connection, name)
            if row is None:
                row = registry.new_target(connection, name, target.type, wish.text, sorted(config.sources))
                _follow(connection, row.id, wish, now, before=target.delivered_until)
                _note_assumed(connection, name, None, target, config, now)
            elif row.wishes != wish.text:
                counts = counters.of_target(connection, row.id)
                sent = (State.ACCEPTED, State.IN_FLIGHT, State.SUPERSEDED)
                require_same_keys(name, row.wishes, wish.text, sum(counts[state] for state in sent))
                registry.set_wishes(connection, row.id, target.type, wish.text)
                _follow(connection, row.id, wish, now)
                _note_assumed(connection, name, row.wishes, target, config, now)
    return TargetPlan(row.id, wish, keeps_first=target.type == "sgas", assumes=row.assumes)


def _note_assumed(
    connection: Connection, name: str, before: str | None, target: Target, config: Config, now: int
) -> None:
    """Put down what counts as delivered before us, as an import said or somebody wrote, also where that is nothing; and
    where that setting changed later: it changes nothing then."""
    until = iso(target.delivered_until)
    source = f"; {target.taken_over_from}" if target.taken_over_from is not None else ""
    if before is None:
        if until is not None:
            detail = (
                f"jobs of {', '.join(sorted(config.sources))} that ended up to {until} count as delivered before us"
            )
            audit.note(connection, "delivered_until", name, detail + source, now)
        elif source:
            audit.note(connection, "import", name, f"nothing counts as delivered before us{source}", now)
        return
    earlier = iso(msgspec.json.decode(before)["target"].get("delivered_until"))
    if earlier != until:
        detail = f"was {earlier}, is {until}: holds for sources whose first reading is not over; what is known stays"
        audit.note(connection, "delivered_until", name, detail + source, now)


def _follow(connection: Connection, target_id: int, wish: Wish, now: int, *, before: int | None = None) -> None:
    """Plan anew. `before`: what ended up to then counts as delivered before us, at a target that is new."""
    add_hosts(connection)
    _wanted.create(connection, checkfirst=False)
    ids = [{"id": item.id} for item in all_classes(connection) if wish.wants_class(item)]
    if ids:
        connection.execute(insert(_wanted), ids)
    _take_back(connection, target_id, wish, now)
    _release(connection, target_id, now)
    _fill(connection, target_id, wish, now, before)
    _wanted.drop(connection)


def _take_back(connection: Connection, target_id: int, wish: Wish, now: int) -> None:
    unwanted: ColumnElement[bool] = not_(
        deliveries.c.run_id.in_(select(runs.c.id).join(_wanted, runs.c.class_id == _wanted.c.id))
    )
    if wish.since is not None:
        unwanted = or_(unwanted, deliveries.c.end_time < wish.since)
    for state in (State.WAITING, State.HELD):
        chosen = and_(deliveries.c.target_id == target_id, deliveries.c.state == int(state), unwanted)
        sent = and_(chosen, deliveries.c.sent_digest.is_not(None))
        if wish.summaries:
            ends = connection.execute(select(deliveries.c.end_time).where(sent)).scalars()
            groups.mark(connection, target_id, groups.REFOLD, ends, now)
            sent = and_(sent, false())
        kept = connection.execute(
            update(deliveries).where(sent).values(state=int(State.SUPERSEDED), reason=NO_LONGER_WANTED, changed_at=now)
        ).rowcount
        gone = connection.execute(delete(deliveries).where(chosen)).rowcount
        counters.add(connection, target_id, {state: -gone - kept})
        counters.add(connection, target_id, {State.SUPERSEDED: kept})


def _release(connection: Connection, target_id: int, now: int) -> None:
    released = connection.execute(
        update(deliveries)
        .where(
            deliveries.c.target_id == target_id,
            deliveries.c.state == int(State.HELD),
            purged.not_held_for_good(),
        )
        .values(state=int(State.WAITING), reason=None, changed_at=now)
    ).rowcount
    counters.add(connection, target_id, {State.HELD: -released, State.WAITING: released})


def _fill(connection: Connection, target_id: int, wish: Wish, now: int, delivered_until: int | None) -> None:
    wanted: ColumnElement[bool] = and_(runs.c.finished == 1, runs.c.end_time.is_not(None))
    if wish.since is not None:
        wanted = and_(wanted, runs.c.end_time >= wish.since)
    parts: Mapping[State, ColumnElement[bool]] = {State.WAITING: wanted}
    if delivered_until is not None:
        before = runs.c.end_time <= delivered_until
        parts = {State.ACCEPTED: and_(wanted, before), State.WAITING: and_(wanted, not_(before))}
    late = purged.in_purged_month(connection, runs.c.end_time)
    parts = {
        **parts,
        State.HELD: and_(parts[State.WAITING], late),
        State.WAITING: and_(parts[State.WAITING], not_(late)),
    }
    for state, condition in parts.items():
        why = literal({State.HELD: purged.LATE, State.ACCEPTED: ASSUMED}.get(state), Text)
        query = (
            select(literal(target_id), runs.c.id, literal(int(state)), runs.c.end_time, literal(now), why)
            .join(_wanted, runs.c.class_id == _wanted.c.id)
            .where(condition)
        )
        columns = ("target_id", "run_id", "state", "end_time", "changed_at", "reason")
        filled = dialect.insert_from_select(connection, deliveries, columns, query)
        counters.add(connection, target_id, {state: filled})
