"""Months that changed after a date, with the sums before and now: in reports, and for each target."""

from __future__ import annotations

from pathlib import Path

import pytest

from publisher.errors import UsageError
from publisher.report.request import ReportRequest
from tests.publisher.receivers import RecordReceiver
from tests.publisher.report.closing_site import changed
from tests.publisher.report.torque_site import table
from tests.publisher.site import NOVEMBER, NOW, OCTOBER, ListSource, Site, make_job

pytestmark = pytest.mark.either_store
SHOWN = ("month", "target", "late", "changed", "jobs_before", "jobs", "wall_before_s", "wall_s")


def test_what_changed_after_a_deadline(tmp_path: Path) -> None:
    source = ListSource("ce1")
    first = [make_job(number, end=OCTOBER + 3600 * number) for number in (1, 2, 3)]
    source.add(*first, make_job(4, end=OCTOBER + 9, vo="cms"))
    site = Site(tmp_path, [source], [RecordReceiver("neic", "sgas")])
    site.now = NOVEMBER + 60
    site.collect()
    site.publish()
    since = site.now + 3600
    site.now = NOW
    report = site.publisher.view("late", ReportRequest(start=since, stop=NOW))
    assert report.nothing == "no month that had begun before 2026-11-01T01:01:00Z has changed since"
    source.add(
        changed(first[0], wall_ms=50_000),
        changed(first[1], start=NOVEMBER, end=NOVEMBER + 100, submit=NOVEMBER),  # now of another month
        make_job(5, end=OCTOBER + 99, wall_s=7),
        make_job(6, end=since + 5),  # ended after it: no change of what was known
    )
    site.collect()
    report = site.publisher.view("late", ReportRequest(start=since, stop=NOW))
    expected = [("2026-10", 1, 2, 4, 4, 400.0, 257.0), ("2026-11", 0, 1, 0, 1, 0.0, 100.0)]
    assert table(report, *SHOWN) == [
        (month, target, *values) for month, *values in expected for target in ("(reports)", "neic")
    ]  # fmt: skip
    with pytest.raises(UsageError, match="must be past"):
        site.publisher.view("late", ReportRequest(start=NOW, stop=NOW + 1))
