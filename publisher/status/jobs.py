"""jobs: what is known of runs, and where each went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from sqlalchemy import Connection, func, select

from formats.reason import Reason
from publisher.reason import ReasonCode, from_stored
from publisher.store import batches, runs
from publisher.store.batches import BatchRow
from publisher.store.runs import StoredRun
from publisher.store.schema import State, deliveries, targets
from publisher.store.schema import runs as runs_table


class Whereabouts(msgspec.Struct, frozen=True):
    """Where a run is on its way to one target."""

    target: str
    state: State
    changed_at: int
    confirmed_at: int | None
    reason: Reason | None
    sent_digest: bytes | None
    batch: BatchRow | None

    @property
    def assumed(self) -> bool:
        """Whether it was delivered before us, as far as an earlier publisher's state says."""
        return self.reason is not None and self.reason.code == ReasonCode.ASSUMED


class KnownRun(msgspec.Struct, frozen=True):
    """A run as stored, and its whereabouts. `unwanted`: why each target that does not want it does not, if asked."""

    run: StoredRun
    whereabouts: list[Whereabouts]
    unwanted: Mapping[str, str] = {}


def found(connection: Connection, name: str, prefixes: Mapping[str, str], most: int = 100) -> list[StoredRun]:
    """The runs with this record id, local id or global id: the local id as the batch system or, after the prefix of
    its source (`prefixes`, by the source's name), the services know it. A run comes before its slaves."""
    known = runs.find(connection, name, most)
    for prefix in sorted({prefix for prefix in prefixes.values() if prefix and name.startswith(prefix)}):
        local_id = name.removeprefix(prefix)
        of_services = runs.find(connection, local_id, most)
        known += [run for run in of_services if prefixes.get(run.source) == prefix and run.job.local_id == local_id]
    return sorted({run.run_id: run for run in known}.values(), key=lambda run: run.job.slave)[:most]


def whereabouts(connection: Connection, run_id: int) -> list[Whereabouts]:
    """Where a run is on its way to every target that wants it."""
    query = (
        select(targets.c.name, deliveries)
        .join(targets, deliveries.c.target_id == targets.c.id)
        .where(deliveries.c.run_id == run_id)
        .order_by(targets.c.name)
    )
    return [
        Whereabouts(
            target=row["name"],
            state=State(row["state"]),
            changed_at=row["changed_at"],
            confirmed_at=row["confirmed_at"],
            reason=from_stored(row["reason"], row["reason_parameters"]),
            sent_digest=row["sent_digest"],
            batch=batches.get(connection, row["batch_id"]) if row["batch_id"] is not None else None,
        )
        for row in connection.execute(query).mappings().all()
    ]


def count_in(connection: Connection, from_: int | None, until: int | None) -> int:
    """How many runs ended from `from_` until `until` (exclusive)."""
    query = select(func.count()).select_from(runs_table).where(runs_table.c.end_time.is_not(None))
    if from_ is not None:
        query = query.where(runs_table.c.end_time >= from_)
    if until is not None:
        query = query.where(runs_table.c.end_time < until)
    return connection.execute(query).scalar_one()


def with_state(connection: Connection, run_ids: Sequence[int], state: State) -> set[int]:
    """Those of these runs of which a delivery, to any target, is in this state."""
    query = select(deliveries.c.run_id).where(deliveries.c.run_id.in_(run_ids), deliveries.c.state == int(state))
    return set(connection.execute(query).scalars())
