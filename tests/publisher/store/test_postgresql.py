"""The store on PostgreSQL: its tables, its troubles by their kinds, one writer at a time, several processes at once."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import create_engine, select

from publisher.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
    StoreMissingError,
    StoreNewerError,
    StoreUnreachableError,
)
from publisher.store import dialect, prepared, registry
from publisher.store.database import SCHEMA, open_store
from publisher.store.schema import State, runs, sources
from tests.generators.arc_database import load
from tests.publisher.cli.program import WHOLE, Program
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_jobs, stores_on
from tests.publisher.store.migrating import migrate_from_nothing
from tests.publisher.store.server import PASSWORD, PostgresqlServer


@pytest.fixture
def site(tmp_path: Path, postgresql: PostgresqlServer) -> Iterator[Site]:
    """A site with jobs that wait."""
    with stores_on(postgresql):
        site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
        site.sources["ce1"].add(*make_jobs(30))
        site.table["store"]["busy_timeout"] = "50ms"
        site.collect()
        yield site


@pytest.fixture
def bare(postgresql: PostgresqlServer) -> Iterator[str]:
    """A database with nothing in it, by its name."""
    postgresql.run("CREATE DATABASE bare")
    yield "bare"
    postgresql.run("DROP DATABASE bare WITH (FORCE)")


@pytest.mark.parametrize("lost", ["before it", "in the middle", "before the rest is omitted"])
def test_a_session_that_is_lost_at_a_query_leaves_no_cursor(
    site: Site, postgresql: PostgresqlServer, lost: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The driver warns of one when it is collected, whenever that is."""
    cursors: list[psycopg.ServerCursor[Any]] = []

    def read() -> None:
        with site.publisher.store.read() as connection:
            session = connection.connection.dbapi_connection
            assert isinstance(session, psycopg.Connection)
            found = dialect.streamed(connection, select(runs.c.id), 5)
            if lost != "before it":
                assert len(next(found)) == 5
            postgresql.run(f"SELECT pg_terminate_backend({session.info.backend_pid}, 10000)")
            try:
                if lost != "before the rest is omitted":
                    next(found)
            finally:
                opened = (each for each in gc.get_objects() if isinstance(each, psycopg.ServerCursor))
                cursors.extend(each for each in opened if each.connection is session)
                found.close()
            connection.execute(select(runs.c.id))

    with pytest.raises(StoreError):
        read()
    assert [each.closed for each in cursors] == [True]
    assert caplog.records == []


# --- tables


COLUMNS = "table_name, column_name, data_type, is_nullable, column_default"
SHAPE = (
    f"SELECT {COLUMNS} FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass::text, contype, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid <> 0",
    "SELECT relname, reloptions FROM pg_class WHERE relkind = 'r' AND reloptions IS NOT NULL",
    "SELECT attrelid::regclass::text, attname, attstorage FROM pg_attribute WHERE attstorage = 'e'",
)


def _shape(url: str) -> list[list[Any]]:
    engine = create_engine(url)
    with engine.connect() as connection:
        found = [sorted(map(tuple, connection.exec_driver_sql(query).all()), key=repr) for query in SHAPE]
    engine.dispose()
    return found


def test_a_new_store_is_as_all_migrations_make_it(postgresql: PostgresqlServer, bare: str) -> None:
    open_store(postgresql.url(bare)).close()
    postgresql.run("CREATE DATABASE migrated")
    migrate_from_nothing(postgresql.url("migrated"))
    assert _shape(postgresql.url(bare)) == _shape(postgresql.url("migrated"))
    postgresql.run("DROP DATABASE migrated WITH (FORCE)")


def test_a_missing_store_is_reported_and_not_made_by_commands_that_only_read(
    postgresql: PostgresqlServer, bare: str
) -> None:
    with pytest.raises(StoreMissingError):
        open_store(postgresql.url(bare), create=False)
    with pytest.raises(StoreMissingError):
        open_store(postgresql.url(bare), create=False)


def test_a_store_that_cannot_be_made_whole_is_not_made(postgresql: PostgresqlServer, bare: str) -> None:
    """The table with the version is made last, and something else has its name."""
    with psycopg.connect(postgresql.url(bare)) as session:
        session.execute("CREATE VIEW alembic_version AS SELECT NULL AS version_num")
    with pytest.raises(StoreError, match="alembic_version"):
        open_store(postgresql.url(bare))
    with psycopg.connect(postgresql.url(bare)) as session:
        session.execute("DROP VIEW alembic_version")
    with pytest.raises(StoreMissingError):
        open_store(postgresql.url(bare), create=False)
    open_store(postgresql.url(bare)).close()


def test_a_store_of_an_unknown_version_is_refused(postgresql: PostgresqlServer, bare: str) -> None:
    store = open_store(postgresql.url(bare))
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    store.close()
    with pytest.raises(StoreNewerError, match="9999"):
        open_store(postgresql.url(bare))


OPEN = """
import sys
from publisher.store.database import open_store
store = open_store(sys.argv[1])
with store.read() as connection:
    print(connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one())
"""


