"""A wrong time zone of a source is recognised by the ends of jobs that both sides have; those that fit are named."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from publisher.migrate.wrong_zone import EndsByDay, OtherEnds, WrongZone, wrong_zones

SUMMER, WINTER = "2026-09-10 12:34:56", "2026-11-10 12:34:56"
WITHOUT_SUMMER_TIME = "Africa/Johannesburg"
"""As Europe/Oslo in summer."""


def instant(local: str, zone: str) -> int:
    return int(datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone)).timestamp())


def moved(set_zone: str, right_zone: str, *times: str) -> list[OtherEnds]:
    """Jobs that the log has at these local times, read in the zone that was set; sent with the right one."""
    return [OtherEnds("lrms", instant(time, set_zone), (instant(time, right_zone),)) for time in times]


def found(others: Iterable[OtherEnds], zone: str, *same: int) -> list[WrongZone]:
    ends = EndsByDay()
    for end in same:
        ends.add("lrms", end)
    return wrong_zones(others, ends, {"lrms": zone})


@pytest.mark.parametrize(
    ("set_zone", "right_zone", "hours", "others"),
    [
        ("UTC", "Europe/Oslo", (2, 1), {"Africa/Lagos", "Europe/Helsinki", "UTC"}),
        ("Europe/Oslo", "UTC", (-2, -1), {"Europe/London", "Africa/Lagos"}),
        ("Europe/Oslo", "America/Denver", (-8,), {"America/Phoenix", "UTC"}),
        ("UTC", "Asia/Kolkata", (5.5,), {"Asia/Karachi", "UTC"}),
    ],
)
def test_the_zone_that_fits_is_named(
    set_zone: str, right_zone: str, hours: tuple[float, ...], others: set[str]
) -> None:
    (zone,) = found(moved(set_zone, right_zone, SUMMER, SUMMER, WINTER), set_zone)
    assert (zone.jobs, zone.hours, zone.timezone) == (3, hours, set_zone)
    assert right_zone in zone.zones
    assert not others & {*zone.zones}
    assert set_zone not in zone.zones
    assert f'timezone = "{set_zone}" is wrong' in zone.text
    assert right_zone in zone.remedy


def test_jobs_that_agree_exclude_zones() -> None:
    winter = moved(WITHOUT_SUMMER_TIME, "Europe/Oslo", WINTER, WINTER)
    (without,) = found(winter, WITHOUT_SUMMER_TIME)
    assert {"Africa/Lagos", "Europe/Oslo"} <= {*without.zones}
    (zone,) = found(winter, WITHOUT_SUMMER_TIME, instant(SUMMER, "Europe/Oslo"))
    assert "Europe/Oslo" in zone.zones
    assert "Africa/Lagos" not in zone.zones


def test_no_zone_fits() -> None:
    end = instant(SUMMER, "UTC")
    shifts = [OtherEnds("lrms", end, (end + 20 * 3600,))] * 2
    (zone,) = found(shifts, "UTC")
    assert zone.zones == ()
    assert zone.remedy.startswith("No time zone fits")


def test_ends_that_differ_otherwise_are_other_runs() -> None:
    end = instant(SUMMER, "UTC")
    assert not found([OtherEnds("lrms", end, (end + 3650,)), OtherEnds("lrms", end, (end - 7,))], "UTC")
    by_chance = OtherEnds("lrms", end, (end + 3600,))
    assert not found([by_chance, *[OtherEnds("lrms", end, (end + 3650,))] * 2], "UTC"), "most differ otherwise"
    assert not found([by_chance], "UTC", end), "a single job where others agree"
    assert found([by_chance], "UTC"), "a single job, and no other"
