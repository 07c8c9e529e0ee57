"""Recognise steps of Slurm jobs, which the APEL client counts as jobs.

The client's script asks sacct for steps too (`1087.batch`), and its parser makes an event of each line. With
`local_jobs = true` each step without a computing element becomes a job of no user and no VO. No job of Slurm is without
a group, so a local summary without VO is of steps where all jobs are from Slurm.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from formats.apel.text import is_null
from formats.calendar import Month, month_of
from formats.check.fields import Fields

_STEP: Final = re.compile(r"\d+(_\d+|\+\d+)?\.(batch|extern|interactive|\d+)", re.ASCII)
_SLURM: Final = "slurm"
"""In InfrastructureDescription, which the client's parsers write: APEL-CREAM-SLURM."""
_OF_NOBODY: Final = ("GlobalUserName", "VO", "SubmitHost")


class SlurmSteps:
    """Recognises steps among the jobs of a client. `by_month`: how many its job records have, if they are known."""

    def __init__(self, *, only_slurm: bool) -> None:
        """`only_slurm`: all jobs are from Slurm."""
        self._only_slurm = only_slurm
        self.by_month: Counter[Month] | None = None

    def is_step(self, fields: Fields) -> bool:
        """Whether a job record is of a step. `7.0` is one of Slurm's only: HTCondor has such jobs."""
        local = _first(fields, "LocalJobId", "JobIdentity/LocalJobId")
        description = _first(fields, "InfrastructureDescription")
        is_slurm = self._only_slurm if not description else _SLURM in description.lower()
        return is_slurm and _STEP.fullmatch(local) is not None

    def is_group(self, fields: Fields) -> bool:
        """Whether a summary is of steps."""
        is_local = _first(fields, "InfrastructureType") == "local"
        return self._only_slurm and is_local and all(is_null(_first(fields, name)) for name in _OF_NOBODY)

    def count(self, job_records: Iterable[Fields]) -> None:
        """Count the steps among job records, by the month in which they ended."""
        self.by_month = Counter() if self.by_month is None else self.by_month
        self.by_month.update(month_of(int(fields["EndTime"][-1])) for fields in job_records if self.is_step(fields))


def _first(fields: Fields, *names: str) -> str:
    return next((fields[name][0] for name in names if fields.get(name)), "")
