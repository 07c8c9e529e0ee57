"""The one step between a stored run and its rendering: enrich it, or hold it if something is missing.

A run waits for its entry in a grid log, for a VO if the target selects by VO, and for a number of cores if it is from a
source that must have one; for a target that is sent energy, until that is known. A run without them is held, never
dropped.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from formats.job import Job
from formats.names import vo_of
from formats.rule_codes import CannotRenderError
from publisher.collect.enrich import Enrichers
from publisher.config.schema import Config, Target
from publisher.reason import ReasonCode
from publisher.store.classes import JobClass, awaits_grid_log
from publisher.store.stored_run import StoredRun


class RunPreparer:
    """Prepares runs for one target, or for a plain view of the site without a target."""

    def __init__(
        self, config: Config, target: Target | None, energy: Callable[[StoredRun], int | None] | None = None
    ) -> None:
        """`energy`: gives the millijoules of a run, for a target that is sent energy."""
        self._energy = energy
        self._enrichers = Enrichers(config)
        self._needs_cores = frozenset(name for name, each in config.sources.items() if each.kind.needs_cores)
        self._needs_vo = target is not None and target.for_unknown_vo == "hold"

    def identified(self, run: StoredRun) -> Job:
        """Return the enriched run. Raises `CannotRenderError` if its owner is not known yet, or if it is damaged."""
        if run.damage is not None:
            raise CannotRenderError(ReasonCode.DAMAGED, "job", source=run.source)
        return self._identified(run.source, run.job, awaits=run.awaits_grid_log)

    def prepare(self, run: StoredRun) -> Job:
        """The same, for a record. Raises `CannotRenderError` also if the target selects by VO and none is known."""
        job = self._with_vo(run.source, self.identified(run))
        if self._energy is None:
            return job
        energy_mj = self._energy(run)
        if energy_mj is None:
            raise CannotRenderError(ReasonCode.NO_ENERGY, "energy")
        return msgspec.structs.replace(job, energy_j=energy_mj / 1000)

    def prepare_class(self, job_class: JobClass, end: int) -> Job:
        """The same, for what the runs of a class share: those that ended then, or with none of `bounds` between."""
        facts = msgspec.structs.replace(job_class.facts, end=end)
        source = job_class.source
        return self._with_vo(source, self._identified(source, facts, awaits=awaits_grid_log(facts)))

    def bounds(self) -> list[int]:
        """The instants from which on runs of a class may be enriched differently, in order."""
        return self._enrichers.bounds()

    def _identified(self, source: str, job: Job, *, awaits: bool) -> Job:
        if awaits:
            raise CannotRenderError(ReasonCode.NO_GRID_LOG_ENTRY, "user_dn", source=source)
        if job.cores is None and source in self._needs_cores:
            raise CannotRenderError(ReasonCode.NO_CORES, "cores", source=source)
        return self._enrichers.apply(source, job)

    def _with_vo(self, source: str, job: Job) -> Job:
        if self._needs_vo and vo_of(job) is None:
            raise CannotRenderError(ReasonCode.NO_VO, "VO", source=source)
        return job
