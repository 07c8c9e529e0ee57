"""An archive says what the store says: every view, every filter, month by month."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from formats.calendar import Month
from publisher.api import Publisher
from publisher.errors import PublisherError, UsageError
from publisher.report.archive import COLUMNS
from publisher.report.archive_export import SCHEMA, Written, write_month
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.tables import EntryReading
from publisher.report.views import make
from tests.publisher.cli.program import BASE, Program

SINCE, NOVEMBER, UNTIL = 1_790_812_800, 1_793_491_200, 1_796_083_200
"""October and November 2026."""


@pytest.fixture(scope="module")
def publisher(every_source: Publisher) -> Publisher:
    return every_source


@pytest.fixture(scope="module")
def archive(publisher: Publisher, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive") / "archive"
    publisher.archive(folder)
    return folder


@pytest.mark.parametrize(
    ("view", "asked"),
    [
        ("utilization", {"bins": 50}),
        ("utilization", {"bins": 10, "by": ("user",), "filters": {"queue": "*q*"}}),
        ("totals", {"by": ("host", "slots")}),
        ("totals", {"by": ("project", "month"), "filters": {"complex": "*=*"}}),
        ("totals", {"by": ("pe",), "interval": "started", "filters": {"job": "*1*"}}),
        ("waiting", {"by": ("queue",), "filters": {"status": "*ed"}}),
        ("occupation", {"by": ("cluster",), "filters": {"status": "*ed"}}),
        ("paths", {"filters": {"status": "*ed"}}),
    ],
)
def test_views_of_an_archive(publisher: Publisher, archive: Path, view: str, asked: dict[str, object]) -> None:
    context = ReportContext(publisher.store, publisher.config, UNTIL)
    found = [
        make(view, context, ReportRequest(start=SINCE, stop=UNTIL, archive=read, **asked))  # type: ignore[arg-type]
        for read in (None, archive)
    ]
    assert found[0].rows == found[1].rows
    assert found[0].rows
    assert found[0].facts == found[1].facts


def test_an_interval_beyond_an_archive_says_what_it_has(publisher: Publisher, archive: Path) -> None:
    context = ReportContext(None, publisher.config, UNTIL)
    made = make("totals", context, ReportRequest(start=UNTIL + 10**9, stop=UNTIL + 2 * 10**9, archive=archive))
    assert made.nothing == "no job is in the interval; the archive has jobs that ended from 2001-09 to 2027-01"


def test_every_column_comes_back(publisher: Publisher, archive: Path) -> None:
    context = ReportContext(publisher.store, publisher.config, UNTIL)
    found = []
    for read in (None, archive):
        with context.tables(ReportRequest(start=SINCE, stop=UNTIL, archive=read), EntryReading(COLUMNS)) as connection:
            found.append(connection.execute("SELECT * FROM entries ORDER BY ALL").fetchall())
    assert found[0] == found[1]
    assert len(found[0]) > 100


def test_months_are_written_anew(publisher: Publisher, archive: Path, tmp_path: Path) -> None:
    november = archive / "month=2026-11" / "runs.parquet"
    before = november.read_bytes()
    reported = publisher.archive(archive, NOVEMBER, UNTIL)
    assert list(reported) == ["2026-11"]
    assert november.read_bytes() == before
    assert sorted(file.name for file in november.parent.iterdir()) == ["runs.parquet"]
    assert publisher.archive(tmp_path / "other", 0, 86_400) == {}


def test_a_purged_store_takes_nothing_out_of_an_archive(tmp_path: Path) -> None:
    """A month of which the store has fewer jobs than the archive is left as it is, unless somebody says otherwise."""
    month = Month(2026, 11)
    assert write_month(invented(5), month, tmp_path) == Written(5)
    assert write_month(invented(3), month, tmp_path) == Written(5, refused=3)
    assert write_month(invented(0), month, tmp_path) == Written(5, refused=0)
    assert write_month(invented(3), month, tmp_path, shrink=True) == Written(3)
    assert sorted(path.name for path in (tmp_path / "month=2026-11").iterdir()) == ["runs.parquet"]
    assert write_month(invented(0), month, tmp_path, shrink=True) == Written(0)
    assert list(tmp_path.iterdir()) == []


def invented(number: int) -> list[Any]:
    """A number of equal runs."""
    rows = [{"start": SINCE, "stop": SINCE, "end": SINCE, "status": "completed"}] * number
    return pa.Table.from_pylist(rows, SCHEMA).to_batches()


def test_the_commands(publisher: Publisher, tmp_path: Path) -> None:
    """Written by one command, read by another, which needs no store."""
    site = Program(tmp_path, BASE)
    assert publisher.config.file is not None
    months = ("--since", "2026-11", "--until", "2026-12")
    reported = site("--config", publisher.config.file, "archive", "archive", *months, "--json").ok().object
    assert reported["runs"] == reported["months"]["2026-11"] > 10
    assert (site.folder / "archive" / "month=2026-11" / "runs.parquet").stat().st_mode & 0o077 == 0
    asked = (*months, "--json")
    assert site("report", "totals", "--archive", "archive", *asked).ok().object["all"]["jobs"] == reported["runs"]


def test_what_is_not_an_archive(publisher: Publisher, tmp_path: Path) -> None:
    def asked(archive: Path) -> None:
        request = ReportRequest(start=SINCE, stop=UNTIL, archive=archive)
        make("totals", ReportContext(None, publisher.config, UNTIL), request)

    with pytest.raises(UsageError, match="is not an archive"):
        asked(tmp_path)
    folder = tmp_path / "month=2026-10"
    folder.mkdir()
    (folder / "runs.parquet").write_bytes(b"PAR1 no Parquet PAR1")
    with pytest.raises(UsageError, match="cannot be read"):
        asked(tmp_path)


@pytest.mark.parametrize("what", ["damaged", "of another program", "no Parquet"])
def test_a_month_that_is_none_is_neither_read_nor_replaced(tmp_path: Path, what: str) -> None:
    month = Month(2026, 10)
    write_month(invented(5), month, tmp_path)
    file = tmp_path / "month=2026-10" / "runs.parquet"
    content = bytearray(file.read_bytes())
    if what == "damaged":
        content[-20] ^= 1
    elif what == "of another program":
        write: Any = pq.write_table
        write(pa.table({"a": [1] * 9}), file)
        content = bytearray(file.read_bytes())
    else:
        content = bytearray(b"rubbish" * 20)
    file.write_bytes(content)
    with pytest.raises(PublisherError, match="is damaged, or of another program"):
        write_month(invented(9), month, tmp_path)
    assert file.read_bytes() == content


@pytest.mark.parametrize("where", range(20))
def test_a_bit_that_changed_makes_no_other_number(publisher: Publisher, tmp_path: Path, where: int) -> None:
    """Before, one in two of such bits was in a sum."""
    folder = tmp_path / "archive"
    publisher.archive(folder, NOVEMBER, UNTIL)
    file = folder / "month=2026-11" / "runs.parquet"
    request = ReportRequest(start=NOVEMBER, stop=UNTIL, archive=folder, by=("user",))
    context = ReportContext(None, publisher.config, UNTIL)
    before = make("totals", context, request).rows
    content = bytearray(file.read_bytes())
    content[len(content) * where // 20] ^= 1 << where % 8
    file.write_bytes(content)
    try:
        after = make("totals", context, request).rows  # the bit is of a column that the view does not read
    except UsageError as error:
        assert "cannot be read" in str(error)  # noqa: PT017 - either is right
    else:
        assert after == before


def test_what_killed_runs_left_is_removed_after_a_day(tmp_path: Path) -> None:
    month = Month(2026, 10)
    write_month(invented(1), month, tmp_path)
    folder = tmp_path / "month=2026-10"
    for age_s in (0, 90_000):
        left = folder / f"runs.parquet.{age_s}.partial"
        left.write_bytes(b"")
        os.utime(left, (time.time() - age_s,) * 2)
    write_month(invented(2), month, tmp_path)
    assert {path.name for path in folder.iterdir()} == {"runs.parquet", "runs.parquet.0.partial"}
