"""The worker that reads gives the same pages as this process; one that is killed loses nothing."""

from __future__ import annotations

import os
import select
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from publisher.config import schema
from publisher.encoded_run import encode_run
from publisher.errors import SourceError, SourceFormatError
from publisher.sources import background, make_source
from publisher.sources.background import BackgroundReader
from publisher.sources.base import FILE_MARKS, PAGE_RECORDS, EncodedPage, Recognising, Window, cursor_of, waiting_of
from tests.generators import arc_database

ROWS = 9_000
PAGES_HERE = background.READ_HERE // PAGE_RECORDS
"""Before the worker reads the rest of these sources, whose pages are full."""
EVER = Window(0, 2**40)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> schema.SourceSettings:
    """A database of more pages than are read here."""
    path = tmp_path_factory.mktemp("arc") / "accounting.db"
    arc_database.create(path, ROWS, 5)
    return schema.SourceSettings(type="arc", path=path)


def test_another_process_gives_the_pages_that_this_one_would(settings: schema.SourceSettings) -> None:
    alone = BackgroundReader("ce1", settings, cores=1)
    here = list(alone.pages({}))
    assert sum(page.read for page in here) > background.READ_HERE + PAGE_RECORDS, "or the worker reads nothing"
    both = BackgroundReader("ce1", settings, cores=2)
    found = list(both.pages({}))
    assert [run for page in found for run in page.runs] == [run for page in here for run in page.runs]
    plain = [
        (job, mark)
        for page in make_source("ce1", settings).pages({})
        for job, mark in zip(page.jobs, page.marks, strict=True)
    ]
    assert [run for page in found for run in page.runs] == [encode_run(job, mark=mark) for job, mark in plain]
    assert [run.job() for page in found for run in page.runs] == [job for job, _ in plain]
    assert [item for page in found for item in page.unreadable] == [item for page in here for item in page.unreadable]
    assert sum(page.skipped for page in found) == sum(page.skipped for page in here)
    assert found[-1].at_end
    assert both.complete_since() == alone.complete_since()


def test_a_worker_reads_a_log_with_what_waits_and_what_is_not_a_record(tmp_path: Path) -> None:
    """Slave records lie some pages before their master's; one line is torn, and the last has no end yet."""
    log = tmp_path / "accounting"
    lines = [_record(number) for number in range(8 * PAGE_RECORDS)]
    lines[10:10] = [_record(-1, "mpi", "1.n2"), _record(-1, "mpi", "2.n3")]
    lines[-20] = lines[-20][:60]
    lines[-10:-10] = [_record(-1, "mpi"), _record(-2, "mpi", "1.n2")]
    log.write_text("\n".join([*lines, lines[0][:50]]), encoding="ascii")
    settings = schema.SourceSettings(type="gridengine", path=log, cluster="c")
    here, both = (list(BackgroundReader("ge", settings, cores=cores).pages({})) for cores in (1, 2))
    assert sum(page.read for page in here) > background.READ_HERE + PAGE_RECORDS, "or the worker reads nothing"
    for part in ("runs", "unreadable"):
        assert [each for page in both for each in getattr(page, part)] == [
            each for page in here for each in getattr(page, part)
        ]
    assert both[-1].cursor == here[-1].cursor
    assert len(waiting_of(both[-1].cursor)) == 2
    jobs = [run.job() for page in both for run in page.runs]
    folded = [job for job in jobs if job.extras.get("pe_task_count") == 2]
    assert len(folded) == 1
    assert sum(len(page.unreadable) for page in both) == 1


def test_a_worker_knows_how_far_each_file_was_read(tmp_path: Path) -> None:
    """The marks that are stored one by one, also those of pages that were read here."""
    for number in range(3):
        (tmp_path / f"accounting.{9 - number}").write_text(_record(number) + "\n", encoding="ascii")
    settings = schema.SourceSettings(type="gridengine", path=tmp_path, cluster="c")
    marks: dict[str, str | None] = {}

    def read(cores: int) -> int:
        lines = 0
        for page in BackgroundReader("ge", settings, cores=cores).pages({FILE_MARKS: lambda: list(marks.values())}):
            lines += page.read
            marks.update({change.file: change.mark for change in page.file_marks})
            assert "files" not in cursor_of(page.cursor)
        return lines

    assert read(1) == 3
    (tmp_path / "accounting").write_text("".join(_record(n) + "\n" for n in range(10, 20_010)), encoding="ascii")
    begun = len(_BEGUN)
    assert read(2) == 20_000
    assert (len(_BEGUN), len(marks)) == (begun + 1, 4)
    assert read(1) == 0


