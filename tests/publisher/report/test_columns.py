"""Runs as columns say what `publisher.messages.entries` says of each of them, whatever source they come from."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from formats.utilization.measure import KEYS
from publisher.api import Publisher
from publisher.collect.enrich import Enrichers
from publisher.messages.entries import entries_of
from publisher.report.matching import OF_JOB, column_of, job_ids, words_of
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.store import queries
from tests.publisher.site import ListSource, Site, make_job

NUMBERS: Final = ("start", "stop", "user_ms", "system_ms", "slots", "wall_ms", "cpu_ms", "memory_kib")
WORDS: Final = tuple(key for key in KEYS if key != "job")
NOW: Final = 1_900_000_000


@pytest.fixture(scope="module")
def publisher(every_source: Publisher) -> Publisher:
    return every_source


def expected(publisher: Publisher) -> list[tuple[Any, ...]]:
    enrichers = Enrichers(publisher.config)
    with publisher.store.read() as connection:
        runs = [run for run, _ in queries.runs_in(connection, None, None, None, 10_000)[0]]
    found = []
    for run in runs:
        for entry in entries_of(enrichers.apply(run.source, run.job)):
            words = tuple(entry.facts[key] for key in WORDS)
            found.append((*entry.ran, entry.wall_ms, entry.cpu_ms, entry.memory_kib, entry.ids, words))
    return sorted(found)


def selected(publisher: Publisher, columns: list[str], running_until: int | None = None) -> list[tuple[Any, ...]]:
    context = ReportContext(publisher.store, publisher.config, NOW)
    with context.tables(ReportRequest(start=0, stop=1), EntryReading(running_until=running_until)) as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM entries").fetchall()


def from_columns(publisher: Publisher) -> list[tuple[Any, ...]]:
    found = []
    of_keys = [column_of(key) for key in WORDS]
    for row in selected(publisher, [f'"{name}"' for name in (*NUMBERS, *OF_JOB)] + of_keys):
        numbers, ids, texts = row[: len(NUMBERS)], row[len(NUMBERS) : -len(WORDS)], row[-len(WORDS) :]
        words = tuple(words_of(key, text or "") for key, text in zip(WORDS, texts, strict=True))
        found.append((*numbers, job_ids(*ids), words))
    return sorted(found)


def test_columns_say_what_entries_say(publisher: Publisher) -> None:
    reported = expected(publisher)
    assert len(reported) > 100
    assert {row[-1][WORDS.index("vo")] for row in reported} > {("chemistry",)}
    assert from_columns(publisher) == reported


def test_a_prefix_alone_is_no_id(tmp_path: Path) -> None:
    """The prefix of a source's local ids makes no id of an empty one: the job has another, such as its global id."""
    source = ListSource("ce1")
    source.add(make_job(1, local_id="", global_id="g1"), make_job(2, local_id=None, global_id="g2"), make_job(3))
    site = Site(tmp_path, [source], [])
    site.table["sources"]["ce1"]["local_id_prefix"] = "p-"
    site.collect()
    site.reopen()
    assert sorted(row[0] or "" for row in selected(site.publisher, ["local_id"])) == ["", "", "p-3"]


def test_runs_in_progress_reach_until_now(publisher: Publisher) -> None:
    rows = selected(publisher, ['"end"', '"stop"', "status"], running_until=NOW)
    running = {(stop, status) for end, stop, status in rows if end is None}
    assert running == {(NOW, "running")}


def test_anything_may_be_in_the_extras_of_an_add_on(tmp_path: Path) -> None:
    """By the names that Grid Engine, DQS, PBS, Slurm, and HTCondor use: one such job failed every report."""
    names = ("complex", "category", "mem", "io", "iow", "pe_tasks", "dqs_job_name", "arid", "Reservation", "ReqTRES")
    names += ("ReqMem", "RequestMemory", "Resource_List.mem", "act_lines")
    values: tuple[int | float | str, ...] = (0, 5, -1, 2.5, float("nan"), "", "x", "[1]", "[[1]]", "\x00", "{}")
    source = ListSource("ce1")
    source.add(*(make_job(number, extras=dict.fromkeys(names, value)) for number, value in enumerate(values, 1)))
    site = Site(tmp_path, [source], [])
    site.collect()
    site.reopen()
    found = from_columns(site.publisher)
    assert len(found) == len(values)
    assert found == expected(site.publisher)
