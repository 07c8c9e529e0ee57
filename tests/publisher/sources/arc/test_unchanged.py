"""Marks of ARC's rows: they depend on everything from which a run is made, and what is recognised is what would be
read."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import msgspec
import pytest

from formats.job import Job
from publisher.encoded_run import encode_run
from publisher.sources.arc import unchanged
from publisher.sources.arc.database import AAR_COLUMNS, NAME_TABLES, SIDE_COLUMNS, ArcDatabase
from publisher.sources.arc.jobs import RUN_VERSION, RowReader, UnreadableRowError
from publisher.sources.arc.unchanged import Marks, RowMarks
from publisher.sources.base import Known, Page, Window
from tests.generators.arc_database import create
from tests.publisher.sources.arc.arc_reading import source

ALWAYS = Window(0, None)
ROWS = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database with jobs of every kind."""
    create(tmp_path / "accounting.db", ROWS, 3, "varied")
    return tmp_path / "accounting.db"


def marks_of(path: Path, *settings: bool, version: int = RUN_VERSION) -> Marks:
    with closing(ArcDatabase(path, 1.0)) as database:
        return RowMarks(database.names, *settings, version=version).of(database.after(0, 1_000))


def change(path: Path, sql: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        changed = connection.execute(sql).rowcount
        connection.commit()
    return changed


def jobs_and_marks(pages: Sequence[Page]) -> dict[str, bytes | None]:
    return {
        job.record_id: mark for page in pages for job, mark in zip(page.jobs, page.marks, strict=True) if job.finished
    }


def knowing(stored: Mapping[str, tuple[bytes, int]]) -> Known:
    return lambda record_ids: {name: stored[name] for name in record_ids if name in stored}


def all_known(path: Path) -> dict[str, tuple[bytes, int]]:
    """What a store has of a database that was read."""
    return {
        job.record_id: (mark, job.end)
        for page in source(path).pages({})
        for job, mark in zip(page.jobs, page.marks, strict=True)
        if mark is not None and job.finished and job.end is not None
    }


def test_a_row_has_the_same_mark_each_time_and_another_than_every_other(path: Path) -> None:
    marks = marks_of(path, False, False)
    assert marks == marks_of(path, False, False)
    assert len(set(marks)) == ROWS
    assert None not in marks


@pytest.mark.parametrize("column", [name for name in AAR_COLUMNS if name not in {"RecordID", "JobID"}])
def test_each_column_is_in_the_mark(path: Path, column: str) -> None:
    before = marks_of(path)
    if column.endswith("ID") and column != "LocalJobID":
        table = list(NAME_TABLES)[AAR_COLUMNS.index(column) - AAR_COLUMNS.index("EndpointID")]
        value = f"(SELECT ID FROM {table} WHERE ID <> {column} LIMIT 1)"
    else:
        value = f"{column} || '1'"
    assert change(path, f"UPDATE AAR SET {column} = {value} WHERE RecordID = 7") == 1
    assert [number for number, (old, new) in enumerate(zip(before, marks_of(path), strict=True), 1) if old != new] == [
        7
    ]


@pytest.mark.parametrize(
    ("table", "column"),
    [(table, column) for table, groups in SIDE_COLUMNS.items() for group in groups for column in group],
)
def test_each_column_of_the_side_tables_is_in_the_mark(path: Path, table: str, column: str) -> None:
    before = marks_of(path)
    touched = f"(SELECT max(rowid) FROM {table})"
    with closing(sqlite3.connect(path)) as connection:
        (record_id,) = connection.execute(f"SELECT RecordID FROM {table} WHERE rowid = {touched}").fetchone()
    assert change(path, f"UPDATE {table} SET {column} = {column} || '1' WHERE rowid = {touched}") == 1
    changed = [number for number, (old, new) in enumerate(zip(before, marks_of(path), strict=True), 1) if old != new]
    assert changed == [record_id]
    change(path, f"DELETE FROM {table} WHERE rowid = {touched}")
    assert marks_of(path)[record_id - 1] != before[record_id - 1]


@pytest.mark.parametrize(("table", "columns"), NAME_TABLES.items())
def test_the_names_to_which_a_row_points_are_in_its_mark(path: Path, table: str, columns: str) -> None:
    for column in columns.split(", "):
        before = marks_of(path)
        key = AAR_COLUMNS[AAR_COLUMNS.index("EndpointID") + list(NAME_TABLES).index(table)]
        with closing(sqlite3.connect(path)) as connection:
            rows = connection.execute(f"SELECT RecordID FROM AAR WHERE {key} = 1 ORDER BY RecordID").fetchall()
        assert rows
        change(path, f"UPDATE {table} SET {column} = {column} || 'x' WHERE ID = 1")
        after = marks_of(path)
        assert [(number,) for number in range(1, ROWS + 1) if before[number - 1] != after[number - 1]] == rows


def test_a_row_that_points_to_nothing_has_none(path: Path) -> None:
    change(path, "UPDATE AAR SET UserID = 999 WHERE RecordID = 7")
    assert marks_of(path)[6] is None
    page, _ = source(path).window_pages({}, ALWAYS, knowing(all_known(path)))
    assert [item.reason for item in page.unreadable] == ["Users has no row 999"]


def test_how_rows_are_read_is_in_the_mark(path: Path) -> None:
    given = [marks_of(path, *settings) for settings in ((False, False), (True, False), (False, True), (True, True))]
    given.append(marks_of(path, False, False, version=RUN_VERSION + 1))
    assert len({marks[0] for marks in given}) == len(given)


RUNS_OF_VERSION = {1: "17060225792cc2726ff4c4f5e9fcd09d"}
"""A digest of the runs of all generated rows, by `RUN_VERSION`. Add a line for a new version; never change one."""


def test_rows_that_make_other_runs_have_another_version(tmp_path: Path) -> None:
    """Without the new version, a run that is stored as the old one made it would be recognised, and stay wrong."""
    runs = sha256()
    for kind in ("varied", "hostile"):
        create(tmp_path / kind, 400, 7, kind)
        for settings in ({}, {"start_time": "execution", "end_time": "lrms"}):
            for job in (job for page in source(tmp_path / kind, **settings).pages({}) for job in page.jobs):
                run = encode_run(job)
                columns = (run.record_id, run.end, run.wall_ms, run.cpu_ms)
                runs.update(msgspec.json.encode((columns, _facts(job)), order="sorted"))
    assert RUNS_OF_VERSION[RUN_VERSION] == runs.hexdigest()[:32], (
        "the same rows make other runs: raise RUN_VERSION in publisher/sources/arc/jobs.py, and add its line above"
    )


def _facts(job: Job) -> dict[str, object]:
    """What is known of a run, by name: a field of the record that ARC does not fill changes nothing."""
    facts = {name: getattr(job, name) for name in job.__struct_fields__}
    facts["events"] = tuple(job.events.pairs()) if job.events else ()
    return {name: value for name, value in facts.items() if value not in (None, "", (), {}, False)}


@pytest.mark.parametrize("kind", ["varied", "hostile"])
def test_the_record_id_is_that_of_the_job(tmp_path: Path, kind: str) -> None:
    create(tmp_path / "accounting.db", 90, 5, kind)  # type: ignore[arg-type]
    with closing(ArcDatabase(tmp_path / "accounting.db", 1.0)) as database:
        rows = database.after(0, 1_000)
        reader = RowReader(database.names)
        compared = 0
        for row in rows.aar:
            try:
                job = reader.job(row, rows.sides)
            except UnreadableRowError:
                continue
            assert reader.record_id(row) == job.record_id
            compared += 1
    assert compared > 60


def test_ids_that_no_run_has_are_not_looked_up(path: Path) -> None:
    for number, job_id in enumerate(["''", "x'00ff'", "'a' || char(0)", "'a b'", "'\u00e9'"], 1):
        change(path, f"UPDATE AAR SET JobID = {job_id} WHERE RecordID = {number}")
    asked: list[str] = []

    def known(record_ids: Sequence[str]) -> Mapping[str, tuple[bytes, int]]:
        asked.extend(record_ids)
        return {}

    list(source(path).window_pages({}, ALWAYS, known))
    ended = {job.record_id for page in source(path).pages({}, ALWAYS) for job in page.jobs}
    assert set(asked) == ended


def test_what_is_known_is_counted_and_not_given(path: Path) -> None:
    known = all_known(path)
    one = sorted(known)[3]
    whole = list(source(path).pages({}, ALWAYS))
    assert {page.recognised.count for page in whole} == {0}, "nobody reported what is known"
    rest = {name: each for name, each in known.items() if name != one}
    found = list(source(path).window_pages({}, ALWAYS, knowing(rest)))
    assert jobs_and_marks(found) == {one: known[one][0]}
    assert sum(page.recognised.unchanged for page in found) == len(rest)
    assert [page.read for page in found] == [page.read for page in whole]
    assert sum(page.skipped for page in found) == sum(page.skipped for page in whole)
    assert max(page.recognised.last_end or 0 for page in found) == max(end for _, end in rest.values())


def test_a_known_run_that_ended_outside_of_the_window_is_skipped(path: Path) -> None:
    """By the events of the batch system, jobs end before ARC's own end."""
    reader = source(path, end_time="lrms")
    known = {
        job.record_id: (mark, job.end)
        for page in reader.pages({})
        for job, mark in zip(page.jobs, page.marks, strict=True)
        if mark is not None and job.finished and job.end is not None
    }
    ends = sorted(end for _, end in known.values())
    window = Window(ends[5], ends[-5])
    whole, found = list(reader.pages({}, window)), list(reader.window_pages({}, window, knowing(known)))
    assert not jobs_and_marks(found)
    assert sum(page.recognised.unchanged for page in found) == sum(len(page.jobs) for page in whole) == len(ends) - 10
    assert sum(page.skipped for page in found) == sum(page.skipped for page in whole) > 0


def test_two_rows_of_one_run_are_both_read(path: Path) -> None:
    """The last one counts. ARC's own tables do not have it."""
    known = all_known(path)
    with closing(ArcDatabase(path, 1.0)) as database:
        rows = database.after(0, 1_000)
        reader, marks = RowReader(database.names), RowMarks(database.names, False, False).of(rows)
        first = next(row for row in rows.aar if reader.record_id(row) in known)
        place = rows.aar.index(first)
        rows.aar.append(first)
        marks.append(marks[place])
        unpurged = unchanged.compare(rows, marks, reader, knowing(known), ALWAYS)
    assert unpurged.rows.aar.count(first) == 2
    assert unpurged.recognised.count == len(known) - 1
