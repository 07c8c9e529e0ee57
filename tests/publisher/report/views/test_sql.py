"""`report sql`: the answers of one SELECT, the limits of a statement, and the SQL of a view."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import duckdb
import pytest

from formats.ending import ending_of
from publisher.api import Publisher
from publisher.errors import OutputError, UsageError
from publisher.page import html
from publisher.report.output import caption, heading, to_csv, to_json, to_markdown, to_prometheus
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make, sql
from publisher.report.views.sql import answered
from publisher.sources.base import Window
from tests.faults.full_disk import files_no_larger_than
from tests.publisher.cli.program import COMMAND
from tests.publisher.report.older_archive import make_older

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
    assert [column.name for column in ask(every_source, "SELECT 1 a, 2 a, 3 a_2, 4 a").columns] == [
        "a", "a_3", "a_2", "a_4"
    ]  # fmt: skip
    row = dict(zip(names, found.rows[0], strict=True))
    assert (row["list"], row["yes"], row["nothing"], row["bytes"]) == ("[1, 2]", "true", None, "78")
    assert (row["instant"], row["day"], row["tenth"]) == (1_767_323_045, "2026-01-02", 0.1)
    assert '"exact": "12345678901234567890.123"' in to_json(found)
    assert "2026-01-02T03:04:05Z" in to_csv(found)
    assert "2026-01-02" in to_markdown(found)


def test_numbers_that_are_none_are_texts(every_source: Publisher) -> None:
    """In every format: as numbers, tables cannot round them, and JSON has none."""
    statement = "SELECT 'nan'::DOUBLE AS a, 'inf'::FLOAT AS b, '-inf'::DOUBLE AS c, 1.5::DOUBLE AS d, ['nan'::DOUBLE]"
    found = ask(every_source, statement)
    assert found.rows == (("NaN", "Infinity", "-Infinity", 1.5, '["NaN"]'),)
    assert "NaN | Infinity | -Infinity | 1.50" in to_markdown(found)
    assert "NaN,Infinity,-Infinity,1.5000" in to_csv(found)
    assert '"b": "Infinity"' in to_json(found)
    assert html.table(found).rows[0][:4] == ("NaN", "Infinity", "-Infinity", "1.50")
    ends = ask(every_source, "SELECT 'infinity'::TIMESTAMP, '-infinity'::TIMESTAMP, TIMESTAMP '9999-12-31 23:59:59'")
    assert ends.rows == (("Infinity", "-Infinity", 253_402_300_799),)
    assert ask(every_source, "SELECT MAP {DATE '2026-01-02': 1}, [1.5::DECIMAL(38, 2)]").rows == (
        ('{"2026-01-02": 1}', '["1.50"]'),
    )


def test_texts_and_instants_are_labels_of_prometheus(every_source: Publisher) -> None:
    statement = (
        "SELECT who AS user_name, 7 AS \"2 x\", NULL AS nothing, TIMESTAMP '2026-01-02 03:04:05' AS at, count(*) "
        "FROM (SELECT unnest(['alice', 'bob']) AS who) GROUP BY 1 ORDER BY 1"
    )
    lines = [line for line in to_prometheus(ask(every_source, statement)).splitlines() if line[:1] != "#"]
    labels = 'at="2026-01-02T03:04:05Z",user_name="{}"'
    assert [line for line in lines if "count_star" in line] == [
        f"usage_publisher_report_sql_count_star__{{{labels.format(name)}}} 1.0" for name in ("alice", "bob")
    ]
    assert f"usage_publisher_report_sql_column_2_x{{{labels.format('bob')}}} 7.0" in lines


def test_times_do_not_depend_on_the_time_zone_of_the_host(every_source: Publisher) -> None:
    """DuckDB takes that of the host for now(), and where it compares a timestamp with one that has a time zone."""
    statement = (
        "SELECT TIMESTAMP '2026-01-02 00:00:00' = TIMESTAMPTZ '2026-01-02 00:00:00+00' AS equal, "
        "CAST(now() AS VARCHAR) LIKE '%+00' AS now, CAST(TIMESTAMPTZ '2026-01-02 00:00:00+00' AS DATE) AS day"
    )
    command = [*COMMAND, "--config", str(every_source.config.file), "report", "sql", statement, "--format", "csv"]
    for zone in ("Asia/Tokyo", "America/New_York"):
        own = {**os.environ, "TZ": zone}
        assert subprocess.run(command, env=own, check=True, capture_output=True, text=True).stdout == (
            "equal,now,day\ntrue,true,2026-01-02\n"
        )


def test_nothing_is_cut_silently(every_source: Publisher) -> None:
    found = ask(every_source, "SELECT * FROM range(100001)")
    assert len(found.rows) == 100_000
    assert found.notes == ("Only the first 100,000 rows are shown: select fewer, or let SQL sum them up.",)


def test_nothing_runs_for_ever() -> None:
    """Not even one call of a function, which DuckDB does not interrupt."""
    before = children()
    for statement in (
        "SELECT max(hash(range)) FROM range(1000000000000)",
        "SELECT levenshtein(repeat('ab', 500000), repeat('ba', 500000))",
    ):
        began = time.monotonic()
        with pytest.raises(UsageError, match=r"took longer than 0.5 seconds"):
            sql.answer_of_child(partial(duckdb.connect, ":memory:"), statement, 0.5)
        assert time.monotonic() - began < 30
        assert children() <= before


@pytest.fixture
def hangs_up() -> Iterator[None]:
    """Where the tests ignore SIGHUP, as with nohup, their children would too."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangs_up")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_statement_ends_with_the_program(every_source: Publisher, tmp_path: Path, stop: signal.Signals) -> None:
    statement = "SELECT levenshtein(repeat('ab', 500000), repeat('ba', 500000))"
    command = [*COMMAND, "--config", str(every_source.config.file), "report", "sql", statement]
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=own, stderr=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        while not (running := children(program.pid)) or not all(map(is_at_work, running)):
            assert program.poll() is None
        program.send_signal(stop)
        program.communicate()
    assert program.returncode == (-stop if stop == signal.SIGKILL else 130)
    assert stop == signal.SIGKILL or not any(tmp_path.iterdir())
    while any(map(is_at_work, running)):
        pass


