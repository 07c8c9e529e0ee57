"""Pictures: every kind in every form, the same bytes every time, and harmless whatever jobs are called."""

from __future__ import annotations

import io
import json
import math
import re
import subprocess
import sys
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from lxml import etree

from publisher.page.charts import chart_of
from publisher.report.calendar import period_axis, periods, zone_of
from publisher.report.plot.axis import time_ticks
from publisher.report.plot.draw import FORMS, Form, draw
from publisher.report.plot.palette import COLOURS, COLOURS_DARK, INCOMPLETE, OTHERS, SHADES, UNKNOWN, UNKNOWN_DARK
from publisher.report.plot.style import (
    MOST_NAMED,
    MOST_SERIES,
    Look,
    Style,
    edges_of,
    end_of,
    folded,
    highest_of,
    interval_text,
    is_labelled,
    limited,
    named_first,
    wrapped,
)
from publisher.report.report import Plot, Series
from publisher.report.view_option import PeriodLength
from tests.conftest import ROOT

START = 1_793_491_200
BEGINS = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF-", "ps": b"%!PS-Adobe"}


def wave(bins: int, place: int) -> tuple[float, ...]:
    return tuple(5 + 4 * math.sin(20 * number / bins + place) for number in range(bins))


def over_time(bins: int, series: int = 1, *, stacked: bool = False) -> Plot:
    return Plot(
        title="Queue utilization", style="line", x=tuple(START + 3600 * number for number in range(bins)), step_s=3600,
        unit="queues at work", stacked=stacked,
        series=tuple(Series(f"user{place}", wave(bins, place)) for place in range(series)),
    )  # fmt: skip


def over_names(*names: str, stacked: bool = True) -> Plot:
    values = tuple(float(place) for place in range(len(names)))
    both = (Series("user", values), Series("system", values))
    return Plot(title="Totals by user", style="bar", x=names, unit="CPU h", stacked=stacked, series=both)


def heat(nodes: int, days: int) -> Plot:
    rows = tuple(
        Series(
            f"wn{node:03}", tuple(None if (node + day) % 29 == 0 else (node * day) % 10 * 10.0 for day in range(days))
        )
        for node in range(nodes)
    )
    starts = tuple(START + 86400 * day for day in range(days))
    return Plot(title="Node occupation by day", style="heat", x=starts, step_s=86400, unit="occupation", series=rows)


def pixels(picture: bytes) -> tuple[int, int, set[tuple[int, int, int]]]:
    """Width, height, and the colours of a PNG as whole numbers."""
    from matplotlib.image import imread

    image = imread(io.BytesIO(picture))[:, :, :3]
    found = {tuple(round(float(part) * 255) for part in pixel) for pixel in image[::3, ::3].reshape(-1, 3)}
    return image.shape[1], image.shape[0], found  # type: ignore[return-value]


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(bytes.fromhex(colour[1:]))


def texts(svg: bytes) -> list[str]:
    """What an SVG says, in order."""
    root = etree.fromstring(svg)
    return ["".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "plot", [over_time(5, 2), over_names("alice", "bob"), heat(3, 4)], ids=["time", "names", "heat"]
)
def test_every_form_is_what_it_says_and_the_same_each_time(plot: Plot, form: Form) -> None:
    picture = draw(plot, START + 5 * 3600, Look(grid=True), form)
    assert picture.startswith(BEGINS[form])
    assert picture == draw(plot, START + 5 * 3600, Look(grid=True), form)
    assert b"Date" not in picture


@pytest.mark.parametrize(("bins", "style"), list(product((1, 3, 3000), ("line", "bar"))))
def test_it_is_readable_with_few_bins_and_with_many(bins: int, style: Style) -> None:
    width, height, found = pixels(draw(over_time(bins, 3), START + bins * 3600, Look(style=style), "png"))
    assert (width, height) == (1200, 624)
    if style == "line" or bins <= 3:  # many bars of several series are shaded
        assert {rgb(colour) for colour in COLOURS[:3]} <= found
    svg = texts(draw(over_time(bins, 3), START + bins * 3600, Look(style=style), "svg"))
    ticks = svg[: svg.index(next(text for text in svg if text.endswith(", UTC")))]
    assert 2 <= len(ticks) <= 11
    assert len(set(ticks)) > len(ticks) // 2


