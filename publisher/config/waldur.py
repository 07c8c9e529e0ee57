"""The settings of targets of Waldur."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import AfterValidator, Field, model_validator

from formats.waldur.fold import ENERGY, USUAL_COMPONENTS, AccountedBy, HourlyAmount, UsageComponent, WaldurOptions
from publisher.config.operation import Credentials
from publisher.config.targets import TargetSettings
from publisher.config.types import (
    Count,
    Instant,
    KeepsPlan,
    PlansAgain,
    ServiceUrl,
    Settings,
    Switch,
    WrongKeysError,
)


def _uuid(value: str) -> str:
    try:
        return UUID(value).hex
    except ValueError:
        raise ValueError("must be a UUID, as Waldur shows it in the offering's page") from None


Uuid = Annotated[str, AfterValidator(_uuid)]
"""A UUID as Waldur writes it: 32 hexadecimal digits."""


def _divisor(value: Decimal) -> Decimal:
    if not value.is_finite() or not Decimal("1e-9") <= value <= Decimal("1e18"):
        raise ValueError("must be a number from 1e-9 to 1e18")
    return value


class UsageComponentSettings(Settings):
    """`cpu_k_hours = { amount = "core-hours", divisor = 1000 }`: a component of the offering."""

    amount: HourlyAmount = Field(description="What its amount is.")
    divisor: Annotated[Decimal, AfterValidator(_divisor)] = Field(
        default=Decimal(1), description="What it is divided by."
    )


class WaldurSettings(TargetSettings):
    """`[targets.NAME]` with `type = "waldur"`."""

    type: PlansAgain[Literal["waldur"]] = Field(description="A Waldur service: usages of an offering by HTTPS.")
    url: KeepsPlan[ServiceUrl] = Field(description="URL of the service; `/api/` is added.")
    records: PlansAgain[Literal["waldur-usage"]] = Field(
        default="waldur-usage", description="Format of totals; Waldur takes only this one."
    )
    offering: PlansAgain[Uuid] = Field(description="UUID of the offering whose resources are reported.")
    by: PlansAgain[AccountedBy] = Field(
        default="account", description="The fact of a job that is the `backend_id` of its resource."
    )
    components: PlansAgain[dict[str, UsageComponentSettings]] = Field(
        default_factory=lambda: {
            each.name: UsageComponentSettings(amount=each.amount, divisor=Decimal(each.divisor))
            for each in USUAL_COMPONENTS
        },
        min_length=1,
        description="Components of the offering that are reported. Default: `cpu_k_hours` and `gpu_hours`.",
    )
    users: PlansAgain[Switch] = Field(default=True, description="Report the shares of users (`dn` must be `send`).")
    replaces_until: KeepsPlan[Instant | None] = Field(
        default=None,
        description="Values of another program in months that begin by this time are replaced. In others they hold the "
        "account.",
    )
    batch_records: KeepsPlan[Count] = Field(
        default=1, ge=1, le=1, description="Accounts in a message: one, which takes several requests."
    )

    @model_validator(mode="after")
    def _names_are_not_hashed(self) -> Self:
        if self.users and self.dn == "hash":
            raise WrongKeysError((("dn",), "Waldur takes names of users, not hashes. Omit it, or set users = false"))
        return self

    @property
    def own_credentials(self) -> Credentials | None:
        """See `TargetSettings`. The word before a key in a file is Waldur's."""
        own = self.credentials
        if own is None or own.token_file is None or own.token_scheme is not None:
            return own
        return own.model_copy(update={"token_scheme": "Token"})

    @property
    def service_host(self) -> str | None:
        """See `TargetSettings`."""
        return urlsplit(self.url).hostname

    @property
    def destination(self) -> tuple[str, ...]:
        """See `TargetSettings`."""
        return self.url.rstrip("/").lower(), self.offering

    @property
    def needs_energy(self) -> bool:
        """See `TargetSettings`."""
        return any(component.amount == ENERGY for component in self.components.values())

    @property
    def format_options(self) -> WaldurOptions:
        """See `TargetSettings`."""
        components = tuple(
            UsageComponent(name, each.amount, str(each.divisor)) for name, each in self.components.items()
        )
        return WaldurOptions(components, self.by, self.users)