def _record(number: int, environment: str = "NONE", task: str = "NONE") -> str:
    job = number if number >= 0 else 1_000_000 - number
    return (
        f"q:n1:g:o:n:{job}:sge:0:1793500000:1793500010:1793500110:0:0:100:{'0:' * 17}NONE:d:{environment}:1:0:1.5:0:0"
        f":NONE:0.0:{task}:3231744.0:0:0"
    )


def test_either_continues_where_it_stopped(settings: schema.SourceSettings) -> None:
    cursor = cursor_of(list(BackgroundReader("ce1", settings, cores=2).pages({}))[-1].cursor)
    assert sum(len(page.runs) for page in BackgroundReader("ce1", settings, cores=1).pages(cursor)) == 0


_BEGUN: list[str] = []
"""The processes that this one began, since this module was imported."""


def _note_process(name: str, arguments: tuple[object, ...]) -> None:
    if name == "subprocess.Popen":
        _BEGUN.append(str(arguments[0]))


sys.addaudithook(_note_process)


def test_a_short_source_and_a_short_window_are_read_here(settings: schema.SourceSettings, tmp_path: Path) -> None:
    begun = len(_BEGUN)
    arc_database.create(tmp_path / "accounting.db", 100, 1)
    small = settings.model_copy(update={"path": tmp_path / "accounting.db"})
    assert list(BackgroundReader("ce1", small, cores=2).pages({}))[-1].at_end
    (jobs, end) = BackgroundReader("ce1", small, cores=2).pages({}, Window(0, 2**40))
    assert len(jobs.runs) == 99, "one is in progress"
    assert end.at_end
    assert list(BackgroundReader("ce1", settings, cores=1).pages({}, Window(0, 2**40)))[-1].at_end
    assert len(_BEGUN) == begun
    assert list(BackgroundReader("ce1", settings, cores=2).pages({}))[-1].at_end
    assert len(_BEGUN) == begun + 1, "or the above says nothing"


def test_a_source_of_many_small_pages_is_read_here(settings: schema.SourceSettings, tmp_path: Path) -> None:
    """Jobs that were in progress, and hours in which jobs have ended since, are pages of their own."""
    path = tmp_path / "accounting.db"
    arc_database.create(path, 2_000, 5)
    small = settings.model_copy(update={"path": path})
    (*_, last) = BackgroundReader("ce1", small, cores=2).pages({})
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE AAR SET ExitCode = 9 WHERE RecordID % 50 = 0")
    database.close()
    begun = len(_BEGUN)
    again = list(BackgroundReader("ce1", small, cores=2).pages(cursor_of(last.cursor)))
    assert len(again) > PAGES_HERE + 1, "or this says nothing"
    assert again[-1].at_end
    assert len(_BEGUN) == begun


