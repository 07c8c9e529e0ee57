"""Totals of Waldur: amounts of each component by account and user for each UTC month (facts on Waldur).

Amounts are added up as whole numbers (milliseconds of cores, KiB times milliseconds ...) and divided once, at the end.
An account's amount is rounded to two decimals, as Waldur takes them, and its users get shares of two decimals that add
up to it: rounded down, and what is left goes to those with the largest remainders.

Waldur keeps what is not named. So a component or user that vanished stays in the total, with zero. And it keeps no word
on who wrote a value: a total names the values that were, or may have been, written before it, so that another writer's
are recognised.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal

import msgspec

from formats import fit
from formats.calendar import Month, month_of
from formats.fit import shown, unreported
from formats.identity import DIGEST_BYTES
from formats.job import Job
from formats.names import vo_of
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import INT32, NumberRule, TextRule
from formats.totals import LONGEST_MS, Sums
from formats.view import View

HourlyAmount = Literal[
    "core-hours", "cpu-hours", "gpu-hours", "node-hours", "wall-hours", "memory-gib-hours", "energy-kwh", "jobs"
]
"""What the amount of a component is, before it is divided."""
ENERGY: Final = "energy-kwh"

AccountedBy = Literal["account", "project", "vo", "group"]
"""The fact of a run that is the `backend_id` of its resource."""


class UsageComponent(msgspec.Struct, frozen=True):
    """A component of an offering. `divisor`: of its amount, a decimal number or a fraction as text."""

    name: str
    amount: HourlyAmount
    divisor: str = "1"


USUAL_COMPONENTS: Final = (
    UsageComponent("cpu_k_hours", "core-hours", "1000"),
    UsageComponent("gpu_hours", "gpu-hours"),
)
"""Components as many offerings name them."""


class WaldurOptions(msgspec.Struct, frozen=True):
    """The settings that only this format has."""

    components: tuple[UsageComponent, ...] = USUAL_COMPONENTS
    by: AccountedBy = "account"
    users: bool = True


DEFAULTS: Final = WaldurOptions()
_HOUR_MS: Final = 3_600_000
_KIB_A_GIB: Final = 1 << 20
_MJ_A_KWH: Final = 3_600_000_000
MOST_CENTS: Final = 10**20 - 1
DECIMALS: Final = "Waldur's amounts, 20 digits of which 2 are decimals"
_ACCOUNT: Final = TextRule("backend_id", 255, "Waldur's resources", "hold")
_USER: Final = TextRule("username", 100, "Waldur's usernames", "hold")


def _within(field: str, value: int | None, most: int, system: str) -> int:
    """A value of a run from 0 to `most`. Beyond, one run would falsify the sum of its whole account."""
    if value is None:
        raise unreported(field, system)
    if not 0 <= value <= most:
        rule = NumberRule(field, 0, most, "Waldur's amounts", "hold")
        raise CannotRenderError(RuleCode.OUT_OF_RANGE, field, rule, value=shown(value))
    return value


def _wall_ms(job: Job) -> int:
    return _within("WallDuration", job.wall_ms, LONGEST_MS, job.system)


def _cores(job: Job) -> int:
    return _within("Processors", job.cores or job.slots, INT32, job.system)


def _cpu_ms(job: Job) -> int:
    amount = job.cpu_ms
    if amount is None and job.cpu_user_ms is not None and job.cpu_system_ms is not None:
        amount = job.cpu_user_ms + job.cpu_system_ms
    return _within("CpuDuration", amount, LONGEST_MS * INT32, job.system)


def _memory_kib(job: Job) -> int:
    return _within("Memory", job.memory_rss_kib, 1 << 53, job.system)


def _energy_mj(job: Job) -> int:
    energy_mj = None if job.energy_j is None else round(job.energy_j * 1000)
    return _within("Energy", energy_mj, 1 << 61, job.system)


_AMOUNTS: Final[Mapping[HourlyAmount, tuple[int, Callable[[Job], int]]]] = {
    "core-hours": (_HOUR_MS, lambda job: _cores(job) * _wall_ms(job)),
    "cpu-hours": (_HOUR_MS, _cpu_ms),
    "gpu-hours": (_HOUR_MS, lambda job: _within("GPUs", job.gpus or 0, INT32, job.system) * _wall_ms(job)),
    "node-hours": (_HOUR_MS, lambda job: _within("NodeCount", job.nodes, INT32, job.system) * _wall_ms(job)),
    "wall-hours": (_HOUR_MS, _wall_ms),
    "memory-gib-hours": (_HOUR_MS * _KIB_A_GIB, lambda job: _memory_kib(job) * _wall_ms(job)),
    ENERGY: (_MJ_A_KWH, _energy_mj),
    "jobs": (1, lambda _job: 1),
}
"""By the kind of amount: the units in one of it, and those of a run. An unknown number of GPUs is 0; a run without
another fact that is needed is held."""

_OWNERS: Final[Mapping[AccountedBy, Callable[[Job], str | None]]] = {
    "account": lambda job: job.account,
    "project": lambda job: job.project,
    "vo": vo_of,
    "group": lambda job: job.local_group,
}


class ResourceMonth(msgspec.Struct, frozen=True, order=True):
    """The key of a total: month, and the account as the resource's `backend_id` has it."""

    year: int
    month: int
    account: str

    @property
    def when(self) -> Month:
        """The month."""
        return Month(self.year, self.month)

    @property
    def text(self) -> str:
        """The key as one line: a JSON list."""
        return msgspec.json.encode(msgspec.structs.astuple(self)).decode()


