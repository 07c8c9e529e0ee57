"""AUDITOR as the source of a site: whatever happens between two readings, the store has each record once, as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from publisher.sources.auditor.source import AuditorSource
from tests.extent import short_or_whole
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site
from tests.publisher.sources.auditor.auditor_records import record, settings, text
from tests.publisher.sources.auditor.auditor_server import AuditorServer, auditor_server

DAY = 86_400


@pytest.fixture
def auditor() -> Iterator[AuditorServer]:
    with auditor_server() as server:
        yield server


class _AuditorAsListed(ListSource):
    """The real source under the site's clock."""

    kind = "auditor"

    def __init__(self, auditor: AuditorServer) -> None:
        super().__init__("a")
        self.auditor = auditor
        self.site: Site | None = None

    def pages(self, cursor: Any, window: Any = None) -> Any:
        assert self.site is not None
        now = self.site.now
        return AuditorSource("a", settings(self.auditor.url, page=7, cluster="c"), lambda: now).pages(cursor, window)


@pytest.mark.parametrize("seed", range(short_or_whole(3, 200)))
def test_any_schedule(tmp_path: Path, auditor: AuditorServer, seed: int) -> None:
    chance = random.Random(seed)
    source = _AuditorAsListed(auditor)
    site = Site(tmp_path, [source], [RecordReceiver("t")])
    site.table["sources"]["a"] = {"type": "auditor", "auditor": {"url": auditor.url}}
    source.site = site
    running: list[str] = []
    for step in range(8):
        site.now += chance.randrange(1, 2 * DAY)
        for number in range(chance.randrange(12)):
            name = f"r{step}-{number}"
            ended = None if chance.random() < 0.2 else site.now - chance.choice([0, 0, 5, 3_600, 4 * DAY])
            begun = site.now - 5 * DAY if ended is None else None
            auditor.add(record(name, ended, start=begun, subject="/DC=org/CN=Ada"))
            running += [name] if ended is None else []
        chance.shuffle(running)
        for _ in range(chance.randrange(len(running) + 1)):
            auditor.end(running.pop(), text(site.now))
        if chance.random() < 0.3:
            ended_ids = [key for key, each in auditor.records.items() if each["stop_time"]]
            changed = auditor.records[chance.choice(ended_ids)] if ended_ids else None
            if changed is not None and changed["stop_time"] > text(site.now - 4 * DAY):
                auditor.end(changed["record_id"], text(site.now))
        auditor.short = [chance.randrange(6) for _ in range(chance.randrange(3))]
        if chance.random() < 0.2:
            site.killed_at(chance.randrange(4), site.collect)
        else:
            site.collect()
        site.publish()
    site.now += 60
    auditor.short = []
    site.collect()
    site.publish()
    ended = {key: each for key, each in auditor.records.items() if each["stop_time"]}
    assert len(site.receivers["t"].held) == len(ended)
    walls = sorted(row[0] for row in site.rows("SELECT wall_ms FROM runs WHERE finished = 1"))
    assert walls == sorted(each["runtime"] * 1_000 for each in ended.values())
