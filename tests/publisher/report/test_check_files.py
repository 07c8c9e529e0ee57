"""check: files that only reports read are tested too, so that a report or a `collect` does not fail first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from publisher.config import file as config_file
from publisher.report.check_files import check_files
from tests.publisher.site import NOVEMBER

ROW = "job,start,joules\n1,2026-11-01T00:00:00Z,5\n"
FILE = {"type": "csv", "path": "x"}
ALLOCATIONS = "user,amount,since,until\nada,5,2026-11-01,2026-12-01\n"


def findings(folder: Path, content: str | None, **table: Any) -> list[tuple[str, str]]:
    if content is not None:
        (folder / "x").write_text(content, encoding="utf-8")
    config = config_file.parse({"site": {"name": "S"}, **table}, folder / "publisher.toml")
    return [(one.level, one.message.replace(f"{folder}/", "")) for one in check_files(config, NOVEMBER)]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, ("red", "x cannot be read: No such file or directory")),
        ("start,g_per_kwh\n2026-10-25T02:00,3\n", ("red", "x, line 2: '2026-10-25T02:00' has no zone")),
        ("start,g_per_kwh\n2026-10-25T02:00Z,3\n", ("green", "x: 1 hour, the last is 2026-10-25T02:00:00Z")),
        ("start,g_per_kwh\n", ("green", "x: 0 hours")),
        (f'start,g_per_kwh\n2026-10-25T02:00Z,"{"3" * 140_000}', ("red", "x cannot be read: ")),
        ('start,g_per_kwh,by\n2026-10-25T02:00Z,3,"me\n2026-10-25T03:00Z,4,me\n', ("red", "x cannot be read: unexp")),
        ("start,g_per_kwh\n2026-10-25T02:00Z,3,5\n", ("red", "x, line 2: it has more cells than the first line has")),
        ("start,g_per_kwh\n2026-10-25T02:00Z,3,\n,,\n", ("green", "x: 1 hour")),
        ("start,g_per_kwh,g_per_kwh\n2026-10-25T02:00Z,3,4\n", ("red", "x has two columns g_per_kwh")),
    ],
)
def test_carbon(tmp_path: Path, content: str | None, found: tuple[str, str]) -> None:
    ((level, text),) = findings(tmp_path, content, energy={"carbon_file": "x"})
    assert level == found[0]
    assert found[1] in text


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, ("red", "x cannot be read: No such file or directory")),
        ("job;start;joules\n", ("red", "x cannot be read: it has no column job")),
        (ROW, ("green", "x can be read")),
    ],
)
def test_measured_energy(tmp_path: Path, content: str | None, found: tuple[str, str]) -> None:
    ((level, text),) = findings(tmp_path, content, energy={"measured": [FILE]})
    assert level == found[0]
    assert found[1] in text


def test_the_database_of_ceems(tmp_path: Path) -> None:
    table = {"energy": {"measured": [{"type": "ceems", "path": "x"}]}}
    assert findings(tmp_path, ROW, **table) == [("red", "x cannot be read: file is not a database")]
    (tmp_path / "x").unlink()
    with closing(sqlite3.connect(tmp_path / "x")) as database:
        database.execute("CREATE TABLE other (id)")
    assert findings(tmp_path, None, **table) == [("red", "x cannot be read: no such table: units")]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, ("red", "x cannot be read: No such file or directory")),
        (f"{ALLOCATIONS}ada,6,2026-11-30,2026-12-05\n", ("red", "two allocations overlap")),
        (ALLOCATIONS, ("green", "1 allocation can be read")),
        (f'{ALLOCATIONS}"bob,5,2026-11-01,2026-12-01\n', ("red", "x cannot be read: unexpected end of data")),
    ],
)
def test_allocations(tmp_path: Path, content: str | None, found: tuple[str, str]) -> None:
    ((level, text),) = findings(tmp_path, content, allocation_files=[FILE])
    assert level == found[0]
    assert found[1] in text
