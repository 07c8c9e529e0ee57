"""Reading classes: some of them, or all, of a store whose sources have very many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, insert

from formats.identity import encode
from formats.job import Job
from publisher.store.classes import JobClass, all_classes, classes_by_id
from publisher.store.database import Store, open_store
from publisher.store.tables import classes, sources

MANY = 2500
"""More than are asked for at once."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Classes of two sources in turns: even numbers are of `ce2`."""
    made: Path = tmp_path_factory.mktemp("classes")
    opened = open_store(f"sqlite:///{made}/state/store.db")
    with opened.write() as connection:
        connection.execute(
            insert(sources), [{"id": 1, "name": "ce1", "kind": "arc"}, {"id": 2, "name": "ce2", "kind": "arc"}]
        )
        connection.execute(
            insert(classes),
            [
                {"id": number, "source_id": 2 - number % 2, "facts": encode(_facts(number))}
                for number in range(1, MANY + 1)
            ],
        )
    opened.refresh_statistics()  # with them the planner prefers a walk where it sees a way to one
    yield opened
    opened.close()


def _facts(number: int) -> Job:
    return Job(record_id="", system="arc", status="completed", queue=str(number))


def _class(number: int) -> JobClass:
    return JobClass(number, "ce1" if number % 2 else "ce2", _facts(number))


def test_each_comes_with_the_name_of_its_source(store: Store) -> None:
    asked = [*range(1, MANY - 100), MANY + 7]
    with store.read() as connection:
        found = sorted(classes_by_id(connection, asked), key=lambda one: one.id)
        assert found == [_class(number) for number in asked[:-1]]
        assert list(classes_by_id(connection, [])) == []
        assert list(all_classes(connection)) == [_class(number) for number in range(1, MANY + 1)]


@pytest.mark.parametrize("many", [3, 1500])
def test_classes_are_never_found_by_their_source(store: Store, many: int) -> None:
    asked: list[tuple[str, Any]] = []

    def listen(_connection: object, _cursor: object, sql: str, values: Any, _context: object, _many: bool) -> None:
        asked.append((sql, values))

    with store.read() as connection:
        event.listen(connection, "before_cursor_execute", listen)
        assert len(list(classes_by_id(connection, list(range(1, many + 1))))) == many
        event.remove(connection, "before_cursor_execute", listen)
        rows = [row for sql, values in asked for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)]
    steps = [row[3] for row in rows if "classes" in row[3]]
    assert steps
    assert not [step for step in steps if "source_id" in step], steps
    assert many > 1000 or steps == ["SEARCH classes USING INTEGER PRIMARY KEY (rowid=?)"]
