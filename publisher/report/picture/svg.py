"""Names in an SVG that were shortened: the whole one is told where one points, and to a screen reader.

matplotlib knows no titles, but writes the id of a text: it holds the name until the picture is done.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from publisher.plain_text import safe

if TYPE_CHECKING:
    from matplotlib.text import Text

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
