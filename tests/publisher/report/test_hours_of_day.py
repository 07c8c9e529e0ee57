"""Time of runs over the hours of a local day: as a clock on the wall counts it, second by second."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from publisher.report.hours_of_day import DAY_S, Hours, HoursOfDay

HOUR = 3600
ZONES = ("UTC", "Europe/Oslo", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca")
FORWARD, BACK = 1_774_746_000, 1_792_890_000
"""When clocks in Oslo go from 02:00 to 03:00, and from 03:00 to 02:00, in 2026."""


def spread(hours: list[Hours | None], zone: str, start: int, stop: int, amount: int) -> dict[frozenset[int], int]:
    cut = HoursOfDay(hours, ZoneInfo(zone))
    columns = (np.array([number], np.int64) for number in (start, stop, amount))
    return {part: int(of[0]) for part, of in zip(cut.parts, cut.spread(*columns), strict=True)}


_second = st.integers(0, 95).map(lambda quarter: quarter * 900)
_hours = st.tuples(_second, _second).filter(lambda ends: ends[0] != ends[1]).map(lambda ends: Hours(*ends))


@given(
    st.lists(_hours | st.none(), max_size=3),
    st.sampled_from(ZONES),
    st.sampled_from([FORWARD, BACK, 1_789_999_800]),
    st.integers(-2 * DAY_S, DAY_S).map(lambda at: at // 300 * 300),
    st.integers(1, 2 * 288).map(lambda steps: steps * 300),
)
@example([Hours(2 * HOUR, 3 * HOUR)], "Europe/Oslo", FORWARD, -DAY_S, 2 * DAY_S)
@example([Hours(2 * HOUR, 3 * HOUR)], "Europe/Oslo", BACK, -DAY_S, 2 * DAY_S)
def test_as_a_clock_on_the_wall_has_it(
    hours: list[Hours | None], zone: str, about: int, offset: int, length_s: int
) -> None:
    """Looked at every five minutes, at which all of these hours and clocks change."""
    start = about + offset
    found = spread(hours, zone, start, start + length_s, 1000 * length_s)
    expected = dict.fromkeys(found, 0)
    for at in range(start, start + length_s, 300):
        local = datetime.fromtimestamp(at, UTC).astimezone(ZoneInfo(zone))
        second = local.hour * HOUR + local.minute * 60
        expected[frozenset(place for place, one in enumerate(hours) if one is None or one.holds(second))] += 300_000
    assert found == expected


@given(st.integers(0, 10**15), st.integers(0, DAY_S), st.integers(-10, 3 * DAY_S))
def test_nothing_is_lost(amount: int, begin: int, length_s: int) -> None:
    """Whatever the wall time is beside the time from start to end: suspended, rounded, or of a clock set back."""
    hours = [Hours(22 * HOUR, 6 * HOUR), Hours(12 * HOUR, 13 * HOUR)]
    found = spread(hours, "Europe/Oslo", BACK + begin, BACK + begin + length_s, amount)
    assert sum(found.values()) == amount
    assert all(part >= 0 for part in found.values())


@pytest.mark.parametrize(("change", "hours_of_the_day", "at_two"), [(FORWARD, 23, 0), (BACK, 25, 2)])
def test_days_of_23_and_25_hours(change: int, hours_of_the_day: int, at_two: int) -> None:
    """On them 02:00 to 03:00 is no hour, or two."""
    zone = ZoneInfo("Europe/Oslo")
    midnight = datetime.fromtimestamp(change, zone).replace(hour=0)
    start = int(midnight.timestamp())
    day_s = hours_of_the_day * HOUR
    found = spread([Hours(2 * HOUR, 3 * HOUR)], "Europe/Oslo", start, start + day_s, day_s)
    assert found == {frozenset(): (hours_of_the_day - at_two) * HOUR, frozenset({0}): at_two * HOUR}


def test_what_ran_for_no_time_counts_where_it_started() -> None:
    night = [Hours(22 * HOUR, 6 * HOUR)]
    assert spread(night, "UTC", 23 * HOUR, 23 * HOUR, 400) == {frozenset(): 0, frozenset({0}): 400}
    assert spread(night, "UTC", 6 * HOUR, 5 * HOUR, 400) == {frozenset(): 400, frozenset({0}): 0}
