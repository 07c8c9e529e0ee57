"""A year of four systems, closed month by month with three price lists, beside plain Python: each statement, each item,
and what late jobs correct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from formats.calendar import Month
from formats.job import Job
from publisher.report.statements.closed import ClosedStatement
from tests.extent import RUN_WHOLE, short_or_whole
from tests.publisher.report.closing_site import stated
from tests.publisher.report.views.test_energy_year import (
    NODES,
    OSLO,
    POWER,
    PUE,
    STOP,
    SYSTEMS,
    jobs,
    measured_mj,
    modelled_mj,
)
from tests.publisher.site import ListSource, Site

NIGHT = range(6)
"""With 22 and 23."""
GROUP_FACTORS = [{"factor": "0.5", "user": "ada"}, {"factor": "1.25", "project": "p1"}]
JOB_FACTORS = [{"factor": "0.1", "status": "failed"}]
PRICE_LISTS: list[list[dict[str, Any]]] = [
    [
        {"resource": "cores", "price": "0.011", "hours": "22-06"},
        {"resource": "cores", "price": "0.023"},
        {"resource": "gpus", "price": "0.61"},
        {"resource": "energy", "price": "0.31"},
    ],
    [
        {"resource": "cores", "price": "0.031", "queue": "fat*"},
        {"resource": "cores", "price": "0.007", "hours": "22-06"},
        {"resource": "cores", "price": "0.019"},
        {"resource": "energy", "price": "0.123456789", "queue": "fatter"},
        {"resource": "energy", "price": "0.2"},
    ],
    [
        {"resource": "gpus", "price": "1.5", "queue": "main"},
        {"resource": "gpus", "price": "0.75", "cluster": "slurm*"},
        {"resource": "cores", "price": "0.02", "hours": "22-06", "cluster": "t*"},
        {"resource": "cores", "price": "0.03", "cluster": ["t*", "g*"]},
    ],
]
Charge = tuple[str, int, int, int]
"""A resource, and the places of its price and factors."""


def of_month(job: Job) -> Month:
    at = datetime.fromtimestamp(job.end or 0, OSLO)
    return Month(at.year, at.month)


def list_of(month: Month) -> int:
    return (month.month - 1) // 4 if RUN_WHOLE else month.month % 3


def listed(patterns: Any) -> list[str]:
    return [patterns] if isinstance(patterns, str) else patterns


def is_like(word: str, pattern: str) -> bool:
    return word.startswith(pattern[:-1]) if pattern.endswith("*") else word == pattern


def place_of(prices: list[dict[str, Any]], resource: str, job: Job, *, night: bool) -> int:
    """The first price that matches; -1: none."""

    def matches(price: dict[str, Any]) -> bool:
        words = {"queue": str(job.queue), "cluster": str(job.cluster)}
        return (
            price["resource"] == resource
            and ("hours" not in price or night)
            and all(any(is_like(word, one) for one in listed(price.get(key, "*"))) for key, word in words.items())
        )

    return next((place for place, price in enumerate(prices) if matches(price)), -1)


def night_ms(job: Job) -> int:
    """How much of a job is from 22 to 6, hour by hour of Oslo."""
    at, last, found = job.start or 0, job.end or 0, 0
    while at < last:
        following = min((at // 3600 + 1) * 3600, last)
        hour = datetime.fromtimestamp(at, UTC).astimezone(OSLO).hour
        found += (following - at) * (hour in NIGHT or hour >= 22)
        at = following
    return found * 1000


def charged(system: str, job: Job, prices: list[dict[str, Any]]) -> Iterable[tuple[Charge, Fraction]]:
    """What a job costs before rounding, by charge."""
    group = 0 if job.local_user == "ada" else 1 if job.project == "p1" else -1
    status = 0 if job.status == "failed" else -1
    at_night, wall_ms = night_ms(job), job.wall_ms or 0
    value = measured_mj(system, job)
    energy = Fraction(modelled_mj(system, job) or 0 if value is None else value) * PUE / 1000
    for resource, usage, night in (
        ("cores", Fraction((job.slots or 0) * at_night), True),
        ("cores", Fraction((job.slots or 0) * (wall_ms - at_night)), False),
        ("gpus", Fraction((job.gpus or 0) * at_night), True),
        ("gpus", Fraction((job.gpus or 0) * (wall_ms - at_night)), False),
        ("energy", energy, False),
    ):
        place = place_of(prices, resource, job, night=night)
        if usage and place >= 0:
            yield (resource, place, group, status), usage / 3_600_000


def amounts(known: Iterable[tuple[str, Job]], month: Month) -> dict[str, dict[Charge, Decimal]]:
    """By user, the rounded amount of each charge of a month."""
    prices = PRICE_LISTS[list_of(month)]
    exact: defaultdict[str, defaultdict[Charge, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for system, job in known:
        if of_month(job) == month:
            for charge, usage in charged(system, job, prices):
                exact[job.local_user or ""][charge] += usage
    found: dict[str, dict[Charge, Decimal]] = {}
    for user, charges in exact.items():
        for (resource, place, group, status), usage in charges.items():
            cost = usage * Fraction(prices[place]["price"])
            cost *= Fraction(GROUP_FACTORS[group]["factor"]) if group >= 0 else 1
            cost *= Fraction(JOB_FACTORS[status]["factor"]) if status >= 0 else 1
            rounded = Decimal(int(cost * 100 + Fraction(1, 2))).scaleb(-2)
            found.setdefault(user, {})[resource, place, group, status] = rounded
    return found


def items_of(one: ClosedStatement) -> list[Decimal]:
    return sorted(each.amount for each in (*one.statement.items, *one.statement.left_out))


def test_a_year_of_statements_and_corrections(tmp_path: Path) -> None:
    chance = Random(3)
    of_systems = {
        system: [msgspec.structs.replace(job, wall_ms=((job.end or 0) - (job.start or 0)) * 1000) for job in some]
        for system, some in jobs(short_or_whole(160, 50_000)).items()
    }
    everything = [(system, job) for system in SYSTEMS for job in of_systems[system]]
    late = {job.record_id: chance.randrange(1, 4) for _, job in everything if chance.random() < 0.1}
    sources = {system: ListSource(system, page=5_000) for system in SYSTEMS}
    site = Site(tmp_path, list(sources.values()), [])
    site.table |= {"energy": {"pue": 1.37, "power": POWER}, "nodes": NODES}
    site.now = STOP + 60 * 86_400
    months = sorted({of_month(job) for _, job in everything})
    known: list[tuple[str, Job]] = []
    expected: dict[Month, dict[str, dict[Charge, Decimal]]] = {}
    for turn, month in enumerate(months):
        comes = [
            (system, job)
            for system, job in everything
            if months.index(of_month(job)) + late.get(job.record_id, 0) == turn
        ]
        for system, job in comes:
            sources[system].add(job)
        known += comes
        site.table["charges"] = {
            "timezone": "Europe/Oslo", "prices": PRICE_LISTS[list_of(month)], "group_factors": GROUP_FACTORS,
            "job_factors": JOB_FACTORS,
        }  # fmt: skip
        site.reopen()
        site.collect()
        issued = {one.statement.payer: one for one in site.publisher.close_month(month)}
        now = {month: amounts(known, month) for month in months[: turn + 1]}
        for user, charges in now[month].items():
            assert items_of(issued[user]) == sorted(charges.values()), (month, user)
        for user, one in issued.items():
            changes = sum(
                (
                    sum(now[each].get(user, {}).values()) - sum(expected[each].get(user, {}).values())
                    for each in months[:turn]
                ),
                Decimal(0),
            )
            assert sum((each.amount for each in one.statement.corrections), Decimal(0)) == changes, (month, user)
        expected = now
    for system, job in everything:
        sources[system].add(job)
    site.collect()
    found, opened = stated(site)
    true = {
        (month, user): sum(charges.values()) for month in months for user, charges in amounts(everything, month).items()
    }
    total = {key: found[key] + opened[key] for key in found.keys() | opened.keys()}
    assert {key: amount for key, amount in total.items() if amount} == {key: one for key, one in true.items() if one}
    assert any(opened.values())
