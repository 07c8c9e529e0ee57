"""Fields of accounting lines: decoding of text and numbers, and the error for a line that is not a record. Pure."""

from __future__ import annotations

import codecs
import re
from typing import Final

_INTEGER: Final = re.compile(r"-?\d{1,15}", re.ASCII)


NUL: Final = "contains NUL bytes, which an interrupted write leaves"


class LineError(ValueError):
    """A line is not a record; the message is the reason that the administrator sees."""


class CutError(LineError):
    """A line ends within a text that a user chose: a line feed in it may have broken the record."""


def _json_escape(error: UnicodeError) -> tuple[str | bytes, int]:
    assert isinstance(error, UnicodeDecodeError)  # it is registered for decoding
    return "".join(f"\\\\x{byte:02x}" for byte in error.object[error.start : error.end]), error.end


JSON_BYTES: Final = "publisher.json-bytes"
"""The handler of bytes of JSON that are not UTF-8: they become `\\xNN` in its strings, as in `decoded`."""

codecs.register_error(JSON_BYTES, _json_escape)


def decoded(raw: bytes) -> str:
    """Text of a line; bytes that are not UTF-8 become `\\xNN`, so that they can be stored and shown.

    Raises `LineError` for NUL bytes, which an interrupted write leaves.
    """
    if b"\0" in raw:
        raise LineError(NUL)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "backslashreplace")


def integer(text: str | None) -> int | None:
    """A decimal number with or without a minus sign, or None."""
    if text and len(text) <= 15 and text.isdecimal() and text.isascii():  # nearly always
        return int(text)
    return int(text) if text and _INTEGER.fullmatch(text) else None


def instant(text: str | None) -> int | None:
    """Epoch seconds; None: empty, zero, or not an instant."""
    if text and text.isdecimal() and len(text) <= 12 and text.isascii():
        return int(text) or None
    return None
