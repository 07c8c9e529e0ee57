"""Letters that the pictures' own font does not have: other fonts, outlines, and what is said where none has them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.pens.ttGlyphPen import TTGlyphPen
from lxml import etree

from publisher.report.plot.draw import Form, draw
from publisher.report.plot.style import Look
from publisher.report.report import Plot, Series

START = 1_793_491_200
KNOWN = "\uf8a1\uf8a2"
"""Letters that no real font has, so that what is installed does not matter."""
UNKNOWN = "\uf8b1\uf8b2"


def plot(*names: str) -> Plot:
    return Plot(
        title="T", style="line", x=(START, START + 3600), step_s=3600, unit="u",
        series=tuple(Series(name, (1.0, 2.0)) for name in names),
    )  # fmt: skip


def write_font(file: Path, family: str, letters: str, *, outlines: str) -> None:
    """A font of black squares: with TrueType outlines, or with those of PostScript, as fonts of Chinese often are."""
    names = [".notdef", *(f"u{ord(letter):X}" for letter in letters)]
    builder = FontBuilder(1000, isTTF=outlines == "TrueType")
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(letter): f"u{ord(letter):X}" for letter in letters})
    pens = {name: TTGlyphPen(None) if outlines == "TrueType" else T2CharStringPen(900, None) for name in names}
    for pen in pens.values():
        pen.moveTo((100, 0))
        for corner in ((100, 700), (800, 700), (800, 0)):
            pen.lineTo(corner)
        pen.closePath()
    if outlines == "TrueType":
        builder.setupGlyf({name: pen.glyph() for name, pen in pens.items()})
    else:
        builder.setupCFF(family.replace(" ", ""), {}, {name: pen.getCharString() for name, pen in pens.items()}, {})
    builder.setupHorizontalMetrics(dict.fromkeys(names, (900, 100)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, sTypoDescender=-200, usWeightClass=400)
    builder.setupPost()
    builder.save(file)


@pytest.fixture(params=["TrueType", "PostScript"])
def installed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[None]:
    """A font that has the letters."""
    from matplotlib import font_manager

    from publisher.report.plot import fonts

    family = f"Squares Sans {request.param}"
    write_font(tmp_path / "squares.otf", family, KNOWN, outlines=request.param)
    before = list(font_manager.fontManager.ttflist)
    font_manager.fontManager.addfont(tmp_path / "squares.otf")
    fonts.forget_fonts()
    yield
    font_manager.fontManager.ttflist[:] = before
    fonts.forget_fonts()


def blackness(picture: bytes) -> int:
    """How many pixels of the legend are all but black."""
    from matplotlib.image import imread

    image = imread(io.BytesIO(picture))[:, :, :3]
    right = image[: image.shape[0] // 4, image.shape[1] * 4 // 5 :]
    return int((right.max(axis=2) < 0.3).sum())


@pytest.mark.usefixtures("installed")
def test_letters_come_from_a_font_that_has_them() -> None:
    said: list[str] = []
    squares = blackness(draw(plot(KNOWN), START + 7200, Look(), "png", say=said.append))
    assert said == []
    assert squares > 1.5 * blackness(draw(plot(UNKNOWN), START + 7200, Look(), "png"))  # boxes are hollow


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("form", ["pdf", "ps"])
def test_files_for_paper_take_in_outlines_not_whole_fonts(form: Form) -> None:
    picture = draw(plot(KNOWN, "plain"), START + 7200, Look(), form)
    assert b"Squares" not in picture
    assert b"DejaVu" in picture
    assert picture == draw(plot(KNOWN, "plain"), START + 7200, Look(), form)
    assert picture != draw(plot(UNKNOWN, "plain"), START + 7200, Look(), form)


def test_letters_that_no_font_has_are_reported_once() -> None:
    from publisher.report.plot import fonts

    fonts.forget_fonts()
    said: list[str] = []
    for form in ("svg", "png", "pdf", "png"):
        draw(plot(UNKNOWN, "a\uf8b3"), START + 7200, Look(), form, say=said.append)  # type: ignore[arg-type]
    (reported,) = said
    assert reported.startswith("no font of this computer has these letters")
    assert all(letter in reported for letter in UNKNOWN + "\uf8b3")
    draw(plot("\uf8b4"), START + 7200, Look(title=UNKNOWN), "png", say=said.append)
    assert len(said) == 2
    assert "\uf8b4" in said[1]
    assert "\uf8b1" not in said[1]


def test_an_svg_keeps_the_text() -> None:
    root = etree.fromstring(draw(plot(UNKNOWN), START + 7200, Look(), "svg"))
    assert UNKNOWN in ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
