"""What a target demands of a run besides its format: that its grid log was asked, and a VO where VOs are wanted.

What lacks it is held, never dropped.

The one step between a stored run and its rendering: what configuration adds is added, then the demands are looked at.
"""

from __future__ import annotations

from typing import Literal

from formats.job import Job
from formats.record import CannotRenderError
from formats.vo import vo_of
from publisher.config import Config, Target
from publisher.enrich import Enrichers
from publisher.store.runs import StoredRun


def unknown_vo_of(target: Target) -> Literal["hold", "send", "skip"]:
    """What becomes of runs whose VO is unknown: as configured, else held where the target wants certain VOs only."""
    return target.unknown_vo or ("hold" if target.vo else "send")


class Demand:
    """Makes runs ready for one target, or for a plain view of the site where there is none."""

    def __init__(self, config: Config, target: Target | None) -> None:
        self._enrichers = Enrichers(config)
        self._needs_vo = target is not None and unknown_vo_of(target) == "hold"

    def identified(self, run: StoredRun) -> Job:
        """The run with what the configuration adds. Raises `CannotRenderError` where whose it is is not known yet."""
        if run.awaits_grid_log:
            raise CannotRenderError("user_dn", f"no grid log entry yet: see sources.{run.source}.grid_log")
        return self._enrichers.apply(run.source, run.job)

    def meet(self, run: StoredRun) -> Job:
        """The same, for a record. Raises `CannotRenderError` also where the target wants a VO and none is known."""
        job = self.identified(run)
        if self._needs_vo and vo_of(job) is None:
            raise CannotRenderError(
                "VO", f"unknown, and this target wants it told: add a rule [[sources.{run.source}.map]]"
            )
        return job
