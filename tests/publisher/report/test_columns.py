"""Runs as columns say what `publisher.messages.entries` says of each of them, whatever source they come from."""

from __future__ import annotations

from typing import Any

import pytest

from formats.utilization.measure import KEYS
from publisher.api import Publisher
from publisher.collect.enrich import Enrichers
from publisher.messages.entries import entries_of
from publisher.report.frame import OBJECTS, WORDS
from publisher.store import queries
from tests.publisher.report.stored import runs_of


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
            words = tuple(sorted({**entry.facts, "job": entry.ids}.items()))
            found.append((*entry.ran, entry.wall_ms, entry.cpu_ms, entry.memory_kib, words))
    return sorted(found)


def in_columns(publisher: Publisher, requested: frozenset[str]) -> list[tuple[Any, ...]]:
    runs = runs_of(publisher)
    found = []
    names = ("start", "stop", "user_ms", "system_ms", "slots", "wall_ms", "cpu_ms", "memory_kib")
    for frame in runs.frames(-(10**12), None, requested | frozenset(names), running_until=None):
        numbers = zip(*(frame.numbers[name].tolist() for name in names), strict=True)
        words = [{} for _ in range(frame.rows)]
        for key in KEYS:
            if key == "job":
                for place, job in enumerate(frame.objects["job"]):
                    words[place][key] = job
            else:
                for place, code in enumerate(frame.codes[key].tolist()):
                    words[place][key] = runs.codings[key].values[code]
        found += [(*row, tuple(sorted(each.items()))) for row, each in zip(numbers, words, strict=True)]
    return sorted(found)


def test_columns_say_what_entries_say(publisher: Publisher) -> None:
    reported = expected(publisher)
    assert len(reported) > 100
    assert {dict(row[-1])["vo"] for row in reported} > {("chemistry",)}
    assert in_columns(publisher, WORDS | OBJECTS) == reported


@pytest.mark.parametrize("name", sorted(WORDS))
def test_each_column_by_itself(publisher: Publisher, name: str) -> None:
    """What is decoded for one column does not depend on what is decoded for others."""
    alone, together = [], []
    for requested, found in ((frozenset({name}), alone), (WORDS | OBJECTS, together)):
        runs = runs_of(publisher)
        for frame in runs.frames(-(10**12), None, requested, running_until=None):
            codes = zip(frame.numbers["start"].tolist(), frame.codes[name].tolist(), strict=True)
            found += [(start, runs.codings[name].values[code]) for start, code in codes]
    assert sorted(alone) == sorted(together)
    assert alone


def test_runs_in_progress_reach_until_now(publisher: Publisher) -> None:
    runs = runs_of(publisher)
    now = 1_900_000_000
    stops = [
        stop
        for frame in runs.frames(now, None, frozenset({"status"}), running_until=now)
        for stop in frame.numbers["stop"].tolist()
        if stop >= now  # runs of DQS with slaves, of long before, are for the caller to leave out
    ]
    assert stops
    assert set(stops) == {now}
