"""Source `arc`: what it opens, what it says when it cannot, and reading beside a live writer."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from publisher.config import schema
from publisher.errors import ConfigError, SourceBusyError, SourceError, SourceFormatError, SourceMissingError
from publisher.sources import make_source
from publisher.sources.arc.database import ArcDatabase
from publisher.sources.arc.source import ArcSource
from publisher.sources.base import Window
from tests.conftest import ROOT
from tests.generators.arc_database import ArcWriter, create, load
from tests.publisher.sources.arc.arc_reading import Read, source

NOBODY = 65534


def as_nobody(task: Callable[[], str]) -> str:
    """The output of the task when an unprivileged user runs it, in a separate process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            said = task()
        except BaseException:  # noqa: BLE001 - the process must end here, whatever happened
            said = traceback.format_exc()
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said


def open_to_all(folder: Path) -> None:
    """Let other users come as far as the folder."""
    for place in [folder, *folder.parents][:4]:
        if place.stat().st_uid == os.getuid():
            place.chmod(place.stat().st_mode | 0o055)


def read_error(path: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        Read(source(path))
    return caught.value


@pytest.fixture
def database(tmp_path: Path) -> Path:
    create(tmp_path / "accounting.db", 120)
    return tmp_path / "accounting.db"


def test_a_file_its_folder_or_the_control_directory(tmp_path: Path) -> None:
    folder = tmp_path / "jobstatus" / "accounting"
    folder.mkdir(parents=True)
    create(folder / "accounting.db", 10)
    for path in (folder / "accounting.db", folder, folder.parent):
        assert len(Read(source(path)).given) == 10


def test_no_path() -> None:
    with pytest.raises(ConfigError, match=r"sources\.ce1\.path: .* needs the path"):
        make_source("ce1", schema.SourceSettings(type="arc"))


def test_nothing_there(tmp_path: Path) -> None:
    error = read_error(tmp_path / "nowhere" / "accounting.db")
    assert isinstance(error, SourceMissingError)
    assert "does not exist" in error.message
    assert "controldir" in error.hint


def test_a_folder_without_database(tmp_path: Path) -> None:
    assert isinstance(read_error(tmp_path), SourceMissingError)


def test_a_link_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    path.symlink_to(path)
    assert "cannot be read" in read_error(path).message


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "is empty"), (b"1;2;3\n", "is not a SQLite database"), (os.urandom(5000), "not a SQLite")],
)
def test_files_that_are_not_a_database(tmp_path: Path, content: bytes, says: str) -> None:
    path = tmp_path / "accounting.db"
    path.write_bytes(content)
    error = read_error(path)
    assert isinstance(error, SourceFormatError)
    assert says in error.message


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "accounting.db")
    assert "not a regular file" in read_error(tmp_path / "accounting.db").message


def test_a_damaged_database(database: Path) -> None:
    with database.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(database.stat().st_size - 4096))
    error = read_error(database)
    assert isinstance(error, SourceFormatError)
    assert "damaged" in error.message


def test_a_truncated_database(database: Path) -> None:
    os.truncate(database, 4096 * 3)
    assert isinstance(read_error(database), SourceFormatError)


def test_another_sqlite_database(tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE AAR (RecordID INTEGER)")
    connection.close()
    assert "a SQLite database without AuthTokenAttributes, DBConfig" in read_error(path).message


def test_the_publishing_state_is_reported_from_the_database(tmp_path: Path) -> None:
    path = tmp_path / "publishing.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE AccountingTargets (TargetID TEXT, LastEndTime INTEGER, LastReport INTEGER)")
    connection.close()
    assert "publishing state" in read_error(path).message


@pytest.mark.parametrize(("sql", "says"), [("UPDATE DBConfig SET KeyValue = '3'", "DBSCHEMA_VERSION 3"),
                                           ("DELETE FROM DBConfig", "no DBSCHEMA_VERSION")])  # fmt: skip
def test_an_unknown_schema_version(database: Path, sql: str, says: str) -> None:
    with ArcWriter(database) as writer:
        writer.connection.execute(sql)
    error = read_error(database)
    assert isinstance(error, SourceFormatError)
    assert says in error.message
    assert "update the publisher" in error.hint


def test_a_column_that_is_missing(database: Path) -> None:
    with ArcWriter(database) as writer:
        writer.connection.execute("ALTER TABLE AAR RENAME COLUMN UsedScratch TO Scratch")
    error = read_error(database)
    assert isinstance(error, SourceFormatError)
    assert "UsedScratch" in error.message


