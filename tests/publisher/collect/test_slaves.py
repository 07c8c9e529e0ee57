"""Slaves of DQS: they are in the record of their run, have no record themselves, and are in the reports of all times
when they ran."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import pytest

from formats.utilization.report import read_report
from publisher.api import Publisher
from publisher.events import ignore
from publisher.publish.context import Tools
from publisher.sources.base import Window
from tests.publisher.cli.program import BASE, Program

NOVEMBER = 1_793_491_200
DAY = 86_400
NOW = NOVEMBER + 40 * DAY
SITE = f"""{BASE}
[sources.old]
type = "dqs"
path = "act_file"
local_id_prefix = "old-"
complete_since = "2026-11-01"
[targets.records]
type = "directory"
path = "records"
layout = "files"
records = "ogf-ur"
statuses = ["completed", "failed"]
[targets.reports]
type = "directory"
path = "reports"
layout = "files"
records = "utilization"
period = "day"
bin = "1d"
"""


def act(host: str, master: int, number: int, start: int, end: int, used: int = 1) -> str:
    reported = f"fast.q:{host}:{master}:aix:chem:ada:long:DQS.{number}:{number}:{NOVEMBER}:{start}:{end}:0"
    return f"{reported}:{end - start}:{used}:0" + ":0" * 15 + "\n"


class OldSite:
    """A site with DQS, a service for records and one for the reports of each day."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "publisher.toml").write_text(SITE, encoding="utf-8")
        self.publisher = Publisher.from_file(folder / "publisher.toml", Tools(lambda: NOW, ignore))

    def take(self, *lines: str) -> None:
        """Lines are written, read and published."""
        with (self.folder / "act_file").open("a", encoding="utf-8") as file:
            file.writelines(lines)
        self.publisher.collect()
        self.publisher.publish()

    def deliveries(self, number: str) -> list[list[tuple[str, str]]]:
        """Target and state of each delivery of the runs of a job, the run before its slaves."""
        found = self.publisher.job(number)
        return [[(place.target, place.state.word) for place in run.whereabouts] for run in found]

    def stored(self) -> set[tuple[str, int | None]]:
        """The runs, each as long as it used processors."""
        return {(known.run.record_id, known.run.job.cpu_ms) for known in self.publisher.jobs(Window())}

    def reports(self) -> dict[int, tuple[int, int]]:
        """The number of lines that ran on each day, and their seconds, by the last report of the day."""
        found: dict[int, tuple[int, int]] = {}
        files = [file for file in (self.folder / "reports").iterdir() if file.is_file()]
        for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
            report = read_report(file.read_bytes())
            (only,) = report.bins
            found[(report.start - NOVEMBER) // DAY] = only.jobs, round(only.queue * DAY)
        return found

    @property
    def sent(self) -> int:
        return len(list((self.folder / "reports").iterdir()))


@pytest.fixture
def site(tmp_path: Path) -> Iterator[OldSite]:
    found = OldSite(tmp_path)
    with found.publisher:
        yield found


MASTER = act("alpha", 1, 1, NOVEMBER + 10, NOVEMBER + 110)
SLAVE = act("beta", 0, 1, NOVEMBER + 20, NOVEMBER + 2 * DAY + 50)
OTHER = act("gamma", 1, 2, NOVEMBER + 2 * DAY + 100, NOVEMBER + 2 * DAY + 300)


def test_a_slave_that_comes_late_sends_the_reports_again_that_it_ran_in(site: OldSite) -> None:
    site.take(MASTER, OTHER)
    assert site.reports() == {0: (1, 100), 2: (1, 200)}
    assert site.sent == 2
    site.take(SLAVE)
    assert site.reports() == {0: (2, 100 + DAY - 20), 1: (1, DAY), 2: (2, 200 + 50)}
    assert site.sent == 5
    site.take()
    assert site.sent == 5


def test_one_record_a_run_with_the_lines_in_any_order(tmp_path: Path) -> None:
    stored = []
    for number, order in enumerate(permutations((MASTER, SLAVE, OTHER))):
        folder = tmp_path / str(number)
        folder.mkdir()
        site = OldSite(folder)
        for line in order:
            site.take(line)
        assert site.deliveries("old-1") == [
            [("records", "accepted"), ("reports", "accepted")],
            [("reports", "accepted")],
        ]
        assert site.deliveries("2") == [[("records", "accepted"), ("reports", "accepted")]]
        assert site.reports() == {0: (2, 100 + DAY - 20), 1: (1, DAY), 2: (2, 200 + 50)}
        stored.append(site.stored())
        sent = site.sent
        site.publisher.collect(window=Window(NOVEMBER, None))
        site.publisher.publish()
        assert (site.stored(), site.sent) == (stored[0], sent)
        site.publisher.close()
    assert stored.count(stored[0]) == 6
    assert sorted(cpu_ms for _, cpu_ms in stored[0] if cpu_ms is not None) == [1000, 1000, 2000]


def test_a_slave_is_in_no_message_that_is_rendered(site: OldSite) -> None:
    site.take(MASTER, SLAVE)
    for target in (None, "records"):
        rendering = site.publisher.rendering("ogf-ur", target, Window(NOVEMBER, NOW))
        assert sum(message.records for message in rendering.messages()) == 1


def test_people_see_which_are_slaves(site: OldSite) -> None:
    site.take(MASTER, SLAVE)
    program = Program(site.folder, SITE)
    assert program("jobs", "--limit", "10").ok().out.count("completed (slave)") == 1
    runs = program("jobs", "old-1", "--json").ok().object["records"]
    assert [run["facts"].get("slave", False) for run in runs] == [False, True]
