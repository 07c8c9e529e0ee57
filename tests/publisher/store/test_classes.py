"""Reading classes: some of them, or all, of a store whose sources have very many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import event, insert

from formats.identity import encode, encoded_digest
from formats.job import Benchmark, Host, Job
from publisher.errors import StoreCorruptError
from publisher.store import registry
from publisher.store.classes import Interner, JobClass, all_classes, classes_by_id
from publisher.store.database import Store, open_store
from publisher.store.schema import classes

MANY = 2500
"""More than are asked for at once."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Classes of two sources in turns: even numbers are of `ce2`."""
    made: Path = tmp_path_factory.mktemp("classes")
    opened = open_store(f"sqlite:///{made}/state/store.db")
    with opened.write() as connection:
        for name in ("ce1", "ce2"):
            registry.source(connection, name, "arc")
        connection.execute(
            insert(classes),
            [
                {"id": number, "source_id": 2 - number % 2, "facts": facts, "digest": encoded_digest(facts)}
                for number, facts in ((number, encode(_facts(number))) for number in range(1, MANY + 1))
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
    asked = [*range(1, MANY - 100)]
    with store.read() as connection:
        found = sorted(classes_by_id(connection, asked), key=lambda one: one.id)
        assert found == [_class(number) for number in asked]
        with pytest.raises(StoreCorruptError, match=f"class {MANY + 7} is not stored"):
            list(classes_by_id(connection, [1, MANY + 7]))
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


def test_classes_that_were_met_are_not_looked_up_again(tmp_path: Path) -> None:
    """A cluster with thousands of hosts and no benchmark has more classes than one page has runs."""
    jobs = [
        Job(record_id=f"r{number}", system="slurm", status="completed", local_user="u", hosts=(Host(f"n{number}"),))
        for number in range(6_000)
    ]
    opened = open_store(f"sqlite:///{tmp_path}/state/store.db")
    with opened.write() as connection:
        interner = Interner(registry.source(connection, "ce1", "slurm").id, "ce1")
        first = interner.ids_of(connection, jobs[:3_000]) + interner.ids_of(connection, jobs[3_000:])
        assert len(set(first)) == len(jobs)
        asked: list[str] = []
        event.listen(connection, "before_cursor_execute", lambda *reported: asked.append(reported[2]))
        assert interner.ids_of(connection, jobs) == first
        assert asked == []
    opened.close()


def test_every_shared_fact_makes_a_class_of_its_own(tmp_path: Path) -> None:
    usual = Job(record_id="r", system="slurm", status="completed", local_user="u", hosts=(Host("n", slots=1),))
    others: list[dict[str, Any]] = [
        {}, {"status": "failed"}, {"vo": "atlas"}, {"vo": ""}, {"fqans": ("/atlas",)}, {"local_user": None},
        {"local_group": "u"}, {"hosts": (Host("n", slots=2),)}, {"hosts": (Host("n", cores=1),)}, {"nodes": 1},
        {"cores": 1}, {"slots": 1}, {"benchmarks": (Benchmark("HS06", 1.0),)}, {"queue": "u"}, {"endpoint_url": "u"},
    ]  # fmt: skip
    jobs = [msgspec.structs.replace(usual, **changes) for changes in others]
    opened = open_store(f"sqlite:///{tmp_path}/state/store.db")
    with opened.write() as connection:
        interner = Interner(registry.source(connection, "ce1", "slurm").id, "ce1")
        ids = interner.ids_of(connection, jobs)
        assert len(set(ids)) == len(jobs)
        again = Interner(registry.source(connection, "ce1", "slurm").id, "ce1")
        assert again.ids_of(connection, jobs[::-1]) == ids[::-1]
    opened.close()
