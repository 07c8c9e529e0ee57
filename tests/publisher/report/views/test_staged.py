"""Volumes that ARC staged, and distinguished names, in totals: as ARC's own accounting has them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from publisher.api import Publisher
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from publisher.report.runs import ReportContext
from publisher.report.views import make
from tests.generators.arc_database import load
from tests.publisher.cli.program import BASE

SINCE, UNTIL = 0, 1_900_000_000
STATS = (
    "SELECT {key}, COUNT(RecordID), SUM(UsedWalltime), SUM(StageInVolume), SUM(StageOutVolume) FROM AAR "
    "JOIN Users ON AAR.UserID = Users.ID JOIN Status ON AAR.StatusID = Status.ID "
    "WHERE Status.Name IN ('completed', 'failed', 'aborted') GROUP BY 1 ORDER BY 1"
)
"""As `arcctl accounting stats` sums them (ARC 6 and 7, AccountingDB.get_stats), of jobs that are over."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Path:
    return load(fixtures / "arc" / "accounting.sql", tmp_path_factory.mktemp("arc") / "accounting.db")


@pytest.fixture(scope="module")
def site(database: Path, fixtures: Path) -> Iterator[Publisher]:
    """ARC's jobs, and others of TORQUE, whose volumes are unknown."""
    config = database.with_name("publisher.toml")
    config.write_text(
        BASE + f'\n[sources.ce1]\ntype = "arc"\npath = "{database}"\n'
        f'[sources.torque]\ntype = "torque"\npath = "{fixtures / "torque" / "accounting"}"\n'
    )
    with Publisher.from_file(config) as publisher:
        publisher.collect()
        yield publisher


def totals(site: Publisher, by: tuple[str, ...] = (), **filters: str) -> Report:
    request = ReportRequest(start=SINCE, stop=UNTIL, by=by, filters=filters)
    return make("totals", ReportContext(site.store, site.config, UNTIL), request)


def columns(found: Report, *names: str) -> list[tuple[object, ...]]:
    places = [[column.name for column in found.columns].index(name) for name in names]
    return [tuple(row[place] for place in places) for row in found.rows]


def test_totals_by_dn_are_those_of_arc(site: Publisher, database: Path) -> None:
    with closing(sqlite3.connect(database)) as connection:
        reported = connection.execute(STATS.format(key="Users.Name")).fetchall()
    assert len(reported) > 1
    assert any(row[3] for row in reported)
    found = columns(totals(site, ("dn",)), "dn", "jobs", "wall_s", "stage_in_bytes", "stage_out_bytes")
    known = [row for row in reported if row[3] >= 0]  # beyond 2^63 bytes, SQL has a negative number
    assert [row for row in found if row[0] in {one[0] for one in known}] == known
    assert len([row for row in found if row[0]]) == len(reported) == len(known) + 1
    (others,) = (row for row in found if not row[0])
    assert others[3:] == (None, None)
    dn = reported[0][0]
    assert columns(totals(site, ("dn",), dn=dn), "dn", "jobs") == [reported[0][:2]]


def test_what_is_shown_of_them(site: Publisher) -> None:
    """In tables and pictures if a run has them, and the number of runs without."""
    mixed, without = totals(site, ("cluster",)), totals(site, ("user",), cluster="batch*")
    assert mixed.shown[-2:] == ("stage_in_bytes", "stage_out_bytes")
    assert [plot.title for plot in mixed.plots] == ["Core hours by cluster", "Staged volumes by cluster"]
    staged = mixed.plots[1]
    unknown = [name for name, value in zip(staged.x, staged.series[0].values, strict=True) if value is None]
    assert unknown == [name for name, volume in columns(mixed, "cluster", "stage_in_bytes") if volume is None]
    assert unknown
    assert any("staged volumes of" in note for note in mixed.notes)
    assert not {"stage_in_bytes", "stage_out_bytes"} & set(without.shown)
    assert len(without.plots) == 1
    assert all(row == (None,) for row in columns(without, "stage_in_bytes"))
