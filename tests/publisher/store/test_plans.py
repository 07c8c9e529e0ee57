"""How the database executes frequent queries: by an index, for any number of runs and deliveries."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Connection, Engine, Table, and_, event, insert

from formats.calendar import Month
from publisher.config import file
from publisher.encoded_run import encode_run
from publisher.status import jobs
from publisher.status.status import status
from publisher.store import deliveries, groups, in_flight, ledger_entries, newest_runs, queries, sums
from publisher.store.admin import integrity, purge
from publisher.store.classes import classes_ended_in
from publisher.store.database import Store, open_store
from publisher.store.newest_runs import Newest
from publisher.store.row_checks import row_digest, state_check
from publisher.store.runs import marks_of, named, row_of
from publisher.store.schema import State, batches, classes, runs, sources, targets
from publisher.store.schema import deliveries as delivery_table
from publisher.store.schema import groups as summaries
from tests.publisher.receivers import RecordReceiver, SummaryReceiver
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job, make_jobs
from tests.publisher.store.server import PostgresqlServer

RUNS: Final = 4000
"""Enough for an index to pay."""
WINDOW: Final = (NOVEMBER, NOVEMBER + 30 * 86_400)
LAST: Final = (NOVEMBER + 3600 + 3950, WINDOW[1])
AFTER: Final = (NOVEMBER + 3600 + 2000, 2000)
LARGE: Final = frozenset({"runs", "deliveries", "versions", "batches", "groups"})
AGAIN: Final = and_(delivery_table.c.state == 3, delivery_table.c.end_time >= WINDOW[0])
"""What counts as waiting for a plan of republish: what was accepted."""
Question = Callable[[Connection], object]
OPEN: Final[dict[str, Question]] = {
    "plan, first page": lambda connection: queries.waiting(connection, 1, None, 10),
    "plan, place": lambda connection: queries.place_of(connection, 1, 10),
    "plan, next page": lambda connection: queries.waiting(connection, 1, AFTER, 10),
    "in flight": lambda connection: in_flight.in_flight(connection, 1),
    "mark accepted": lambda connection: in_flight.mark_accepted(connection, 1, 1, 0, keeps_first=True),
    "mark rejected": lambda connection: in_flight.mark_refused(connection, 1, 1, in_flight.NO_LONGER_SELECTED, 0),
    "not taken": lambda connection: in_flight.not_taken(connection, 1, 1, {}),
    "let wait": lambda connection: in_flight.let_wait(connection, 1, State.IN_FLIGHT, 0),
    "oldest": lambda connection: queries.oldest_open(connection, 1),
    "months": lambda connection: queries.months_of(connection, 1, State.HELD),
}
"""What concerns open deliveries alone."""
ANY: Final[dict[str, Question]] = {
    "runs of a local id and end": lambda connection: named(
        connection, [(str(number), NOVEMBER + 3600 + number) for number in range(2000, 2250)]
    ),
    "marks of runs": lambda connection: marks_of(connection, ["ur-2000", "ur-2001"]),
    "jobs ID": lambda connection: [
        jobs.whereabouts(connection, run.run_id) for run in jobs.found(connection, "2000", {})
    ],
    "runs of a window": lambda connection: queries.runs_in(connection, *WINDOW, AFTER, 10),
    "jobs": lambda connection: list(newest_runs.rows(connection, Newest(*WINDOW), 10)),
    "jobs of a target": lambda connection: list(newest_runs.rows(connection, Newest(*WINDOW, None, [1]), 10)),
    "jobs by a pattern": lambda connection: list(newest_runs.rows(connection, Newest(*WINDOW, [1, 2]), 10)),
    "jobs held": lambda connection: list(newest_runs.rows(connection, Newest(None, None, None, [1], State.HELD), 10)),
    "jobs held, counted": lambda connection: newest_runs.count(
        connection, Newest(None, None, None, [1, 2], State.HELD)
    ),
    "fold, first page": lambda connection: queries.ended_in(connection, 1, WINDOW, None, 10),
    "fold, next page": lambda connection: queries.ended_in(connection, 1, WINDOW, AFTER, 10),
    "fold, sums": lambda connection: next(sums.by_class(connection, 1, WINDOW, 10), None),
    "members in flight": lambda connection: in_flight.mark_in_flight(
        connection, 1, 1, [(5, 0), (6, 1)], 0, keeps_first=True
    ),
    "fold, others": lambda connection: queries.ended_in(connection, 1, WINDOW, AFTER, 10, only=sums.UNUSABLE),
    "republish, page": lambda connection: queries.ended_in(connection, 1, WINDOW, AFTER, 10, as_waiting=AGAIN),
    "republish, sums": lambda connection: next(sums.by_class(connection, 1, WINDOW, 10, AGAIN), None),
    "sync counts": lambda connection: sums.due_by_class(connection, 1, LAST, 10),
    "report, what changed": lambda connection: queries.ended_in(connection, 1, WINDOW, AFTER, 10, changed_since=5),
    "reports, no longer": lambda connection: groups.with_jobs_before(connection, 1, groups.UTILIZATION, 20_000),
    "reports, periods": lambda connection: queries.periods_from(connection, 1, "month", NOVEMBER),
    "reconcile, first page": lambda connection: ledger_entries.page(connection, 1, WINDOW, None, 10),
    "reconcile, next page": lambda connection: ledger_entries.page(connection, 1, WINDOW, AFTER, 10),
    "reconcile, records": lambda connection: ledger_entries.states_of_records(connection, 1, ["ur-2000"]),
    "summaries as sent": lambda connection: groups.of_month(connection, 1, "summary", Month(2026, 11).number),
    "states": lambda connection: deliveries.states_of(connection, 1, [5, 6, 7]),
}
STATUS: Final = "status"
CONFIG: Final = {
    "site": {"name": "EXAMPLE-SITE"},
    "sources": {"ce1": {"type": "arc", "path": "accounting.db"}},
    "targets": {"spool": {"type": "directory", "path": "out", "records": "emi-car"}},
}


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(f"sqlite:///{tmp_path_factory.mktemp('plans')}/state/store.db")
    _fill(store)
    yield store
    store.close()


@pytest.fixture(params=["filled", "empty"])
def either(request: pytest.FixtureRequest, on_sqlite: Store, tmp_path: Path) -> Iterator[Store]:
    """A store whose size the planner has, and one whose size it does not have."""
    if request.param == "filled":
        yield on_sqlite
        return
    store = open_store(f"sqlite:///{tmp_path}/state/store.db")
    yield store
    store.close()


@pytest.fixture(scope="module")
def on_postgresql(postgresql: PostgresqlServer) -> Iterator[Store]:
    store = open_store(postgresql.url(postgresql.new_database()))
    _fill(store)
    with store._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("VACUUM FULL")  # another test had the database: its rows left gaps
        connection.exec_driver_sql("VACUUM ANALYZE")  # which a server does by itself as a rule, but not ours
    yield store
    store.close()


def _fill(store: Store) -> None:
    """Thousands of delivered runs, and a few that are open."""
    job = encode_run(make_job(1))
    mark, facts = job.digest, job.facts
    open_states = (State.WAITING, State.IN_FLIGHT, State.HELD)
    ended = [(number, NOVEMBER + 3600 + number) for number in range(1, RUNS + 1)]
    rows: dict[Table, tuple[str, list[tuple[object, ...]]]] = {
        sources: ("id name kind row_digest", [(1, "ce1", "arc", row_digest(1, "ce1", "arc"))]),
        classes: ("id source_id facts digest", [(1, 1, facts, b"1")]),
        targets: (
            "id name kind filter_settings row_digest",
            [
                (number, name, "directory", "{}", row_digest(number, name, "directory", "{}", None))
                for number, name in ((1, "spool"), (2, "other"))
            ],
        ),
        batches: (
            "id uid target_id state format records bytes latest_end created_at closed_at",
            [(number, str(number), 1, 2, "emi-car", 10, 1, NOVEMBER, 0, 0) for number in range(1, 400)],
        ),
        runs: (
            " ".join(runs.c.keys()),
            [
                row_of(encode_run(make_job(number, record_id=f"ur-{number:04}", end=end)), 1, number, 0)
                for number, end in ended
            ],
        ),
        delivery_table: (
            "target_id run_id end_time changed_at batch_id state",
            [
                (target, number, end, 0, 1, State.ACCEPTED if number > 30 else open_states[number % 3])
                for target in (1, 2)
                for number, end in ended
            ],
        ),
        summaries: (
            "target_id kind month key state state_check digest jobs body changed_at",
            [
                (
                    target,
                    "summary",
                    24_000 + number % 40,
                    str(number),
                    State.ACCEPTED,
                    state_check(State.ACCEPTED, target, "summary", 24_000 + number % 40),
                    mark,
                    1,
                    facts,
                    0,
                )
                for target in (1, 2)
                for number in range(1000)
            ],
        ),
    }
    with store.write() as connection:
        for table, (names, listed) in rows.items():
            connection.execute(insert(table), [dict(zip(names.split(), row, strict=True)) for row in listed])
    store.refresh_statistics()


def _asked(store: Store, ask: Callable[[], object]) -> list[tuple[str, Any]]:
    """The statements of a question with their values."""
    asked: list[tuple[str, Any]] = []

    def listen(_connection: object, _cursor: object, sql: str, values: Any, _context: object, many: bool) -> None:
        if sql.split(maxsplit=1)[0] in {"SELECT", "UPDATE", "DELETE"}:
            asked.append((sql, values[0] if many and isinstance(values, list) else values))

    event.listen(store._engine, "before_cursor_execute", listen)
    ask()
    event.remove(store._engine, "before_cursor_execute", listen)
    assert asked
    return asked


def _of(store: Store, name: str) -> Callable[[], object]:
    """A question by its name; whatever it changes is taken back."""
    if name == STATUS:
        config = file.parse(CONFIG, Path("/nowhere/publisher.toml"))
        return lambda: status(store, config, lambda: NOVEMBER)

    def ask() -> None:
        with suppress(_TakenBackError), store.write() as connection:
            (OPEN | ANY)[name](connection)
            raise _TakenBackError

    return ask


class _TakenBackError(Exception):
    """Raised to roll back everything."""


def _steps_of_sqlite(store: Store, asked: list[tuple[str, Any]]) -> list[str]:
    """What is done with each table, in SQLite's words: SCAN is all of a table or an index."""
    with store.read() as connection:
        found = [connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values).all() for sql, values in asked]
    return [row[3] for rows in found for row in rows]


