"""The store as a file: private, locked, full, read-only, corrupt. Each problem has its error class, and nothing is
sent."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, QueuePool, bindparam, event, update

from publisher.errors import StoreBusyError, StoreCorruptError, StoreError, StoreFullError, StoreMissingError
from publisher.store import registry
from publisher.store.database import open_store
from publisher.store.prepared import Bulk
from publisher.store.schema import State, sent_mark
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_jobs


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site with jobs that wait."""
    source = ListSource("ce1")
    source.add(*make_jobs(30))
    site = Site(tmp_path, [source], [RecordReceiver("sgas")])
    site.table["store"]["busy_timeout"] = "50ms"
    site.collect()
    yield site
    site.reopen()


def test_a_new_store_and_its_folder_are_private(tmp_path: Path) -> None:
    file = tmp_path / "state" / "store.db"
    store = open_store(f"sqlite:///{file}")
    with store.write(), store.lock("target-x"):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
    store.close()
    assert set(modes.values()) == {0o600}
    assert "store.db" in modes
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("create", [True, False])
def test_a_second_store_of_one_process_takes_no_lock_from_the_first(tmp_path: Path, create: bool) -> None:
    """A log-in at the page opens the store once more. With the lock gone, the next process to leave removed the WAL,
    and all that the first store committed afterwards was lost."""
    file = tmp_path / "store.db"

    def asked_by_another(query: str) -> str:
        ask = f"import sqlite3; c = sqlite3.connect({str(file)!r}); print(c.execute({query!r}).fetchall()); c.close()"
        return subprocess.run([sys.executable, "-c", ask], check=True, capture_output=True, text=True).stdout

    with closing(open_store(f"sqlite:///{file}")) as store:
        for subject in ("before", "after"):
            with store.write() as connection:
                registry.record_action(connection, "tried", subject, "", 1)
            open_store(f"sqlite:///{file}", create=create).close()
            asked_by_another("SELECT id FROM runs")
        found = asked_by_another("SELECT subject FROM audit")
    assert found == "[('before',), ('after',)]\n"


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_store_that_is_open_to_others_is_refused(tmp_path: Path, mode: int, create: bool) -> None:
    file = tmp_path / "store.db"
    open_store(f"sqlite:///{file}").close()
    file.chmod(mode)
    with pytest.raises(StoreError, match="chmod 600") as caught:
        open_store(f"sqlite:///{file}", create=create)
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_the_database_of_another_program_is_left_as_it_is(
    tmp_path: Path, journal: str, mode: int, create: bool
) -> None:
    """Its mode is not to be changed either: the batch system could not read it any more."""
    file = tmp_path / "accounting.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal}")
        connection.execute("CREATE TABLE AAR (ID INTEGER)")
    file.chmod(mode)
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"accounting.db is not a store: another program .* \(AAR\)") as caught:
        open_store(f"sqlite:///{file}", create=create)
    assert "chmod" not in str(caught.value)
    assert file.read_bytes() == before


