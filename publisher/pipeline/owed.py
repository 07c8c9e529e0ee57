"""What a target is owed of an interval, run by run: what summaries, reports and their dry runs are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from publisher.store import deliveries
from publisher.store.database import Store
from publisher.store.deliveries import Waiting
from publisher.store.states import State

NOT_OWED: Final = frozenset({State.WAIVED, State.SUPERSEDED})
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
            page = deliveries.ended_in(connection, target_id, bounds, after, _PAGE, changed_since=changed_since)
        yield from (item for item in page if item[0] not in NOT_OWED)
        if len(page) < _PAGE:
            return
        last = page[-1][1].run
        assert last.job.end is not None  # chosen by it
        after = (last.job.end, last.run_id)
