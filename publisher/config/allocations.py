"""`[[allocations]]` and `[[allocation_files]]`: hours that projects, accounts, or users may use in a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Final, Literal

from pydantic import Field, model_validator

from publisher.config.reports import Amount
from publisher.config.types import FilePath, Instant, Settings, WrongKeysError
from publisher.text import iso

HOLDER_KEYS: Final = ("project", "account", "user", "cluster")
"""What the holder of an allocation is known by, all of which its jobs have."""


class Allocation(Settings):
    """`[[allocations]]`: hours for the jobs of a project, account, or user."""

    name: str = Field(min_length=1, description="Its name in reports.")
    project: str | None = Field(default=None, min_length=1, description="The project whose jobs count.")
    account: str | None = Field(default=None, min_length=1, description="The account whose jobs count.")
    user: str | None = Field(default=None, min_length=1, description="The user whose jobs count.")
    cluster: str | None = Field(default=None, min_length=1, description="Only jobs on this cluster.")
    subaccounts: tuple[str, ...] = Field(default=(), description="Accounts whose jobs count as those of `account`.")
    resource: Literal["cores", "gpus"] = Field(default="cores", description="What it is of.")
    amount: Amount = Field(gt=0, description="Core hours or GPU hours.")
    since: Instant = Field(description="From then on.")
    until: Instant = Field(description="Until then (not included).")

    @model_validator(mode="after")
    def _makes_sense(self) -> Allocation:
        if self.project is None and self.account is None and self.user is None:
            raise ValueError("needs a project, an account, or a user")
        if self.subaccounts and self.account is None:
            raise ValueError("subaccounts need an account")
        if self.since >= self.until:
            raise ValueError("since must be before until")
        return self

    @property
    def keys(self) -> tuple[str, ...]:
        """What its holder is known by."""
        return tuple(key for key in HOLDER_KEYS if getattr(self, key) is not None)

    @property
    def holder(self) -> str:
        """Who has it: `project thesis`, or `account physics, user ada`."""
        return ", ".join(f"{key} {getattr(self, key)}" for key in self.keys)

    @property
    def words(self) -> Iterator[tuple[str, ...]]:
        """The words of the runs that count, each in the order of `keys`."""
        accounts = (self.account, *self.subaccounts)
        return product(*(accounts if key == "account" else (getattr(self, key),) for key in self.keys))

    def is_current(self, now: int) -> bool:
        """Whether it has begun and has not ended."""
        return self.since <= now < self.until

    def elapsed(self, now: int) -> float:
        """The share of its time that is over."""
        return min(max((now - self.since) / (self.until - self.since), 0.0), 1.0)


class AllocationFile(Settings):
    """`[[allocation_files]]`: a file of allocations."""

    type: Literal["csv", "sacctmgr"] = Field(
        description="A CSV file, whose columns are keys of [[allocations]]; or what `sacctmgr -P show assoc` printed."
    )
    path: FilePath = Field(description="The file.")
    since: Instant | None = Field(default=None, description="From then on. CSV: of rows that do not say it.")
    until: Instant | None = Field(default=None, description="Until then. CSV: of rows that do not say it.")

    @model_validator(mode="after")
    def _has_a_time(self) -> AllocationFile:
        for name in ("since", "until"):
            if self.type == "sacctmgr" and getattr(self, name) is None:
                raise WrongKeysError(((name,), "is missing: limits of associations have no dates"))
        return self


def overlap_of(allocations: Sequence[Allocation]) -> str | None:
    """Which two allocations of one holder and resource overlap, so that a job would count twice; None: none do."""
    ordered = sorted(allocations, key=lambda one: (one.holder, one.resource, one.since))
    for before, after in pairwise(ordered):
        same = (before.holder, before.resource) == (after.holder, after.resource)
        if same and after.since < before.until:
            return (
                f"two allocations overlap, and a job would count in both: {after.name!r} begins at {iso(after.since)}, "
                f"before {before.name!r} ends at {iso(before.until)}, and both are {after.resource} of {after.holder}"
            )
    return None
