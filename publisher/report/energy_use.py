"""The energy of some runs, or of idle nodes, as whole numbers, and what tables and statements show of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from publisher.config.energy import MILLI
from publisher.report.report import Cell
from publisher.text import counted

MJ_A_KWH: Final = 3_600_000_000
_MS_IN_HOUR: Final = 3_600_000
_UG_IN_KG, _UG_IN_G = 1_000_000_000, 1_000_000


class IdleEnergy(msgspec.Struct, frozen=True):
    """The energy of the cores that no job held, in millijoules; emissions in micrograms, and the energy with them."""

    modelled_mj: int
    carbon_ug: int | None
    carbon_mj: int
    unplaced: bool
    """Whether there were runs without hosts, so that nodes look idle that were not."""


class EnergyUse(msgspec.Struct, frozen=True):
    """The energy of some runs, without the PUE; carbon None: of no energy known. The last numbers count runs."""

    jobs: int = 0
    core_ms: int = 0
    gpu_ms: int = 0
    measured_mj: int = 0
    modelled_mj: int = 0
    carbon_ug: int | None = None
    carbon_mj: int = 0
    """The energy whose emissions are known."""
    measured_jobs: int = 0
    by_ceems: int = 0
    by_file: int = 0
    unknown_jobs: int = 0
    sentinels: int = 0
    shared: int = 0
    above: int = 0
    impossible: int = 0
    unchecked: int = 0
    memory_unknown: int = 0
    backward: int = 0

    @classmethod
    def total(cls, uses: Sequence[EnergyUse]) -> EnergyUse:
        """The energy of the runs of all of them."""
        sums: dict[str, Any] = {name: sum(getattr(use, name) or 0 for use in uses) for name in cls.__struct_fields__}
        if all(use.carbon_ug is None for use in uses):
            sums["carbon_ug"] = None
        return cls(**sums)

    @property
    def energy_mj(self) -> int:
        """All energy."""
        return self.measured_mj + self.modelled_mj

    @property
    def is_known(self) -> bool:
        """Whether any of the energy is known."""
        return self.unknown_jobs < self.jobs or self.energy_mj > 0

    def plus(self, idle: IdleEnergy | None) -> EnergyUse:
        """With that of idle nodes."""
        if idle is None:
            return self
        carbon = None if self.carbon_ug is None and idle.carbon_ug is None else (self.carbon_ug or 0)
        return msgspec.structs.replace(
            self,
            modelled_mj=self.modelled_mj + idle.modelled_mj,
            carbon_ug=None if carbon is None else carbon + (idle.carbon_ug or 0),
            carbon_mj=self.carbon_mj + idle.carbon_mj,
        )

    def amounts(self, pue_thousandths: int) -> tuple[Cell, ...]:
        """The cells of the columns."""
        known = self.is_known
        kwh = self.energy_mj * pue_thousandths / (MJ_A_KWH * MILLI)
        carbon = None if self.carbon_ug is None else self.carbon_ug * pue_thousandths / MILLI
        core_h = self.core_ms / _MS_IN_HOUR
        return (
            self.jobs or None,
            core_h if self.jobs else None,
            self.gpu_ms / _MS_IN_HOUR if self.gpu_ms else None,
            self.measured_mj / MJ_A_KWH if self.measured_jobs else None,
            self.modelled_mj / MJ_A_KWH if known else None,
            kwh if known else None,
            None if carbon is None else carbon / _UG_IN_KG,
            kwh / core_h if known and core_h else None,
            carbon / _UG_IN_G / core_h if carbon is not None and core_h else None,
            self.measured_mj / self.energy_mj if self.energy_mj else None,
            self.carbon_mj / self.energy_mj if self.energy_mj else None,
            self._method() if known else None,
            self.unknown_jobs,
            self.measured_mj,
            self.modelled_mj,
        )

    def line(self, pue_thousandths: int) -> str:
        """The line of a statement; empty if nothing is known."""
        if not self.energy_mj:
            return ""
        kwh = self.energy_mj * pue_thousandths / (MJ_A_KWH * MILLI)
        text = f"Energy of these jobs: {kwh:,.3f} kWh with PUE {pue_thousandths / MILLI:g}"
        if self.carbon_ug is not None:
            text += f", {self.carbon_ug * pue_thousandths / MILLI / _UG_IN_KG:,.3f} kg CO2e"
            if self.carbon_mj < self.energy_mj:
                text += f" of {100 * self.carbon_mj / self.energy_mj:.0f} % of it"
        measured = f"{100 * self.measured_mj / self.energy_mj:.0f} % measured, the rest modelled"
        unknown = f"; unknown for {counted(self.unknown_jobs, 'job')}" if self.unknown_jobs else ""
        return f"{text} ({measured}{unknown})."

    def _method(self) -> str:
        methods = {
            "batch system": self.measured_jobs > self.by_ceems + self.by_file,
            "CEEMS": self.by_ceems > 0,
            "file": self.by_file > 0,
            "modelled": self.modelled_mj > 0 or self.measured_jobs + self.unknown_jobs < self.jobs,
        }
        return ", ".join(name for name, used in methods.items() if used)