def test_a_locked_database(database: Path) -> None:
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("PRAGMA journal_mode = DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SourceBusyError, match="locked by another program") as caught:
        Read(source(database, busy_timeout=0.01))
    assert caught.value.retry_helps
    holder.close()
    assert len(Read(source(database)).given) == 120


def test_permission_denied(database: Path) -> None:
    open_to_all(database.parent)
    database.chmod(0o600 if os.getuid() == 0 else 0)
    said = as_nobody(lambda: str(read_error(database)))
    assert "cannot be read: Permission denied" in said
    assert "Let the publisher's user read" in said


def test_a_reader_that_may_not_make_the_shared_file_is_reported(database: Path) -> None:
    open_to_all(database.parent)
    database.parent.chmod(0o555)
    database.chmod(0o444)
    said = as_nobody(lambda: str(read_error(database)))
    assert "its writer has stopped" in said
    assert "chmod 2770" in said
    (finding,) = [found for found in _check_as_nobody(database) if found.startswith("red")]
    assert "its writer has stopped" in finding
    database.parent.chmod(0o755)


def _check_as_nobody(path: Path) -> list[str]:
    return as_nobody(lambda: "\n".join(f"{one.level} {one.message} {one.hint}" for one in source(path).check())).split(
        "\n"
    )


def test_an_unprivileged_reader_beside_a_live_writer(database: Path) -> None:
    with ArcWriter(database) as writer:
        writer.connection.execute("UPDATE AAR SET UsedScratch = 1 WHERE RecordID = 1")
        open_to_all(database.parent)
        database.parent.chmod(0o555)
        for file in database.parent.iterdir():
            file.chmod(0o444)
        assert as_nobody(lambda: str(len(Read(source(database)).given))) == "120"
        findings = _check_as_nobody(database)
    database.parent.chmod(0o755)
    assert [found.split()[0] for found in findings] == ["green", "green", "yellow"]
    assert "but not while it is stopped" in findings[2]


def test_a_reader_of_the_group_and_the_writer_take_turns(database: Path) -> None:
    """As the page about ARC advises: the first of them creates the shared files, and the other uses them."""
    open_to_all(database.parent)
    if os.getuid() == 0:
        for place in (database, database.parent):
            os.chown(place, -1, NOBODY)
    database.chmod(0o660)
    database.parent.chmod(0o2770)

    def read() -> str:
        return as_nobody(lambda: str(len(Read(source(database)).given)))

    assert read() == "120"
    with ArcWriter(database) as writer:
        writer.connection.execute("UPDATE AAR SET UsedScratch = 1 WHERE RecordID = 1")
        assert read() == "120"
    assert read() == "120"
    assert [found.split()[0] for found in _check_as_nobody(database)] == ["green", "green", "green"]


def test_check_reports_what_is_there(database: Path) -> None:
    first, second, third = source(database).check()
    assert {one.level for one in (first, second, third)} == {"green"}
    assert "schema version 1, 120 jobs" in first.message
    assert "2 in-progress" in first.message or "1 in-progress" in first.message
    assert "first job accepted 2026-09-0" in second.message
    assert "also while A-REX is stopped" in third.message


def test_check_of_an_empty_database_and_of_none(tmp_path: Path) -> None:
    with ArcWriter(tmp_path / "accounting.db", new=True):
        findings = source(tmp_path).check()
    assert [one.level for one in findings] == ["yellow", "green"]
    (missing,) = source(tmp_path / "nowhere").check()
    assert (missing.level, missing.subject) == ("red", "source ce1")


def test_complete_since_the_first_acceptance_or_as_configured(tmp_path: Path, database: Path) -> None:
    submits = [job.submit for job in Read(source(database)).given if job.submit]
    assert source(database).complete_since() == min(submits)
    assert source(database, complete_since="2026-10-01").complete_since() == 1_790_812_800
    with ArcWriter(tmp_path / "empty.db", new=True):
        pass
    assert source(tmp_path / "empty.db").complete_since() is None


def test_nothing_is_written(database: Path) -> None:
    before = database.read_bytes()
    cursor = Read(source(database)).cursor
    Read(source(database), cursor)
    source(database).check()
    assert database.read_bytes() == before
    opened = ArcDatabase(database, 1)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        opened._connection.execute("DELETE FROM AAR")
    opened.close()


def test_a_name_with_characters_that_urls_use(tmp_path: Path) -> None:
    path = tmp_path / "a?mode=rwc#%20 ü.db"
    create(path, 3)
    assert len(Read(source(path)).given) == 3


def test_hostile_databases_lose_no_job(tmp_path: Path) -> None:
    create(tmp_path / "accounting.db", 700, seed=3, kind="hostile")
    read = Read(source(tmp_path / "accounting.db", page_rows=64))
    assert len(read.given) + len(read.unreadable) == 700
    assert sum(page.read for page in read.pages) == 700
    assert len(read.unreadable) < 700 / 9
    assert len(read.jobs) == len(read.given)


def test_the_fixture(fixtures: Path, tmp_path: Path) -> None:
    path = load(fixtures / "arc" / "accounting.sql", tmp_path / "accounting.db")
    read = Read(source(path))
    assert not read.unreadable
    assert Counter(job.status for job in read.given) == {"completed": 34, "failed": 3, "aborted": 2, "running": 1}
    assert len({job.end // 2_600_000 for job in read.given if job.end}) > 2


WRITE = """
import sys
from pathlib import Path
from tests.generators.arc_database import ArcWriter, jobs_of
with ArcWriter(Path(sys.argv[1])) as writer:
    writer.connection.execute("PRAGMA busy_timeout = 10000")
    print("ready", flush=True)
    for number, job in enumerate(jobs_of(400, seed=11)):
        record_id = writer.accept(job)
        if job.status != "in-progress":
            writer.finish(record_id, job, events=number % 3 > 0)
        if number % 100 == 0:
            writer.connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
"""


def test_beside_a_writer_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    with ArcWriter(path, new=True):
        pass
    root = ROOT
    command = [sys.executable, "-c", WRITE, str(path)]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        given = {}
        read = Read(source(path, page_rows=7))
        given.update(read.jobs)
        while writer.poll() is None:
            read = Read(source(path, page_rows=7), read.cursor)
            given.update(read.jobs)
        assert writer.returncode == 0
    given.update(Read(source(path), read.cursor).jobs)
    now = Read(source(path)).jobs
    assert len(now) == 400
    assert given == now


def test_a_long_read_does_not_keep_the_writer_from_its_checkpoints(database: Path) -> None:
    with ArcWriter(database) as writer:
        pages = source(database, page_rows=10).pages({})
        next(pages)
        writer.connection.execute("UPDATE AAR SET UsedScratch = 2")
        busy, in_wal, moved = writer.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert (busy, in_wal, moved) == (0, 0, 0)
        assert sum(len(page.jobs) for page in pages) == 110


@pytest.fixture
def official(shared: Path, tmp_path: Path) -> ArcSource:
    """The sample of 200 jobs that ARC's publisher was run on."""
    shutil.copy(shared / "samples" / "arc" / "accounting-200.db", tmp_path / "accounting.db")
    (tmp_path / "accounting.db").chmod(0o600)
    return source(tmp_path)


def test_the_sample_of_200_jobs(official: ArcSource) -> None:
    read = Read(official)
    assert not read.unreadable
    assert Counter(job.status for job in read.given) == {"completed": 175, "failed": 18, "aborted": 4, "running": 3}
    plain = sqlite3.connect(official._path / "accounting.db")
    sums = plain.execute(
        "SELECT Name, sum(UsedWalltime), sum(UsedCPUUserTime + UsedCPUKernelTime), sum(UsedVirtMem), max(EndTime) "
        "FROM AAR JOIN Status ON ID = StatusID WHERE Name != 'in-progress' GROUP BY Name"
    ).fetchall()
    plain.close()
    for status, wall, cpu, virtual, end in sums:
        found = [job for job in read.given if job.status == status]
        assert sum(job.wall_ms or 0 for job in found) == wall * 1000
        assert sum(job.cpu_ms or 0 for job in found) == cpu * 1000
        assert sum(job.memory_virtual_kib or 0 for job in found) == virtual
        assert max(job.end or 0 for job in found) == end


def test_a_job_of_the_sample_as_arcs_publisher_has_it(official: ArcSource) -> None:
    job = Read(official).jobs["ur-ce1.example.org-MPh3FPuRIlPxUkJzZsnWLtBPFX7TOrPMf7otYjc9LVC2JSx0000001"]
    assert job.local_id == "1000001"
    assert job.user_dn == "/DC=org/DC=example/C=SI/O=Grid/OU=Univ1/CN=Dana Dahl 0001"
    assert (job.local_user, job.local_group, job.vo) == ("atlas092", "atlas", "atlas")
    assert job.fqans == ("/atlas", "/atlas/Role=production")
    assert (job.project, job.name, job.queue, job.exit_code) == ("proj-28", "atlas-sim-1", "main", 0)
    assert (job.wall_ms, job.cpu_ms) == (9_102_000, 57_410_000)
    assert (job.cpu_user_ms, job.cpu_system_ms) == (54_885_000, 2_525_000)
    assert (job.start, job.end) == (1_789_741_286, 1_789_751_349)
    assert (job.execution_start, job.execution_end) == (1_789_742_160, 1_789_751_262)
    assert (job.memory_rss_kib, job.memory_virtual_kib) == (4_812_380, 6_256_094)
    assert (job.nodes, job.cores, job.service_class, job.lrms) == (1, 8, "standard", "slurm")
    assert [host.name for host in job.hosts] == ["wn170.example.org"]
    assert [(score.type, score.value) for score in job.benchmarks] == [("HEPSPEC", 17.5)]
    assert (job.client_host, job.stage_in_ms, job.stage_out_ms) == ("130.236.233.101", 2_000, 1_000)
    assert [(one.direction, one.size_bytes, one.from_cache) for one in job.transfers] == [
        ("upload", 7_682_211, False),
        ("download", 294_632_794, True),
        ("download", 37_361_806, True),
        ("upload", 19_329_447, False),
    ]
    assert job.runtime_environments == ("ENV/RTE", "APPS/HEP/ATLAS-SITE-LCG")


@pytest.mark.parametrize(("window", "rows"), [(None, 120), (Window(0, None), 119)])
def test_each_page_says_how_much_of_the_database_is_read(database: Path, window: Window | None, rows: int) -> None:
    """By the ids of rows, of which one has not ended; a window by the rows that ended in it."""
    read = Read(source(database, page_rows=10), window=window)
    shares = [page.share for page in read.pages if page.read]
    assert shares == pytest.approx([min(1.0, place * 10 / rows) for place in range(1, 13)])
