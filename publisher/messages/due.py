"""What a target is owed of an interval, run by run: what summaries, reports and their dry runs are made of.

How often runs serve a target: its setting `every`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, Protocol

from formats.calendar import Period, PeriodKind, period_of
from publisher.collect.wants import TargetFilter, period_kind
from publisher.config.schema import Target
from publisher.config.schema import Target as TargetSettings
from publisher.store import classes, queries
from publisher.store.database import Store
from publisher.store.queries import PendingDelivery
from publisher.store.registry import TargetRow
from publisher.store.schema import State
from publisher.text import past

NOT_OWED: Final = frozenset({State.WAIVED, State.SUPERSEDED})
EVER: Final = -(2**62)
"""Before every end."""
_PAGE: Final = 5000


def ended_in(
    store: Store, target_id: int, bounds: tuple[int, int], *, changed_since: int | None = None
) -> Iterator[tuple[State, PendingDelivery]]:
    """The deliveries of runs that ended within bounds (the second exclusive), by end time; not those waived or
    superseded. `changed_since`: only those that were put down or moved then or later. Memory does not grow with them.
    """
    after: tuple[int, int] | None = None
    while True:
        with store.read() as connection:
            page, after = queries.ended_in(connection, target_id, bounds, after, _PAGE, changed_since=changed_since)
        yield from (item for item in page if item[0] not in NOT_OWED)
        if after is None:
            return


def held_in(store: Store, target_id: int, bounds: tuple[int, int], reason: str) -> Iterator[PendingDelivery]:
    """The deliveries that ended within bounds (the second exclusive) and are held for a reason that begins so."""
    after: tuple[int, int] | None = None
    while True:
        with store.read() as connection:
            page, after = queries.held_for(connection, target_id, reason, bounds, after, _PAGE)
        yield from page
        if after is None:
            return


class DueRuns(Protocol):
    """What a target is owed, by the ends of its runs."""

    target_id: int | None

    def ended_in(
        self, bounds: tuple[int, int], *, changed_since: int | None = None
    ) -> Iterator[tuple[State, PendingDelivery]]:
        """See the function."""
        ...

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """The periods in which anything ended, from the one in which the first ended at `first` or later."""
        ...

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """The periods in which something waits."""
        ...


class Planned:
    """Of a target that is planned for: its deliveries."""

    def __init__(self, store: Store, target_id: int) -> None:
        self._store = store
        self.target_id: int | None = target_id
        self._id = target_id

    def ended_in(
        self, bounds: tuple[int, int], *, changed_since: int | None = None
    ) -> Iterator[tuple[State, PendingDelivery]]:
        """See `DueRuns`."""
        return ended_in(self._store, self._id, bounds, changed_since=changed_since)

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """See `DueRuns`."""
        with self._store.read() as connection:
            return queries.periods_from(connection, self._id, kind, first)

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """See `DueRuns`."""
        with self._store.read() as connection:
            return queries.periods_of(connection, self._id, State.WAITING, kind)


class Unplanned:
    """Of a target that was never planned for: all that it wants, which waits."""

    target_id: int | None = None

    def __init__(self, store: Store, wish: TargetFilter) -> None:
        self._store = store
        self._wish = wish
        with store.read() as connection:
            self._classes = {one.id for one in classes.all_classes(connection) if wish.wants_class(one)}

    def ended_in(
        self, bounds: tuple[int, int], *, changed_since: int | None = None
    ) -> Iterator[tuple[State, PendingDelivery]]:
        """See `DueRuns`."""
        del changed_since  # nothing was ever looked at
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = list(queries.runs_in(connection, *bounds, after, _PAGE))
            for run, class_id in page:
                end = run.job.end
                if run.job.finished and end is not None and class_id in self._classes and self._wish.selects_end(end):
                    yield State.WAITING, PendingDelivery(end, run)
            if len(page) < _PAGE:
                return
            after = (page[-1][0].job.end or 0, page[-1][0].run_id)

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """See `DueRuns`; some of them may hold nothing that is wanted."""
        found: list[Period] = []
        while True:
            with self._store.read() as connection:
                run = next((run for run, _ in queries.runs_in(connection, first, None, None, 1)), None)
            if run is None or run.job.end is None:
                return found
            found.append(period_of(kind, run.job.end))
            first = found[-1].stop

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """See `DueRuns`."""
        return self.periods_from(kind, EVER)


def due_at(settings: Target, row: TargetRow | None, now: int) -> int | None:
    """When a run next serves the target, epoch seconds; None: the next run does.

    Counted from the last success, so that what failed is tried again by the next run; for a shadow, which has none,
    from the last rehearsal.
    """
    last = past(None if row is None else row.last_attempt if settings.shadow else row.last_success, now)
    due = None if settings.every is None or last is None else math.ceil(last + settings.every)
    return due if due is not None and due > now else None


def to_release(
    store: Store, settings: TargetSettings, target_id: int, why_not_whole: Callable[[Period], str | None]
) -> list[Period]:
    """The periods known whole whose runs are held, some of them perhaps for not having been (`NOT_WHOLE`)."""
    with store.read() as connection:
        held = queries.periods_of(connection, target_id, State.HELD, period_kind(settings))
    return [one for one in held if why_not_whole(one) is None]