@pytest.mark.parametrize("bins", [3, 300, 3000])
def test_points_by_themselves_are_seen(bins: int) -> None:
    """A stat_file with a sample every ten minutes, in bins of five: a line has nothing to join."""
    values = tuple(2.0 if place % 2 else None for place in range(bins))
    starts = tuple(START + 300 * place for place in range(bins))
    plot = Plot(title="Load", style="line", x=starts, step_s=300, unit="load", series=(Series("load", values),))
    found = pixels(draw(plot, START + bins * 300, Look(legend=False), "png"))[2]
    assert rgb(COLOURS[0]) in found


def test_what_is_chosen_is_shown() -> None:
    plain = texts(draw(over_time(4, 2), START + 4 * 3600, Look(legend=False), "svg"))
    assert {"Queue utilization", "queues at work", "2026-11-01 00:00 until 2026-11-01 04:00, UTC"} <= set(plain)
    assert "user0" not in plain
    named = texts(draw(over_time(4, 2), START, Look(title="November", note="EXAMPLE-SITE"), "svg"))
    assert {"user0", "user1", "November", "EXAMPLE-SITE"} <= set(named)
    assert "Queue utilization" not in named
    without, with_grid = (draw(over_time(4), START, Look(grid=grid), "svg") for grid in (False, True))
    assert b"d5d5d5" in with_grid
    assert b"d5d5d5" not in without


def test_stacked_series_reach_their_sum() -> None:
    plot = over_time(50, 3, stacked=True)
    assert highest_of(plot) == pytest.approx(max(map(sum, zip(*(one.values for one in plot.series)))))  # noqa: B905
    for style in ("line", "bar"):
        found = pixels(draw(plot, START, Look(style=style), "png"))[2]
        assert {rgb(colour) for colour in COLOURS[:3]} <= found


def test_too_many_layers_are_summed_up() -> None:
    plot = msgspec.structs.replace(over_time(10, 30, stacked=True), by="user")
    few = folded(plot)
    assert len(few.series) == MOST_SERIES + 1
    assert few.series[-1].label == "others (23)"
    assert highest_of(few) == pytest.approx(highest_of(plot))
    weights = sorted((sum(one.values) for one in plot.series), reverse=True)  # type: ignore[arg-type]
    assert [sum(one.values) for one in few.series[:-1]] == weights[:MOST_SERIES], "the largest first"  # type: ignore[arg-type]
    assert folded(over_time(10, 30, stacked=True)) == over_time(10, 30, stacked=True), "measures all stay"
    more = folded(msgspec.structs.replace(plot, most=12))
    assert [len(more.series), more.series[-1].label] == [13, "others (18)"]
    eight = msgspec.structs.replace(over_time(10, 8, stacked=True), by="user")
    assert len(folded(eight).series) == 8, "a rest of one has its own name"


def test_lines_that_cannot_be_distinguished_are_left_out() -> None:
    plot = msgspec.structs.replace(over_time(10, 30), by="host")
    assert (len(folded(plot).series), folded(plot).left_out) == (MOST_SERIES, 23)
    said = " ".join(texts(draw(plot, START, Look(note="SITE"), "svg")))
    assert "SITE; 7 of 30; the table has the others" in said
    assert len(folded(msgspec.structs.replace(heat(40, 5), by="node")).series) == 40
    top = folded(msgspec.structs.replace(heat(40, 5), by="node", most=4))
    assert [one.label for one in top.series] == sorted(one.label for one in top.series)
    assert (len(top.series), top.left_out) == (4, 36)


def many_names(count: int, series: int = 1, **facts: Any) -> Plot:
    names = tuple(f"user{number:03}" for number in range(count))
    values = [[float((number * 37 + place) % 101 + 1) for number in range(count)] for place in range(series)]
    made = tuple(Series(f"vo{place}", tuple(each)) for place, each in enumerate(values))
    return Plot(title="Core hours by user", style="bar", x=names, unit="core h", series=made, **facts)


