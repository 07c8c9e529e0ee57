"""A window read again: what is recognised by its mark is not read, and the store is as if it had been."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from formats.calendar import Month
from publisher.collect.collect import Collected, collect
from publisher.events import Event
from publisher.finding import Finding
from publisher.sources.arc.database import AAR_COLUMNS, NAME_TABLES, SIDE_COLUMNS
from publisher.sources.arc.source import ArcSource
from publisher.sources.base import Cursor, Known, Page, Window
from publisher.store.admin.backup import copy
from publisher.store.admin.integrity import check
from publisher.store.database import open_store
from publisher.store.schema import State, runs
from tests.generators.arc_database import ArcWriter, create
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOW, ListSource, Site
from tests.publisher.sources.arc.arc_reading import source
from tests.store_contents import Contents, contents_of

ALL = Window(0, None)
ROWS = 40
_RECORD_ID, _MARK = (list(runs.c.keys()).index(name) for name in ("record_id", "mark"))
SEPTEMBER = Window(1_788_220_800, 1_790_812_800)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """A site that collected a database and delivered its jobs."""
    create(tmp_path / "accounting.db", ROWS, 3, "varied")
    site = Site(
        tmp_path, [ListSource("ce1")], [RecordReceiver("sgas"), SummaryReceiver("sums"), RecordReceiver("apel", "ams")]
    )
    configure(site)
    site.collect()
    site.publish()
    return site


def configure(site: Site, **settings: Any) -> None:
    """Let the database be read so."""
    read = source(site.folder / "accounting.db", page_rows=16, **settings)
    site.sources["ce1"] = Counted(read)  # type: ignore[assignment]


def again(site: Site, window: Window = ALL) -> Collected:
    """`collect --since --until`."""
    return site.collect(window=window)["ce1"]


def change(site: Site, *statements: str) -> None:
    with closing(sqlite3.connect(site.folder / "accounting.db")) as connection:
        for statement in statements:
            assert connection.execute(statement).rowcount > 0
        connection.commit()


def marks(site: Site) -> dict[str, bytes | None]:
    rows = site.rows("SELECT record_id, mark FROM runs WHERE finished = 1")
    return {record_id: None if mark is None else bytes(mark) for record_id, mark in rows}


class Counted:
    """A source of ARC that counts the rows that all of its kind do not recognise, or make runs of."""

    runs = 0

    def __init__(self, source: ArcSource) -> None:
        self._source = source
        self.name, self.kind = source.name, source.kind

    def pages(self, cursor: Cursor, window: Window | None = None) -> Iterator[Page]:
        """See `publisher.sources.base.Source`."""
        yield from self._count(self._source.pages(cursor, window))

    def window_pages(self, cursor: Cursor, window: Window, known: Known) -> Iterator[Page]:
        """See `publisher.sources.base.Recognising`."""
        yield from self._count(self._source.window_pages(cursor, window, known))

    def complete_since(self) -> int | None:
        """See `publisher.sources.base.Source`."""
        return self._source.complete_since()

    def check(self) -> list[Finding]:
        """See `publisher.sources.base.Source`."""
        return self._source.check()

    def _count(self, pages: Iterator[Page]) -> Iterator[Page]:
        for page in pages:
            Counted.runs += max(len(page.jobs), page.read - page.recognised.count)
            yield page


class Made:
    """How many runs were made of rows."""

    def __init__(self) -> None:
        self._before = Counted.runs

    def since(self) -> int:
        """The number since the last call."""
        before, self._before = self._before, Counted.runs
        return self._before - before


@pytest.fixture
def made() -> Made:
    """See `Made`."""
    return Made()


@pytest.mark.either_store
def test_what_is_stored_is_recognised_and_not_read(site: Site, made: Made) -> None:
    stored = marks(site)
    assert None not in stored.values()
    made.since()
    before = site.publisher.status()
    assert again(site) == Collected(read=len(stored), unchanged=len(stored))
    assert made.since() == 0
    assert marks(site) == stored
    assert site.publisher.status() == before
    assert again(site, Window(None, None)).unchanged == len(stored)


@pytest.mark.either_store
def test_a_store_without_marks_gets_them_when_it_is_read_again(site: Site, made: Made) -> None:
    stored = marks(site)
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE runs SET mark = NULL")
    made.since()
    assert again(site) == Collected(read=len(stored), unchanged=len(stored))
    assert made.since() == len(stored)
    assert marks(site) == stored
    assert again(site).unchanged == len(stored)
    assert made.since() == 0
    for name in ("sgas", "apel"):
        assert site.in_state(name, State.WAITING) == set()


@pytest.mark.either_store
def test_a_row_that_changed_is_read_and_is_a_new_version(site: Site, made: Made) -> None:
    stored = marks(site)
    change(site, "UPDATE AAR SET UsedCPUUserTime = UsedCPUUserTime + 7 WHERE RecordID = 5")
    made.since()
    found = again(site)
    assert (found.changed, found.unchanged) == (1, len(stored) - 1)
    assert made.since() == 1
    (changed,) = (name for name, mark in marks(site).items() if mark != stored[name])
    assert site.rows("SELECT count(*) FROM versions") == [(1,)]
    assert site.in_state("sgas", State.SUPERSEDED) | site.in_state("sgas", State.WAITING) == {changed}
    assert again(site) == Collected(read=len(stored), unchanged=len(stored))
    assert made.since() == 0


def test_a_change_without_a_record_is_read_once(site: Site, made: Made) -> None:
    stored = marks(site)
    benchmark = "SELECT * FROM JobExtraInfo WHERE InfoKey = 'benchmark' ORDER BY RecordID LIMIT 1"
    change(site, f"INSERT INTO JobExtraInfo {benchmark}")  # one that occurs twice counts once
    made.since()
    assert again(site) == Collected(read=len(stored), unchanged=len(stored))
    assert made.since() == 1
    assert len(marks(site).items() - stored.items()) == 1
    assert again(site) == Collected(read=len(stored), unchanged=len(stored))
    assert made.since() == 0


def test_another_way_of_reading_rows_reads_them_all(site: Site, made: Made) -> None:
    stored = marks(site)
    configure(site, start_time="execution")
    made.since()
    assert again(site).changed > 0
    assert made.since() == len(stored)
    assert again(site).unchanged == len(stored)
    assert made.since() == 0


def test_a_job_in_progress_is_read_until_it_has_ended(tmp_path: Path, made: Made) -> None:
    create(tmp_path / "accounting.db", 5)
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    configure(site)
    change(site, "UPDATE AAR SET StatusID = (SELECT ID FROM Status WHERE Name <> 'completed') WHERE RecordID = 2")
    with ArcWriter(tmp_path / "accounting.db") as writer:
        running = writer.id_of("Status", "in-progress")
    change(site, f"UPDATE AAR SET StatusID = {running}, EndTime = 0 WHERE RecordID = 3")
    assert site.collect()["ce1"].new == 4
    made.since()
    change(site, f"UPDATE AAR SET EndTime = {NOW - 9000} WHERE RecordID = 3")
    assert again(site).skipped == 1, "no job of it is finished, though the row lies in the window"
    assert made.since() == 1
    change(site, "UPDATE AAR SET StatusID = (SELECT StatusID FROM AAR WHERE RecordID = 1) WHERE RecordID = 3")
    found = again(site)
    assert (found.new, found.unchanged) == (1, 4)
    assert made.since() == 1
    change(site, f"UPDATE AAR SET StatusID = {running} WHERE RecordID = 3")
    assert again(site).unchanged == 4, "what has ended stays so"
    assert made.since() == 1


@pytest.mark.parametrize(
    "values",
    ["job = x'01ff00'", "record_key = x'00112233445566778899aabbccddee'", "wall_ms = wall_ms + 65536"],
)
def test_a_damaged_run_is_read_again_though_its_mark_is_known(site: Site, made: Made, values: str) -> None:
    posted = sorted(site.receivers["sgas"].posted())
    stored = len(marks(site))
    again(site)
    made.since()
    site.reopen()
    with closing(sqlite3.connect(site.store_file)) as connection:
        connection.execute(f"UPDATE runs SET {values} WHERE id = (SELECT id FROM runs WHERE finished = 1 LIMIT 1)")
        connection.commit()
    found = again(site)
    assert (found.new, found.changed) == (0, 0)
    assert made.since() > 0
    assert len(marks(site)) == stored
    with site.publisher.store.read() as connection:
        assert {finding.level for finding in check(connection)} == {"green"}
    site.publish()
    assert sorted(site.receivers["sgas"].posted()) == posted


def test_a_window_by_the_batch_systems_end_counts_as_if_all_was_read(site: Site, made: Made) -> None:
    configure(site, end_time="lrms")
    again(site)
    ends = sorted(end for (end,) in site.rows("SELECT end_time FROM runs WHERE finished = 1"))
    window = Window(ends[9], ends[-9])
    made.since()
    found = again(site, window)
    assert made.since() == 0
    assert (found.unchanged, found.changed) == (len(ends) - 18, 0)
    assert found.read == found.unchanged + found.skipped
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE runs SET mark = NULL")
    assert again(site, window) == found


@pytest.mark.either_store
def test_a_person_who_was_erased_leaves_no_mark_and_stays_erased(site: Site, made: Made) -> None:
    person = _user_of(site, 5)
    site.publisher.maintenance.forget(person)
    forgotten = {name for name, mark in marks(site).items() if mark is None}
    assert forgotten
    made.since()
    for _ in range(2):
        found = again(site)
        assert (found.new, found.changed, found.unchanged) == (0, 0, len(marks(site)))
        assert made.since() == len(forgotten)
        assert {name for name, mark in marks(site).items() if mark is None} == forgotten
    assert not any(person.encode() in bytes(job) for (job,) in site.rows("SELECT job FROM runs"))


def _user_of(site: Site, record_id: int) -> str:
    with closing(sqlite3.connect(site.folder / "accounting.db")) as connection:
        query = "SELECT Name FROM Users JOIN AAR ON UserID = ID WHERE RecordID = ?"
        (name,) = connection.execute(query, (record_id,)).fetchone()
    return str(name)


@pytest.mark.either_store
def test_what_was_purged_is_read_and_known_again(tmp_path: Path, made: Made) -> None:
    create(tmp_path / "accounting.db", ROWS, 3)
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.table["sources"]["ce1"]["benchmark"] = {"type": "HEPscore23", "value": 14.2}
    configure(site)
    site.collect()
    site.publish()
    before = len(marks(site))
    assert site.publisher.maintenance.purge(Month(2026, 10)).runs > 0
    left = len(marks(site))
    assert 0 < left < before
    made.since()
    found = again(site)
    assert (found.new, found.changed, found.unchanged) == (0, 0, before)
    assert made.since() == before - left
    change(site, "UPDATE AAR SET UsedWalltime = UsedWalltime + 1 WHERE RecordID = 2")
    found = again(site)
    assert (found.changed, found.unchanged) == (1, before - 1)
    made.since()
    assert again(site) == Collected(read=before, unchanged=before), "it is here again, as it is now"
    assert made.since() == before - left - 1


def test_a_copy_of_the_store_recognises_what_the_store_does(site: Site, made: Made, tmp_path: Path) -> None:
    destination = open_store(f"sqlite:///{tmp_path}/copy.db")
    copy(site.publisher.store, destination)
    made.since()
    found = collect(destination, site.sources["ce1"], [], lambda: NOW, _unheard, ALL)
    assert found == Collected(read=len(marks(site)), unchanged=len(marks(site)))
    assert made.since() == 0
    with destination.read() as connection:
        assert [found for found in check(connection) if found.level == "red"] == []
    destination.close()


def _unheard(_event: Event) -> None:
    pass


# --- whatever changes

_VALUES = ("0", "1", "2", "-1", "3.5", "'text'", "NULL", "9000000000000000000", "{} + 1", "{} || '1'", "x'00ff'")
_SIDE_COLUMNS = [(table, name) for table, groups in SIDE_COLUMNS.items() for group in groups for name in group]


def _mutations() -> st.SearchStrategy[str]:
    row = st.integers(1, ROWS)

    def update(table: str, column: str, value: str, where: str) -> str:
        return f"UPDATE OR IGNORE {table} SET {column} = {value.format(column)} WHERE {where}"

    main = st.builds(
        lambda column, value, row: update("AAR", column, value, f"RecordID = {row}"),
        st.sampled_from(AAR_COLUMNS[1:]), st.sampled_from(_VALUES), row,
    )  # fmt: skip
    side = st.builds(
        lambda place, value, row: update(*place, value, f"RecordID = {row}"),
        st.sampled_from(_SIDE_COLUMNS), st.sampled_from(_VALUES), row,
    )  # fmt: skip
    more = st.builds(
        lambda table, row, other: (
            f"INSERT OR IGNORE INTO {table} ({_columns(table)}) SELECT {_columns(table)} FROM {table} "
            f"WHERE RecordID = {other} LIMIT 1"
        ).replace("SELECT RecordID", f"SELECT {row}"),
        st.sampled_from(list(SIDE_COLUMNS)), row, row,
    )  # fmt: skip
    less = st.builds(
        lambda table, row: f"DELETE FROM {table} WHERE RecordID = {row}", st.sampled_from([*SIDE_COLUMNS, "AAR"]), row
    )
    name = st.builds(
        lambda named, value, number: update(named[0], named[1].split(", ")[-1], value, f"ID = {number}"),
        st.sampled_from(list(NAME_TABLES.items())), st.sampled_from(_VALUES), st.integers(1, 5),
    )  # fmt: skip
    nameless = st.builds(
        lambda table, number: f"DELETE FROM {table} WHERE ID = {number}",
        st.sampled_from(list(NAME_TABLES)), st.integers(1, 5),
    )  # fmt: skip
    return st.one_of(main, main, side, side, side, more, less, name, nameless)


def _columns(table: str) -> str:
    return ", ".join(["RecordID", *(name for group in SIDE_COLUMNS[table] for name in group)])


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database and a store that has read it."""
    folder = tmp_path_factory.mktemp("collected")
    create(folder / "accounting.db", ROWS, 3, "varied")
    with closing(sqlite3.connect(folder / "accounting.db")) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    store = open_store(f"sqlite:///{folder}/store.db")
    collect(store, source(folder / "accounting.db"), [], lambda: NOW, _unheard)
    store.close()
    return folder


