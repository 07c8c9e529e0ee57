"""The page in a real browser: at a desk, on a phone, by keyboard, to a screen reader, without scripts."""

from __future__ import annotations

import os
import time
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.publisher.cli.program import BASE, Program
from tests.publisher.page.believable import settings, write_logs
from tests.publisher.page.browser import Browser, Tab
from tests.publisher.page.conftest import EVIL, LONG_NAME, TOKENS, Served

MONTH = "since=2026-11-01&days=30&shown=1&legend=1"


def looks_right(tab: Tab, width: int) -> None:
    """Nothing is wider than the page, and the browser reports no problem."""
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []


def test_at_a_desk(browser: Browser, page: str, pictures: Path) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/utilization?{MONTH}&by=user&style=bar&grid=1")
        looks_right(tab, 1200)
        assert tab.text("h1") == "Running jobs by user"
        assert tab.value("document.querySelectorAll('.legend .series').length") == 8
        assert EVIL in tab.text(".legend")
        assert tab.is_seen(".plot[data-drawn=bar] canvas")
        assert all(url.startswith((page, "data:")) for url in tab.requests())
        tab.picture(pictures / "page-utilization.png")


def test_on_a_phone(browser: Browser, page: str) -> None:
    with browser.tab(width=390, height=844, phone=True) as tab:
        tab.open(f"{page}/utilization?{MONTH}&by=queue")
        looks_right(tab, 390)
        small = "[...document.querySelectorAll('button, select, input:not([type=hidden])')]"
        assert tab.value(f"Math.min(...{small}.map(one => one.getBoundingClientRect().width))") >= 16
        assert tab.value("document.querySelector('.plot canvas').getBoundingClientRect().width") > 300


PAGES = {
    "overview": "/",
    "held": "/records?state=held",
    "delivered": "/records?state=delivered",
    "utilization": f"/utilization?{MONTH}&by=user",
    "totals": f"/totals?{MONTH}&by=user&by2=queue",
    "occupation": f"/occupation?{MONTH}",
    "nodes": f"/occupation?{MONTH}&by=node",
    "waiting": f"/waiting?{MONTH}",
    "charges": "/charges?month=2026-11",
    "jobs": f"/jobs?{MONTH}",
    "job": "/jobs?job=7",
    "no-job": "/job",
    "wrong": "/totals?days=x",
    "help": "/help",
    "history": "/history",
    "run": "/history/1",
}
_CUT_OFF = """
document.querySelectorAll('details').forEach(one => { one.open = true; });
[...document.querySelectorAll('header, main, header *, main *')].filter(one =>
    !(one instanceof SVGElement) && getComputedStyle(one).display !== 'inline' && !one.closest('.long')
    && !one.matches('.wide, :has(.wide)')
    && one.clientWidth > 1 && one.scrollWidth > one.clientWidth + 1
).map(one => `${one.tagName}.${one.className}: ${one.scrollWidth} > ${one.clientWidth}`)
"""
"""Elements whose content is wider than they are, also tables that could be scrolled. A table may be wider than the text
around it."""


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_at_any_width(browser: Browser, states_page: str, name: str) -> None:
    for width in (360, 800, 1300):
        with browser.tab(width=width, phone=width < 500) as tab:
            tab.open(states_page + PAGES[name])
            assert tab.value("document.documentElement.scrollWidth") <= width
            assert tab.value(_CUT_OFF) == []


def test_a_table_takes_the_width_that_it_needs(browser: Browser, states_page: str) -> None:
    """Headings break on a small screen, and not on a wide one."""
    found = {}
    for width in (1300, 1900):
        with browser.tab(width=width) as tab:
            tab.open(f"{states_page}/energy?{MONTH}&by=user&by2=queue")
            box, text = (
                tab.value(f"(() => {{ const box = document.querySelector('{one}').getBoundingClientRect(); "
                          "return [Math.round(box.left), Math.round(box.right)]; })()")
                for one in (".scroll", "h1")
            )  # fmt: skip
            assert (box[0] + box[1]) // 2 == width // 2
            assert box[0] >= 24 - 1
            found[width] = box[1] - box[0], text[1] - text[0]
    assert found[1900][0] > found[1300][0] > found[1300][1]