@pytest.mark.parametrize("series", [1, 3])
def test_names_without_room_are_one_bar_that_keeps_the_sum(series: int) -> None:
    plot = many_names(112, series, stacked=series > 1, names_add_up=True)
    few = named_first(plot)
    assert (len(few.x), few.x[-1], few.left_out) == (MOST_NAMED + 1, "others (92)", 0)
    for whole, drawn in zip(plot.series, few.series, strict=True):
        assert sum(drawn.values) == pytest.approx(sum(whole.values))  # type: ignore[arg-type]
    sums = {name: sum(one.values[place] or 0 for one in plot.series) for place, name in enumerate(plot.x)}
    kept = [sums[name] for name in few.x[:-1]]
    assert kept == sorted(sums.values(), reverse=True)[:MOST_NAMED], "the largest first"
    assert "others (92)" in texts(draw(plot, START, Look(), "svg"))
    chart = json.loads(chart_of(plot, START).data)
    assert chart["names"][-1] == "others (92)"
    assert sum(sum(one["values"]) for one in chart["series"]) == pytest.approx(sum(sums.values()))
    assert len(named_first(msgspec.structs.replace(plot, most=50)).x) == 51
    assert len(named_first(many_names(MOST_NAMED + 1, names_add_up=True)).x) == MOST_NAMED + 1


def test_names_that_do_not_add_up_are_those_of_the_most_weight_and_the_rest_is_said() -> None:
    plot = many_names(112, 2, weights=tuple(map(float, range(112))))
    few = named_first(plot)
    assert sorted(map(str, few.x)) == list(plot.x[92:])
    assert few.left_out == 92
    sums = [sum(one.values[place] or 0 for one in few.series) for place in range(len(few.x))]
    assert sums == sorted(sums, reverse=True)
    assert "20 of 112; the table has the others" in " ".join(texts(draw(plot, START, Look(), "svg")))
    assert chart_of(plot, START).left_out == 92


def test_names_with_an_order_of_their_own_keep_it() -> None:
    few = named_first(many_names(30, ordered=True, names_add_up=True))
    assert list(few.x[:-1]) == sorted(map(str, few.x[:-1]))
    assert few.x[-1] == "others (10)"


def months(count: int) -> Plot:
    labels = tuple(f"{2024 + (11 + place) // 12}-{(11 + place) % 12 + 1:02}" for place in range(count))
    starts = tuple(int(datetime.fromisoformat(f"{label}-01T00:00Z").timestamp()) for label in labels)
    series = (Series("core hours", tuple(map(float, range(count)))),)
    return Plot(title="By month", style="bar", x=starts, labels=labels, unit="core h", series=series)


def test_months_are_named_in_the_middle_of_their_bars() -> None:
    one_year = months(12)
    stop = edges_of(one_year, START)[-1]
    shown = texts(draw(months(24), stop, Look(), "svg"))
    assert {"Jan", "2025", "Mar", "2026"} <= set(shown)


def test_amounts_are_written_at_the_end_of_bars() -> None:
    values = (1234567.0, 1000.0, 0.25)
    plot = Plot(
        title="T", style="bar", x=("a", "b", "c"), unit="core h", names_add_up=True, series=(Series("s", values),)
    )
    assert {"1,234,567", "1,000", "<1"} <= set(texts(draw(plot, START, Look(), "svg")))


def test_negative_bars_are_drawn() -> None:
    """Matplotlib draws a bar of each amount, and the axis reaches the lowest."""
    plot = Plot(
        title="T", style="bar", x=("a", "b"), unit="EUR", names_add_up=True, series=(Series("s", (30.0, -10.0)),)
    )
    drawn = texts(draw(plot, START, Look(), "svg"))
    assert drawn.count("-10") == 2, "the amount of the bar, and a tick of the axis"


def test_unequal_bins_end_where_the_next_begins() -> None:
    months = (START, START + 30 * 86400, START + 61 * 86400)
    plot = msgspec.structs.replace(over_time(3), x=months, step_s=None)
    assert edges_of(plot, START + 90 * 86400) == (*months, START + 90 * 86400)
    assert edges_of(plot, START + 900 * 86400) == (*months, START + 92 * 86400)
    assert edges_of(msgspec.structs.replace(plot, x=months[:1]), START + 9) == (START, START + 9)
    assert draw(plot, START + 90 * 86400, Look(style="bar"), "png").startswith(BEGINS["png"])


