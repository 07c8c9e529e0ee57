"""A store that is opened to be read: never made, never brought up to date, never written."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import text

from publisher.errors import StoreError, StoreMissingError
from publisher.store import registry
from publisher.store.database import Store, open_store
from tests.publisher.store.server import PostgresqlServer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    server: PostgresqlServer = request.getfixturevalue("postgresql")
    return server.url(server.new_database())


def write(store: Store) -> None:
    with store.write() as connection:
        registry.record_action(connection, "test", "subject", "detail", 0)


def test_it_is_read_and_not_written(url: str) -> None:
    written = open_store(url)
    write(written)
    reader = open_store(url, read_only=True)
    with reader.read() as connection:
        assert len(registry.actions(connection)) == 1
    with pytest.raises(StoreError):
        write(reader)
    write(written)
    with reader.read() as connection:
        assert len(registry.actions(connection)) == 2
    written.close()
    reader.close()


def test_it_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(StoreMissingError):
        open_store(f"sqlite:///{tmp_path / 'store.db'}", read_only=True)
    assert not list(tmp_path.iterdir())


def test_it_is_not_brought_up_to_date(url: str) -> None:
    old = open_store(url)
    with old.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0000'"))
    old.close()
    with pytest.raises(StoreError, match="only reads"):
        open_store(url, read_only=True)
