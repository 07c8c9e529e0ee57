"""Runs as columns say what `publisher.messages.entries` says of each of them, whatever source they come from."""

from __future__ import annotations

from typing import Any, Final

import pytest

from formats.utilization.measure import KEYS
from publisher.api import Publisher
from publisher.collect.enrich import Enrichers
from publisher.messages.entries import entries_of
from publisher.report.matching import OF_JOB, column_of, job_ids, words_of
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.store import queries

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
    with context.tables(ReportRequest(start=0, stop=1), running_until) as connection:
        return connection.execute(f"SELECT {', '.join(columns)} FROM entries").fetchall()


def test_columns_say_what_entries_say(publisher: Publisher) -> None:
    reported = expected(publisher)
    assert len(reported) > 100
    assert {row[-1][WORDS.index("vo")] for row in reported} > {("chemistry",)}
    found = []
    of_keys = [column_of(key) for key in WORDS]
    for row in selected(publisher, [f'"{name}"' for name in (*NUMBERS, *OF_JOB)] + of_keys):
        numbers, ids, texts = row[: len(NUMBERS)], row[len(NUMBERS) : -len(WORDS)], row[-len(WORDS) :]
        words = tuple(words_of(key, text or "") for key, text in zip(WORDS, texts, strict=True))
        found.append((*numbers, job_ids(*ids), words))
    assert sorted(found) == reported


def test_runs_in_progress_reach_until_now(publisher: Publisher) -> None:
    rows = selected(publisher, ['"end"', '"stop"', "status"], running_until=NOW)
    running = {(stop, status) for end, stop, status in rows if end is None}
    assert running == {(NOW, "running")}