def _steps_of_postgresql(store: Store, asked: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """The nodes of the plans that read tables."""
    nodes: list[dict[str, Any]] = []

    def walk(node: dict[str, Any]) -> None:
        nodes.append(node)
        for inner in node.get("Plans", ()):
            walk(inner)

    with store.read() as connection:
        for sql, values in asked:
            (reported,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).one()
            walk((reported if isinstance(reported, list) else json.loads(reported))[0]["Plan"])
    return nodes


def _whole_on_sqlite(step: str, large: frozenset[str]) -> bool:
    """Whether a step goes through all of a large table, or through all deliveries of a target."""
    words = step.split()
    table = words[1] if len(words) > 1 else ""
    return table in large and (words[0] == "SCAN" or step.endswith("PRIMARY KEY (target_id=?)"))


def _whole_on_postgresql(node: dict[str, Any], large: frozenset[str]) -> bool:
    condition = node.get("Index Cond", "")
    index = node.get("Index Name")
    if index is None:
        return node["Node Type"] == "Seq Scan" and node.get("Relation Name") in large
    return not condition or (index == "deliveries_pkey" and "run_id" not in condition)


QUESTIONS: Final = (*OPEN, *ANY, STATUS)


def _large(name: str) -> frozenset[str]:
    """The tables that must not be read completely. `status` counts the groups of a target: some for each month, not for
    each run."""
    return LARGE - {"groups"} if name == STATUS else LARGE


@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_is_read_as_a_whole_on_sqlite(either: Store, name: str) -> None:
    steps = _steps_of_sqlite(either, _asked(either, _of(either, name)))
    assert steps
    assert not [step for step in steps if _whole_on_sqlite(step, _large(name))], steps


@pytest.mark.parametrize("name", QUESTIONS)
def test_nothing_is_read_as_a_whole_on_postgresql(on_postgresql: Store, name: str) -> None:
    nodes = _steps_of_postgresql(on_postgresql, _asked(on_postgresql, _of(on_postgresql, name)))
    assert any("Index Name" in node for node in nodes)
    whole = [node for node in nodes if _whole_on_postgresql(node, _large(name))]
    assert not whole, whole


@pytest.mark.parametrize("name", OPEN)
def test_open_deliveries_are_found_by_their_index(either: Store, name: str) -> None:
    steps = [step for step in _steps_of_sqlite(either, _asked(either, _of(either, name))) if " deliveries" in step]
    assert steps
    assert all("deliveries_open (target_id=? AND state=?" in step for step in steps), steps


def test_a_page_of_what_waits_begins_where_the_one_before_ended(either: Store) -> None:
    steps = _steps_of_sqlite(either, _asked(either, _of(either, "plan, next page")))
    place = "deliveries_open (target_id=? AND state=? AND (end_time,run_id)>(?,?))"
    assert any(place in step for step in steps), steps


@pytest.mark.parametrize("name", ["fold, sums", "sync counts"])
def test_sums_are_read_from_the_index_alone(either: Store, name: str) -> None:
    steps = [step for step in _steps_of_sqlite(either, _asked(either, _of(either, name))) if " runs" in step]
    assert steps
    assert all("COVERING INDEX runs_by_end (end_time>? AND end_time<?)" in step for step in steps), steps


OF_ALL_TIME: Final[dict[str, Callable[[Connection], object]]] = {
    "jobs by a pattern": lambda connection: newest_runs.count(connection, Newest(None, None, [1, 2])),
    "jobs": lambda connection: jobs.count_in(connection, None, None),
    "classes": lambda connection: classes_ended_in(connection, None, None),
}


@pytest.mark.parametrize("name", OF_ALL_TIME)
def test_what_ended_at_any_time_is_read_from_the_index_alone(either: Store, name: str) -> None:
    """Not from the rows, of which each has a record."""

    def ask() -> None:
        with either.read() as connection:
            OF_ALL_TIME[name](connection)

    steps = [step for step in _steps_of_sqlite(either, _asked(either, ask)) if " runs" in step]
    assert steps == ["SEARCH runs USING COVERING INDEX runs_by_end (end_time>?)"]


GOING: Final[dict[str, Callable[[Connection], int]]] = {
    "classes": purge.drop_unused_classes,
    "batches": lambda connection: purge.purge_messages(connection, Month(2026, 12), 0),
}


@pytest.mark.parametrize("table", GOING)
def test_what_may_refer_to_rows_that_are_removed_is_found_by_an_index(on_sqlite: Store, table: str) -> None:
    steps: list[str] = []

    def listen(connection: Connection, _cursor: object, sql: str, values: Any, _context: object, _many: bool) -> None:
        driver = connection.connection.driver_connection
        if sql.startswith("DELETE") and driver is not None:
            steps.extend(row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {sql}", values))

    indexes = "SELECT name FROM sqlite_schema WHERE type = 'index' ORDER BY name"
    event.listen(on_sqlite._engine, "before_cursor_execute", listen)
    with suppress(_TakenBackError), on_sqlite.write(sorts_on_disk=True) as connection:
        before = connection.exec_driver_sql(indexes).all()
        unused = [
            {"id": number, "source_id": 1, "facts": b"%d" % number, "digest": b"%d" % number} for number in (7, 8)
        ]
        connection.execute(insert(classes), unused)
        gone = GOING[table](connection)
        after = connection.exec_driver_sql(indexes).all()
        raise _TakenBackError
    event.remove(on_sqlite._engine, "before_cursor_execute", listen)
    assert gone > 1
    assert after == before
    assert [step for step in steps if step.startswith("SEARCH") and f" {table} " not in step], steps
    assert not [step for step in steps if _whole_on_sqlite(step, LARGE - {table})], steps


PROBES: Final = ("SELECT versions.run_id \nFROM versions",)
"""Whether there is anything at all, with a limit of one row."""


def test_a_run_with_nothing_to_do_and_status_read_nothing_as_a_whole(tmp_path: Path) -> None:
    source = ListSource("ce1")
    kinds = [RecordReceiver("sgas"), RecordReceiver("apel", "ams"), SummaryReceiver("months")]
    site = Site(tmp_path, [source], kinds)
    source.add(*make_jobs(300))
    site.collect()
    site.publish()
    asked: list[tuple[str, Any]] = []

    def listen(_connection: object, _cursor: object, sql: str, values: Any, _context: object, many: bool) -> None:
        if sql.split(maxsplit=1)[0] in {"SELECT", "UPDATE", "DELETE"} and not sql.startswith(PROBES):
            asked.append((sql, values[0] if many and isinstance(values, list) else values))

    event.listen(Engine, "before_cursor_execute", listen)
    site.collect()
    done = site.publish()
    reported = site.publisher.status()
    event.remove(Engine, "before_cursor_execute", listen)
    assert reported.complete
    assert not any(delivery.sent.accepted for delivery in done.values())
    store = open_store(f"sqlite:///{site.store_file}")
    steps = _steps_of_sqlite(store, asked)
    store.close()
    assert any(" deliveries " in step for step in steps)
    assert not [step for step in steps if _whole_on_sqlite(step, LARGE - {"groups"})], steps


def test_to_count_deliveries_sqlite_sorts_none(either: Store) -> None:
    """Grouped by target and state it would first sort all of them, in memory."""
    with either.read() as connection:
        asked = _asked(either, lambda: integrity.miscounted(connection))
    steps = _steps_of_sqlite(either, [(sql, values) for sql, values in asked if "FROM deliveries" in sql])
    assert steps
    assert [step for step in steps if "GROUP BY" in step or "ORDER BY" in step] == []
