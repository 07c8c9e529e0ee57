"""Messages of Waldur's usages: the totals of `formats.waldur.fold` as reports of accounts (facts on Waldur)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

import msgspec

from formats.base import Format, InspectedRecord, InspectedText, Note, Rendered, Violation
from formats.calendar import Month
from formats.columns import TotalColumns, Value
from formats.fit import shown
from formats.job import Job
from formats.origin import MONTH, Origins, origin
from formats.rule_codes import CannotRenderError, RuleCode
from formats.rules import NumberRule
from formats.totals import NamedPersons, TotalsKind, TotalUsage
from formats.view import View
from formats.waldur.fold import (
    DECIMALS,
    DEFAULTS,
    MOST_CENTS,
    ComponentUsage,
    ResourceUsage,
    WaldurFold,
    WaldurOptions,
    account_of,
    options_of,
)

NAME: Final = "waldur-usage"
TITLE: Final = "Waldur usages"


class UserAmount(msgspec.Struct, frozen=True, omit_defaults=True):
    """A user's share, as Waldur takes it. `before`: other values that Waldur may have of us."""

    username: str
    usage: Decimal
    before: list[Decimal] = []


class ComponentAmount(msgspec.Struct, frozen=True):
    """The amount of a component. `before`: other values that Waldur may have of us."""

    type: str
    amount: Decimal
    users: list[UserAmount] = []
    before: list[Decimal] = []


class AccountReport(msgspec.Struct, frozen=True):
    """What is reported of an account for a month (`2026-11`)."""

    account: str
    month: str
    components: list[ComponentAmount]

    @property
    def when(self) -> Month:
        """The month."""
        year, _, month = self.month.partition("-")
        return Month(int(year), int(month))


