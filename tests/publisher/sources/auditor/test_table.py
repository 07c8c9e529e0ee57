"""Reading AUDITOR's table: the same runs as from the REST interface, and every late or changed record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from publisher.errors import SourceError, SourceFormatError
from publisher.sources.auditor.source import AuditorSource
from publisher.sources.base import Window
from tests.publisher.sources.auditor.auditor_records import NOW, record, settings, text
from tests.publisher.sources.auditor.auditor_server import auditor_server
from tests.publisher.sources.log_reading import Seen, read_on
from tests.publisher.store.server import PASSWORD, PostgresqlServer

TABLE = """
    CREATE TABLE auditor_accounting (
        id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, record_id TEXT NOT NULL UNIQUE, meta JSONB,
        components JSONB, start_time TIMESTAMPTZ NOT NULL, stop_time TIMESTAMPTZ, runtime BIGINT,
        updated_at TIMESTAMPTZ NOT NULL
    )
"""
INSERT = """
    INSERT INTO auditor_accounting (record_id, meta, components, start_time, stop_time, runtime, updated_at)
    VALUES (%s, %s, %s, %s, %s, extract(epoch FROM date_trunc('second', %s::timestamptz - %s::timestamptz)), %s)
"""
DAY = 86_400


class AuditorTable:
    def __init__(self, server: PostgresqlServer, database: str) -> None:
        import psycopg

        self.url = server.url(database)
        self.session = psycopg.connect(self.url, autocommit=True)
        self.session.execute("DROP TABLE IF EXISTS auditor_accounting")
        self.session.execute(TABLE)

    def add(self, *records: dict[str, Any], updated: float = NOW) -> None:
        for each in records:
            times = (each["start_time"], each["stop_time"])
            values = (each["record_id"], json.dumps(each["meta"]), json.dumps(each["components"]), *times, *times[::-1])
            self.session.execute(INSERT, [*values, text(updated)])

    def copy_of(self, other: AuditorTable) -> None:
        """Take the rows of another one, with their ids."""
        columns = "id, record_id, meta::text, components::text, start_time, stop_time, runtime, updated_at"
        rows = other.session.execute(f"SELECT {columns} FROM auditor_accounting").fetchall()
        for row in rows:
            self.session.execute(
                "INSERT INTO auditor_accounting OVERRIDING SYSTEM VALUE VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", row
            )

    def source(self, now: float = NOW, **more: Any) -> AuditorSource:
        return AuditorSource("a", settings(self.url, **more), lambda: now)


@contextmanager
def auditor_table(postgresql: PostgresqlServer, name: str) -> Iterator[AuditorTable]:
    """AUDITOR's table in a database of its own."""
    postgresql.run(f"CREATE DATABASE {name}")
    found = AuditorTable(postgresql, name)
    yield found
    found.session.close()
    postgresql.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def table(postgresql: PostgresqlServer) -> Iterator[AuditorTable]:
    with auditor_table(postgresql, "auditor") as found:
        yield found


def test_the_same_runs_as_from_the_rest_interface(table: AuditorTable) -> None:
    records = [
        record(f"r{number:02d}", NOW - 50_000 + number / 8, wall=number * 1.125, cpu=number) for number in range(40)
    ]
    records += [record("running", None), record("own", publisher="usage-publisher"), record("none", 0, start=NOW - 9)]
    table.add(*records)
    with auditor_server() as auditor:
        auditor.add(*records)
        rest = AuditorSource("a", settings(auditor.url), lambda: NOW)
        by_rest, by_table = read_on(rest, Seen()), read_on(table.source(), Seen())
    assert by_table.jobs == by_rest.jobs
    assert len(by_table.jobs) == 40
    assert [each.reason for each in by_table.unreadable] == [each.reason for each in by_rest.unreadable]


