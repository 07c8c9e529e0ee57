"""`[energy]`: the power of jobs without a measured value, the PUE, and the carbon intensity; for reports only."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fnmatch import fnmatchcase
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field, model_validator

from publisher.config.types import Count, FilePath, Patterns, Settings, Switch, WrongKeysError

MICRO: Final = 1_000_000
MILLI: Final = 1_000


def _number(least: int, most: int, decimals: int) -> Callable[[object], Decimal]:
    """A decimal as it was written. A float is the shortest that is read as it, which is what was written."""

    def parsed(value: object) -> Decimal:
        if isinstance(value, str | int | float | Decimal) and not isinstance(value, bool):
            try:
                number = Decimal(str(value))
            except InvalidOperation:
                number = Decimal("NaN")
            if number.is_finite() and least <= number <= most and number == round(number, decimals):
                return number
        raise ValueError(f"must be a number from {least:,} to {most:,} with at most {decimals} decimals")

    return parsed


Watts = Annotated[Decimal, BeforeValidator(_number(0, 10_000, 6))]
NodeWatts = Annotated[Decimal, BeforeValidator(_number(0, 1_000_000, 6))]
Pue = Annotated[Decimal, BeforeValidator(_number(1, 10, 3))]
Intensity = Annotated[Decimal, BeforeValidator(_number(0, 10_000, 3))]


def millionths(amount: Decimal | None) -> int | None:
    """Watts as microwatts."""
    return None if amount is None else int(amount * MICRO)


class PowerRule(Settings):
    """`[[energy.power]]`: power of the jobs of a source, cluster, or queue; the first that matches counts."""

    watts_core: Watts = Field(default=Decimal(0), description="Of a core that a job holds, W.")
    watts_gpu: Watts = Field(default=Decimal(0), description="Of a GPU that a job holds, W.")
    watts_gib: Watts = Field(default=Decimal(0), description="Of a GiB of a job's peak memory, W.")
    source: Patterns | None = Field(default=None, description="Only jobs of these sources.")
    cluster: Patterns | None = Field(default=None, description="Only jobs of these clusters.")
    queue: Patterns | None = Field(default=None, description="Only jobs in these queues.")
    whole_nodes: Switch = Field(
        default=False, description="These jobs have their nodes alone, so that what was measured of nodes is theirs."
    )

    def may_be_on(self, cluster: str | None) -> bool:
        """Whether jobs on nodes of a cluster (None: any) may have this rule."""
        return self.cluster is None or cluster is None or any(fnmatchcase(cluster, one) for one in self.cluster)

    def watts_of(self, cores: int, gpus: int, memory_gib: int) -> Decimal:
        """The power of jobs that hold these amounts."""
        return cores * self.watts_core + gpus * self.watts_gpu + memory_gib * self.watts_gib


class EnergyMeter(Settings):
    """`[[energy.measured]]`: what another program measured of single jobs; the first that has a job counts."""

    type: Literal["ceems", "csv"] = Field(
        description="CEEMS' database, or a CSV file with the columns `job`, `start`, and `joules`."
    )
    path: FilePath = Field(description="The SQLite file of CEEMS (or its backup), or the CSV file.")
    cluster: str | None = Field(
        default=None, min_length=1, description="The cluster of the jobs, as their source names it. Default: any."
    )
    ceems_cluster: str | None = Field(
        default=None, min_length=1, description="CEEMS: only units with this `cluster_id`. Default: all."
    )
    ceems_pue: Pue = Field(
        default=Decimal(1),
        description="CEEMS: the PUE in its values (`--pue` of its recording rules), by which they are divided.",
    )
    days: Count = Field(
        default=7, ge=1, le=36_500, description="CEEMS: for so many days after its end a job is read again."
    )

    @model_validator(mode="after")
    def _of_ceems_alone(self) -> EnergyMeter:
        for name in ("ceems_cluster", "ceems_pue", "days"):
            if self.type == "csv" and name in self.model_fields_set:
                raise WrongKeysError(((name,), "has no effect on a CSV file, which is read whole"))
        return self


class Energy(Settings):
    """`[energy]`: for `report energy`, and for energy in statements and charges."""

    pue: Pue = Field(default=Decimal(1), description="Power usage effectiveness of the site, applied once.")
    carbon_g_per_kwh: Intensity | None = Field(
        default=None, description="Carbon intensity of the electricity, g CO2e a kWh."
    )
    carbon_file: FilePath | None = Field(
        default=None, description="Instead of it, a CSV file of hours: columns `start` and `g_per_kwh`."
    )
    measured: tuple[EnergyMeter, ...] = Field(default=(), description="What other programs measured.")
    power: tuple[PowerRule, ...] = Field(default=(), description="Power of jobs without a measured value.")

    @model_validator(mode="after")
    def _one_intensity(self) -> Energy:
        if self.carbon_g_per_kwh is not None and self.carbon_file is not None:
            raise WrongKeysError((("carbon_file",), "cannot be set together with `carbon_g_per_kwh`"))
        return self

    @property
    def pue_thousandths(self) -> int:
        """The PUE as a whole number of thousandths."""
        return int(self.pue * MILLI)

    @property
    def carbon_mg_per_kwh(self) -> int | None:
        """The constant intensity as a whole number; None: there is none."""
        return None if self.carbon_g_per_kwh is None else int(self.carbon_g_per_kwh * MILLI)
