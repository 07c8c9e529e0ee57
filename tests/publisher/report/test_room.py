"""No room for what a report sorts: an error that says where room is needed, not a fault of the program."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from formats.calendar import Month
from publisher.config.schema import Config
from publisher.errors import OutputError, UsageError
from publisher.report import tables
from publisher.report.archive_export import write_month
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import archive_errors, spilling
from publisher.report.views import waiting
from tests.bench.inputs import FIRST, MONTH_S
from tests.bench.reporting import invented
from tests.faults.full_disk import files_no_larger_than

SORTED = (
    "SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY hash(i)) AS n FROM range(4000000) t(i)) WHERE n % 7 = 3"
)


def test_a_full_disk_while_a_report_sorts(tmp_path: Path) -> None:
    folder = tmp_path / "usage-publisher-report-x"
    folder.mkdir()
    with (
        pytest.raises(OutputError, match="no room for what the report sorts") as caught,
        files_no_larger_than(1 << 20),
        spilling(str(folder)),
        duckdb.connect(":memory:", config={"memory_limit": "32MB", "temp_directory": str(folder)}) as connection,
        archive_errors(tmp_path / "archive"),
    ):
        connection.execute(SORTED).fetchall()
    assert "TMPDIR" in caught.value.hint
    assert str(tmp_path) in caught.value.hint


def test_waiting_times_of_many_jobs_in_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two threads, or where all waiting times are in memory, the limit is not enough."""
    write_month(invented(100_000), Month(2026, 10), tmp_path)
    monkeypatch.setattr(tables, "_MEMORY", "16MB")
    config = Config.model_validate({"site": {"name": "EXAMPLE-SITE"}, "store": {"url": "sqlite:///store.db"}})
    request = ReportRequest(start=FIRST, stop=FIRST + MONTH_S, archive=tmp_path, by=("user",))
    assert len(waiting.view(ReportContext(None, config, FIRST + MONTH_S), request).rows) == 200


def test_other_errors_are_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"), spilling(str(tmp_path)), archive_errors(tmp_path / "a"):
        duckdb.connect(":memory:").execute("SELECT * FROM read_parquet('/nowhere/x.parquet')")