@pytest.mark.parametrize(("plot", "across"), [(over_time(5), True), (heat(60, 5), False)], ids=["fits", "is tall"])
def test_postscript_lies_on_its_sheet(plot: Plot, across: bool) -> None:
    head = draw(plot, START, Look(), "ps")[:1500].decode("ascii")
    left, below, right, above = map(int, re.findall(r"%%BoundingBox: (.*)", head)[0].split())
    assert min(left, below) >= 0
    assert ("Orientation: landscape" in head) is across
    if across:  # A4 in points; the picture is turned
        assert max(right, above) <= 842
        assert min(right, above) <= 595


def test_many_rows_of_a_heat_map_share_labels() -> None:
    named = [text for text in texts(draw(heat(600, 10), START, Look(), "svg")) if text.startswith("wn")]
    assert named[0] == "wn000"
    assert 40 <= len(named) <= 100
    assert {"0", "100"} <= set(texts(draw(heat(3, 4), START, Look(), "svg")))


def test_the_interval_is_reported_as_it_was_asked_for() -> None:
    assert interval_text(START, START + 86_400) == "2026-11-01 until 2026-11-02, UTC"
    assert interval_text(START, START + 3600) == "2026-11-01 00:00 until 2026-11-01 01:00, UTC"
    assert interval_text(START, START + 86_400, "Asia/Tokyo") == "2026-11-01 09:00 until 2026-11-02 09:00, Asia/Tokyo"
    assert interval_text(START + 1, START + 3600) == "2026-11-01 00:00:01 until 2026-11-01 01:00:00, UTC"
    beyond = draw(over_time(4), START + 3 * 3600 + 600, Look(), "svg")
    assert "2026-11-01 00:00 until 2026-11-01 03:10, UTC" in texts(beyond)
    to_come = draw(over_time(24), START + 5 * 86_400, Look(), "svg")
    assert {"2026-11-01 until 2026-11-06, UTC", "5 Nov"} <= set(texts(to_come))
    assert end_of(over_time(4), START + 10) == START + 4 * 3600
    by_name = draw(over_names("a"), START + 86_400, Look(note="SITE"), "svg", start=START)
    assert "SITE; 2026-11-01 until 2026-11-02, UTC" in texts(by_name)


def test_long_names_have_two_lines_and_are_reported_in_full() -> None:
    name = "/DC=org/DC=example/O=Department & Sons/CN=Somebody With Many Names"
    plot = msgspec.structs.replace(over_time(3), series=(Series(name, (1.0, 2.0, 3.0)), Series("bob", (1.0,) * 3)))
    svg = draw(plot, START + 3 * 3600, Look(), "svg")
    root = etree.fromstring(svg)
    assert [one.text for one in root.iter("{http://www.w3.org/2000/svg}title")] == [name]
    assert wrapped("a" * 28, 28) == "a" * 28
    assert wrapped("long-name-of-somebody-at-a-department", 28) == "long-name-of-somebody-\nat-a-department"
    assert wrapped("x" * 40, 28) == "x" * 28 + "\n" + "x" * 12
    halves = wrapped("y" * 500, 28).split("\n")
    assert [len(half) for half in halves] == [28, 28]
    assert halves[0].endswith("…") or halves[1].startswith("…")


def test_what_distinguishes_series_is_above_the_legend() -> None:
    plot = msgspec.structs.replace(over_time(3, 2, stacked=True), by="queue")
    assert "queue" in texts(draw(plot, START + 3 * 3600, Look(), "svg"))
    assert "queue" not in texts(draw(plot, START + 3 * 3600, Look(legend=False), "svg"))


def test_names_that_are_left_out_are_counted() -> None:
    said = " ".join(texts(draw(over_names(*map(str, range(1060))), START, Look(), "svg")))
    assert "20 of 1,060; the table has the others" in said


HOSTILE = ("<script>alert(1)</script>", "_hidden", "$\\frac{1}{0}$", "a\udc80b", "\x1b[2J", "作業", "x" * 5000, "")


