"""Pictures and pages of reports from the real command."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from lxml import etree, html

from tests.publisher.cli.program import BASE, Inside, Program

SOURCES = '\n[sources.dqs]\ntype = "dqs"\npath = "{dqs}"\n'
FIGURE = ("--since", "@1000000010", "--until", "@1000000057", "--bin", "6s")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, fixtures: Path) -> Inside:
    made = Inside(tmp_path_factory.mktemp("pictures"), BASE + SOURCES.format(dqs=fixtures / "dqs" / "act_file"))
    made("collect").ok()
    return made


def picture(site: Program, *arguments: str, form: str = "svg") -> bytes:
    site("report", "utilization", *FIGURE, "--format", form, "--output", f"picture.{form}", *arguments).ok()
    return (site.folder / f"picture.{form}").read_bytes()


def texts(svg: bytes) -> list[str]:
    return ["".join(one.itertext()) for one in etree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize(
    ("form", "begins"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF"), ("ps", b"%!PS"), ("html", b"<!doct")]
)
def test_every_form_is_written_the_same_each_time(site: Inside, form: str, begins: bytes) -> None:
    made = picture(site, form=form)
    assert made.startswith(begins)
    in_a_process = Program(site.folder, site.config.read_text(encoding="utf-8"))
    assert hashlib.sha256(made).digest() == hashlib.sha256(picture(in_a_process, form=form)).digest()


def test_options_of_pictures(site: Inside) -> None:
    plain = texts(picture(site))
    assert {"Running jobs", "running jobs"} <= set(plain)
    assert any(text.startswith("EXAMPLE-SITE") for text in plain)
    cpu = texts(picture(site, "--measure", "cpu", "--style", "bar", "--grid", "--title", "One figure"))
    assert {"One figure", "CPU, user", "CPU, system"} <= set(cpu)
    assert "CPU, user" not in texts(picture(site, "--measure", "cpu", "--no-legend"))
    assert "CPU utilization" in texts(picture(site, "--plot", "2"))
    by_user = texts(picture(site, "--by", "user", "--legend"))
    assert {"Running jobs by user", "user"} <= set(by_user)
    assert "2001-09-09 01:46:50 until 2001-09-09 01:47:37, UTC" in by_user


def test_the_page_is_whole_and_says_the_figures(site: Inside) -> None:
    page = html.fromstring(picture(site, "--style", "bar", form="html").decode())
    rows = [[cell.text_content() for cell in row.iter("td")] for row in page.iter("tr")][1:]
    assert [row[1] for row in rows] == [
        "1.00", "0.50", "1.00", "1.67", "2.33", "2.83", "1.00", "0.83",
    ]  # fmt: skip
    assert page.xpath("//input[@id='style-bar']/@checked")
    assert page.xpath("count(//*[@data-chart])") == 2
    outside = [value for value in page.xpath("//@src | //link/@href | //@action") if not value.startswith("data:")]
    assert outside == []
    (policy,) = page.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_what_makes_no_sense_is_reported(site: Inside) -> None:
    asked = ("report", "utilization", *FIGURE, "--format", "png", "--output", "x.png")
    assert "the view has 2 pictures: Running jobs; CPU utilization" in site(*asked, "--plot", "3").err
    assert site("report", "utilization", *FIGURE, "--format", "png", "--output", "nowhere/x.png").code == 2


def test_without_a_file_it_is_written_to_standard_output(site: Inside) -> None:
    assert site("report", "utilization", *FIGURE, "--format", "svg").ok().out.startswith("<?xml")
