"""Removal of secrets from texts that people read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

LONGEST_SPELLING: Final = 8
"""The most characters that may encode one letter: `&#x0074;`."""


def without(text: str, secrets: Iterable[str]) -> str:
    """Remove the secrets from a text, even if their letters are encoded as HTML, JSON, or a URL may encode them."""
    for secret in filter(None, secrets):
        letters = (
            rf"(?:\\?{re.escape(letter)}|&#0*{ord(letter)};?|&#x0*{ord(letter):x};?|\\u{ord(letter):04x}|%{ord(letter):02x})"
            for letter in secret
        )
        text = re.sub(r"\s*".join(letters), "[token]", text, flags=re.IGNORECASE)
    return text
