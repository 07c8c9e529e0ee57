"""No room for what a report sorts: an error that says where room is needed, not a fault of the program."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import duckdb
import pytest

from formats.job import Host
from publisher.errors import OutputError, UsageError
from publisher.report.column_files import ColumnFolder, ColumnManifest
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EACH_JOB_MB, STREAMING_MB, archive_errors, arrow_batches, memory_mb
from publisher.report.temporary_files import is_of_memory, spilling, temporary_folder
from publisher.report.views import make, occupation
from tests.faults.full_disk import files_no_larger_than
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

SORTED = (
    "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS n FROM range(4000000) t(i)) WHERE n % 7 = 3"
)


def test_a_full_disk_while_a_report_sorts(tmp_path: Path) -> None:
    folder = tmp_path / "usage-publisher-report-x"
    folder.mkdir()
    with (
        pytest.raises(OutputError, match="no room for what the report sorts") as caught,
        files_no_larger_than(1 << 20),
        spilling(str(folder)),
        duckdb.connect(":memory:", config={"memory_limit": "32MB", "temp_directory": str(folder)}) as connection,
        archive_errors(tmp_path / "archive"),
    ):
        connection.execute(SORTED).fetchall()
    assert "TMPDIR" in caught.value.hint
    assert str(tmp_path) in caught.value.hint


def test_too_little_memory_is_not_a_lack_of_room(tmp_path: Path) -> None:
    """Room in TMPDIR would not help. Read as Arrow, it is an error of pyarrow's, which hides that of DuckDB."""
    wide = "SELECT repeat('x', 100000) || i AS text FROM range(2048) t(i)"
    config = {"memory_limit": "16MB", "temp_directory": str(tmp_path)}
    with (
        pytest.raises(OutputError, match="needs more memory than it may have") as caught,
        spilling(str(tmp_path)),
        duckdb.connect(":memory:", config=config) as connection,
    ):
        assert [*arrow_batches(connection, wide, {}, 2048)]
    assert "TMPDIR" not in caught.value.hint
    assert is_of_memory(caught.value)


def test_runs_on_very_many_hosts_get_more_memory(tmp_path: Path) -> None:
    """What fails with little memory is computed again with more: each of these runs was on 3,000 hosts, other than
    those of the last."""
    hosts = [Host(name=f"node{number:05}", slots=1) for number in range(3_300)]
    jobs = [
        make_job(number, hosts=tuple(hosts[number : number + 3_000]), slots=3_000, cores=3_000)
        for number in range(1, 301)
    ]
    source = ListSource("ce1")
    source.add(*jobs)
    site = Site(tmp_path, [source], [])
    site.collect()
    context = ReportContext(site.publisher.store, site.config, site.now)
    request = ReportRequest(start=NOVEMBER, stop=NOVEMBER + 30 * 86_400, by=("node",))
    with pytest.raises(OutputError, match="memory"):
        occupation.view(context, request)
    found = make("occupation", context, request)
    assert [row[2] for row in found.rows] == [host.name for host in hosts[1:]]
    used_h = [column.name for column in found.columns].index("used_h")
    held_h = sum(((job.end or 0) - (job.start or 0)) * 3_000 / 3_600 for job in jobs)
    assert sum(float(str(row[used_h])) for row in found.rows) == pytest.approx(held_h)


def test_where_no_temporary_folder_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(OutputError, match=r"a temporary folder cannot be made.*set TMPDIR"), temporary_folder():
        pass


def test_no_room_for_columns_without_a_folder_of_their_own(tmp_path: Path) -> None:
    """On a host without a folder for them, with PostgreSQL: the store is not what has no room."""
    folder = ColumnFolder(tmp_path / "usage-publisher-columns-x", temporary=True)
    with (
        pytest.raises(OutputError, match=f"temporary files cannot be written to {tmp_path}") as caught,
        folder.updating(),
        files_no_larger_than(0),
    ):
        folder.replace(ColumnManifest())
    assert "TMPDIR" in caught.value.hint


def test_what_a_killed_report_left_goes_with_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what another report uses, nor what is young, which another may have made just now, nor what a link names."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed, young, link, other = (tmp_path / f"usage-publisher-{name}" for name in (
        "report-killed", "report-young", "report-link", "evidence-other"
    ))  # fmt: skip
    for folder in (killed, young, other, tmp_path / "precious"):
        folder.mkdir()
        (folder / "file").touch()
    link.symlink_to(tmp_path / "precious")
    long_ago = time.time() - 2 * 86_400
    with temporary_folder() as used:
        for folder in (killed, other, tmp_path / "precious", Path(used)):
            os.utime(folder, (long_ago, long_ago))
        os.utime(link, (long_ago, long_ago), follow_symlinks=False)
        with temporary_folder():
            pass
        assert {path.name for path in tmp_path.iterdir()} == {Path(used).name, "precious"} | {
            path.name for path in (young, link, other)
        }
        assert (tmp_path / "precious" / "file").exists()


def test_more_jobs_get_more_memory(tmp_path: Path) -> None:
    """Waiting times of ten million jobs, by user, fail within what is enough for three million."""
    files = [str(tmp_path / f"{number}.parquet") for number in range(3)]
    for file in files:
        Path(file).touch()
        os.truncate(file, 82_000_000)  # a million jobs
    assert memory_mb([]) == memory_mb(files) - 1 == memory_mb([str(tmp_path / "gone.parquet")]) == 56
    with_tables = memory_mb(files, tables_bytes=60_000_000)
    assert with_tables == memory_mb(files) + 60, "classes of nearly each run are in the buffers too"
    assert memory_mb([], STREAMING_MB) < memory_mb([]) < memory_mb([], EACH_JOB_MB)
    os.truncate(files[0], 700_000_000)
    assert 180 < memory_mb(files) < 230
    assert memory_mb(files, EACH_JOB_MB) > memory_mb(files), "with more to hold, more for each job too"
    os.truncate(files[0], 1 << 40)
    assert memory_mb(files) == 1000


def test_other_errors_are_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"), spilling(str(tmp_path)), archive_errors(tmp_path / "a"):
        duckdb.connect(":memory:").execute("SELECT * FROM read_parquet('/nowhere/x.parquet')")
