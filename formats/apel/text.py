"""Write and read the grammar of APEL's text messages (facts on formats, 4.1 and 4.2).

A message is a header line `TYPE: vX.Y` and records of `Key: value` lines, with `%%` between records. Nothing can be
escaped, so a value is altered to fit (`carried`) before it is written. Messages are read as the server reads them: the
text is stripped, then split at `%%` anywhere, at every line end that `str.splitlines` recognises, and each line at its
first colon.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

RECORD_MARK: Final = "%%"
"""Where the server splits records, anywhere in the text."""

SEPARATOR: Final = b"%%\n"
"""Separates two records; each record ends in a newline."""

CONTENT_TYPE: Final = "text/plain"
"""The content type of a message, without its parameters."""

NULL: Final = "None"
"""The server's word for a missing value."""

_NULL_WORDS: Final = frozenset({"", "none", "null"})
_PERCENTS: Final = re.compile("%%+")
_ENCRYPTED: Final = re.compile("(application)/((?:x-)?pkcs7-mime)")
_SAFE: Final = re.compile(r"(?!.*%%)(?!.*pkcs7-mime)[!-~](?:[ -~]*[!-~])?").fullmatch

CARRIED_RULE: Final = (
    "one line of printable ASCII without %% (APEL text has no escapes): accents are dropped, "
    "other characters become \\xHH of their UTF-8 bytes, line breaks and control characters a blank, %% %25%25"
)


def is_null(value: str) -> bool:
    """Whether the server treats a value as missing: empty, or `none` or `null` in any case."""
    return value.strip().lower() in _NULL_WORDS


def carried(value: str) -> str:
    """A value altered by `CARRIED_RULE`, so that a message can contain it; altering it again changes nothing.

    The media type by which SSM recognises an encrypted message (facts on receivers, 3) loses its slash.
    """
    if _SAFE(value):
        return value
    text = value if value.isascii() else "".join(map(_ascii, value))
    text = "".join(char if " " <= char <= "~" else " " for char in text).strip()
    # Two of them separate records: a name with them would end its record, and begin one of its own.
    text = _PERCENTS.sub(lambda run: "%25" * len(run[0]), text)
    return _ENCRYPTED.sub(r"\1-\2", text)


def _ascii(char: str) -> str:
    if char.isascii():
        return char
    if char.isspace():
        return " "
    plain = "".join(part for part in unicodedata.normalize("NFKD", char) if not unicodedata.combining(part))
    if plain.isascii() and (plain or unicodedata.combining(char)):
        return plain
    return "".join(f"\\x{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def body(fields: Iterable[tuple[str, str | int]]) -> bytes:
    """A record of these keys and values, which `carried` must have altered."""
    return lines(fields).encode("ascii")


def lines(fields: Iterable[tuple[str, str | int | None]]) -> str:
    """Lines of a record: these keys and values, altered by `carried`; a missing value has no line."""
    return "".join([f"{key}: {value}\n" for key, value in fields if value is not None and value != ""])


def whole(value: str | None) -> int | None:
    """A value as a whole number; None if it is missing or not a whole number."""
    try:
        return None if value is None else int(value)
    except ValueError:
        return None


class TextMessage:
    """Makes messages: a header line and records."""

    def __init__(self, kind: str, version: str) -> None:
        """`kind`: e.g. `APEL-summary-job-message`; `version`: e.g. `0.2`."""
        self._header = f"{kind}: v{version}\n".encode("ascii")

    def of(self, bodies: Sequence[bytes]) -> bytes:
        """The complete message. Its size is that of the header, the records, and a separator between two records."""
        return self._header + SEPARATOR.join(bodies)

    @property
    def overhead_bytes(self) -> int:
        """Bytes of the header."""
        return len(self._header)


class TextRecord(msgspec.Struct, frozen=True):
    """A record of a message: `number` from 1; `unreadable` are the lines without a colon."""

    number: int
    pairs: tuple[tuple[str, str], ...]
    unreadable: tuple[str, ...] = ()
    fields: dict[str, str] = {}
    """Values by key, made from `pairs`; of a repeated key the last value, as at the server."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "fields", dict(self.pairs))

    def get(self, key: str) -> str | None:
        """The value of a key; None if it is missing or null."""
        value = self.fields.get(key)
        return None if value is None or is_null(value) else value


class ParsedMessage(msgspec.Struct, frozen=True):
    """The parts of a message: `header` is the whole first line, `version` as written, with its `v`."""

    header: str
    kind: str
    version: str
    records: tuple[TextRecord, ...]


class NotApelTextError(ValueError):
    """The text has no header line with a colon, so it is not an APEL text message."""


def parse(text: str) -> ParsedMessage:
    """Split a message into its parts, as the server does. Raises `NotApelTextError`."""
    lines = text.strip().splitlines()
    if not lines or ":" not in lines[0]:
        raise NotApelTextError("the first line is not the header of an APEL message (TYPE: vX.Y)")
    header = lines[0]
    kind, _, version = header.partition(":")
    pieces = [piece for piece in "\n".join(lines[1:]).strip().split(RECORD_MARK) if piece and not piece.isspace()]
    records = tuple(_record(number, piece) for number, piece in enumerate(pieces, 1))
    return ParsedMessage(header.strip(), kind.strip(), version.strip(": "), records)


def records_of(message: bytes) -> tuple[TextRecord, ...]:
    """The records of a message. Raises `NotApelTextError`, and `UnicodeDecodeError`."""
    return parse(message.decode("utf-8")).records


def _record(number: int, piece: str) -> TextRecord:
    pairs: list[tuple[str, str]] = []
    unreadable: list[str] = []
    for line in piece.strip().splitlines():
        key, colon, value = line.partition(":")
        if colon:
            pairs.append((key.strip(), value.strip()))
        else:
            unreadable.append(line)
    return TextRecord(number, tuple(pairs), tuple(unreadable))
