"""Statements are compiled once in a process, for all stores on the same kind and version of a database."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from sqlalchemy import Select, select
from sqlalchemy.dialects.postgresql import dialect as postgresql
from sqlalchemy.dialects.sqlite import dialect as sqlite
from sqlalchemy.engine.interfaces import CacheStats

from publisher.store.compiled import CompiledStatements
from publisher.store.database import open_store
from publisher.store.schema import runs


def how_compiled(file: Path, statement: Select[tuple[object]]) -> CacheStats:
    with closing(open_store(f"sqlite:///{file}")) as store, store.read() as connection:
        return connection.execute(statement).context.cache_hit  # type: ignore[attr-defined]


def test_a_second_store_compiles_nothing_again(tmp_path: Path) -> None:
    statements = [select((runs.c.id * 3).label("compiled_once")).where(runs.c.id > number) for number in range(2)]
    first, second = (how_compiled(tmp_path / f"{number}.db", statements[number]) for number in range(2))
    assert (first, second) == (CacheStats.CACHE_MISS, CacheStats.CACHE_HIT)


def test_another_database_or_version_has_its_own() -> None:
    old, same, new, other = postgresql(), postgresql(), postgresql(), sqlite()
    old.server_version_info = same.server_version_info = other.server_version_info = (13, 1)
    new.server_version_info = (18, 0)
    statements = CompiledStatements(10)
    compiled = select(runs.c.id).compile(dialect=old)
    statements[old, "key", False] = compiled
    asked = [statements.get((dialect, "key", False)) for dialect in (same, new, other)]
    assert asked == [compiled, None, None]
    assert statements.get((same, "key", True)) is None