def _read_in(folder: Path, window: Window, settings: dict[str, Any], *, forgets: bool) -> tuple[Collected, Contents]:
    with closing(sqlite3.connect(folder / "store.db")) as connection:
        if forgets:
            connection.execute("UPDATE runs SET mark = NULL")
            connection.commit()
    store = open_store(f"sqlite:///{folder}/store.db")
    reader = source(folder / "accounting.db", page_rows=25, **settings)
    found = collect(store, reader, [], lambda: NOW + 5, _unheard, window)
    store.close()
    return found, contents_of(folder / "store.db")


_BOUNDS = st.one_of(st.none(), st.integers(SEPTEMBER.from_ or 0, NOW))


@settings(max_examples=settings().max_examples // 8)
@given(
    mutations=st.lists(_mutations(), min_size=4, max_size=16),
    window=st.just(ALL) | st.builds(Window, _BOUNDS, _BOUNDS),
    chosen=st.fixed_dictionaries({}, optional={"end_time": st.just("lrms"), "start_time": st.just("execution")}),
)
@example(mutations=["UPDATE Users SET Name = Name || 'x'"], window=ALL, chosen={})
@example(mutations=["DELETE FROM Endpoints WHERE ID = 1"], window=ALL, chosen={})
@example(mutations=["UPDATE Endpoints SET URL = 'https://other.example.org/arex'"], window=ALL, chosen={})
def test_after_any_change_the_store_is_as_if_every_row_was_read(
    collected: Path,
    tmp_path_factory: pytest.TempPathFactory,
    mutations: list[str],
    window: Window,
    chosen: dict[str, Any],
) -> None:
    with_marks, without = (tmp_path_factory.mktemp(name) for name in ("with", "without"))
    for folder in (with_marks, without):
        for file in ("accounting.db", "store.db"):
            shutil.copy(collected / file, folder / file)
        with closing(sqlite3.connect(folder / "accounting.db")) as connection:
            for statement in mutations:
                with suppress(sqlite3.IntegrityError):  # what the tables do not take does not come about
                    connection.execute(statement)
            connection.commit()
    quick, marked = _read_in(with_marks, window, chosen, forgets=False)
    slow, read = _read_in(without, window, chosen, forgets=True)
    assert quick == slow
    anew = {row[_RECORD_ID]: row[_MARK] for row in read["runs"]}
    for row in marked["runs"]:
        assert anew[row[_RECORD_ID]] in {row[_MARK], None}, "what was read has the mark of what it is now"
    for contents in (marked, read):
        contents["runs"] = [(*row[:_MARK], *row[_MARK + 1 :]) for row in contents["runs"]]
        # Without the folder: the file, and the digest.
        contents["unreadable"] = [(*row[:2], *row[3:-3], *row[-2:]) for row in contents["unreadable"]]
    assert marked == read
