"""Deliveries by target and state: kept in the transaction that changes them, so that `status` never counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlalchemy import Connection, select

from publisher.store import dialect
from publisher.store.states import State
from publisher.store.tables import counters

CONFIRMED: Final = 101
"""Not a state: confirmed deliveries are accepted ones, counted a second time."""


def add(connection: Connection, target_id: int, changes: Mapping[State, int]) -> None:
    """Add these differences to the counters of a target."""
    for state, jobs in changes.items():
        if jobs:
            row = {"target_id": target_id, "state": int(state), "jobs": jobs}
            dialect.add_up(connection, counters, row, keys=("target_id", "state"), column="jobs")


def add_confirmed(connection: Connection, target_id: int, jobs: int) -> None:
    """Add this difference to the confirmed deliveries of a target."""
    if jobs:
        row = {"target_id": target_id, "state": CONFIRMED, "jobs": jobs}
        dialect.add_up(connection, counters, row, keys=("target_id", "state"), column="jobs")


def of_target(connection: Connection, target_id: int) -> dict[State, int]:
    """How many deliveries of a target are in each state; all states are there."""
    found = _all(connection, target_id)
    return {state: found.get(state, 0) for state in State}


def confirmed(connection: Connection, target_id: int) -> int:
    """How many of a target's accepted deliveries were seen at the service by `reconcile`."""
    return _all(connection, target_id).get(CONFIRMED, 0)


def _all(connection: Connection, target_id: int) -> dict[int, int]:
    query = select(counters.c.state, counters.c.jobs).where(counters.c.target_id == target_id)
    return {row[0]: row[1] for row in connection.execute(query)}