def test_a_worker_that_is_not_needed_after_all_ends_quietly(
    settings: schema.SourceSettings, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "accounting.db"
    arc_database.create(path, 3_000, 5)
    begun, before = len(_BEGUN), _children()
    pages = BackgroundReader("ce1", settings.model_copy(update={"path": path}), cores=2).pages({})
    first = next(pages)
    assert len(_BEGUN) == begun + 1, "it loads its modules while this page is stored"
    assert sum(page.read for page in [first, *pages]) == 3_000
    assert _children() == before
    assert capfd.readouterr() == ("", "")


def test_a_long_window_is_read_by_another_process_from_its_beginning(settings: schema.SourceSettings) -> None:
    ends = sorted(job.end or 0 for page in make_source("ce1", settings).pages({}) for job in page.jobs if job.finished)
    window = Window(ends[10], ends[-10])
    cursor = cursor_of(list(BackgroundReader("ce1", settings, cores=2).pages({}))[-1].cursor)
    before = _children()
    pages = BackgroundReader("ce1", settings, cores=2).pages(cursor, window)
    first = next(pages)
    assert _children() - before, "it is read here"
    found = [first, *pages]
    assert [run for page in found for run in page.runs] == [
        run for page in BackgroundReader("ce1", settings, cores=1).pages(cursor, window) for run in page.runs
    ]
    assert sorted(run.end or 0 for page in found for run in page.runs) == [
        end for end in ends if ends[10] <= end < ends[-10]
    ]
    assert {run.class_key for page in found for run in page.runs} == {None}, "worked out for runs that are known"
    assert {page.cursor for page in found} == {""}, "a window moves no cursor"


def test_a_window_of_what_is_known_is_read_here(settings: schema.SourceSettings) -> None:
    known = {
        run.record_id: (run.mark, run.end or 0)
        for page in BackgroundReader("ce1", settings, cores=1).pages({})
        for run in page.runs
        if run.finished and run.mark is not None
    }
    reader = BackgroundReader("ce1", settings, cores=2)
    before = _children()
    pages = reader.window_pages({}, EVER, lambda names: {name: known[name] for name in names if name in known})
    first = next(pages)
    assert _children() == before, "another process reads it"
    found = [first, *pages]
    assert sum(page.recognised.unchanged for page in found) == len(known) > ROWS * 0.9
    assert not any(page.runs for page in found)
    assert found[-1].at_end


def test_a_window_of_what_is_not_known_is_read_by_another_process(settings: schema.SourceSettings) -> None:
    before = _children()
    pages = BackgroundReader("ce1", settings, cores=2).window_pages({}, EVER, lambda _names: {})
    first = next(pages)
    assert _children() - before, "it is read here"
    assert [first, *pages] == list(BackgroundReader("ce1", settings, cores=1).pages({}, EVER))


def test_a_source_that_gives_no_marks_is_read_as_ever(tmp_path: Path) -> None:
    log = tmp_path / "accounting"
    log.write_text("\n".join([*map(_record, range(50)), ""]), encoding="ascii")
    settings = schema.SourceSettings(type="gridengine", path=log, cluster="c")
    assert not isinstance(make_source("ge", settings), Recognising)
    found = list(
        BackgroundReader("ge", settings).window_pages({}, EVER, lambda _names: pytest.fail("nothing is looked up"))
    )
    assert found == list(BackgroundReader("ge", settings).pages({}, EVER))
    assert sum(len(page.runs) for page in found) == 50


def _children() -> set[int]:
    return {int(word) for word in Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()}


def _read_into_the_child(settings: schema.SourceSettings) -> tuple[object, list[EncodedPage], int]:
    before = _children()
    pages = BackgroundReader("ce1", settings, cores=2).pages({})
    read = [next(pages) for _ in range(PAGES_HERE + 1)]
    (child,) = _children() - before
    return pages, read, child


def test_a_reader_that_is_killed_is_an_error_and_what_it_gave_is_stored(settings: schema.SourceSettings) -> None:
    pages, read, child = _read_into_the_child(settings)
    os.kill(child, signal.SIGKILL)
    with pytest.raises(SourceError, match="ended too early"):
        read += list(pages)  # type: ignore[call-overload]
    whole = [run.record_id for page in BackgroundReader("ce1", settings, cores=1).pages({}) for run in page.runs]
    given = [run.record_id for page in read for run in page.runs]
    rest = BackgroundReader("ce1", settings, cores=2).pages(cursor_of(read[-1].cursor))
    assert given + [run.record_id for page in rest for run in page.runs] == whole


def test_a_reader_that_is_closed_leaves_no_process(settings: schema.SourceSettings) -> None:
    pages, _, child = _read_into_the_child(settings)
    pages.close()  # type: ignore[attr-defined]
    assert child not in _children()


def test_an_error_of_the_worker_is_raised_with_its_class(settings: schema.SourceSettings, tmp_path: Path) -> None:
    path = tmp_path / "accounting.db"
    arc_database.create(path, ROWS, 5)
    moved = settings.model_copy(update={"path": path})
    pages = BackgroundReader("ce1", moved, cores=2).pages({})
    for _ in range(PAGES_HERE):
        next(pages)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DROP TABLE AAR")
    database.close()
    with pytest.raises(SourceFormatError):
        list(pages)


def test_nothing_is_imported_from_the_working_directory(
    settings: schema.SourceSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may belong to any user."""
    (tmp_path / "publisher").mkdir()
    for name in ("publisher/__init__.py", "msgspec.py"):
        (tmp_path / name).write_text("raise SystemExit(7)", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert list(BackgroundReader("ce1", settings, cores=2).pages({}))[-1].at_end


PARENT = """
import sys
from pathlib import Path
from publisher.config.schema import SourceSettings
from publisher.sources import background
pages = background.BackgroundReader("ce1", SourceSettings(type="arc", path=Path(sys.argv[1])), cores=2).pages({})
for _ in range(int(sys.argv[2])):
    next(pages)
print(flush=True)
sys.stdin.read()
"""


def test_a_reader_whose_parent_is_killed_ends(settings: schema.SourceSettings) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(settings.path), str(PAGES_HERE + 1)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"\n"
        (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text("ascii").split()
        there = os.pidfd_open(int(child))
        parent.kill()
    try:
        assert select.select([there], [], [], 60)[0], "the reader goes on without its parent"
    finally:
        os.close(there)
