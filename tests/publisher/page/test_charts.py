"""Charts of the page as data for its script; and the ticks of pictures in files."""

from __future__ import annotations

import json

import msgspec

from publisher.page.charts import chart_of
from publisher.report.report import Plot, Series

START = 1_793_491_200
DAY = 86_400


def plot(*values: tuple[float | None, ...], stacked: bool = False, step_s: int | None = 3600) -> Plot:
    starts = tuple(START + 3600 * place for place in range(len(values[0])))
    series = tuple(Series(f"s{place}", one) for place, one in enumerate(values))
    return Plot(title="T", style="line", x=starts, step_s=step_s, unit="u", stacked=stacked, series=series)


def test_data_over_time() -> None:
    made = chart_of(plot((0.0, 5.00004, None), (1.0, 1.0, 1.0), stacked=True), START + 3 * 3600, "Europe/Oslo")
    assert made.kind == "time"
    assert json.loads(made.data) == {
        "kind": "time",
        "zone": "Europe/Oslo",
        "edges": [START, START + 3600, START + 7200, START + 10_800],
        "end": START + 3 * 3600,
        "names": ["2026-11-01 00:00", "2026-11-01 01:00", "2026-11-01 02:00"],
        "top": 0.0,
        "outlined": False,
        "partial": [],
        "without_jobs": [],
        "known_until": None,
        "unit": "u",
        "by": "",
        "stacked": True,
        "series": [
            {"label": "s0", "colour": "--c0", "before": False, "values": [0.0, 5.0, None]},
            {"label": "s1", "colour": "--c1", "before": False, "values": [1.0, 1.0, 1.0]},
        ],
    }
    assert made.summary.startswith("T. s0 from 0 to 5.00")


def test_what_is_left_out_is_summed_in_grey() -> None:
    series = tuple(Series(f"user{place}", (float(20 - place),)) for place in range(12))
    many = Plot(title="T", style="line", x=(START,), step_s=3600, stacked=True, by="user", series=series)
    drawn = json.loads(chart_of(many, START + 3600).data)["series"]
    assert [one["colour"] for one in drawn] == [*(f"--c{place}" for place in range(7)), "--other"]
    assert drawn[-1]["label"] == "others (5)"


def test_names_are_the_largest_first_with_their_sums() -> None:
    both = (Series("s", (1.0, 4.0)), Series("t", (1.0, 0.0)))
    named = Plot(title="T", style="bar", x=("a", "b"), unit="u", stacked=True, series=both)
    drawn = json.loads(chart_of(named, 0).data)
    assert (drawn["names"], drawn["amounts"]) == (["b", "a"], ["4", "2"])
    many = msgspec.structs.replace(named, x=tuple(map(str, range(100))), series=(Series("s", (1.0,) * 100),))
    assert (len(json.loads(chart_of(many, 0).data)["names"]), chart_of(many, 0).left_out) == (20, 80)


def test_text_from_outside_is_data() -> None:
    nasty = "</script><b>\u202e'\"\x00"
    made = chart_of(Plot(title=nasty, style="bar", x=(nasty,), unit=nasty, series=(Series(nasty, (1.0,)),)), 0)
    text = json.dumps(json.loads(made.data)) + made.title + made.unit + made.summary
    assert not {"\x00", "\u202e"} & set(text)


def test_a_heat_map_has_a_row_for_each_series() -> None:
    rows = (Series("n0", (0.0, 100.0, None)), Series("n1", (50.0, 200.0, 1.0)))
    heat = msgspec.structs.replace(plot((1.0, 1.0, 1.0)), style="heat", series=rows)
    made = chart_of(heat, START)
    assert made.kind == "heat"
    assert json.loads(made.data)["series"][0]["values"] == [0.0, 100.0, None]
    assert made.summary == "T: 2 rows, 70 % on average. The table below has every value."


def test_nothing_is_nothing() -> None:
    assert chart_of(msgspec.structs.replace(plot((1.0,)), series=()), 0).kind == "empty"