@pytest.mark.parametrize("form", FORMS)
def test_jobs_of_any_name_are_drawn(form: Form) -> None:
    series = tuple(Series(name, (1.0, None, 2.0)) for name in HOSTILE)
    for title in HOSTILE if form == "svg" else HOSTILE[3:4]:
        plot = msgspec.structs.replace(over_time(3), series=series, title=title)
        assert draw(plot, START, Look(note=title), form).startswith(BEGINS[form])
    picture = draw(over_names(*HOSTILE), START, Look(), form)
    assert picture.startswith(BEGINS[form])
    assert b"<script" not in picture


def test_names_are_shown_as_they_are_or_spelled_out() -> None:
    series = tuple(Series(name, (1.0, None, 2.0)) for name in HOSTILE)
    legend = texts(draw(msgspec.structs.replace(over_time(3), series=series), START, Look(), "svg"))
    assert {HOSTILE[0], "\N{HAIR SPACE}_hidden", "$\\frac{1}{0}$", "a\\udc80b", "\\x1b[2J", "作業"} <= set(legend)
    assert max(map(len, legend)) < 100


@pytest.mark.parametrize("plot", [over_time(0), over_names(), msgspec.structs.replace(over_time(3), series=())])
def test_nothing_is_said_to_be_nothing(plot: Plot) -> None:
    assert "nothing to show" in texts(draw(plot, START, Look(), "svg"))


def test_years_far_away_are_drawn() -> None:
    for start in (-62_135_596_800, -3_000_000_000, 253_402_200_000):
        plot = msgspec.structs.replace(over_time(3), x=(start, start + 3600, start + 7200))
        assert draw(plot, start + 10800, Look(), "png").startswith(BEGINS["png"])