def test_a_statement_goes_on_where_sighup_is_ignored(every_source: Publisher) -> None:
    """As with nohup."""
    statement = "SELECT levenshtein(repeat('ab', 10000), repeat('ba', 10000)) AS far"
    command = [*COMMAND, "--config", str(every_source.config.file), "report", "sql", statement, "--format", "csv"]
    ignored = ["/bin/sh", "-c", "trap '' HUP; exec \"$@\"", "sh", *command]
    with subprocess.Popen(ignored, stdout=subprocess.PIPE, text=True) as program:
        while not (running := children(program.pid)) or not all(map(is_at_work, running)):
            assert program.poll() is None
        program.send_signal(signal.SIGHUP)
        shown, _ = program.communicate()
    assert (program.returncode, shown.split()[0]) == (0, "far")


def children(parent: int = 0) -> set[int]:
    """The processes that this one, or another, has forked."""
    number = parent or os.getpid()
    found: set[int] = set()
    for file in Path(f"/proc/{number}/task").glob("*/children"):
        with suppress(OSError):  # the thread has ended
            found |= {int(child) for child in file.read_text().split()}
    return found


def is_at_work(process: int) -> bool:
    """Whether a process has used CPU time for a while and has not ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] not in "ZX" and int(words[11]) > 20


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("SELECT nonsense FROM runs", "cannot be run: Binder Error"),
        ("SELECT now()", "has a time zone"),
        ("SELECT * FROM entries", "there is no table 'entries'"),
        ("SELECT * FROM main.runs", "the table runs is named with 'main'"),
        ("SELECT * FROM other.main.runs", "the table runs is named with"),
        ("SELECT * FROM main.entries", "there is no table 'entries'"),
    ],
)
def test_what_cannot_be_answered(every_source: Publisher, statement: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        ask(every_source, statement)


def test_numbers_of_any_size_stay_exact(every_source: Publisher) -> None:
    found = ask(
        every_source, f"SELECT {2**120}::HUGEINT AS h, CAST({-(2**63)} AS BIGINT) AS b, 1.10::DECIMAL(38, 2) AS d"
    )
    assert found.rows == ((2**120, -(2**63), 1.1),)


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
    make_older(tmp_path / "archive", "ending")
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
        answers: list[Any] = []
        with pytest.raises(UsageError, match="cannot be run"):
            answered(connection, statement, answers.append)
        answered(connection, "SELECT 42", answers.append)
        assert answers[-1].rows == [[42]]
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_no_room_for_temporary_files_is_said_so(every_source: Publisher) -> None:
    """Not as standard output, nor as a fault of the statement."""
    sorts = (
        "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS n FROM range(4000000) t(i)) WHERE n > 3"
    )
    asked = "Free space in .*, or set TMPDIR"
    with files_no_larger_than(1 << 20), pytest.raises(OutputError, match=f"no room for what the report sorts.*{asked}"):
        ask(every_source, sorts)
    with files_no_larger_than(100), pytest.raises(OutputError, match=f"to {gettempdir()}: File too large. {asked}"):
        ask(every_source, "SELECT * FROM deliveries")


def test_the_heading_has_no_beginning(every_source: Publisher) -> None:
    assert caption(ask(every_source, "SELECT 1")) == "SQL, until 2026-12-01, UTC"


def test_headings_are_the_names_of_the_statement(every_source: Publisher) -> None:
    found = ask(every_source, 'SELECT 1 AS user_name, 2 AS "wall_s [x]"')
    assert [heading(column) for column in found.columns] == ["user_name", "wall_s [x]"]
    command = [*COMMAND, "--config", str(every_source.config.file), "report", "sql"]
    shown = subprocess.run([*command, 'SELECT 1 AS "[red]x_y"'], check=True, capture_output=True, text=True).stdout
    title, *lines = shown.splitlines()
    assert title.startswith("SQL, until ")
    assert title.endswith(", UTC")  # not broken at the edge of a narrow table
    assert "[red]x_y" in lines[1]