@pytest.mark.parametrize(("width", "media"), [(360, "screen"), (800, "screen"), (1300, "print")])
def test_cards_and_prints_show_every_row(browser: Browser, states_page: str, width: int, media: str) -> None:
    """A box that scrolls would cut them in the middle of a row, in pictures and on paper too."""
    short = (
        "[...document.querySelectorAll('.scroll, pre')].map(one => [one.scrollHeight, one.clientHeight])"
        ".filter(([all, shown]) => all > shown + 1)"
    )
    with browser.tab(width=width, phone=width < 500) as tab:
        tab.ask("Emulation.setEmulatedMedia", media=media)
        for name in ("totals", "utilization", "nodes", "charges", *(["job"] if media == "print" else [])):
            tab.open(states_page + PAGES[name])
            tab.value("document.querySelectorAll('details').forEach(one => { one.open = true; })")
            assert tab.value("document.querySelectorAll('.scroll, pre').length"), name
            assert tab.value(short) == [], name


def test_a_reason_has_the_colour_of_its_state(browser: Browser, states_page: str) -> None:
    with browser.tab(width=1300) as tab:
        tab.open(f"{states_page}/jobs?job=7")
        border = "getComputedStyle(document.querySelector('.reason.held')).borderLeftColor"
        assert tab.value(f"{border} === getComputedStyle(document.querySelector('.mark.held')).color")


