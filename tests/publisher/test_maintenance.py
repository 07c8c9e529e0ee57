"""copy, check, backup: they handle all of the store, with any content, and on a full disk; `tests/crash` kills them."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, event, select

from formats.calendar import Month
from publisher.api import Publisher
from publisher.errors import StoreCorruptError, StoreFullError, UsageError
from publisher.maintenance import copy_store
from publisher.store.admin import backup
from publisher.store.database import Store, open_store
from publisher.store.schema import metadata, spool_changes
from tests.faults.full_disk import files_no_larger_than
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import OCTOBER, ListSource, Site, make_job, make_jobs
from tests.publisher.store.filled_site import fill
from tests.publisher.store.server import PostgresqlServer


def everything(url: str) -> dict[str, set[tuple[object, ...]]]:
    """Every row of every table."""
    store = open_store(url)
    try:
        with store.read() as connection:
            return {
                table.name: {
                    tuple(bytes(value) if isinstance(value, memoryview | bytes) else value for value in row)
                    for row in connection.execute(select(table))
                }
                for table in metadata.sorted_tables
                if table is not spool_changes
            }
    finally:
        store.close()


def reds(site: Site) -> dict[str, str]:
    """What `store check` finds wrong, by subject."""
    return {found.subject: found.message for found in site.publisher.maintenance.check() if found.level == "red"}


@pytest.fixture
def bare(postgresql: PostgresqlServer) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    postgresql.run("CREATE DATABASE copied")
    yield postgresql.url("copied")
    postgresql.run("DROP DATABASE copied WITH (FORCE)")


# --- copy


def test_a_store_moves_to_a_server_and_back_with_everything(tmp_path: Path, bare: str) -> None:
    site = fill(tmp_path)
    site.sources["ce1"].add(make_job(77, name="NUL \0 in a job is bytes"))
    site.collect()
    site.reopen()
    here = site.config.store.url
    reported: list[str] = []
    counts = {each.table: each.rows for each in copy_store(here, bare, 1, reported.append).tables}
    assert counts["runs"] == 11
    assert set(reported) == set(counts) == {table.name for table in metadata.sorted_tables} - {"spool_changes"}
    assert everything(bare) == everything(here)
    back = f"sqlite:///{tmp_path}/back/store.db"
    copy_store(bare, back, 1, reported.append)
    assert everything(back) == everything(here)
    # new rows of every kind get new numbers
    other = Site(tmp_path, [site.sources["ce1"]], list(site.receivers.values()))
    other.table["store"] = {"url": bare, "sent_mark": "mark"}
    other.sources["ce1"].add(make_job(200), make_job(201, vo="cms"))
    assert other.collect()["ce1"].new == 2
    assert {name: done.error for name, done in other.publish().items()} == dict.fromkeys(other.receivers)
    other.reopen()


def test_texts_that_a_server_cannot_hold_are_altered_alike(tmp_path: Path, bare: str) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(make_job(1))
    site.collect()
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE sources SET last_error = 'a' || char(0) || 'b'")
    site.reopen()
    copy_store(site.config.store.url, bare, 1, lambda _table: None)
    assert ["a\ufffdb" in row for row in everything(bare)["sources"]] == [True]


def test_a_store_that_holds_something_is_not_copied_into(tmp_path: Path) -> None:
    site = fill(tmp_path)
    site.reopen()
    other = f"sqlite:///{tmp_path}/other/store.db"
    copy_store(site.config.store.url, other, 1, lambda _table: None)
    before = everything(other)
    for source, destination in ((site.config.store.url, other), (other, other)):
        with pytest.raises(UsageError, match="is not empty"):
            copy_store(source, destination, 1, lambda _table: None)
    assert everything(other) == before


def test_nothing_is_copied_while_a_publisher_is_at_work(tmp_path: Path) -> None:
    site = fill(tmp_path)
    with (
        Publisher(site.config, site.publisher.tools) as at_work,
        at_work.store.lock("target-sgas"),
        pytest.raises(UsageError, match="sending to target sgas"),
    ):
        copy_store(site.config.store.url, f"sqlite:///{tmp_path}/other/store.db", 1, lambda _table: None)


def test_a_copy_that_is_not_the_same_is_not_kept(tmp_path: Path) -> None:
    """One row is lost during the copy."""
    site = fill(tmp_path)
    site.reopen()
    other = f"sqlite:///{tmp_path}/other/store.db"
    open_store(other).close()
    lose_one = "BEFORE INSERT ON deliveries WHEN NEW.run_id = 5 BEGIN SELECT RAISE(IGNORE); END"
    with closing(sqlite3.connect(tmp_path / "other" / "store.db")) as connection:
        connection.execute(f"CREATE TRIGGER lose_one {lose_one}")
    with pytest.raises(StoreCorruptError, match="differs after copying"):
        copy_store(site.config.store.url, other, 1, lambda _table: None)
    assert not any(everything(other).values())


def test_a_copy_that_finds_the_disk_full_leaves_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(*make_jobs(3000))
    site.collect()
    site.reopen()
    other = open_store(f"sqlite:///{tmp_path}/other/store.db")
    limit_pages(other, 60)
    source = open_store(site.config.store.url)
    with pytest.raises(StoreFullError):
        backup.copy(source, other)
    other.close()
    assert not any(everything(f"sqlite:///{tmp_path}/other/store.db").values())
    again = open_store(f"sqlite:///{tmp_path}/other/store.db")
    backup.copy(source, again)
    again.close()
    source.close()
    assert everything(f"sqlite:///{tmp_path}/other/store.db") == everything(site.config.store.url)


def limit_pages(store: Store, pages: int) -> None:
    """Let the disk be full after this number of pages."""
    engine: Engine = store._engine
    engine.dispose()

    @event.listens_for(engine, "connect")
    def _say(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(f"PRAGMA max_page_count = {pages}")


# --- check


def damaged(folder: Path, *statements: str) -> Site:
    """A site with something of everything, past whose program somebody changed the store."""
    site = fill(folder)
    site.reopen()
    connection = sqlite3.connect(site.store_file)
    connection.execute("PRAGMA foreign_keys = OFF")
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()
    return site


@pytest.mark.either_store
def test_a_sound_store_has_nothing_red(tmp_path: Path) -> None:
    site = fill(tmp_path)
    assert {found.level for found in site.publisher.maintenance.check()} <= {"green"}


@pytest.mark.parametrize(
    ("statement", "subject", "reported"),
    [
        ("UPDATE runs SET digest = x'00' WHERE id = 1", "runs", "its digest is not that of its record"),
        ("UPDATE runs SET wall_ms = wall_ms + 1 WHERE id = 2", "runs", "its columns are not those of its record"),
        (
            "UPDATE runs SET class_id = class_id + 1 WHERE id = 2",
            "runs",
            "its record with the facts of its class",
        ),
        ("UPDATE runs SET incomplete_usage = 1 WHERE id = 2", "runs", "its columns are not those of its record"),
        ("UPDATE versions SET job = x'01'", "versions", "an earlier version cannot be read"),
        ("UPDATE classes SET facts = CAST(x'63' || id AS BLOB)", "classes", "class 1"),
        ("UPDATE classes SET digest = x'00' WHERE id = 1", "classes", "class 1"),
        ("DELETE FROM runs WHERE id = 1", "references", "deliveries whose run_id is in no row of runs"),
        ("UPDATE deliveries SET end_time = 5 WHERE run_id = 1", "deliveries", "has end time 5"),
        ("UPDATE deliveries SET state = 2 WHERE run_id = 1", "deliveries", "in flight in no batch"),
        ("UPDATE deliveries SET state = 55 WHERE run_id = 1", "deliveries", "a state that there is not"),
        ("UPDATE deliveries SET state = 'x' WHERE run_id = 1", "deliveries", "a state that there is not"),
        ("UPDATE counters SET state = 'x' WHERE state = 3", "counters", "in state x"),
        ("UPDATE counters SET jobs = jobs + 3", "counters", "kept"),
        ("UPDATE classes SET facts = 'text' || id", "classes", "class 1"),
        ("DROP TABLE purged_runs", "tables", "table purged_runs is missing"),
        ("ALTER TABLE unreadable DROP COLUMN seen_at", "tables", "table unreadable lacks seen_at"),
    ],
)
def test_what_does_not_agree_is_reported(tmp_path: Path, statement: str, subject: str, reported: str) -> None:
    site = damaged(tmp_path, statement)
    found = reds(site)
    assert reported in found[subject]
    assert all(each.hint for each in site.publisher.maintenance.check() if each.level == "red")


def test_pages_that_are_damaged_are_reported(tmp_path: Path) -> None:
    site = fill(tmp_path)
    site.reopen()
    (root,) = site.rows("SELECT rootpage FROM sqlite_master WHERE name = 'runs_by_end'")[0]
    site.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    with site.store_file.open("r+b") as file:
        file.seek((root - 1) * 4096 + 3)
        file.write(b"\0\0")  # an index without entries
    assert "runs_by_end" in reds(site)["database"]


@pytest.mark.either_store
def test_counters_are_set_right_and_it_is_recorded(tmp_path: Path) -> None:
    site = fill(tmp_path)
    before = site.publisher.status()
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("UPDATE counters SET jobs = jobs + 3")
    assert "counters" in reds(site)
    repaired = site.publisher.maintenance.repair()
    assert repaired
    assert site.publisher.status() == before
    assert reds(site) == {}
    assert {entry.action for entry in site.publisher.audit()} >= {"repair"}
    assert site.publisher.maintenance.repair() == []


def test_a_batch_in_flight_is_not_damage(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(*make_jobs(3))
    site.collect()
    assert site.killed_at(1, site.publish)
    found = {each.subject: each.level for each in site.publisher.maintenance.check() if each.level != "green"}
    assert found == {"batches": "yellow"}


# --- backup


def test_a_backup_is_one_private_file_that_a_publisher_continues_from(tmp_path: Path) -> None:
    site = fill(tmp_path)
    file = tmp_path / "backup.db"
    done = site.publisher.maintenance.backup(file)
    assert done.bytes == file.stat().st_size
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir() if "backup" in path.name] == ["backup.db"]
    assert everything(f"sqlite:///{file}") == everything(site.config.store.url)
    before = site.publisher.status()
    site.sources["ce1"].add(make_job(99))
    site.collect()
    site.reopen()
    for each in tmp_path.glob("store.db*"):
        each.unlink()
    shutil.copy(file, tmp_path / "store.db")
    restored = site.publisher.status()
    assert restored.not_latest is not None
    assert msgspec.structs.replace(restored, not_latest=None) == before


def test_a_backup_is_made_while_somebody_writes(tmp_path: Path) -> None:
    site = fill(tmp_path)
    with Publisher(site.config, site.publisher.tools) as other, other.store.write() as connection:
        connection.exec_driver_sql("UPDATE counters SET jobs = jobs + 1")
        done = site.publisher.maintenance.backup(tmp_path / "backup.db")
    assert done.runs == 10
    assert everything(f"sqlite:///{tmp_path}/backup.db")["counters"] != everything(site.config.store.url)["counters"]


def test_a_backup_replaces_nothing(tmp_path: Path) -> None:
    site = fill(tmp_path)
    for name in ("there", "link"):
        file = tmp_path / name
        file.symlink_to("nowhere") if name == "link" else file.write_text("precious")
        with pytest.raises(UsageError, match="already exists"):
            site.publisher.maintenance.backup(file)
    assert (tmp_path / "there").read_text() == "precious"


def test_a_damaged_store_has_no_backup(tmp_path: Path) -> None:
    site = damaged(tmp_path, "UPDATE counters SET jobs = jobs + 3")
    with pytest.raises(StoreCorruptError, match="was not kept"):
        site.publisher.maintenance.backup(tmp_path / "backup.db")
    assert not list(tmp_path.glob("*backup*"))


def test_a_backup_that_finds_the_disk_full_leaves_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(*make_jobs(500))
    site.collect()
    with files_no_larger_than(40_960), pytest.raises(StoreFullError):
        site.publisher.maintenance.backup(tmp_path / "backup.db")
    assert not list(tmp_path.glob("*backup*"))


def test_a_store_on_a_server_names_the_command_for_it(tmp_path: Path, bare: str) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.table["store"] = {"url": bare}
    site.sources["ce1"].add(make_job(1))
    site.collect()
    with pytest.raises(UsageError, match="pg_dump --format=custom"):
        site.publisher.maintenance.backup(tmp_path / "backup")
    site.reopen()


# --- space


def _size(site: Site) -> int:
    """Bytes of the store's file and its log; 0 on a server."""
    files = (site.store_file, site.store_file.with_name(f"{site.store_file.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


@pytest.mark.either_store
def test_space_is_given_back(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(*(make_job(number, end=OCTOBER + number) for number in range(2000)))
    site.collect()
    site.publish()
    assert site.publisher.maintenance.purge(Month(2026, 11)).runs == 2000
    size = _size(site)
    site.publisher.maintenance.vacuum()
    assert not size or _size(site) < size / 2
    assert reds(site) == {}
