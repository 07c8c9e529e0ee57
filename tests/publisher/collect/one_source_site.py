"""A site of one source and one receiver, for tests of collecting."""

from __future__ import annotations

from pathlib import Path

from formats.job import Job
from publisher.sources.base import Unreadable
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site

KINDS = ("sgas", "ams")


def site_of(folder: Path, *jobs: Job | Unreadable, kind: str = "sgas", page: int = 100) -> tuple[Site, RecordReceiver]:
    source = ListSource("ce1", page=page)
    source.add(*jobs)
    receiver = RecordReceiver("neic", kind)
    return Site(folder, [source], [receiver]), receiver