class ComponentUsage(msgspec.Struct, frozen=True):
    """The usage of a component: units by user, and how many units are 1, as a fraction. The user is empty if users are
    not reported."""

    unit: str
    users: dict[str, int]

    @property
    def cents(self) -> int:
        """The amount of all users in hundredths, rounded half up."""
        unit = Fraction(self.unit)
        return (sum(self.users.values()) * 200 * unit.denominator + unit.numerator) // (2 * unit.numerator)

    def shares(self) -> dict[str, int]:
        """The amount of each user in hundredths; they add up to `cents`."""
        unit = Fraction(self.unit)
        exact = {user: divmod(units * 100 * unit.denominator, unit.numerator) for user, units in self.users.items()}
        shares = {user: whole for user, (whole, _) in exact.items()}
        left = self.cents - sum(shares.values())
        for user in sorted(exact, key=lambda name: (-exact[name][1], name))[:left]:
            shares[user] += 1
        return shares

    def followed_by(self, later: ComponentUsage | None) -> ComponentUsage:
        """The later usage, with zero for each user of this one who is no longer in it."""
        users = dict.fromkeys(self.users, 0) | (later.users if later is not None else {})
        return ComponentUsage(self.unit if later is None else later.unit, dict(sorted(users.items())))


class ResourceUsage(msgspec.Struct, frozen=True):
    """The usage of an account in a month by component. `before`: by component, other amounts in hundredths that Waldur
    may have; `users_before`: the same by component and user. `core_ms`, `cpu_ms`: to be compared with the sources."""

    key: ResourceMonth
    usage: dict[str, ComponentUsage]
    jobs: int = 0
    latest: int | None = None
    core_ms: int = 0
    cpu_ms: int = 0
    before: dict[str, tuple[int, ...]] = {}
    users_before: dict[str, dict[str, tuple[int, ...]]] = {}

    @property
    def spelling(self) -> ResourceMonth:
        """The key: `backend_id` is compared as it is."""
        return self.key

    @property
    def digest(self) -> bytes:
        """Of the amounts and the number of runs; not of what was before, which is not written."""
        content = msgspec.json.encode((self.key, self.usage, self.jobs))
        return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()

    @property
    def zeroed(self) -> ResourceUsage:
        """Each component and user with zero."""
        return self._after(self, {name: each.followed_by(None) for name, each in self.usage.items()})

    def following(self, earlier: ResourceUsage, *, is_there: bool) -> ResourceUsage:
        """This total as it is written after an earlier one. `is_there`: Waldur has that one, and no other.

        What was used no more is written as zero until Waldur has that; a component that was removed, or mistyped, would
        stay for ever otherwise.
        """
        left = {name for name, each in earlier.usage.items() if each.cents or not is_there}
        names = sorted({*left, *self.usage})
        usage = {
            name: earlier.usage[name].followed_by(self.usage.get(name)) if name in earlier.usage else self.usage[name]
            for name in names
        }
        return self._after(msgspec.structs.replace(earlier, before={}, users_before={}) if is_there else earlier, usage)

    def _after(self, earlier: ResourceUsage, usage: dict[str, ComponentUsage]) -> ResourceUsage:
        before, users_before = {}, {}
        for name, each in usage.items():
            known = earlier.usage.get(name)
            if others := _others(earlier.before.get(name, ()), each.cents, known.cents if known is not None else None):
                before[name] = others
            shares = known.shares() if known is not None else {}
            earlier_users = earlier.users_before.get(name, {})
            of_users = {
                user: others
                for user, share in each.shares().items()
                if user and (others := _others(earlier_users.get(user, ()), share, shares.get(user)))
            }
            if of_users:
                users_before[name] = of_users
        if self is earlier:
            return ResourceUsage(self.key, usage, before=before, users_before=users_before)
        return msgspec.structs.replace(self, usage=usage, before=before, users_before=users_before)

    def to_json(self) -> bytes:
        """For the store."""
        return msgspec.json.encode(self)


