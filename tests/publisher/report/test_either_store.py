"""Runs are read as columns from a file and a server alike, and those that still run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import update

from formats.job import Host, Job
from publisher.errors import StoreCorruptError, StoreNewerError
from publisher.report.archive_export import Written
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.report.views import make
from publisher.report.views.totals import totals
from publisher.store import schema
from tests.publisher.report.torque_site import table
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs

pytestmark = pytest.mark.either_store


def collected(folder: Path, *jobs: Job) -> Site:
    source = ListSource("ce1")
    source.add(*jobs)
    site = Site(folder, [source], [])
    site.collect()
    return site


def context_of(site: Site) -> ReportContext:
    return ReportContext(site.publisher.store, site.config, site.now)


def starts(site: Site, start: int, running_until: int | None = None) -> list[int]:
    """The starts of the runs that ended at an instant or later, or still run."""
    request = ReportRequest(start=start, stop=start + 1)
    reading = EntryReading(("start", "end"), start, running_until=running_until)
    with context_of(site).tables(request, reading) as connection:
        query = f'SELECT "start" FROM entries WHERE "end" >= {start} OR "end" IS NULL ORDER BY 1'
        return [row[0] for row in connection.execute(query).fetchall()]


def test_more_runs_than_a_page(tmp_path: Path) -> None:
    jobs = make_jobs(9_000)
    site = collected(tmp_path, *jobs)
    assert starts(site, 0) == [job.start for job in jobs]
    assert starts(site, jobs[100].end or 0) == [job.start for job in jobs[100:]]


def test_running_ones_and_those_that_came_to_nothing(tmp_path: Path) -> None:
    unfinished = {"end": None, "wall_ms": None, "cpu_ms": None}
    running = make_job(2, status="running", **unfinished, start=NOVEMBER)
    nothing = make_job(3, status="never_started", **unfinished, start=NOVEMBER + 1)
    site = collected(tmp_path, make_job(1), running, nothing)
    finished = make_job(1).start
    assert starts(site, 0) == [finished]
    assert starts(site, NOVEMBER * 2, running_until=NOVEMBER * 3) == [NOVEMBER]


def test_numbers_beyond_any_machine(tmp_path: Path) -> None:
    site = collected(tmp_path, make_job(1, cpu_ms=(1 << 63) - 1, slots=4, hosts=(Host("n1", 4),)))
    request = ReportRequest(start=NOVEMBER, stop=NOVEMBER + 86_400, by=("host",))
    (row,) = totals(context_of(site), request).rows
    assert (row.key, row.jobs, row.slots_wall_ms) == (("n1",), 1, 400_000)


def test_a_run_that_ends_before_it_starts_ran_for_no_time_and_is_said(tmp_path: Path) -> None:
    backward = make_job(1, start=NOVEMBER + 500, end=NOVEMBER + 100, wall_ms=None, cpu_ms=7)
    site = collected(tmp_path, backward, make_job(2))
    request = ReportRequest(start=NOVEMBER, stop=NOVEMBER + 86_400, bins=1)
    found = totals(context_of(site), request)
    assert (found.all.jobs, found.all.wall_ms) == (2, 100_000)
    assert "Jobs that end before they start count with no duration: 1." in found.notes
    used = make("utilization", context_of(site), request)
    assert (used.facts["jobs"], table(used, "queue")) == (1, [(100 / 86_400,)])


def test_months_of_runs(tmp_path: Path) -> None:
    """An end in a million years, which a source may say, does not make as many months of nothing."""
    far = 10**6 * 365 * 86_400
    site = collected(tmp_path, make_job(1, end=NOVEMBER), make_job(2, end=NOVEMBER + 70 * 86_400), make_job(3, end=far))
    archive = tmp_path / "archive"
    assert list(site.publisher.archive(archive)) == ["2026-11", "2027-01", "1001306-01"]
    assert list(site.publisher.archive(archive, NOVEMBER + 40 * 86_400, NOVEMBER + 71 * 86_400)) == ["2027-01"]
    assert list(site.publisher.archive(archive, 0, 5)) == []
    shutil.copytree(archive / "month=2026-11", archive / "month=2026-12")
    assert site.publisher.archive(archive)["2026-12"] == Written(1, refused=0)


@pytest.mark.parametrize(
    ("stored", "error"),
    [(b"\x63\x80", StoreNewerError), (b"\x01\xc1", StoreCorruptError), (b"\x03\x80", StoreCorruptError)],
)
def test_what_cannot_be_read_whole_is_not_read_in_part(tmp_path: Path, stored: bytes, error: type[Exception]) -> None:
    site = collected(tmp_path, *make_jobs(3))
    with site.publisher.store.write() as connection:
        connection.execute(update(schema.runs).where(schema.runs.c.local_id == "2").values(job=stored))
    with pytest.raises(error):
        starts(site, 0)


def test_tasks_of_an_array_are_found_in_order_of_bytes(tmp_path: Path) -> None:
    """With any locale of the server, ids with the same beginning are adjacent in its index."""
    ids = ("7", "7.1", "7[2]", "7-3", "7.head.example.org", "70", "70.1", "7a", "17.7", "lsf/7")
    site = collected(
        tmp_path,
        *(make_job(number, local_id=local_id) for number, local_id in enumerate(ids, 1)),
        make_job(20, local_id="907", global_id=None, array_id="7", array_task=4),
    )
    found = {known.run.job.local_id for known in site.publisher.job("7")}
    assert found == {"7", "7.1", "7[2]", "7.head.example.org", "907"}
    assert {known.run.job.local_id for known in site.publisher.job("7_4")} == {"907"}
    assert {known.run.job.local_id for known in site.publisher.job("7.head")} == {"7.head.example.org"}
