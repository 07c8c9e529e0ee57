"""Allocations: parts of jobs across their borders, pace, and the day on which they run dry."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from publisher.errors import ConfigError, UsageError
from publisher.report.report import Report
from publisher.report.request import ReportRequest
from tests.publisher.report.torque_site import table
from tests.publisher.site import NOVEMBER, ListSource, Site, make_job

DAY = 86_400
HOUR = 3600
NEVER = ReportRequest(start=0, stop=1)


def text(instant: int) -> str:
    return f"{datetime.fromtimestamp(instant, UTC):%Y-%m-%dT%H:%M:%SZ}"


def allocation(name: str, since: int, until: int, amount: int = 100, **holder: Any) -> dict[str, Any]:
    return {"name": name, "since": text(since), "until": text(until), "amount": amount, **(holder or {"user": "ada"})}


def allocated(folder: Path, *allocations: dict[str, Any]) -> Site:
    source = ListSource("ce1")
    source.add(
        make_job(1, local_user="ada", end=NOVEMBER + 2 * HOUR, wall_s=4 * HOUR, slots=3),  # half of it is of October
        make_job(2, local_user="ada", end=NOVEMBER + 10 * DAY, wall_s=10 * HOUR, slots=2, gpus=1),
        make_job(3, local_user="bob", end=NOVEMBER + 10 * DAY, wall_s=7 * HOUR, slots=1),
    )
    site = Site(folder, [source], [])
    site.table["allocations"] = list(allocations)
    site.now = NOVEMBER + 10 * DAY + 60
    site.collect()
    return site


def shown(site: Site) -> Report:
    return site.publisher.view("allocations", NEVER)


def test_a_job_across_the_border_counts_by_its_parts(tmp_path: Path) -> None:
    site = allocated(
        tmp_path,
        allocation("October", NOVEMBER - 30 * DAY, NOVEMBER),
        allocation("November", NOVEMBER, NOVEMBER + 30 * DAY, 52),
        allocation("GPUs", NOVEMBER, NOVEMBER + 30 * DAY, 5, user="ada", resource="gpus"),
    )
    report = shown(site)
    assert table(report, "allocation", "holder", "used_h", "left_h", "used", "dry") == [
        ("October", "user ada", 6.0, 94.0, 0.06, None),
        ("November", "user ada", 26.0, 26.0, 0.5, "2026-11-21"),
        ("GPUs", "user ada", 10.0, -5.0, 2.0, "used up"),
    ]
    paces = [pace for (pace,) in table(report, "pace_h_per_day")]
    assert paces[1] == pytest.approx(26 / (10 + 60 / DAY))
    assert report.notes[-1] == "1 job of the last 30 days, 7.0 core h, have no allocation."


def test_overlapping_allocations_are_refused(tmp_path: Path) -> None:
    first, second = (
        allocation(name, NOVEMBER + start * DAY, NOVEMBER + 9 * DAY) for start, name in ((0, "a"), (5, "b"))
    )
    with pytest.raises(ConfigError, match=r"'b' begins at 2026-11-06T00:00:00Z, before 'a' ends .* cores of user ada"):
        allocated(tmp_path, first, second)


def test_wrong_allocations(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="one of project, account, and user"):
        allocated(tmp_path, allocation("a", 0, DAY, user="ada", project="thesis"))
    with pytest.raises(ConfigError, match="since must be before until"):
        allocated(tmp_path, allocation("a", DAY, DAY))
    with pytest.raises(UsageError, match="has no allocation"):
        shown(allocated(tmp_path))