def test_late_and_changed_records_are_met_however_late(table: AuditorTable) -> None:
    table.add(record("a", NOW - 40 * DAY), record("b", NOW - 30 * DAY), updated=NOW - 20 * DAY)
    seen = read_on(table.source(), Seen())
    table.add(record("late", NOW - 90 * DAY), updated=NOW + 5)
    table.session.execute(
        "UPDATE auditor_accounting SET stop_time = stop_time + interval '1 hour', runtime = runtime + 3600, "
        "updated_at = %s WHERE record_id = 'a'",
        [text(NOW + 9)],
    )
    again = read_on(table.source(NOW + 60), Seen(cursor=seen.cursor))
    assert sorted((str(job.global_id), job.wall_ms) for job in again.jobs.values()) == [
        ("a", 7_200_000),
        ("b", 3_600_000),  # as late as the first: read again, since transactions end in another order
        ("late", 3_600_000),
    ]


def test_a_transaction_that_ends_later_than_others_is_met(table: AuditorTable) -> None:
    table.add(record("a"), updated=NOW)
    seen = read_on(table.source(), Seen())
    table.add(record("slow"), updated=NOW - 600)
    assert len(read_on(table.source(NOW + 60), seen).jobs) == 2


def test_a_window(table: AuditorTable) -> None:
    table.add(record("a", NOW - 40 * DAY), record("b", NOW - 30 * DAY))
    (page, end) = table.source().pages({"position": 1}, Window(NOW - 31 * DAY, None))
    assert [job.global_id for job in page.jobs] == ["b"]
    assert end.at_end
    assert end.cursor == {"position": 1}


def test_rows_that_nobody_can_have_written_through_auditor(table: AuditorTable) -> None:
    huge = {**record("huge"), "meta": {"x": ["y" * 1_100_000]}}
    table.add(huge, record("eternal"), record("old"), record("good"), {**record("nulls"), "meta": None})
    table.session.execute("UPDATE auditor_accounting SET stop_time = 'infinity' WHERE record_id = 'eternal'")
    table.session.execute("UPDATE auditor_accounting SET start_time = '0044-03-15 BC' WHERE record_id = 'old'")
    table.session.execute("UPDATE auditor_accounting SET components = NULL WHERE record_id = 'nulls'")
    seen = read_on(table.source(), Seen())
    assert [job.global_id for job in seen.jobs.values()] == ["good"]
    assert {each.raw: each.reason for each in seen.unreadable} == {
        b"huge": "meta or components have more than 1000000 characters",
        b"eternal": "start_time or stop_time is before 1970 or after the year 9999",
        b"old": "start_time or stop_time is before 1970 or after the year 9999",
        b"nulls": "components is not a list",
    }


def test_archived_records_are_noticed(table: AuditorTable) -> None:
    table.add(record("a", NOW - DAY))
    seen = read_on(table.source(), Seen())
    table.session.execute("DELETE FROM auditor_accounting")
    table.add(record("b", NOW + 40 * DAY), updated=NOW + 40 * DAY)
    assert [each.unread_from for each in read_on(table.source(NOW + 41 * DAY), seen).unreadable] == [NOW - DAY]


def test_what_is_wrong_is_said(table: AuditorTable, postgresql: PostgresqlServer) -> None:
    other = AuditorSource("a", settings(postgresql.url("postgres")), lambda: NOW)
    with pytest.raises(SourceFormatError, match="auditor_accounting") as caught:
        read_on(other, Seen())
    assert "Give the URL of AUDITOR's database" in caught.value.hint
    table.session.execute("GRANT CONNECT ON DATABASE auditor TO guarded")
    shown = f"postgresql://guarded:{PASSWORD}@/auditor?host={postgresql.sockets}"
    refused = AuditorSource("a", settings(shown), lambda: NOW)
    with pytest.raises(SourceError, match="permission denied") as denied:
        read_on(refused, Seen())
    assert PASSWORD not in str(denied.value)
    assert "GRANT SELECT" in denied.value.hint
    assert [finding.level for finding in refused.check()] == ["red"]
    wrong = AuditorSource("a", settings(shown.replace(PASSWORD, "wrong")), lambda: NOW)
    with pytest.raises(SourceError) as caught_wrong:
        read_on(wrong, Seen())
    assert "Check user and password" in caught_wrong.value.hint
