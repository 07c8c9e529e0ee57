"""What a target is owed of an interval, run by run: what summaries, reports and their dry runs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from formats.period import Period, PeriodKind, period_of
from publisher.pipeline import recall
from publisher.pipeline.wish import Wish
from publisher.store import classes, ledger
from publisher.store.database import Store
from publisher.store.ledger import Waiting
from publisher.store.states import State

NOT_OWED: Final = frozenset({State.WAIVED, State.SUPERSEDED})
EVER: Final = -(2**62)
"""Before every end."""
_PAGE: Final = 5000


def ended_in(
    store: Store, target_id: int, bounds: tuple[int, int], *, changed_since: int | None = None
) -> Iterator[tuple[State, Waiting]]:
    """The deliveries of runs that ended within bounds (the second exclusive), by end time; not those waived or
    superseded. `changed_since`: only those that were put down or moved then or later. Memory does not grow with them.
    """
    after: tuple[int, int] | None = None
    while True:
        with store.read() as connection:
            page, after = ledger.ended_in(connection, target_id, bounds, after, _PAGE, changed_since=changed_since)
        yield from (item for item in page if item[0] not in NOT_OWED)
        if after is None:
            return


def held_in(store: Store, target_id: int, bounds: tuple[int, int], reason: str) -> Iterator[Waiting]:
    """The deliveries that ended within bounds (the second exclusive) and are held for a reason that begins so."""
    after: tuple[int, int] | None = None
    while True:
        with store.read() as connection:
            page, after = ledger.held_for(connection, target_id, reason, bounds, after, _PAGE)
        yield from page
        if after is None:
            return


class Wants(Protocol):
    """What a target is owed, by the ends of its runs."""

    target_id: int | None

    def ended_in(self, bounds: tuple[int, int], *, changed_since: int | None = None) -> Iterator[tuple[State, Waiting]]:
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

    def ended_in(self, bounds: tuple[int, int], *, changed_since: int | None = None) -> Iterator[tuple[State, Waiting]]:
        """See `Wants`."""
        return ended_in(self._store, self._id, bounds, changed_since=changed_since)

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """See `Wants`."""
        with self._store.read() as connection:
            return ledger.periods_from(connection, self._id, kind, first)

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """See `Wants`."""
        with self._store.read() as connection:
            return ledger.periods_of(connection, self._id, State.WAITING, kind)


class Unplanned:
    """Of a target that was never planned for: all that it wants, which waits."""

    target_id: int | None = None

    def __init__(self, store: Store, wish: Wish) -> None:
        self._store = store
        self._wish = wish
        with store.read() as connection:
            self._classes = {one.id for one in classes.all_classes(connection) if wish.wants_class(one)}

    def ended_in(self, bounds: tuple[int, int], *, changed_since: int | None = None) -> Iterator[tuple[State, Waiting]]:
        """See `Wants`."""
        del changed_since  # nothing was ever looked at
        after: tuple[int, int] | None = None
        while True:
            with self._store.read() as connection:
                page = list(recall.runs_in(connection, *bounds, after, _PAGE))
            for run, class_id in page:
                end = run.job.end
                if run.job.finished and end is not None and class_id in self._classes and self._wish.wants_end(end):
                    yield State.WAITING, Waiting(end, run)
            if len(page) < _PAGE:
                return
            after = (page[-1][0].job.end or 0, page[-1][0].run_id)

    def periods_from(self, kind: PeriodKind, first: int) -> list[Period]:
        """See `Wants`; some of them may hold nothing that is wanted."""
        found: list[Period] = []
        while True:
            with self._store.read() as connection:
                run = next((run for run, _ in recall.runs_in(connection, first, None, None, 1)), None)
            if run is None or run.job.end is None:
                return found
            found.append(period_of(kind, run.job.end))
            first = found[-1].stop

    def waiting(self, kind: PeriodKind) -> list[Period]:
        """See `Wants`."""
        return self.periods_from(kind, EVER)