def test_what_is_not_a_database_is_no_store(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("text\n" * 99)
    file.chmod(0o644)
    with pytest.raises(StoreError, match=r"notes.txt is not a store: it is not an SQLite database"):
        open_store(f"sqlite:///{file}")
    for create in (True, False):
        with pytest.raises(StoreError, match="is not a store: it is a folder"):
            open_store(f"sqlite:///{tmp_path}", create=create)


def test_a_missing_store_is_reported_and_not_made_by_commands_that_only_read(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError):
        open_store(f"sqlite:///{tmp_path / 'store.db'}", create=False)
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_not_followed_to_a_store(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch(mode=0o600)
    (tmp_path / "store.db").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError):
        open_store(f"sqlite:///{tmp_path / 'store.db'}")


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be created or opened"):
        open_store(f"sqlite:///{tmp_path / 'file' / 'store.db'}")


def _pragma(site: Site, statement: str) -> None:
    """Let every connection of the store begin with this."""
    engine: Engine = site.publisher.store._engine
    engine.dispose()

    @event.listens_for(engine, "connect")
    def _say(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute(statement)


def test_on_a_full_disk_nothing_is_sent_and_nothing_is_lost(site: Site) -> None:
    pages = site.rows("PRAGMA page_count")[0][0]
    site.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    _pragma(site, f"PRAGMA max_page_count = {pages}")
    site.sources["ce1"].add(*make_jobs(3000, first=1000))
    with pytest.raises(StoreFullError) as caught:
        site.collect()
    assert caught.value.exit_code == 5
    assert caught.value.retry_helps
    assert "/var/tmp" in caught.value.hint  # SQLite says no more of where it lacked space
    stored = site.rows("SELECT count(*) FROM runs")[0][0]
    assert site.rows("SELECT sum(jobs) FROM counters") == [(stored,)]
    with pytest.raises(StoreFullError):
        _publish_until_the_disk_is_full(site)
    accepted = site.in_state("sgas", State.ACCEPTED)
    assert set(site.receivers["sgas"].held) >= accepted
    site.reopen()
    site.collect()
    site.publish()
    assert set(site.receivers["sgas"].held) == set(site.states("sgas"))
    assert set(site.states("sgas").values()) == {State.ACCEPTED}
    site.assert_counters_right()


def _publish_until_the_disk_is_full(site: Site) -> None:
    for _ in range(50):  # the free space in the last pages is used up first
        site.publish()
        with site.publisher.store.write() as connection:
            registry.record_action(connection, "fill", "disk", "x" * 100_000, site.now)


def test_a_read_only_store_is_reported_and_nothing_is_sent(site: Site) -> None:
    _pragma(site, "PRAGMA query_only = ON")
    with pytest.raises(StoreError, match="cannot be written") as caught:
        site.publish()
    assert caught.value.exit_code == 5
    assert site.receivers["sgas"].posts == 0


def test_a_corrupt_file_is_reported_and_nothing_is_sent(site: Site) -> None:
    site.reopen()
    for suffix in ("-wal", "-shm"):
        Path(f"{site.store_file}{suffix}").unlink(missing_ok=True)
    site.store_file.write_bytes(b"SQLite format 4\0" + bytes(range(256)) * 64)
    with pytest.raises(StoreCorruptError) as caught:
        site.publish()
    assert caught.value.exit_code == 5
    assert site.receivers["sgas"].posts == 0


def test_damage_inside_the_file_is_reported(site: Site) -> None:
    site.reopen()
    site.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    with site.store_file.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (site.store_file.stat().st_size - 4096))
    with pytest.raises(StoreError) as caught:
        site.publish()
    assert caught.value.exit_code == 5
    assert site.receivers["sgas"].posts == 0


HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_store_locked_by_another_process_is_reported_and_nothing_is_sent(site: Site) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(site.store_file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        with pytest.raises(StoreBusyError) as caught:
            site.publish()
        assert caught.value.exit_code == 5
        assert caught.value.retry_helps
        assert site.receivers["sgas"].posts == 0
        child.communicate(b"")
    site.publish()
    assert set(site.states("sgas").values()) == {State.ACCEPTED}


def test_a_transaction_is_all_or_nothing(site: Site) -> None:
    before = site.rows("SELECT count(*) FROM audit")
    with pytest.raises(RuntimeError):
        _note_and_fail(site)
    assert site.rows("SELECT count(*) FROM audit") == before


def _note_and_fail(site: Site) -> None:
    with site.publisher.store.write() as connection:
        registry.record_action(connection, "x", "y", "z", 1)
        raise RuntimeError


def test_the_connection_that_was_used_last_is_used_next(site: Site) -> None:
    """The pages in its cache are still valid: the others would have to read them again after each commit."""
    store = site.publisher.store
    with store.read() as last, store.read():
        used_last = last.connection.driver_connection
    for _ in range(3):
        with store.write() as connection:
            assert connection.connection.driver_connection is used_last


def _count(connection: Connection, *numbers: object) -> None:
    """Set the number of messages, one after another, with a statement that the driver executes."""
    statement = Bulk(update(sent_mark).values(messages=bindparam("number")), ("number",))
    for number in numbers:
        statement.run(connection, [(number,)])


@pytest.mark.either_store
def test_an_error_of_the_driver_is_one_of_the_store_and_takes_the_transaction_back(site: Site) -> None:
    site.publish()
    before = site.rows("SELECT messages FROM sent_mark")
    with pytest.raises(StoreError, match="cannot be used") as raised, site.publisher.store.write() as connection:
        _count(connection, 77, None)
    assert site.publisher.store.place in str(raised.value)
    assert site.rows("SELECT messages FROM sent_mark") == before


@pytest.mark.either_store
def test_who_listens_sees_the_statements_of_the_driver(site: Site) -> None:
    """As the processes do that are killed before each statement."""
    seen: list[tuple[str, object, bool]] = []

    def listen(_connection: object, _cursor: object, sql: str, values: object, _context: object, many: bool) -> None:
        seen.append((sql.split(maxsplit=1)[0], values, many))

    with site.publisher.store.write() as connection:
        event.listen(connection, "before_cursor_execute", listen)
        _count(connection, 5)
    assert ("UPDATE", [(5,)], True) in seen


def test_commits_are_synced_to_the_disk(site: Site) -> None:
    with site.publisher.store.read() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar_one() == 1


def test_a_lock_is_for_one_at_a_time_and_names_do_not_fall_together(site: Site) -> None:
    store = site.publisher.store
    with store.lock("target-a/b") as one, store.lock("target-a_b") as other, store.lock("target-a/b") as again:
        assert (one, other, again) == (True, True, False)
    with store.lock("target-a/b") as after:
        assert after


def test_a_transaction_that_cannot_begin_leaves_no_connection_open(site: Site) -> None:
    """As where a server ends the session after it was taken from the pool: the error is held, and what it refers to."""
    store = site.publisher.store

    @event.listens_for(store.engine, "set_connection_execution_options")
    def refuse(_connection: object, options: dict[str, object]) -> None:
        raise StoreError(f"cannot set {options}")

    for begin in (store.read, store.write):
        with pytest.raises(StoreError) as held, begin():
            pass
        assert isinstance(store.engine.pool, QueuePool)
        assert (held.value.exit_code, store.engine.pool.checkedout()) == (5, 0)
