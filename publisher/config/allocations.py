"""`[[allocations]]`: hours that a project, account, or user may use in a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from publisher.config.reports import Amount
from publisher.config.types import Instant, Settings
from publisher.text import iso

AllocationKey = Literal["project", "account", "user"]


class Allocation(Settings):
    """`[[allocations]]`: an amount for one project, account, or user."""

    name: str = Field(min_length=1, description="Its name in reports.")
    project: str | None = Field(default=None, min_length=1, description="The project that has it; or")
    account: str | None = Field(default=None, min_length=1, description="the account; or")
    user: str | None = Field(default=None, min_length=1, description="the user.")
    resource: Literal["cores", "gpus"] = Field(default="cores", description="cores or gpus.")
    amount: Amount = Field(gt=0, description="Core hours or GPU hours.")
    since: Instant = Field(description="From then on.")
    until: Instant = Field(description="Until then (not included).")

    @model_validator(mode="after")
    def _makes_sense(self) -> Allocation:
        if sum(value is not None for value in (self.project, self.account, self.user)) != 1:
            raise ValueError("needs one of project, account, and user")
        if self.since >= self.until:
            raise ValueError("since must be before until")
        return self

    @property
    def key(self) -> AllocationKey:
        """By what its jobs are known."""
        return "project" if self.project is not None else "account" if self.account is not None else "user"

    @property
    def value(self) -> str:
        """The name of the project, account, or user."""
        return self.project or self.account or self.user or ""

    @property
    def holder(self) -> str:
        """Who has it: `project thesis`."""
        return f"{self.key} {self.value}"

    def elapsed(self, now: int) -> float:
        """The share of its time that is over."""
        return min(max((now - self.since) / (self.until - self.since), 0.0), 1.0)


def overlap_of(allocations: Sequence[Allocation]) -> str | None:
    """Which two allocations of one holder and resource overlap, so that a job would count twice; None: none do."""
    ordered = sorted(allocations, key=lambda one: (one.key, one.value, one.resource, one.since))
    for before, after in zip(ordered, ordered[1:], strict=False):
        same = (before.holder, before.resource) == (after.holder, after.resource)
        if same and after.since < before.until:
            return (
                f"{after.name!r} begins at {iso(after.since)}, before {before.name!r} ends at {iso(before.until)}, and "
                f"both are {after.resource} of {after.holder}"
            )
    return None
