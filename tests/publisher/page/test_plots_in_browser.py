"""Plots of the page in a real browser, from a report that is made here: what is drawn, by pointer and by keyboard."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path

import msgspec
import pytest
from PIL import Image

from publisher.page.html import Choice, report_file
from publisher.report.calendar import period_axis, periods, zone_of
from publisher.report.report import Column, Plot, Report, Series
from tests.publisher.page.browser import Browser, Tab

START, STOP = 1_767_225_600, 1_798_761_600
"""The year 2026."""
BLUE, ORANGE = (0, 114, 178), (230, 159, 0)
MONTHS = periods(START, STOP, "month", zone_of("UTC"))
BOTH = (
    Series("measured", (10.0,) * 5 + (None,) * 2 + (10.0,) * 5),
    Series("modelled", (5.0,) * 6 + (None,) + (5.0,) * 5),
)


def over_months(*series: Series, stacked: bool = False, **facts: str) -> Plot:
    return Plot(title="Energy", style="bar", unit="kWh", stacked=stacked, series=series, **period_axis(MONTHS), **facts)


def over_hours(count: int, *series: str) -> Plot:
    made = tuple(
        Series(name, tuple(float(100 * place + at) for at in range(count)))
        for place, name in zip(reversed(range(len(series))), series, strict=True)
    )
    starts = tuple(START + 3600 * at for at in range(count))
    end = START + 3600 * count
    return Plot(
        title="Running jobs", style="line", x=starts, step_s=3600, end=end, unit="jobs", by="queue", series=made
    )  # fmt: skip


@contextmanager
def opened(browser: Browser, folder: Path, plot: Plot) -> Iterator[Tab]:
    """A report of this plot as a file, in the browser."""
    report = Report(
        view="totals", title="Plots", site="SITE", start=START, stop=STOP, columns=(Column("user", "text"),),
        rows=(("ann",),), plots=(plot,),
    )  # fmt: skip
    file = folder / "report.html"
    file.write_bytes(report_file(report, Choice()))
    with browser.tab(width=1000) as tab:
        tab.open(f"file://{file}")
        yield tab
        assert tab.complaints() == []


def runs(tab: Tab, share: float) -> list[object]:
    """The colours of series from left to right, so far above the axis of the plot (a share of its height)."""
    box = tab.value("document.querySelector('.u-over').getBoundingClientRect().toJSON()")
    image = Image.open(io.BytesIO(tab.picture(whole=False))).convert("RGB")
    row = [
        image.getpixel((round(box["left"]) + x, round(box["bottom"] - share * box["height"])))
        for x in range(round(box["width"]))
    ]
    return [colour for colour, _ in groupby(row) if colour in {BLUE, ORANGE}]


def test_months_are_bars_with_gaps_between_them(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, over_months(Series("kWh", (10.0,) * 12))) as tab:
        assert tab.value("document.querySelector('.plot').dataset.drawn") == "bar"
        assert runs(tab, 0.05) == [BLUE] * 12
        tab.click("#style-line")
        assert runs(tab, 0.05) == []


def test_layers_are_stacked_and_unknown_months_are_gaps(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, over_months(*BOTH, stacked=True)) as tab:
        assert runs(tab, 0.05) == [*[BLUE] * 5, ORANGE, *[BLUE] * 5]
        assert runs(tab, 0.9) == [ORANGE] * 10
        assert "? or a gap: unknown" in tab.text("figure .note")
        tab.point(".u-over", 6.5 / 12)
        assert tab.text(".readout") == "2026-07: measured unknown, modelled unknown"


def test_series_that_do_not_add_up_are_side_by_side(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, over_months(*BOTH)) as tab:
        assert runs(tab, 0.05) == [*[BLUE, ORANGE] * 5, ORANGE, *[BLUE, ORANGE] * 5]


def test_many_bars_are_an_outline(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, msgspec.structs.replace(over_hours(300, "long"), style="bar")) as tab:
        assert tab.value("document.querySelector('.plot').dataset.drawn") == "bar"


def test_the_period_before_is_hatched_beside_the_present_one(browser: Browser, tmp_path: Path) -> None:
    series = (Series("core hours", (3.0, None)), Series("the period before", (2.0, 1.0), before=True))
    plot = Plot(title="T", style="bar", x=("ann", "bob"), unit="core h", names_add_up=True, series=series)
    with opened(browser, tmp_path, plot) as tab:
        fills = tab.value("[...document.querySelectorAll('.lying rect')].map(one => one.getAttribute('fill'))")
        assert fills == ["var(--c0)", "url(#hatches-0)", "url(#hatches-0)"]
        assert tab.value("[...document.querySelectorAll('.named .value')].map(one => one.textContent)") == [
            "3 / 2", "unknown / 1",
        ]  # fmt: skip
        assert "the period before" in tab.text(".legend")


def bin_shown(tab: Tab) -> int:
    """The bin of hours whose values are shown."""
    names = [f"2026-01-{1 + at // 24:02} {at % 24:02}:00" for at in range(300)]
    return names.index(tab.text(".readout").partition(": ")[0])


def test_keys_move_from_bin_to_bin(browser: Browser, tmp_path: Path) -> None:
    keys = (
        ("ArrowRight", 0), ("ArrowRight", 1), ("ArrowLeft", 0), ("ArrowLeft", 0), ("PageDown", 10), ("PageDown", 20),
        ("PageUp", 10), ("End", 29), ("PageDown", 29), ("ArrowLeft", 28), ("Home", 0),
    )  # fmt: skip
    with opened(browser, tmp_path, over_hours(30, "long", "short")) as tab:
        tab.value("document.querySelector('.plot').focus()")
        for key, expected in keys:
            tab.key(key)
            assert bin_shown(tab) == expected, key
            values = f"long {100 + expected}, short {expected}"
            assert tab.text(".readout").endswith(values)
            assert tab.value("[...document.querySelectorAll('.series .value')].map(one => one.textContent)") == [
                str(100 + expected), str(expected),
            ]  # fmt: skip


def test_keys_zoom_and_the_bin_that_is_shown_stays_in_sight(browser: Browser, tmp_path: Path) -> None:
    share = (
        "(() => { const over = document.querySelector('.u-over').getBoundingClientRect();"
        "return (document.querySelector('.u-cursor-x').getBoundingClientRect().left - over.left) / over.width; })()"
    )
    whole = "document.querySelector('.tools button:nth-child(3)').disabled"
    with opened(browser, tmp_path, over_hours(100, "long")) as tab:
        tab.value("document.querySelector('.plot').focus()")
        tab.key("Home")
        assert tab.value(share) == pytest.approx(0.005, abs=0.005)
        for _ in range(3):
            tab.key("+", text="+")
        assert not tab.value(whole)
        assert tab.value(share) == pytest.approx(0.22, abs=0.02), "two hours are seen"
        tab.key("End")
        assert bin_shown(tab) == 99
        assert 0.7 < tab.value(share) < 1
        tab.key("-", text="-")
        assert not tab.value(whole)
        tab.key("Escape")
        assert tab.value(whole)
        assert bin_shown(tab) == 99
        assert tab.value(share) == pytest.approx(0.995, abs=0.005)


def test_series_are_chosen_by_keyboard(browser: Browser, tmp_path: Path) -> None:
    """The values that are shown are at once those of the series that are left; the focus is seen, and stays."""
    series = "document.activeElement.matches('.series:focus-visible')"
    focused = f"{series} && getComputedStyle(document.activeElement).outlineStyle"
    with opened(browser, tmp_path, over_hours(30, "long", "short")) as tab:
        tab.value("document.querySelector('.plot').focus()")
        tab.key("End")
        assert tab.value("getComputedStyle(document.querySelector('.plot')).outlineStyle") == "solid"
        tab.key("Tab")
        assert tab.value(focused) == "solid"
        tab.key(" ", text=" ")
        assert tab.value("document.activeElement.ariaPressed") == "false"
        assert tab.text(".readout") == "2026-01-02 05:00: short 29"
        tab.enter(loads=False)
        assert tab.value("document.activeElement.ariaPressed") == "true"
        assert tab.text(".readout") == "2026-01-02 05:00: long 129, short 29"
        assert tab.value(focused) == "solid"


def test_keys_move_from_row_to_row_of_a_heat_map(browser: Browser, tmp_path: Path) -> None:
    rows = tuple(Series(f"n{node}", tuple(float(10 * node + at) for at in range(12))) for node in range(3))
    plot = Plot(title="Nodes", style="heat", unit="%", by="node", series=rows, **period_axis(MONTHS))
    keys = (
        ("ArrowDown", "2026-01: n1 10 %"), ("ArrowRight", "2026-02: n1 11 %"), ("ArrowDown", "2026-02: n2 21 %"),
        ("ArrowDown", "2026-02: n2 21 %"), ("ArrowUp", "2026-02: n1 11 %"), ("End", "2026-12: n1 21 %"),
    )  # fmt: skip
    with opened(browser, tmp_path, plot) as tab:
        tab.value("document.querySelector('.plot').focus()")
        for key, text in keys:
            tab.key(key)
            assert tab.text(".readout") == text, key


def test_a_screen_reader_gets_the_value_under_the_cursor(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, over_hours(3, "long")) as tab:
        tab.value("document.querySelector('.plot').focus()")
        tab.key("ArrowRight")
        readout = "document.querySelector('.readout')"
        assert tab.value(f"[{readout}.ariaLive, {readout}.textContent]") == ["polite", "2026-01-01 00:00: long 0"]
        assert ("status", "") in tab.roles()
        assert any(role == "application" and name.startswith("Running jobs. long from 0") for role, name in tab.roles())
