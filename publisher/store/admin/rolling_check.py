"""A part of the store is checked by every run, so that all of it is checked in a month.

The part is as large as the time since the last one requires, so that it does not matter how often the timer runs. Runs
are checked with their records and classes, and with their deliveries; once all runs are, what is small is checked as by
`store check`. Runs that were found damaged are looked at each time until they are replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from publisher.errors import StoreCorruptError, StoreError
from publisher.finding import Finding
from publisher.store.admin import check_progress, integrity
from publisher.store.admin.check_progress import CheckProgress
from publisher.store.database import Store
from publisher.store.schema import State, deliveries, runs, versions

_ROUND_S: Final = 28 * 86_400
"""Less than a month, so that a timer that is late now and then still finishes."""
_LEAST: Final = 200
"""Runs that are checked at least: they take a few milliseconds."""
_MOST_KEPT: Final = 1_000
_PAGE: Final = 2_000
_STATES: Final = sorted(map(int, State))


class PartChecked(msgspec.Struct, frozen=True):
    """What a run found: damage that was not known before, and how many damaged runs are known by now.

    `problem`: why the part could not be checked.
    """

    new: list[str]
    damaged_runs: int
    problem: StoreError | None = None


def check_part(store: Store, now: int) -> PartChecked:
    """Check the part that is due. Raises `StoreError` and its kinds."""
    with store.lock("check") as held:
        if not held:  # another host does
            return PartChecked([], 0)
        with store.read() as connection:
            before, unread = _progress(connection, now)
            number = _due(connection, now - before.checked_at)
            known = dict(_damage(connection, before.damaged))
            damage: dict[int, str] = {}
            last_id, left = before.last_id, number
            while left > 0:
                ids = _next(connection, last_id, min(left, _PAGE))
                damage.update(_damage(connection, ids))
                if not ids:
                    break
                last_id, left = ids[-1], left - len(ids)
            others: list[Finding] = []
            if left > 0:  # the last run: the next round begins
                last_id = 0
                others = [finding for finding in integrity.check_small(connection) if finding.level == "red"]
        damaged = sorted({*known, *damage})[:_MOST_KEPT]
        with store.write() as connection:
            check_progress.record(connection, CheckProgress(last_id, now, damaged))
    new = [text for run_id, text in damage.items() if run_id not in before.damaged]
    return PartChecked([*unread, *new, *(f"{other.subject}: {other.message}" for other in others)], len(damaged))


def _progress(connection: Connection, now: int) -> tuple[CheckProgress, list[str]]:
    """How far the store was checked. What cannot be read is made anew: checking all jobs again finds the same."""
    nothing = CheckProgress(0, now, [])
    try:
        return check_progress.get(connection) or nothing, []
    except StoreCorruptError as error:
        return nothing, [f"{error.message}: the check of the store begins anew"]


def _due(connection: Connection, elapsed_s: int) -> int:
    """How many runs are checked after this time. A clock that was set back has no effect."""
    last = connection.execute(select(func.max(runs.c.id))).scalar_one() or 0
    return max(_LEAST, -(-last * min(max(elapsed_s, 0), _ROUND_S) // _ROUND_S))


def _next(connection: Connection, after: int, most: int) -> list[int]:
    query = select(runs.c.id).where(runs.c.id > after).order_by(runs.c.id).limit(most)
    return list(connection.execute(query).scalars())


def _damage(connection: Connection, run_ids: list[int]) -> Iterator[tuple[int, str]]:
    """Those of these runs that are damaged, or whose earlier versions or deliveries are, each with what is wrong."""
    if run_ids:
        yield from integrity.wrong_runs(connection, runs.c.id.in_(run_ids))
        yield from integrity.wrong_versions(connection, versions.c.run_id.in_(run_ids))
        yield from _wrong_deliveries(connection, deliveries.c.run_id.in_(run_ids))


def _wrong_deliveries(connection: Connection, chosen: ColumnElement[bool]) -> Iterator[tuple[int, str]]:
    """Target by target: deliveries are stored in this order."""
    for (target_id,) in connection.execute(select(deliveries.c.target_id).distinct()).all():
        query = (
            select(runs.c.id, runs.c.record_id)
            .select_from(deliveries.outerjoin(runs, runs.c.id == deliveries.c.run_id))
            .where(
                and_(deliveries.c.target_id == target_id, chosen),
                or_(
                    runs.c.id.is_(None),
                    deliveries.c.state.not_in(_STATES),
                    runs.c.end_time.is_(None),
                    deliveries.c.end_time != runs.c.end_time,
                ),
            )
        )
        for run_id, record_id in connection.execute(query):
            yield run_id or 0, f"job {record_id or 'unknown'}: a delivery does not agree with it"
