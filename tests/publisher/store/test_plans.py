"""The statements of a batch find their deliveries by the index over open ones, however many were delivered before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, event

from publisher.store import deliveries
from publisher.store.database import open_store
from publisher.store.states import State

Question = Callable[[Connection], object]
QUESTIONS: dict[str, Question] = {
    "first page": lambda connection: deliveries.waiting(connection, 1, None, 10),
    "next page": lambda connection: deliveries.waiting(connection, 1, (5, 5), 10),
    "in flight": lambda connection: deliveries.in_flight(connection, 1),
    "land": lambda connection: deliveries.land(connection, 1, 1, 0, keeps_first=True),
    "leave": lambda connection: deliveries.leave(connection, 1, 1, State.WAITING, None, 0),
    "not taken": lambda connection: deliveries.not_taken(connection, 1, 1),
    "put back": lambda connection: deliveries.put_back(connection, 1, State.IN_FLIGHT, 0),
    "oldest": lambda connection: deliveries.oldest_open(connection, 1),
    "months": lambda connection: deliveries.months_of(connection, 1, State.HELD),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_open_deliveries_are_found_by_their_index(tmp_path: Path, question: Question) -> None:
    asked: list[tuple[str, Any]] = []
    store = open_store(f"sqlite:///{tmp_path}/state/store.db")
    with store.write() as connection:

        def listen(_connection: object, _cursor: object, sql: str, values: Any, _context: object, many: bool) -> None:
            asked.append((sql, values[0] if many and isinstance(values, list) else values))

        event.listen(connection, "before_cursor_execute", listen)
        question(connection)
        event.remove(connection, "before_cursor_execute", listen)
        plans = [
            [
                row[3]
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)
                if "deliveries" in row[3]
            ]
            for sql, values in asked
            if "deliveries" in sql
        ]
    store.close()
    assert plans
    for plan in plans:
        assert all("deliveries_open (target_id=? AND state=?" in step for step in plan), plan
