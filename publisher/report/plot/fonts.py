"""Letters that the default font of pictures lacks: the fonts of this computer that have them, and letters without any.

matplotlib takes each letter from the first font of a list that has it. The list is the default font and as few others
as the letters need, so that pictures of plain names do not depend on the installed fonts.

Shortened names in an SVG have the whole name as their title, for pointers and screen readers. matplotlib cannot write
titles, but writes the id of a text: it holds the name until the picture is complete.
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
"""matplotlib's own font, which has a box for every letter."""
_INVISIBLE: Final = frozenset("\n\r\t\N{HAIR SPACE}")

logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
# It warns of each family without a bold or an upright font, which does not matter here.


def complete(figure: Figure, *, as_text: bool) -> frozenset[str]:
    """Set the fonts that the texts of a figure need; returns the letters that no font of this computer has.

    With `as_text` (SVG) the viewer finds the fonts. In other formats, texts that need another font are drawn as
    outlines: PostScript cannot embed every kind of font, and a PDF would embed a font of 20 MB as a whole.
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


_reported: Final[set[str]] = set()


def not_yet_reported(missing: frozenset[str]) -> frozenset[str]:
    """Those of the letters that were not reported before."""
    new = missing - _reported
    _reported.update(new)
    return new


def forget_fonts() -> None:
    """Forget which fonts exist, and which letters were reported."""
    _families.cache_clear()
    _letters_of.cache_clear()
    _reported.clear()


@lru_cache(maxsize=2_000)
def _families(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """A small number of families that have these letters, and the letters that none has."""
    families: list[str] = []
    while letters:
        most = max(_others(), key=lambda family: len(_letters_of(family, letters)), default=None)
        had = frozenset() if most is None else _letters_of(most, letters)
        if most is None or not had:
            break
        families.append(most)
        letters -= had
    return tuple(families), letters


@lru_cache(maxsize=2_000)
def _letters_of(family: str, letters: frozenset[str]) -> frozenset[str]:
    """Those of the letters that a family has."""
    font = _font(family)
    return frozenset() if font is None else frozenset(letter for letter in letters if font.get_char_index(ord(letter)))


def _font(family: str) -> FT2Font | None:
    """A family's upright font, as matplotlib finds it; None if it cannot be drawn, such as a font of coloured emoji."""
    properties = font_manager.FontProperties(family=[family])
    try:
        font = font_manager.get_font(font_manager.findfont(properties, fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):
        return None
    return font if font.scalable and not font.num_fixed_sizes else None


def _others() -> Iterable[str]:
    """The families of this computer in a fixed order: sans-serif fonts first, monospaced ones last."""
    names = {entry.name for entry in font_manager.fontManager.ttflist if not entry.name.startswith(_NO_LETTERS)}
    return sorted(names - {FONT}, key=lambda name: ("Sans" not in name, "Mono" in name, name))


_MARK: Final = "whole-name:"
_MARKED: Final = re.compile(rf'<g id="{_MARK}([^"]*)">'.encode())
_MOST_LETTERS: Final = 500


def whole_name(text: Text, name: str) -> None:
    """Set the title of a text that does not show the whole name."""
    whole = safe(name)
    if whole != text.get_text():
        text.set_gid(_MARK + quote(whole[:_MOST_LETTERS], safe=""))


def with_titles(svg: bytes) -> bytes:
    """An SVG with the titles that `whole_name` set."""
    return _MARKED.sub(lambda found: f"<g><title>{escape(unquote(found[1].decode()))}</title>".encode(), svg)
