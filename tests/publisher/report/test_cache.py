"""Runs kept in memory give the reports that the store gives, whatever happened to it in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event, update

from formats.job import Events, Host, Job
from publisher.api import Publisher
from publisher.job_ids import JobIds
from publisher.report.cache import ReportCache
from publisher.report.compact import ColumnChunk
from publisher.report.frame import NUMBERS, ROW, WORDS, Frame
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from publisher.store import registry
from publisher.store.schema import runs
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

NOW = 1_795_000_000
ALWAYS = {"start": 0, "stop": NOW}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("utilization", {"bin_s": 86_400 * 365}),
    ("utilization", {"bin_s": 86_400 * 365, "by": ("user",)}),
    ("utilization", {"start": 1_000_000_020, "stop": 1_000_000_050, "bin_s": 6}),
    *(
        ("totals", {"by": (key,)})
        for key in ("host", "queue", "vo", "slots", "pe", "status", "complex", "month", "task")
    ),
    ("totals", {"by": ("user", "queue"), "interval": "started"}),
    ("totals", {"filters": {"user": "a*", "host": "*"}}),
    ("totals", {"filters": {"job": "*1*"}}),
    ("totals", {"filters": {"user": "nobody of that name"}}),
    ("occupation", {"by": ("node",), "period": "year"}),
    ("occupation", {"resource": "memory", "period": "year"}),
    ("waiting", {"by": ("queue", "size")}),
    ("scarce", {}),
    ("paths", {}),
    ("paths", {"filters": {"job": "*2*"}}),
    ("job", {"filters": {"job": "*3*"}}),
    ("job", {"filters": {"job": "ge-1*"}}),  # after the prefix of a source
]


def asked(publisher: Publisher, view: str, given: dict[str, Any], kept: ReportCache | None = None) -> Report:
    request = ReportRequest(**{**ALWAYS, **given})
    return make(
        view, ReportContext(publisher.store, publisher.config, NOW, None if kept is None else kept.runs), request
    )


def ready(publisher: Publisher, **given: int) -> CountingCache:
    said: list[str] = []
    kept = CountingCache(publisher.store, publisher.config, said.append, publisher.tools.clock, **given)
    kept.prepare()
    kept.wait()
    assert said == []
    return kept


class CountingCache(ReportCache):
    """Counts how often the store was read for a report."""

    reads = 0

    def being_read(self, change: int) -> None:
        """See `ReportCache`."""
        self.reads += change > 0
        super().being_read(change)


@contextmanager
def searches() -> Iterator[list[str]]:
    """The statements with which runs are searched in a store, whatever they are."""
    found: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "SELECT runs.id, runs.class_id, runs.job" in statement:
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture(scope="module")
def kept(every_source: Publisher) -> CountingCache:
    return ready(every_source)


@pytest.mark.parametrize(("view", "given_"), ASKED, ids=lambda value: value if isinstance(value, str) else None)
def test_every_view_of_every_source_is_the_same(
    every_source: Publisher, kept: CountingCache, view: str, given_: dict[str, Any]
) -> None:
    before = kept.reads
    assert asked(every_source, view, given_, kept) == asked(every_source, view, given_)
    assert kept.reads == before


def collected(folder: Path, jobs: list[Job]) -> tuple[Site, ListSource]:
    source = ListSource("ce1")
    source.add(*jobs)
    site = Site(folder, [source], [])
    site.collect()
    return site, source


VIEWS: list[tuple[str, dict[str, Any]]] = [
    ("totals", {"by": ("user", "host")}), ("occupation", {"by": ("node",), "period": "month"}), ("waiting", {}),
]  # fmt: skip


def same(site: Site, kept: ReportCache) -> None:
    for view, given_ in VIEWS:
        assert asked(site.publisher, view, given_, kept) == asked(site.publisher, view, given_)


@pytest.mark.either_store
def test_what_is_new_changed_gone_or_renamed_is_made_good(tmp_path: Path) -> None:
    jobs = make_jobs(50)
    running = make_job(60, status="running", end=None, wall_ms=None, cpu_ms=None, start=NOVEMBER)
    site, source = collected(tmp_path, [*jobs, running])
    kept = ready(site.publisher)
    before = kept.reads
    same(site, kept)

    def changed(work: Callable[[], object]) -> None:
        before = [asked(site.publisher, view, given_) for view, given_ in VIEWS]
        work()
        assert [asked(site.publisher, view, given_) for view, given_ in VIEWS] != before, "nothing was changed"
        same(site, kept)

    def read(*some: Job) -> Callable[[], object]:
        def collect() -> None:
            source.add(*some)
            site.now += 1
            site.collect()

        return collect

    changed(read(*make_jobs(55)[50:]))
    changed(read(msgspec.structs.replace(jobs[3], local_user="somebody", wall_ms=77_000)))
    changed(read(msgspec.structs.replace(jobs[3], local_user="somebody", wall_ms=78_000)))
    changed(read(msgspec.structs.replace(running, status="completed", end=NOVEMBER + 500, wall_ms=500_000)))
    assert kept.reads == before

    def forget() -> None:
        """Change a run's class and the text of its job, as `store forget` does, and nothing else."""
        with site.publisher.store.write() as connection:
            gone = runs.c.record_id.in_([job.record_id for job in jobs[:5]])
            connection.execute(update(runs).where(gone).values(end_time=None, finished=0))
            registry.record_action(connection, "forget", "x", "y", 1)

    changed(forget)
    assert kept.reads == before


