"""A site with charges whose months are closed, and a plain reckoning of what each month costs now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import event

from formats.calendar import Month, month_bounds, month_of
from formats.job import Job
from publisher.events import WorkAdvanced
from publisher.report.request import ReportRequest
from publisher.testing.memory import ListSource
from tests.publisher.site import Site, make_job

MONTHS = (Month(2026, 8), Month(2026, 9), Month(2026, 10))
Prices = Mapping[str, str]
PRICES: Prices = {"short": "0.37", "main": "0.11"}


def person(user: str) -> str:
    """The distinguished name of a user."""
    return f"/DC=org/CN={user.title()} Person"


def job(number: int, user: str, end: int, wall_s: int = 3600, **facts: Any) -> Job:
    """A run of a user, who has a distinguished name."""
    given = {"local_user": user, "user_dn": person(user), "slots": 2, "queue": "main", **facts}
    return make_job(number, end=end, wall_s=wall_s, **given)


def charges(prices: Prices = PRICES, **more: Any) -> dict[str, Any]:
    """The table `[charges]`."""
    listed = [{"resource": "cores", "price": price, "queue": queue} for queue, price in prices.items()]
    return {"currency": "EUR", "prices": listed, **more}


def closing_site(folder: Path, *jobs: Job, **more: Any) -> Site:
    """A site without targets that has collected these jobs."""
    source = ListSource("ce1")
    source.add(*jobs)
    site = Site(folder, [source], [])
    site.table["charges"] = charges(**more)
    site.collect()
    return site


def come(site: Site, *jobs: Job) -> None:
    """Jobs are new in the log, or in another version."""
    site.sources["ce1"].add(*jobs)
    site.collect()


def killed_while(site: Site, step: int, action: Callable[[], object]) -> bool:
    """Do something to the store, and die with the power at a statement or commit; False if it was done before that."""
    engine = site.publisher.store.engine
    listener = lambda *_: site.watch(WorkAdvanced("statement", 0, None))  # noqa: E731 - must be removed as it was added
    for name in ("before_cursor_execute", "commit"):
        event.listen(engine, name, listener)
    try:
        return site.killed_at(step, action)
    finally:
        for name in ("before_cursor_execute", "commit"):
            event.remove(engine, name, listener)


class Reckoning:
    """What each payer owes for each month, from the jobs alone."""

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self.prices: dict[Month, Prices] = {}
        """With which a month was closed."""
        self.names: dict[str, str] = {}
        """The pseudonyms of users."""

    def take(self, *jobs: Job) -> None:
        """As the source has them now."""
        self.jobs.update((each.record_id, each) for each in jobs)

    def owed(self, decimals: int = 2) -> dict[tuple[Month, str], Decimal]:
        """By closed month and payer; nothing that is zero."""
        usage: dict[tuple[Month, str, str], Fraction] = defaultdict(Fraction)
        for each in self.jobs.values():
            assert each.end is not None
            month, payer = month_of(each.end), self.names.get(each.local_user or "", each.local_user or "")
            if month in self.prices:
                hours = Fraction((each.slots or 1) * (each.wall_ms or 0), 3_600_000)
                usage[month, payer, each.queue or ""] += hours
        owed: dict[tuple[Month, str], Decimal] = defaultdict(Decimal)
        for (month, payer, queue), hours in usage.items():
            exact = hours * Fraction(self.prices[month][queue])
            scaled = Decimal(exact.numerator * 10**decimals) / Decimal(exact.denominator)
            owed[month, payer] += scaled.quantize(Decimal(1), ROUND_HALF_UP).scaleb(-decimals)
        return {key: amount for key, amount in owed.items() if amount}


def stated(site: Site) -> tuple[dict[tuple[Month, str], Decimal], dict[tuple[Month, str], Decimal]]:
    """By month and payer, what the statements in force say, and what the open corrections do."""
    issued: dict[tuple[Month, str], Decimal] = defaultdict(Decimal)
    opened: dict[tuple[Month, str], Decimal] = defaultdict(Decimal)
    for month in site.publisher.closed_months():
        for one in month.statements:
            if not one.cancelled_by:
                others = sum((each.amount for each in one.statement.corrections), Decimal(0))
                issued[one.month, one.statement.payer] += one.statement.total - others
                for each in one.statement.corrections:
                    about = Month(*map(int, each.month.split("-")))
                    issued[about, one.statement.payer] += each.amount
        for payer, some in month.changes.corrections.items():
            opened[month.changes.month, payer] += sum((each.amount for each in some), Decimal(0))
    return issued, opened


def require_conserved(site: Site, reckoning: Reckoning) -> None:
    """Statements in force and open corrections are what is true now, and no number was given twice."""
    issued, opened = stated(site)
    total = {key: issued[key] + opened[key] for key in issued.keys() | opened.keys()}
    assert {key: amount for key, amount in total.items() if amount} == reckoning.owed()
    numbers = [one.number for month in site.publisher.closed_months() for one in month.statements]
    (last,) = site.rows("SELECT last FROM number_series") or [(0,)]
    assert sorted(numbers) == list(range(1, last[0] + 1))
    findings = {each.subject: each.level for each in site.publisher.maintenance.check()}
    assert findings["closed months"] == "green"


def charged_now(site: Site, month: Month) -> Decimal:
    """The total of the view `charges`."""
    start, stop = month_bounds(month)
    report = site.publisher.view("charges", ReportRequest(start=start, stop=stop))
    return Decimal(report.facts["all"])


def changed(one: Job, **facts: Any) -> Job:
    """Another version of a job."""
    return msgspec.structs.replace(one, **facts)
