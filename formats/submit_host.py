"""APEL's SubmitHost of a run: one function for records, summaries and sync messages.

The service compares the counts of a sync message with what it holds per SubmitHost, so the string must be the same
in all three (facts on formats, 4.6), and it must stay as the site's history has it (`View.submit_host`).
"""

from __future__ import annotations

from formats.identity import endpoint_host
from formats.job import Job
from formats.machine import infrastructure_of, machine_name
from formats.view import View

NO_SUBMIT_HOST = "None"
"""What the APEL server stores for a record without a SubmitHost (facts on formats, 4.3)."""

_NORDUGRID = "org.nordugrid."
_NAMED_INTERFACES = frozenset({"arcrest", "internal"})


def apel_submit_host(job: Job, view: View) -> str:
    """SubmitHost of a run in APEL's records and summaries.

    With an endpoint: in the view's spelling. Without: the cluster, else the machine name of the view, else `None` (the
    server's own word). ARC names the interface of arcrest and internal endpoints only.
    """
    url = job.endpoint_url
    if not url:
        return job.cluster or machine_name(job, view) or NO_SUBMIT_HOST
    if view.submit_host == "url":
        return url
    if view.submit_host == "host":
        return endpoint_host(url) or url
    kind = job.endpoint_type or ""
    interface = kind.removeprefix(_NORDUGRID)
    if interface == kind or interface not in _NAMED_INTERFACES:
        return url
    if interface == "internal" and view.submit_host == "arc-6.17-internal":
        interface = "ternal"
    return f"{interface}:{url}"


def car_submit_host(job: Job, view: View) -> str | None:
    """SubmitHost of a run in a CAR: as above for a grid job; CAR 1.2 forbids it for a local one, hence None.

    A sync message beside CARs counts those under `NO_SUBMIT_HOST`.
    """
    return apel_submit_host(job, view) if infrastructure_of(job) == "grid" else None
