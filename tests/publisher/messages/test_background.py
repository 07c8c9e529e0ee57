"""Rendering in a worker process gives the same messages as rendering here; nothing is lost if it dies."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec import structs

from publisher.errors import StoreMissingError
from publisher.messages.background import BackgroundRenderer, RenderOrder
from publisher.messages.steps import DUE, BacklogLimits, Scope
from publisher.sources.base import Window
from publisher.store.deliveries import Shard
from publisher.store.schema import State
from publisher.targets.base import Message, Transient
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store

PAGE = 100
RUNS_HERE = 3 * PAGE - 7
"""Not at the end of a page."""
MANY = 10 * PAGE
WORTH_RUNS = BacklogLimits().worth_runs
WITHOUT_VO = range(50, MANY, 97)


def _site(folder: Path, *, worth: int) -> tuple[Site, RecordReceiver]:
    """Some of its runs are held, in pages that are made here and in others. The names of jobs are so long that another
    process has to wait until this one has read its pages."""
    folder.mkdir(exist_ok=True)
    source = ListSource("ce1")
    source.add(
        *(make_job(number, name="x" * 3000, vo=None if number in WITHOUT_VO else "atlas") for number in range(MANY))
    )
    service = RecordReceiver("neic")
    site = Site(folder, [source], [service])
    site.backlog = BacklogLimits(worth_runs=worth, runs_here=RUNS_HERE, cores=2, loaded=PAGE)
    site.configure("neic", unknown_vo="hold", batch_records=PAGE)
    site.collect()
    return site, service


def _children() -> set[int]:
    found: set[int] = set()
    for task in Path("/proc/self/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended meanwhile
            found.update(map(int, task.read_text(encoding="ascii").split()))
    return found


def test_what_another_process_renders_is_what_this_one_would(tmp_path: Path) -> None:
    sent, stood, seen = [], [], []
    for worth in (MANY + 1, MANY):
        before = _children()
        site, service = _site(tmp_path / str(worth), worth=worth)
        others: set[int] = set()
        service.fault = lambda _message, before=before, others=others: others.update(_children() - before)
        assert site.publish_to("neic").sent.held == len(WITHOUT_VO)
        sent.append([message.payload for message in service.messages])
        stood.append((site.states("neic"), site.reasons("neic"), site.counted("neic")))
        seen.append(len(others))
        assert _children() == before
    assert seen == [0, 1]
    assert sent[0] == sent[1]
    assert stood[0] == stood[1]


def test_a_renderer_that_is_killed_costs_nothing(tmp_path: Path) -> None:
    before = _children()
    site, service = _site(tmp_path, worth=1)
    killed: list[int] = []

    def kill(_message: Message) -> None:
        for child in _children() - before - set(killed):
            os.kill(child, signal.SIGKILL)
            killed.append(child)

    service.fault = kill
    delivery = site.publish_to("neic")
    assert len(killed) == 1, "or it is begun again and again"
    assert (delivery.error, delivery.sent.held) == (None, len(WITHOUT_VO))
    assert service.posted() == [make_job(number).record_id for number in range(MANY) if number not in WITHOUT_VO]


def test_a_run_that_stops_leaves_no_process(tmp_path: Path) -> None:
    before = _children()
    site, service = _site(tmp_path, worth=1)
    begun: set[int] = set()

    def go_down(_message: Message) -> Transient | None:
        begun.update(_children() - before)
        return Transient("HTTP 503") if begun else None

    service.fault = go_down
    assert site.publish_to("neic").sent.paused is not None
    assert begun
    assert _children() == before
    service.fault = lambda _message: None
    site.publish()
    assert site.counted("neic") == {State.ACCEPTED: MANY - len(WITHOUT_VO), State.HELD: len(WITHOUT_VO)}


def test_what_is_sent_again_on_request_counts_as_new(tmp_path: Path) -> None:
    site, _ = _site(tmp_path, worth=1)
    site.publish()
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE deliveries SET state = 1 WHERE state = 3")
    for as_new, reported in ((False, {True}), (True, {False})):
        pages = list(_pages(site, 10 * PAGE).pages(as_new))
        assert {item.may_be_there for page in pages for item in page.items} == reported


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site of which nothing was sent."""
    source = ListSource("ce1")
    source.add(*make_jobs(MANY))
    made = Site(tmp_path, [source], [RecordReceiver("neic")])
    made.collect()
    return made


def _pages(site: Site, waiting: int, url: str | None = None, scope: Scope = DUE, cores: int = 2) -> BackgroundRenderer:
    config = site.config
    if url is not None:
        config = config.model_copy(update={"store": config.store.model_copy(update={"url": url})})
    limits = BacklogLimits(runs_here=RUNS_HERE, cores=cores)
    here = RenderOrder(site.config, "neic", scope, PAGE).renderer(site.publisher.store)
    return BackgroundRenderer(here, RenderOrder(config, "neic", scope, PAGE), waiting, limits)


@pytest.mark.parametrize(("waiting", "cores"), [(WORTH_RUNS, 2), (WORTH_RUNS, 1), (9, 2)])
def test_the_parts_of_a_backlog_are_all_of_it(site: Site, waiting: int, cores: int) -> None:
    found = [
        [
            item.members.run_ids[0]
            for page in _pages(site, waiting, scope=structs.replace(DUE, part=Shard(index, 2)), cores=cores).pages(
                False
            )
            for item in page.items
        ]
        for index in range(2)
    ]
    assert sorted(found[0] + found[1]) == sorted(run_id for (run_id,) in site.rows("SELECT id FROM runs"))


@pytest.mark.parametrize("jobs", [RUNS_HERE - 200, RUNS_HERE, 2 * RUNS_HERE])
def test_of_a_window_no_other_runs_are_rendered(site: Site, jobs: int) -> None:
    """Also where less than what is rendered here lies in it, or the end of a page does not."""
    ends = [end for (end,) in site.rows("SELECT end_time FROM runs ORDER BY end_time")]
    window = Window(ends[50], ends[50 + jobs])
    pages = _pages(site, WORTH_RUNS, scope=structs.replace(DUE, window=window)).pages(False)
    assert [item.latest_end for page in pages for item in page.items] == ends[50 : 50 + jobs]


def test_an_error_of_the_other_process_is_raised_here(site: Site, tmp_path: Path) -> None:
    pages = _pages(site, WORTH_RUNS, f"sqlite:///{tmp_path}/gone.db").pages(False)
    for _ in range(3):
        next(pages)
    with pytest.raises(StoreMissingError, match="does not exist"):
        next(pages)