def test_no_window_system_and_none_of_pyplots_state_is_used(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from publisher.report.plot import style\n"
        "assert 'matplotlib' not in sys.modules\n"
        "from tests.publisher.report.plot.test_draw import *\n"
        "[draw(over_time(3), START, Look(), form) for form in FORMS]\n"
        "import matplotlib\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert matplotlib.rcParams['svg.hashsalt'] is None\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


DAY_S = 86_400


def colours_of(svg: bytes) -> set[str]:
    return set(re.findall(r"#[0-9a-f]{6}", svg.decode("utf-8")))


def test_the_future_is_not_drawn_and_incomplete_bins_are_marked() -> None:
    """Of a month of days, jobs were collected up to the 22nd at 05:30, and it is the 24th."""
    stop, now, known = START + 30 * DAY_S, START + 23 * DAY_S + 3600, START + 21 * DAY_S + 5 * 3600 + 1800
    days = msgspec.structs.replace(
        over_time(30), x=tuple(START + DAY_S * day for day in range(30)), step_s=DAY_S
    )  # fmt: skip
    plot = limited(days, stop, now, known)
    assert (len(plot.x), plot.partial, end_of(plot, stop)) == (24, (21, 22, 23), now), "the last bin ends now"
    assert edges_of(plot, stop)[-1] == now
    assert [len(one.values) for one in plot.series] == [24]
    svg = draw(plot, stop, Look(note="SITE", timezone="Europe/Oslo"), "svg", start=START)
    assert "SITE; hatched: incomplete; jobs were collected up to 2026-11-22 06:30" in texts(svg)
    assert "2026-11-01 01:00 until 2026-12-01 01:00, Europe/Oslo" in texts(svg)
    assert INCOMPLETE in colours_of(svg)
    complete = limited(days, stop, stop, stop)
    assert (complete.partial, len(complete.x)) == ((), 30)
    assert INCOMPLETE not in colours_of(draw(complete, stop, Look(), "svg"))
    beyond = limited(over_time(4), START + 3 * 3600 + 60, stop, None)
    assert beyond.partial == (3,), "the interval ends within the last bin"
    assert "hatched: incomplete, because the interval or the time now cuts it" in texts(
        draw(beyond, START + 3 * 3600 + 60, Look(), "svg")
    )
    to_come = limited(days, stop, START - 1, None)
    assert len(to_come.x) == 30, "a clock that is slow hides nothing"
    zeros = tuple(msgspec.structs.replace(series, values=(0.0, None) * 15) for series in days.series)
    empty = limited(msgspec.structs.replace(days, series=zeros), stop, START - 1, None)
    assert (empty.x, empty.labels, {series.values for series in empty.series}) == ((), (), {()}), "nothing can have run"
    assert "nothing to show" in texts(draw(empty, stop, Look(), "svg"))
    assert limited(over_names("a"), stop, now, known) == over_names("a")


def test_months_are_bars_and_those_that_are_cut_are_marked() -> None:
    start, stop = START - 17 * DAY_S, START + 61 * DAY_S
    cut = periods(start, stop, "month", zone_of("UTC"))
    values = tuple(float(place) for place in range(len(cut)))
    plot = Plot(title="T", style="line", series=(Series("cores", values),), **period_axis(cut))
    made = limited(plot, stop, stop + DAY_S, None)
    assert (made.style, made.partial) == ("bar", (0,))
    assert limited(msgspec.structs.replace(plot, style="heat"), stop, stop, None).style == "heat"
    weeks = Plot(title="T", style="line", series=(), **period_axis(periods(start, stop, "week", zone_of("UTC"))))
    assert limited(weeks, stop, stop, None).style == "line"
    assert {"Oct", "2026", "Nov", "Dec"} <= set(texts(draw(made, stop, Look(), "svg")))
    whole = Plot(title="T", style="line", series=(Series("cores", (1.0,)),), x=(start,), labels=("all",))
    assert edges_of(limited(whole, stop, stop - 40 * DAY_S, None), stop) == (start, stop - 40 * DAY_S)


@pytest.mark.parametrize("style", ["line", "bar"])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("bins", [4, 400])
def test_unknown_is_a_gap_and_never_zero(bins: int, stacked: bool, style: Style) -> None:
    """Of every fourth bin nothing is known, of the one after it one of the two series."""
    first = tuple(None if at % 4 in {1, 2} else 3.0 for at in range(bins))
    second = tuple(None if at % 4 == 1 else 3.0 for at in range(bins))
    plot = msgspec.structs.replace(
        over_time(bins, stacked=stacked), series=(Series("measured", first), Series("modelled", second))
    )
    zeros = tuple(
        msgspec.structs.replace(one, values=tuple(value or 0.0 for value in one.values)) for one in plot.series
    )
    made, drawn_as_zero = (
        draw(one, START + bins * 3600, Look(style=style), "svg")
        for one in (plot, msgspec.structs.replace(plot, series=zeros))
    )
    assert made != drawn_as_zero
    assert ("? or a gap: unknown" in texts(made), "? or a gap: unknown" in texts(drawn_as_zero)) == (True, False)
    assert texts(made).count("?") == ((2 if stacked else 3) if (bins, style) == (4, "bar") else 0), (
        "where there is room"
    )


def test_a_name_of_which_nothing_is_known_says_so() -> None:
    values = (Series("measured", (2.0, None, None)), Series("modelled", (1.5, 0.0, None)))
    plot = Plot(title="T", style="bar", x=("a", "b", "c"), unit="kWh", stacked=True, names_add_up=True, series=values)
    assert {"3.50", "0", "unknown"} <= set(texts(draw(plot, START, Look(), "svg")))
    assert json.loads(chart_of(plot, START).data)["amounts"] == ["3.50", "0", "unknown"]
    many = msgspec.structs.replace(many_names(40, names_add_up=True), series=(Series("s", (1.0,) * 20 + (None,) * 20),))
    assert named_first(many).series[0].values[-1] is None


def test_the_period_before_is_beside_the_present_one() -> None:
    series = (
        Series("long", (2.0, 1.0)),
        Series("short", (1.0, 1.0)),
        Series("the period before", (9.0, 4.0), before=True),
    )
    plot = Plot(
        title="T", style="bar", x=("a", "b"), unit="h", by="queue", stacked=True, names_add_up=True, series=series
    )
    assert highest_of(plot) == 9.0, "the period before is no layer of the present one"
    svg = draw(plot, START, Look(), "svg")
    assert {"long", "short", "the period before", "3", "2", "9", "4"} <= set(texts(svg))
    assert b"<pattern" in svg
    assert OTHERS in colours_of(svg)
    assert json.loads(chart_of(plot, START).data)["amounts"] == ["3 / 9", "2 / 4"]
    layers = tuple(Series(f"queue{place}", (1.0, 1.0)) for place in range(20))
    few = folded(msgspec.structs.replace(plot, series=(*layers, series[-1])))
    assert [few.series[-2].label, few.series[-1]] == ["others (13)", series[-1]]


@pytest.mark.parametrize(
    ("length", "years", "ticks"),
    [
        ("quarter", 1, ["Q1\n2024", "Q2", "Q3", "Q4"]),
        ("quarter", 4, ["Q1\n2024", "Q3", "Q1\n2025", "Q3", "Q1\n2026", "Q3", "Q1\n2027", "Q3"]),
        ("quarter", 12, [f"Q1\n{year}" for year in range(2024, 2036)]),
        ("year", 3, ["2024", "2025", "2026"]),
        ("all", 3, ["all"]),
    ],
)
def test_long_periods_are_bars_with_their_names(length: PeriodLength, years: int, ticks: list[str]) -> None:
    start, stop = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2024, 2024 + years))
    cut = periods(start, stop, length, zone_of("UTC"))
    plot = Plot(title="T", style="line", series=(Series("cores", (1.0,) * len(cut)),), **period_axis(cut))
    assert limited(plot, stop, stop, None).style == "bar"
    assert [text for _, text in time_ticks(plot, stop, "UTC")] == ticks


