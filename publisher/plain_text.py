"""Text for people: what comes from outside without what a terminal would obey or what turns lines around; numbers."""

from __future__ import annotations

from typing import Final

_CONTROL: Final = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0))}
_DIRECTION: Final = {
    code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
}
_HARMLESS: Final = _CONTROL | _DIRECTION


def safe(text: object) -> str:
    """Text from outside as it may be shown: controls, line ends, escapes and direction marks are spelled out."""
    shown = str(text).translate(_HARMLESS)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def utf8(text: str) -> str:
    """A text that a database and JSON take: lone surrogates are spelled `\\udcff`.

    They stand in the name of a file for bytes that are not UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def counted(number: int, what: str) -> str:
    """So many of something, as people say it: 1 message, 2 messages."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
