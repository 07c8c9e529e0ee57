"""Runs whose core numbers were not read at first: reading the log again changes no run and sends nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from formats.identity import digest
from formats.job import Job
from publisher.collect.collect import Collected
from publisher.config.schema import SourceSettings
from publisher.encoded_run import decode_run
from publisher.sources import make_source
from publisher.sources.base import Window
from publisher.store.schema import State
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site


@pytest.fixture
def jobs(fixtures: Path) -> list[Job]:
    """The fixture's runs."""
    settings = SourceSettings(
        type="torque", path=fixtures / "torque" / "accounting", timezone="Europe/Oslo", cluster="batch.example.org"
    )
    return [job for page in make_source("ce1", settings).pages({}) for job in page.jobs]


@pytest.fixture
def site(tmp_path: Path, jobs: list[Job]) -> Site:
    """A site that delivered these runs without their core numbers."""
    source = ListSource("ce1")
    source.add(*(msgspec.structs.replace(job, core_numbers=()) for job in jobs))
    site = Site(tmp_path, [source], [RecordReceiver("sgas"), RecordReceiver("apel", "ams")])
    site.collect()
    site.publish()
    return site


def stored(site: Site) -> dict[str, tuple[bytes, Job]]:
    rows = site.rows("SELECT record_id, runs.digest, job, facts FROM runs JOIN classes ON class_id = classes.id")
    return {row[0]: (bytes(row[1]), decode_run(bytes(row[2]), bytes(row[3]))) for row in rows}


def read_again(site: Site, *jobs: Job) -> Collected:
    """`collect --since` the beginning."""
    site.sources["ce1"].log = list(jobs)
    return site.collect(window=Window(0, None))["ce1"]


def test_a_log_that_is_read_again_changes_no_run_and_nothing_waits(site: Site, jobs: list[Job]) -> None:
    ended = {job.record_id: job for job in jobs if job.end is not None}
    assert sum(bool(job.core_numbers) for job in ended.values()) > 10
    before = stored(site)
    posts = {name: receiver.posts for name, receiver in site.receivers.items()}
    collected = read_again(site, *jobs)
    assert (collected.new, collected.changed, collected.unchanged) == (0, 0, len(ended))
    site.publish()
    for name in ("sgas", "apel"):
        assert site.in_state(name, State.WAITING) == set()
        assert site.receivers[name].posts == posts[name]
    assert site.rows("SELECT count(*) FROM versions") == [(0,)]
    after = stored(site)
    assert {name: mark for name, (mark, _) in after.items()} == {name: mark for name, (mark, _) in before.items()}
    for name, (mark, job) in after.items():
        assert msgspec.structs.replace(job, core_numbers=()) == before[name][1]
        assert digest(job) == mark
        if name in ended:
            assert job == ended[name], "and now its cores are known"
    site.assert_counters_right()


def test_a_run_that_did_change_is_noticed(site: Site, jobs: list[Job]) -> None:
    job = next(job for job in jobs if job.core_numbers and job.status == "completed")
    assert read_again(site, msgspec.structs.replace(job, cpu_ms=1)).changed == 1
    assert site.in_state("sgas", State.SUPERSEDED) == {job.record_id}, "SGAS keeps the first version"
    ((kept,),) = site.rows("SELECT job FROM versions")
    assert decode_run(bytes(kept), b"").core_numbers == ()


def test_other_core_numbers_alone_are_not_a_change(site: Site, jobs: list[Job]) -> None:
    job = next(job for job in jobs if job.core_numbers and job.status == "completed")
    assert read_again(site, msgspec.structs.replace(job, core_numbers=("31",))).unchanged == 1
    assert stored(site)[job.record_id][1].core_numbers == ("31",)
    assert site.in_state("sgas", State.WAITING) == set()