def read_reports(payload: bytes) -> list[AccountReport]:
    """The reports of a message. Raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(payload, type=list[AccountReport])


def inspected(text: str) -> InspectedText | None:
    """See `Format.inspected`: a record is an account in a month. What users have adds up to the amount."""
    if not text.lstrip().startswith("["):
        return None
    reports = read_reports(text.encode())
    if not reports:
        raise ValueError("an empty list")
    records = (InspectedRecord(number, each.account, None, _amounts(each)) for number, each in enumerate(reports, 1))
    return InspectedText(records, _broken_by(reports))


def _amounts(report: AccountReport) -> dict[str, str]:
    return {"month": report.month} | {component.type: str(component.amount) for component in report.components}


def _broken_by(reports: Sequence[AccountReport]) -> Iterator[Violation]:
    rule = "the shares of users do not add up to the amount"
    for number, report in enumerate(reports, 1):
        for component in report.components:
            if component.users and sum(user.usage for user in component.users) != component.amount:
                yield Violation("error", number, shown(component.type), rule, TITLE)


class WaldurUsageFormat:
    """Renders totals: a JSON list with an object for each account and month."""

    name = NAME
    content_type = "application/json"
    overhead_bytes, separator_bytes = 3, 2

    def __init__(self, view: View) -> None:
        self._configured = {component.name for component in options_of(view).components}

    def message(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message: a list."""
        return b"[" + b",\n".join(bodies) + b"]\n"

    def record(self, total: ResourceUsage) -> Rendered:
        """Render a total. Raises `CannotRenderError` for an amount with more digits than Waldur takes."""
        components = [self._component(name, each, total) for name, each in total.usage.items()]
        report = AccountReport(total.key.account, str(total.key.when), components)
        notes = [self._removed(name, total) for name in total.usage if name not in self._configured]
        return Rendered(msgspec.json.encode(report), tuple(notes))

    @staticmethod
    def _removed(name: str, total: ResourceUsage) -> Note:
        before = [str(_decimal(each)) for each in total.before.get(name, ())]
        return Note(name, "it is no longer among the components of the target", ", ".join(before) or "0.00", "0.00")

    @staticmethod
    def _component(name: str, usage: ComponentUsage, total: ResourceUsage) -> ComponentAmount:
        cents = usage.cents
        if cents > MOST_CENTS:
            rule = NumberRule(name, 0, MOST_CENTS // 100, DECIMALS, "hold")
            raise CannotRenderError(RuleCode.OUT_OF_RANGE, name, rule, value=shown(cents // 100))
        before = total.users_before.get(name, {})
        users = [
            UserAmount(user, _decimal(share), [_decimal(each) for each in before.get(user, ())])
            for user, share in usage.shares().items()
            if user
        ]
        return ComponentAmount(name, _decimal(cents), users, [_decimal(each) for each in total.before.get(name, ())])


def _decimal(cents: int) -> Decimal:
    """Hundredths as an exact decimal number with two decimals, whatever the precision of the context."""
    return Decimal((0, tuple(map(int, str(cents))), -2))


# --- what the ledger and the evidence need


def columns_of(month: Month, account: str, amounts: Mapping[tuple[str, str], Decimal]) -> TotalColumns:
    """An account in a month as Waldur has it: amounts by component and user (empty: of all users). Zeros are left out:
    Waldur may have no row instead."""
    named = {_of_user(name, user) if user else name: each for (name, user), each in amounts.items() if each}
    return TotalColumns(month, {"account": account}, 0, amounts=named)


def _of_user(name: str, user: str) -> str:
    return f"{name} of {user}"


def _columns(total: ResourceUsage) -> TotalColumns:
    amounts = {(name, ""): _decimal(each.cents) for name, each in total.usage.items()}
    for name, each in total.usage.items():
        amounts |= {(name, user): _decimal(share) for user, share in each.shares().items() if user}
    return msgspec.structs.replace(columns_of(total.key.when, total.key.account, amounts), jobs=total.jobs)


def _dimensions(job: Job, view: View) -> dict[str, Value]:
    return {"account": account_of(job, options_of(view).by)}


def _following(earlier: ResourceUsage, total: ResourceUsage, is_there: bool) -> ResourceUsage:
    return total.following(earlier, is_there=is_there)


def _left_over(total: ResourceUsage, options: msgspec.Struct | None, is_there: bool) -> list[str]:
    known = {component.name for component in (options if isinstance(options, WaldurOptions) else DEFAULTS).components}
    perhaps = {} if is_there else total.before
    return [name for name, each in total.usage.items() if name not in known and (each.cents or name in perhaps)]


def _is_reported(amount: str, options: msgspec.Struct | None) -> bool:
    settings = options if isinstance(options, WaldurOptions) else DEFAULTS
    names = [component.name for component in settings.components]
    return amount in names or (settings.users and any(amount.startswith(_of_user(name, "")) for name in names))


def _names(total: ResourceUsage) -> set[str]:
    return {user for each in total.usage.values() for user in each.users if user}


def _renamed(total: ResourceUsage, names: Collection[str], name: str) -> ResourceUsage:
    def users_of(usage: ComponentUsage) -> dict[str, int]:
        users: dict[str, int] = {}
        for user, units in usage.users.items():
            spelled = name if user.casefold() in names else user
            users[spelled] = users.get(spelled, 0) + units
        return dict(sorted(users.items()))

    usage = {key: ComponentUsage(each.unit, users_of(each)) for key, each in total.usage.items()}
    # What Waldur may have of the earlier name is forgotten with it.
    return msgspec.structs.replace(total, usage=usage, users_before={})


def _from_json(stored: bytes) -> Any:
    return msgspec.json.decode(stored, type=ResourceUsage)


ORIGINS: Final[Origins] = {
    "account": origin("account", "project", "vo", "local_group", how="as `by` says", settings=("by",)),
    "month": MONTH,
    "components/amount": origin(
        "wall_ms",
        "cores",
        "slots",
        "cpu_ms",
        "cpu_user_ms",
        "cpu_system_ms",
        "gpus",
        "nodes",
        "memory_rss_kib",
        "energy_j",
        how="the sum over its jobs, exact; then two decimals",
        settings=("components",),
    ),
    "components/users/usage": origin(
        "local_user", how="the user's share; shares add up to the amount", settings=("users",)
    ),
    "components/before": origin(how="what Waldur may have of us instead; it is not sent"),
}


FORMAT: Final = Format(
    name=NAME,
    title=TITLE,
    shape="totals",
    make=WaldurUsageFormat,
    key="group",
    key_settings=frozenset({"target.offering", "target.by"}),
    content_type=WaldurUsageFormat.content_type,
    totals=TotalsKind(
        kind=NAME,
        fold=WaldurFold,
        from_json=_from_json,
        from_columns=False,
        following=_following,
        left_over=_left_over,
        is_reported=_is_reported,
        persons=NamedPersons(spelled=lambda _view, name: name, names=_names, renamed=_renamed),
        usage=lambda total: TotalUsage(total.jobs, total.core_ms, total.cpu_ms),
        columns=_columns,
        dimensions=("account",),
        counts_jobs=False,
    ),
    dimensions=_dimensions,
    inspected=inspected,
    origins=ORIGINS,
)
