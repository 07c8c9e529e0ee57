"""Records of targets by the state of their delivery: how many, and which, with the reason."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from formats.rule_codes import Reason
from publisher.store import deliveries, queries, registry
from publisher.store.database import Store
from publisher.store.schema import State


class ListedRecord(msgspec.Struct, frozen=True):
    """A record that is rejected, held or superseded, and why."""

    target: str
    record_id: str
    end_time: int
    reason: Reason | None


def count(store: Store, targets: Sequence[str], state: State) -> dict[str, int]:
    """How many records of each target are in a state."""
    counted = {}
    with store.read() as connection:
        for name in targets:
            row = registry.get_target(connection, name)
            counted[name] = deliveries.of_target(connection, row.id)[state] if row is not None else 0
    return counted


def listed(store: Store, targets: Sequence[str], state: State, limit: int | None) -> list[ListedRecord]:
    """Records of these targets in a state, oldest first: at most so many of each target; None: all."""
    with store.read() as connection:
        rows = [(name, registry.get_target(connection, name)) for name in targets]
        return [
            ListedRecord(name, record_id, end, reason)
            for name, row in rows
            if row is not None
            for record_id, end, reason, _run_id in queries.listed(connection, row.id, state, limit)
        ]
