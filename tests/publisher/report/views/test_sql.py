"""`report sql`: the answers of one SELECT, the limits of a statement, and the SQL of a view."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from formats.ending import ending_of
from publisher.api import Publisher
from publisher.errors import UsageError
from publisher.report.output import to_csv, to_json, to_markdown
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make, sql
from publisher.report.views.sql import answered
from publisher.sources.base import Window

SINCE, UNTIL = 0, 1_796_083_200


def view(site: Publisher, name: str, **asked: object) -> Report:
    request = ReportRequest(**{"start": SINCE, "stop": UNTIL, **asked})  # type: ignore[arg-type]
    return make(name, ReportContext(site.store, site.config, UNTIL), request)


def ask(site: Publisher, statement: str, archive: Path | None = None) -> Report:
    return view(site, "sql", statement=statement, archive=archive)


def test_the_sums_are_those_of_totals(every_source: Publisher, tmp_path: Path) -> None:
    every_source.archive(tmp_path / "archive")
    totals = view(every_source, "totals", by=("user",))
    wanted = [(row[0], row[1], row[2], row[6]) for row in totals.rows]
    statement = (
        "SELECT coalesce(user_name, '') AS who, count(*) AS jobs, sum(wall_s) AS wall_s, sum(core_s) / 3600 AS core_h "
        "FROM runs WHERE ended_at < make_timestamp(1796083200000000) GROUP BY 1 ORDER BY 1"
    )
    for archive in (None, tmp_path / "archive"):
        found = ask(every_source, statement, archive)
        assert [column.name for column in found.columns] == ["who", "jobs", "wall_s", "core_h"]
        assert list(found.rows) == wanted


def test_every_kind_of_value_in_every_text(every_source: Publisher) -> None:
    found = ask(
        every_source,
        "SELECT 1 AS a, 1 AS a, [1, 2] AS list, {'x': true} AS struct, true AS yes, NULL AS nothing, "
        "DATE '2026-01-02' AS day, TIMESTAMP '2026-01-02 03:04:05' AS instant, 'x'::BLOB AS bytes, "
        "0.1::DECIMAL(4, 1) AS tenth, 12345678901234567890.123::DECIMAL(38, 3) AS exact, INTERVAL 1 DAY AS span",
    )
    names = [column.name for column in found.columns]
    assert names[:2] == ["a", "a_2"]
    row = dict(zip(names, found.rows[0], strict=True))
    assert (row["list"], row["yes"], row["nothing"], row["bytes"]) == ("[1, 2]", "true", None, "78")
    assert (row["instant"], row["day"], row["tenth"]) == (1_767_323_045, "2026-01-02", 0.1)
    assert '"exact": "12345678901234567890.123"' in to_json(found)
    assert "2026-01-02T03:04:05Z" in to_csv(found)
    assert "2026-01-02" in to_markdown(found)


def test_nothing_is_cut_silently(every_source: Publisher) -> None:
    found = ask(every_source, "SELECT * FROM range(100001)")
    assert len(found.rows) == 100_000
    assert found.notes == ("Only the first 100,000 rows are shown: select fewer, or let SQL sum them up.",)


def test_nothing_runs_for_ever() -> None:
    with duckdb.connect(":memory:") as connection, pytest.raises(UsageError, match=r"took longer than 0.2 seconds"):
        sql.answered(connection, "SELECT count(*) FROM range(1000000000) a, range(1000000000) b", 0.2)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT nonsense FROM runs", "cannot be run: Binder Error"),
        ("SELECT now()", "has a time zone"),
        ("SELECT * FROM entries", "there is no table 'entries'"),
    ],
)
def test_what_cannot_be_answered(every_source: Publisher, statement: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ask(every_source, statement)


def test_an_archive_has_no_deliveries(every_source: Publisher, tmp_path: Path) -> None:
    every_source.archive(tmp_path / "archive")
    assert ask(every_source, "SELECT * FROM deliveries").nothing == "the statement has no rows"
    with pytest.raises(UsageError, match="an archive has no deliveries"):
        ask(every_source, "SELECT * FROM deliveries", tmp_path / "archive")


def test_the_tables_have_these_columns(every_source: Publisher) -> None:
    page = (Path(__file__).parents[4] / "docs/reference/reports/sql.md").read_text()
    for table, columns in sql.TABLES.items():
        found = ask(every_source, f"SELECT * FROM {table} LIMIT 1")
        assert [column.name for column in found.columns] == [*columns]
        assert [name for name in columns if f"`{name}`" not in page] == []


def test_how_jobs_ended_has_the_same_words_for_every_source(every_source: Publisher, tmp_path: Path) -> None:
    """By the facts of each run, in the store and in an archive; one of an earlier version does not know it."""
    every_source.archive(tmp_path / "archive")
    jobs = [run.run.job for run in every_source.jobs(Window())]
    counting = [job for job in jobs if job.has_record or (job.finished and job.system == "dqs")]
    expected = Counter((job.system, ending_of(job.system, job.status, job.end_reason)) for job in counting)
    assert {ending for _, ending in expected} >= {"time-limit", "memory-limit", "cancelled", "completed", None}
    kinds = {name: source.type for name, source in every_source.config.sources.items()}
    for archive in (None, tmp_path / "archive"):
        found = ask(every_source, "SELECT source, ending, count(*) FROM runs GROUP BY 1, 2", archive)
        counted: Counter[tuple[str, object]] = Counter()
        for source, ending, count in found.rows:
            counted[kinds[str(source)], ending] += count  # type: ignore[assignment, operator]
        assert counted == expected
    for file in tmp_path.glob("archive/*/runs.parquet"):
        parquet: Any = pq
        parquet.write_table(parquet.read_table(file, partitioning=None).drop_columns(["ending"]), file)
    assert ask(every_source, "SELECT DISTINCT ending FROM runs", tmp_path / "archive").rows == ((None,),)


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT length(repeat('x', 1500000000))",
        "SELECT list_sum(range(300000000))",
        "SELECT length(string_agg(repeat('x', 100000), '')) FROM range(100000)",
    ],
)
def test_a_value_takes_no_more_memory_than_a_statement_may(statement: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET threads = 1")
        with pytest.raises(UsageError, match="cannot be run"):
            answered(connection, statement)
        assert answered(connection, "SELECT 42")[1] == [(42,)]
    assert resource.getrlimit(resource.RLIMIT_AS) == before
