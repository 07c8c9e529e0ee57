"""The settings of targets of AUDITOR."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from formats.auditor.record import APEL_COMPONENTS, ENERGY, Amount, AuditorOptions, Component, Ids
from formats.view import StartFrom
from publisher.config.targets import TargetSettings
from publisher.config.types import BenchmarkName, KeepsPlan, PlansAgain, ServiceUrl, Settings, WrongKeysError


class ComponentSettings(Settings):
    """`Cores = { amount = "cores", scores = { hepscore23 = "HEPscore23" } }`: a component of each record."""

    amount: Amount = Field(description="What its amount is.")
    scores: dict[str, BenchmarkName] = Field(
        default_factory=dict, description="Names of its scores in AUDITOR, each with a benchmark of the job."
    )


class AuditorSettings(TargetSettings):
    """`[targets.NAME]` with `type = "auditor"`."""

    type: PlansAgain[Literal["auditor"]] = Field(description="An AUDITOR service: records as JSON by HTTPS.")
    url: KeepsPlan[ServiceUrl] = Field(description="URL of the service.")
    records: PlansAgain[Literal["auditor-record"]] = Field(
        default="auditor-record", description="Format of records; AUDITOR takes only this one."
    )
    record_id: PlansAgain[Ids] = Field(
        default="run",
        description="Record ids: of the job as at every service, or as AUDITOR's collectors make them, with "
        "`record_id_prefix` as their prefix.",
    )
    start_from: PlansAgain[StartFrom] = Field(
        default="wall",
        description="AUDITOR's run time is end - start. `wall`: the start is the end less the wall time; `start`: the "
        "start of the job, also if the run time is then not its wall time.",
    )
    components: PlansAgain[dict[str, ComponentSettings]] = Field(
        default_factory=lambda: {
            each.name: ComponentSettings(amount=each.amount, scores=dict(each.scores)) for each in APEL_COMPONENTS
        },
        description="Components of each record. Default: those that AUDITOR's APEL plugin reads.",
    )

    @model_validator(mode="after")
    def _collectors_have_a_prefix(self) -> Self:
        if self.record_id != "run" and not self.record_id_prefix:
            text = "is missing: ids of AUDITOR's collectors begin with the `record_prefix` of the collector"
            raise WrongKeysError((("record_id_prefix",), text))
        return self

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        names = [*self.components, *(name for component in self.components.values() for name in component.scores)]
        if any(not name.strip() or len(name) > _LONGEST_NAME for name in names):
            raise WrongKeysError((("components",), f"names have 1 to {_LONGEST_NAME} characters, not only blanks"))
        return self

    @property
    def destination(self) -> tuple[str, ...]:
        """See `TargetSettings`."""
        return (self.url.rstrip("/"),)

    @property
    def needs_energy(self) -> bool:
        """See `TargetSettings`."""
        return any(component.amount == ENERGY for component in self.components.values())

    @property
    def format_options(self) -> AuditorOptions:
        """See `TargetSettings`."""
        components = tuple(
            Component(name, each.amount, tuple(each.scores.items())) for name, each in self.components.items()
        )
        return AuditorOptions(components, self.start_from, self.record_id)


_LONGEST_NAME = 256
