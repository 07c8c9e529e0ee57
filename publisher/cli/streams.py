"""Standard input, output, and error: there whatever the caller closed, and with any text whatever their encoding."""

from __future__ import annotations

import codecs
import os
import sys


def prepare_streams() -> None:
    """Let any text be printed whatever the locale, and nothing be opened in place of a stream that is closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    for name, number in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", closefd=False))
        else:
            stream.reconfigure(errors="backslashreplace")


def is_utf8() -> bool:
    """Whether standard output takes all letters."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name in {"utf-8", "utf-8-sig"}


def encodable(text: str) -> str:
    """Text as standard output can have it: letters that its encoding lacks are spelled out."""
    encoding = sys.stdout.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)
