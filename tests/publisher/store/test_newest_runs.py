"""The newest runs in some state of delivery: each once, in order, and as many as there are."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest
from sqlalchemy import select, update

from formats.job import Job
from publisher.store import newest_runs
from publisher.store.newest_runs import Newest
from publisher.store.schema import State, deliveries, runs
from publisher.store.stored_run import stored_run
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

pytestmark = pytest.mark.either_store


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Every third run is held at `a`, every second at `b`; two runs end together."""
    source = ListSource("ce1")
    made = Site(tmp_path, [source], [RecordReceiver("a", "ams"), RecordReceiver("b", "ams")])
    source.add(*(job(number) for number in range(1, 31)))
    made.collect()
    with made.publisher.store.write() as connection:
        held = deliveries.c.run_id % 3 == 0
        at_b = deliveries.c.run_id % 2 == 0
        connection.execute(update(deliveries).where(deliveries.c.target_id == 1, held).values(state=int(State.HELD)))
        connection.execute(update(deliveries).where(deliveries.c.target_id == 2, at_b).values(state=int(State.HELD)))
    return made


def job(number: int) -> Job:
    return make_job(number, end=NOVEMBER + 100 * (number // 2))


@pytest.mark.parametrize("targets", [[1], [2], [1, 2], []])
@pytest.mark.parametrize(
    "window", [(None, None), (NOVEMBER + 400, None), (None, NOVEMBER + 1000), (NOVEMBER, NOVEMBER)]
)
@pytest.mark.parametrize("limit", [1, 4, 100, None])
def test_held_at_any_of_these(
    site: Site, targets: list[int], window: tuple[int | None, int | None], limit: int | None
) -> None:
    start, stop = window
    chosen = Newest(start, stop, None, targets, State.HELD)
    with site.publisher.store.read() as connection:
        shown = [stored_run(row).run_id for row in chain.from_iterable(newest_runs.rows(connection, chosen, limit))]
        total = newest_runs.count(connection, chosen)
        ends = dict(connection.execute(select(runs.c.id, runs.c.end_time)).all())
    divisors = {1: 3, 2: 2}
    held = {run_id for run_id in ends for target in targets if run_id % divisors[target] == 0}
    expected = [each for each in held if (start or 0) <= ends[each] < (2**40 if stop is None else stop)]
    expected.sort(key=lambda each: (ends[each], each), reverse=True)
    assert shown == expected[:limit]
    assert total == len(expected)
