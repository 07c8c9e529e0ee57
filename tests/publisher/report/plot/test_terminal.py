"""Charts of text: the right lengths, no line wider than the terminal, and readable without colours or Unicode."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from rich.cells import cell_len

from publisher.report.plot.style import Look
from publisher.report.plot.terminal import TextPlot
from publisher.report.report import Plot, Series
from tests.publisher.cli.program import BASE, Inside
from tests.publisher.report.plot.test_draw import HOSTILE, START, heat, many_names, months, over_names, over_time

STOP = START + 86_400


def lines(
    plot: Plot, width: int = 80, *, unicode: bool = True, coloured: bool = False, look: Look | None = None
) -> list[str]:
    made = TextPlot(width, unicode=unicode, coloured=coloured).lines(plot, START, STOP, look or Look(note="SITE"))
    return [line.plain for line in made]


PLOTS = {
    "line": over_time(24), "many bins": over_time(3000), "lines": over_time(24, 3),
    "stack": over_time(24, 3, stacked=True), "names": many_names(112, names_add_up=True),
    "measures": over_names("a", "b", stacked=False),
    "stacked names": many_names(30, 3, stacked=True, names_add_up=True),
    "heat": heat(50, 31), "wide heat": heat(3, 400), "months": months(24),
    "one bin": over_time(1), "one month": months(1), "hostile": over_names(*HOSTILE),
}  # fmt: skip


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [40, 80, 300])
@pytest.mark.parametrize("name", PLOTS)
def test_no_line_is_wider_than_the_terminal(name: str, width: int, unicode: bool) -> None:
    made = lines(PLOTS[name], width, unicode=unicode)
    assert max(map(cell_len, made)) <= min(width, 160)
    assert len(made) > 5
    if not unicode and name != "hostile":
        assert "".join(made).replace("…", "").isascii()
    assert not any("\x1b" in line or "\n" in line for line in made)


def test_bars_are_as_long_as_their_values() -> None:
    plot = Plot(
        title="Core hours", style="bar", x=("ann", "bob", "cai", "dan"), unit="core h", names_add_up=True,
        series=(Series("core hours", (40.0, 20.0, 0.01, 0.0)),),
    )  # fmt: skip
    ann, bob, cai, dan = (line.split("▏")[0] for line in lines(plot)[3:7])
    assert ann.count("█") == 71
    assert bob.endswith(f"{'█' * 35}▌ 20.0")
    assert ann.endswith(" 40.0")
    assert lines(plot)[5].split()[1:] == ["▏", "<0.1"], "there is a trace of it"
    assert (cai.strip(), dan.split()) == ("cai", ["dan", "0"])
    assert lines(plot)[:2] == ["Core hours", "SITE, 2026-11-01 until 2026-11-02, UTC"]
    assert lines(plot)[-1].strip() == "core h"


def test_negative_bars_end_where_positive_bars_begin() -> None:
    plot = Plot(
        title="Charges", style="bar", x=("ann", "bob", "cai"), unit="EUR", names_add_up=True,
        series=(Series("charges", (30.5, 0.0, -10.0)),),
    )  # fmt: skip
    ann, bob, cai = lines(plot)[3:6]
    zero = ann.index("█")
    assert cai.index("█") == 4
    assert cai.rindex("█") == zero - 1
    assert (bob.split(), cai.split()[-1]) == (["bob", "0"], "-10.0")


def test_layers_differ_without_colours() -> None:
    plot = many_names(3, 3, stacked=True, names_add_up=True)
    plain = lines(plot)
    assert "█ vo0   ▒ vo1   ▓ vo2" in plain[-1]
    assert all({"█", "▒", "▓"} <= set(line) for line in plain[3:5])
    styles = TextPlot(80, unicode=True, coloured=True).lines(plot, START, STOP, Look())
    assert {str(span.style) for span in styles[3].spans} >= {"#0072b2", "#e69f00", "#009e73"}
    plain_styles = TextPlot(80, unicode=True, coloured=False).lines(plot, START, STOP, Look())
    assert not any("#" in str(span.style) for line in plain_styles for span in line.spans)


def test_months_are_on_the_axis_and_their_bars_are_separate() -> None:
    made = lines(months(12), 160)
    assert "Dec 2024" in made[-1]
    assert "Feb" in made[-1]
    lowest = made[-3]
    assert lowest.count(" █") >= 9


def test_lines_have_gaps_and_points() -> None:
    values = (None, 1.0, None, 2.0, 3.0, None)
    plot = msgspec.structs.replace(over_time(6), series=(Series("a", values),))
    dotted = [line for line in lines(plot, 60) if any(0x2800 < ord(letter) < 0x2900 for letter in line)]
    columns = {place for line in dotted for place, letter in enumerate(line) if 0x2800 < ord(letter) < 0x2900}
    assert len(columns) < 20
    bars = lines(plot, 60, look=Look(style="bar"))
    assert any("█" in line for line in bars)
    assert lines(over_time(0))[-1] == "nothing to show"


def test_unknown_is_a_mark_and_never_zero() -> None:
    made = lines(
        msgspec.structs.replace(over_time(4), series=(Series("a", (1.0, None, 2.0, 3.0)),)), look=Look(style="bar")
    )
    assert sum(line.count("?") for line in made) == 2
    assert made[-1] == "? or a gap: unknown"
    named = msgspec.structs.replace(over_names("a", "b"), series=(Series("s", (1.0, None)),))
    assert lines(named)[4].split() == ["b", "unknown"]


def test_the_period_before_has_a_bar_of_its_own() -> None:
    series = (Series("s", (2.0, 1.0)), Series("t", (2.0, 1.0)), Series("before", (8.0, 0.0), before=True))
    made = lines(msgspec.structs.replace(over_names("a", "b"), series=series))
    assert [line.split()[-1] for line in made[3:7]] == ["4", "8", "2", "0"]
    assert made[4].count("█") == pytest.approx(2 * (made[3].count("█") + made[3].count("▒")), abs=1)
    assert made[-1] == "█ s   ▒ t"


def test_a_heat_map_says_what_its_shades_are() -> None:
    made = lines(heat(3, 40))
    assert made[-1] == "occupation:   · 0   ░ to 25   ▒ to 50   ▓ to 75   █ to 100   blank: unknown"
    full = msgspec.structs.replace(heat(1, 4), series=(Series("n", (0.0, 25.0, 26.0, 100.0)),))
    assert lines(full)[3] == "n " + "".join(letter * 4 for letter in "·▒▒█")


def test_what_is_left_out_is_said() -> None:
    assert lines(many_names(50))[-1] == "20 of 50; the table has the others"


SOURCES = '\n[sources.ge]\ntype = "gridengine"\npath = "{ge}"\n'


def test_the_command(tmp_path: Path, fixtures: Path) -> None:
    site = Inside(tmp_path, BASE + SOURCES.format(ge=fixtures / "gridengine" / "real" / "accounting"))
    site("collect").ok()
    month = ("--since", "2026-11", "--until", "2026-12", "--format", "term")
    out = site("report", "totals", *month, "--by", "user").ok().out
    assert out.startswith("Core hours by user\nEXAMPLE-SITE, 2026-11-01 until 2026-12-01, UTC\n")
    assert "\x1b" not in out
    assert "█" in out
    site("report", "totals", *month, "--by", "user", "--output", "chart").ok()
    assert (site.folder / "chart").read_text(encoding="utf-8").split() == out.split()
    assert "has no picture" in site("report", "totals", *month).err
    titled = site("report", "utilization", *month, "--title", "A month", "--style", "bar", "--plot", "2").ok().out
    assert titled.startswith("A month\n")
