"""Distinguished names: slash form and RFC 2253, and what of a user's name a receiver is given.

Keeps the promise that a person appears under one spelling at a receiver, whatever form a source wrote the name in:
every format that carries a user takes the name from `dn_for`.

Slash form (`/DC=org/DC=example/CN=Ada`) is OpenSSL's one-line form, most significant part first; RFC 2253 (and its
successor RFC 4514) has the parts in reverse order, separated by commas, with escapes. A text that is neither is left
as it is: it may be a token's subject or a local convention, and guessing at it would change who a job belongs to.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from formats.job import Job
from formats.record import CannotRenderError
from formats.view import View

HASH_BYTES: Final = 16
"""Length of the keyed hash that stands for a name; it is written as twice as many hexadecimal digits."""

_TYPE: Final = r"(?:[A-Za-z][A-Za-z0-9-]*|[0-9]+(?:\.[0-9]+)+)"
_SLASH_START: Final = re.compile(rf"/(?={_TYPE}=)")
_RDN: Final = re.compile(rf"\s*({_TYPE})\s*=\s*(.*)", re.DOTALL)
_HEX_PAIR: Final = re.compile(rb"[0-9A-Fa-f]{2}")
_MARK: Final = re.compile(r'\\.?|[",;+]', re.DOTALL)
"""What splits a name and what keeps it from being split: an escaped character, a quote, a separator."""
_SPECIAL: Final = frozenset(',+"\\<>;=')
_CACHED_NAMES: Final = 65_536
_LONGEST_CACHED: Final = 1_024
"""Characters of a name that is remembered; a longer one, which no service takes, is worked out each time."""


def dn_for(job: Job, view: View) -> str | None:
    """The user's name as this receiver is to see it, slash form where the source has a distinguished name.

    None where the job has none or the view withholds it. With `dn = "hash"` it is `/CN=` and a BLAKE2b hash of the
    slash form under the view's key: the same person is the same value at the same receiver, in any spelling.

    Raises `CannotRenderError` where names are to be hashed and the view has no key: an unkeyed hash hides nobody.
    """
    name = job.user_dn
    if not name or view.dn == "withhold":
        return None
    slash = to_slash(name)
    if view.dn == "send":
        return slash
    if not view.dn_key:
        raise CannotRenderError(
            "user_dn", "names are to be hashed for this receiver, and there is no key to do it with"
        )
    key = view.dn_key
    if len(key) > hashlib.blake2b.MAX_KEY_SIZE:
        key = hashlib.blake2b(key).digest()
    raw = slash.encode("utf-8", "surrogatepass")
    return "/CN=" + hashlib.blake2b(raw, digest_size=HASH_BYTES, key=key).hexdigest()


def to_slash(dn: str) -> str:
    """The name in slash form; what is in slash form already, or is no distinguished name, comes back unchanged."""
    if dn.startswith("/"):
        return dn
    return _to_slash(dn) if len(dn) <= _LONGEST_CACHED else _to_slash.__wrapped__(dn)


@lru_cache(maxsize=_CACHED_NAMES)
def _to_slash(dn: str) -> str:
    parts = _parse_rfc2253(dn)
    if parts is None:
        return dn
    return "".join(f"/{kind}={value}" for kind, value in reversed(parts))


def to_rfc2253(dn: str) -> str:
    """The name in RFC 2253 form; what is not in slash form comes back unchanged.

    A slash that is not followed by `type=` belongs to the value, so that `/CN=host/ce1.example.org` keeps its host.
    """
    return _to_rfc2253(dn) if len(dn) <= _LONGEST_CACHED else _to_rfc2253.__wrapped__(dn)


@lru_cache(maxsize=_CACHED_NAMES)
def _to_rfc2253(dn: str) -> str:
    parts = _parse_slash(dn)
    if parts is None:
        return dn
    return ",".join(f"{kind}={_escape(value)}" for kind, value in reversed(parts))


def _parse_slash(dn: str) -> list[tuple[str, str]] | None:
    before, *words = _SLASH_START.split(dn)
    if before or not words:
        return None
    parts = []
    for word in words:
        kind, _, value = word.partition("=")
        parts.append((kind, value))
    return parts


def _parse_rfc2253(dn: str) -> list[tuple[str, str]] | None:
    """Attribute types and values in the order written; a multi-valued part gives one pair for each of its values."""
    words = _split_unescaped(dn)
    if words is None:
        return None
    parts: list[tuple[str, str]] = []
    for together in words:
        # reversed as a whole later on, so the values of one part are put down backwards to come out as written
        for word in reversed(together):
            match = _RDN.fullmatch(word)
            if match is None:
                return None
            value = _unescape(match[2])
            if value is None:
                return None
            parts.append((match[1], value))
    return parts


def _split_unescaped(dn: str) -> list[list[str]] | None:
    """Split at commas (or semicolons) and, inside, at plus signs that are neither escaped nor quoted."""
    words: list[list[str]] = [[]]
    quoted = False
    begin = 0
    for mark in _MARK.finditer(dn):
        char = mark[0]
        if char == '"':
            quoted = not quoted
        elif not quoted and char[0] != "\\":
            words[-1].append(dn[begin : mark.start()])
            begin = mark.end()
            if char != "+":
                words.append([])
    words[-1].append(dn[begin:])
    return None if quoted else words


def _unescape(text: str) -> str | None:
    """The value of an RFC 2253 attribute; None where an escape is broken or its bytes are no UTF-8."""
    text = _strip_unescaped(text)
    if len(text) >= 2 and text.startswith('"') and text.endswith('"'):
        text = text[1:-1]
    raw = text.encode("utf-8", "surrogatepass")
    value = bytearray()
    position = 0
    while position < len(raw):
        if raw[position : position + 1] != b"\\":
            value.append(raw[position])
            position += 1
        elif _HEX_PAIR.fullmatch(raw, position + 1, position + 3):
            value.append(int(raw[position + 1 : position + 3], 16))
            position += 3
        elif position + 1 < len(raw):
            value.append(raw[position + 1])
            position += 2
        else:
            return None
    try:
        return value.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _strip_unescaped(text: str) -> str:
    stripped = text.rstrip(" ")
    backslashes = len(stripped) - len(stripped.rstrip("\\"))
    if backslashes % 2 and stripped != text:
        stripped += " "
    return stripped


def _escape(value: str) -> str:
    escaped = []
    last = len(value) - 1
    for position, char in enumerate(value):
        if char in _SPECIAL or (char == "#" and position == 0) or (char == " " and position in (0, last)):
            escaped.append("\\" + char)
        elif ord(char) < 0x20 or ord(char) == 0x7F or (char.isspace() and char != " "):
            escaped.append("".join(f"\\{byte:02X}" for byte in char.encode("utf-8", "surrogatepass")))
        else:
            escaped.append(char)
    return "".join(escaped)
