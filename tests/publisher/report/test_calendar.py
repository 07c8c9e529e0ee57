"""Periods: weeks in which clocks change, both ends of time, and what cannot be cut."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.errors import UsageError
from publisher.report.calendar import edges, periods, zone_of
from publisher.report.matching import key_label
from publisher.report.request import FIRST_INSTANT, LIMIT_INSTANT, ReportRequest
from publisher.report.view_option import PERIOD_LENGTHS, PERIODS, PeriodName

OSLO = ZoneInfo("Europe/Oslo")
SATURDAY = 1_792_800_000
"""2026-10-24 02:00 in Oslo; clocks go back on the 25th."""


def test_a_day_in_which_clocks_go_back_has_25_hours() -> None:
    found = periods(SATURDAY, SATURDAY + 3 * 86_400, "day", OSLO)
    assert [(one.name, one.inside_s / 3600) for one in found][:3] == [
        ("2026-10-24", 22),
        ("2026-10-25", 25),
        ("2026-10-26", 24),
    ]


def test_a_week_in_which_clocks_go_forward_has_167_hours() -> None:
    monday = 1_774_220_400  # 2026-03-23 00:00 in Oslo
    (week,) = periods(monday, monday + 7 * 86_400 - 3600, "week", OSLO)
    assert (week.name, week.inside_s) == ("2026-W13", 167 * 3600)


@given(
    st.integers(-(10**11), 10**11), st.integers(1, 10**7), st.sampled_from(PERIOD_LENGTHS[1:]),
    st.sampled_from(["UTC", "Europe/Oslo", "Pacific/Apia", "America/New_York"]),
)  # fmt: skip
def test_periods_cover_the_interval_without_gap(start: int, length: int, kind: str, zone: str) -> None:
    if not FIRST_INSTANT + 10**6 < start < LIMIT_INSTANT - 10**8:
        return
    found = periods(start, start + length, kind, zone_of(zone))  # type: ignore[arg-type]
    assert [one.start for one in found] == [start, *(one.stop for one in found[:-1])]
    assert found[-1].stop == start + length
    assert edges(found).tolist() == [*(one.start for one in found), start + length]
    assert len({one.name for one in found}) == len(found)


def test_quarters_begin_in_january_april_july_and_october() -> None:
    year = periods(1_767_225_600 - 3600, 1_798_761_600, "quarter", OSLO)
    assert [one.name for one in year] == ["2026-Q1", "2026-Q2", "2026-Q3", "2026-Q4", "2027-Q1"]
    assert [one.inside_s // 3600 for one in year] == [90 * 24 - 1, 91 * 24, 92 * 24, 92 * 24 + 1, 1]


@pytest.mark.parametrize("kind", PERIODS)
def test_before_1970_and_at_both_ends_of_time(kind: str) -> None:
    old = periods(-86_400 * 365 * 60, -86_400 * 365 * 60 + 10, kind, zone_of("UTC"))  # type: ignore[arg-type]
    assert old[0].name.startswith("1910")
    assert periods(FIRST_INSTANT, FIRST_INSTANT + 10, kind, zone_of("UTC"))[0].name.startswith("0001")  # type: ignore[arg-type]
    assert periods(LIMIT_INSTANT - 10, LIMIT_INSTANT - 1, kind, zone_of("UTC"))[-1].stop == LIMIT_INSTANT - 1  # type: ignore[arg-type]


def test_too_many() -> None:
    with pytest.raises(UsageError, match="more than 100,000 periods"):
        periods(FIRST_INSTANT, LIMIT_INSTANT - 1, "day", zone_of("UTC"))


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(":memory:") as connected:
        yield connected


@given(
    st.integers(-(10**10), 4 * 10**9), st.integers(1, 10**6) | st.integers(1, 10**8), st.sampled_from(PERIODS),
    st.sampled_from(["UTC", "Europe/Oslo", "Pacific/Apia", "Pacific/Kiritimati", "Australia/Lord_Howe"]),
    st.lists(st.floats(-0.1, 1.1), max_size=20),
)  # fmt: skip
def test_sql_finds_the_period_of_an_instant(
    connection: duckdb.DuckDBPyConnection, start: int, length: int, kind: PeriodName, zone: str, places: list[float]
) -> None:
    """Also on the first and last second of each; an instant outside counts in the first or last."""
    request = ReportRequest(start=start, stop=start + length, timezone=zone)
    cut = periods(start, start + length, kind, ZoneInfo(zone))
    bounds = edges(cut)[:-1].tolist()
    at = [start + int(length * place) for place in places]
    at += [-(1 << 63), (1 << 63) - 1, *bounds, *(bound - 1 for bound in bounds)]
    label = key_label(request, kind, at="instant")
    found = connection.execute(f"SELECT {label} FROM (SELECT unnest($1::BIGINT[]) AS instant)", [at]).fetchall()
    expected = np.clip(np.searchsorted(bounds, np.array(at), "right") - 1, 0, len(cut) - 1)
    assert [name for (name,) in found] == [cut[place].name for place in expected.tolist()]
