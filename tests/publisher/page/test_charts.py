"""Charts of the page as geometry: marks at round values and instants, shapes that reach what they show."""

from __future__ import annotations

import base64
import json
import re
import struct
import zlib
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from publisher.page.charts import HIGH, WIDE, drawing
from publisher.report.plot.ticks import time_ticks, value_ticks
from publisher.report.report import Plot, Series

START = 1_793_491_200
DAY = 86_400


def plot(*values: tuple[float | None, ...], stacked: bool = False, step_s: int | None = 3600) -> Plot:
    starts = tuple(START + 3600 * place for place in range(len(values[0])))
    series = tuple(Series(f"s{place}", one) for place, one in enumerate(values))
    return Plot(title="T", style="line", x=starts, step_s=step_s, unit="u", stacked=stacked, series=series)


@given(st.floats(1e-9, 1e15))
def test_values_have_few_round_marks_up_to_beyond_the_highest(most: float) -> None:
    top, ticks = value_ticks(most)
    assert top >= most * 0.998
    assert top <= most * 2.6
    assert 3 <= len(ticks) <= 8
    assert (ticks[0].text.strip("0."), ticks[-1].share) == ("", 1.0)
    assert len({tick.text for tick in ticks}) == len(ticks)


def test_marks_say_round_values() -> None:
    assert [tick.text for tick in value_ticks(2.83)[1]] == ["0", "1", "2", "3"]
    assert [tick.text for tick in value_ticks(1200)[1]] == ["0", "250", "500", "750", "1,000", "1,250"]
    assert [tick.text for tick in value_ticks(0)[1]] == ["0", "1"]


@given(st.integers(-60_000_000_000, 250_000_000_000), st.integers(1, 4_000_000_000))
def test_time_has_few_marks_in_order(start: int, length: int) -> None:
    ticks = time_ticks(start, start + length)
    shares = [tick.share for tick in ticks]
    assert len(ticks) <= 13
    assert shares == sorted(set(shares))
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize(
    ("begin", "days", "first", "last"),
    [
        ("2026-11-01", 1, "1 Nov", "2 Nov"),
        ("2026-11-01", 30, "2 Nov", "30 Nov"),  # Mondays
        ("2026-01-01", 365, "2026", "2027"),
        ("2020-01-01", 3653, "2020", "2030"),
    ],
)
def test_marks_of_time_are_round_instants(begin: str, days: int, first: str, last: str) -> None:
    start = int(datetime.fromisoformat(begin).replace(tzinfo=UTC).timestamp())
    ticks = time_ticks(start, start + days * DAY)
    assert (ticks[0].text, ticks[-1].text) == (first, last)


def test_shapes_reach_their_values() -> None:
    made = drawing(plot((0.0, 5.0, 10.0)), START + 3 * 3600)
    (layer,) = made.layers
    assert made.up[-1].text == "10"
    assert re.findall(r"[ML](\d+) (\d+)", layer.line) == [("1667", "1000"), ("5000", "500"), ("8333", "0")]
    assert layer.bars == f"M0 {HIGH}H3333V500H6667V0H{WIDE}V{HIGH}Z"


def test_negative_bars_end_where_positive_bars_begin() -> None:
    series = (Series("charges", (30.0, 0.0, -10.0)),)
    made = drawing(Plot(title="T", style="bar", x=("a", "b", "c"), unit="EUR", names_add_up=True, series=series), START)
    assert [(bar.left, bar.long) for (bar,) in made.bars] == [(25.0, 75.0), (25.0, 0.0), (0.0, 25.0)]
    assert made.totals == ("30", "0", "-10")


def test_a_line_is_broken_where_nothing_is_known() -> None:
    (layer,) = drawing(plot((1.0, None, 1.0, 1.0)), START).layers
    assert layer.line.count("M") == 2
    assert layer.line.count("L") == 1


def test_points_by_themselves_are_seen() -> None:
    """A stat_file with a sample every ten minutes, in bins of five: a line has nothing to join."""
    (layer,) = drawing(plot((None, 5.0, None, 10.0, 10.0, None, 0.0)), START).layers
    assert re.findall(r"M(\d+) (\d+)h0", layer.dots) == [("2143", "500"), ("9286", "1000")]
    (joined,) = drawing(plot((1.0, 2.0)), START).layers
    assert not joined.dots


def test_series_are_stacked() -> None:
    made = drawing(plot((1.0, 2.0), (3.0, 2.0), stacked=True), START)
    assert [layer.label for layer in made.layers] == ["s1", "s0"]
    assert made.up[-1].text == "4"
    assert "V0" in made.layers[0].bars
    assert f"V{HIGH - 250}" in made.layers[1].bars
    assert made.legend == (("s1", "c1"), ("s0", "c0"))


def test_points_are_reported_until_there_are_too_many() -> None:
    points = json.loads(drawing(plot((1.0, None)), START).points)
    assert points == {
        "names": ["2026-11-01T00:00:00Z", "2026-11-01T01:00:00Z"],
        "shares": [0.25, 0.75],
        "series": [["s0", [1.0, None]]],
    }
    assert drawing(plot((1.0,) * 5000), START).points == ""


def test_a_heat_map_has_a_pixel_a_cell() -> None:
    rows = (Series("n0", (0.0, 100.0, None)), Series("n1", (50.0, 200.0, -1.0)))
    heat = msgspec.structs.replace(plot((1.0, 1.0, 1.0)), style="heat", series=rows)
    png = base64.b64decode(drawing(heat, START).shades.partition(",")[2])
    assert struct.unpack(">II", png[16:24]) == (3, 2)
    start = png.index(b"IDAT")
    (length,) = struct.unpack(">I", png[start - 4 : start])
    assert list(zlib.decompress(png[start + 4 : start + 4 + length])) == [0, 0, 250, 255, 0, 125, 250, 0]


def test_labels_of_rows_have_room() -> None:
    names = ("n1", "batch-cluster-with-a-long-name.example.org/node0017")
    rows = tuple(Series(name, (0.5,)) for name in names)
    made = drawing(Plot(title="T", style="heat", x=(START,), step_s=DAY, unit="share", series=rows), START + DAY)
    short, shortened = [tick.text for tick in made.up]
    assert short == "n1"
    assert len(shortened) <= 24
    assert (shortened[:5], shortened[-4:]) == ("batch", "0017")
    assert made.names == names


def test_bars_over_names() -> None:
    both = (Series("s", (1.0, 4.0)), Series("t", (1.0, 0.0)))
    named = Plot(title="T", style="bar", x=("a", "b"), unit="u", stacked=True, series=both)
    made = drawing(named, 0)
    assert made.names == ("b", "a"), "the largest first"
    assert [(bar.left, bar.long) for bar in made.bars[1]] == [(0.0, 25.0), (25.0, 25.0)]
    many = msgspec.structs.replace(named, x=tuple(map(str, range(100))), series=(Series("s", (1.0,) * 100),))
    assert (len(drawing(many, 0).names), drawing(many, 0).left_out) == (20, 80)


def test_nothing_is_nothing() -> None:
    assert drawing(msgspec.structs.replace(plot((1.0,)), series=()), 0).kind == "empty"
