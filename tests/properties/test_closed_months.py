"""Closed months: whatever comes late, changes, vanishes, is erased or purged, and wherever a closing is killed, the
statements in force and the open corrections are what the jobs cost, and no number is given twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from formats.calendar import month_bounds
from formats.job import Job
from publisher.errors import UsageError
from tests.extent import short_or_whole
from tests.publisher.report.closing_site import (
    MONTHS,
    PRICES,
    Reckoning,
    changed,
    charges,
    closing_site,
    come,
    job,
    killed_while,
    person,
    require_conserved,
)

USERS = ("ada", "bob", "eve", "joe")
STEPS = 7


class ClosingSchedule:
    """A site to which things happen at random."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.reckoning = Reckoning()
        self.prices = PRICES
        self.purged: set[object] = set()
        self.count = 0
        first = [self.job() for _ in range(12)]
        self.site = closing_site(folder, *first)
        self.reckoning.take(*first)

    def job(self, number: int = 0, user: str = "") -> Job:
        """A job of any month; by default a new one of anybody who is not erased."""
        self.count += not number
        start, stop = month_bounds(self.random.choice(MONTHS))
        known = [name for name in USERS if name not in self.reckoning.names]
        return job(
            number or self.count, user or self.random.choice(known), self.random.randrange(start, stop),
            self.random.randrange(0, 50_000), queue=self.random.choice(list(PRICES)), slots=self.random.randrange(1, 5),
        )  # fmt: skip

    def late(self) -> None:
        """Jobs that were not known come."""
        some = [self.job() for _ in range(self.random.randrange(1, 5))]
        come(self.site, *some)
        self.reckoning.take(*some)

    def change(self) -> None:
        """A job has another version, perhaps of another month or payer: then it vanishes from its own."""
        living = [each for each in self.reckoning.jobs.values() if (each.local_user or "") not in self.reckoning.names]
        if living:
            old = self.random.choice(living)
            new = self.job(int(old.local_id or 0), old.local_user or "")
            if self.random.random() < 0.5:
                new = changed(new, start=old.start, submit=old.submit, end=old.end, queue=old.queue)
            come(self.site, new)
            self.reckoning.take(new)

    def erase(self) -> None:
        """A person is forgotten."""
        there = {each.local_user or "" for each in self.reckoning.jobs.values()} - self.reckoning.names.keys()
        if len(there) > 1:
            user = self.random.choice(sorted(there))
            pseudonym = f"/CN=erased {user[::-1]}"
            try:
                self.site.publisher.maintenance.forget(person(user), pseudonym)
            except UsageError:  # all jobs were purged: the store only has the payer's name
                self.site.publisher.maintenance.forget(user, pseudonym)
            self.reckoning.names[user] = pseudonym

    def purge(self) -> None:
        """The first months leave the store, once they are closed."""
        closed = set(MONTHS[:2]) <= self.reckoning.prices.keys()
        if closed and self.site.publisher.maintenance.purge(MONTHS[1]).runs:
            self.purged.add(MONTHS[0])

    def reprice(self) -> None:
        """The price list changes, which no closed month notices."""
        self.prices = {queue: f"0.{self.random.randrange(1, 99):02}" for queue in PRICES}
        self.site.table["charges"] = charges(self.prices)
        self.site.reopen()

    def close(self) -> None:
        """A month is closed, perhaps at the second attempt."""
        month = self.random.choice(MONTHS)
        if month not in self.reckoning.prices and month not in self.purged:
            self._undisturbed(lambda: self.site.publisher.close_month(month))
            self.reckoning.prices[month] = self.prices

    def cancel(self) -> None:
        """The statements of a month get successors."""
        closed = sorted(self.reckoning.prices.keys() - self.purged)
        if closed:
            month = self.random.choice(closed)
            self._undisturbed(lambda: self.site.publisher.cancel_month(month, "wrong"))
            self.reckoning.prices[month] = self.prices

    def _undisturbed(self, action: Callable[[], object]) -> None:
        before = len(self.site.publisher.closed_months()), self.site.rows("SELECT count(*) FROM closings")
        if self.random.random() < 0.6 and killed_while(self.site, self.random.randrange(40), action):
            after = len(self.site.publisher.closed_months()), self.site.rows("SELECT count(*) FROM closings")
            if after != before:
                return  # killed after the commit
            require_conserved(self.site, self.reckoning)
        action()

    def step(self) -> None:
        """One of these happens."""
        does = [self.late, self.late, self.change, self.change, self.close, self.close, self.close, self.cancel]
        does += [self.erase, self.purge, self.reprice]
        self.random.choice(does)()
        require_conserved(self.site, self.reckoning)


@pytest.mark.parametrize("seed", range(short_or_whole(10, 200)))
def test_statements_and_open_corrections_are_what_is_true(tmp_path: Path, seed: int) -> None:
    schedule = ClosingSchedule(tmp_path, seed)
    for _ in range(STEPS):
        schedule.step()