def test_several_processes_that_make_the_store_at_once_make_it_once(postgresql: PostgresqlServer, bare: str) -> None:
    command = [sys.executable, "-c", OPEN, postgresql.url(bare)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(3)]
    for child in children:
        out, err = child.communicate(timeout=60)
        assert (out.decode().strip(), child.returncode) == (SCHEMA.head, 0), err


# --- troubles

PASSWORD_IN = ["postgresql://guarded:{}@/{}?host={}", "postgresql://guarded@/{1}?host={2}&password={0}"]


@pytest.mark.parametrize("form", PASSWORD_IN)
def test_a_wrong_password_is_reported_without_it(postgresql: PostgresqlServer, bare: str, form: str) -> None:
    postgresql.run(f"GRANT CREATE ON DATABASE {bare} TO guarded")
    with pytest.raises(StoreError, match="refuses the login") as caught:
        open_store(form.format("letmein0", bare, postgresql.sockets))
    assert "letmein0" not in f"{caught.value} {caught.value.hint} {caught.value.__cause__}"
    assert caught.value.exit_code == 5


@pytest.mark.parametrize("form", PASSWORD_IN)
def test_the_place_of_a_store_is_reported_without_the_password(
    postgresql: PostgresqlServer, bare: str, form: str
) -> None:
    postgresql.run(f"ALTER DATABASE {bare} OWNER TO guarded")
    store = open_store(form.format(PASSWORD, bare, postgresql.sockets))
    assert PASSWORD not in store.place
    assert "guarded" in store.place
    store.close()


def test_a_user_who_may_not_make_tables_is_reported(postgresql: PostgresqlServer, bare: str) -> None:
    with pytest.raises(StoreError, match="cannot be written"):
        open_store(f"postgresql://guarded:{PASSWORD}@/{bare}?host={postgresql.sockets}")


def test_a_server_that_is_not_there_is_reported(tmp_path: Path) -> None:
    for url in (f"postgresql://x@/y?host={tmp_path}", "postgresql://x:pa55word@127.0.0.1:1/y"):
        with pytest.raises(StoreUnreachableError) as caught:
            open_store(url)
        assert caught.value.retry_helps
        assert "pa55word" not in str(caught.value)


def test_a_database_that_is_not_there_is_reported(postgresql: PostgresqlServer) -> None:
    with pytest.raises(StoreError, match="is not there") as caught:
        open_store(postgresql.url("nowhere"))
    assert "createdb" in (caught.value.hint or "")


def test_a_database_in_another_encoding_is_refused(postgresql: PostgresqlServer) -> None:
    postgresql.run("CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0")
    with pytest.raises(StoreError, match="LATIN1"):
        open_store(postgresql.url("latin"))
    postgresql.run("DROP DATABASE latin WITH (FORCE)")


@pytest.mark.parametrize(
    ("code", "kind"), [("53100", StoreFullError), ("25006", StoreError), ("57P01", StoreUnreachableError)]
)
def test_what_the_server_says_has_its_kind_and_nothing_is_sent(site: Site, code: str, kind: type[StoreError]) -> None:
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql(
            "CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION 'trouble' USING ERRCODE = '{code}'; END $$"
        )
        connection.exec_driver_sql(
            "CREATE TRIGGER trouble BEFORE INSERT ON batches FOR EACH ROW EXECUTE FUNCTION trouble()"
        )
    with pytest.raises(StoreError) as caught:
        site.publish()
    assert type(caught.value) is kind
    assert site.receivers["sgas"].posts == 0
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("DROP FUNCTION trouble CASCADE")
    site.publish()
    assert site.counted("sgas") == {State.ACCEPTED: 30}


def test_nul_which_a_service_may_answer_does_not_stop_anything(site: Site) -> None:
    with site.publisher.store.write() as connection:
        registry.record_action(connection, "retry", "sgas", "no\0thing", 1)
    assert site.publisher.audit()[0].detail == "no\ufffdthing"


@pytest.mark.parametrize("table", ["runs", "deliveries"])
@pytest.mark.parametrize(
    ("what", "kind"),
    [
        ("RAISE EXCEPTION 'trouble' USING ERRCODE = '53100'", StoreFullError),
        ("PERFORM pg_terminate_backend(pg_backend_pid())", StoreUnreachableError),
    ],
    ids=["refused", "cut off"],
)
def test_a_page_that_the_server_does_not_take_is_not_stored_in_part(
    site: Site, table: str, what: str, kind: type[StoreError]
) -> None:
    site.sources["ce1"].add(*make_jobs(5, first=100))
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql(
            f"CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {what}; RETURN new; END $$"
        )
        connection.exec_driver_sql(
            f"CREATE TRIGGER trouble BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION trouble()"
        )
    with pytest.raises(kind):
        site.collect()
    with site.publisher.store.write() as connection:
        connection.exec_driver_sql("DROP FUNCTION trouble CASCADE")
    assert site.counted("sgas") == {State.WAITING: 30}
    site.collect()
    assert site.counted("sgas") == {State.WAITING: 35}


ODD: Final = ["\\N", "a\tb\nc\rd", "\\.", "no\0thing", "\u00e9\U0001f600", "", '"', "{}"]


