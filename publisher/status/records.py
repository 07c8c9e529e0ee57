"""records: records of targets by the state of their delivery, with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec
from sqlalchemy import Connection

from formats.calendar import SECONDS_A_DAY
from formats.rule_codes import Reason
from publisher.store import deliveries, ledger_entries, paging, queries, registry
from publisher.store.database import Store
from publisher.store.schema import State

_PAGE: Final = 1_000


class ListedRecord(msgspec.Struct, frozen=True):
    """A record in some state of its delivery, and why."""

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


def listed(
    store: Store, targets: Sequence[str], state: State, limit: int | None, since: int | None = None
) -> list[ListedRecord]:
    """Records of these targets in a state, oldest first: at most `limit` of each target; None: all.

    `since`: only jobs that ended then or later; of accepted records, which no index holds, those of one day from then.
    """
    with store.read() as connection:
        rows = [(name, registry.get_target(connection, name)) for name in targets]
        return [
            ListedRecord(name, record_id, end, reason)
            for name, row in rows
            if row is not None
            for record_id, end, reason in _of_target(connection, row.id, state, limit, since)
        ]


def _of_target(
    connection: Connection, target_id: int, state: State, limit: int | None, since: int | None
) -> Iterator[tuple[str, int, Reason | None]]:
    if state is State.ACCEPTED:
        yield from islice(_accepted(connection, target_id, since or 0), limit)
        return
    place = None if since is None else (since, -1)
    for record_id, end, reason, _run_id in queries.listed(connection, target_id, state, limit, place):
        yield record_id, end, reason


def _accepted(connection: Connection, target_id: int, since: int) -> Iterator[tuple[str, int, Reason | None]]:
    """The accepted records of jobs that ended on the day from `since` on."""
    bounds = (since, since + SECONDS_A_DAY)
    for entries in paging.pages(lambda after: ledger_entries.page(connection, target_id, bounds, after, _PAGE)):
        yield from ((entry.record_id, entry.end, entry.reason) for entry in entries if entry.state is State.ACCEPTED)