_CONTRASTS = """
(() => {
  const numbers = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const light = (rgb) => rgb.slice(0, 3).map(one => one / 255)
      .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
      .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const found = numbers(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const one = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || !one.getClientRects().length || one.closest('svg, .long, script, style')) continue;
    const ink = light(numbers(getComputedStyle(one).color));
    const paper = light(behind(one));
    const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (ratio < 4.5) found.push(`${one.tagName}.${one.className} ${text}: ${ratio.toFixed(2)}`);
  }
  return found;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_colour_schemes(browser: Browser, states_page: str, scheme: str) -> None:
    with browser.tab(width=1300) as tab:
        tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        for name, path in PAGES.items():
            tab.open(states_page + path)
            ink, paper = ("rgb(29, 29, 31)", "rgb(255, 255, 255)")
            if scheme == "dark":
                ink, paper = ("rgb(236, 236, 240)", "rgb(23, 24, 27)")
            style = "getComputedStyle(document.documentElement)"
            assert [tab.value(f"{style}.color"), tab.value(f"{style}.backgroundColor")] == [ink, paper]
            assert tab.value(_CONTRASTS) == [], name


def test_the_state_of_publishing_comes_first(browser: Browser, states_page: str) -> None:
    with browser.tab(width=800) as tab:
        tab.open(states_page)
        tops = [
            tab.value(f"document.querySelector({selector!r}).getBoundingClientRect().top")
            for selector in (".state", ".tiles", "#usage", "#targets", "#sources")
        ]
        assert tops == sorted(tops)
        assert tab.value("document.querySelector('.tiles').getBoundingClientRect().bottom") < 450
        shown = tab.value("[...document.querySelectorAll('.tile')].map(one => one.innerText.split('\\n').slice(0, 2))")
        assert shown == [["Delivered", "1,501"], ["Waiting", "0"], ["Held", "1,501"], ["Rejected", "0"]]
        tab.click(".tile[href*=held]", loads=True)
        assert tab.value("location.pathname + location.search") == "/records?state=held"
        assert tab.text("h1") == "Held records"


def test_a_long_id_is_shortened_and_copied_whole(browser: Browser, states_page: str) -> None:
    with browser.tab(width=360, phone=True) as tab:
        tab.open(f"{states_page}/totals?{MONTH}&by=user")
        tab.value("document.querySelector('.data').open = true")
        first = "document.querySelector('td .long')"
        short = str(tab.value(f"{first}.dataset.short"))
        head, tail = short.split("\N{HORIZONTAL ELLIPSIS}")
        assert (LONG_NAME[: len(head)], LONG_NAME[-len(tail) :], len(short)) == (head, tail, 32)
        assert tab.value(f"{first}.title") == LONG_NAME
        tab.value(f"getSelection().selectAllChildren({first})")
        assert tab.value("getSelection().toString().trim()") == LONG_NAME
        assert any(LONG_NAME in name for role, name in tab.roles() if role == "cell")


def test_nothing_that_a_job_is_called_is_run(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        for path in ("?by=user&", "totals?by=user&", "totals?by=host&", "occupation?"):
            tab.open(f"{page}/{path}{MONTH}")
            assert tab.value("document.querySelectorAll('script').length") in {0, 2}
            assert EVIL not in tab.value("[...document.scripts].map(one => one.text).join()")
            assert tab.complaints() == []
        tab.open(f"{page}/totals?{MONTH}&by=user")
        assert EVIL in tab.text("table")
        tab.open(f"{page}/utilization?{MONTH}&user=%22%3E%3Cscript%3E")
        assert tab.value("document.getElementById('f-user').value") == '"><script>'
        assert tab.complaints() == []


def test_what_is_seen_changes_at_once(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/utilization?{MONTH}")
        assert tab.is_seen(".measure-queue [data-drawn=line] canvas")
        assert not tab.is_seen(".measure-cpu")
        for chosen in ("#style-bar", "#measure-cpu", "#legend"):
            tab.click(chosen)
        assert tab.is_seen(".measure-cpu [data-drawn=bar] canvas")
        assert not tab.is_seen(".measure-queue")
        assert not tab.is_seen(".measure-cpu .legend")


def test_series_are_chosen_and_an_interval_is_zoomed(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/utilization?{MONTH}&by=queue")
        tab.point(".u-over", 0.5)
        assert "fast.q" in tab.text(".readout")
        tab.click(".legend li:last-child button")
        assert tab.value("document.querySelector('.legend li:last-child button').ariaPressed") == "false"
        tab.point(".u-over", 0.4)
        assert "slow.q" in tab.text(".readout")
        assert "fast.q" not in tab.text(".readout")
        assert tab.value("document.querySelector('.tools a').hidden")
        tab.click(".tools button")
        tab.click(".tools a", loads=True)
        given = parse_qs(urlsplit(str(tab.value("location.href"))).query)
        since, until = (datetime.fromisoformat(given[name][0]) for name in ("since", "until"))
        assert timedelta(0) < until - since <= timedelta(days=15)
        assert given["by"] == ["queue"]
        assert tab.complaints() == []


def test_without_scripts_tables_have_every_value(browser: Browser, page: str) -> None:
    with browser.tab(scripts=False) as tab:
        tab.open(f"{page}/utilization?{MONTH}&by=queue")
        assert tab.value("document.querySelectorAll('canvas').length") == 0
        assert "The table below has every value" in tab.text("noscript")
        tab.click(".data summary")
        assert tab.is_seen(".data tbody td")
        looks_right(tab, 1200)


def test_by_keyboard(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/utilization?{MONTH}")
        tab.key("Tab")
        assert tab.value("document.activeElement.className") == "skip"
        assert not tab.is_seen("#f-user")
        tab.value("document.querySelector('.ask summary').focus()")
        tab.enter(loads=False)
        assert tab.is_seen("#f-user")
        tab.value("document.getElementById('f-user').focus()")
        tab.type("alice")
        tab.enter()
        assert "user: alice" in tab.text(".ask summary")
        assert "user=alice" in tab.value("location.search")
        assert tab.value("document.getElementById('f-user').value") == "alice"
        tab.value("document.getElementById('style-line').focus()")
        tab.key("ArrowRight")
        assert tab.value("document.getElementById('style-bar').checked")
        tab.value("document.querySelector('.ask').open = true")
        reached = set()
        for _ in range(60):
            tab.key("Tab")
            reached.add(tab.value("document.activeElement.tagName.toLowerCase()"))
        assert {"a", "input", "select", "button", "div", "summary"} <= reached


def test_a_chart_shows_its_values(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/utilization?since=2026-11-01&days=2&bin=6h&shown=1")
        tab.value("document.querySelector('.plot').focus()")
        tab.key("Home")
        tab.key("ArrowRight")
        first = tab.text("tbody tr:nth-child(2)").split()
        reported = tab.text(".readout")
        assert reported.startswith("2026-11-01 06:00: running jobs ")
        assert float(reported.split()[-1]) == pytest.approx(float(first[1]), abs=0.05)
        tab.point(".u-over", 0.99)
        assert tab.text(".readout").startswith("2026-11-02 18:00: running jobs ")


def test_to_a_screen_reader(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/utilization?{MONTH}&by=queue")
        reported = tab.roles()
        assert {"banner", "navigation", "main", "heading", "radiogroup", "group", "status"} <= {
            role for role, _ in reported
        }
        unnamed = [
            (role, name)
            for role, name in reported
            if role in {"textbox", "combobox", "spinbutton", "checkbox", "radio", "button", "link"} and not name
        ]
        assert unnamed == []
        (chart,) = [name for role, name in reported if role == "application" and name.startswith("Running jobs")]
        assert "slow.q from " in chart
        assert "The table below has every value" in chart


def test_logging_in_and_out(browser: Browser, guarded_page: str, pictures: Path) -> None:
    with browser.tab() as tab:
        asked = f"/totals?{MONTH}&by=user"
        tab.open(guarded_page + asked)
        assert tab.value("location.pathname") == "/login"
        tab.picture(pictures / "page-login.png")
        tab.value("document.getElementById('token').focus()")
        tab.type("a guess")
        tab.enter()
        assert "not known" in tab.text("[role=alert]")
        tab.value("document.getElementById('token').focus()")
        tab.type(TOKENS["alice"])
        tab.enter()
        assert tab.value("location.pathname + location.search") == asked
        assert "alice" in tab.text(".leave")
        assert tab.value("document.cookie") == ""
        assert tab.value("document.getElementById('f-user').readOnly")
        assert "alice" in tab.text("tbody")
        assert "bob" not in tab.text("body")
        tab.open(f"{guarded_page}/records")
        assert "Your group may not see this page" in tab.text("[role=alert]")
        assert "Totals" in tab.text("nav")
        tab.open(f"{guarded_page}/utilization?{MONTH}")
        tab.click(".leave button", loads=True)
        assert tab.value("location.pathname") == "/login"
        tab.open(f"{guarded_page}/totals")
        assert tab.value("location.pathname") == "/login"
        assert not any(token in url for url in tab.requests() for token in TOKENS.values())


def test_a_file_by_itself(browser: Browser, month: Program, pictures: Path) -> None:
    asked = ("report", "utilization", "--since", "2026-11-01", "--until", "2026-12-01", "--format", "html")
    month(*asked, "--by", "user", "--output", "by-user.html").ok()
    month(*asked, "--output", "report.html").ok()
    with browser.tab() as tab:
        tab.open(f"file://{month.folder}/report.html")
        looks_right(tab, 1200)
        assert tab.value("document.querySelectorAll('form').length") == 0
        tab.click("#style-bar")
        tab.click("#measure-cpu")
        assert tab.is_seen(".measure-cpu [data-drawn=bar] canvas")
        tab.open(f"file://{month.folder}/by-user.html")
        looks_right(tab, 1200)
        assert all(url.startswith(("file:", "data:")) for url in tab.requests())
        tab.picture(pictures / "page-file.png")


@pytest.mark.parametrize("scripts", [True, False])
def test_what_is_printed_is_what_is_seen(browser: Browser, page: str, *, scripts: bool) -> None:
    """Also where nothing was sent since it was chosen, with and without scripts."""
    sent = (
        "(() => {{ const one = document.querySelectorAll('button.print')[{}]; const form = new FormData(one.form, one);"
        "return one.formAction + '?' + new URLSearchParams(form); }})()"
    )
    with browser.tab(scripts=scripts) as tab:
        tab.open(f"{page}/utilization?{MONTH}&account=*")
        assert tab.value("document.querySelectorAll('button.print').length") == 4
        for chosen in ("#style-bar", "#measure-cpu", "#legend"):
            tab.click(chosen)
        assert tab.is_seen(".measure-cpu")
        printed = str(tab.value(sent.format(3)))
        given = parse_qs(urlsplit(printed).query)
        assert (urlsplit(printed).path, given["measure"], given["style"]) == ("/utilization.svg", ["cpu"], ["bar"])
        assert given["account"] == ["*"]
        assert "legend" not in given
        picture = httpx.get(printed).text
        assert "CPU utilization" in picture
        assert "CPU, user" not in picture
        tab.open(f"{page}/scarce?{MONTH}")
        second = str(tab.value(sent.format(7)))
        assert "Waiting time for resources (p90)" in httpx.get(second).text
        looks_right(tab, 1200)


PICTURES = {
    "page-desktop.png": (1200, "light", "/"),
    "page-phone.png": (360, "light", "/"),
    "page-dark.png": (1200, "dark", "/utilization?since=-29d&by=account"),
    "page-report.png": (1200, "light", "/utilization?since=-29d&by=account"),
    "page-nodes.png": (1200, "light", "/occupation?since=-29d&by=node"),
    "page-records.png": (1200, "light", "/records?state=held"),
    "page-jobs.png": (1200, "light", "/jobs?account=speech-models"),
    "page-job.png": (1200, "light", "/jobs?job=900"),
}
"""Those of the documents among them: name, width, colour scheme, and address."""


def test_pictures_of_a_believable_site(browser: Browser, tmp_path: Path, pictures: Path) -> None:
    write_logs(tmp_path, int(time.time()), 4_000 if "PICTURES" in os.environ else 400)
    site = Program(tmp_path, BASE.replace("EXAMPLE-SITE", "FRAM-HPC") + settings())
    assert site("run").code == 3
    with Served(site) as served:
        for name, (width, scheme, path) in PICTURES.items():
            with browser.tab(width=width, phone=width < 500) as tab:
                tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                tab.open(served.url + path)
                looks_right(tab, width)
                tab.picture(pictures / name)