def test_much_that_is_new_is_read_beside_the_reports(tmp_path: Path) -> None:
    site, source = collected(tmp_path, make_jobs(5))
    kept = ready(site.publisher, at_once=10)
    source.add(*make_jobs(30)[5:])
    site.now += 1
    site.collect()
    before = kept.reads
    same(site, kept)  # from the store, the first at least
    assert kept.reads - before >= 1
    kept.wait()
    before = kept.reads
    same(site, kept)
    assert kept.reads == before


def test_of_very_many_those_that_ended_last_are_kept(tmp_path: Path) -> None:
    jobs = make_jobs(100)
    site, _ = collected(tmp_path, jobs)
    kept = ready(site.publisher, most=30)
    before = kept.reads
    same(site, kept)
    assert kept.reads - before == len(VIEWS)
    late = {"start": jobs[-20].end or 0, "by": ("user",)}
    assert asked(site.publisher, "totals", late, kept) == asked(site.publisher, "totals", late)
    assert kept.reads - before == len(VIEWS)


def test_a_problem_in_preparing_is_reported_once_and_reports_continue(tmp_path: Path) -> None:
    site, _ = collected(tmp_path, make_jobs(5))
    with site.publisher.store.write() as connection:
        connection.execute(update(runs).where(runs.c.id == 2).values(job=b"\x01\xc1"))
    said: list[str] = []
    kept = ReportCache(site.publisher.store, site.config, said.append, lambda: NOW)
    kept.prepare()
    kept.wait()
    (reported,) = said
    assert "cannot be kept in memory: the store is damaged: the record of run number 2 cannot be read" in reported
    early = {"stop": make_job(1).end, "by": ("user",)}
    for _ in range(2):
        assert asked(site.publisher, "totals", early, kept) == asked(site.publisher, "totals", early)
    kept.wait()
    assert len(said) == 1


def test_closing_stops_preparing(tmp_path: Path) -> None:
    site, _ = collected(tmp_path, make_jobs(5))
    kept = ReportCache(site.publisher.store, site.config, pytest.fail, lambda: NOW)
    kept.close()
    kept.prepare()
    kept.wait()
    assert kept.bytes == 0


# --- chunks

VALUES = st.one_of(st.integers(-5, 5), st.sampled_from([-(1 << 63), (1 << 63) - 1, 40_000, 1 << 40]))


def frames(columns: list[list[int]]) -> Iterator[Frame]:
    """A frame of two rows for each two numbers."""
    for place in range(0, len(columns[0]), 2):
        part = [np.array(column[place : place + 2], np.int64) for column in columns]
        rows = len(part[0])
        words = [f"{value}" if value % 2 else None for value in part[0].tolist()]
        yield Frame(
            rows, {**dict.fromkeys(NUMBERS, part[0]), "end": part[1], ROW: np.arange(rows)},
            dict.fromkeys(WORDS, part[2]),
            {"job": [JobIds(word, "name") for word in words], "events": [Events("Q", (1,))] * rows,
             "core_numbers": [()] * rows},
        )  # fmt: skip


@given(st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=20), st.data())
def test_a_chunk_holds_what_it_was_given(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)]
    chunk = ColumnChunk(list(frames(columns)))
    start, stop = data.draw(VALUES), data.draw(st.none() | VALUES)
    inside = [place for place, end in enumerate(columns[1]) if end >= start and (stop is None or end < stop)]
    found = chunk.ended(start, stop)
    if found is None:
        assert inside == []
        return
    assert found.numbers["slots"].tolist() == [columns[0][place] for place in inside]
    assert found.codes["user"].tolist() == [columns[2][place] for place in inside]
    assert found.objects["job"] == [
        JobIds(f"{columns[0][place]}" if columns[0][place] % 2 else None, "name") for place in inside
    ]
    assert found.job_numbers().tolist() == list(map(hash, found.objects["job"]))
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(inside), max_size=len(inside))), np.bool_)
    chosen = found.where(mask)
    assert chosen.numbers["end"].tolist() == found.numbers["end"][mask].tolist()
    assert chosen.objects["events"] == [Events("Q", (1,))] * int(mask.sum())


def test_jobs_by_a_pattern_are_found_in_what_is_kept(tmp_path: Path) -> None:
    site, _ = collected(tmp_path, make_jobs(40))
    kept = ready(site.publisher)
    for pattern in ("*3*", "nothing*", "job-1[0-3]", "*"):
        given_ = {"filters": {"job": pattern}}
        with searches() as searched:
            from_store = asked(site.publisher, "job", given_)
        assert searched, "or the next says nothing"
        with searches() as searched:
            assert asked(site.publisher, "job", given_, kept) == from_store
        assert searched == []
    assert kept.reads == 0


def test_hosts_stay_what_they_are(tmp_path: Path) -> None:
    site, _ = collected(tmp_path, [make_job(1, hosts=(Host("n1", 4), Host("n2", 2)), slots=6)])
    kept = ready(site.publisher)
    (frame,) = kept.runs().frames(0, None, frozenset({"placed"}), running_until=None)
    assert frame.rows == 1
    same(site, kept)
