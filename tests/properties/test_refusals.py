"""One bad item affects only itself: whichever months, days, or records a service refuses, all others arrive.

Summaries, reports, and sync counts are rejected in the run in which the service accepts another one, before or after
them, of the same month or another. A bad record needs other records that are accepted after it. If the service refuses
everything, nothing is rejected and everything waits. A run that was killed changes nothing of that.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from formats.calendar import month_of
from formats.job import Job
from formats.utilization.report import read_report
from publisher.store.schema import State
from publisher.targets.base import Message, Refused
from tests.extent import short_or_whole
from tests.properties.test_conservation import InTurn
from tests.publisher.receivers import AnyReceiver, RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

DAY_S: Final = 86_400
END_S: Final = 5000
"""When the jobs end, after the start of their period."""
PERIODS: Final = 4
EXTRA: Final = 99
"""The number of a good job that turns up later, in a period before all others."""


def end_in_month(place: int) -> int:
    """An end in August to November, by the place."""
    return NOVEMBER + END_S - 31 * DAY_S * (PERIODS - 1 - place)


def end_in_day(place: int) -> int:
    """An end in one of the first days of November, by the place."""
    return NOVEMBER + END_S + DAY_S * place


def month_of_sync(message: Message) -> int:
    """The month of its first sync count."""
    year, month = (re.findall(rf"\n{name}: (\d+)", message.payload.decode())[0] for name in ("Year", "Month"))
    return int(year) * 100 + int(month)


class GroupedSite:
    """A site with one service that is sent groups, and refuses those of bad users, days, or months."""

    def __init__(self, folder: Path, items: str, found: list[tuple[int, bool]], *, certain: bool, batch: int) -> None:
        """`found`: a group each: the place of its period, and whether it is bad; `batch`: groups in a message."""
        self.end_of: Callable[[int], int] = end_in_day if items == "reports" else end_in_month
        self.bad_places = {place for place, is_bad in found if is_bad}
        self.bad: set[str] = set()
        self.good: set[str] = set()
        self.source = ListSource("ce1")
        self.certain = certain
        self.items = items
        for number, (place, is_bad) in enumerate(found, 1):
            user = f"/CN={'Bad' if is_bad else 'Good'} {number:02d}"
            self._add(make_job(number, user_dn=user, end=self.end_of(place)), is_bad=is_bad)
        self.service = self._service()
        self.site = Site(folder, [self.source], [self.service])
        if items == "reports":
            self.site.configure("service", records="utilization", period="day")
        if items == "sync counts":
            self.site.configure("service", sync=True, workers=2)
        self.site.configure("service", batch_records=batch)
        self.site.collect()
        answer = Refused("HTTP 400", certain=certain)
        self.service.fault = lambda message: answer if self._is_bad(message) else None

    def add_a_good_one(self) -> None:
        self._add(make_job(EXTRA, user_dn="/CN=Good", end=self.end_of(-1)), is_bad=False)
        self.site.collect()

    def assert_the_bad_alone_are_rejected(self) -> None:
        """Assert that only bad items are rejected, or none, if there are only bad ones."""
        expected = {State.ACCEPTED: self.good, State.REJECTED: self.bad}
        if not self.good:
            expected = {State.ACCEPTED: set(), State.REJECTED: set()}
        assert {state: self._in_state(state) for state in expected} == expected
        if self.items != "sync counts":
            waiting = set() if self.good else self.bad
            assert self.site.in_state("service", State.WAITING) == waiting
        self.site.assert_counters_right()

    def _add(self, job: Job, *, is_bad: bool) -> None:
        assert job.end is not None
        name = str(month_of(job.end).number) if self.items == "sync counts" else job.record_id
        (self.bad if is_bad else self.good).add(name)
        self.source.add(job)

    def _service(self) -> RecordReceiver:
        if self.items == "summaries":
            return SummaryReceiver("service")
        return AnyReceiver("service") if self.items == "reports" else InTurn("service", "ams")

    def _is_bad(self, message: Message) -> bool:
        match self.items:
            case "summaries":
                return b"CN=Bad" in message.payload
            case "reports":
                return (read_report(message.payload).start - NOVEMBER) // DAY_S in self.bad_places
            case _:
                bad = {month_of(end_in_month(place)).number for place in self.bad_places}
                return message.format == "apel-sync" and month_of_sync(message) in bad

    def _in_state(self, state: State) -> set[str]:
        """Record ids of jobs, or months of sync counts."""
        if self.items != "sync counts":
            return self.site.in_state("service", state)
        query = "SELECT month FROM groups WHERE kind = 'sync' AND state = ?"
        return {str(month) for (month,) in self.site.rows(query, int(state))}


places = st.integers(0, PERIODS - 1)
ONE_IN_A_PERIOD = {"reports", "sync counts"}


@pytest.mark.parametrize("items", ["summaries", "reports", "sync counts"])
def test_bad_groups_are_rejected_and_all_others_arrive(items: str) -> None:
    @settings(max_examples=short_or_whole(5, 15))
    @given(
        st.lists(st.tuples(places, st.booleans()), min_size=1, max_size=8), st.booleans(), st.integers(1, 4), st.none()
    )
    @example([(0, True), (1, False)], False, 1, 3)
    @example([(0, True), (1, True)], False, 1, 2)
    @example([(0, True), (1, False), (2, True)], True, 2, 5)
    def bad_groups(found: list[tuple[int, bool]], certain: bool, batch: int, killed_at: int | None) -> None:
        if items in ONE_IN_A_PERIOD:
            found = list(dict(found).items())
        with tempfile.TemporaryDirectory() as folder:
            grouped = GroupedSite(Path(folder), items, found, certain=certain, batch=batch)
            site = grouped.site
            try:
                if killed_at is not None:
                    site.killed_at(killed_at, site.publish)
                    site.publish()
                    grouped.add_a_good_one()
                assert site.publish_to("service").sent.paused is None or not grouped.good
                grouped.assert_the_bad_alone_are_rejected()
            finally:
                site.reopen()

    bad_groups()


@pytest.mark.parametrize("kind", ["sgas", "ams"])
def test_bad_records_are_rejected_and_all_others_arrive(kind: str) -> None:
    @settings(max_examples=short_or_whole(5, 15))
    @given(st.lists(st.booleans(), min_size=1, max_size=25), st.integers(1, 6), st.integers(1, 3), st.integers(0, 1000))
    @example([True, *[False] * 24], 1, 1, 0)
    @example([True, *[False] * 24], 6, 3, 0)
    def bad_records(found: list[bool], batch: int, workers: int, seed: int) -> None:
        random.seed(seed)  # of the probes
        jobs = [make_job(number) for number in range(1, 1 + len(found))]
        bad = {job.record_id for job, is_bad in zip(jobs, found, strict=True) if is_bad}
        good = {job.record_id for job in jobs} - bad
        source, service = ListSource("ce1"), InTurn("service", kind)
        source.add(*jobs)
        service.poison = bad
        with tempfile.TemporaryDirectory() as folder:
            site = Site(Path(folder), [source], [service])
            try:
                site.configure("service", batch_records=batch, workers=workers)
                site.collect()
                rejected = site.publish_to("service").sent.rejected
                assert site.in_state("service", State.ACCEPTED) == good
                assert site.in_state("service", State.REJECTED) <= bad
                assert good or not rejected
                for number in range(EXTRA, EXTRA + 6):  # what nothing was accepted after is decided with later ones
                    source.add(make_job(number))
                    site.collect()
                    site.publish()
                assert site.in_state("service", State.REJECTED) == bad
                site.assert_counters_right()
            finally:
                site.reopen()

    bad_records()
