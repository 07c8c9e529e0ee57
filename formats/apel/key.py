"""APEL's key of a job record: what it replaces an earlier record by (facts on formats, 4.8)."""

from __future__ import annotations

from typing import Final, NamedTuple

from formats.apel.text import carried
from formats.job import Job
from formats.rules import compared
from formats.view import View

KEY_SETTINGS: Final = frozenset(
    {"site.name", "target.local_id_prefix", "source.site", "source.local_id_prefix", "source.end_time"}
)
"""The settings that are part of the key; see `formats.base.Format`."""


class JobKey(NamedTuple):
    """Site and LocalJobId as its database compares them, and the end, epoch seconds. The submit host is not in it."""

    site: str
    local_id: str
    end: int


def job_key(job: Job, view: View) -> JobKey | None:
    """The key of a run's record; None for one without an end, which has no record.

    Without a local id the global one stands in, as in the records.
    """
    if job.end is None:
        return None
    local_id = view.local_id_prefix + job.local_id if job.local_id else job.global_id or job.record_id
    return JobKey(compared(carried(job.site or view.site)), compared(carried(local_id)), job.end)
