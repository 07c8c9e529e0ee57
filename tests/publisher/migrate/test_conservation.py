"""In any order of the steps of a move, each job is delivered once, by the earlier publisher or by us.

Jobs are found before and after the first reading, filters change, targets become shadows and active again, jobs are
taken over by time. The oracle: accepted from here = at the receiver, once; assumed jobs are never sent unless
requested; nothing else disappears.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from publisher.store.schema import State
from publisher.text import iso
from tests.extent import short_or_whole
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

Step = Literal["jobs", "collect", "publish", "shadow", "light", "take over", "everything"]
steps = st.lists(
    st.tuples(
        st.sampled_from(("jobs", "jobs", "collect", "publish", "shadow", "light", "take over", "everything")),
        st.integers(1, 30),
    ),
    min_size=3,
    max_size=12,
)


def end_of(number: int) -> int:
    return NOVEMBER + 3600 + number


@settings(max_examples=short_or_whole(10, 25))
@given(kind=st.sampled_from(("sgas", "ams")), until=st.integers(0, 30), todo=steps)
def test_each_job_once(kind: str, until: int, todo: list[tuple[str, int]]) -> None:
    folder = Path(tempfile.mkdtemp())
    service = RecordReceiver("one", kind)
    site = Site(folder, [ListSource("ce1", page=3)], [service])
    site.configure("one", delivered_until=iso(end_of(until)), batch_records=4)
    known: set[int] = set()
    first: set[int] | None = None
    asked_for: set[int] = set()
    taken_over: set[int] = set()
    try:
        for step, number in todo:
            if step == "jobs":
                fresh = set(range(number, number + 3)) - known
                site.sources["ce1"].add(*(make_job(each) for each in sorted(fresh)))
                known |= fresh
            elif step == "collect":
                site.collect()
                first = set(known) if first is None else first
            elif step == "publish":
                site.publish()
            elif step in {"shadow", "light"}:
                site.configure("one", shadow=step == "shadow")
            elif step == "take over":
                waiting = site.in_state("one", State.WAITING)
                site.publisher.take_over_until("one", end_of(number))
                taken_over |= {each for each in range(1, number + 1) if make_job(each).record_id in waiting}
            elif not site.config.targets["one"].shadow and first is not None:
                site.republish("one", NOVEMBER, NOVEMBER + 86400, only_missing=True)
                asked_for |= known
            site.assert_counters_right()
        site.configure("one", shadow=False)
        site.collect()
        first = set(known) if first is None else first
        site.publish()
        before_us = {each for each in first if each <= until} | taken_over
        ours = {make_job(each).record_id for each in known - before_us}
        never = {make_job(each).record_id for each in before_us - asked_for}
        assert site.in_state("one", State.ACCEPTED) == {make_job(each).record_id for each in known}
        assert ours <= set(service.held)
        assert never.isdisjoint(service.held)
        assert len(service.posted()) == len(set(service.posted())), "nothing went twice"
        assumed = site.publisher.status().targets["one"].assumed
        assert assumed == len(known) - len(service.held)
    finally:
        site.reopen()
        shutil.rmtree(folder)
