"""The machine and infrastructure to which a run is accounted, and APEL's SubmitHost: the same in every format.

The service compares the counts of a sync message with its own by SubmitHost, so records, summaries, and sync messages
must use the same string (facts/formats.md 4.6), and it must stay as in the site's history (`View.submit_host`).
"""

from __future__ import annotations

from formats.identity import endpoint_host
from formats.job import Infrastructure, Job
from formats.view import View


def machine_name(job: Job, view: View) -> str:
    """The view's machine name, else the host of the job's endpoint, else its cluster; empty where there is none.

    The same as ARC's MachineName (ARC accounting technical details, table 4); SGAS authorises the sender by it.
    """
    if view.machine_name:
        return view.machine_name
    if job.endpoint_url:
        host = endpoint_host(job.endpoint_url)
        if host:
            return host
    return job.cluster or ""


def infrastructure_of(job: Job) -> Infrastructure:
    """`grid` or `local`: the source's value, else grid for a job with an endpoint or a grid identity."""
    if job.infrastructure is not None:
        return job.infrastructure
    return "grid" if job.endpoint_url or job.user_dn or job.token_subject or job.fqans else "local"


def middleware_name(job: Job) -> str:
    """The software that ran the job for the site: the grid middleware, else the batch system."""
    return job.middleware or job.system


def infrastructure_description(job: Job, view: View) -> str:
    """`<accounting client>-<CE>-<LRMS>`, CAR's convention (facts/formats.md 2), unless the view has its own text."""
    if view.infrastructure_description is not None:
        return view.infrastructure_description
    return f"USAGE-PUBLISHER-{middleware_name(job).upper()}-{(job.lrms or job.system).upper()}"


NO_SUBMIT_HOST = "None"
"""What the APEL server stores for a record without a SubmitHost (facts on formats, 4.3)."""

_NORDUGRID = "org.nordugrid."
_NAMED_INTERFACES = frozenset({"arcrest", "internal"})


def submit_host_of(job: Job, view: View) -> str:
    """SubmitHost of a run in APEL's records and summaries.

    With an endpoint: in the view's spelling. Without: the cluster, else the machine name of the view, else `None` (the
    server's own word). ARC names the interface of arcrest and internal endpoints only. The APEL client has `None` for
    every local job.
    """
    if view.submit_host == "apel-client" and infrastructure_of(job) == "local":
        return NO_SUBMIT_HOST
    url = job.endpoint_url
    if not url:
        return job.cluster or machine_name(job, view) or NO_SUBMIT_HOST
    if view.submit_host in {"url", "apel-client"}:
        return url
    if view.submit_host == "host":
        return endpoint_host(url) or url
    kind = job.endpoint_type or ""
    interface = kind.removeprefix(_NORDUGRID)
    if interface == kind or interface not in _NAMED_INTERFACES:
        return url
    if interface == "internal" and view.submit_host == "arc-6.21":
        interface = "ternal"
    return f"{interface}:{url}"


def car_submit_host(job: Job, view: View) -> str | None:
    """SubmitHost of a run in a CAR: as in `submit_host_of` for a grid job; None for a local job, for which CAR 1.2
    forbids it.

    A sync message sent with CARs counts local jobs under `NO_SUBMIT_HOST`.
    """
    return submit_host_of(job, view) if infrastructure_of(job) == "grid" else None
