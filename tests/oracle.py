"""The oracle of conservation: one for the crash, fault, property and end-to-end tests.

For every target, however the program was treated:

    finished runs in the sources = deselected (status, filter, local)
                                 + accepted at the receiver, each counted once
                                 + those the ledger lists as waiting, in flight, rejected, held, waived or superseded

and the ledger is sound: its states are disjoint, its counters are what counting gives, and what it calls accepted is at
the receiver, in the version that it says.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from formats.job import Job
from publisher.encoded_run import decode_run
from publisher.store.schema import State

Rows = Callable[..., Sequence[tuple[Any, ...]]]
"""Rows of a query to the store, past the program; `?` stands for a value."""

LISTED: Final = frozenset(State) - {State.ACCEPTED}
"""Where a selected run may be that is not at the receiver."""
LEFT_OVER: Final = frozenset({State.SUPERSEDED, State.WAIVED, State.IN_FLIGHT})
"""Where a run may be that was selected once, was or may have been delivered, and is selected no longer."""


class LedgerRows(msgspec.Struct, frozen=True):
    """What the store says of one target: the state of each delivery by record id, and its counters (none of zero)."""

    target: str
    states: Mapping[str, State]
    counters: Mapping[State, int]

    def of(self, state: State) -> set[str]:
        """Record ids in a state."""
        return {record_id for record_id, found in self.states.items() if found is state}


class Balance(msgspec.Struct, frozen=True):
    """The due runs that are nowhere, and those that are more than once at the receiver."""

    lost: frozenset[str]
    twice: frozenset[str]


def rows_of(file: Path) -> Rows:
    """The rows of an SQLite store, read past the program."""

    def rows(query: str, *values: object) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(file)) as connection:
            return connection.execute(query, values).fetchall()

    return rows


def ledger(rows: Rows, target: str) -> LedgerRows:
    """The ledger of a target in the store; the counters without purged jobs, which stay in them."""
    states = rows(
        "SELECT record_id, state FROM deliveries JOIN runs ON runs.id = run_id "
        "JOIN targets ON targets.id = target_id WHERE targets.name = ?",
        target,
    )
    kept = rows(
        "SELECT state, jobs FROM counters JOIN targets ON targets.id = target_id "
        "WHERE name = ? AND jobs <> 0 AND state < 100",
        target,
    )
    gone = rows(
        "SELECT state, sum(jobs) FROM purged_deliveries JOIN targets ON targets.id = target_id "
        "WHERE name = ? AND state < 100 GROUP BY state",
        target,
    )
    assert len({record_id for record_id, _ in states}) == len(states), "a run has two places at a target"
    counters = Counter({State(state): jobs for state, jobs in kept})
    counters.subtract({State(state): int(jobs) for state, jobs in gone})
    return LedgerRows(
        target,
        {record_id: State(state) for record_id, state in states},
        {state: jobs for state, jobs in counters.items() if jobs},
    )


def purged(rows: Rows, record_ids: Collection[str]) -> set[str]:
    """The purged ones of these runs: the store keeps a hash of their ids."""
    marks = {bytes(row[0]) for row in rows("SELECT run FROM purged_runs")}
    return {
        record_id for record_id in record_ids if hashlib.blake2b(record_id.encode(), digest_size=15).digest() in marks
    }


def stored(rows: Rows) -> dict[str, Job]:
    """Every run of the store by record id, as read."""
    found = rows("SELECT record_id, job, facts FROM runs JOIN classes ON class_id = classes.id")
    return {record_id: decode_run(bytes(blob), bytes(facts)) for record_id, blob, facts in found}


def balance(
    selected: Collection[str], books: LedgerRows, arrived: Mapping[str, int], deselected: Collection[str] = frozenset()
) -> Balance:
    """Compare a target's ledger with the sources and the receiver.

    `selected`: record ids of the finished runs that the target should have; `deselected`: finished runs that it should
    not have (it may have got them while they were selected); `arrived`: how often the receiver accepted each record.
    Raises `AssertionError` if the ledger is inconsistent; what is lost or came twice is returned.
    """
    name, states = books.target, books.states
    assert books.counters == Counter(states.values()), f"{name}: counters are not what counting gives"
    left_over = {states[record_id] for record_id in states.keys() - set(selected)}
    assert left_over <= LEFT_OVER, f"{name}: runs that it does not want are {left_over}"
    unknown = arrived.keys() - states.keys() - set(deselected)
    assert not unknown, f"{name}: the receiver has what the ledger does not know: {sorted(unknown)[:5]}"
    lost = {
        record_id
        for record_id in selected
        if record_id not in arrived and states.get(record_id, State.ACCEPTED) not in LISTED
    }
    lost |= books.of(State.ACCEPTED) - arrived.keys()
    return Balance(frozenset(lost), frozenset(record_id for record_id, times in arrived.items() if times > 1))


def assert_conserved(
    selected: Collection[str], books: LedgerRows, arrived: Mapping[str, int], deselected: Collection[str] = frozenset()
) -> Balance:
    """The same; nothing may be lost."""
    found = balance(selected, books, arrived, deselected)
    assert not found.lost, f"{books.target}: lost {sorted(found.lost)[:5]} and {len(found.lost)} in all"
    missing = set(selected) - books.states.keys()
    assert not missing, f"{books.target}: selected runs that the ledger does not know: {sorted(missing)[:5]}"
    return found


def assert_versions_agree(books: LedgerRows, jobs: Mapping[str, Job], wall_s: Mapping[str, int]) -> None:
    """What is accepted is at the receiver as it is in the store; `wall_s` is what the receiver counts, by record id."""
    for record_id in books.of(State.ACCEPTED):
        wall_ms = jobs[record_id].wall_ms
        assert wall_ms is not None
        assert wall_s[record_id] == wall_ms // 1000, f"{books.target}: {record_id} is there in another version"


def assert_counted_once(target: str, keys: Mapping[str, Collection[object]]) -> None:
    """A receiver that identifies records by a key of their facts has each under one key; `keys` by record id."""
    twice = sorted(record_id for record_id, known in keys.items() if len(known) > 1)
    assert not twice, f"{target}: counted twice, under two keys: {twice[:5]} and {len(twice)} in all"


def assert_sums_agree(jobs: Iterable[Job], total: tuple[int, int], synced: int | None = None) -> None:
    """The receiver's summaries count (jobs, wall seconds) what the runs give, and its sync counts as many jobs."""
    listed = list(jobs)
    sums = len(listed), sum((job.wall_ms or 0) // 1000 for job in listed)
    assert total == sums, "the sums at the receiver are not those of the runs"
    assert synced in {None, sums[0]}, "the sync counts are not those of the runs"


def arc_runs(database: Path) -> dict[str, tuple[int, int]]:
    """Record ids of all completed and failed jobs of an ARC database, with wall and CPU seconds: read by SQL alone."""
    with closing(sqlite3.connect(database)) as connection:
        query = (
            "SELECT URL, JobID, UsedWalltime, UsedCPUUserTime + UsedCPUKernelTime FROM AAR "
            "JOIN Status ON Status.ID = StatusID JOIN Endpoints ON Endpoints.ID = EndpointID "
            "WHERE Status.Name IN ('completed', 'failed')"
        )
        return {
            f"ur-{url.split('://')[-1].split('/')[0].rsplit(':', 1)[0]}-{job}": (wall, cpu)
            for url, job, wall, cpu in connection.execute(query)
        }
