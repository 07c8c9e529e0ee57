"""A site whose store has something of everything."""

from __future__ import annotations

from pathlib import Path

from formats.job import Job
from publisher.sources.base import Unreadable
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job


def fill(folder: Path) -> Site:
    """A site after a few runs: all states but in flight, two versions of a run, batches, summaries, an audit entry."""
    jobs: list[Job | Unreadable] = [make_job(number, wall_s=number) for number in range(1, 7)]
    jobs += [
        make_job(7, benchmarks=()),
        make_job(8, status="running", end=None, wall_ms=None, cpu_ms=None),
        make_job(9, vo=None, user_dn=None, name="B\u00f8 & <S\u00f8n>"),
        Unreadable("accounting", 3, 77, "no end time", b"x:y\xff"),
    ]
    source = ListSource("ce1")
    source.add(*jobs)
    services = [RecordReceiver("sgas"), RecordReceiver("apel", "ams"), SummaryReceiver("sums")]
    site = Site(folder, [source], services)
    site.collect()
    services[0].poison = {make_job(2).record_id, make_job(3).record_id}
    site.publish("sgas", "apel", "sums")
    site.publisher.waive(State.REJECTED, "sgas", [make_job(3).record_id], "a test job")
    source.add(make_job(1, wall_s=50), make_job(10))
    site.collect()
    return site
