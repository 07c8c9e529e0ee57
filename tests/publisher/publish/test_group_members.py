"""The runs of summaries, from when their groups are marked as in flight until they are settled."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import event

from formats.job import Job
from publisher.store.row_checks import sums_check
from publisher.store.schema import State
from publisher.targets.base import Outcome, Unknown
from tests.publisher.receivers import SummaryReceiver
from tests.publisher.site import ListSource, Site, make_job


def test_a_statement_marks_runs_of_summaries_that_are_near_each_other_in_the_table(tmp_path: Path) -> None:
    """Groups have runs everywhere; a statement over all of the table would write all its pages, again and again."""
    source, service = ListSource("ce1"), SummaryReceiver("apel")
    source.add(*(make_job(number, user_dn=f"/DC=org/CN=User {number % 3}") for number in range(1, 13)))
    site = Site(tmp_path, [source], [service])
    site.collect()
    with closing(sqlite3.connect(site.store_file)) as connection:  # ids as after half a million other runs
        for table, column in (("runs", "id"), ("deliveries", "run_id")):
            connection.execute(f"UPDATE {table} SET {column} = {column} + 500000 WHERE {column} > 6")
        columns = "id, class_id, end_time, wall_ms, cpu_ms, incomplete_usage"
        for row in connection.execute(f"SELECT {columns} FROM runs").fetchall():
            connection.execute("UPDATE runs SET sums_check = ? WHERE id = ?", (sums_check(*row), row[0]))
        connection.commit()
    source.add(make_job(2, user_dn="/DC=org/CN=User 2", wall_s=7))
    site.collect()
    marked: list[list[int]] = []

    def listen(_connection: object, _cursor: object, statement: str, parameters: Any, *_more: object) -> None:
        if statement.startswith("UPDATE deliveries") and "json_each" in statement:
            rows = parameters if isinstance(parameters, list) else [parameters]
            marked.extend(json.loads(value) for row in rows for value in row if isinstance(value, str))

    event.listen(site.publisher.store.engine, "before_cursor_execute", listen)
    site.publish()
    assert sorted(map(sorted, marked)) == [
        [1, 3, 4, 5, 6],
        [2],  # it had changed, so that it has another revision
        [500_007, 500_008, 500_009, 500_010, 500_011, 500_012],
    ]
    assert service.total()[0] == 12
    assert site.counted("apel") == {State.ACCEPTED: 12}
    site.assert_counters_right()


def test_a_message_says_which_totals_and_counts_may_be_there(tmp_path: Path) -> None:
    source, service = ListSource("ce1"), SummaryReceiver("apel", "ams")
    source.add(make_job(1, user_dn="/CN=Ada"), make_job(2, user_dn="/CN=Bo"))
    site = Site(tmp_path, [source], [service])
    site.configure("apel", records="apel-summary", sync=True, attempts=2)

    def sent(*jobs: Job) -> list[tuple[str, int, int]]:
        source.add(*jobs)
        site.collect()
        service.messages.clear()
        site.publish()
        assert all(frozenset(each.sent_before) <= frozenset(each.keys) for each in service.messages)
        return [(each.format, len(each.keys), len(each.sent_before)) for each in service.messages]

    answers: list[Outcome | None] = [Unknown("cut"), None]
    service.fault = lambda _message: answers.pop(0) if answers else None
    first, again, sync = sent()
    assert (first[1:], again[1:]) == ((2, 0), (2, 2)), "after a lost answer all may be there"
    assert sync == ("apel-sync", 1, 0)
    changed, sync = sent(make_job(2, user_dn="/CN=Bo", wall_s=7), make_job(3, user_dn="/CN=Cy"))
    assert (changed, sync) == (("apel-summary", 2, 1), ("apel-sync", 1, 1))
