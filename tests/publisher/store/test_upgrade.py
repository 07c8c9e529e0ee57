"""Migrations: the tables of the code are those of the scripts; older stores are read, newer ones refused unchanged."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event

from publisher.errors import StoreCorruptError, StoreError, StoreNewerError
from publisher.store.database import SCHEMA, SchemaVersion, open_store
from tests.publisher.receivers import RecordReceiver
from tests.publisher.site import ListSource, Site, make_job
from tests.publisher.store.filled_site import fill
from tests.publisher.store.migrating import migrate_from_nothing


def test_the_head_of_the_program_is_its_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCHEMA.migrations))
    assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA.head]


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


NEXT = f"{int(SCHEMA.head) + 1:04}"
SECOND = f"""
import os
from alembic import op

revision = "{NEXT}"
down_revision = "{SCHEMA.head}"


def upgrade() -> None:
    op.execute("CREATE TABLE of_the_next_version (id INTEGER)")
    if os.environ.get("POWER_FAILS"):
        raise RuntimeError("the power failed")
"""


@pytest.fixture
def next_schema(tmp_path: Path) -> SchemaVersion:
    """A made-up later version of the schema, with a migration to it."""
    shutil.copytree(SCHEMA.migrations, tmp_path / "migrations")
    (tmp_path / "migrations" / "versions" / f"{NEXT}_second.py").write_text(SECOND, "utf-8")
    return SchemaVersion(NEXT, tmp_path / "migrations")


def test_an_older_store_is_migrated_with_all_that_is_in_it(tmp_path: Path, next_schema: SchemaVersion) -> None:
    url = f"sqlite:///{fill(tmp_path).store_file}"
    before = dump(tmp_path / "store.db")
    with pytest.raises(StoreError, match=f"{SCHEMA.head}.*{NEXT}"):
        open_store(url, read_only=True, schema=next_schema)
    assert dump(tmp_path / "store.db") == before
    open_store(url, schema=next_schema).close()
    after = dump(tmp_path / "store.db")
    assert {line for line in before if "alembic_version" not in line} < set(after)
    assert any("of_the_next_version" in line for line in after)
    open_store(url, read_only=True, schema=next_schema).close()


def test_a_migration_that_is_cut_off_leaves_the_store_as_it_was(
    tmp_path: Path, next_schema: SchemaVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{fill(tmp_path).store_file}"
    before = dump(tmp_path / "store.db")
    monkeypatch.setenv("POWER_FAILS", "1")
    with pytest.raises(RuntimeError):
        open_store(url, schema=next_schema)
    assert dump(tmp_path / "store.db") == before
    monkeypatch.delenv("POWER_FAILS")
    open_store(url, schema=next_schema).close()


def dump(file: Path) -> list[str]:
    connection = sqlite3.connect(file)
    try:
        return list(connection.iterdump())
    finally:
        connection.close()


@pytest.mark.parametrize("version", ["9999", "0099"])  # of a later program; from before the first release
def test_a_store_of_an_unknown_version_is_refused_with_nothing_changed(tmp_path: Path, version: str) -> None:
    file = tmp_path / "store.db"
    open_store(f"sqlite:///{file}").close()
    connection = sqlite3.connect(file)
    connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    connection.execute("CREATE TABLE of_the_future (id INTEGER)")
    connection.commit()
    connection.close()
    before = dump(file)
    with pytest.raises(StoreNewerError) as caught:
        open_store(f"sqlite:///{file}")
    assert caught.value.exit_code == 5
    assert version in str(caught.value)
    assert "new store" in str(caught.value.hint)
    assert dump(file) == before


def test_classes_in_the_encoding_of_a_later_program_are_refused_and_nothing_is_sent(tmp_path: Path) -> None:
    """A single run in it is a changed bit: a later program would have changed the schema too."""
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(make_job(1), make_job(2))
    site.collect()
    _damage(site, "UPDATE classes SET facts = CAST(x'63' || substr(facts, 2) AS BLOB) WHERE id = 1")
    site.configure("sgas", vo=["atlas"])  # classes are looked at when planning
    with pytest.raises(StoreNewerError) as caught:
        site.publish()
    assert caught.value.exit_code == 5
    assert "99" in str(caught.value)
    assert site.receivers["sgas"].posts == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE targets SET filter_settings = '{'",
        "UPDATE targets SET filter_settings = '{\"target\": 5}'",
        "UPDATE targets SET assumes = '[1'",
        "UPDATE sources SET cursor = '{]'",
        "UPDATE classes SET facts = x'01ff00'",
    ],
)
def test_a_column_that_cannot_be_read_is_an_error_of_the_store_and_nothing_is_sent(
    tmp_path: Path, statement: str
) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(make_job(1))
    site.collect()
    _damage(site, statement)
    site.configure("sgas", vo=["atlas"])  # planned again
    with pytest.raises(StoreCorruptError) as caught:
        site.publisher.run()
    assert caught.value.exit_code == 5
    assert "store check" in str(caught.value)
    assert site.receivers["sgas"].posts == 0


def test_json_that_is_nested_too_deeply_is_an_error_of_the_store(tmp_path: Path) -> None:
    site = Site(tmp_path, [ListSource("ce1")], [RecordReceiver("sgas")])
    site.sources["ce1"].add(make_job(1))
    site.collect()
    _damage(site, "UPDATE sources SET cursor = ?", "[" * 100_000)
    with pytest.raises(StoreCorruptError):
        site.collect()


def _damage(site: Site, statement: str, *values: object) -> None:
    connection = sqlite3.connect(site.store_file)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


def test_a_store_that_cannot_be_made_whole_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    made = 0

    def fail_in_the_middle(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        nonlocal made
        made += "CREATE TABLE" in statement
        if made == 5:
            raise RuntimeError("the power went")

    event.listen(Engine, "after_cursor_execute", fail_in_the_middle)
    try:
        with pytest.raises(RuntimeError):
            open_store(f"sqlite:///{file}")
    finally:
        event.remove(Engine, "after_cursor_execute", fail_in_the_middle)
    assert not [line for line in dump(file) if "CREATE" in line]
    open_store(f"sqlite:///{file}").close()
