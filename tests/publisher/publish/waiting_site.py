"""A site whose jobs were collected and wait for one service."""

from __future__ import annotations

from pathlib import Path

from publisher.targets.base import Refused
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job, make_jobs

DOWN = Refused("HTTP 500: Processing Failed", certain=False)


def site_of(
    folder: Path, count: int, receiver: RecordReceiver | None = None, **settings: object
) -> tuple[Site, RecordReceiver]:
    """A site whose jobs are collected and wait for one service."""
    source = ListSource("ce1")
    source.add(*make_jobs(count))
    receiver = receiver or RecordReceiver("neic")
    site = Site(folder, [source], [receiver])
    if settings:
        site.configure(receiver.name, **settings)
    site.collect()
    return site, receiver


def record_id(number: int) -> str:
    return make_job(number).record_id