def _others(before: Sequence[int], now: int, last: int | None) -> tuple[int, ...]:
    """The amounts that Waldur may have besides this one, in hundredths: those before, and the last. Zero is no row."""
    return tuple(sorted({*before, last or 0} - {0, now}))


class WaldurFold:
    """Adds up runs by account and month."""

    def __init__(self, view: View) -> None:
        self._options = options_of(view)
        self._components = [
            (component.name, *_AMOUNTS[component.amount], _unit_of(component)) for component in self._options.components
        ]
        self._with_users = self._options.users and view.dn == "send"
        self._months: dict[ResourceMonth, _GrowingUsage] = {}

    def add(self, job: Job) -> ResourceMonth:
        """Add a run. Raises `CannotRenderError` for one without an end, account, user, or amount that is needed."""
        if job.end is None:
            raise CannotRenderError(RuleCode.MISSING, "EndTime")
        month = month_of(job.end)
        key = ResourceMonth(month.year, month.month, account_of(job, self._options.by))
        user = _text(_USER, job.local_user, "local user, which is the username") if self._with_users else ""
        amounts = [(name, amount(job)) for name, _, amount, _ in self._components]
        known = self._months.setdefault(key, _GrowingUsage())
        known.add(job, user, amounts)
        return key

    def add_alike(self, facts: Job, sums: Sums, /) -> ResourceMonth:
        """Not used: totals are folded from records."""
        raise NotImplementedError

    def merge_group(self, total: ResourceUsage, /) -> None:
        """Add a total."""
        known = self._months.setdefault(total.key, _GrowingUsage())
        known.jobs += total.jobs
        known.latest = max(known.latest, total.latest or 0)
        known.core_ms += total.core_ms
        known.cpu_ms += total.cpu_ms
        for name, each in total.usage.items():
            for user, units in each.users.items():
                known.count(name, user, units)

    def groups(self) -> Iterator[ResourceUsage]:
        """All totals by month and account; without components of which nothing was used."""
        units = {name: unit for name, _, _, unit in self._components}
        for key in sorted(self._months):
            known = self._months[key]
            usage = {
                name: ComponentUsage(units[name], dict(sorted(users.items())))
                for name, users in sorted(known.usage.items())
            }
            yield ResourceUsage(key, usage, known.jobs, known.latest, known.core_ms, known.cpu_ms)


class _GrowingUsage:
    """The sums of an account in a month, as they grow."""

    def __init__(self) -> None:
        self.usage: dict[str, dict[str, int]] = {}
        self.jobs = self.latest = self.core_ms = self.cpu_ms = 0

    def add(self, job: Job, user: str, amounts: Sequence[tuple[str, int]]) -> None:
        self.jobs += 1
        self.latest = max(self.latest, job.end or 0)
        self.core_ms += (job.wall_ms or 0) * (job.cores or job.slots or 1)
        self.cpu_ms += job.cpu_ms or 0
        for name, units in amounts:
            if units:
                self.count(name, user, units)

    def count(self, name: str, user: str, units: int) -> None:
        users = self.usage.setdefault(name, {})
        users[user] = users.get(user, 0) + units


def options_of(view: View) -> WaldurOptions:
    """The settings of a view, or the default ones."""
    return view.options if isinstance(view.options, WaldurOptions) else DEFAULTS


def account_of(job: Job, by: AccountedBy) -> str:
    """The `backend_id` of the resource of a run. Raises `CannotRenderError` if it has none."""
    return _text(_ACCOUNT, _OWNERS[by](job), f"{by} of the job, which is the backend_id of its resource")


def _text(rule: TextRule, value: str | None, what: str) -> str:
    text = fit.fitting_text(rule, value, []) if value else ""
    if not text:
        raise CannotRenderError(RuleCode.MISSING, what)
    return text


def _unit_of(component: UsageComponent) -> str:
    return str(Fraction(_AMOUNTS[component.amount][0]) * Fraction(component.divisor))
