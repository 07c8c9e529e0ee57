"""Durations and instants as people write them."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.text import duration_s, duration_text, instant_s, iso, moment_s, months_of_age

NOW = 1_795_200_000


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0), (0, 0.0), (1.5, 1.5), ("90s", 90.0), ("15m", 900.0), ("6h", 21600.0), ("2d", 172800.0),
        ("1w", 604800.0), ("250ms", 0.25), ("1h30m", 5400.0), ("1h 30m", 5400.0), ("1.5h", 5400.0),
    ],
)  # fmt: skip
def test_durations(written: object, seconds: float) -> None:
    assert duration_s(written) == seconds


@pytest.mark.parametrize(
    "written", ["", "5", "5 minutes", "h", "-5m", "1h!", "1y", -1, -0.5, math.inf, math.nan, True, None, [], {}]
)
def test_what_is_not_a_duration(written: object) -> None:
    with pytest.raises(ValueError, match="duration"):
        duration_s(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("1970-01-01", 0),
        ("2026-11-20", 1_795_132_800),
        ("2026-11-20T00:00:00Z", 1_795_132_800),
        ("2026-11-20T01:00:00+01:00", 1_795_132_800),
        ("2026-11-20T00:00", 1_795_132_800),
        (dt.date(2026, 11, 20), 1_795_132_800),
        (dt.datetime(2026, 11, 20), 1_795_132_800),  # noqa: DTZ001 - as TOML gives a local date-time
    ],
)
def test_instants_are_utc_unless_they_carry_a_zone(written: object, seconds: int) -> None:
    assert instant_s(written) == seconds


@pytest.mark.parametrize("written", ["", "yesterday", "2026-13-01", "2026-02-30", 2026, 1.5, None, dt.time(7, 32)])
def test_what_is_not_an_instant(written: object) -> None:
    with pytest.raises(ValueError, match="must be a time such as"):
        instant_s(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2026-11", 1_793_491_200),
        ("2026-11-01", 1_793_491_200),
        ("2026-11-01T12:00", 1_793_534_400),
        ("@1793491200", 1_793_491_200),
        ("-7d", NOW - 7 * 86400),
        ("-90m", NOW - 5400),
    ],
)
def test_moments_of_the_command_line(written: str, seconds: int) -> None:
    assert moment_s(written, NOW) == seconds


@pytest.mark.parametrize("written", ["", "@", "@x", "-", "-x", "2026-13", "0000-01", "now", "--7d", "2026"])
def test_what_is_not_a_moment_is_named(written: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        moment_s(written, NOW)


@given(st.integers(0, 253_402_300_799))
def test_what_is_shown_can_be_read_again(instant: int) -> None:
    text = iso(instant)
    assert text is not None
    assert text.endswith("Z")
    assert moment_s(text, NOW) == instant


def test_instants_beyond_the_calendar_are_shown_as_seconds() -> None:
    assert iso(None) is None
    assert iso(10**15) == f"@{10**15}"
    assert iso(-62_135_596_800) == "0001-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("text", "months"), [("1 month", 1), ("36 months", 36), ("36months", 36), ("1 year", 12), ("3 years", 36)]
)
def test_ages_are_counted_in_months(text: str, months: int) -> None:
    assert months_of_age(text) == months


@pytest.mark.parametrize(
    "value", ["", "36", 36, "0 months", "-1 month", "1.5 years", "3 weeks", "1 month 2", None, True]
)
def test_what_is_not_an_age_in_months_is_reported(value: object) -> None:
    with pytest.raises(ValueError, match="36 months"):
        months_of_age(value)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 s"), (59.6, "1 min"), (200, "3 min 20 s"), (3570, "59 min 30 s"),
        (3 * 3600 + 12 * 60 + 29, "3 h 12 min"),
        (86_399, "24 h"), (89_977, "1 d 1 h"), (2 * 86_400 + 4 * 3600, "2 d 4 h"), (3 * 86_400 - 60, "3 d"),
    ],
)  # fmt: skip
def test_durations_for_people_are_rounded(seconds: float, shown: str) -> None:
    """A wait of 24 h 59 min 37 s was shown as `1 d`."""
    assert duration_text(seconds) == shown
