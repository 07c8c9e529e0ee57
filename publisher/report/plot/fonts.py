"""Letters that the pictures' own font does not have: the fonts of this computer that have them, and what none has.

matplotlib takes each letter from the first font of a list that has it. The list is the pictures' own font and as few
others as the letters need, so that pictures of plain names do not depend on what else is installed.

Names in an SVG that were shortened: the whole one is shown where one points, and to a screen reader.

matplotlib knows no titles, but writes the id of a text: it holds the name until the picture is done.
"""

from __future__ import annotations

import logging
import re
from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from matplotlib import font_manager
from matplotlib.ft2font import FT2Font
from matplotlib.patheffects import Normal
from matplotlib.text import Text

from publisher.report.plot.style import FONT
from publisher.text import safe

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure


_NO_LETTERS: Final = "Last Resort"
"""matplotlib's own font of boxes, which has a box for everything."""
_INVISIBLE: Final = frozenset("\n\r\t\N{HAIR SPACE}")

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
# It reports every family that has no bold or no upright font, which is nothing to those who read names in a picture.


def complete(figure: Figure, *, as_text: bool) -> frozenset[str]:
    """Give the texts of a figure the fonts that they need; gives the letters that no font here has.

    With `as_text` (SVG) the program that shows the picture looks for the letters in fonts of their own. Elsewhere texts
    that need another font are drawn as outlines: PostScript cannot take in fonts of every kind, and a PDF would take in
    all of a font of 20 MB.
    """
    missing: set[str] = set()
    for text in figure.findobj(Text):
        needed = frozenset(text.get_text()) - _INVISIBLE - _letters_of(FONT, frozenset(text.get_text()))
        if not needed:
            continue
        families, without = _families(needed)
        missing |= without
        if not as_text:
            text.set_fontfamily([FONT, *families])
            text.set_path_effects([Normal()])
    return frozenset(missing)


_told: Final[set[str]] = set()


def not_yet_told(missing: frozenset[str]) -> frozenset[str]:
    """Those of the letters that this was not asked about before."""
    new = missing - _told
    _told.update(new)
    return new


def forget_fonts() -> None:
    """Look anew at what fonts there are."""
    _families.cache_clear()
    _letters_of.cache_clear()
    _told.clear()


@lru_cache(maxsize=2_000)
def _families(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """Families that together have these letters, as few as one can easily find, and the letters that none has."""
    found: list[str] = []
    while letters:
        most = max(_others(), key=lambda family: len(_letters_of(family, letters)), default=None)
        had = frozenset() if most is None else _letters_of(most, letters)
        if most is None or not had:
            break
        found.append(most)
        letters -= had
    return tuple(found), letters


@lru_cache(maxsize=2_000)
def _letters_of(family: str, letters: frozenset[str]) -> frozenset[str]:
    """Those of the letters that a family has."""
    font = _font(family)
    return frozenset() if font is None else frozenset(one for one in letters if font.get_char_index(ord(one)))


def _font(family: str) -> FT2Font | None:
    """A family's upright font, as matplotlib finds it; None where it cannot be drawn: a font of coloured pictures."""
    properties = font_manager.FontProperties(family=[family])
    try:
        font = font_manager.get_font(font_manager.findfont(properties, fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):
        return None
    return font if font.scalable and not font.num_fixed_sizes else None


def _others() -> Iterable[str]:
    """The families of this computer in a fixed order: those without serifs, and of many languages, first."""
    names = {entry.name for entry in font_manager.fontManager.ttflist if not entry.name.startswith(_NO_LETTERS)}
    return sorted(names - {FONT}, key=lambda name: ("Sans" not in name, "Mono" in name, name))


_MARK: Final = "whole-name:"
_MARKED: Final = re.compile(rf'<g id="{_MARK}([^"]*)">'.encode())
_MOST_LETTERS: Final = 500


def whole_name(text: Text, name: str) -> None:
    """Let a text have this title, where it does not say as much itself."""
    whole = safe(name)
    if whole != text.get_text():
        text.set_gid(_MARK + quote(whole[:_MOST_LETTERS], safe=""))


def with_titles(svg: bytes) -> bytes:
    """An SVG whose marked texts have titles."""
    return _MARKED.sub(lambda found: f"<g><title>{escape(unquote(found[1].decode()))}</title>".encode(), svg)
