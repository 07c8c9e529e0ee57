"""A slave of DQS may go on long after its master ended: it is found where it ran, in the store and in an archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.report.archive import months_about
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from publisher.sources.dqs import SEVERAL_LINES, act_lines
from publisher.store.runs import find
from tests.publisher.cli.program import BASE
from tests.publisher.report.torque_site import table

BEGIN, DAY = 1_000_000_000, 86_400


def act(host: str, master: int, number: int, start: int, end: int) -> str:
    reported = f"fast.q:{host}:{master}:aix:chem:ada:long:DQS.{number}:{number}:{start}:{start}:{end}:0"
    return reported + ":1" * 18 + "\n"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    """Job 1 has a slave that runs for 400 days after its master; job 2 has none; job 3 ended before both."""
    folder = tmp_path_factory.mktemp("slaves")
    lines = [
        act("alpha", 1, 1, BEGIN, BEGIN + DAY),
        act("beta", 0, 1, BEGIN, BEGIN + 401 * DAY),
        act("gamma", 1, 2, BEGIN + 300 * DAY, BEGIN + 300 * DAY + 60),
        act("alpha", 1, 3, BEGIN, BEGIN + 60),
        act("beta", 0, 3, BEGIN, BEGIN + 120),
    ]
    (folder / "act_file").write_text("".join(lines))
    (folder / "publisher.toml").write_text(f'{BASE}\n[sources.dqs]\ntype = "dqs"\npath = "{folder / "act_file"}"\n')
    with Publisher.from_file(folder / "publisher.toml") as publisher:
        publisher.collect()
        publisher.archive(folder / "archive")
        yield publisher


def asked(site: Publisher, start: int, stop: int, archive: Path | None) -> Report:
    request = ReportRequest(start=start, stop=stop, bins=1, archive=archive)
    return make("utilization", ReportContext(site.store, site.config, BEGIN + 10**9), request)


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize(
    ("day", "jobs", "queue"),
    [(0, 4, None), (1, 1, 1.0), (8, 1, 1.0), (200, 1, 1.0), (300, 2, None), (400, 1, 1.0), (401, 0, 0.0)],
)
def test_a_slave_is_found_as_long_as_it_ran(
    site: Publisher, archived: bool, day: int, jobs: int, queue: float | None
) -> None:
    start = BEGIN + day * DAY + 1
    made = asked(site, start, start + DAY - 1, site.config.file.parent / "archive" if archived else None)
    assert made.facts["jobs"] == jobs
    if queue is not None:
        assert table(made, "queue") == [(queue,)]


def test_months_of_an_archive_that_reach_so_far(site: Publisher) -> None:
    archive = site.config.file.parent / "archive"
    assert [str(month) for month in months_about(archive, BEGIN)] == ["2001-09", "2002-07", "2002-10"]
    assert [str(month) for month in months_about(archive, BEGIN + 401 * DAY)] == ["2002-10"]


def test_runs_with_slaves_are_known_by_their_bytes(site: Publisher) -> None:
    with site.store.read() as connection:
        for number, lines in (("1", 2), ("2", 1), ("3", 2)):
            (run,) = (run for run in find(connection, number) if not run.job.slave)
            assert len(act_lines(run.job)) == lines
            assert (SEVERAL_LINES in str(run.job.extras["act_lines"]).encode()) == (lines > 1)
