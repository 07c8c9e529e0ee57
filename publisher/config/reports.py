"""Tables that only reports use: the nodes of the site, and the price list."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from functools import cache
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from publisher.config.energy import NodeWatts
from publisher.config.types import Count, Instant, Patterns, Settings, WrongKeysError, ZoneName, matching

_MOST_NODES: Final = 100_000
_RANGES: Final = re.compile(r"\[([\d,-]+)\]", re.ASCII)
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)


def _decimal(value: object) -> Decimal:
    """A decimal from text or a whole number. A float is refused: it is a binary fraction, not the decimal written."""
    if isinstance(value, Decimal):
        return value
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            number = Decimal(value)
        except InvalidOperation:
            number = Decimal("NaN")
        if number.is_finite() and abs(number) < 10**15 and number == number.quantize(Decimal("1e-9")):
            return number
    raise ValueError('must be an amount: text such as "0.025" (at most nine decimals), or a whole number')


Amount = Annotated[Decimal, BeforeValidator(_decimal)]
_HOURS: Final = re.compile(r"([01]\d|2[0-3])(?::([0-5]\d))?-(24|[01]\d|2[0-3])(?::([0-5]\d))?", re.ASCII)


def hours_s(text: str) -> tuple[int, int]:
    """Both ends of `22-06` or `07:30-24:00`, seconds after midnight. Raises ValueError."""
    match = _HOURS.fullmatch(text)
    if match is not None:
        hour, minute, last_hour, last_minute = (int(digits or 0) for digits in match.groups())
        start, stop = 3600 * hour + 60 * minute, 3600 * last_hour + 60 * last_minute
        if start != stop <= 86_400:
            return start, stop
    raise ValueError(f"{text!r} is not a part of the day. Write it as 22-06 or 07:30-24:00")


def _hours(text: str) -> str:
    hours_s(text)
    return text


HoursText = Annotated[str, AfterValidator(_hours)]


def expanded(name: str) -> list[str]:
    """The names in a list such as `n[01-16,20].example.org`. Raises ValueError."""
    match = _RANGES.search(name)
    if match is None:
        if not name or "[" in name or "]" in name:
            raise ValueError(f"{name!r} is not a name of nodes. Write several as n[01-16,20].example.org")
        return [name]
    numbers: list[str] = []
    for part in match[1].split(","):
        ends = _RANGE.fullmatch(part)
        if ends is None:
            raise ValueError(f"{part!r} in {name!r} is neither a number nor a range such as 01-16")
        first, last = ends[1], ends[2] or ends[1]
        if not 0 <= int(last) - int(first) < _MOST_NODES:
            raise ValueError(f"{part!r} in {name!r} is not a range: its end is before its start, or it is too long")
        numbers += [f"{number:0{len(first)}}" for number in range(int(first), int(last) + 1)]
    before, after = name[: match.start()], name[match.end() :]
    rests = expanded(after) if _RANGES.search(after) else [after]
    if len(numbers) * len(rests) > _MOST_NODES:
        raise ValueError(f"{name!r} names too many nodes")
    return [f"{before}{number}{rest}" for number in numbers for rest in rests]


class Node(Settings):
    """`[[nodes]]`: nodes of equal size, for reports of occupation."""

    name: str = Field(min_length=1, description="Name as in the batch system; several nodes: n[01-16,20].example.org.")
    cores: Count = Field(ge=1, le=1_000_000, description="Cores (slots) of each.")
    type: str = Field(default="compute", min_length=1, description="Kind of node: compute, fat, gpu ...")
    cluster: str | None = Field(
        default=None, min_length=1, description="The cluster, if several clusters have nodes of this name."
    )
    memory_gib: Count | None = Field(default=None, ge=1, description="Memory of each, GiB.")
    virtual_gib: Count | None = Field(default=None, ge=1, description="Memory and swap of each, GiB.")
    gpus: Count = Field(default=0, ge=0, le=1_000, description="GPUs of each.")
    watts_idle: NodeWatts | None = Field(default=None, description="Power of each while no job has a core of it, W.")
    watts_max: NodeWatts | None = Field(
        default=None, description="The most that each can draw, W: higher measured values are not used."
    )
    since: Instant | None = Field(default=None, description="In service from then on.")
    until: Instant | None = Field(default=None, description="In service until then.")

    @model_validator(mode="after")
    def _makes_sense(self) -> Node:
        expanded(self.name)
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise ValueError("since must be before until")
        if self.watts_idle is not None and self.watts_max is not None and self.watts_idle > self.watts_max:
            raise ValueError("watts_idle must be at most watts_max")
        return self

    @property
    def names(self) -> list[str]:
        """The name of each node."""
        return expanded(self.name)


Charged = Literal["cores", "memory", "vmem", "gpus", "energy"]


_DAY_MINUTES: Final = 1440


@cache
def minutes_of(text: str | None) -> frozenset[int]:
    """The minutes of a day in a part of it; None: all."""
    first, last = (0, 86_400) if text is None else hours_s(text)
    length = (last - first) % 86_400 or 86_400
    return frozenset((first // 60 + minute) % _DAY_MINUTES for minute in range(length // 60))


class Price(Settings):
    """`[[charges.prices]]`: the price of a class of resources; the first that matches counts."""

    resource: Charged = Field(description="cores, memory, vmem, gpus or energy.")
    price: Amount = Field(ge=0, description='Of a core hour, GiB hour, GPU hour or kWh: text such as "0.025".')
    cluster: Patterns | None = Field(default=None, description="Only on these clusters.")
    type: Patterns | None = Field(default=None, description="Only on nodes of these types, as [[nodes]] has them.")
    queue: Patterns | None = Field(default=None, description="Only in these queues.")
    hours: HoursText | None = Field(
        default=None, description='Only for what was used in these hours of the day, in `timezone`: "22-06".'
    )
    name: str | None = Field(default=None, min_length=1, description="Its name in statements.")

    @model_validator(mode="after")
    def _energy_has_no_place(self) -> Price:
        if self.resource == "energy":
            for name in ("type", "hours"):
                if getattr(self, name) is not None:
                    text = "cannot be set for energy, which is that of a job as a whole. Use `cluster` or `queue`"
                    raise WrongKeysError(((name,), text))
        return self


_PLACES: Final = ("cluster", "type", "queue")


def crossing_prices(prices: Sequence[Price]) -> Iterator[str]:
    """Which prices never apply, or overlap an earlier one in the hours of the day, so that only their order decides."""
    for place, price in enumerate(prices):
        for earlier, other in enumerate(prices[:place]):
            if other.resource != price.resource:
                continue
            hours, taken = minutes_of(price.hours), minutes_of(other.hours)
            labels = [(getattr(other, name), getattr(price, name)) for name in _PLACES]
            if hours <= taken and all(before is None or before == now for before, now in labels):
                yield f"prices[{place}] never applies: prices[{earlier}] is before it, and applies wherever it does"
                break
            elif not taken <= hours and hours & taken and all(before == now for before, now in labels):
                yield (
                    f"the hours of prices[{earlier}] ({other.hours}) and prices[{place}] ({price.hours}) overlap: only "
                    "their order would decide. Let one end where the other begins"
                )


class Factor(Settings):
    """`[[charges.group_factors]]` and `[[charges.job_factors]]`: factors of charges; the first of each that matches."""

    factor: Amount = Field(ge=0, description='Text such as "0.5".')
    group: Patterns | None = Field(default=None, description="Only users of these groups.")
    user: Patterns | None = Field(default=None, description="Only these users.")
    project: Patterns | None = Field(default=None, description="Only these projects.")
    vo: Patterns | None = Field(default=None, description="Only these VOs.")
    queue: Patterns | None = Field(default=None, description="Only jobs of these queues.")
    status: Patterns | None = Field(default=None, description="Only jobs with this status.")
    account: Patterns | None = Field(default=None, description="Only jobs on these accounts.")


class Adjustment(Settings):
    """`[[charges.adjustments]]`: an amount added to a statement, or subtracted if negative, with the reason."""

    month: Annotated[str, matching(r"[0-9]{4}-(0[1-9]|1[0-2])", "must be a month such as 2026-11")] = Field(
        description="Month of the statement: 2026-11."
    )
    payer: str = Field(min_length=1, description="The user, project, ... whose statement it is.")
    amount: Amount = Field(description='Text such as "-12.50".')
    reason: str = Field(min_length=1, description="Shown in the statement.")


class Charges(Settings):
    """`[charges]`: the price list."""

    currency: str = Field(default="EUR", min_length=1, max_length=8, description="Currency of all amounts.")
    decimals: Count = Field(
        default=2, ge=0, le=6, description="Decimals of items, which are rounded half away from zero."
    )
    by: Literal["user", "group", "project", "account", "vo"] = Field(
        default="user", description="Who gets a statement."
    )
    timezone: ZoneName = Field(default="UTC", description="Time zone of months, and of `hours` of prices.")
    prices: tuple[Price, ...] = Field(default=(), description="Prices of classes of resources.")
    group_factors: tuple[Factor, ...] = Field(default=(), description="Factors by user, group, project, or VO.")
    job_factors: tuple[Factor, ...] = Field(default=(), description="Factors by status, queue, or account of the job.")
    adjustments: tuple[Adjustment, ...] = Field(default=(), description="Amounts that people decided.")


class StatementRecipient(Settings):
    """`[[statements.recipients]]`: to whom statements are addressed; the first that matches the payer."""

    payer: Patterns = Field(description="The user, project, and so on that the statement is for.")
    address: str = Field(min_length=1, description="Name and address, in lines.")
    reference: str | None = Field(default=None, min_length=1, description="The recipient's reference, shown as such.")


def _number_pattern(text: str) -> str:
    try:
        first, other = (text.format(site="s", month="2026-11", payer=payer) for payer in ("a", "b"))
        later = text.format(site="s", month="2026-12", payer="a")
    except (KeyError, IndexError, ValueError, AttributeError):
        raise ValueError("may only contain {site}, {month}, and {payer}") from None
    if len({first, other, later}) < 3:
        raise ValueError("must contain {month} and {payer}: otherwise two statements have the same number")
    return text


def _series_pattern(text: str) -> str:
    try:
        first, other = (text.format(site="s", year=2026, number=number) for number in (1, 2))
    except (KeyError, IndexError, ValueError, AttributeError):
        raise ValueError("may only contain {site}, {year}, and {number}") from None
    if first == other:
        raise ValueError("must contain {number}: otherwise two statements have the same number")
    return text


class StatementSettings(Settings):
    """`[statements]`: the sender, the number, and the recipients of statements."""

    sender: str | None = Field(
        default=None, min_length=1, description="Name and address of the sender, in lines. Default: the site."
    )
    number: Annotated[str, AfterValidator(_number_pattern)] = Field(
        default="{month}-{payer}", description="Number of a statement, of {site}, {month}, and {payer}."
    )
    series: Annotated[str, AfterValidator(_series_pattern)] = Field(
        default="{year}-{number:05}",
        description="Number of a statement of a closed month, of {site}, {year}, and {number}, which counts up.",
    )
    footer: str | None = Field(
        default=None, min_length=1, description="Last lines of each statement: bank account, contact, terms."
    )
    recipients: tuple[StatementRecipient, ...] = Field(default=(), description="Addresses of payers.")