def test_occupation_has_an_axis_to_its_whole() -> None:
    low = Plot(title="T", style="line", x=(START,), step_s=DAY_S, top=100.0, series=(Series("cores", (12.0,)),))
    ticks = {"0", "20", "40", "60", "80", "100"}
    assert ticks <= set(texts(draw(low, START + DAY_S, Look(), "svg")))
    over = msgspec.structs.replace(low, series=(Series("cores", (130.0,)),))
    assert "120" in texts(draw(over, START + DAY_S, Look(), "svg"))


def test_notes_are_in_the_picture() -> None:
    notes = ("40 nodes without a table. " * 20, *(f"Note {number}." for number in range(8)))
    shown = texts(draw(over_time(3), START + 3 * 3600, Look(note="SITE", notes=notes), "svg"))
    assert {"SITE", "Note 3.", "4 more notes are in the table."} <= set(shown)
    assert "Note 4." not in shown
    assert max(map(len, shown)) <= 165
    plain, tall = (pixels(draw(over_time(3), START, Look(notes=some), "png"))[1] for some in ((), notes))
    assert tall > plain, "the plot keeps its room"


def test_series_of_a_key_are_labelled_even_if_there_is_one() -> None:
    one = over_time(3)
    assert not is_labelled(one)
    assert is_labelled(msgspec.structs.replace(one, by="user"))
    assert is_labelled(over_time(3, 2))


def test_the_page_and_files_have_the_same_colours() -> None:
    style = (ROOT / "publisher" / "page" / "templates" / "style.css").read_text(encoding="utf-8")
    light, dark = style.split("@media (prefers-color-scheme: dark) {")[:2]
    for text, colours, unknown in ((light, COLOURS, UNKNOWN), (dark.split("\n}\n")[0], COLOURS_DARK, UNKNOWN_DARK)):
        found = dict(re.findall(r"--(c\d|unknown|other): (#[0-9a-f]+);", light)) | dict(
            re.findall(r"--(c\d|unknown|other): (#[0-9a-f]+);", text)
        )
        assert found == {f"c{place}": value for place, value in enumerate(colours)} | {
            "other": OTHERS, "unknown": unknown,
        }  # fmt: skip
    between = f"({SHADES[0]}, {SHADES[4]}, {SHADES[8]})".replace("(", "to right, ")
    assert f"linear-gradient({between}" in light + dark, "the page has some of the shades, and those between by itself"
    svg = draw(over_time(3, 7), START + 3 * 3600, Look(style="bar"), "svg")
    assert {*COLOURS} <= colours_of(svg)
