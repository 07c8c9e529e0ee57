"""The items of statements: usage by payer, resource, price, and factors, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Final, get_args

import msgspec

from publisher.config.energy import MILLI
from publisher.config.reports import Charged, Charges, Factor, Price
from publisher.report.energy_use import MJ_A_KWH
from publisher.report.held_amounts import rounded
from publisher.report.inventory import PARTS_OF_UNIT
from publisher.report.statements.statement import LostRuns, StatementItem, UserCharge

FACTOR_KEYS: Final = ("group", "user", "project", "vo", "queue", "status", "account")
"""The keys of rules for factors."""
UNIT_MS: Final[Mapping[str, int]] = {
    **{resource: 3_600_000 * parts for resource, parts in PARTS_OF_UNIT.items()},
    "energy": MJ_A_KWH * MILLI,
}
"""How many of the whole numbers in which usage is counted are an hour of a core, GiB, or GPU; of energy, which is
millijoules times thousandths of the PUE, a kWh."""
UNITS: Final = {"cores": "core h", "gpus": "GPU h", "memory": "GiB h", "vmem": "GiB h", "energy": "kWh"}


class Used(msgspec.Struct, frozen=True):
    """The key of an item: payer, resource, and the places of price and factors in their lists; -1: no factor."""

    payer: str
    resource: Charged
    price: int
    group_factor: int
    job_factor: int


def itemised(
    settings: Charges, usage: Mapping[Used, int]
) -> dict[str, tuple[tuple[StatementItem, ...], tuple[StatementItem, ...]]]:  # fmt: skip
    """By payer, the items of usage (amounts times milliseconds), and those that round to zero."""
    items: dict[str, tuple[tuple[StatementItem, ...], tuple[StatementItem, ...]]] = {}
    for key, amount in sorted(usage.items(), key=lambda pair: _order(pair[0])):
        item, exact = item_of(settings, key, amount)
        charged, left_out = items.get(key.payer, ((), ()))
        lost = exact and not item.amount
        items[key.payer] = (charged, (*left_out, item)) if lost else ((*charged, item), left_out)
    return items


def lost_runs(settings: Charges, usage: Mapping[Used, int], runs: Mapping[tuple[str, str], int]) -> dict[str, LostRuns]:
    """By payer, the lost runs that are charged."""
    amounts: dict[str, Fraction] = {}
    for key, held in usage.items():
        amounts[key.payer] = amounts.get(key.payer, Fraction(0)) + item_of(settings, key, held)[1]
    return {
        payer: LostRuns(
            max(count for (whose, _), count in runs.items() if whose == payer),
            rounded(exact, settings.decimals),
        )
        for payer, exact in amounts.items()
        if exact
    }


def user_charges(settings: Charges, usage: Mapping[tuple[Used, str], int]) -> dict[str, tuple[UserCharge, ...]]:
    """By payer, what its users are charged, the largest first. Amounts are exact until they are rounded, once each."""
    exact: dict[tuple[str, str], Fraction] = {}
    quantities: dict[tuple[str, str], dict[Charged, Fraction]] = {}
    for (key, user), used in usage.items():
        item, amount = item_of(settings, key, used)
        of = (key.payer, user)
        exact[of] = exact.get(of, Fraction(0)) + amount
        held = quantities.setdefault(of, {})
        held[key.resource] = held.get(key.resource, Fraction(0)) + item.quantity
    by_payer: dict[str, list[UserCharge]] = {}
    for (payer, user), amount in sorted(exact.items(), key=lambda pair: (-pair[1], pair[0])):
        held = quantities[payer, user]
        amounts = tuple((held[resource], UNITS[resource]) for resource in get_args(Charged) if resource in held)
        by_payer.setdefault(payer, []).append(UserCharge(user, amounts, rounded(amount, settings.decimals)))
    return {payer: tuple(users) for payer, users in by_payer.items()}


def _order(key: Used) -> tuple[str, str, int, int, int]:
    return (key.payer, key.resource, key.price, key.group_factor, key.job_factor)


def item_of(settings: Charges, key: Used, usage: int) -> tuple[StatementItem, Fraction]:
    """An item, and its amount before rounding."""
    price = settings.prices[key.price]
    group = settings.group_factors[key.group_factor].factor if key.group_factor >= 0 else Decimal(1)
    job = settings.job_factors[key.job_factor].factor if key.job_factor >= 0 else Decimal(1)
    quantity = Fraction(usage, UNIT_MS[key.resource])
    exact = quantity * Fraction(price.price) * Fraction(group) * Fraction(job)
    factors = ((settings.group_factors, key.group_factor), (settings.job_factors, key.job_factor))
    rules: list[Price | Factor] = [
        *([price] if price.name else []),
        *(listed[place] for listed, place in factors if place >= 0),
    ]
    item = StatementItem(
        resource=key.resource,
        name=price.name or _called(price),
        quantity=quantity,
        unit=UNITS[key.resource],
        price=price.price,
        group_factor=group,
        job_factor=job,
        amount=rounded(exact, settings.decimals),
        applies_to="; ".join(filter(None, map(_patterns, rules))),
    )
    return item, exact


def _patterns(rule: Price | Factor) -> str:
    """What a rule of the price list applies to: `type compute, queue short`."""
    names = ("cluster", "type", "queue", "hours") if isinstance(rule, Price) else FACTOR_KEYS
    conditions = ((name, getattr(rule, name)) for name in names)
    return ", ".join(
        f"{name} {value if isinstance(value, str) else ' or '.join(value)}"
        for name, value in conditions
        if value is not None
    )


def _called(price: Price) -> str:
    where = [", ".join(patterns) for patterns in (price.cluster, price.type, price.queue) if patterns]
    where += [price.hours] if price.hours else []
    return f"{price.resource} ({'; '.join(where)})" if where else price.resource
