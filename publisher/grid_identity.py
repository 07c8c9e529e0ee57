"""The grid identity of a local job from the log of a computing element, and the entry of the log that fits a job.

Pure. Keeps the promise that nothing is guessed: what the source itself reports stays, and an entry counts only for a
job that ended between a day before and 28 days after it (facts on sources, 8).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from formats.job import Job
from formats.names import parse_fqan
from publisher.job_ids import id_with_schedd, local_id

BEFORE_S: Final = 86_400
AFTER_S: Final = 28 * 86_400

IDENTITY_FIELDS: Final = (
    "user_dn", "token_subject", "token_issuer", "vo", "fqans", "endpoint_url", "token_groups",
)  # fmt: skip
"""The facts of a run that an entry may have."""


class GridLogEntry(msgspec.Struct, frozen=True):
    """An entry of a grid log: `at` epoch seconds (submission or start), the user, and the computing element."""

    at: int
    lrms_id: str
    user_dn: str | None = None
    fqans: tuple[str, ...] = ()
    submit_host: str | None = None
    token_subject: str | None = None
    token_issuer: str | None = None
    token_groups: tuple[str, ...] | None = None

    def given_to(self, job: Job) -> Job:
        """The job with what the entry has and its source does not."""
        changes: dict[str, Any] = {}
        if self.user_dn and not job.user_dn:
            changes["user_dn"] = self.user_dn
        if self.token_subject and not job.token_subject:
            changes["token_subject"] = self.token_subject
        if self.token_issuer and not job.token_issuer:
            changes["token_issuer"] = self.token_issuer
        if self.token_groups and not job.token_groups and job.token_issuer in {None, self.token_issuer}:
            changes["token_groups"] = self.token_groups
        if self.fqans and not (job.fqans or job.vo):
            changes["fqans"] = self.fqans
            changes["vo"] = parse_fqan(self.fqans[0]).vo or None
        if self.submit_host and not job.endpoint_url:
            changes["endpoint_url"] = self.submit_host
        return msgspec.structs.replace(job, **changes) if changes else job


def needs_entry(job: Job) -> bool:
    """Whether a grid log could identify a run: it has ended, and its source does not name the grid user."""
    return job.finished and job.end is not None and bool(job.local_id) and not (job.user_dn or job.token_subject)


def entry_for(job: Job, entries: Iterable[GridLogEntry]) -> GridLogEntry | None:
    """The entry of this run: the latest that its end allows; None: the log has none."""
    assert job.end is not None
    own, end = local_id(id_with_schedd(job) or ""), job.end
    fitting = [
        entry
        for entry in entries
        if entry.at - BEFORE_S <= end <= entry.at + AFTER_S and own.may_be(local_id(entry.lrms_id))
    ]
    return max(fitting, key=lambda entry: (entry.at, entry.lrms_id), default=None)
