"""Schema version 2, to which ARC 7 writes: the same job is the same run in both versions."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from publisher.errors import SourceError, SourceFormatError
from publisher.sources.base import Window
from tests.generators.arc_database import create
from tests.generators.arc_schema import VERSION_2, WRITTEN_BY_7
from tests.publisher.sources.arc.arc_reading import Read, source


def execute(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


ONE_BENCHMARK = """DELETE FROM JobExtraInfo WHERE InfoKey = 'benchmark' AND rowid NOT IN (
    SELECT min(rowid) FROM JobExtraInfo WHERE InfoKey = 'benchmark' GROUP BY RecordID)"""
"""ARC 7 has a place for one, as ARC 6 writes one."""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "6" / "accounting.db"
    path.parent.mkdir()
    create(path, 400, 7, "varied")
    execute(path, ONE_BENCHMARK)
    return path


@pytest.fixture
def new(old: Path, tmp_path: Path) -> Path:
    """The same jobs as ARC 7 writes them."""
    path = tmp_path / "7" / "accounting_v2.db"
    path.parent.mkdir()
    path.write_bytes(old.read_bytes())
    execute(path, *VERSION_2, *WRITTEN_BY_7)
    return path


def test_the_same_jobs_are_the_same_runs(old: Path, new: Path) -> None:
    before, after = Read(source(old)), Read(source(new))
    assert after.jobs == before.jobs
    assert len(after.jobs) == 400
    assert sum(len(job.benchmarks) for job in after.given) > 100
    assert sum(len(job.fqans) for job in after.given) > 100


def test_so_are_migrated_ones(old: Path, tmp_path: Path) -> None:
    """`arcctl accounting database migrate` copies the side rows as they are, and fills the new columns."""
    migrated = tmp_path / "accounting_v2.db"
    migrated.write_bytes(old.read_bytes())
    execute(migrated, *VERSION_2)
    assert Read(source(migrated)).jobs == Read(source(old)).jobs


@pytest.mark.parametrize("page_rows", [7, 2_000])
def test_a_window_and_sparse_rows(old: Path, new: Path, page_rows: int) -> None:
    ends = sorted(job.end for job in Read(source(old)).given if job.end is not None)
    window = Window(ends[50], ends[150])
    before = Read(source(old, page_rows=page_rows), window=window)
    assert Read(source(new, page_rows=page_rows), window=window).jobs == before.jobs
    assert len(before.jobs) == 100


def test_a_cursor_of_the_old_file_is_not_used_for_the_new(old: Path, new: Path) -> None:
    """Its numbers of rows mean other jobs, or other rows of one, even where the last job is the same."""
    cursor = Read(source(old)).cursor
    assert len(Read(source(old), cursor).given) < 400
    assert len(Read(source(new), cursor).given) == 400


def test_rows_of_a_job_are_read_in_the_order_they_were_written(new: Path, old: Path) -> None:
    """The second index on RecordID gives them by key; the last `jobname` and the order of FQANs count."""
    rows = [("vomsfqan", "/z"), ("a-claim", "1"), ("vomsfqan", "/a")]
    for path in (old, new):
        values = ", ".join(f"(5, '{key}', '{value}')" for key, value in rows)
        execute(
            path,
            "DELETE FROM AuthTokenAttributes WHERE RecordID = 5",
            f"INSERT INTO AuthTokenAttributes VALUES {values}",
        )
        execute(path, "ANALYZE")
    execute(old, "INSERT INTO AuthTokenAttributes VALUES (5, 'mainfqan', '/m')")
    execute(new, "INSERT INTO FQANs (Name) VALUES ('/m')")
    execute(new, "UPDATE AAR SET FQANID = (SELECT ID FROM FQANs WHERE Name = '/m') WHERE RecordID = 5")
    assert Read(source(new)).given[4].fqans == Read(source(old)).given[4].fqans == ("/m", "/z", "/a")


def test_a_change_of_the_new_columns_is_a_change_of_the_job(new: Path) -> None:
    cursor = Read(source(new)).cursor
    execute(new, "INSERT INTO Benchmarks (Name) VALUES ('HEPscore23:77')")
    execute(new, "UPDATE AAR SET BenchmarkID = (SELECT max(ID) FROM Benchmarks) WHERE RecordID = 399")
    again = Read(source(new), cursor)
    (changed,) = [job for job in again.given if any(score.value == 77 for score in job.benchmarks)]
    assert changed.record_id in Read(source(new)).jobs


def test_a_name_that_is_missing_is_kept_with_the_job(new: Path) -> None:
    execute(new, "UPDATE AAR SET FQANID = 999, BenchmarkID = 998 WHERE RecordID = 5")
    job = Read(source(new)).given[4]
    assert job.extras["FQANID"] == "999 is not in table FQANs"
    assert job.extras["BenchmarkID"] == "998 is not in table Benchmarks"
    assert job.benchmarks == ()


def test_a_folder_with_one_database_is_read_and_one_with_both_is_not(old: Path, new: Path) -> None:
    assert len(Read(source(new.parent)).jobs) == 400
    (new.parent / "accounting.db").write_bytes(old.read_bytes())
    with pytest.raises(SourceError, match=r"has several databases: .*accounting\.db, .*accounting_v2\.db"):
        Read(source(new.parent))


def test_check_names_the_version_and_a_newer_database_in_the_folder(old: Path, new: Path) -> None:
    first, *_ = source(new).check()
    assert "schema version 2, 400 jobs" in first.message
    beside = old.with_name("accounting_v2.db")
    beside.write_bytes(new.read_bytes())
    *_, last = source(old).check()
    assert (last.level, last.message) == (
        "yellow",
        "accounting_v2.db, which ARC 7 writes, is in the same folder; this source does not read it",
    )


def test_version_2_without_its_tables_is_refused(old: Path) -> None:
    execute(old, "UPDATE DBConfig SET KeyValue = '2'")
    with pytest.raises(SourceFormatError, match="no such column: FQANID"):
        Read(source(old))
