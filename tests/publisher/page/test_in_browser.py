"""The page in a real browser: at a desk, on a phone, by keyboard, to a screen reader, without scripts."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.publisher.cli.program import Program
from tests.publisher.page.browser import Browser, Tab
from tests.publisher.page.conftest import EVIL, TOKENS

MONTH = "start=2026-11-01&days=30&shown=1&legend=1"


def looks_right(tab: Tab, width: int) -> None:
    """Nothing sticks out at the side, and the browser has nothing to complain about."""
    assert tab.value("document.documentElement.scrollWidth") <= width
    assert tab.complaints() == []


def test_at_a_desk(browser: Browser, page: str, pictures: Path) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/?{MONTH}&by=user&style=bar&grid=1")
        looks_right(tab, 1200)
        assert tab.text("h1") == "Queue utilization by user"
        assert tab.value("document.querySelectorAll('.as-bar path').length") == 8
        assert EVIL in tab.text(".legend") or "(others" in tab.text(".legend")
        assert all(url.startswith((page, "data:")) for url in tab.requests())
        tab.picture(pictures / "page-desktop.png")


def test_on_a_phone(browser: Browser, page: str, pictures: Path) -> None:
    with browser.tab(width=390, height=844, phone=True) as tab:
        tab.open(f"{page}/?{MONTH}&by=queue")
        looks_right(tab, 390)
        small = "[...document.querySelectorAll('button, select, input:not([type=hidden])')]"
        assert tab.value(f"Math.min(...{small}.map(one => one.getBoundingClientRect().width))") >= 16
        assert tab.value("parseFloat(getComputedStyle(document.querySelector('.up text')).fontSize)") >= 11
        tab.picture(pictures / "page-phone.png")


@pytest.mark.parametrize("view", ["totals", "occupation", "status", "help"])
def test_other_views(browser: Browser, page: str, pictures: Path, view: str) -> None:
    for width in (1200, 390):
        with browser.tab(width=width) as tab:
            tab.open(f"{page}/{view}?{MONTH}")
            looks_right(tab, width)
            if width == 1200:
                tab.picture(pictures / f"page-{view}.png")


def test_nothing_that_a_job_is_called_is_run(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        for path in ("?by=user&", "totals?by=user&", "totals?by=host&", "occupation?"):
            tab.open(f"{page}/{path}{MONTH}")
            assert tab.value("document.querySelectorAll('script').length") == 1
            assert tab.complaints() == []
        tab.open(f"{page}/totals?{MONTH}&by=user")
        assert EVIL in tab.text("table")
        tab.open(f"{page}/?{MONTH}&user=%22%3E%3Cscript%3E")
        assert tab.value("document.getElementById('f-user').value") == '"><script>'
        assert tab.complaints() == []


@pytest.mark.parametrize("scripts", [True, False])
def test_what_is_seen_changes_at_once_with_and_without_scripts(browser: Browser, page: str, *, scripts: bool) -> None:
    with browser.tab(scripts=scripts) as tab:
        tab.open(f"{page}/?{MONTH}")
        assert tab.is_seen(".measure-queue .as-line")
        assert not tab.is_seen(".measure-queue .as-bar")
        assert not tab.is_seen(".measure-cpu")
        assert not tab.is_seen(".gridlines")
        for chosen in ("#style-bar", "#grid", "#measure-cpu", "#legend"):
            tab.click(chosen)
        assert tab.is_seen(".measure-cpu .as-bar")
        assert not tab.is_seen(".measure-cpu .as-line")
        assert not tab.is_seen(".measure-queue")
        assert tab.is_seen(".measure-cpu .gridlines")
        assert not tab.is_seen(".measure-cpu .legend")


def test_by_keyboard(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/?{MONTH}")
        tab.key("Tab")
        assert tab.value("document.activeElement.className") == "skip"
        tab.value("document.getElementById('f-user').focus()")
        tab.type("alice")
        tab.enter()
        assert "user=alice" in tab.value("location.search")
        assert tab.value("document.getElementById('f-user').value") == "alice"
        tab.value("document.getElementById('style-line').focus()")
        tab.key("ArrowRight")
        assert tab.value("document.getElementById('style-bar').checked")
        reached = set()
        for _ in range(60):
            tab.key("Tab")
            reached.add(tab.value("document.activeElement.tagName.toLowerCase()"))
        assert {"a", "input", "select", "button", "svg", "summary"} <= reached


def test_a_chart_shows_its_values(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/?start=2026-11-01&days=2&bin=6h&shown=1")
        tab.value("document.querySelector('.area').focus()")
        tab.key("Home")
        tab.key("ArrowRight")
        first = tab.text("tbody tr:nth-child(2)").split()
        told = tab.text(".readout")
        assert told.startswith(f"{first[0]}: queues ")
        assert float(told.split()[-1]) == pytest.approx(float(first[1]), abs=1e-4)
        tab.point(".area", 0.99)
        assert tab.text(".readout").startswith("2026-11-02T18:00:00Z: queues ")


def test_to_a_screen_reader(browser: Browser, page: str) -> None:
    with browser.tab() as tab:
        tab.open(f"{page}/?{MONTH}&by=queue")
        told = tab.roles()
        assert {"banner", "navigation", "main", "heading", "radiogroup", "group", "status"} <= {
            role for role, _ in told
        }
        unnamed = [
            (role, name)
            for role, name in told
            if role in {"textbox", "combobox", "spinbutton", "checkbox", "radio", "button", "link"} and not name
        ]
        assert unnamed == []
        (chart,) = [name for role, name in told if role in {"image", "img"} and name.startswith("Queue utilization")]
        assert "slow.q from " in chart
        assert "The table below has every value" in chart


def test_colours_keep_contrast_in_the_dark(browser: Browser, page: str, pictures: Path) -> None:
    with browser.tab() as tab:
        tab.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
        tab.open(f"{page}/?{MONTH}&by=user")
        assert tab.value("getComputedStyle(document.documentElement).backgroundColor") == "rgb(23, 24, 27)"
        looks_right(tab, 1200)
        tab.picture(pictures / "page-dark.png")


def test_logging_in_and_out(browser: Browser, guarded_page: str, pictures: Path) -> None:
    with browser.tab() as tab:
        tab.open(f"{guarded_page}/totals")
        assert tab.value("location.pathname") == "/login"
        tab.picture(pictures / "page-login.png")
        tab.value("document.getElementById('token').focus()")
        tab.type("a guess")
        tab.enter()
        assert "not a token" in tab.text("[role=alert]")
        tab.value("document.getElementById('token').focus()")
        tab.type(TOKENS["alice"])
        tab.enter()
        assert tab.value("location.pathname + location.search") == "/"
        assert "alice" in tab.text(".leave")
        assert tab.value("document.cookie") == ""
        assert tab.value("document.getElementById('f-user').readOnly")
        tab.open(f"{guarded_page}/totals?{MONTH}&by=user")
        assert "alice" in tab.text("tbody")
        assert "bob" not in tab.text("body")
        tab.open(f"{guarded_page}/status")
        assert "not for your group" in tab.text("[role=alert]")
        tab.open(f"{guarded_page}/?{MONTH}")
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
        assert tab.is_seen(".measure-cpu .as-bar")
        tab.open(f"file://{month.folder}/by-user.html")
        looks_right(tab, 1200)
        assert all(url.startswith(("file:", "data:")) for url in tab.requests())
        tab.picture(pictures / "page-file.png")


@pytest.mark.parametrize("scripts", [True, False])
def test_what_is_printed_is_what_is_seen(browser: Browser, page: str, *, scripts: bool) -> None:
    """Also where nothing was sent since it was chosen, with and without scripts."""
    sent = (
        "(() => {{ const one = document.querySelectorAll('.print')[{}]; const form = new FormData(one.form, one);"
        "return one.formAction + '?' + new URLSearchParams(form); }})()"
    )
    with browser.tab(scripts=scripts) as tab:
        tab.open(f"{page}/?{MONTH}&account=*")
        assert tab.value("document.querySelectorAll('.print').length") == 4
        for chosen in ("#style-bar", "#measure-cpu", "#legend"):
            tab.click(chosen)
        assert tab.is_seen(".measure-cpu .as-bar")
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
        assert "Wait that nine jobs in ten did not exceed" in httpx.get(second).text
        looks_right(tab, 1200)