def test_texts_are_copied_as_they_are(site: Site) -> None:
    rows = [(name, f"kind {name}", None, place) for place, name in enumerate(ODD)]
    columns = (sources.c.name, sources.c.kind, sources.c.last_error, sources.c.jobs)
    copying = prepared.BulkInsert(sources, [column.name for column in columns])
    with site.publisher.store.write() as connection:
        copying.run(connection, [])
        copying.run(connection, rows)
    with site.publisher.store.read() as connection:
        stored = connection.execute(select(*columns).where(sources.c.name != "ce1").order_by(sources.c.jobs)).all()
    without_nul = [(*(text.replace("\0", "\ufffd") for text in row[:2]), *row[2:]) for row in rows]
    assert [tuple(row) for row in stored] == without_nul


# --- several at once


def test_one_writes_at_a_time_and_another_is_refused_after_a_while(site: Site) -> None:
    other = open_store(site.store_url, 0.05)
    with site.publisher.store.write() as connection:
        registry.record_action(connection, "a", "b", "c", 1)
        with pytest.raises(StoreBusyError) as caught, other.write():
            raise AssertionError
    assert caught.value.retry_helps
    with other.write() as connection:
        assert [entry.action for entry in registry.actions(connection)] == ["a"]
    other.close()


def test_a_reader_sees_one_state(site: Site) -> None:
    store = site.publisher.store
    with store.read() as reading:
        assert registry.actions(reading) == []
        with store.write() as connection:
            registry.record_action(connection, "a", "b", "c", 1)
        assert registry.actions(reading) == []


def test_a_lock_is_for_one_at_a_time(site: Site) -> None:
    store, other = site.publisher.store, open_store(site.store_url)
    with store.lock("target-a") as one, other.lock("target-b") as two, other.lock("target-a") as again:
        assert (one, two, again) == (True, True, False)
    with other.lock("target-a") as after:
        assert after
    other.close()


def test_stores_in_two_schemas_of_a_database_do_not_lock_each_other(postgresql: PostgresqlServer, bare: str) -> None:
    with psycopg.connect(postgresql.url(bare)) as session:
        session.execute("CREATE SCHEMA one; CREATE SCHEMA two")
    one, two = (open_store(f"{postgresql.url(bare)}&options=-csearch_path%3D{name}", 0.05) for name in ("one", "two"))
    with one.lock("collect") as held, two.lock("collect") as other, one.write(), two.write():
        assert (held, other) == (True, True)
    one.close()
    two.close()


HOLD = """
import sys
from publisher.store.database import open_store
with open_store(sys.argv[1]).lock("target-sgas") as held:
    print(held, flush=True)
    sys.stdin.read()
"""


def test_the_lock_of_a_killed_process_lapses_at_once(site: Site) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, site.store_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"True\n"
        assert site.publish_to("sgas").busy
        child.kill()
        child.wait()
    assert _after_a_moment(site)
    assert site.counted("sgas") == {State.ACCEPTED: 30}


def _after_a_moment(site: Site) -> bool:
    """Publish as soon as the server has noticed that the other process ended."""
    return any(not site.publish_to("sgas").busy for _ in range(500))


def test_a_process_that_lost_the_lock_writes_nothing_more(site: Site, postgresql: PostgresqlServer) -> None:
    store = site.publisher.store
    with store.lock("target-sgas") as held:
        assert held
        postgresql.cut_off(site.database)
        postgresql.let_in(site.database)
        for _ in range(2):
            with pytest.raises(StoreUnreachableError), store.write():
                raise AssertionError
    with store.write() as connection:
        registry.record_action(connection, "a", "b", "c", 1)


def _host(folder: Path, shared: Path, fixtures: Path, url: str) -> Program:
    """A host with the program, whose store and service are those of the others."""
    folder.mkdir()
    load(fixtures / "arc" / "accounting.sql", folder / "accounting.db")
    text = WHOLE.replace('url = "sqlite:///store.db"', f'url = "{url}"\nsent_mark = "mark"').replace(
        'path = "files"', f'path = "{shared}"'
    )
    assert url in text
    assert str(shared) in text
    return Program(folder, text)


def test_publishers_on_several_hosts_send_everything_once(
    tmp_path: Path, fixtures: Path, postgresql: PostgresqlServer
) -> None:
    with stores_on(postgresql):
        url = Site(tmp_path, [], []).store_url
        hosts = [_host(tmp_path / name, tmp_path / "files", fixtures, url) for name in ("host1", "host2")]
        children = [host.start("run", "--json") for host in hosts]
        for child in children:
            _, messages = child.communicate(timeout=120)
            assert child.returncode in {0, 1}, messages
        assert hosts[1]("run", "--json").ok().object["targets"]["files"]["accepted"] in {0, 37}
        assert hosts[0]("run", "--json").ok().object["targets"]["files"]["accepted"] == 0
    text = b"".join(path.read_bytes() for path in (tmp_path / "files").iterdir())
    assert text.count(b"<JobUsageRecord>") == 37
    assert len(set(text.split(b'recordId="')[1:])) == 37
