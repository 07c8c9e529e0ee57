"""Which machine a run is accounted to, and whether it came from a grid: questions every format asks alike."""

from __future__ import annotations

from formats.identity import endpoint_host
from formats.job import Infrastructure, Job
from formats.view import View


def machine_name(job: Job, view: View) -> str:
    """The view's machine name, else the host of the job's endpoint, else its cluster; empty where there is none.

    As ARC takes its MachineName (ARC accounting technical details, table 4); SGAS authorises the sender by it.
    """
    if view.machine_name:
        return view.machine_name
    if job.endpoint_url:
        host = endpoint_host(job.endpoint_url)
        if host:
            return host
    return job.cluster or ""


def infrastructure_of(job: Job) -> Infrastructure:
    """`grid` or `local`: as the source says, else grid for a job with an endpoint or a grid identity."""
    if job.infrastructure is not None:
        return job.infrastructure
    return "grid" if job.endpoint_url or job.user_dn or job.token_subject or job.fqans else "local"


def middleware_name(job: Job) -> str:
    """The software that ran the job for the site: the grid middleware, else the batch system."""
    return job.middleware or job.system


def infrastructure_description(job: Job, view: View) -> str:
    """`<accounting client>-<CE>-<LRMS>`, CAR's convention (facts on formats, 2), unless the view has its own words."""
    if view.infrastructure_description is not None:
        return view.infrastructure_description
    return f"USAGE-PUBLISHER-{middleware_name(job).upper()}-{(job.lrms or job.system).upper()}"
