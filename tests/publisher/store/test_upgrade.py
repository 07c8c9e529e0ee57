"""Migrations: the tables of the code are those of the scripts; older stores are read, newer ones refused unchanged."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Table, event

from formats.identity import digest, encode
from publisher.errors import StoreCorruptError, StoreNewerError
from publisher.sources.base import Unreadable
from publisher.store.database import HEAD, MIGRATIONS, open_store
from publisher.store.schema import State
from tests.conftest import ROOT
from tests.publisher.receivers import Receiver, SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job
from tests.publisher.store.migrating import migrate_from_nothing

BOTH: dict[str, Any] = {"cpu_user_ms": 7, "cpu_system_ms": 0}
OLD = sorted(path.stem for path in (ROOT / "fixtures" / "store").glob("*.sql"))


def test_the_program_knows_its_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def _shape(file: Path) -> dict[str, Any]:
    """Tables and indexes, whatever the order of columns and the way in which the text is laid out."""
    connection = sqlite3.connect(file)
    found: dict[str, Any] = {}
    for kind, name, text in connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall():
        if kind != "table":
            found[name] = (text or "").split()
            continue
        columns, keys = (
            sorted(tuple(row[1:]) for row in connection.execute(f"PRAGMA {what}({name})"))
            for what in ("table_xinfo", "foreign_key_list")
        )
        found[name] = (columns, keys, "WITHOUT ROWID" in text)
    connection.close()
    return found


def test_a_new_store_is_as_all_migrations_make_it(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/new.db").close()
    migrate_from_nothing(f"sqlite:///{tmp_path}/migrated.db")
    assert _shape(tmp_path / "new.db") == _shape(tmp_path / "migrated.db")


def test_every_version_has_a_store_to_read() -> None:
    assert OLD
    assert OLD[-1] <= HEAD


def old_site(fixtures: Path, version: str, folder: Path) -> Site:
    """A site whose store was written by an older program."""
    file = folder / "store.db"
    file.touch(mode=0o600)
    connection = sqlite3.connect(file)
    connection.executescript((fixtures / "store" / f"{version}.sql").read_text("utf-8"))
    connection.close()
    services = [Receiver("sgas"), Receiver("apel", "ams"), SummaryReceiver("sums")]
    return Site(folder, [ListSource("ce1")], services)


@pytest.mark.parametrize("version", OLD)
def test_a_store_of_an_older_program_is_read_and_gone_on_with(fixtures: Path, tmp_path: Path, version: str) -> None:
    site = old_site(fixtures, version, tmp_path)
    site.sources["ce1"].log = [make_job(0)] * 12  # read before, all of it
    status = site.publisher.status()
    assert status.sources["ce1"].jobs == 9
    assert status.targets["sgas"].waived == 1
    assert status.targets["sgas"].rejected == 1
    assert status.targets["apel"].held == 1
    known = site.publisher.job(make_job(9).record_id)[0]
    assert known.run.job.name == "B\u00f8 & <S\u00f8n>"
    assert known.run.job == make_job(9, vo=None, user_dn=None, name="B\u00f8 & <S\u00f8n>")
    assert site.publisher.unreadable()[0].raw == b"x:y\xff"
    assert site.publisher.audit()[0].action == "waive rejected"
    site.publish()
    for name in ("sgas", "apel", "sums"):
        assert site.in_state(name, State.WAITING) == set()
    assert set(site.receivers["sgas"].held) == {make_job(10).record_id}, "nothing that was delivered goes again"
    site.assert_counters_right()
    assert site.rows("SELECT version_num FROM alembic_version") == [(HEAD,)]


def test_the_sums_of_older_runs_are_marked_as_those_of_new_ones(fixtures: Path, tmp_path: Path) -> None:
    site = old_site(fixtures, "0001", tmp_path)
    kept = (
        {"wall_ms": None},
        {"cpu_ms": None},
        {"cpu_ms": None, "cpu_user_ms": 7},
        {"cpu_ms": 0},
        {"cpu_ms": None, **BOTH},
    )
    for number, facts in enumerate(kept, 1):
        _damage(site, "UPDATE runs SET job = ? WHERE id = ?", encode(make_job(number, **facts)), number)
    _damage(site, "UPDATE runs SET job = x'01ff00' WHERE id = 9")
    site.publisher.status()
    assert site.rows("SELECT id FROM runs WHERE untold = 1 ORDER BY id") == [(1,), (2,), (3,), (8,), (9,)]


def test_a_migration_over_runs_that_is_cut_off_leaves_the_store_as_it_was(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    site = old_site(fixtures, "0001", tmp_path)
    before = dump(site.store_file)
    with monkeypatch.context() as cut:
        real = op.create_index

        def fail_at_the_last(name: str, *args: object, **names: object) -> None:
            if name == "runs_by_end":
                raise RuntimeError("the power went")
            real(name, *args, **names)  # type: ignore[arg-type]

        cut.setattr(op, "create_index", fail_at_the_last)
        with pytest.raises(RuntimeError):
            site.publisher.status()
    assert dump(site.store_file) == before
    site.reopen()
    assert site.publisher.status().sources["ce1"].jobs == 9
    assert site.rows("SELECT version_num FROM alembic_version") == [(HEAD,)]


def test_a_migration_to_digests_that_is_cut_off_leaves_the_store_as_it_was(
    fixtures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from alembic import op

    site = old_site(fixtures, "0001", tmp_path)
    before = dump(site.store_file)
    real = op.rename_table
    for table in ("classes_new", "unreadable_new"):
        with monkeypatch.context() as cut:

            def fail_at_one(name: str, *args: str, table: str = table) -> None:
                if name == table:
                    raise RuntimeError("the power went")
                real(name, *args)

            cut.setattr(op, "rename_table", fail_at_one)
            with pytest.raises(RuntimeError):
                site.publisher.status()
        assert dump(site.store_file) == before
        site.reopen()
    site.publisher.status()
    assert site.rows("SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert site.rows("PRAGMA foreign_key_check") == []
    assert {finding.level for finding in site.publisher.keeper.check()} == {"green"}


def test_classes_and_unreadable_input_of_an_older_store_are_known_again(fixtures: Path, tmp_path: Path) -> None:
    site = old_site(fixtures, "0001", tmp_path)
    site.publisher.status()
    classes = site.rows("SELECT COUNT(*) FROM classes")
    site.sources["ce1"].log = [make_job(0)] * 12  # read before
    site.sources["ce1"].add(make_job(20), Unreadable("accounting", 3, 77, "no end time", b"x:y\xff"))
    site.collect()
    assert site.rows("SELECT COUNT(*) FROM classes") == classes
    assert len(site.publisher.unreadable()) == 1


@pytest.mark.parametrize("name", ["record_id", "local_id", "global_id"])
def test_long_ids_of_an_older_store_are_those_that_are_read_now(fixtures: Path, tmp_path: Path, name: str) -> None:
    site = old_site(fixtures, "0001", tmp_path)
    job = msgspec.structs.replace(make_job(1, wall_s=50), **{name: "x" * 5_000})
    stored = encode(job)
    _damage(
        site, "UPDATE runs SET record_id = ?, local_id = ?, global_id = ?, job = ?, digest = ? WHERE id = 1",
        job.record_id, job.local_id, job.global_id, stored, digest(stored),
    )  # fmt: skip
    site.sources["ce1"].log = [make_job(0)] * 12
    site.sources["ce1"].add(job)
    assert site.collect()["ce1"].unchanged == 1
    assert len(site.publisher.job("x" * 5_000)) == 1
    assert site.rows("SELECT COUNT(*) FROM runs WHERE length(record_id) > 1000") == [(0,)]


def dump(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


def test_a_store_of_a_later_program_is_refused_with_nothing_changed(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    open_store(f"sqlite:///{file}").close()
    connection = sqlite3.connect(file)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.execute("CREATE TABLE of_the_future (id INTEGER)")
    connection.commit()
    connection.close()
    before = dump(file)
    with pytest.raises(StoreNewerError) as caught:
        open_store(f"sqlite:///{file}")
    assert caught.value.exit_code == 5
    assert "9999" in str(caught.value)
    assert dump(file) == before


@pytest.mark.parametrize("table", ["runs", "classes"])
def test_a_record_in_the_encoding_of_a_later_program_is_refused_and_nothing_is_sent(tmp_path: Path, table: str) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [Receiver("sgas")])
    site.sources["ce1"].add(make_job(1), make_job(2))
    site.collect()
    column = "job" if table == "runs" else "facts"
    _damage(site, f"UPDATE {table} SET {column} = CAST(x'63' || substr({column}, 2) AS BLOB) WHERE id = 1")
    site.configure("sgas", vo=["atlas"])  # classes are looked at when planning
    with pytest.raises(StoreNewerError) as caught:
        site.publish()
    assert caught.value.exit_code == 5
    assert "99" in str(caught.value)
    assert site.receivers["sgas"].posts == 0


def test_a_damaged_record_is_an_error_of_the_store_and_nothing_is_sent(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [Receiver("sgas")])
    site.sources["ce1"].add(make_job(1))
    site.collect()
    _damage(site, "UPDATE runs SET job = x'01ff00'")
    with pytest.raises(StoreCorruptError):
        site.publish()
    assert site.receivers["sgas"].posts == 0


def _damage(site: Site, statement: str, *values: object) -> None:
    connection = sqlite3.connect(site.store_file)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_a_store_that_cannot_be_made_whole_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    made = 0

    def fail_in_the_middle(*_table: object, **_names: object) -> None:
        nonlocal made
        made += 1
        if made == 5:
            raise RuntimeError("the power went")

    event.listen(Table, "after_create", fail_in_the_middle)
    try:
        with pytest.raises(RuntimeError):
            open_store(f"sqlite:///{file}")
    finally:
        event.remove(Table, "after_create", fail_in_the_middle)
    assert not [line for line in dump(file) if "CREATE" in line]
    open_store(f"sqlite:///{file}").close()
